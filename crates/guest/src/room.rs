//! A directory that ends with its guest.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags};

/// The directory, held open, so that no other can be taken for it.
#[derive(Debug)]
pub(crate) struct Room {
    path: PathBuf,
    held: OwnedFd,
}

impl Room {
    pub(crate) fn hold(path: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let held = rustix::fs::openat(CWD, path, flags, Mode::empty())?;
        Ok(Self { path: path.to_owned(), held })
    }

    /// Removes the directory and its lock, unless somebody is about to make the next one of that name.
    pub(crate) fn remove(self) -> io::Result<()> {
        let path = self.path.with_extension("lock");
        let lock = File::options().write(true).open(&path)?;
        let is_ours = lock.try_lock().is_ok()
            && fs::symlink_metadata(&path)?.ino() == lock.metadata()?.ino()
            && fs::symlink_metadata(&self.path)?.ino() == rustix::fs::fstat(&self.held)?.st_ino;
        if is_ours {
            fs::remove_dir_all(&self.path)?;
            fs::remove_file(&path)?;
        }
        Ok(())
    }
}
