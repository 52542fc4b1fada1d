//! What of the host a container sees, and where in it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hermes_types::BackendName;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{DockerBackend, HOME_DIR, WORKSPACE_DIR};
use crate::backend::bind::{BindMount, Writable};
use crate::{Error, ResolvedPlace};

impl DockerBackend {
    /// The kept directories of a place, each with where it is inside.
    pub(super) fn kept_mounts(&self, plan: &ResolvedPlace) -> Vec<(PathBuf, &'static str)> {
        let Some(kept) = self.kept_dir(plan) else { return Vec::new() };
        let both = [(kept.join("home"), HOME_DIR), (kept.join("workspace"), WORKSPACE_DIR)];
        both.into_iter().filter(|(_, target)| !self.covers(target)).collect()
    }

    /// Whether the owner shows something else there.
    pub(super) fn covers(&self, path: &str) -> bool {
        let binds = self.binds.iter().map(|bind| &bind.target);
        let is_mounted = |target: &PathBuf| target == Path::new(path);
        binds.chain(self.volumes.iter().map(|volume| &volume.target)).any(is_mounted)
            || self.run_args.tmpfs.contains_key(path)
    }

    /// Makes what is mounted upon inside of other mounts, so that it is the owner's: an engine would make it as root.
    pub(super) fn prepare_mount_points(&self, plan: &ResolvedPlace) -> Result<(), Error> {
        let kept = self.kept_mounts(plan).into_iter();
        let kept =
            kept.map(|(source, target)| BindMount { source, target: target.into(), writable: Writable::Yes });
        let hosts: Vec<BindMount> = kept.chain(self.binds.iter().cloned()).collect();
        let named = self.volumes.iter().map(|volume| (PathBuf::from(&volume.source), &volume.target));
        let mut wanted: Vec<_> = self.binds.iter().map(|bind| (bind.source.clone(), &bind.target)).collect();
        wanted.extend(named);
        wanted.sort_by_key(|(_, target)| target.components().count());
        for (source, target) in wanted {
            let around =
                hosts.iter().filter(|host| host.target != *target && target.starts_with(&host.target));
            let Some(host) = around.max_by_key(|host| host.target.components().count()) else { continue };
            let Ok(below) = target.strip_prefix(&host.target) else { continue };
            let kind = if source.is_file() { MountPointKind::File } else { MountPointKind::Directory };
            if !prepare_mount_point(host, below, kind) {
                return Err(Error::Unavailable {
                    backend: BackendName::Docker,
                    reason: format!(
                        "{} cannot be mounted at {}: {} is mounted read-only, and there is no {} in it",
                        source.display(),
                        target.display(),
                        host.source.display(),
                        below.display()
                    ),
                });
            }
        }
        Ok(())
    }
}

/// What is mounted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MountPointKind {
    File,
    Directory,
}

/// Makes a path below a mount, without following a link: whoever made that may have been a command. Says whether the
/// engine can do the rest, which has more rights than we do and looks at links from inside.
fn prepare_mount_point(host: &BindMount, below: &Path, kind: MountPointKind) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let Ok(mut at) = openat(CWD, &host.source, flags - OFlags::NOFOLLOW, Mode::empty()) else { return true };
    let mut parts = below.iter().peekable();
    while let Some(part) = parts.next() {
        let next = openat(&at, part, flags, Mode::empty());
        at = match next {
            Ok(next) => next,
            Err(Errno::NOENT) if host.writable == Writable::No => return false,
            Err(Errno::NOENT) => {
                let last = parts.peek().is_none();
                match create_mount_point(&at, part, if last { kind } else { MountPointKind::Directory }) {
                    Ok(made) => made,
                    Err(_left_to_the_engine) => return true,
                }
            }
            Err(_left_to_the_engine) => return true,
        };
    }
    true
}

fn create_mount_point(at: &OwnedFd, name: &OsStr, kind: MountPointKind) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match kind {
        MountPointKind::File => {
            let mode = Mode::from_raw_mode(0o644);
            openat(at, name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)
        }
        MountPointKind::Directory => {
            mkdirat(at, name, Mode::from_raw_mode(0o755))?;
            openat(at, name, flags | OFlags::DIRECTORY | OFlags::PATH, Mode::empty())
        }
    }
}
