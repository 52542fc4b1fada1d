//! Resolves the paths of mount sources.
//!
//! A command that can write a directory can replace anything in it by a symbolic link, for example
//! to the keys of the owner. So a link in such a directory decides nothing about a mount.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};
use thiserror::Error;

/// As many as the kernel follows.
const MAX_LINKS: usize = 40;

/// Why the source of a mount is not used.
#[derive(Debug, Error)]
pub enum SourceError {
    #[error("{} is a link in a directory that commands can write", .0.display())]
    Link(PathBuf),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Returns the path without symbolic links. A link below a `writable` directory, which must itself
/// be without links, is an error.
pub fn resolve_source(path: &Path, writable: &[PathBuf]) -> Result<PathBuf, SourceError> {
    let mut real = PathBuf::from("/");
    let mut rest: VecDeque<OsString> = std::path::absolute(path)?.iter().map(OsString::from).collect();
    let mut links = 0;
    while let Some(part) = rest.pop_front() {
        match Path::new(&part).components().next() {
            Some(Component::RootDir) => real = PathBuf::from("/"),
            Some(Component::ParentDir) => drop(real.pop()),
            Some(Component::Normal(name)) => {
                let next = real.join(name);
                if !fs::symlink_metadata(&next)?.is_symlink() {
                    real = next;
                    continue;
                }
                links += 1;
                if links > MAX_LINKS {
                    return Err(io::Error::from_raw_os_error(libc::ELOOP).into());
                }
                if writable.iter().any(|directory| next.starts_with(directory)) {
                    return Err(SourceError::Link(next));
                }
                for part in fs::read_link(&next)?.iter().rev() {
                    rest.push_front(part.into());
                }
            }
            _ => {}
        }
    }
    Ok(real)
}

/// Opens a resolved source. If a part of it was replaced by a link since, this fails.
pub(crate) fn open_resolved(real: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(CWD, real, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn only_links_that_commands_cannot_make_are_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        for name in ["keys", "shared/sub/deep", "other"] {
            fs::create_dir_all(top.join(name)).unwrap();
        }
        symlink("shared", top.join("to-shared")).unwrap();
        symlink("../../keys", top.join("shared/sub/link")).unwrap();
        symlink("../shared/sub/link", top.join("other/chain")).unwrap();
        symlink("loop", top.join("loop")).unwrap();
        let writable = [top.join("shared")];
        let resolve = |name: &str| resolve_source(&top.join(name), &writable);
        assert_eq!(resolve("to-shared/sub/deep").unwrap(), top.join("shared/sub/deep"));
        assert_eq!(resolve("other/../shared").unwrap(), top.join("shared"));
        for name in ["shared/sub/link", "to-shared/sub/link", "other/chain"] {
            let refused = resolve(name).unwrap_err();
            assert!(
                matches!(&refused, SourceError::Link(link) if *link == top.join("shared/sub/link")),
                "{name}"
            );
        }
        assert_eq!(resolve_source(&top.join("other/chain"), &[]).unwrap(), top.join("keys"));
        assert!(matches!(resolve("loop"), Err(SourceError::Io(_))));
        assert!(matches!(resolve("missing"), Err(SourceError::Io(_))));
        assert!(open_resolved(&top.join("keys")).is_ok());
        assert!(open_resolved(&top.join("to-shared/sub")).is_err());
    }
}
