//! Removes directory trees that commands created.
//!
//! Such a tree may be deeper than the number of file descriptors or the maximum path length,
//! unreadable for its owner, and full of symbolic links. So no link is followed, every path is a
//! single name, and subdirectories are moved to the top before they are emptied: only a few
//! directories are open at once, whatever the depth.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

/// Attempts to remove a directory that another process still writes to.
const MAX_ATTEMPTS: u32 = 10;

/// Removes a directory with its content. A missing directory is not an error.
pub fn remove_dir(path: &Path) -> io::Result<()> {
    let mut moved = 0;
    for _ in 0..MAX_ATTEMPTS {
        let top = match open_for_removal(CWD, path) {
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR) => return fs::remove_file(path),
            top => top?,
        };
        while empty_once(&top, &mut moved)? {}
        match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            // A guest that was just starting when its host was killed may have created files since.
            Err(Errno::NOTEMPTY) => {}
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes the content of a directory.
pub fn empty_dir(path: &Path) -> io::Result<()> {
    let top = open_for_removal(CWD, path)?;
    let mut moved = 0;
    while empty_once(&top, &mut moved)? {}
    Ok(())
}

/// A path that refers to an open descriptor.
pub fn descriptor_path(held: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

/// Removes the entries of a directory once. Returns whether there were any.
fn empty_once(top: &OwnedFd, moved: &mut u64) -> Result<bool, Errno> {
    let mut was_anything = false;
    for name in entry_names(top)? {
        let name = name?;
        was_anything = true;
        if try_remove(top, &name)? {
            continue;
        }
        let inner = open_for_removal(top, name.as_c_str())?;
        for child in entry_names(&inner)? {
            let child = child?;
            if !try_remove(&inner, &child)? {
                // Only a writable directory can be moved.
                open_for_removal(&inner, child.as_c_str())?;
                move_up(&inner, &child, top, moved)?;
            }
        }
        match unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR) {
            // The next round handles new entries.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(was_anything)
}

/// Removes an entry. Returns false if it is a directory that is not empty.
fn try_remove(at: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
    let removed = match unlinkat(at, name, AtFlags::empty()) {
        Err(Errno::ISDIR) => unlinkat(at, name, AtFlags::REMOVEDIR),
        removed => removed,
    };
    match removed {
        Ok(()) | Err(Errno::NOENT) => Ok(true),
        Err(Errno::NOTEMPTY) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Moves a directory to the top under a free name.
fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        match renameat(from, name, top, format!("moved-{moved}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            done => return done,
        }
    }
}

/// Opens a directory, not a symbolic link, and gives its owner full access.
fn open_for_removal(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
    if !Mode::from_raw_mode(fstat(&held)?.st_mode).contains(Mode::RWXU) {
        chmod(descriptor_path(&held), Mode::RWXU)?;
    }
    openat(&held, ".", flags, Mode::empty())
}

fn entry_names(directory: &OwnedFd) -> Result<impl Iterator<Item = Result<CString, Errno>> + use<>, Errno> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_owned()));
    Ok(names.filter(|name| !name.as_ref().is_ok_and(|name| [c".", c".."].contains(&name.as_c_str()))))
}
