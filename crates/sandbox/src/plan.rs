//! Which mounts a jail has, in their order, worked out before anything is changed.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{Fault, Step};
use crate::jail::{Access, Jail, Network};

/// The mounts, each after those it lies in.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) mounts: Vec<Mount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    pub(crate) target: PathBuf,
    pub(crate) kind: Kind,
    pub(crate) is_directory: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Something empty that cannot be written.
    Mask,
    /// A directory of the private file system.
    Private(&'static str),
    /// The private `/dev`.
    Dev,
    /// A new `/proc`.
    Proc,
    /// Something of the host.
    Bind(Access, PathBuf),
}

/// The only part of `/sys` that ordinary programs ask for: how many processors there are.
const PROCESSORS: &str = "/sys/devices/system/cpu";

impl Plan {
    pub(crate) fn new(jail: &Jail) -> Result<Self, Fault> {
        let mut mounts = base();
        let mut binds = Vec::new();
        for bind in &jail.binds {
            let source =
                fs::canonicalize(&bind.source).map_err(|e| Fault::at(Step::Source, &bind.source, e))?;
            let target = settle(&bind.target).map_err(|e| Fault::at(Step::MountPoint, &bind.target, e))?;
            binds.push((source, target, bind.access));
        }
        let masks = masks(jail, &binds)?;
        if let Some(names) = name_service(jail.network, &masks) {
            binds.push((names.clone(), names, Access::ReadOnly));
        }
        for (source, target, access) in binds {
            let is_directory =
                fs::metadata(&source).map_err(|e| Fault::at(Step::Source, &source, e))?.is_dir();
            mounts.retain(|mount| mount.target != target);
            mounts.push(Mount { target, kind: Kind::Bind(access, source), is_directory });
        }
        for (target, is_directory) in masks {
            if !mounts.iter().any(|mount| mount.target == target) {
                mounts.push(Mount { target, kind: Kind::Mask, is_directory });
            }
        }
        mounts.sort_by(|a, b| a.target.cmp(&b.target));
        // What lies in something empty or private needs no cover of its own, and would show there what it hides.
        let is_bare = |kind: &Kind| matches!(kind, Kind::Mask | Kind::Private(_) | Kind::Dev);
        let shown = |mount: &Mount| {
            mount.kind != Kind::Mask
                || above(&mounts, &mount.target).is_none_or(|(_, over)| !is_bare(&over.kind))
        };
        Ok(Self { mounts: mounts.iter().filter(|mount| shown(mount)).cloned().collect() })
    }

    /// Where in the private file system the mount point of this mount must be made, if it is there: the directory
    /// that is mounted over it, and the path below that.
    pub(crate) fn holder(&self, index: usize) -> Option<(String, PathBuf)> {
        let target = &self.mounts.get(index)?.target;
        let (holder, top) = match above(&self.mounts, target) {
            Some((_, mount)) if mount.is_bare() => ("root".to_owned(), Path::new("/")),
            Some((over, mount)) => match mount.kind {
                Kind::Mask => (format!("mask/{over}"), mount.target.as_path()),
                Kind::Private(name) => (name.to_owned(), mount.target.as_path()),
                Kind::Dev => ("dev".to_owned(), mount.target.as_path()),
                Kind::Proc | Kind::Bind(..) => return None,
            },
            None if is_new_name(target) => ("root".to_owned(), Path::new("/")),
            None => return None,
        };
        Some((holder, target.strip_prefix(top).ok()?.to_path_buf()))
    }

    /// The directories and files the jail may write.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        let writable =
            |mount: &&Mount| matches!(mount.kind, Kind::Private(_) | Kind::Bind(Access::ReadWrite, _));
        let shared_memory = std::iter::once(PathBuf::from("/dev/shm"));
        self.mounts.iter().filter(writable).map(|mount| mount.target.clone()).chain(shared_memory).collect()
    }
}

impl Mount {
    /// Whether this is to be empty and lies in the new root, which is empty anyway: then nothing needs to be mounted.
    pub(crate) fn is_bare(&self) -> bool {
        self.kind == Kind::Mask && self.target.parent() == Some(Path::new("/"))
    }
}

/// What every jail has.
fn base() -> Vec<Mount> {
    let directory = |target: &str, kind| Mount { target: PathBuf::from(target), kind, is_directory: true };
    let mut mounts = vec![
        directory("/dev", Kind::Dev),
        directory("/proc", Kind::Proc),
        directory("/sys", Kind::Mask),
        directory("/tmp", Kind::Private("tmp")),
    ];
    if fs::symlink_metadata("/var/tmp").is_ok_and(|meta| meta.is_dir()) {
        mounts.push(directory("/var/tmp", Kind::Private("var-tmp")));
    }
    if Path::new(PROCESSORS).is_dir() {
        mounts.push(directory(PROCESSORS, Kind::Bind(Access::ReadOnly, PathBuf::from(PROCESSORS))));
    }
    mounts
}

/// The masked paths that exist, at every path where the jail would see them.
fn masks(jail: &Jail, binds: &[(PathBuf, PathBuf, Access)]) -> Result<Vec<(PathBuf, bool)>, Fault> {
    let mut masks = Vec::new();
    for path in &jail.masked {
        let Some((real, is_directory)) = look(path).map_err(|error| Fault::at(Step::Mount, path, error))?
        else {
            continue;
        };
        for (source, target, _) in binds.iter().filter(|(source, target, _)| source != target) {
            if let Ok(below) = real.strip_prefix(source)
                && !below.as_os_str().is_empty()
            {
                masks.push((target.join(below), is_directory));
            }
        }
        masks.push((real, is_directory));
    }
    masks.sort();
    masks.dedup();
    Ok(masks)
}

/// Whether a masked path may need a cover. What is not there needs none; all else the jail looks at more closely.
pub(crate) fn may_need_cover(path: &Path) -> bool {
    !is_plain(path) || !matches!(rustix::fs::stat(path), Err(Errno::NOENT | Errno::NOTDIR))
}

/// Where a path really leads and whether to a directory. `None`: it is not there, or cannot be reached by the user the
/// jail runs as, and needs no cover.
fn look(path: &Path) -> io::Result<Option<(PathBuf, bool)>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if !is_plain(path) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // There are many masks and hardly a link: two calls tell, where following each part of the path takes ten.
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    match opened {
        Ok(fd) => {
            let mode = rustix::fs::fstat(fd)?.st_mode;
            Ok(Some((path.to_path_buf(), FileType::from_raw_mode(mode).is_dir())))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(Errno::LOOP) => match fs::canonicalize(path) {
            Ok(real) => Ok(Some((real.clone(), fs::metadata(real)?.is_dir()))),
            Err(error) if unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        },
        Err(error) => Err(error.into()),
    }
}

fn unreachable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP))
}

/// The file that says how names are found, if the jail has the host's network and a mask would hide it.
fn name_service(network: Network, masks: &[(PathBuf, bool)]) -> Option<PathBuf> {
    let real = match network {
        Network::None => return None,
        Network::Full => fs::canonicalize("/etc/resolv.conf").ok()?,
    };
    masks.iter().any(|(mask, _)| real.starts_with(mask)).then_some(real)
}

/// Whether a path begins at the root and never climbs.
fn is_plain(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain)
}

/// The path a target really has: links are followed as far as it exists.
fn settle(target: &Path) -> io::Result<PathBuf> {
    if !is_plain(target) || target.parent().is_none() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for above in target.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            let rest = target.strip_prefix(above).map_err(io::Error::other)?;
            // Joining nothing would add a slash, and a file has none at its end.
            return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
        }
    }
    Ok(target.to_path_buf())
}

/// The nearest mount that this path lies in, and its place in the list, which is sorted.
fn above<'a>(mounts: &'a [Mount], target: &Path) -> Option<(usize, &'a Mount)> {
    target.ancestors().skip(1).find_map(|above| {
        let index = mounts.binary_search_by(|mount| mount.target.as_path().cmp(above)).ok()?;
        Some((index, mounts.get(index)?))
    })
}

fn is_new_name(target: &Path) -> bool {
    let top = target.components().take(2).collect::<PathBuf>();
    fs::symlink_metadata(top).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jail::Bind;

    #[test]
    fn what_is_masked_stays_masked_where_a_bind_shows_it_again() {
        // It is not seen where it is, since `/tmp` is private.
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(home.join("keys")).unwrap();
        fs::create_dir_all(home.join("work")).unwrap();
        let mut jail = Jail::new("/bin/true", Path::new("/root")).bind(home.join("work"), Access::ReadWrite);
        jail.masked = vec![home.clone(), home.join("keys"), home.join("missing")];
        jail.binds.push(Bind { source: home.clone(), target: "/shown".into(), access: Access::ReadOnly });
        let plan = Plan::new(&jail).unwrap();
        let seen: Vec<(PathBuf, bool)> = plan
            .mounts
            .iter()
            .filter(|mount| mount.target.starts_with(&home) || mount.target.starts_with("/shown"))
            .map(|mount| (mount.target.clone(), mount.kind == Kind::Mask))
            .collect();
        let mut expected = vec![
            (PathBuf::from("/shown"), false),
            (PathBuf::from("/shown/keys"), true),
            (home.join("work"), false),
        ];
        expected.sort();
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_is_hidden_by_a_private_directory_is_not_named_there() {
        let top = tempfile::tempdir_in("/tmp").unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        fs::write(top.join("socket"), "").unwrap();
        let mut jail = Jail::new("/bin/true", Path::new("/root"));
        jail.masked = vec![top.join("socket"), top.clone()];
        let plan = Plan::new(&jail).unwrap();
        assert!(!plan.mounts.iter().any(|mount| mount.target.starts_with(&top)), "{:?}", plan.mounts);
        // Where a bind shows it all the same, it is covered.
        jail.binds = vec![Bind { source: top.clone(), target: top.clone(), access: Access::ReadOnly }];
        let plan = Plan::new(&jail).unwrap();
        assert!(
            plan.mounts.iter().any(|mount| mount.target == top.join("socket") && mount.kind == Kind::Mask)
        );
    }

    #[test]
    fn targets_that_climb_are_refused() {
        for target in ["work", "/a/../b", "/"] {
            assert!(settle(Path::new(target)).is_err(), "{target}");
        }
    }

    #[test]
    fn masks_that_climb_are_refused_and_links_are_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        fs::create_dir(top.join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        assert_eq!(look(&top.join("link")).unwrap(), Some((top.join("real"), true)));
        assert_eq!(look(&top.join("missing")).unwrap(), None);
        assert!(look(&top.join("real/../real")).is_err());
    }
}
