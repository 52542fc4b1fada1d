//! What each backend is worth on this machine: whether it can be used, and what it confines.

mod docker;

use hermes_exec::{BindMount, SandboxBackend};
use hermes_sandbox::probe::{ProbeReport, ProbeVerdict};
use hermes_sandbox::{JailLimits, Launcher};
use hermes_types::{BackendName, Network};
use serde::Serialize;

use crate::Context;
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve;

/// What one backend is worth.
#[derive(Debug)]
pub(crate) struct Standing {
    pub(crate) backend: BackendName,
    pub(crate) usable: Usable,
    pub(crate) confines: Confines,
    /// What makes its containers, if something does.
    pub(crate) engine: Option<docker::Seen>,
}

/// Whether a backend can be used.
#[derive(Debug)]
pub(crate) enum Usable {
    Yes,
    No(Trouble),
    /// Nobody looked, for this reason.
    Unknown(&'static str),
}

/// Why a backend cannot be used, and what to do about it.
#[derive(Debug)]
pub(crate) struct Trouble {
    pub(crate) what: String,
    pub(crate) remedy: String,
}

/// What a backend keeps commands from.
#[derive(Debug, Serialize)]
pub(crate) struct Confines {
    pub(crate) files: Hold,
    pub(crate) network: Hold,
    pub(crate) processes: Hold,
    pub(crate) syscalls: Hold,
    pub(crate) resources: Hold,
}

/// Whether one of these holds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Hold {
    pub(crate) state: State,
    pub(crate) reason: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum State {
    #[serde(rename = "held")]
    Held,
    #[serde(rename = "not held")]
    NotHeld,
    #[serde(rename = "unknown")]
    Unknown,
}

/// The backends that commands of this configuration run on.
pub(crate) fn configured(config: &Config) -> Vec<BackendName> {
    let mut names = vec![config.terminal.backend];
    let has_chats = config.discord.bot_token.is_some();
    names.extend(
        config.gateway.terminal_backend.or_else(|| has_chats.then(|| resolve::gateway::backend(config))),
    );
    names.dedup();
    names
}

/// Tries what a backend is worth. Nothing is left behind.
pub(crate) fn look(context: &Context, config: &Config, backend: BackendName) -> Standing {
    match backend {
        BackendName::Local => {
            let confines = Confines::all(State::NotHeld, "commands run as you; the gate asks first");
            Standing::new(backend, Usable::Yes, confines)
        }
        BackendName::Sandbox => jail(context, config),
        BackendName::Docker if !configured(config).contains(&backend) => {
            // An engine that nobody chose is not so much as greeted.
            let reason = "not looked at, because nothing is set to run there";
            Standing::new(backend, Usable::Unknown(reason), Confines::all(State::Unknown, reason))
        }
        BackendName::Docker => docker::look(context, config),
        _ => {
            let trouble = Trouble {
                what: "not part of this version".to_owned(),
                remedy: "choose `docker`, `sandbox` or `local`; until then commands for it are not run"
                    .to_owned(),
            };
            let confines = Confines::all(State::Unknown, "not part of this version");
            Standing::new(backend, Usable::No(trouble), confines)
        }
    }
}

fn jail(context: &Context, config: &Config) -> Standing {
    let backend = BackendName::Sandbox;
    let home = context.variable("HOME").unwrap_or("/");
    let settings = resolve::sandboxed(context, config, home).map_err(Trouble::from);
    let settings = settings.and_then(|settings| check(&settings.binds).map(|()| settings));
    let probed = settings.and_then(|settings| {
        let probe = Launcher::new(&settings.helper).probe();
        probe.map(|probe| (settings, probe)).map_err(|error| Trouble::told(&error.to_string()))
    });
    match probed {
        Err(trouble) => {
            let confines = Confines::all(State::Unknown, "there is no jail to try it in");
            Standing::new(backend, Usable::No(trouble), confines)
        }
        Ok((settings, probe)) => {
            let usable = leak(&probe).map_or(Usable::Yes, Usable::No);
            Standing::new(backend, usable, Confines::of_jail(&settings, probe))
        }
    }
}

/// A mount whose source is missing stops every place.
fn check(binds: &[BindMount]) -> Result<(), Trouble> {
    match binds.iter().find(|bind| !bind.source.exists()) {
        None => Ok(()),
        Some(bind) => Err(Trouble {
            what: format!("{} is to be mounted and is not there", bind.source.display()),
            remedy: "make it, or take it out of terminal.docker_volumes".to_owned(),
        }),
    }
}

/// A jail that can be made but does not hold is as bad as none. Limits on resources are reported only.
fn leak(probe: &ProbeReport) -> Option<Trouble> {
    let parts = [
        ("files", &probe.files),
        ("network", &probe.network),
        ("processes", &probe.processes),
        ("system calls", &probe.syscalls),
    ];
    parts.into_iter().find_map(|(name, verdict)| match verdict {
        ProbeVerdict::Enforced => None,
        ProbeVerdict::NotEnforced(reason) | ProbeVerdict::Unknown(reason) => Some(Trouble {
            what: format!("its jail does not hold: {name}: {reason}"),
            remedy: "do not use it on this machine, and report this to the maintainers".to_owned(),
        }),
    })
}

impl Standing {
    fn new(backend: BackendName, usable: Usable, confines: Confines) -> Self {
        Self { backend, usable, confines, engine: None }
    }

    pub(crate) fn is_usable(&self) -> bool {
        matches!(self.usable, Usable::Yes)
    }
}

impl Trouble {
    /// The jail's errors say what is wrong and, behind a semicolon, what to do.
    fn told(message: &str) -> Self {
        let (what, remedy) = message
            .split_once("; ")
            .unwrap_or((message, "run hermes where user namespaces, Landlock and seccomp are allowed"));
        Self { what: what.to_owned(), remedy: remedy.to_owned() }
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Self {
        Self { what: failure.message, remedy: failure.hints.join("; ") }
    }
}

impl Confines {
    fn all(state: State, reason: &str) -> Self {
        let hold = Hold { state, reason: Some(reason.to_owned()) };
        Self {
            files: hold.clone(),
            network: hold.clone(),
            processes: hold.clone(),
            syscalls: hold.clone(),
            resources: hold,
        }
    }

    fn of_jail(settings: &SandboxBackend, probe: ProbeReport) -> Self {
        let files = "reads all but secrets and other homes; writes its own";
        let network = match settings.network {
            Network::None => Hold::of(probe.network, "nothing but a loopback of its own"),
            Network::Proxy => {
                Hold::of(probe.network, "public hosts through a proxy, nothing of this machine")
            }
            Network::Full => Hold {
                state: State::NotHeld,
                reason: Some("terminal.network is full: this machine and all it reaches".to_owned()),
            },
        };
        Self {
            files: Hold::of(probe.files, files),
            network,
            processes: Hold::of(probe.processes, "sees and signals only its own"),
            syscalls: Hold::of(probe.syscalls, "dangerous ones are refused; no privilege left or gained"),
            resources: resources(&settings.limits, probe.resources),
        }
    }

    /// All of them with their names, as they are shown.
    pub(crate) fn rows(&self) -> [(&'static str, &Hold); 5] {
        [
            ("files", &self.files),
            ("network", &self.network),
            ("processes", &self.processes),
            ("syscalls", &self.syscalls),
            ("resources", &self.resources),
        ]
    }
}

/// A limit that nobody set does not hold, whatever this machine could do.
fn resources(limits: &JailLimits, probed: ProbeVerdict) -> Hold {
    let unset: Vec<&str> = [
        (limits.memory.is_none(), "memory (terminal.container_memory is 0)"),
        (limits.processes.is_none(), "processes"),
        (limits.millicpus.is_none(), "processor time (terminal.container_cpu is 0)"),
    ]
    .into_iter()
    .filter_map(|(unset, name)| unset.then_some(name))
    .collect();
    let hold = Hold::of(probed, "memory, processes, processor time; disk is not limited");
    if unset.is_empty() || hold.state == State::Unknown {
        return hold;
    }
    let mut reasons = vec![format!("no limit is set for {}", unset.join(" and "))];
    reasons.extend(hold.reason.filter(|_| hold.state == State::NotHeld));
    Hold { state: State::NotHeld, reason: Some(reasons.join("; ")) }
}

impl Hold {
    fn of(verdict: ProbeVerdict, meaning: &str) -> Self {
        let (state, reason) = match verdict {
            ProbeVerdict::Enforced => (State::Held, meaning.to_owned()),
            ProbeVerdict::NotEnforced(reason) => (State::NotHeld, reason),
            ProbeVerdict::Unknown(reason) => (State::Unknown, reason),
        };
        Self { state, reason: Some(reason) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_nobody_set_does_not_hold() {
        let limits =
            |memory, millicpus| JailLimits { memory, millicpus, processes: Some(1), ..JailLimits::default() };
        let told = |limits: &JailLimits, probed| {
            let hold = resources(limits, probed);
            (hold.state, hold.reason.unwrap())
        };
        let not = || ProbeVerdict::NotEnforced("processes: no cgroup".to_owned());
        assert_eq!(
            told(&limits(Some(1), Some(1)), ProbeVerdict::Enforced),
            (State::Held, "memory, processes, processor time; disk is not limited".to_owned())
        );
        assert_eq!(
            told(&limits(None, Some(1)), ProbeVerdict::Enforced),
            (State::NotHeld, "no limit is set for memory (terminal.container_memory is 0)".to_owned())
        );
        assert_eq!(
            told(&limits(Some(1), None), not()),
            (
                State::NotHeld,
                "no limit is set for processor time (terminal.container_cpu is 0); processes: no cgroup"
                    .to_owned()
            )
        );
        let unknown = ProbeVerdict::Unknown("the probe broke off".to_owned());
        assert_eq!(told(&limits(None, None), unknown), (State::Unknown, "the probe broke off".to_owned()));
    }

    #[test]
    fn a_jail_that_leaks_is_trouble_and_one_that_lacks_limits_is_not() {
        let held = || ProbeReport {
            files: ProbeVerdict::Enforced,
            network: ProbeVerdict::Enforced,
            processes: ProbeVerdict::Enforced,
            syscalls: ProbeVerdict::Enforced,
            resources: ProbeVerdict::NotEnforced("memory: no cgroup".to_owned()),
        };
        assert!(leak(&held()).is_none());
        let leaking =
            ProbeReport { files: ProbeVerdict::NotEnforced("could write outside".to_owned()), ..held() };
        assert_eq!(leak(&leaking).unwrap().what, "its jail does not hold: files: could write outside");
        let unknown =
            ProbeReport { syscalls: ProbeVerdict::Unknown("the probe broke off".to_owned()), ..held() };
        assert_eq!(leak(&unknown).unwrap().what, "its jail does not hold: system calls: the probe broke off");
    }

    #[test]
    fn what_is_wrong_and_what_to_do_are_told_apart() {
        let trouble = Trouble::told(&hermes_sandbox::MissingSupport::UserNamespaceLimit.to_string());
        assert_eq!(
            (trouble.what.as_str(), trouble.remedy.as_str()),
            (
                "user namespaces are disabled or exhausted (user.max_user_namespaces)",
                "as root: sysctl -w user.max_user_namespaces=15000"
            )
        );
    }
}
