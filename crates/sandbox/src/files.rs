//! The file tree of a jail: the host's, read-only, with private and chosen parts on top.
//!
//! Whatever the jail sees of the host is opened, as a mount that is not attached anywhere yet, before the first mount is
//! put into place, so no later step can change what an earlier path meant. One file system in memory holds all that is
//! private: `/tmp`, the devices' directory, what covers masked paths, and the root.
//!
//! What the host's root has is shown in that root, read-only, unless something else belongs there. Nothing is unmounted,
//! because the kernel then waits for all processors, which takes longer than all the rest: the old root is covered, and
//! what is covered stays covered, since uncovering takes a capability that nobody in the jail has or can get.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags};

use crate::error::{During, Fault, Step};
use crate::jail::{Access, Jail};
use crate::plan::{Kind, Mount, Plan};
use crate::sys;

/// No set-uid program and no device works on any mount of a jail, those in `/dev` excepted.
const INERT: u64 = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
const READ_ONLY: u64 = INERT | libc::MOUNT_ATTR_RDONLY;

/// What `/tmp` and its like may hold when nobody said.
const DEFAULT_SCRATCH: u64 = 512 << 20;

/// One file in `/tmp` and its like for so many bytes allowed there: an empty one takes memory of the kernel, too.
const BYTES_FOR_A_FILE: u64 = 4096;

/// The files a jail itself needs there.
const OWN_FILES: u64 = 1024;

const DEVICES: [&str; 6] = ["null", "zero", "full", "random", "urandom", "tty"];

/// Readable for anyone, but of no use to a program, and too telling.
const PROC_MASKS: [&str; 8] =
    ["acpi", "kcore", "keys", "latency_stats", "timer_list", "sched_debug", "scsi", "kmsg"];

/// Makes the tree and moves this process into it. Needs the capabilities of a new user namespace.
///
/// Returns the directories in which the jail may write.
pub(crate) fn enter(jail: &Jail) -> Result<Vec<PathBuf>, Fault> {
    let plan = Plan::new(jail)?;
    let sources = plan.mounts.iter().map(open_source).collect::<Result<Vec<_>, _>>()?;
    let parts = top_level(&plan)?;
    // This covers the host's /proc, and is itself covered by the new one.
    let private = private(jail)?;
    move_to(&private, CWD, Path::new("/proc")).during(Step::Scratch)?;
    lay_out(&private, &plan)?;
    let covers = covers(&private)?;
    let proc = new_proc()?;
    new_root(&private, parts)?;

    // From here on every path means what it will mean in the jail, but for what is not mounted yet.
    for (index, (mount, source)) in plan.mounts.iter().zip(sources).enumerate() {
        let target = mount.target.as_path();
        let at_target = |error| Fault::at(Step::Mount, target, error);
        match (&mount.kind, source) {
            // The new root is empty there.
            (Kind::Mask, _) if mount.is_bare() => {}
            (Kind::Mask, _) => {
                let empty = if mount.is_directory { &format!("mask/{index}") } else { "nothing" };
                match bind(&covers, Path::new(empty), target) {
                    // It was removed since we looked, and there is nothing left to hide.
                    Err(Errno::NOENT)
                        if rustix::fs::lstat(target).is_err_and(|error| error == Errno::NOENT) => {}
                    done => done.map_err(at_target)?,
                }
            }
            (Kind::Private(name), _) => bind(&private, Path::new(name), target).map_err(at_target)?,
            (Kind::Dev, _) => {
                bind(&covers, Path::new("dev"), target).map_err(at_target)?;
                attach(&new_terminals()?, Path::new("/dev/pts"))?;
                bind(&private, Path::new("shm"), Path::new("/dev/shm")).map_err(at_target)?;
            }
            (Kind::Proc, _) => {
                attach(&proc, target)?;
                mask_proc(&covers)?;
            }
            (Kind::Bind(access, _), Some(source)) => {
                let flags = if *access == Access::ReadOnly { READ_ONLY } else { INERT };
                sys::restrict_mount(source.as_fd(), flags).during(Step::Mount)?;
                attach(&source, target)?;
            }
            (Kind::Bind(..), None) => {}
        }
    }
    rustix::process::chdir("/").during(Step::Root)?;
    Ok(plan.writable())
}

/// What hides other things: the private file system once more, but read-only, with the devices in their places.
fn covers(private: &OwnedFd) -> Result<OwnedFd, Fault> {
    let covers = clone(private, Path::new(""))?;
    sys::restrict_mount(covers.as_fd(), READ_ONLY).during(Step::Scratch)?;
    move_to(&covers, private, Path::new("covers")).during(Step::Scratch)?;
    rustix::process::fchdir(&covers).during(Step::Scratch)?;
    for name in DEVICES {
        let device = Path::new("/dev").join(name);
        rustix::mount::mount_bind(&device, Path::new("dev").join(name))
            .map_err(|error| Fault::at(Step::Source, &device, error))?;
    }
    Ok(covers)
}

/// Moves this process to a root of the private file system, with the parts of the old one in their places. The old
/// one is where `/proc` comes to be, out of reach for ever: to unmount it would take longer than all the rest.
fn new_root(private: &OwnedFd, parts: Vec<(PathBuf, OwnedFd)>) -> Result<(), Fault> {
    let root = clone(private, Path::new("root"))?;
    move_to(&root, private, Path::new("root")).during(Step::Root)?;
    for (name, mount) in parts {
        move_to(&mount, &root, &name).map_err(|error| Fault::at(Step::Mount, &name, error))?;
    }
    sys::restrict_mount(root.as_fd(), READ_ONLY).during(Step::Root)?;
    rustix::process::fchdir(&root).during(Step::Pivot)?;
    rustix::process::pivot_root(".", "proc").during(Step::Pivot)
}

fn open_source(mount: &Mount) -> Result<Option<OwnedFd>, Fault> {
    match &mount.kind {
        Kind::Bind(_, source) => clone(CWD, source).map(Some),
        Kind::Mask | Kind::Private(_) | Kind::Dev | Kind::Proc => Ok(None),
    }
}

/// The private file system, with a directory for each use.
fn private(jail: &Jail) -> Result<OwnedFd, Fault> {
    let size = jail.limits.scratch.unwrap_or(DEFAULT_SCRATCH);
    let files = size / BYTES_FOR_A_FILE + OWN_FILES;
    (|| {
        let fs = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&fs, "size", size.to_string())?;
        rustix::mount::fsconfig_set_string(&fs, "nr_inodes", files.to_string())?;
        rustix::mount::fsconfig_set_string(&fs, "mode", "0755")?;
        rustix::mount::fsconfig_create(&fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
        rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    })()
    .during(Step::Scratch)
}

/// Makes the directories that are mounted later, each with the mount points that lie in it.
fn lay_out(private: &OwnedFd, plan: &Plan) -> Result<(), Fault> {
    let open = Mode::from_raw_mode(0o1777);
    for name in ["tmp", "var-tmp", "shm"] {
        directory(private, Path::new(name)).during(Step::Scratch)?;
        rustix::fs::chmodat(private, name, open, AtFlags::empty()).during(Step::Scratch)?;
    }
    for name in ["root", "mask", "empty", "covers", "dev", "dev/pts", "dev/shm"] {
        directory(private, Path::new(name)).during(Step::Scratch)?;
    }
    file(private, Path::new("nothing")).during(Step::Scratch)?;
    for name in DEVICES {
        file(private, &Path::new("dev").join(name)).during(Step::Scratch)?;
    }
    let links = [
        ("pts/ptmx", "ptmx"),
        ("/proc/self/fd", "fd"),
        ("/proc/self/fd/0", "stdin"),
        ("/proc/self/fd/1", "stdout"),
        ("/proc/self/fd/2", "stderr"),
    ];
    for (to, name) in links {
        rustix::fs::symlinkat(to, private, Path::new("dev").join(name)).during(Step::Scratch)?;
    }
    copy_top_level(private)?;
    for (index, mount) in plan.mounts.iter().enumerate() {
        if mount.kind == Kind::Mask && mount.is_directory && !mount.is_bare() {
            directory(private, Path::new(&format!("mask/{index}"))).during(Step::Scratch)?;
        }
        let Some((over, below)) = plan.holder(index) else { continue };
        let place = Path::new(&over).join(below);
        let made =
            if mount.is_directory { directories(private, &place) } else { file_below(private, &place) };
        made.map_err(|error| Fault::at(Step::MountPoint, &mount.target, error))?;
    }
    Ok(())
}

/// Gives the new root the names of the old one, so that it can have more.
fn copy_top_level(private: &OwnedFd) -> Result<(), Fault> {
    for entry in std::fs::read_dir("/").during(Step::Root)? {
        let entry = entry.during(Step::Root)?;
        let place = Path::new("root").join(entry.file_name());
        let kind = entry.file_type().during(Step::Root)?;
        if kind.is_symlink() {
            let to = std::fs::read_link(entry.path()).during(Step::Root)?;
            rustix::fs::symlinkat(&to, private, &place).during(Step::Root)?;
        } else if kind.is_dir() {
            directory(private, &place).during(Step::Root)?;
        } else {
            file(private, &place).during(Step::Root)?;
        }
    }
    Ok(())
}

/// What the root has and no mount of the plan replaces, by its name.
fn top_level(plan: &Plan) -> Result<Vec<(PathBuf, OwnedFd)>, Fault> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir("/").during(Step::Root)? {
        let entry = entry.during(Step::Root)?;
        let path = entry.path();
        let replaced = plan.mounts.iter().any(|mount| mount.target == path);
        if !replaced && !entry.file_type().during(Step::Root)?.is_symlink() {
            parts.push((PathBuf::from(entry.file_name()), clone(CWD, &path)?));
        }
    }
    Ok(parts)
}

/// Terminals of the jail's own.
fn new_terminals() -> Result<OwnedFd, Fault> {
    (|| {
        let fs = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&fs, "ptmxmode", "0666")?;
        rustix::mount::fsconfig_set_string(&fs, "mode", "0620")?;
        rustix::mount::fsconfig_create(&fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    })()
    .during(Step::Terminals)
}

/// The processes of the jail's own pid namespace. Read-only as a whole: for the host's root, who may be the one who
/// started us, the files below `/proc/sys` are writable without any capability.
fn new_proc() -> Result<OwnedFd, Fault> {
    (|| {
        let fs = rustix::mount::fsopen("proc", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_create(&fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID
            | MountAttrFlags::MOUNT_ATTR_NODEV
            | MountAttrFlags::MOUNT_ATTR_NOEXEC
            | MountAttrFlags::MOUNT_ATTR_RDONLY;
        rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    })()
    .during(Step::Proc)
}

fn mask_proc(covers: &OwnedFd) -> Result<(), Fault> {
    for path in PROC_MASKS.iter().map(|name| Path::new("/proc").join(name)) {
        let Ok(stat) = rustix::fs::lstat(&path) else { continue };
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let empty = Path::new(if is_directory { "empty" } else { "nothing" });
        bind(covers, empty, &path).map_err(|error| Fault::at(Step::Mount, &path, error))?;
    }
    Ok(())
}

/// A copy of the mounts at `path` and below, attached nowhere.
fn clone(at: impl AsFd, path: &Path) -> Result<OwnedFd, Fault> {
    let mut flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    if path.as_os_str().is_empty() {
        flags |= OpenTreeFlags::AT_EMPTY_PATH;
    }
    rustix::mount::open_tree(at, path, flags).map_err(|error| Fault::at(Step::Source, path, error))
}

/// Shows a part of the private file system, with the mounts in it, at a path.
fn bind(holder: &OwnedFd, part: &Path, target: &Path) -> rustix::io::Result<()> {
    rustix::process::fchdir(holder)?;
    rustix::mount::mount_bind_recursive(part, target)
}

/// Attaches a mount at a path, whatever links lead there.
fn attach(mount: &OwnedFd, target: &Path) -> Result<(), Fault> {
    let place = open(target).map_err(|error| Fault::at(Step::MountPoint, target, error))?;
    move_to(mount, &place, Path::new("")).map_err(|error| Fault::at(Step::Mount, target, error))
}

fn move_to(mount: &OwnedFd, at: impl AsFd, path: &Path) -> io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(rustix::mount::move_mount(mount, "", at, path, flags)?)
}

fn open(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

fn directory(at: &OwnedFd, path: &Path) -> io::Result<()> {
    match rustix::fs::mkdirat(at, path, Mode::from_raw_mode(0o755)) {
        Err(rustix::io::Errno::EXIST) => Ok(()),
        other => Ok(other?),
    }
}

fn directories(at: &OwnedFd, path: &Path) -> io::Result<()> {
    let mut above: Vec<&Path> = path.ancestors().filter(|above| !above.as_os_str().is_empty()).collect();
    above.reverse();
    above.into_iter().try_for_each(|above| directory(at, above))
}

fn file(at: &OwnedFd, path: &Path) -> io::Result<()> {
    let flags = OFlags::CREATE | OFlags::CLOEXEC | OFlags::WRONLY;
    rustix::fs::openat(at, path, flags, Mode::from_raw_mode(0o444))?;
    Ok(())
}

fn file_below(at: &OwnedFd, path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), |parent| directories(at, parent))?;
    file(at, path)
}
