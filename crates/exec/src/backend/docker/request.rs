//! The create request of a container. Every caller gets the same request.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountBindOptions, MountType, MountVolumeOptions,
    MountVolumeOptionsDriverConfig,
};
use hermes_types::{MountAccess, Network, Timestamp};

use super::engine::{EngineFacts, EngineKind};
use super::transport::FileOwner;
use super::{ContainerUser, DockerBackend, EngineVolume, HOME_DIR, RunAs, WORKSPACE_DIR};
use crate::backend::BindMount;
use crate::registry::{PlaceDir, SOCKET_NAME};
use crate::{Error, ResolvedPlace};

/// Paths of Hermes inside the container.
pub(super) const HERMES_DIR: &str = "/.hermes";
pub(super) const GUEST_PATH: &str = "/.hermes/guest";
pub(super) const RUN_DIR: &str = "/.hermes/run";

pub(super) const AGENT_LABEL: &str = "hermes-agent";
pub(super) const INSTALL_LABEL: &str = "hermes-install";
pub(super) const CREATED_LABEL: &str = "hermes-created";
pub(super) const PLACE_LABEL: &str = "hermes-place";
pub(super) const PLACE_DIR_LABEL: &str = "hermes-room";

/// Capabilities that root needs to work with files of other users.
const ROOT_CAPABILITIES: [&str; 3] = ["DAC_OVERRIDE", "CHOWN", "FOWNER"];
/// Capabilities to switch users, of use to root only.
const CHANGE_USER_CAPABILITIES: [&str; 2] = ["SETUID", "SETGID"];

/// Each tmpfs: path, options and default size in bytes. The last three are used only when no files
/// are kept.
const TMPFS_DIRS: [(&str, &str, u64); 6] = [
    ("/tmp", "rw,nosuid,exec", 512 << 20),
    ("/var/tmp", "rw,noexec,nosuid", 256 << 20),
    ("/run", "rw,noexec,nosuid", 64 << 20),
    ("/home", "rw,exec", 1 << 30),
    (HOME_DIR, "rw,exec", 1 << 30),
    (WORKSPACE_DIR, "rw,exec", 10 << 30),
];

/// Directories that belong to the user commands run as.
const USER_DIRS: [&str; 3] = [HOME_DIR, "/home", WORKSPACE_DIR];

pub(super) fn container_name(place: &ResolvedPlace) -> String {
    // "hermes-" and the first eight digits; the label has the full name.
    place.name().chars().take("hermes-".len() + 8).collect()
}

/// The volumes for home and workspace on an engine that shares no directory with the host.
pub(super) fn volume_names(place: &ResolvedPlace) -> Vec<String> {
    ["home", "workspace"].map(|name| format!("{}-{name}", place.name())).to_vec()
}

impl DockerBackend {
    /// The host user that commands run as; `None` leaves the choice to the image.
    pub(super) fn host_owner(&self, facts: &EngineFacts) -> Option<FileOwner> {
        match self.user {
            RunAs::Image => None,
            // Root inside a rootless engine is the user that owns the engine.
            RunAs::Host if facts.is_rootless => Some(FileOwner::default()),
            RunAs::Host => Some(FileOwner {
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
            }),
        }
    }

    pub(super) fn requested_user(&self, facts: &EngineFacts) -> Option<String> {
        let owner = || self.host_owner(facts).map(|owner| format!("{}:{}", owner.uid, owner.gid));
        self.run_args.user.clone().or_else(owner)
    }

    /// Builds the create request. The guest listens in the host directory `inside`.
    pub(super) fn build_request(
        &self,
        place: &ResolvedPlace,
        facts: &EngineFacts,
        container_user: &ContainerUser,
        guest: &Path,
        inside: &Path,
    ) -> ContainerCreateBody {
        let user = self.requested_user(facts);
        let root = |user: &str| matches!(user.split(':').next(), Some("0" | "root"));
        let changes = self.run_args.user.as_deref().map_or(user.is_none(), root);
        let rights = match (facts.kind, container_user) {
            // Podman grants them to that user immediately; Docker keeps them for root.
            (EngineKind::Podman, ContainerUser::Number { .. } | ContainerUser::Name) => Vec::new(),
            _ if changes => [&ROOT_CAPABILITIES[..], &CHANGE_USER_CAPABILITIES].concat(),
            _ => ROOT_CAPABILITIES.to_vec(),
        };
        let words = ["serve", "--foreground", "--socket", &format!("{RUN_DIR}/{SOCKET_NAME}"), "--idle"];
        let idle = place.spec.lifetime.as_secs().to_string();
        let limits = &self.limits;
        let bytes = |number: Option<u64>| number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let storage = limits.disk.map(|disk| HashMap::from([("size".to_owned(), disk.to_string())]));
        let mut mounts = self.mounts(place, guest, inside);
        let tmpfs = self.tmpfs_options(facts.kind, container_user, &mut mounts);
        let host_config = HostConfig {
            mounts: Some(mounts),
            binds: Some(self.volumes.iter().map(bind_string).collect()),
            tmpfs: Some(tmpfs),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(rights.into_iter().map(str::to_owned).collect()),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            pids_limit: limits.processes.map(i64::from),
            nano_cpus: limits.millicpus.map(|millis| i64::from(millis) * 1_000_000),
            memory: bytes(limits.memory),
            storage_opt: storage.filter(|_| facts.has_disk_quota),
            shm_size: bytes(limits.shm),
            network_mode: Some(
                match self.network {
                    Network::Full => "bridge",
                    // The proxy needs only the loopback interface that every container has.
                    Network::None | Network::Proxy => "none",
                }
                .to_owned(),
            ),
            auto_remove: Some(true),
            ..self.run_args.host.clone()
        };
        let mut body = ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(vec![GUEST_PATH.to_owned()]),
            cmd: Some(words.into_iter().map(str::to_owned).chain([idle]).collect()),
            env: Some(vec![format!("HOME={HOME_DIR}")]),
            user,
            working_dir: Some("/".to_owned()),
            // The image may name a signal that the guest ignores.
            stop_signal: Some("SIGTERM".to_owned()),
            labels: Some(labels(place)),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        self.run_args.apply(&mut body);
        body
    }

    fn mounts(&self, place: &ResolvedPlace, guest: &Path, inside: &Path) -> Vec<Mount> {
        if self.engine.is_remote() {
            return self.remote_mounts(place);
        }
        let mut mounts = vec![
            bind_mount(guest, GUEST_PATH, MountAccess::ReadOnly),
            bind_mount(inside, RUN_DIR, MountAccess::ReadWrite),
        ];
        for (source, target) in self.kept_mounts(place) {
            mounts.push(bind_mount(&source, target, MountAccess::ReadWrite));
        }
        for bind in &self.binds {
            mounts.push(bind_mount(&bind.source, &bind.target.to_string_lossy(), bind.access));
        }
        // Parents are mounted before their children.
        let depth = |mount: &Mount| mount.target.as_deref().map_or(0, |target| target.split('/').count());
        mounts.sort_by_key(depth);
        mounts
    }

    /// Mounts for an engine that shares no directory with the host.
    fn remote_mounts(&self, place: &ResolvedPlace) -> Vec<Mount> {
        let named = |(volume, target): (String, &str)| Mount {
            target: Some(target.to_owned()),
            source: Some(volume),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions {
                labels: Some(labels(place)),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        };
        let volumes = if self.files.is_some() { volume_names(place) } else { Vec::new() };
        // An anonymous volume is removed with the container; the layer itself may be read-only.
        let ours =
            Mount { target: Some(HERMES_DIR.to_owned()), typ: Some(MountType::VOLUME), ..Mount::default() };
        volumes.into_iter().zip([HOME_DIR, WORKSPACE_DIR]).map(named).chain([ours]).collect()
    }

    /// The options of each tmpfs by path. One whose owner cannot be set is added to the mounts.
    fn tmpfs_options(
        &self,
        engine: EngineKind,
        container_user: &ContainerUser,
        mounts: &mut Vec<Mount>,
    ) -> HashMap<String, String> {
        let mut tmpfs = HashMap::new();
        for (path, options, default_size) in TMPFS_DIRS {
            let is_users = USER_DIRS.contains(&path);
            if self.covers(path) || (is_users && self.files.is_some()) {
                continue;
            }
            let size = self.limits.scratch.get(path).copied().unwrap_or(default_size);
            // A user other than root cannot write to these directories otherwise: they keep the
            // mode they have in the image. Podman's `U` option gives them to the user.
            let owner = match (engine, container_user) {
                (_, ContainerUser::Root) => String::new(),
                _ if !is_users => String::new(),
                (EngineKind::Podman, _) => ",U".to_owned(),
                (EngineKind::Docker, ContainerUser::Number { uid, gid: None }) => format!(",uid={uid}"),
                (EngineKind::Docker, ContainerUser::Number { uid, gid: Some(gid) }) => {
                    format!(",uid={uid},gid={gid}")
                }
                (EngineKind::Docker, ContainerUser::Name) => {
                    mounts.push(tmpfs_volume(path, size));
                    continue;
                }
            };
            tmpfs.insert(path.to_owned(), format!("{options},size={size}{owner}"));
        }
        tmpfs
    }
}

/// A tmpfs that every user can write to. Docker cannot set the owner of a tmpfs for a user it knows
/// only by name, so this is a volume with a mode.
fn tmpfs_volume(path: &str, size: u64) -> Mount {
    let options = [("type", "tmpfs"), ("device", "tmpfs"), ("o", &format!("size={size},mode=1777"))];
    let options = options.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let driver_config = MountVolumeOptionsDriverConfig {
        name: Some("local".to_owned()),
        options: Some(HashMap::from(options)),
    };
    Mount {
        target: Some(path.to_owned()),
        typ: Some(MountType::VOLUME),
        volume_options: Some(MountVolumeOptions {
            no_copy: Some(true),
            driver_config: Some(driver_config),
            ..MountVolumeOptions::default()
        }),
        ..Mount::default()
    }
}

fn bind_mount(source: &Path, target: &str, access: MountAccess) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(access == MountAccess::ReadOnly),
        bind_options: Some(MountBindOptions::default()),
        ..Mount::default()
    }
}

/// A mount in the syntax of `docker run --volume`.
fn bind_string(volume: &EngineVolume) -> String {
    let BindMount { source, target, access } = &volume.mount;
    let access = if *access == MountAccess::ReadOnly { "ro" } else { "rw" };
    let options: Vec<&str> = [access].into_iter().chain(volume.options.iter().map(String::as_str)).collect();
    format!("{}:{}:{}", source.display(), target.display(), options.join(","))
}

/// The request for a container that empties a host directory and exits.
pub(super) fn cleaner_request(
    image: &str,
    place: &str,
    guest: &Path,
    directory: &Path,
) -> ContainerCreateBody {
    let rights = ["DAC_OVERRIDE", "FOWNER"];
    let host_config = HostConfig {
        mounts: Some(vec![
            bind_mount(guest, GUEST_PATH, MountAccess::ReadOnly),
            bind_mount(directory, RUN_DIR, MountAccess::ReadWrite),
        ]),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(rights.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        network_mode: Some("none".to_owned()),
        auto_remove: Some(true),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![GUEST_PATH.to_owned()]),
        cmd: Some(vec!["empty".to_owned(), RUN_DIR.to_owned()]),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        labels: Some(HashMap::from([
            (AGENT_LABEL.to_owned(), "1".to_owned()),
            (PLACE_LABEL.to_owned(), place.to_owned()),
        ])),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// The request as JSON with sorted keys.
pub(super) fn to_sorted_json(body: &ContainerCreateBody) -> Result<serde_json::Value, Error> {
    let mut json = serde_json::to_value(body)?;
    json.sort_all_objects();
    Ok(json)
}

fn labels(place: &ResolvedPlace) -> HashMap<String, String> {
    [
        (AGENT_LABEL, "1".to_owned()),
        (INSTALL_LABEL, place.installation.install_id.clone()),
        (PLACE_LABEL, place.name()),
        (PLACE_DIR_LABEL, PlaceDir::for_place(place).path().display().to_string()),
        ("hermes-session", place.session_hash()),
        ("hermes-digest", place.id().as_str().to_owned()),
        (CREATED_LABEL, Timestamp::now().seconds().to_string()),
        ("hermes-lifetime", place.spec.lifetime.as_secs().to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use hermes_types::SessionKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::backend::docker::ContainerLimits;
    use crate::backend::docker::engine::{EnforcedLimits, EngineAddress, EngineKind};
    use crate::backend::docker::run_args::RunArgs;
    use crate::{Backend, Installation, Spec};

    fn facts(holds: bool) -> EngineFacts {
        let enforces = EnforcedLimits { memory: Some(holds), processes: Some(holds), processor: None };
        EngineFacts {
            kind: EngineKind::Docker,
            is_rootless: false,
            remaps_users: false,
            enforced: enforces,
            has_disk_quota: holds,
        }
    }

    fn docker(options: &[&str]) -> DockerBackend {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        DockerBackend {
            engine: EngineAddress::Unix("/engine".into()),
            image: "image".to_owned(),
            files: None,
            volumes: Vec::new(),
            binds: Vec::new(),
            network: Network::Full,
            limits: ContainerLimits::default(),
            user: RunAs::Image,
            run_args: Box::new(RunArgs::parse(&options).unwrap()),
            warm_count: 0,
            remove_orphans: false,
        }
    }

    /// The create request as JSON.
    fn request_json(docker: &DockerBackend, facts: &EngineFacts) -> Value {
        let path = || PathBuf::from("/h");
        let host = Installation {
            install_id: "i".to_owned(),
            run_dir: path(),
            cache_dir: path(),
            home: path(),
            limits: crate::PlaceLimits::default(),
        };
        let spec = Spec {
            backend: Backend::Docker(docker.clone()),
            cwd: WORKSPACE_DIR.to_owned(),
            home: HOME_DIR.to_owned(),
            env: vec![("TOKEN".to_owned(), "hunter2".to_owned())],
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let place = ResolvedPlace::new(host, spec, SessionKey::new("s")).unwrap();
        let container_user = ContainerUser::parse(&docker.requested_user(facts).unwrap_or_default());
        let request_json =
            docker.build_request(&place, facts, &container_user, Path::new("/guest"), Path::new("/inside"));
        let request_json = to_sorted_json(&request_json).unwrap();
        assert!(!request_json.to_string().contains("hunter2"), "{request_json}");
        // The guest handles this signal, whatever the image says.
        assert_eq!(request_json["StopSignal"], "SIGTERM");
        request_json
    }

    #[test]
    fn an_unenforceable_limit_is_reported_and_left_out_if_it_would_fail() {
        let mut docker = docker(&[]);
        assert_eq!(docker.unenforced_limits(&facts(false)), Vec::<String>::new());
        docker.limits = ContainerLimits {
            millicpus: Some(1500),
            memory: Some(7),
            disk: Some(9),
            processes: Some(3),
            shm: Some(5),
            ..ContainerLimits::default()
        };
        assert_eq!(docker.unenforced_limits(&facts(true)), Vec::<String>::new());
        let expected = ["disk", "memory", "processes"];
        let expected = expected.map(|what| format!("the engine cannot limit the {what} of a container"));
        assert_eq!(docker.unenforced_limits(&facts(false)), expected);
        let of = |facts: &EngineFacts| {
            let host = request_json(&docker, facts)["HostConfig"].take();
            let keys = ["NanoCpus", "Memory", "PidsLimit", "ShmSize", "StorageOpt"];
            keys.map(|key| host.get(key).cloned().unwrap_or_default())
        };
        let limits = |disk: Value| [json!(1_500_000_000), json!(7), json!(3), json!(5), disk];
        assert_eq!(of(&facts(true)), limits(json!({"size": "9"})));
        assert_eq!(of(&facts(false)), limits(Value::Null));
    }

    #[test]
    fn a_tmpfs_has_its_size_and_yields_to_mounts() {
        let mut docker = docker(&["--tmpfs=/run:size=1m"]);
        docker.files = Some("/kept".into());
        let targets = |docker: &DockerBackend| {
            let mounts = request_json(docker, &facts(true))["HostConfig"]["Mounts"].take();
            let targets =
                mounts.as_array().unwrap().iter().map(|mount| mount["Target"].as_str().unwrap().to_owned());
            targets.filter(|target| !target.starts_with(HERMES_DIR)).collect::<Vec<_>>()
        };
        assert_eq!(targets(&docker), ["/root", "/workspace"]);
        docker.run_args.tmpfs.insert("/workspace".to_owned(), "size=2m".to_owned());
        assert_eq!(targets(&docker), ["/root"]);
        docker.run_args.tmpfs.remove("/workspace");
        docker.files = None;
        docker.limits.scratch = [("/tmp".to_owned(), 1 << 20), (HOME_DIR.to_owned(), 2 << 20)].into();
        let of = |docker: &DockerBackend| request_json(docker, &facts(true))["HostConfig"]["Tmpfs"].take();
        let mut expected = json!({
            "/tmp": "rw,nosuid,exec,size=1048576",
            "/var/tmp": "rw,noexec,nosuid,size=268435456",
            "/run": "size=1m",
            "/home": "rw,exec,size=1073741824",
            "/root": "rw,exec,size=2097152",
            "/workspace": "rw,exec,size=10737418240",
        });
        assert_eq!(of(&docker), expected);
        for path in ["/workspace", "/tmp"] {
            expected.as_object_mut().unwrap().remove(path);
            let (source, target) = ("/srv".into(), path.into());
            docker.binds.push(crate::BindMount { source, target, access: MountAccess::ReadWrite });
        }
        assert_eq!(of(&docker), expected);
        docker.files = Some("/kept".into());
        assert_eq!(of(&docker), json!({"/var/tmp": expected["/var/tmp"], "/run": "size=1m"}));
    }

    #[test]
    fn only_root_can_switch_users() {
        let changes = |docker: &DockerBackend| {
            let request_json = request_json(docker, &facts(true));
            let rights = request_json["HostConfig"]["CapAdd"].as_array().unwrap();
            (
                request_json["User"].clone(),
                rights.contains(&json!("SETUID")) && rights.contains(&json!("SETGID")),
            )
        };
        assert_eq!(changes(&docker(&[])), (Value::Null, true));
        assert_eq!(changes(&docker(&["--user=root:staff"])), (json!("root:staff"), true));
        assert_eq!(changes(&docker(&["--user=1000"])), (json!("1000"), false));
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let host = DockerBackend { user: RunAs::Host, ..docker(&[]) };
        assert_eq!(changes(&host), (json!(format!("{uid}:{gid}")), false));
    }

    #[test]
    fn a_privileged_container_has_host_reach() {
        let docker = docker(&["--privileged", "--network=host", "--pid=host"]);
        let host = request_json(&docker, &facts(true))["HostConfig"].take();
        assert_eq!(
            ["Privileged", "NetworkMode", "PidMode"].map(|key| host[key].clone()),
            [json!(true), json!("host"), json!("host")]
        );
        assert_eq!(docker.reach(), hermes_types::Reach::Host);
    }
}
