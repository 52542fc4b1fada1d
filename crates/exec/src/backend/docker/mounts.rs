//! Mount points of a container.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hermes_types::MountAccess;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{DockerBackend, HOME_DIR, WORKSPACE_DIR, unavailable};
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
        self.owner_mounts().iter().any(|mount| mount.target == Path::new(path))
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
        let mut wanted = self.owner_mounts();
        wanted.sort_by_key(|mount| mount.target.components().count());
        for BindMount { source, target, .. } in wanted {
            let around =
                hosts.iter().filter(|host| host.target != target && target.starts_with(&host.target));
            let Some(host) = around.max_by_key(|host| host.target.components().count()) else { continue };
            let Ok(below) = target.strip_prefix(&host.target) else { continue };
            if !prepare_mount_point(host, below, source.is_file()) {
                return Err(unavailable(format!(
                    "cannot mount {} at {}: {} is read-only and has no {}",
                    source.display(),
                    target.display(),
                    host.source.display(),
                    below.display()
                )));
            }
        }
        Ok(())
    }
}

/// Creates a path below a mount without following symbolic links, since a command may have planted
/// them. Returns false if the path is missing and the mount is read-only. Other failures are left
/// to the engine, which has more rights and resolves links from inside.
fn prepare_mount_point(host: &BindMount, below: &Path, is_file: bool) -> bool {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::PATH | OFlags::CLOEXEC;
    let Ok(mut at) = openat(CWD, &host.source, flags - OFlags::NOFOLLOW, Mode::empty()) else { return true };
    let mut parts = below.iter().peekable();
    while let Some(part) = parts.next() {
        let next = openat(&at, part, flags, Mode::empty());
        at = match next {
            Ok(next) => next,
            Err(Errno::NOENT) if host.access == MountAccess::ReadOnly => return false,
            Err(Errno::NOENT) => {
                let is_last = parts.peek().is_none();
                match create_mount_point(&at, part, is_last && is_file) {
                    Ok(made) => made,
                    Err(_left_to_the_engine) => return true,
                }
            }
            Err(_left_to_the_engine) => return true,
        };
    }
    true
}

fn create_mount_point(at: &OwnedFd, name: &OsStr, is_file: bool) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    if is_file {
        let mode = Mode::from_raw_mode(0o644);
        return openat(at, name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode);
    }
    mkdirat(at, name, Mode::from_raw_mode(0o755))?;
    openat(at, name, flags | OFlags::DIRECTORY | OFlags::PATH, Mode::empty())
}
