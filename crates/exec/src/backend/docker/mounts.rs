//! Mount points of a container.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hermes_types::{BackendName, MountAccess};
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{DockerBackend, HOME_DIR, WORKSPACE_DIR};
use crate::backend::bind::BindMount;
use crate::{Error, ResolvedPlace};

impl DockerBackend {
    /// The kept directories of a place with their paths inside.
    pub(super) fn kept_mounts(&self, place: &ResolvedPlace) -> Vec<(PathBuf, &'static str)> {
        let Some(kept) = self.kept_dir(place) else { return Vec::new() };
        let both = [(kept.join("home"), HOME_DIR), (kept.join("workspace"), WORKSPACE_DIR)];
        both.into_iter().filter(|(_, target)| !self.covers(target)).collect()
    }

    /// Whether the owner mounts something at this path.
    pub(super) fn covers(&self, path: &str) -> bool {
        let binds = self.binds.iter().map(|bind| &bind.target);
        let is_mounted = |target: &PathBuf| target == Path::new(path);
        binds.chain(self.volumes.iter().map(|volume| &volume.target)).any(is_mounted)
            || self.run_args.tmpfs.contains_key(path)
    }

    /// Creates mount points that lie inside other mounts, so that the owner owns them; the engine
    /// would create them as root.
    pub(super) fn prepare_mount_points(&self, place: &ResolvedPlace) -> Result<(), Error> {
        let kept = self.kept_mounts(place).into_iter();
        let kept = kept.map(|(source, target)| BindMount {
            source,
            target: target.into(),
            access: MountAccess::ReadWrite,
        });
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
                        "cannot mount {} at {}: {} is read-only and has no {}",
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum MountPointKind {
    File,
    Directory,
}

/// Creates a path below a mount without following symbolic links, since a command may have planted
/// them. Returns false if the path is missing and the mount is read-only. Other failures are left
/// to the engine, which has more rights and resolves links from inside.
fn prepare_mount_point(host: &BindMount, below: &Path, kind: MountPointKind) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let Ok(mut at) = openat(CWD, &host.source, flags - OFlags::NOFOLLOW, Mode::empty()) else { return true };
    let mut parts = below.iter().peekable();
    while let Some(part) = parts.next() {
        let next = openat(&at, part, flags, Mode::empty());
        at = match next {
            Ok(next) => next,
            Err(Errno::NOENT) if host.access == MountAccess::ReadOnly => return false,
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
