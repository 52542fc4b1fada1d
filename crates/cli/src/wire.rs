//! From settings to the values that the other crates are made of.

use hermes_policy::{Gate, Mode, Scope, Unattended, UserRule, UserVerdict};
use hermes_types::{Access, BackendName, Network, Place, PlaceId, Reach, VolumeSource};

use crate::Context;
use crate::config::keys::{self, ApprovalMode, Config};

/// The gate with everything the owner decided in the configuration.
pub(crate) fn gate(config: &Config) -> Gate {
    let approvals = &config.approvals;
    let rule = |verdict, pattern: &hermes_policy::user_rule::CommandPattern| UserRule {
        verdict,
        pattern: pattern.clone(),
        scope: Scope::Everywhere,
        expires: None,
    };
    // The list of the Python program also holds names of its own rules; they are no commands and match none.
    let listed: Vec<_> =
        config.general.command_allowlist.iter().filter_map(|text| text.parse().ok()).collect();
    let allowed = approvals.allow.iter().chain(&listed).map(|pattern| rule(UserVerdict::Allow, pattern));
    let asked = approvals.ask.iter().map(|pattern| rule(UserVerdict::Ask, pattern));
    let denied = approvals.deny.iter().map(|pattern| rule(UserVerdict::Deny, pattern));
    let mut gate = Gate {
        mode: match approvals.mode {
            ApprovalMode::Manual => Mode::Manual,
            ApprovalMode::Smart => Mode::Smart,
            ApprovalMode::Off => Mode::Off,
        },
        unattended: match approvals.cron_mode {
            keys::Unattended::Deny => Unattended::Deny,
            keys::Unattended::Approve => Unattended::Allow,
        },
        rules: allowed.chain(asked).chain(denied).collect(),
        ..Gate::default()
    };
    gate.asking.patience = approvals.timeout;
    gate
}

/// A place of this kind, as the configuration would make it, for the gate to judge by.
pub(crate) fn place(context: &Context, config: &Config, backend: BackendName) -> Place {
    let home = match backend {
        BackendName::Local | BackendName::Ssh => context.variable("HOME").unwrap_or("/root"),
        _ => "/root",
    };
    Place {
        id: PlaceId::new("test"),
        backend,
        reach: reach(config, backend),
        home: home.to_owned(),
        hermes_home: context.home.path().display().to_string(),
    }
}

/// What such a place can hurt.
fn reach(config: &Config, backend: BackendName) -> Reach {
    let terminal = &config.terminal;
    match backend {
        BackendName::Local | BackendName::Ssh => Reach::Host,
        BackendName::Singularity | BackendName::Modal | BackendName::Daytona | BackendName::Kubernetes => {
            Reach::Nothing
        }
        // The machine's own services listen on its loopback.
        BackendName::Sandbox if terminal.network == Some(Network::Full) => Reach::Host,
        // What an extra argument gives away is not known here.
        BackendName::Docker if !terminal.docker_extra_args.is_empty() => Reach::Host,
        BackendName::Docker | BackendName::Sandbox => {
            let writable = terminal.docker_volumes.iter().filter(|volume| volume.access == Access::ReadWrite);
            let of_the_host = writable.filter(|volume| matches!(volume.source, VolumeSource::Path(_)));
            let mut directories: Vec<String> = of_the_host.map(|volume| volume.target.clone()).collect();
            if terminal.docker_mount_cwd_to_workspace {
                directories.push("/workspace".to_owned());
            }
            let socket = |path: &String| path.ends_with(".sock") || path == "/var/run" || path == "/run";
            if directories.iter().any(socket) {
                Reach::Host
            } else if directories.is_empty() {
                Reach::Nothing
            } else {
                Reach::Directories(directories)
            }
        }
    }
}
