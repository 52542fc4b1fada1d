//! Removing a directory in which commands did as they liked.
//!
//! What they made may be deeper than there are descriptors or than a path can be long, closed to its owner, and full of
//! links. So nothing is followed, every path is a single name, and a directory is emptied of others by moving them to
//! the top: however deep the tree was, only a few of it are open at once.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, chmod, fstat, openat, renameat, unlinkat};
use rustix::io::Errno;
use rustix::path::Arg;

/// How often is tried to remove a directory in which something changes.
const ATTEMPTS: u32 = 10;

/// Removes a directory that may not be there, with everything in it.
pub fn remove(path: &Path) -> io::Result<()> {
    let mut moved = 0;
    for _ in 0..ATTEMPTS {
        let top = match enter(CWD, path) {
            Err(Errno::NOENT) => return Ok(()),
            Err(Errno::NOTDIR) => return fs::remove_file(path),
            top => top?,
        };
        while empty_once(&top, &mut moved)? {}
        match unlinkat(CWD, path, AtFlags::REMOVEDIR) {
            // A guest that was only starting when its hermes was killed has moved in meanwhile.
            Err(Errno::NOTEMPTY) => {}
            Ok(()) | Err(Errno::NOENT) => return Ok(()),
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::NOTEMPTY.into())
}

/// Removes everything in a directory.
pub fn empty(path: &Path) -> io::Result<()> {
    let top = enter(CWD, path)?;
    let mut moved = 0;
    while empty_once(&top, &mut moved)? {}
    Ok(())
}

/// A path that means exactly what is held open.
pub fn through(held: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", held.as_raw_fd()))
}

/// Goes once through what is in a directory. Says whether there was anything.
fn empty_once(top: &OwnedFd, moved: &mut u64) -> Result<bool, Errno> {
    let mut was_anything = false;
    for name in names(top)? {
        let name = name?;
        was_anything = true;
        if is_removed(top, &name)? {
            continue;
        }
        let inner = enter(top, name.as_c_str())?;
        for child in names(&inner)? {
            let child = child?;
            if !is_removed(&inner, &child)? {
                // Only a directory that can be written can be moved.
                enter(&inner, child.as_c_str())?;
                move_up(&inner, &child, top, moved)?;
            }
        }
        match unlinkat(top, name.as_c_str(), AtFlags::REMOVEDIR) {
            // What was not seen this time is seen the next.
            Ok(()) | Err(Errno::NOTEMPTY | Errno::NOENT) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(was_anything)
}

/// Removes whatever has this name, unless it is a directory with something in it.
fn is_removed(at: &OwnedFd, name: &CStr) -> Result<bool, Errno> {
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

/// Moves a directory to the top, under a name that is free there.
fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> Result<(), Errno> {
    loop {
        *moved += 1;
        match renameat(from, name, top, format!("moved-{moved}")) {
            Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => {}
            done => return done,
        }
    }
}

/// Opens a directory, not a link to one, after letting its owner in.
fn enter(at: impl AsFd, name: impl Arg) -> Result<OwnedFd, Errno> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let held = openat(at, name, flags | OFlags::PATH, Mode::empty())?;
    if !Mode::from_raw_mode(fstat(&held)?.st_mode).contains(Mode::RWXU) {
        chmod(through(&held), Mode::RWXU)?;
    }
    openat(&held, ".", flags, Mode::empty())
}

fn names(directory: &OwnedFd) -> Result<impl Iterator<Item = Result<CString, Errno>> + use<>, Errno> {
    let entries = Dir::read_from(directory)?;
    let names = entries.map(|entry| Ok(entry?.file_name().to_owned()));
    Ok(names.filter(|name| !name.as_ref().is_ok_and(|name| [c".", c".."].contains(&name.as_c_str()))))
}
