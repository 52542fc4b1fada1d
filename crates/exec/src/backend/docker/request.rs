//! The request that makes a container. Whoever wants one, it is made here, so that it is the same for all.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountBindOptions, MountType, MountVolumeOptions,
    MountVolumeOptionsDriverConfig,
};
use hermes_types::Network;

use super::engine::{Facts, Kind};
use super::road::{Owner, Road};
use super::{Docker, HOME, Inmate, User, Volume, WORKSPACE};
use crate::Plan;
use crate::backend::bind::Writable;
use crate::registry::{Room, SOCKET};

/// Where things of hermes are inside.
pub(super) const OURS: &str = "/.hermes";
pub(super) const GUEST: &str = "/.hermes/guest";
pub(super) const RUN: &str = "/.hermes/run";

/// Labels: that it is ours, of which installation, when it was made, and the name of the place.
pub(super) const AGENT: &str = "hermes-agent";
pub(super) const INSTALL: &str = "hermes-install";
pub(super) const CREATED: &str = "hermes-created";
pub(super) const PLACE: &str = "hermes-place";
/// The label with its room.
pub(super) const ROOM: &str = "hermes-room";

/// Rights that a shell as root needs to be of use: files of others, and their owners.
const CAPABILITIES: [&str; 3] = ["DAC_OVERRIDE", "CHOWN", "FOWNER"];
/// Rights to become another user, which nobody needs who is not root.
const CHANGE_USER: [&str; 2] = ["SETUID", "SETGID"];

/// What is in memory: where, how, and how many bytes if nothing else is said. The last three only where nothing is kept.
const SCRATCH: [(&str, &str, u64); 6] = [
    ("/tmp", "rw,nosuid,exec", 512 << 20),
    ("/var/tmp", "rw,noexec,nosuid", 256 << 20),
    ("/run", "rw,noexec,nosuid", 64 << 20),
    ("/home", "rw,exec", 1 << 30),
    (HOME, "rw,exec", 1 << 30),
    (WORKSPACE, "rw,exec", 10 << 30),
];

/// Those of them that belong to whoever commands run as.
const OWN: [&str; 3] = [HOME, "/home", WORKSPACE];

/// What the container of a place is called.
pub(super) fn name(plan: &Plan) -> String {
    // "hermes-" and the first eight digits; the label has all of them.
    plan.name().chars().take("hermes-".len() + 8).collect()
}

/// The volumes of a place whose engine shares no directory with us: its home and its workspace.
pub(super) fn volumes(plan: &Plan) -> Vec<String> {
    ["home", "workspace"].map(|name| format!("{}-{name}", plan.name())).to_vec()
}

impl Docker {
    /// The user of this machine whom commands run as, if they do not run as the image says.
    pub(super) fn owner(&self, facts: &Facts) -> Option<Owner> {
        match self.user {
            User::Image => None,
            // With an engine of that user, who is meant is root inside.
            User::Host if facts.is_rootless => Some(Owner::default()),
            User::Host => Some(Owner {
                uid: rustix::process::getuid().as_raw(),
                gid: rustix::process::getgid().as_raw(),
            }),
        }
    }

    /// Whom commands run as, unless that is left to the image.
    pub(super) fn chosen_user(&self, facts: &Facts) -> Option<String> {
        let owner = || self.owner(facts).map(|owner| format!("{}:{}", owner.uid, owner.gid));
        self.extra.user.clone().or_else(owner)
    }

    /// The request for the container of a place, whose guest listens in the directory `inside` of the host.
    pub(super) fn request(
        &self,
        plan: &Plan,
        facts: &Facts,
        inmate: &Inmate,
        guest: &Path,
        inside: &Path,
    ) -> ContainerCreateBody {
        let user = self.chosen_user(facts);
        let root = |user: &str| matches!(user.split(':').next(), Some("0" | "root"));
        let changes = self.extra.user.as_deref().map_or(user.is_none(), root);
        let rights = match (facts.kind, inmate) {
            // They would be that user's at once; Docker keeps them for root.
            (Kind::Podman, Inmate::Number { .. } | Inmate::Name) => Vec::new(),
            _ if changes => [&CAPABILITIES[..], &CHANGE_USER].concat(),
            _ => CAPABILITIES.to_vec(),
        };
        let words = ["serve", "--foreground", "--socket", &format!("{RUN}/{SOCKET}"), "--idle"];
        let idle = plan.spec.lifetime.as_secs().to_string();
        let limits = &self.limits;
        let bytes = |number: Option<u64>| number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let storage = limits.disk.map(|disk| HashMap::from([("size".to_owned(), disk.to_string())]));
        let mut mounts = self.mounts(plan, guest, inside);
        mounts.extend(self.scratch_for_name(facts.kind, inmate));
        let host_config = HostConfig {
            mounts: Some(mounts),
            binds: Some(self.volumes.iter().map(bound).collect()),
            tmpfs: Some(self.scratch(facts.kind, inmate)),
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
                    // The proxy needs no more than the loopback that every container has.
                    Network::None | Network::Proxy => "none",
                }
                .to_owned(),
            ),
            auto_remove: Some(true),
            ..HostConfig::default()
        };
        let mut body = ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(vec![GUEST.to_owned()]),
            cmd: Some(words.into_iter().map(str::to_owned).chain([idle]).collect()),
            env: Some(vec![format!("HOME={HOME}")]),
            user,
            working_dir: Some("/".to_owned()),
            // An image may name one that means nothing to the guest.
            stop_signal: Some("SIGTERM".to_owned()),
            labels: Some(labels(plan)),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        };
        self.extra.apply(&mut body);
        body
    }

    fn mounts(&self, plan: &Plan, guest: &Path, inside: &Path) -> Vec<Mount> {
        if Road::to(&self.engine) == Road::Exec {
            return self.far_mounts(plan);
        }
        let mut mounts = vec![mount(guest, GUEST, Writable::No), mount(inside, RUN, Writable::Yes)];
        for (source, target) in self.kept_mounts(plan) {
            mounts.push(mount(&source, target, Writable::Yes));
        }
        for bind in &self.binds {
            mounts.push(mount(&bind.source, &bind.target.to_string_lossy(), bind.writable));
        }
        // What holds another one comes before it.
        let depth = |mount: &Mount| mount.target.as_deref().map_or(0, |target| target.split('/').count());
        mounts.sort_by_key(depth);
        mounts
    }

    /// What is mounted where no directory can be.
    fn far_mounts(&self, plan: &Plan) -> Vec<Mount> {
        let named = |(volume, target): (String, &str)| Mount {
            target: Some(target.to_owned()),
            source: Some(volume),
            typ: Some(MountType::VOLUME),
            volume_options: Some(MountVolumeOptions {
                labels: Some(labels(plan)),
                ..MountVolumeOptions::default()
            }),
            ..Mount::default()
        };
        let volumes = if self.files.is_some() { volumes(plan) } else { Vec::new() };
        // One without a name ends with the container. The layer may be read-only.
        let ours = Mount { target: Some(OURS.to_owned()), typ: Some(MountType::VOLUME), ..Mount::default() };
        volumes.into_iter().zip([HOME, WORKSPACE]).map(named).chain([ours]).collect()
    }

    /// What is in memory and ends with the container.
    fn scratch(&self, engine: Kind, inmate: &Inmate) -> HashMap<String, String> {
        // Whoever is not root could not write there otherwise: what is in the image has the mode that it has there,
        // whatever is asked for. Podman has an option that gives it to the user, and knows who that is.
        let owner = match (engine, inmate) {
            (_, Inmate::Root) | (Kind::Docker, Inmate::Name) => String::new(),
            (Kind::Docker, Inmate::Number { uid, gid: None }) => format!(",uid={uid}"),
            (Kind::Docker, Inmate::Number { uid, gid: Some(gid) }) => format!(",uid={uid},gid={gid}"),
            (Kind::Podman, Inmate::Number { .. } | Inmate::Name) => ",U".to_owned(),
        };
        let elsewhere = |path: &str| OWN.contains(&path) && engine == Kind::Docker && *inmate == Inmate::Name;
        let there = self.in_memory().filter(|(path, ..)| !elsewhere(path));
        there
            .map(|(path, options, size)| {
                let owner = if OWN.contains(&path) { owner.as_str() } else { "" };
                (path.to_owned(), format!("{options},size={size}{owner}"))
            })
            .collect()
    }

    /// The same for a user of whom Docker is told only a name: the mode of a volume is its own.
    fn scratch_for_name(&self, engine: Kind, inmate: &Inmate) -> Vec<Mount> {
        if (engine, inmate) != (Kind::Docker, &Inmate::Name) {
            return Vec::new();
        }
        let own = self.in_memory().filter(|(path, ..)| OWN.contains(path));
        let volume = |(path, _, size): (&str, &str, u64)| {
            let (kind, how) = ("tmpfs".to_owned(), format!("size={size},mode=1777"));
            let options = [("type", kind.clone()), ("device", kind), ("o", how)];
            let options = options.into_iter().map(|(name, value)| (name.to_owned(), value)).collect();
            Mount {
                target: Some(path.to_owned()),
                typ: Some(MountType::VOLUME),
                volume_options: Some(MountVolumeOptions {
                    no_copy: Some(true),
                    driver_config: Some(MountVolumeOptionsDriverConfig {
                        name: Some("local".to_owned()),
                        options: Some(options),
                    }),
                    ..MountVolumeOptions::default()
                }),
                ..Mount::default()
            }
        };
        own.map(volume).collect()
    }

    /// What is in memory: where, how, and how many bytes.
    fn in_memory(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        let kept = |path: &str| self.files.is_some() && OWN.contains(&path);
        SCRATCH.into_iter().filter(move |(path, ..)| !kept(path) && !self.provides(path)).map(
            |(path, options, usual)| (path, options, self.limits.scratch.get(path).copied().unwrap_or(usual)),
        )
    }
}

fn mount(source: &Path, target: &str, writable: Writable) -> Mount {
    Mount {
        target: Some(target.to_owned()),
        source: Some(source.to_string_lossy().into_owned()),
        typ: Some(MountType::BIND),
        read_only: Some(writable == Writable::No),
        bind_options: Some(MountBindOptions::default()),
        ..Mount::default()
    }
}

/// A mount as `docker run` writes it.
fn bound(volume: &Volume) -> String {
    let access = if volume.writable == Writable::No { "ro" } else { "rw" };
    let options: Vec<&str> = [access].into_iter().chain(volume.options.iter().map(String::as_str)).collect();
    format!("{}:{}:{}", volume.source, volume.target.display(), options.join(","))
}

/// The request for a container that removes what is in a directory of the host and ends.
pub(super) fn cleaner(image: &str, place: &str, guest: &Path, directory: &Path) -> ContainerCreateBody {
    let rights = ["DAC_OVERRIDE", "FOWNER"];
    let host_config = HostConfig {
        mounts: Some(vec![mount(guest, GUEST, Writable::No), mount(directory, RUN, Writable::Yes)]),
        cap_drop: Some(vec!["ALL".to_owned()]),
        cap_add: Some(rights.map(str::to_owned).to_vec()),
        security_opt: Some(vec!["no-new-privileges".to_owned()]),
        network_mode: Some("none".to_owned()),
        auto_remove: Some(true),
        ..HostConfig::default()
    };
    ContainerCreateBody {
        image: Some(image.to_owned()),
        entrypoint: Some(vec![GUEST.to_owned()]),
        cmd: Some(vec!["empty".to_owned(), RUN.to_owned()]),
        user: Some("0:0".to_owned()),
        working_dir: Some("/".to_owned()),
        labels: Some(HashMap::from([
            ("hermes-agent".to_owned(), "1".to_owned()),
            (PLACE.to_owned(), place.to_owned()),
        ])),
        host_config: Some(host_config),
        ..ContainerCreateBody::default()
    }
}

/// A request as it is shown: the same for the same request.
pub(super) fn shown(body: &ContainerCreateBody) -> serde_json::Value {
    let mut shown = serde_json::to_value(body).unwrap_or_default();
    shown.sort_all_objects();
    shown
}

/// What tells our containers from others, and from each other.
fn labels(plan: &Plan) -> HashMap<String, String> {
    let now =
        std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    [
        (AGENT, "1".to_owned()),
        (INSTALL, plan.host.install.clone()),
        (PLACE, plan.name()),
        (ROOM, Room::of(plan).path().display().to_string()),
        ("hermes-session", plan.session_hash()),
        ("hermes-digest", plan.id().as_str().to_owned()),
        (CREATED, now.as_secs().to_string()),
        ("hermes-lifetime", plan.spec.lifetime.as_secs().to_string()),
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
    use crate::backend::docker::Limits;
    use crate::backend::docker::engine::{Address, Enforces, Kind};
    use crate::backend::docker::extra::Extra;
    use crate::{Backend, Host, Spec};

    fn facts(holds: bool) -> Facts {
        let enforces = Enforces { memory: Some(holds), processes: Some(holds), processor: None };
        Facts { kind: Kind::Docker, is_rootless: false, remaps_users: false, enforces, has_disk_quota: holds }
    }

    fn docker(options: &[&str]) -> Docker {
        let options: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        Docker {
            engine: Address::Unix("/engine".into()),
            image: "image".to_owned(),
            files: None,
            volumes: Vec::new(),
            binds: Vec::new(),
            network: Network::Full,
            limits: Limits::default(),
            user: User::Image,
            extra: Box::new(Extra::parse(&options).unwrap()),
            pool: 0,
            reaps_orphans: false,
        }
    }

    /// What the engine is asked for, as it is shown.
    fn asked(docker: &Docker, facts: &Facts) -> Value {
        let path = || PathBuf::from("/h");
        let host = Host { install: "i".to_owned(), run: path(), cache: path(), home: path(), most_places: 1 };
        let spec = Spec {
            backend: Backend::Docker(docker.clone()),
            cwd: WORKSPACE.to_owned(),
            home: HOME.to_owned(),
            env: vec![("TOKEN".to_owned(), "hunter2".to_owned())],
            init: Vec::new(),
            lifetime: Duration::from_secs(1),
        };
        let plan = Plan::new(host, spec, SessionKey::new("s"));
        let inmate = Inmate::of(&docker.chosen_user(facts).unwrap_or_default());
        let asked = docker.request(&plan, facts, &inmate, Path::new("/guest"), Path::new("/inside"));
        let asked = shown(&asked);
        assert!(!asked.to_string().contains("hunter2"), "{asked}");
        // Whatever an image says, this is what a guest understands.
        assert_eq!(asked["StopSignal"], "SIGTERM");
        asked
    }

    #[test]
    fn a_limit_that_the_engine_cannot_enforce_is_told_and_one_that_would_stop_it_is_left_out() {
        let mut docker = docker(&[]);
        assert_eq!(docker.unenforced(&facts(false)), Vec::<String>::new());
        docker.limits = Limits {
            millicpus: Some(1500),
            memory: Some(7),
            disk: Some(9),
            processes: Some(3),
            shm: Some(5),
            ..Limits::default()
        };
        assert_eq!(docker.unenforced(&facts(true)), Vec::<String>::new());
        let told = ["disk", "memory", "processes"];
        let told = told.map(|what| format!("the engine cannot limit the {what} of a container"));
        assert_eq!(docker.unenforced(&facts(false)), told);
        let of = |facts: &Facts| {
            let host = asked(&docker, facts)["HostConfig"].take();
            let keys = ["NanoCpus", "Memory", "PidsLimit", "ShmSize", "StorageOpt"];
            keys.map(|key| host.get(key).cloned().unwrap_or_default())
        };
        let limits = |disk: Value| [json!(1_500_000_000), json!(7), json!(3), json!(5), disk];
        assert_eq!(of(&facts(true)), limits(json!({"size": "9"})));
        assert_eq!(of(&facts(false)), limits(Value::Null));
    }

    #[test]
    fn what_is_in_memory_has_its_size_and_gives_way_to_what_is_mounted() {
        let mut docker = docker(&["--tmpfs=/run:size=1m"]);
        docker.files = Some("/kept".into());
        let targets = |docker: &Docker| {
            let mounts = asked(docker, &facts(true))["HostConfig"]["Mounts"].take();
            let targets =
                mounts.as_array().unwrap().iter().map(|mount| mount["Target"].as_str().unwrap().to_owned());
            targets.filter(|target| !target.starts_with(OURS)).collect::<Vec<_>>()
        };
        assert_eq!(targets(&docker), ["/root", "/workspace"]);
        docker.extra.tmpfs.insert("/workspace".to_owned(), "size=2m".to_owned());
        assert_eq!(targets(&docker), ["/root"]);
        docker.extra.tmpfs.remove("/workspace");
        docker.files = None;
        docker.limits.scratch = [("/tmp".to_owned(), 1 << 20), (HOME.to_owned(), 2 << 20)].into();
        let of = |docker: &Docker| asked(docker, &facts(true))["HostConfig"]["Tmpfs"].take();
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
            docker.binds.push(crate::Bind { source, target, writable: Writable::Yes });
        }
        assert_eq!(of(&docker), expected);
        docker.files = Some("/kept".into());
        assert_eq!(of(&docker), json!({"/var/tmp": expected["/var/tmp"], "/run": "size=1m"}));
    }

    #[test]
    fn only_root_can_become_another_user() {
        let changes = |docker: &Docker| {
            let asked = asked(docker, &facts(true));
            let rights = asked["HostConfig"]["CapAdd"].as_array().unwrap();
            (asked["User"].clone(), rights.contains(&json!("SETUID")) && rights.contains(&json!("SETGID")))
        };
        assert_eq!(changes(&docker(&[])), (Value::Null, true));
        assert_eq!(changes(&docker(&["--user=root:staff"])), (json!("root:staff"), true));
        assert_eq!(changes(&docker(&["--user=1000"])), (json!("1000"), false));
        let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
        let host = Docker { user: User::Host, ..docker(&[]) };
        assert_eq!(changes(&host), (json!(format!("{uid}:{gid}")), false));
    }

    #[test]
    fn a_privileged_container_is_asked_for_as_such_and_counts_as_the_host() {
        let docker = docker(&["--privileged", "--network=host", "--pid=host"]);
        let host = asked(&docker, &facts(true))["HostConfig"].take();
        assert_eq!(
            ["Privileged", "NetworkMode", "PidMode"].map(|key| host[key].clone()),
            [json!(true), json!("host"), json!("host")]
        );
        assert_eq!(docker.reach(), hermes_types::Reach::Host);
    }
}
