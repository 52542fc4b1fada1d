//! The health of the built-in jail.

use hermes_sandbox::probe::{ProbeReport, ProbeVerdict};
use hermes_sandbox::{JailLimits, Launcher};
use hermes_types::{BackendName, Network};

use super::{BackendHealth, BackendProblem, Confinement, Guarantee, Usability};
use crate::SandboxBackend;

impl BackendHealth {
    /// Probes the jail. Nothing is left behind. Blocks.
    pub fn of_sandbox(settings: &SandboxBackend) -> Self {
        let backend = BackendName::Sandbox;
        let probed = Launcher::new(&settings.helper).probe();
        match probed.map_err(|error| BackendProblem::split(&error.to_string())) {
            Err(problem) => Self::unusable(backend, problem),
            Ok(probe) => {
                let usability = leak(&probe).map_or(Usability::Usable, Usability::Unusable);
                Self::new(backend, usability, Confinement::of_jail(settings, probe))
            }
        }
    }
}

/// A jail that does not confine its commands is as bad as none. Missing resource limits are only
/// reported.
fn leak(probe: &ProbeReport) -> Option<BackendProblem> {
    let parts = [
        ("files", &probe.files),
        ("network", &probe.network),
        ("processes", &probe.processes),
        ("system calls", &probe.syscalls),
    ];
    parts.into_iter().find_map(|(name, verdict)| match verdict {
        ProbeVerdict::Enforced => None,
        ProbeVerdict::NotEnforced(reason) | ProbeVerdict::Unknown(reason) => Some(BackendProblem {
            what: format!("the jail does not confine {name}: {reason}"),
            remedy: "Do not use it on this machine, and report this to the maintainers.".to_owned(),
        }),
    })
}

impl BackendProblem {
    /// The jail's errors have the remedy after a semicolon.
    fn split(message: &str) -> Self {
        let (what, remedy) = message
            .split_once("; ")
            .unwrap_or((message, "Run hermes where user namespaces, Landlock and seccomp are allowed."));
        Self { what: what.to_owned(), remedy: remedy.to_owned() }
    }
}

impl Confinement {
    fn of_jail(settings: &SandboxBackend, probe: ProbeReport) -> Self {
        let files = "reads everything except secrets and other homes; writes only its own files";
        let network = match settings.network {
            Network::None => Guarantee::from_verdict(probe.network, "only its own loopback interface"),
            Network::Proxy => Guarantee::from_verdict(
                probe.network,
                "public hosts through a proxy, nothing of this machine",
            ),
            Network::Full => {
                Guarantee::NotHeld("terminal.network is full: this machine and everything it reaches".into())
            }
        };
        let syscalls = "dangerous calls are refused; no privileges, and none can be gained";
        Self([
            ("files", Guarantee::from_verdict(probe.files, files)),
            ("network", network),
            ("processes", Guarantee::from_verdict(probe.processes, "sees and signals only its own")),
            ("syscalls", Guarantee::from_verdict(probe.syscalls, syscalls)),
            ("resources", resources(&settings.limits, probe.resources)),
        ])
    }
}

/// A limit that is not configured is not enforced, whatever this machine supports.
fn resources(limits: &JailLimits, probed: ProbeVerdict) -> Guarantee {
    let unset: Vec<&str> = [
        (limits.memory.is_none(), "memory (terminal.container_memory is 0)"),
        (limits.processes.is_none(), "processes (terminal.container_pids is 0)"),
        (limits.millicpus.is_none(), "processor time (terminal.container_cpu is 0)"),
    ]
    .into_iter()
    .filter_map(|(unset, name)| unset.then_some(name))
    .collect();
    let guarantee = Guarantee::from_verdict(probed, "memory, processes, processor time; disk is not limited");
    if unset.is_empty() {
        return guarantee;
    }
    let unset = format!("no limit is set for {}", unset.join(" and "));
    match guarantee {
        Guarantee::Unknown(_) => guarantee,
        Guarantee::NotHeld(reason) => Guarantee::NotHeld(format!("{unset}; {reason}")),
        Guarantee::Held(_) => Guarantee::NotHeld(unset),
    }
}

impl Guarantee {
    fn from_verdict(verdict: ProbeVerdict, meaning: &str) -> Self {
        match verdict {
            ProbeVerdict::Enforced => Self::Held(meaning.to_owned()),
            ProbeVerdict::NotEnforced(reason) => Self::NotHeld(reason),
            ProbeVerdict::Unknown(reason) => Self::Unknown(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_that_is_not_set_does_not_hold() {
        let limits =
            |memory, millicpus| JailLimits { memory, millicpus, processes: Some(1), ..JailLimits::default() };
        let not = || ProbeVerdict::NotEnforced("processes: no cgroup".to_owned());
        assert_eq!(
            resources(&limits(Some(1), Some(1)), ProbeVerdict::Enforced),
            Guarantee::Held("memory, processes, processor time; disk is not limited".to_owned())
        );
        assert_eq!(
            resources(&limits(None, Some(1)), ProbeVerdict::Enforced),
            Guarantee::NotHeld("no limit is set for memory (terminal.container_memory is 0)".to_owned())
        );
        assert_eq!(
            resources(&limits(Some(1), None), not()),
            Guarantee::NotHeld(
                "no limit is set for processor time (terminal.container_cpu is 0); processes: no cgroup"
                    .to_owned()
            )
        );
        let unknown = ProbeVerdict::Unknown("the probe broke off".to_owned());
        assert_eq!(
            resources(&limits(None, None), unknown),
            Guarantee::Unknown("the probe broke off".to_owned())
        );
    }

    #[test]
    fn a_leaking_jail_is_a_problem_and_missing_limits_are_not() {
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
        assert_eq!(leak(&leaking).unwrap().what, "the jail does not confine files: could write outside");
        let unknown =
            ProbeReport { syscalls: ProbeVerdict::Unknown("the probe broke off".to_owned()), ..held() };
        assert_eq!(
            leak(&unknown).unwrap().what,
            "the jail does not confine system calls: the probe broke off"
        );
    }

    #[test]
    fn an_error_is_split_into_problem_and_remedy() {
        let problem = BackendProblem::split(&hermes_sandbox::MissingSupport::UserNamespaceLimit.to_string());
        assert_eq!(
            (problem.what.as_str(), problem.remedy.as_str()),
            (
                "user namespaces are disabled or exhausted (user.max_user_namespaces)",
                "as root: sysctl -w user.max_user_namespaces=15000"
            )
        );
    }
}
