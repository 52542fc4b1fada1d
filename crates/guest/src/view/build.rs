//! `hermes-guest view`: creates the namespaces of one view.
//!
//! This process has one thread, as new namespaces require. It reads a [`ViewPlan`], mounts it, writes
//! one byte, and waits while the guest opens its namespaces. They live as long as the guest holds
//! them.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::guard::GuardKind;
use rustix::fs::{CWD, Mode, OFlags};
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MountPropagationFlags, MoveMountFlags, OpenTreeFlags,
};
use rustix::process::DumpableBehavior;
use serde::{Deserialize, Serialize};

use crate::sys;

/// The source of hidden files, in the cover of Hermes' home.
const EMPTY_FILE: &str = ".hidden";

/// The mounts of a view. Paths that do not exist are skipped.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct ViewPlan {
    /// A hidden directory that exists.
    pub(super) cover: PathBuf,
    /// Directories that cannot be renamed, outermost first.
    pub(super) pinned: Vec<PathBuf>,
    pub(super) entries: Vec<(PathBuf, GuardKind)>,
    /// Directories that stay visible below hidden ones, and whether they are writable.
    pub(super) shown: Vec<(PathBuf, bool)>,
    /// If set, everything else is read-only.
    pub(super) writable: Option<Vec<PathBuf>>,
}

pub(crate) fn main() -> io::Result<()> {
    let mut length = [0; 4];
    io::stdin().read_exact(&mut length)?;
    let mut bytes = Vec::new();
    io::stdin().take(u32::from_le_bytes(length).into()).read_to_end(&mut bytes)?;
    let plan: ViewPlan = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    build(&plan)?;
    io::stdout().write_all(b"+")?;
    io::stdout().flush()?;
    // The guest closes the other end once it holds the namespaces.
    io::copy(&mut io::stdin(), &mut io::sink())?;
    Ok(())
}

/// Builds a view that hides nothing of interest, and ends.
pub(crate) fn check() -> io::Result<()> {
    build(&ViewPlan { cover: PathBuf::from("/tmp"), ..ViewPlan::default() })
}

fn build(plan: &ViewPlan) -> io::Result<()> {
    enter_namespaces()?;
    rustix::mount::mount_change("/", MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC)?;
    // Opened before the first mount, so that no step changes the meaning of a later path.
    let shown = open_trees(plan.shown.iter().map(|(path, _)| path))?;
    if let Some(writable) = &plan.writable {
        let writable = open_trees(writable)?;
        let root = open_path(Path::new("/"))?;
        sys::set_read_only(root.as_fd())?;
        writable.iter().try_for_each(|(path, tree)| attach(tree, path))?;
    }
    for (path, tree) in open_trees(&plan.pinned)? {
        attach(&tree, &path)?;
    }
    let read_only = plan.entries.iter().filter(|(_, kind)| *kind == GuardKind::ReadOnly);
    for (path, tree) in open_trees(read_only.map(|(path, _)| path))? {
        sys::set_read_only(tree.as_fd())?;
        attach(&tree, &path)?;
    }
    hide(plan)?;
    for (path, tree) in shown {
        if plan.shown.iter().any(|(shown, is_writable)| *shown == path && !is_writable) {
            sys::set_read_only(tree.as_fd())?;
        }
        attach(&tree, &path)?;
    }
    Ok(())
}

/// As root, a new mount namespace suffices. Another user needs a user namespace, in which only that
/// user exists.
fn enter_namespaces() -> io::Result<()> {
    let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
    if uid.is_root() {
        return sys::unshare(libc::CLONE_NEWNS);
    }
    sys::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS)?;
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))?;
    // The new capabilities made this process undumpable, and the guest could not open its namespaces.
    Ok(rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)?)
}

fn hide(plan: &ViewPlan) -> io::Result<()> {
    // It is attached first, because only the file of an attached mount can be bound.
    let cover = mount_tmpfs()?;
    let flags = OFlags::CREATE | OFlags::WRONLY | OFlags::CLOEXEC;
    rustix::fs::openat(&cover, EMPTY_FILE, flags, Mode::from_raw_mode(0o444))?;
    make_mount_points(&cover, &plan.cover, &plan.shown)?;
    attach(&cover, &plan.cover)?;
    // Another entry may cover this path.
    let empty = open_path(&plan.cover.join(EMPTY_FILE))?;
    for (path, kind) in &plan.entries {
        let Some(found) = found(fs::metadata(path))? else { continue };
        if *kind == GuardKind::ReadOnly || *path == plan.cover {
            continue;
        }
        if found.is_dir() {
            let tmpfs = mount_tmpfs()?;
            make_mount_points(&tmpfs, path, &plan.shown)?;
            sys::set_read_only(tmpfs.as_fd())?;
            attach(&tmpfs, path)?;
        } else {
            hide_file(&empty, path)?;
        }
    }
    if rustix::process::geteuid().is_root() {
        hide_disks(&empty)?;
    }
    sys::set_read_only(cover.as_fd())
}

/// Root could read and change everything through the block devices.
fn hide_disks(empty: &OwnedFd) -> io::Result<()> {
    let is_memory = |name: &[u8]| [&b"mem"[..], b"kmem", b"port"].contains(&name);
    for entry in fs::read_dir("/dev")? {
        let entry = entry?;
        if entry.file_type()?.is_block_device() || is_memory(entry.file_name().as_bytes()) {
            hide_file(empty, &entry.path())?;
        }
    }
    Ok(())
}

fn hide_file(empty: &OwnedFd, path: &Path) -> io::Result<()> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_EMPTY_PATH;
    let tree = rustix::mount::open_tree(empty, "", flags)?;
    sys::set_read_only(tree.as_fd())?;
    attach(&tree, path)
}

/// Creates the directories of a tmpfs on which others are mounted.
fn make_mount_points(tmpfs: &OwnedFd, covered: &Path, shown: &[(PathBuf, bool)]) -> io::Result<()> {
    for (path, _) in shown {
        let Ok(below) = path.strip_prefix(covered) else { continue };
        let mut made = PathBuf::new();
        for name in below.components() {
            made.push(name);
            match rustix::fs::mkdirat(tmpfs, &made, Mode::from_raw_mode(0o700)) {
                Err(rustix::io::Errno::EXIST) => {}
                other => other?,
            }
        }
    }
    Ok(())
}

fn mount_tmpfs() -> io::Result<OwnedFd> {
    let context = rustix::mount::fsopen("tmpfs", FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (name, value) in [("mode", "0700"), ("size", "4096"), ("nr_inodes", "4096")] {
        rustix::mount::fsconfig_set_string(context.as_fd(), name, value)?;
    }
    rustix::mount::fsconfig_create(context.as_fd())?;
    let flags = MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV;
    Ok(rustix::mount::fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, flags)?)
}

/// Detached copies of the mounts at these paths, without the paths that do not exist.
fn open_trees<'a>(paths: impl IntoIterator<Item = &'a PathBuf>) -> io::Result<Vec<(PathBuf, OwnedFd)>> {
    let mut trees = Vec::new();
    for path in paths {
        if let Some(tree) = found(open_tree(path))? {
            trees.push((path.clone(), tree));
        }
    }
    Ok(trees)
}

fn open_tree(path: &Path) -> io::Result<OwnedFd> {
    let flags =
        OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC | OpenTreeFlags::AT_RECURSIVE;
    Ok(rustix::mount::open_tree(CWD, path, flags)?)
}

/// Attaches a mount at a path, if the path still exists.
fn attach(mount: &OwnedFd, path: &Path) -> io::Result<()> {
    let Some(target) = found(open_path(path))? else { return Ok(()) };
    let flags = MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH;
    // A target that was covered by another entry has another type.
    match rustix::mount::move_mount(mount, "", &target, "", flags) {
        Err(rustix::io::Errno::NOTDIR) => Ok(()),
        other => Ok(other?),
    }
}

fn open_path(path: &Path) -> io::Result<OwnedFd> {
    Ok(rustix::fs::openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?)
}

/// A path that does not exist, or that this user cannot reach, needs no cover.
fn found<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::NotFound | io::ErrorKind::NotADirectory | io::ErrorKind::PermissionDenied
            ) =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Sends a plan to a builder.
pub(super) fn write_plan(plan: &ViewPlan, to: &mut impl Write) -> io::Result<()> {
    let bytes = postcard::to_stdvec(plan).map_err(io::Error::other)?;
    let length = u32::try_from(bytes.len()).map_err(io::Error::other)?;
    to.write_all(&length.to_le_bytes())?;
    to.write_all(&bytes)
}

/// Waits until a builder has mounted its plan. The error is what it wrote to standard error.
pub(super) fn wait_until_built(stdout: &mut impl Read, stderr: &mut File) -> io::Result<()> {
    let mut byte = [0];
    match stdout.read(&mut byte)? {
        0 => {
            let mut message = String::new();
            stderr.read_to_string(&mut message)?;
            Err(io::Error::other(message.trim().trim_start_matches("hermes-guest: ").to_owned()))
        }
        _ => Ok(()),
    }
}
