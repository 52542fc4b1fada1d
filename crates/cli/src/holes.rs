//! The holes of a place: everything of the owner's that commands there can touch.

use std::fmt;

use hermes_exec::PlaceRecord;
use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_policy::visible::visible;
use hermes_types::Reach;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// One thing that reaches into a place, or out of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Hole {
    /// The machine itself, or enough of it that no smaller promise can be made.
    Host,
    /// A directory or file of the host.
    Mount {
        /// Its path on the host.
        source: String,
        /// Its path inside.
        target: String,
        /// What can be done with it.
        access: Access,
    },
    /// More network than a loopback of its own.
    Network {
        /// The word of the setting.
        network: String,
    },
    /// Something else that the owner asked for.
    Option {
        /// As `docker run` writes it.
        option: String,
    },
    /// A variable of the owner's.
    Variable {
        /// Its name. The value is known to nobody here.
        name: String,
        /// Whether it had a value when the place was made.
        present: bool,
    },
    /// What was written down about the place cannot be understood, so there may be any hole.
    Unknown {
        /// Why.
        reason: String,
    },
}

/// What can be done with a mount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Access {
    /// It can be changed.
    #[serde(rename = "read-write")]
    ReadWrite,
    /// It can be read.
    #[serde(rename = "read-only")]
    ReadOnly,
}

/// All holes of the place that a record is about.
pub(crate) fn holes(record: &PlaceRecord) -> Vec<Hole> {
    let host = (record.reach == Reach::Host).then_some(Hole::Host);
    let spec = match Spec::deserialize(&record.spec) {
        Ok(spec) => spec,
        Err(error) => return host.into_iter().chain([Hole::Unknown { reason: error.to_string() }]).collect(),
    };
    let (network, binds, extra) = match spec.backend {
        Backend::Local(_) => (None, Vec::new(), Box::default()),
        Backend::Sandbox(place) | Backend::Docker(place) => (Some(place.network), place.binds, place.extra),
    };
    let network = network.map(|network| network.to_lowercase()).filter(|network| network != "none");
    let network = network.map(|network| Hole::Network { network });
    let options = extra.exposures().into_iter().map(|opening| Hole::Option { option: opening.option });
    let mounts = binds.into_iter().map(|bind| Hole::Mount {
        source: bind.source,
        target: bind.target,
        access: match bind.writable {
            Writable::Yes => Access::ReadWrite,
            Writable::No => Access::ReadOnly,
        },
    });
    let variables = spec.env.into_iter().map(|Variable { name, present }| Hole::Variable { name, present });
    host.into_iter().chain(network).chain(mounts).chain(options).chain(variables).collect()
}

impl fmt::Display for Hole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(f, "this machine, so the gate asks"),
            Self::Mount { source, target, access } => {
                let access = match access {
                    Access::ReadWrite => "read-write",
                    Access::ReadOnly => "read-only",
                };
                write!(f, "mount of {} at {}, {access}", visible(source), visible(target))
            }
            Self::Network { network } => write!(f, "network: {}", visible(network)),
            Self::Option { option } => write!(f, "option {}", visible(option)),
            Self::Variable { name, present: true } => write!(f, "variable {}", visible(name)),
            Self::Variable { name, present: false } => write!(f, "variable {} (empty)", visible(name)),
            Self::Unknown { reason } => write!(f, "unknown: {}", visible(reason)),
        }
    }
}

/// How a place was asked for, as its record keeps it: what of `hermes_exec::Spec` can be a hole.
#[derive(Deserialize)]
struct Spec {
    backend: Backend,
    env: Vec<Variable>,
}

#[derive(Deserialize)]
enum Backend {
    Local(IgnoredAny),
    Sandbox(Confined),
    Docker(Confined),
}

#[derive(Deserialize)]
struct Confined {
    network: String,
    binds: Vec<Bind>,
    #[serde(default)]
    extra: Box<RunArgs>,
}

#[derive(Deserialize)]
struct Bind {
    source: String,
    target: String,
    writable: Writable,
}

#[derive(Deserialize)]
enum Writable {
    Yes,
    No,
}

#[derive(Deserialize)]
struct Variable {
    name: String,
    present: bool,
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use hermes_exec::backend::docker::{self, engine::EngineAddress};
    use hermes_sandbox::JailLimits;
    use hermes_types::{Network, PlaceId};

    use super::*;

    fn record(backend: hermes_exec::Backend) -> PlaceRecord {
        let env = vec![("TOKEN".to_owned(), "hunter2".to_owned()), ("BLANK".to_owned(), String::new())];
        let reach = backend.reach();
        let spec = hermes_exec::Spec {
            backend,
            cwd: "/".to_owned(),
            home: "/".to_owned(),
            env,
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        PlaceRecord {
            place: PlaceId::new("1a2b3c4d"),
            name: "hermes-1a2b3c4d".to_owned(),
            backend: spec.backend.name().as_str().to_owned(),
            session: "s".to_owned(),
            created: 0,
            lifetime: 1,
            reach,
            exposures: None,
            spec: serde_json::to_value(&spec).unwrap(),
            files: None,
            process: None,
            container: None,
            request: None,
            unenforced: Vec::new(),
        }
    }

    fn jail(network: Network, binds: Vec<hermes_exec::BindMount>) -> hermes_exec::Backend {
        hermes_exec::Backend::Sandbox(hermes_exec::SandboxBackend {
            helper: PathBuf::new(),
            files: Some(PathBuf::from("/kept")),
            owner_home: PathBuf::from("/home/me"),
            audience: hermes_exec::Audience::Owner,
            binds,
            network,
            limits: JailLimits::default(),
            base_env: Vec::new(),
        })
    }

    fn variables() -> [Hole; 2] {
        [("TOKEN", true), ("BLANK", false)]
            .map(|(name, present)| Hole::Variable { name: name.to_owned(), present })
    }

    #[test]
    fn every_hole_of_a_jail_is_found_in_what_was_written_down() {
        let bind = |source: &str, writable| hermes_exec::BindMount {
            source: source.into(),
            target: "/in".into(),
            writable,
        };
        let binds = vec![
            bind("/nowhere/a", hermes_exec::Writable::Yes),
            bind("/nowhere/b", hermes_exec::Writable::No),
        ];
        let mount = |source: &str, access| Hole::Mount {
            source: source.to_owned(),
            target: "/in".to_owned(),
            access,
        };
        let mut expected = vec![
            Hole::Host,
            Hole::Network { network: "full".to_owned() },
            mount("/nowhere/a", Access::ReadWrite),
            mount("/nowhere/b", Access::ReadOnly),
        ];
        expected.extend(variables());
        let found = holes(&record(jail(Network::Full, binds)));
        assert_eq!(found, expected);
        assert!(!serde_json::to_string(&found).unwrap().contains("hunter2"));
        assert_eq!(holes(&record(jail(Network::None, Vec::new()))), variables());
    }

    #[test]
    fn every_hole_of_a_container_is_found_in_what_was_written_down() {
        let container = |options: &[&str], binds| {
            let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
            hermes_exec::Backend::Docker(hermes_exec::DockerBackend {
                engine: EngineAddress::Unix("/engine".into()),
                image: "image".to_owned(),
                files: None,
                binds,
                volumes: Vec::new(),
                network: Network::Full,
                limits: docker::ContainerLimits::default(),
                user: docker::RunAs::Image,
                run_args: Box::new(RunArgs::parse(&options).unwrap()),
                warm_count: 0,
                remove_orphans: false,
            })
        };
        let data = hermes_exec::BindMount {
            source: "/nowhere/a".into(),
            target: "/in".into(),
            writable: hermes_exec::Writable::Yes,
        };
        let options = ["--cap-add SYS_ADMIN", "--device /dev/fuse", "--pid host", "--publish 8080:80/tcp"];
        let option = |option: &str| Hole::Option { option: option.to_owned() };
        let full = || Hole::Network { network: "full".to_owned() };
        let mut expected = vec![
            Hole::Host,
            full(),
            Hole::Mount {
                source: "/nowhere/a".to_owned(),
                target: "/in".to_owned(),
                access: Access::ReadWrite,
            },
        ];
        expected.extend(
            ["--pid host", "--device /dev/fuse", "--cap-add SYS_ADMIN", "--publish 8080:80/tcp"].map(option),
        );
        expected.extend(variables());
        assert_eq!(holes(&record(container(&options, vec![data]))), expected);
        let [token, blank] = variables();
        assert_eq!(holes(&record(container(&[], Vec::new()))), [full(), token, blank]);
    }

    #[test]
    fn a_place_on_this_machine_is_a_hole_as_a_whole() {
        let local = hermes_exec::Backend::Local(hermes_exec::LocalBackend::default());
        let [token, blank] = variables();
        assert_eq!(holes(&record(local)), [Hole::Host, token, blank]);
    }

    #[test]
    fn a_record_that_cannot_be_understood_may_have_any_hole() {
        let mut odd = record(jail(Network::None, Vec::new()));
        odd.spec = serde_json::json!({"backend": {"Moon": {}}, "env": []});
        assert!(matches!(holes(&odd).as_slice(), [Hole::Unknown { .. }]), "{:?}", holes(&odd));
    }
}
