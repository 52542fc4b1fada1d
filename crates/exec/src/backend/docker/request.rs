//! The request that makes a container. Whoever wants one, it is made here, so that it is the same for all.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{
    ContainerCreateBody, HostConfig, Mount, MountBindOptions, MountType, MountVolumeOptions,
};
use hermes_types::Network;

use super::engine::Facts;
use super::road::{Owner, Road};
use super::{Docker, HOME, User, WORKSPACE};
use crate::Plan;
use crate::backend::bind::Writable;
use crate::registry::{Room, SOCKET};

/// Where things of hermes are inside.
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
        // With an engine of that user, who is meant is root inside.
        let is_host = self.user == User::Host && !facts.is_rootless;
        is_host.then(|| Owner {
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
        })
    }

    /// The request for the container of a place, whose guest listens in the directory `inside` of the host.
    pub(super) fn request(
        &self,
        plan: &Plan,
        facts: &Facts,
        guest: &Path,
        inside: &Path,
    ) -> ContainerCreateBody {
        let user = self.owner(facts).map(|owner| format!("{}:{}", owner.uid, owner.gid));
        let rights = CAPABILITIES.iter().chain(if user.is_none() { &CHANGE_USER[..] } else { &[] });
        let words = ["serve", "--foreground", "--socket", &format!("{RUN}/{SOCKET}"), "--idle"];
        let idle = plan.spec.lifetime.as_secs().to_string();
        let limits = &self.limits;
        let bytes = |number: Option<u64>| number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let storage = limits.disk.map(|disk| HashMap::from([("size".to_owned(), disk.to_string())]));
        let host_config = HostConfig {
            mounts: Some(self.mounts(plan, guest, inside)),
            tmpfs: Some(self.scratch()),
            cap_drop: Some(vec!["ALL".to_owned()]),
            cap_add: Some(rights.map(|right| (*right).to_owned()).collect()),
            security_opt: Some(vec!["no-new-privileges".to_owned()]),
            pids_limit: limits.processes.map(i64::from),
            nano_cpus: limits.millicpus.map(|millis| i64::from(millis) * 1_000_000),
            memory: bytes(limits.memory),
            storage_opt: storage.filter(|_| false),
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
        ContainerCreateBody {
            image: Some(self.image.clone()),
            entrypoint: Some(vec![GUEST.to_owned()]),
            cmd: Some(words.into_iter().map(str::to_owned).chain([idle]).collect()),
            env: Some(vec![format!("HOME={HOME}")]),
            user,
            working_dir: Some("/".to_owned()),
            labels: Some(labels(plan)),
            host_config: Some(host_config),
            ..ContainerCreateBody::default()
        }
    }

    fn mounts(&self, plan: &Plan, guest: &Path, inside: &Path) -> Vec<Mount> {
        let mount = |source: &Path, target: &str, writable: Writable| Mount {
            target: Some(target.to_owned()),
            source: Some(source.to_string_lossy().into_owned()),
            typ: Some(MountType::BIND),
            read_only: Some(writable == Writable::No),
            bind_options: Some(MountBindOptions::default()),
            ..Mount::default()
        };
        if Road::to(&self.engine) == Road::Exec {
            return self.volumes(plan);
        }
        let mut mounts = vec![mount(guest, GUEST, Writable::No), mount(inside, RUN, Writable::Yes)];
        if let Some(kept) = self.kept(plan) {
            mounts.push(mount(&kept.join("home"), HOME, Writable::Yes));
            if !self.provides(WORKSPACE) {
                mounts.push(mount(&kept.join("workspace"), WORKSPACE, Writable::Yes));
            }
        }
        for bind in &self.binds {
            mounts.push(mount(&bind.source, &bind.target.to_string_lossy(), bind.writable));
        }
        mounts
    }

    /// What is mounted where no directory can be.
    fn volumes(&self, plan: &Plan) -> Vec<Mount> {
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
        volumes.into_iter().zip([HOME, WORKSPACE]).map(named).collect()
    }

    /// What is in memory and ends with the container.
    fn scratch(&self) -> HashMap<String, String> {
        let mut scratch = vec![
            ("/tmp", "rw,nosuid,exec,size=512m"),
            ("/var/tmp", "rw,noexec,nosuid,size=256m"),
            ("/run", "rw,noexec,nosuid,size=64m"),
        ];
        if self.files.is_none() {
            scratch.extend([("/home", "rw,exec,size=1g"), (HOME, "rw,exec,size=1g")]);
            if !self.provides(WORKSPACE) {
                scratch.push((WORKSPACE, "rw,exec,size=10g"));
            }
        }
        scratch.into_iter().map(|(path, options)| (path.to_owned(), options.to_owned())).collect()
    }

    /// Whether the owner shows something of the host there.
    fn provides(&self, path: &str) -> bool {
        self.binds.iter().any(|bind| bind.target == Path::new(path))
    }
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
