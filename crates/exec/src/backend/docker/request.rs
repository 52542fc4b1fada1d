//! The request that makes a container. Whoever wants one, it is made here, so that it is the same for all.

use std::collections::HashMap;
use std::path::Path;

use bollard::models::{ContainerCreateBody, HostConfig, Mount, MountBindOptions, MountType};
use hermes_types::Network;

use super::engine::{Facts, Kind};
use super::{Docker, HOME, User, Volume, WORKSPACE};
use crate::Plan;
use crate::backend::bind::Writable;
use crate::registry::SOCKET;

/// Where things of hermes are inside.
const GUEST: &str = "/.hermes/guest";
const RUN: &str = "/.hermes/run";

/// The label with the name of the place.
pub(super) const PLACE: &str = "hermes-place";

/// Rights that a shell as root needs to be of use: files of others, and their owners.
const CAPABILITIES: [&str; 3] = ["DAC_OVERRIDE", "CHOWN", "FOWNER"];
/// Rights to become another user, which nobody needs who is not root.
const CHANGE_USER: [&str; 2] = ["SETUID", "SETGID"];

/// What the container of a place is called.
pub(super) fn name(plan: &Plan) -> String {
    // "hermes-" and the first eight digits; the label has all of them.
    plan.name().chars().take("hermes-".len() + 8).collect()
}

impl Docker {
    /// The request for the container of a place, whose guest listens in the directory `inside` of the host.
    pub(super) fn request(
        &self,
        plan: &Plan,
        facts: &Facts,
        guest: &Path,
        inside: &Path,
    ) -> ContainerCreateBody {
        let user = match self.user {
            User::Host if !facts.is_rootless => {
                Some(format!("{}:{}", rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw()))
            }
            // There the user of the host is root inside.
            User::Host | User::Image => None,
        };
        let rights = CAPABILITIES.iter().chain(if user.is_none() { &CHANGE_USER[..] } else { &[] });
        let words = ["serve", "--foreground", "--socket", &format!("{RUN}/{SOCKET}"), "--idle"];
        let idle = plan.spec.lifetime.as_secs().to_string();
        let limits = &self.limits;
        let bytes = |number: Option<u64>| number.map(|number| i64::try_from(number).unwrap_or(i64::MAX));
        let storage = limits.disk.map(|disk| HashMap::from([("size".to_owned(), disk.to_string())]));
        let host_config = HostConfig {
            mounts: Some(self.mounts(plan, guest, inside)),
            binds: Some(self.volumes.iter().map(bound).collect()),
            tmpfs: Some(self.scratch(facts.kind, user.as_deref())),
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

    /// What is in memory and ends with the container.
    fn scratch(&self, engine: Kind, user: Option<&str>) -> HashMap<String, String> {
        // Whoever is not root could not write there otherwise. Podman knows no option that says whose it is, and Docker
        // gives what is in the image the mode that it has there.
        let owner = match (engine, user.and_then(|user| user.split_once(':'))) {
            (_, None) => String::new(),
            (Kind::Docker, Some((uid, gid))) => format!(",uid={uid},gid={gid}"),
            (Kind::Podman, Some(_)) => ",mode=1777".to_owned(),
        };
        let mut scratch = vec![
            ("/tmp", "rw,nosuid,exec,size=512m".to_owned()),
            ("/var/tmp", "rw,noexec,nosuid,size=256m".to_owned()),
            ("/run", "rw,noexec,nosuid,size=64m".to_owned()),
        ];
        if self.files.is_none() {
            for (path, size) in [("/home", "1g"), (HOME, "1g"), (WORKSPACE, "10g")] {
                scratch.push((path, format!("rw,exec,size={size}{owner}")));
            }
        }
        scratch.retain(|(path, _)| !self.provides(path));
        scratch.into_iter().map(|(path, options)| (path.to_owned(), options)).collect()
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

/// What tells our containers from others, and from each other.
fn labels(plan: &Plan) -> HashMap<String, String> {
    let now =
        std::time::SystemTime::now().duration_since(std::time::SystemTime::UNIX_EPOCH).unwrap_or_default();
    [
        ("hermes-agent", "1".to_owned()),
        ("hermes-install", plan.host.install.clone()),
        (PLACE, plan.name()),
        ("hermes-session", plan.session_hash()),
        ("hermes-digest", plan.id().as_str().to_owned()),
        ("hermes-created", now.as_secs().to_string()),
        ("hermes-lifetime", plan.spec.lifetime.as_secs().to_string()),
    ]
    .into_iter()
    .map(|(name, value)| (name.to_owned(), value))
    .collect()
}
