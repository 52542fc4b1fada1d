//! The file tree of a jail: the host's, read-only, with private and chosen parts on top.
//!
//! Everything is done with descriptors of mounts that are not attached anywhere yet. All sources are opened before
//! the first mount is moved into place, so no later step can change what an earlier path meant. One file system in
//! memory holds all that is private: `/tmp`, the devices' directory, what covers masked paths.
//!
//! The new mount namespace is a copy of the host's tree, and this copy becomes the jail's: it is made read-only where it
//! is, and covered. Nothing is unmounted, because the kernel then waits for all processors, which takes longer than all
//! the rest; what is covered stays covered, since uncovering takes a capability that nobody in the jail has or can get.
//! Only a jail with names that the host's root does not have gets another root, and the old one is let go.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags};
use rustix::mount::{FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, OpenTreeFlags, UnmountFlags};

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
    let devices = DEVICES
        .iter()
        .map(|name| clone(CWD, &Path::new("/dev").join(name)))
        .collect::<Result<Vec<_>, _>>()?;
    let parts = if plan.new_names { top_level()? } else { Vec::new() };

    let root = open_in(CWD, Path::new("/")).during(Step::Root)?;
    if !plan.new_names {
        sys::restrict_mount(root.as_fd(), READ_ONLY).during(Step::Root)?;
    }
    // This covers the host's /proc, and is itself covered by the new one.
    let private = private(jail)?;
    move_to(&private, CWD, Path::new("/proc")).during(Step::Scratch)?;
    lay_out(&private, &plan)?;
    let root = if plan.new_names { assemble(&private, parts)? } else { root };

    for (index, (mount, source)) in plan.mounts.iter().zip(sources).enumerate() {
        let source = match (&mount.kind, source) {
            (Kind::Mask, _) if mount.is_directory => {
                clone_restricted(&private, &PathBuf::from(format!("mask/{index}")), READ_ONLY)?
            }
            (Kind::Mask, _) => clone_restricted(&private, Path::new("nothing"), READ_ONLY)?,
            (Kind::Private(name), _) => clone(&private, Path::new(name))?,
            (Kind::Dev, _) => clone_restricted(&private, Path::new("dev"), READ_ONLY)?,
            (Kind::Proc, _) => new_proc()?,
            (Kind::Bind(access, _), Some(source)) => {
                let flags = if *access == Access::ReadOnly { READ_ONLY } else { INERT };
                sys::restrict_mount(source.as_fd(), flags).during(Step::Mount)?;
                source
            }
            (Kind::Bind(..), None) => continue,
        };
        match attach(&root, &source, &mount.target) {
            // It was removed since we looked, and there is nothing left to hide.
            Err(fault) if mount.kind == Kind::Mask && fault.errno == libc::ENOENT => continue,
            other => other?,
        }
        match &mount.kind {
            Kind::Proc => mask_proc(&root, &private)?,
            Kind::Dev => fill_dev(&root, &private, &devices)?,
            _ => {}
        }
    }

    if plan.new_names {
        pivot(&root)?;
    }
    Ok(plan.writable())
}

/// A new root of the private file system, with all parts of the old one in their places.
fn assemble(private: &OwnedFd, parts: Vec<(PathBuf, OwnedFd)>) -> Result<OwnedFd, Fault> {
    let root = clone_restricted(private, Path::new("root"), READ_ONLY)?;
    move_to(&root, private, Path::new("root")).during(Step::Root)?;
    for (name, mount) in parts {
        sys::restrict_mount(mount.as_fd(), READ_ONLY).during(Step::Root)?;
        attach(&root, &mount, &name)?;
    }
    Ok(root)
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
    for name in ["root", "mask", "empty", "dev", "dev/pts", "dev/shm"] {
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
    if plan.new_names {
        copy_top_level(private)?;
    }
    for (index, mount) in plan.mounts.iter().enumerate() {
        if mount.kind == Kind::Mask && mount.is_directory {
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

fn top_level() -> Result<Vec<(PathBuf, OwnedFd)>, Fault> {
    let mut parts = Vec::new();
    for entry in std::fs::read_dir("/").during(Step::Root)? {
        let entry = entry.during(Step::Root)?;
        if !entry.file_type().during(Step::Root)?.is_symlink() {
            parts.push((entry.path(), clone(CWD, &entry.path())?));
        }
    }
    Ok(parts)
}

fn fill_dev(root: &OwnedFd, private: &OwnedFd, devices: &[OwnedFd]) -> Result<(), Fault> {
    for (name, device) in DEVICES.iter().zip(devices) {
        attach(root, device, &Path::new("/dev").join(name))?;
    }
    let terminals = (|| {
        let fs = rustix::mount::fsopen("devpts", FsOpenFlags::FSOPEN_CLOEXEC)?;
        rustix::mount::fsconfig_set_string(&fs, "ptmxmode", "0666")?;
        rustix::mount::fsconfig_set_string(&fs, "mode", "0620")?;
        rustix::mount::fsconfig_create(&fs)?;
        let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC;
        rustix::mount::fsmount(&fs, FsMountFlags::FSMOUNT_CLOEXEC, flags)
    })()
    .during(Step::Terminals)?;
    attach(root, &terminals, Path::new("/dev/pts"))?;
    attach(root, &clone(private, Path::new("shm"))?, Path::new("/dev/shm"))
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

fn mask_proc(root: &OwnedFd, private: &OwnedFd) -> Result<(), Fault> {
    for path in PROC_MASKS.iter().map(|name| Path::new("/proc").join(name)) {
        let Ok(there) = open_in(root, &path) else { continue };
        let stat = rustix::fs::fstat(&there).during(Step::Mount)?;
        let is_directory = FileType::from_raw_mode(stat.st_mode).is_dir();
        let empty = Path::new(if is_directory { "empty" } else { "nothing" });
        attach(root, &clone_restricted(private, empty, READ_ONLY)?, &path)?;
    }
    Ok(())
}

/// A copy of the mounts at `path` and below, attached nowhere.
fn clone(at: impl AsFd, path: &Path) -> Result<OwnedFd, Fault> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    rustix::mount::open_tree(at, path, flags).map_err(|error| Fault::at(Step::Source, path, error))
}

fn clone_restricted(at: impl AsFd, path: &Path, flags: u64) -> Result<OwnedFd, Fault> {
    let mount = clone(at, path)?;
    sys::restrict_mount(mount.as_fd(), flags).during(Step::Mount)?;
    Ok(mount)
}

/// Attaches a mount at a path of the new root, whatever links lead there.
fn attach(root: &OwnedFd, mount: &OwnedFd, target: &Path) -> Result<(), Fault> {
    let place = open_in(root, target).map_err(|error| Fault::at(Step::MountPoint, target, error))?;
    move_to(mount, &place, Path::new("")).map_err(|error| Fault::at(Step::Mount, target, error))
}

fn move_to(mount: &OwnedFd, at: impl AsFd, path: &Path) -> io::Result<()> {
    let mut flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH;
    if path.as_os_str().is_empty() {
        flags |= MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    }
    Ok(rustix::mount::move_mount(mount, "", at, path, flags)?)
}

/// Opens a path as a process whose root is `root` would see it.
fn open_in(root: impl AsFd, path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    Ok(rustix::fs::openat2(root, path, flags, Mode::empty(), ResolveFlags::IN_ROOT)?)
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

/// Makes `root` the root and lets go of the old one, of which nothing remains reachable.
fn pivot(root: &OwnedFd) -> Result<(), Fault> {
    rustix::process::fchdir(root).during(Step::Pivot)?;
    rustix::process::pivot_root(".", ".").during(Step::Pivot)?;
    rustix::mount::unmount(".", UnmountFlags::DETACH).during(Step::Pivot)?;
    rustix::process::chdir("/").during(Step::Pivot)
}
