//! Builds the root file system of a jail: the host's tree, read-only, with private and bound parts
//! on top.
//!
//! Every mount source is opened as a detached mount before the first mount is attached, so no later
//! step can change the meaning of an earlier path. One tmpfs holds everything private: `/tmp`, the
//! devices, the covers of masked paths, and the root directory.
//!
//! The entries of the host's root appear read-only in the new root, unless another mount replaces
//! them. At the end the old root is detached, so no mount of the jail leads to anything else.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

use crate::error::{SetupError, SetupStep, WithStep};
use hermes_types::MountAccess;

use crate::jail::Jail;
use crate::mount_plan::{MountKind, MountPlan, PlannedMount};
use crate::mount_source::open_resolved;
use crate::sys;

/// Set-user-ID programs and devices have no effect on any mount of a jail, except in `/dev`.
const INERT_FLAGS: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const READ_ONLY_FLAGS: u64 = INERT_FLAGS | libc::MOUNT_ATTR_RDONLY;

/// Limit of `/tmp`, `/var/tmp` and `/dev/shm` together, unless configured.
const DEFAULT_SCRATCH_BYTES: u64 = 512 << 20;

/// Limits the number of files too: an empty file uses kernel memory.
const SCRATCH_BYTES_PER_INODE: u64 = 4096;

/// Files that the jail itself needs.
const RESERVED_INODES: u64 = 1024;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Readable for everyone and useless to programs, but they leak information about the host.
const MASKED_PROC_ENTRIES: [&str; 8] =
    ["acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi", "kmsg"];

/// The mounts of a jail with their sources.
pub(crate) struct OpenedMounts {
    plan: MountPlan,
    sources: Vec<Option<OwnedFd>>,
}

impl OpenedMounts {
    /// Opens all sources as detached mounts, which needs the capability to mount.
    pub(crate) fn open(jail: &Jail) -> Result<Self, SetupError> {
        let plan = MountPlan::new(jail)?;
        let sources = plan.mounts.iter().map(open_source).collect::<Result<_, _>>()?;
        Ok(Self { plan, sources })
    }

    /// Shows files in the sources with the owners that a user namespace maps them to.
    pub(crate) fn map_owners(&self, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mounts = self.plan.mounts.iter().zip(&self.sources);
        // Everyone may read what is shown of `/sys`, which cannot be mapped.
        let mapped = mounts.filter(|(mount, _)| !mount.target.starts_with("/sys"));
        mapped
            .filter_map(|(_, source)| source.as_ref())
            .try_for_each(|source| sys::map_mount_owners(source.as_fd(), namespace))
    }
}

/// Builds the tree and moves this process into it. Needs the capabilities of a new user namespace.
/// Returns the directories in which the jail may write.
pub(crate) fn enter_rootfs(jail: &Jail, opened: OpenedMounts) -> Result<Vec<PathBuf>, SetupError> {
    let OpenedMounts { plan, sources } = opened;
    let parts = clone_root_entries(&plan)?;
    // It can be bound only while it is attached somewhere: on the old root, which disappears.
    let private = mount_private_fs(jail)?;
    move_mount(&private, CWD, Path::new("/proc")).with_step(SetupStep::Scratch)?;
    create_private_layout(&private, &plan)?;
    let covers = mount_covers(&private)?;
    let proc = mount_proc()?;
    let old_root = pivot_to_new_root(&private, parts)?;

    // From here on every path means the same as in the jail, except for mounts that follow.
    for (index, (mount, source)) in plan.mounts.iter().zip(sources).enumerate() {
        let target = mount.target.as_path();
        let at_target = SetupError::at(SetupStep::Mount, target);
        match (&mount.kind, source) {
            // The new root is already empty there.
            (MountKind::Mask, _) if mount.is_empty_root_entry() => {}
            (MountKind::Mask, _) => {
                let empty = if mount.is_directory { &format!("mask/{index}") } else { "nothing" };
                match bind_private(&covers, Path::new(empty), target) {
                    // It was removed in the meantime or cannot be reached by the jail's user, so there
                    // is nothing left to hide.
                    Err(error @ (Errno::NOENT | Errno::ACCESS))
                        if rustix::fs::lstat(target).err() == Some(error) => {}
                    done => done.map_err(at_target)?,
                }
            }
            (MountKind::Private(name), _) => {
                bind_private(&private, Path::new(name), target).map_err(at_target)?
            }
            (MountKind::Dev, _) => {
                bind_private(&covers, Path::new("dev"), target).map_err(at_target)?;
                attach_mount(&mount_devpts()?, Path::new("/dev/pts"))?;
                bind_private(&private, Path::new("shm"), Path::new("/dev/shm")).map_err(at_target)?;
            }
            (MountKind::Proc, _) => {
                attach_mount(&proc, target)?;
                mask_proc(&covers)?;
            }
            (MountKind::Bind(access, _), Some(source)) => {
                let flags = if *access == MountAccess::ReadOnly { READ_ONLY_FLAGS } else { INERT_FLAGS };
                sys::restrict_mount(source.as_fd(), flags).with_step(SetupStep::Mount)?;
                attach_mount(&source, target)?;
            }
            (MountKind::Bind(..), None) => {}
        }
    }
    detach_root(&old_root).with_step(SetupStep::Root)?;
    Ok(plan.writable())
}

/// A read-only clone of the private file system with the devices bound into it. Its directories and
/// files cover masked paths.
fn mount_covers(private: &OwnedFd) -> Result<OwnedFd, SetupError> {
    let covers = clone_mount(private, Path::new(""))?;
    sys::restrict_mount(covers.as_fd(), READ_ONLY_FLAGS).with_step(SetupStep::Scratch)?;
    move_mount(&covers, private, Path::new("covers")).with_step(SetupStep::Scratch)?;
    rustix::process::fchdir(&covers).with_step(SetupStep::Scratch)?;
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        rustix::mount::mount_bind(&device, Path::new("dev").join(name))
            .map_err(SetupError::at(SetupStep::OpenSource, &device))?;
    }
    Ok(covers)
}

/// Pivots to a root on the private file system, with the entries of the old root mounted in it.
/// Returns the old root, which is mounted on top of the new one, where paths do not lead.
fn pivot_to_new_root(private: &OwnedFd, parts: Vec<(PathBuf, OwnedFd)>) -> Result<OwnedFd, SetupError> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let old_root = rustix::fs::open("/", flags, Mode::empty()).with_step(SetupStep::Root)?;
    let root = clone_mount(private, Path::new("root"))?;
    move_mount(&root, private, Path::new("root")).with_step(SetupStep::Root)?;
    for (name, mount) in parts {
        move_mount(&mount, &root, &name).map_err(SetupError::at(SetupStep::Mount, &name))?;
    }
    sys::restrict_mount(root.as_fd(), READ_ONLY_FLAGS).with_step(SetupStep::Root)?;
    rustix::process::fchdir(&root).with_step(SetupStep::PivotRoot)?;
    rustix::process::pivot_root(".", ".").with_step(SetupStep::PivotRoot)?;
    Ok(old_root)
}

/// Detaches the old root with everything below it, including the private file system, whose parts
/// are bound by now.
fn detach_root(old_root: &OwnedFd) -> rustix::io::Result<()> {
    rustix::process::fchdir(old_root)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH)?;
    rustix::process::chdir("/")
}

fn open_source(mount: &PlannedMount) -> Result<Option<OwnedFd>, SetupError> {
    match &mount.kind {
        MountKind::Bind(_, source) => {
            let opened = open_resolved(source).map_err(SetupError::at(SetupStep::OpenSource, source))?;
            clone_mount(&opened, Path::new("")).map(Some)
        }
        MountKind::Mask | MountKind::Private(_) | MountKind::Dev | MountKind::Proc => Ok(None),
    }
}

/// Creates the private tmpfs.
fn mount_private_fs(jail: &Jail) -> Result<OwnedFd, SetupError> {
    let size = jail.limits.scratch.unwrap_or(DEFAULT_SCRATCH_BYTES);
    let files = size / SCRATCH_BYTES_PER_INODE + RESERVED_INODES;
    let options = [("size", &*size.to_string()), ("nr_inodes", &files.to_string()), ("mode", "0755")];
    mount_new("tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NODEV).with_step(SetupStep::Scratch)
}

/// A detached mount of a new file system, without set-user-ID programs.
fn mount_new(kind: &str, options: &[(&str, &str)], flags: MountAttrFlags) -> rustix::io::Result<OwnedFd> {
    let fs = rustix::mount::fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in options {
        rustix::mount::fsconfig_set_string(&fs, *name, *value)?;
    }
    rustix::mount::fsconfig_create(&fs)?;
    let flags = flags | MountAttrFlags::MOUNT_ATTR_NOSUID;
    rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
}

/// Creates the directories that are mounted later, with the mount points inside them.
fn create_private_layout(private: &OwnedFd, plan: &MountPlan) -> Result<(), SetupError> {
    let open = Mode::from_raw_mode(0o1777);
    for name in ["tmp", "var-tmp", "shm"] {
        make_dir(private, Path::new(name)).with_step(SetupStep::Scratch)?;
        rustix::fs::chmodat(private, name, open, AtFlags::empty()).with_step(SetupStep::Scratch)?;
    }
    for name in ["root", "mask", "empty", "covers", "dev", "dev/pts", "dev/shm"] {
        make_dir(private, Path::new(name)).with_step(SetupStep::Scratch)?;
    }
    make_file(private, Path::new("nothing")).with_step(SetupStep::Scratch)?;
    for name in DEVICES {
        make_file(private, &Path::new("dev").join(name)).with_step(SetupStep::Scratch)?;
    }
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    for (to, name) in links {
        rustix::fs::symlinkat(to, private, Path::new("dev").join(name)).with_step(SetupStep::Scratch)?;
    }
    copy_root_names(private)?;
    for (index, mount) in plan.mounts.iter().enumerate() {
        if mount.kind == MountKind::Mask && mount.is_directory && !mount.is_empty_root_entry() {
            make_dir(private, Path::new(&format!("mask/{index}"))).with_step(SetupStep::Scratch)?;
        }
        let Some((over, below)) = plan.private_parent(index) else { continue };
        let place = Path::new(&over).join(below);
        let made = if mount.is_directory {
            make_dirs(private, &place)
        } else {
            place
                .parent()
                .map_or(Ok(()), |parent| make_dirs(private, parent))
                .and_then(|()| make_file(private, &place))
        };
        made.map_err(SetupError::at(SetupStep::MountPoint, &mount.target))?;
    }
    Ok(())
}

/// Creates the entries of the old root in the new one, which may have additional entries.
fn copy_root_names(private: &OwnedFd) -> Result<(), SetupError> {
    for entry in std::fs::read_dir("/").with_step(SetupStep::Root)? {
        let entry = entry.with_step(SetupStep::Root)?;
        let place = Path::new("root").join(entry.file_name());
        let kind = entry.file_type().with_step(SetupStep::Root)?;
        if kind.is_symlink() {
            let to = std::fs::read_link(entry.path()).with_step(SetupStep::Root)?;
            rustix::fs::symlinkat(&to, private, &place).with_step(SetupStep::Root)?;
        } else if kind.is_dir() {
            make_dir(private, &place).with_step(SetupStep::Root)?;
        } else {
            make_file(private, &place).with_step(SetupStep::Root)?;
        }
    }
    Ok(())
}

/// Clones the root entries that no planned mount replaces.
fn clone_root_entries(plan: &MountPlan) -> Result<Vec<(PathBuf, OwnedFd)>, SetupError> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir("/").with_step(SetupStep::Root)? {
        let entry = entry.with_step(SetupStep::Root)?;
        let path = entry.path();
        let replaced = plan.mounts.iter().any(|mount| mount.target == path);
        if !replaced && !entry.file_type().with_step(SetupStep::Root)?.is_symlink() {
            parts.push((PathBuf::from(entry.file_name()), clone_mount(CWD, &path)?));
        }
    }
    Ok(parts)
}

/// A private devpts.
fn mount_devpts() -> Result<OwnedFd, SetupError> {
    let options = [("ptmxmode", "0666"), ("mode", "0620")];
    mount_new("devpts", &options, MountAttrFlags::MOUNT_ATTR_NOEXEC).with_step(SetupStep::Terminals)
}

/// A new procfs for the jail's pid namespace. It is read-only because files below `/proc/sys` are
/// writable for the host's root, which may have started the jail, without any capability.
fn mount_proc() -> Result<OwnedFd, SetupError> {
    let flags = MountAttrFlags::MOUNT_ATTR_NODEV
        | MountAttrFlags::MOUNT_ATTR_NOEXEC
        | MountAttrFlags::MOUNT_ATTR_RDONLY;
    mount_new("proc", &[], flags).with_step(SetupStep::Proc)
}

fn mask_proc(covers: &OwnedFd) -> Result<(), SetupError> {
    for path in MASKED_PROC_ENTRIES.iter().map(|name| Path::new("/proc").join(name)) {
        let Ok(stat) = rustix::fs::lstat(&path) else { continue };
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let empty = Path::new(if is_directory { "empty" } else { "nothing" });
        bind_private(covers, empty, &path).map_err(SetupError::at(SetupStep::Mount, &path))?;
    }
    Ok(())
}

/// A detached copy of the mounts at `path` and below.
fn clone_mount(at: impl AsFd, path: &Path) -> Result<OwnedFd, SetupError> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if path.as_os_str().is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    rustix::mount::open_tree(at, path, flags).map_err(SetupError::at(SetupStep::OpenSource, path))
}

/// Binds a directory of the private file system, with its submounts, to a path.
fn bind_private(holder: &OwnedFd, part: &Path, target: &Path) -> rustix::io::Result<()> {
    rustix::process::fchdir(holder)?;
    rustix::mount::mount_bind_recursive(part, target)
}

/// Attaches a mount at a path; follows symbolic links.
fn attach_mount(mount: &OwnedFd, target: &Path) -> Result<(), SetupError> {
    let place = rustix::fs::openat(CWD, target, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
        .map_err(SetupError::at(SetupStep::MountPoint, target))?;
    move_mount(mount, &place, Path::new("")).map_err(SetupError::at(SetupStep::Mount, target))
}

fn move_mount(mount: &OwnedFd, at: impl AsFd, path: &Path) -> io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(rustix::mount::move_mount(mount, "", at, path, flags)?)
}

fn make_dir(at: &OwnedFd, path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(at, path, Mode::from_raw_mode(0o755)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

fn make_dirs(at: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
    above.reverse();
    above.into_iter().try_for_each(|above| make_dir(at, above))
}

fn make_file(at: &OwnedFd, path: &Path) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::CLOEXEC | OFlags::WRONLY;
    rustix::fs::openat(at, path, flags, Mode::from_raw_mode(0o444))?;
    Ok(())
}
