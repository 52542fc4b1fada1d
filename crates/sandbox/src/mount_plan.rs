//! Plans the mounts of a jail before anything is changed.

use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{SetupError, SetupStep};
use hermes_types::MountAccess;

use crate::jail::{Jail, JailNetwork};
use crate::mount_source::{SourceError, resolve_source};

/// The mounts, parents first.
#[derive(Debug)]
pub(crate) struct MountPlan {
    pub(crate) mounts: Vec<PlannedMount>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PlannedMount {
    pub(crate) target: PathBuf,
    pub(crate) kind: MountKind,
    pub(crate) is_directory: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum MountKind {
    /// Empty and read-only.
    Mask,
    Private(&'static str),
    Dev,
    Proc,
    Bind(MountAccess, PathBuf),
}

/// The only part of `/sys` that ordinary programs need: the number of processors.
const CPU_INFO_DIR: &str = "/sys/devices/system/cpu";

impl MountPlan {
    pub(crate) fn new(jail: &Jail) -> Result<Self, SetupError> {
        let mut mounts = base_mounts();
        let writable: Vec<PathBuf> = jail
            .binds
            .iter()
            .filter(|bind| bind.access == MountAccess::ReadWrite)
            .filter_map(|bind| fs::canonicalize(&bind.source).ok())
            .collect();
        let mut binds = Vec::new();
        for bind in &jail.binds {
            let source = resolve_source(Path::new(&bind.source), &writable).map_err(|error| match error {
                SourceError::Link(link) => SetupError::about(SetupStep::SourceLink, &link),
                SourceError::Io(error) => SetupError::at(SetupStep::OpenSource, &bind.source)(error),
            })?;
            let target = resolve_target(Path::new(&bind.target))
                .map_err(SetupError::at(SetupStep::MountPoint, &bind.target))?;
            binds.push((source, target, bind.access));
        }
        let masks = resolve_masks(jail, &binds)?;
        if let Some(names) = hidden_resolv_conf(jail.network, &masks) {
            binds.push((names.clone(), names, MountAccess::ReadOnly));
        }
        for (source, target, access) in binds {
            let metadata = fs::metadata(&source).map_err(SetupError::at(SetupStep::OpenSource, &source))?;
            let is_directory = metadata.is_dir();
            mounts.retain(|mount| mount.target != target);
            mounts.push(PlannedMount { target, kind: MountKind::Bind(access, source), is_directory });
        }
        for (target, is_directory) in masks {
            if !mounts.iter().any(|mount| mount.target == target) {
                mounts.push(PlannedMount { target, kind: MountKind::Mask, is_directory });
            }
        }
        mounts.sort_by(|a, b| a.target.cmp(&b.target));
        // A path inside an empty or private directory needs no mask, which would reveal its name
        // there.
        let is_bare =
            |kind: &MountKind| matches!(kind, MountKind::Mask | MountKind::Private(_) | MountKind::Dev);
        let shown = |mount: &PlannedMount| {
            mount.kind != MountKind::Mask
                || parent_mount(&mounts, &mount.target).is_none_or(|(_, over)| !is_bare(&over.kind))
        };
        Ok(Self { mounts: mounts.iter().filter(|mount| shown(mount)).cloned().collect() })
    }

    /// If the mount point must be created in the private file system: the directory there and the
    /// path below it.
    pub(crate) fn private_parent(&self, index: usize) -> Option<(String, PathBuf)> {
        let target = &self.mounts.get(index)?.target;
        let (holder, top) = match parent_mount(&self.mounts, target) {
            Some((_, mount)) if mount.is_empty_root_entry() => ("root".to_owned(), Path::new("/")),
            Some((over, mount)) => match mount.kind {
                MountKind::Mask => (format!("mask/{over}"), mount.target.as_path()),
                MountKind::Private(name) => (name.to_owned(), mount.target.as_path()),
                MountKind::Dev => ("dev".to_owned(), mount.target.as_path()),
                MountKind::Proc | MountKind::Bind(..) => return None,
            },
            None if is_new_root_name(target) => ("root".to_owned(), Path::new("/")),
            None => return None,
        };
        Some((holder, target.strip_prefix(top).ok()?.to_path_buf()))
    }

    /// The paths that the jail may write.
    pub(crate) fn writable(&self) -> Vec<PathBuf> {
        let writable = |mount: &&PlannedMount| {
            matches!(mount.kind, MountKind::Private(_) | MountKind::Bind(MountAccess::ReadWrite, _))
        };
        let shared_memory = std::iter::once(PathBuf::from("/dev/shm"));
        self.mounts.iter().filter(writable).map(|mount| mount.target.clone()).chain(shared_memory).collect()
    }
}

impl PlannedMount {
    /// Whether this is a mask of an entry of the root: the new root has an empty directory there,
    /// so nothing needs to be mounted.
    pub(crate) fn is_empty_root_entry(&self) -> bool {
        self.kind == MountKind::Mask && self.target.parent() == Some(Path::new("/"))
    }
}

/// The mounts of every jail.
fn base_mounts() -> Vec<PlannedMount> {
    let directory =
        |target: &str, kind| PlannedMount { target: PathBuf::from(target), kind, is_directory: true };
    let mut mounts = vec![
        directory("/dev", MountKind::Dev),
        directory("/proc", MountKind::Proc),
        directory("/sys", MountKind::Mask),
        directory("/tmp", MountKind::Private("tmp")),
    ];
    if fs::symlink_metadata("/var/tmp").is_ok_and(|meta| meta.is_dir()) {
        mounts.push(directory("/var/tmp", MountKind::Private("var-tmp")));
    }
    if Path::new(CPU_INFO_DIR).is_dir() {
        mounts.push(directory(
            CPU_INFO_DIR,
            MountKind::Bind(MountAccess::ReadOnly, PathBuf::from(CPU_INFO_DIR)),
        ));
    }
    mounts
}

/// The masked paths that exist, at every path where the jail would see them.
fn resolve_masks(
    jail: &Jail,
    binds: &[(PathBuf, PathBuf, MountAccess)],
) -> Result<Vec<(PathBuf, bool)>, SetupError> {
    let mut masks = Vec::new();
    for path in jail.masked.iter().map(Path::new) {
        let resolved = resolve_masked(path).map_err(SetupError::at(SetupStep::Mount, path))?;
        let Some((real, is_directory)) = resolved else { continue };
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

/// Whether a masked path may exist. [`resolve_masked`] checks it precisely inside the jail.
pub(crate) fn may_need_mask(path: &Path) -> bool {
    !is_absolute_without_dots(path) || !matches!(rustix::fs::stat(path), Err(Errno::NOENT | Errno::NOTDIR))
}

/// Resolves a masked path; also returns whether it is a directory. `None` if it does not exist or
/// the jail's user cannot reach it.
fn resolve_masked(path: &Path) -> io::Result<Option<(PathBuf, bool)>> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    if !is_absolute_without_dots(path) {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // Fast path: there are many masks and hardly any symbolic links. Two calls suffice, where
    // resolving every component takes ten.
    let opened = rustix::fs::openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS);
    match opened {
        Ok(fd) => {
            let mode = rustix::fs::fstat(fd)?.st_mode;
            Ok(Some((path.to_path_buf(), FileType::from_raw_mode(mode).is_dir())))
        }
        Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => Ok(None),
        Err(Errno::LOOP) => match fs::canonicalize(path) {
            Ok(real) => Ok(Some((real.clone(), fs::metadata(real)?.is_dir()))),
            Err(error) if is_unreachable(&error) => Ok(None),
            Err(error) => Err(error),
        },
        Err(error) => Err(error.into()),
    }
}

fn is_unreachable(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR | libc::EACCES | libc::ELOOP))
}

/// The target of `/etc/resolv.conf`, if the jail uses the host's network and a mask would hide it.
fn hidden_resolv_conf(network: JailNetwork, masks: &[(PathBuf, bool)]) -> Option<PathBuf> {
    let real = match network {
        JailNetwork::None => return None,
        JailNetwork::Full => fs::canonicalize("/etc/resolv.conf").ok()?,
    };
    masks.iter().any(|(mask, _)| real.starts_with(mask)).then_some(real)
}

/// Whether a path is absolute and has no `.` or `..`.
fn is_absolute_without_dots(path: &Path) -> bool {
    let plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    path.is_absolute() && path.components().all(plain)
}

/// Resolves symbolic links in the existing part of a target.
fn resolve_target(target: &Path) -> io::Result<PathBuf> {
    if !is_absolute_without_dots(target) || target.parent().is_none() {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    for above in target.ancestors() {
        if let Ok(real) = fs::canonicalize(above) {
            let rest = target.strip_prefix(above).map_err(io::Error::other)?;
            // Joining an empty path would add a slash, which is invalid for a file.
            return Ok(if rest.as_os_str().is_empty() { real } else { real.join(rest) });
        }
    }
    Ok(target.to_path_buf())
}

/// The nearest mount above this path, and its index in the sorted list.
fn parent_mount<'a>(mounts: &'a [PlannedMount], target: &Path) -> Option<(usize, &'a PlannedMount)> {
    target.ancestors().skip(1).find_map(|above| {
        let index = mounts.binary_search_by(|mount| mount.target.as_path().cmp(above)).ok()?;
        Some((index, mounts.get(index)?))
    })
}

fn is_new_root_name(target: &Path) -> bool {
    let top = target.components().take(2).collect::<PathBuf>();
    fs::symlink_metadata(top).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::jail::JailMount;

    #[test]
    fn a_masked_path_stays_masked_below_a_bind_mount() {
        // It is not visible at its own path, because `/tmp` is private.
        let home = tempfile::tempdir_in("/tmp").unwrap();
        let home = fs::canonicalize(home.path()).unwrap();
        fs::create_dir_all(home.join("keys")).unwrap();
        fs::create_dir_all(home.join("work")).unwrap();
        let mut jail =
            Jail::new("/bin/true", Path::new("/root")).bind(home.join("work"), MountAccess::ReadWrite);
        jail.masked = [home.clone(), home.join("keys"), home.join("missing")].map(Into::into).to_vec();
        jail.binds.push(JailMount {
            source: home.clone().into(),
            target: "/shown".into(),
            access: MountAccess::ReadOnly,
        });
        let plan = MountPlan::new(&jail).unwrap();
        let visible: Vec<(PathBuf, bool)> = plan
            .mounts
            .iter()
            .filter(|mount| mount.target.starts_with(&home) || mount.target.starts_with("/shown"))
            .map(|mount| (mount.target.clone(), mount.kind == MountKind::Mask))
            .collect();
        let mut expected = vec![
            (PathBuf::from("/shown"), false),
            (PathBuf::from("/shown/keys"), true),
            (home.join("work"), false),
        ];
        expected.sort();
        assert_eq!(visible, expected);
    }

    #[test]
    fn a_path_hidden_by_a_private_directory_gets_no_mask() {
        let top = tempfile::tempdir_in("/tmp").unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        fs::write(top.join("socket"), "").unwrap();
        let mut jail = Jail::new("/bin/true", Path::new("/root"));
        jail.masked = [top.join("socket"), top.clone()].map(Into::into).to_vec();
        let plan = MountPlan::new(&jail).unwrap();
        assert!(!plan.mounts.iter().any(|mount| mount.target.starts_with(&top)), "{:?}", plan.mounts);
        // If a bind mount makes it visible, it is masked.
        jail.binds.clear();
        jail = jail.bind(&top, MountAccess::ReadOnly);
        let plan = MountPlan::new(&jail).unwrap();
        assert!(
            plan.mounts
                .iter()
                .any(|mount| mount.target == top.join("socket") && mount.kind == MountKind::Mask)
        );
    }

    #[test]
    fn targets_with_dots_are_rejected() {
        for target in ["work", "/a/../b", "/"] {
            assert!(resolve_target(Path::new(target)).is_err(), "{target}");
        }
    }

    #[test]
    fn masks_with_dots_are_rejected_and_symlinks_are_followed() {
        let top = tempfile::tempdir().unwrap();
        let top = fs::canonicalize(top.path()).unwrap();
        fs::create_dir(top.join("real")).unwrap();
        std::os::unix::fs::symlink("real", top.join("link")).unwrap();
        assert_eq!(resolve_masked(&top.join("link")).unwrap(), Some((top.join("real"), true)));
        assert_eq!(resolve_masked(&top.join("missing")).unwrap(), None);
        assert!(resolve_masked(&top.join("real/../real")).is_err());
    }
}
