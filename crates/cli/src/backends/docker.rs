//! What containers are worth, by what their engine says of itself.

use std::fmt;

use hermes_exec::backend::docker::ContainerLimits;
use hermes_exec::backend::docker::engine::{Engine, EngineAddress, EngineDescription, EngineFacts, Seccomp};
use hermes_exec::backend::docker::engine_error::EngineError;
use hermes_exec::{Backend, DockerBackend};
use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;

use super::{Confines, Hold, Standing, State, Trouble, Usable, check};
use crate::Context;
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve::{self, engine};

/// An engine that was asked.
#[derive(Debug, Serialize)]
pub(crate) struct Seen {
    pub(crate) address: String,
    /// How it is known that it listens there.
    pub(crate) why: String,
    pub(crate) kind: String,
    pub(crate) version: String,
    pub(crate) rootless: bool,
    pub(crate) remaps_users: bool,
    pub(crate) cgroup: Option<u8>,
    pub(crate) storage: String,
    pub(crate) disk_quota: bool,
    pub(crate) image: String,
    pub(crate) image_present: bool,
}

impl fmt::Display for Seen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let without_root = if self.rootless { ", without root" } else { "" };
        write!(f, "{} {}{without_root}, at {} ({})", self.kind, self.version, self.address, self.why)
    }
}

/// Asks the engine that would be used. No container is made.
pub(super) fn look(context: &Context, config: &Config) -> Standing {
    let backend = BackendName::Docker;
    match examine(context, config) {
        Err(trouble) => {
            let confines = Confines::all(State::Unknown, "there is no engine to ask");
            Standing::new(backend, Usable::No(trouble), confines)
        }
        Ok((confines, seen)) => {
            Standing { engine: Some(seen), ..Standing::new(backend, Usable::Yes, confines) }
        }
    }
}

fn examine(context: &Context, config: &Config) -> Result<(Confines, Seen), Trouble> {
    let found = engine::find(context, config).map_err(|fault| Trouble::from(&fault))?;
    let home = context.variable("HOME").unwrap_or("/");
    // Where only chats use it, what counts is their image.
    let image =
        config.gateway.sandbox_image.as_deref().filter(|_| config.terminal.backend != BackendName::Docker);
    let settings = resolve::docker(context, config, image, home)?;
    if let EngineAddress::Unix(_) = settings.engine {
        check(&settings.binds)?;
    }
    let asked = async {
        let (engine, description) = Engine::describe(&settings.engine).await?;
        let image_present = engine.has_image(&settings.image).await?;
        Ok::<_, EngineError>((engine.facts, description, image_present))
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Trouble::from(Failure::from(error)))?;
    let (facts, description, image_present) =
        runtime.block_on(asked).map_err(|fault| Trouble::from(&fault))?;
    let seen = Seen {
        address: found.address.to_string(),
        why: found.source.to_string(),
        kind: facts.kind.to_string(),
        version: description.version.clone(),
        rootless: facts.is_rootless,
        remaps_users: facts.remaps_users,
        cgroup: description.cgroup,
        storage: description.storage.clone(),
        disk_quota: facts.has_disk_quota,
        image: settings.image.clone(),
        image_present,
    };
    Ok((confines(&settings, &facts, &description), seen))
}

impl From<&EngineError> for Trouble {
    fn from(fault: &EngineError) -> Self {
        Self { what: fault.to_string(), remedy: engine::hints(fault).join("; ") }
    }
}

fn confines(settings: &DockerBackend, facts: &EngineFacts, description: &EngineDescription) -> Confines {
    let hold = |state, reason: &str| Hold { state, reason: Some(reason.to_owned()) };
    let held = |reason: &str| hold(State::Held, reason);
    let not_held = |reason: &str| hold(State::NotHeld, reason);
    let files = match Backend::Docker(settings.clone()).reach() {
        Reach::Host => not_held("what is mounted or added gives this machine away"),
        Reach::Directories(_) => held("those of its image, and what is mounted"),
        Reach::Nothing => held("those of its image; nothing of this machine is written"),
    };
    let network = match settings.network {
        Network::None => held("nothing but a loopback of its own"),
        Network::Proxy => held("public hosts through a proxy, nothing of this machine"),
        Network::Full => not_held("terminal.network is full: all that this machine reaches"),
    };
    let syscalls = match description.seccomp {
        Seccomp::On => held("the engine's seccomp profile; no privilege gained"),
        Seccomp::Unconfined => not_held("the engine is set to a seccomp profile that allows all"),
        Seccomp::Missing => not_held("the engine has no seccomp"),
    };
    // With an argument of the owner's own it may share what else it would not.
    let processes = if settings.run_args.reaches_host() {
        hold(State::Unknown, "terminal.docker_extra_args may share them")
    } else {
        held("sees and signals only its own")
    };
    Confines {
        files,
        network,
        processes,
        syscalls,
        resources: resources(&settings.limits, facts, description),
    }
}

/// A limit holds if it is set and the engine enforces it.
fn resources(limits: &ContainerLimits, facts: &EngineFacts, description: &EngineDescription) -> Hold {
    let rows = [
        ("memory", limits.memory.is_some(), facts.enforced.memory, "terminal.container_memory"),
        ("processes", limits.processes.is_some(), facts.enforced.processes, "terminal"),
        ("processor time", limits.millicpus.is_some(), facts.enforced.processor, "terminal.container_cpu"),
    ];
    let (mut open, mut doubtful, mut held) = (Vec::new(), Vec::new(), Vec::new());
    for (name, is_set, enforced, key) in rows {
        match (is_set, enforced) {
            (false, _) => open.push(format!("{name} ({key} sets no limit)")),
            (true, Some(true)) => held.push(name),
            (true, Some(false)) => open.push(format!("{name} (this engine cannot)")),
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
            "; without root it takes cgroup version 2"
        } else {
            ""
        };
        let reason = format!("not limited: {}{why}; {disk}", open.join(", "));
        return Hold { state: State::NotHeld, reason: Some(reason) };
    }
    if !doubtful.is_empty() {
        let what = doubtful.join(", ");
        let reason = format!("{what}: an engine without root limits what was delegated to it; {disk}");
        return Hold { state: State::Unknown, reason: Some(reason) };
    }
    Hold { state: State::Held, reason: Some(format!("{}; {disk}", held.join(", "))) }
}

#[cfg(test)]
mod tests {
    use hermes_exec::backend::docker::engine::{EnforcedLimits, EngineKind};

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
        let told = |limits: &ContainerLimits, facts: &EngineFacts, description: &EngineDescription| {
            let hold = resources(limits, facts, description);
            (hold.state, hold.reason.unwrap())
        };
        let no_quota = "disk is not limited: the engine's storage has no quota";
        assert_eq!(
            told(&all, &enforcing(Some(true)), &described(2)),
            (State::Held, format!("memory, processes, processor time; {no_quota}"))
        );
        assert_eq!(
            told(&all, &EngineFacts { has_disk_quota: true, ..enforcing(Some(true)) }, &described(2)),
            (State::Held, "memory, processes, processor time; disk is limited".to_owned())
        );
        assert_eq!(
            told(
                &ContainerLimits { memory: None, disk: None, ..all.clone() },
                &enforcing(None),
                &described(2)
            ),
            (
                State::NotHeld,
                "not limited: memory (terminal.container_memory sets no limit); disk is not limited"
                    .to_owned()
            )
        );
        assert_eq!(
            told(&all, &enforcing(Some(false)), &described(1)),
            (
                State::NotHeld,
                format!(
                    "not limited: memory (this engine cannot), processor time (this engine cannot); without root \
                     it takes cgroup version 2; {no_quota}"
                )
            )
        );
        let (state, reason) = told(&all, &enforcing(None), &described(2));
        assert_eq!(state, State::Unknown);
        assert!(reason.starts_with("memory, processor time: an engine without root"), "{reason}");
    }
}
