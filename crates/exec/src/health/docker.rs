//! The health of a container engine.

use std::fmt;

use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;

use super::{BackendHealth, BackendProblem, Confinement, Guarantee, Usability};
use crate::backend::docker::ContainerLimits;
use crate::backend::docker::discover::EngineSource;
use crate::backend::docker::engine::{Engine, EngineDescription, EngineFacts, Seccomp};
use crate::backend::docker::pull;
use crate::{DockerBackend, Error};

/// An engine as `status` and `doctor` show it.
#[derive(Debug, Serialize)]
pub struct EngineSummary {
    pub address: String,
    /// The setting that names the address.
    #[serde(rename = "why")]
    pub source: String,
    #[serde(flatten)]
    pub facts: EngineFacts,
    #[serde(flatten)]
    pub description: EngineDescription,
    pub image: String,
    pub image_present: bool,
}

impl fmt::Display for EngineSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, source, facts, description, .. } = self;
        let rootless = if facts.is_rootless { ", without root" } else { "" };
        write!(f, "{} {}{rootless}, at {address} ({source})", facts.kind, description.version)
    }
}

impl BackendHealth {
    /// Asks the engine about itself. No container is created.
    pub async fn of_docker(settings: &DockerBackend, source: &EngineSource) -> Self {
        let backend = BackendName::Docker;
        match ask_engine(settings, source).await {
            Err(problem) => Self::unusable(backend, problem),
            Ok((confinement, summary)) => {
                Self { engine: Some(summary), ..Self::new(backend, Usability::Usable, confinement) }
            }
        }
    }
}

async fn ask_engine(
    settings: &DockerBackend,
    source: &EngineSource,
) -> Result<(Confinement, EngineSummary), BackendProblem> {
    let ask = async {
        let (engine, description) = Engine::describe(&settings.engine).await?;
        let image = pull::find_image(&engine, &settings.image).await?;
        Ok::<_, Error>((engine.facts, description, image.is_some()))
    };
    let (facts, description, image_present) = ask.await?;
    let confinement = confinement(settings, &facts, &description);
    let summary = EngineSummary {
        address: settings.engine.to_string(),
        source: source.to_string(),
        facts,
        description,
        image: settings.image.clone(),
        image_present,
    };
    Ok((confinement, summary))
}

fn confinement(
    settings: &DockerBackend,
    facts: &EngineFacts,
    description: &EngineDescription,
) -> Confinement {
    let files = match settings.reach() {
        Reach::Host => Guarantee::NotHeld("mounts or options expose this machine".into()),
        Reach::Directories(_) => Guarantee::Held("reads and writes files of its image and the mounts".into()),
        Reach::Nothing => {
            Guarantee::Held("reads its image and the mounts; writes nothing of this machine".into())
        }
    };
    let network = match settings.network {
        Network::None => Guarantee::Held("only its own loopback interface".into()),
        Network::Proxy => Guarantee::Held("public hosts through a proxy, nothing of this machine".into()),
        Network::Full => {
            Guarantee::NotHeld("terminal.network is full: everything that this machine reaches".into())
        }
    };
    let syscalls = match description.seccomp {
        Seccomp::On => Guarantee::Held("the engine's seccomp profile; no privilege gained".into()),
        Seccomp::Unconfined => {
            Guarantee::NotHeld("the engine's seccomp profile allows every system call".into())
        }
        Seccomp::Missing => Guarantee::NotHeld("the engine has no seccomp".into()),
    };
    // Such an argument may share the host's processes.
    let processes = if settings.run_args.reaches_host() {
        Guarantee::Unknown("terminal.docker_extra_args may share them".into())
    } else {
        Guarantee::Held("sees and signals only its own".into())
    };
    Confinement([
        ("files", files),
        ("network", network),
        ("processes", processes),
        ("syscalls", syscalls),
        ("resources", resources(&settings.limits, facts, description)),
    ])
}

/// A limit holds if it is configured and the engine enforces it.
fn resources(limits: &ContainerLimits, facts: &EngineFacts, description: &EngineDescription) -> Guarantee {
    let rows = [
        ("memory", limits.memory.is_some(), facts.enforced.memory, "terminal.container_memory"),
        ("processes", limits.processes.is_some(), facts.enforced.processes, "terminal.container_pids"),
        ("processor time", limits.millicpus.is_some(), facts.enforced.processor, "terminal.container_cpu"),
    ];
    let (mut open, mut doubtful, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for (name, is_set, enforced, key) in rows {
        match (is_set, enforced) {
            (false, _) => open.push(format!("{name} ({key} sets no limit)")),
            (true, Some(true)) => held.push(name),
            (true, Some(false)) => open.push(format!("{name} (not supported by this engine)")),
            (true, None) => doubtful.push(name),
        }
    }
    let disk = match (limits.disk, facts.has_disk_quota) {
        (Some(_), true) => "disk is limited",
        (Some(_), false) => "disk is not limited: the engine's storage has no quota",
        (None, _) => "disk is not limited",
    };
    if !open.is_empty() {
        let why = if facts.is_rootless && description.cgroup == Some(1) {
            "; a rootless engine needs cgroup v2"
        } else {
            ""
        };
        return Guarantee::NotHeld(format!("not limited: {}{why}; {disk}", open.join(", ")));
    }
    if !doubtful.is_empty() {
        let what = doubtful.join(", ");
        let reason = format!("{what}: a rootless engine enforces only delegated limits; {disk}");
        return Guarantee::Unknown(reason);
    }
    Guarantee::Held(format!("{}; {disk}", held.join(", ")))
}

#[cfg(test)]
mod tests {
    use crate::backend::docker::engine::{EnforcedLimits, EngineKind};

    use super::*;

    fn enforcing(enforced: Option<bool>) -> EngineFacts {
        EngineFacts {
            kind: EngineKind::Podman,
            is_rootless: true,
            remaps_users: false,
            enforced: EnforcedLimits { memory: enforced, processes: Some(true), processor: enforced },
            has_disk_quota: false,
        }
    }

    fn described(cgroup: u8) -> EngineDescription {
        EngineDescription {
            version: "4".to_owned(),
            cgroup: Some(cgroup),
            seccomp: Seccomp::On,
            storage: "overlay on xfs".to_owned(),
        }
    }

    #[test]
    fn a_limit_holds_if_it_is_set_and_enforced() {
        let all = ContainerLimits {
            millicpus: Some(1),
            memory: Some(1),
            disk: Some(1),
            processes: Some(1),
            ..ContainerLimits::default()
        };
        let report = |limits: &ContainerLimits, facts: &EngineFacts, description: &EngineDescription| {
            resources(limits, facts, description)
        };
        let no_quota = "disk is not limited: the engine's storage has no quota";
        assert_eq!(
            report(&all, &enforcing(Some(true)), &described(2)),
            Guarantee::Held(format!("memory, processes, processor time; {no_quota}"))
        );
        assert_eq!(
            report(&all, &EngineFacts { has_disk_quota: true, ..enforcing(Some(true)) }, &described(2)),
            Guarantee::Held("memory, processes, processor time; disk is limited".to_owned())
        );
        assert_eq!(
            report(
                &ContainerLimits { memory: None, disk: None, ..all.clone() },
                &enforcing(None),
                &described(2)
            ),
            Guarantee::NotHeld(
                "not limited: memory (terminal.container_memory sets no limit); disk is not limited"
                    .to_owned()
            )
        );
        assert_eq!(
            report(&all, &enforcing(Some(false)), &described(1)),
            Guarantee::NotHeld(format!(
                "not limited: memory (not supported by this engine), processor time (not supported by \
                 this engine); a rootless engine needs cgroup v2; {no_quota}"
            ))
        );
        let Guarantee::Unknown(reason) = report(&all, &enforcing(None), &described(2)) else {
            panic!("it is known");
        };
        assert!(reason.starts_with("memory, processor time: a rootless engine"), "{reason}");
    }
}
