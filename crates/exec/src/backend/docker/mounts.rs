//! What of the host a container sees, and where in it.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use hermes_types::BackendName;
use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use rustix::io::Errno;

use super::{Docker, HOME, WORKSPACE};
use crate::backend::bind::{Bind, Writable};
use crate::{Error, Plan};

impl Docker {
    /// The kept directories of a place, each with where it is inside.
    pub(super) fn kept_mounts(&self, plan: &Plan) -> Vec<(PathBuf, &'static str)> {
        let Some(kept) = self.kept(plan) else { return Vec::new() };
        let both = [(kept.join("home"), HOME), (kept.join("workspace"), WORKSPACE)];
        both.into_iter().filter(|(_, target)| !self.provides(target)).collect()
    }

    /// Whether the owner shows something else there.
    pub(super) fn provides(&self, path: &str) -> bool {
        let binds = self.binds.iter().map(|bind| &bind.target);
        let is_mounted = |target: &PathBuf| target == Path::new(path);
        binds.chain(self.volumes.iter().map(|volume| &volume.target)).any(is_mounted)
            || self.extra.tmpfs.contains_key(path)
    }

    /// Makes what is mounted upon inside of other mounts, so that it is the owner's: an engine would make it as root.
    pub(super) fn prepare_targets(&self, plan: &Plan) -> Result<(), Error> {
        let kept = self.kept_mounts(plan).into_iter();
        let kept =
            kept.map(|(source, target)| Bind { source, target: target.into(), writable: Writable::Yes });
        let hosts: Vec<Bind> = kept.chain(self.binds.iter().cloned()).collect();
        let named = self.volumes.iter().map(|volume| (PathBuf::from(&volume.source), &volume.target));
        let mut wanted: Vec<_> = self.binds.iter().map(|bind| (bind.source.clone(), &bind.target)).collect();
        wanted.extend(named);
        wanted.sort_by_key(|(_, target)| target.components().count());
        for (source, target) in wanted {
            let around =
                hosts.iter().filter(|host| host.target != *target && target.starts_with(&host.target));
            let Some(host) = around.max_by_key(|host| host.target.components().count()) else { continue };
            let Ok(below) = target.strip_prefix(&host.target) else { continue };
            let kind = if source.is_file() { Kind::File } else { Kind::Directory };
            if !is_prepared(host, below, kind) {
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
enum Kind {
    File,
    Directory,
}

/// Makes a path below a mount, without following a link: whoever made that may have been a command. Says whether the
/// engine can do the rest, which has more rights than we do and looks at links from inside.
fn is_prepared(host: &Bind, below: &Path, kind: Kind) -> bool {
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
                match make(&at, part, if last { kind } else { Kind::Directory }) {
                    Ok(made) => made,
                    Err(_left_to_the_engine) => return true,
                }
            }
            Err(_left_to_the_engine) => return true,
        };
    }
    true
}

fn make(at: &OwnedFd, name: &OsStr, kind: Kind) -> Result<OwnedFd, Errno> {
    let flags = OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match kind {
        Kind::File => {
            let mode = Mode::from_raw_mode(0o644);
            openat(at, name, flags | OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY, mode)
        }
        Kind::Directory => {
            mkdirat(at, name, Mode::from_raw_mode(0o755))?;
            openat(at, name, flags | OFlags::DIRECTORY | OFlags::PATH, Mode::empty())
        }
    }
}
