//! Exposures: everything of the owner's that commands in a place can reach.

use std::fmt;

use hermes_policy::escape::escape;
use hermes_types::{Egress, MountAccess, Network, Reach};
use serde::{Deserialize, Serialize};

use crate::{Backend, PlaceRecord, Spec};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Exposure {
    /// The host, or so much of it that no narrower limit can be guaranteed.
    Host,
    /// A host path or a volume of the engine.
    Mount { source: String, target: String, access: MountAccess },
    /// More network than a loopback interface.
    Network { network: String },
    /// An option of `docker run`.
    Option { option: String },
    /// An environment variable; `present` tells whether it had a value when the place was created.
    Variable { name: String, present: bool },
    /// The record of the place does not tell, so anything may be exposed.
    Unknown { reason: String },
}

impl Spec {
    /// The damage that commands in this place can do.
    pub fn reach(&self) -> Reach {
        self.backend.reach()
    }

    /// What commands in this place can send or ask for through its network.
    pub fn egress(&self) -> Egress {
        let network = self.backend.network();
        let shows_owner_data = match &self.backend {
            Backend::Local(_) => true,
            Backend::Sandbox(sandbox) => !sandbox.shown_mounts().is_empty(),
            Backend::Docker(docker) => !docker.owner_mounts().is_empty(),
        };
        Egress {
            sends_owner_data: shows_owner_data && network != Network::None,
            reaches_private_addresses: network == Network::Full,
        }
    }

    pub fn exposures(&self) -> Vec<Exposure> {
        let host = (self.reach() == Reach::Host).then_some(Exposure::Host);
        let (network, mounts, options) = match &self.backend {
            // All of the network belongs to the host, which is listed.
            Backend::Local(_) => (Network::None, Vec::new(), Vec::new()),
            Backend::Sandbox(sandbox) => (sandbox.network, sandbox.shown_mounts(), Vec::new()),
            Backend::Docker(docker) => (docker.network, docker.owner_mounts(), docker.run_args.exposures()),
        };
        let mounts = mounts.into_iter().map(|mount| Exposure::Mount {
            source: mount.source.display().to_string(),
            target: mount.target.display().to_string(),
            access: mount.access,
        });
        let network =
            (network != Network::None).then(|| Exposure::Network { network: network.as_str().to_owned() });
        let options = options.into_iter().map(|(option, _)| Exposure::Option { option });
        let variables = self
            .env
            .iter()
            .map(|(name, value)| Exposure::Variable { name: name.clone(), present: !value.is_empty() });
        host.into_iter().chain(network).chain(mounts).chain(options).chain(variables).collect()
    }
}

impl PlaceRecord {
    /// The exposures of the place when it was created.
    pub fn exposures(&self) -> Vec<Exposure> {
        self.exposures.clone().unwrap_or_else(|| {
            let reason = "the record was written by another version of hermes".to_owned();
            let host = (self.reach == Reach::Host).then_some(Exposure::Host);
            host.into_iter().chain([Exposure::Unknown { reason }]).collect()
        })
    }
}

impl fmt::Display for Exposure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host => write!(f, "this machine, so the gate asks"),
            Self::Mount { source, target, access } => {
                let access = if *access == MountAccess::ReadWrite { "read-write" } else { "read-only" };
                write!(f, "mount of {} at {}, {access}", escape(source), escape(target))
            }
            Self::Network { network } => write!(f, "network: {}", escape(network)),
            Self::Option { option } => write!(f, "option {}", escape(option)),
            Self::Variable { name, present: true } => write!(f, "variable {}", escape(name)),
            Self::Variable { name, present: false } => write!(f, "variable {} (empty)", escape(name)),
            Self::Unknown { reason } => write!(f, "unknown: {}", escape(reason)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use hermes_sandbox::JailLimits;
    use hermes_types::SessionKey;

    use super::*;
    use crate::backend::docker::engine::EngineAddress;
    use crate::backend::docker::run_args::RunArgs;
    use crate::backend::docker::{ContainerLimits, EngineVolume, RunAs};
    use crate::{
        Audience, BindMount, DockerBackend, Installation, LocalBackend, ResolvedPlace, SandboxBackend,
    };

    fn spec(backend: Backend) -> Spec {
        Spec {
            backend,
            cwd: "/".to_owned(),
            home: "/".to_owned(),
            env: vec![("TOKEN".to_owned(), "hunter2".to_owned()), ("BLANK".to_owned(), String::new())],
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        }
    }

    fn sandbox(network: Network, binds: Vec<BindMount>) -> Backend {
        Backend::Sandbox(SandboxBackend {
            helper: PathBuf::new(),
            files: Some(PathBuf::from("/kept")),
            owner_home: PathBuf::from("/home/me"),
            audience: Audience::Owner,
            binds,
            network,
            limits: JailLimits::default(),
            base_env: Vec::new(),
        })
    }

    fn container(options: &[&str], binds: Vec<BindMount>, volumes: Vec<EngineVolume>) -> Backend {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        Backend::Docker(DockerBackend {
            engine: EngineAddress::Unix("/engine".into()),
            image: "image".to_owned(),
            files: None,
            binds,
            volumes,
            network: Network::Full,
            limits: ContainerLimits::default(),
            user: RunAs::Image,
            run_args: Box::new(RunArgs::parse(&options).unwrap()),
            warm_count: 0,
            remove_orphans: false,
        })
    }

    fn bind(source: &str, access: MountAccess) -> BindMount {
        BindMount { source: source.into(), target: "/in".into(), access }
    }

    fn mount(source: &str, target: &str, access: MountAccess) -> Exposure {
        Exposure::Mount { source: source.to_owned(), target: target.to_owned(), access }
    }

    fn full() -> Exposure {
        Exposure::Network { network: "full".to_owned() }
    }

    fn variables() -> [Exposure; 2] {
        [("TOKEN", true), ("BLANK", false)]
            .map(|(name, present)| Exposure::Variable { name: name.to_owned(), present })
    }

    #[test]
    fn every_exposure_of_a_jail_is_listed() {
        let binds =
            vec![bind("/nowhere/a", MountAccess::ReadWrite), bind("/nowhere/b", MountAccess::ReadOnly)];
        let mut expected = vec![
            Exposure::Host,
            full(),
            mount("/home/me", "/home/me", MountAccess::ReadOnly),
            mount("/nowhere/a", "/in", MountAccess::ReadWrite),
            mount("/nowhere/b", "/in", MountAccess::ReadOnly),
        ];
        expected.extend(variables());
        let found = spec(sandbox(Network::Full, binds)).exposures();
        assert_eq!(found, expected);
        assert!(!serde_json::to_string(&found).unwrap().contains("hunter2"));
        let [token, blank] = variables();
        let home = mount("/home/me", "/home/me", MountAccess::ReadOnly);
        assert_eq!(spec(sandbox(Network::None, Vec::new())).exposures(), [home, token, blank]);
    }

    #[test]
    fn every_exposure_of_a_container_is_listed() {
        let options = ["--cap-add SYS_ADMIN", "--device /dev/fuse", "--pid host", "--publish 8080:80/tcp"];
        let option = |option: &str| Exposure::Option { option: option.to_owned() };
        let mut expected = vec![Exposure::Host, full(), mount("/nowhere/a", "/in", MountAccess::ReadWrite)];
        expected.extend(
            ["--pid host", "--device /dev/fuse", "--cap-add SYS_ADMIN", "--publish 8080:80/tcp"].map(option),
        );
        expected.extend(variables());
        let data = vec![bind("/nowhere/a", MountAccess::ReadWrite)];
        assert_eq!(spec(container(&options, data, Vec::new())).exposures(), expected);
        let [token, blank] = variables();
        assert_eq!(spec(container(&[], Vec::new(), Vec::new())).exposures(), [full(), token, blank]);
    }

    #[test]
    fn volumes_of_the_engine_are_exposures_and_count_for_the_reach() {
        let volume = |source: &str, target: &str, access, options: &[&str]| EngineVolume {
            mount: BindMount { source: source.into(), target: target.into(), access },
            options: options.iter().map(|option| (*option).to_owned()).collect(),
        };
        // As from `data:/data` and `/srv:/srv:z,ro`.
        let volumes = vec![
            volume("data", "/data", MountAccess::ReadWrite, &[]),
            volume("/srv", "/srv", MountAccess::ReadOnly, &["z"]),
        ];
        let spec = spec(container(&[], Vec::new(), volumes));
        let mut expected = vec![
            full(),
            mount("data", "/data", MountAccess::ReadWrite),
            mount("/srv", "/srv", MountAccess::ReadOnly),
        ];
        expected.extend(variables());
        assert_eq!(spec.exposures(), expected);
        assert_eq!(spec.reach(), Reach::Directories(vec!["/data".to_owned()]));
    }

    #[test]
    fn data_can_be_sent_if_it_is_shown_and_private_addresses_are_reached_without_the_proxy() {
        let egress = |sends_owner_data, reaches_private_addresses| Egress {
            sends_owner_data,
            reaches_private_addresses,
        };
        let of_chat = |network, binds| match sandbox(network, binds) {
            Backend::Sandbox(jail) => {
                spec(Backend::Sandbox(SandboxBackend { audience: Audience::Others, ..jail })).egress()
            }
            other => spec(other).egress(),
        };
        let data = || vec![bind("/nowhere/a", MountAccess::ReadOnly)];
        // The owner's home is visible in the owner's sandbox.
        assert_eq!(spec(sandbox(Network::Proxy, Vec::new())).egress(), egress(true, false));
        assert_eq!(spec(sandbox(Network::None, Vec::new())).egress(), Egress::NONE);
        assert_eq!(of_chat(Network::Proxy, Vec::new()), Egress::NONE);
        assert_eq!(of_chat(Network::Proxy, data()), egress(true, false));
        assert_eq!(of_chat(Network::Full, Vec::new()), egress(false, true));
        assert_eq!(spec(container(&[], Vec::new(), Vec::new())).egress(), egress(false, true));
        assert_eq!(spec(container(&[], data(), Vec::new())).egress(), Egress::ALL);
        assert_eq!(spec(Backend::Local(LocalBackend::default())).egress(), Egress::ALL);
    }

    #[test]
    fn a_local_place_exposes_the_whole_host() {
        let [token, blank] = variables();
        let local = spec(Backend::Local(LocalBackend::default()));
        assert_eq!(local.exposures(), [Exposure::Host, token, blank]);
    }

    #[test]
    fn a_record_keeps_its_exposures_and_one_without_may_have_any() {
        let path = || PathBuf::from("/h");
        let installation = Installation {
            install_id: "i".to_owned(),
            run_dir: path(),
            cache_dir: path(),
            home: path(),
            limits: crate::PlaceLimits::default(),
        };
        let spec = spec(sandbox(Network::None, Vec::new()));
        let place = ResolvedPlace::new(installation, spec.clone(), SessionKey::new("s")).unwrap();
        let written = serde_json::to_value(place.new_record()).unwrap();
        let record: PlaceRecord = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(record.exposures(), spec.exposures());
        let mut old = written;
        old.as_object_mut().unwrap().remove("exposures");
        let old: PlaceRecord = serde_json::from_value(old).unwrap();
        assert!(matches!(old.exposures().as_slice(), [Exposure::Unknown { .. }]), "{:?}", old.exposures());
    }
}
