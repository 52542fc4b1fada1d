//! Files and directories: replacing, locking and creating them.

use std::fs::{self, DirBuilder, File, Metadata, TryLockError};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Replaces a file: a reader sees the old content or the new one, even after a crash of this
/// process. `write` fills the new file, which is created empty with this mode. Concurrent writers
/// must hold a lock.
pub fn replace_file(path: &Path, mode: u32, write: impl FnOnce(&Path) -> io::Result<()>) -> io::Result<()> {
    // A fixed name, so the next writer overwrites the remains of a crash.
    let new = path.with_added_extension("new");
    let replaced = (|| {
        remove_if_exists(&new)?;
        File::options().create_new(true).write(true).mode(mode).open(&new)?;
        write(&new)?;
        fs::rename(&new, path)
    })();
    if replaced.is_err() {
        fs::remove_file(&new).ok();
    }
    replaced
}

/// Removes a file. A missing file is not an error.
pub fn remove_if_exists(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Creates a directory that only its owner can use, with its parents.
pub fn create_private_dir(path: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(path)
}

/// A lock that one process or handle holds until it drops this value or exits, however it exits.
#[derive(Debug)]
pub struct LockFile {
    pub file: File,
    pub path: PathBuf,
}

impl LockFile {
    /// Waits for the lock. Creates the file if it is missing.
    pub fn acquire(path: &Path) -> io::Result<Self> {
        loop {
            let lock = Self::open(path)?;
            lock.file.lock()?;
            if lock.is_current() {
                return Ok(lock);
            }
        }
    }

    /// Returns `None` if the lock is held.
    pub fn try_acquire(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let lock = Self::open(path)?;
            match lock.file.try_lock() {
                Ok(()) if lock.is_current() => return Ok(Some(lock)),
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
        }
    }

    /// Whether a lock is held. Concurrent checks do not see each other.
    pub fn is_held(path: &Path) -> io::Result<bool> {
        match File::open(path)?.try_lock_shared() {
            Ok(()) => Ok(false),
            Err(TryLockError::WouldBlock) => Ok(true),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Releases the lock and removes its file. A waiting process notices and creates a new one.
    pub fn remove(self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }

    fn open(path: &Path) -> io::Result<Self> {
        let file = File::options().create(true).truncate(false).write(true).mode(0o600).open(path)?;
        Ok(Self { file, path: path.to_owned() })
    }

    /// Whether the file is still the one at its path; its last holder may have removed it.
    fn is_current(&self) -> bool {
        match (self.file.metadata(), fs::symlink_metadata(&self.path)) {
            (Ok(held), Ok(current)) => is_same_file(&held, &current),
            _ => false,
        }
    }
}

pub(crate) fn is_same_file(one: &Metadata, other: &Metadata) -> bool {
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test_dir(name: &str) -> PathBuf {
        let dir = std::env::temp_dir().join(format!("hermes-{name}-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        dir
    }

    #[test]
    fn a_failed_replacement_keeps_the_old_file_and_leaves_nothing() {
        let dir = test_dir("replace");
        let path = dir.join("a");
        fs::write(dir.join("a.new"), "remains of a crash").unwrap();
        replace_file(&path, 0o600, |new| fs::write(new, "one")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let fail = |new: &Path| fs::write(new, "two").and(Err(io::ErrorKind::Other.into()));
        assert!(replace_file(&path, 0o600, fail).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "one");
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 1);
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn a_lock_is_held_once_until_it_is_dropped() {
        let dir = test_dir("lock");
        let path = dir.join("lock");
        let lock = LockFile::acquire(&path).unwrap();
        assert!(LockFile::is_held(&path).unwrap());
        assert!(LockFile::try_acquire(&path).unwrap().is_none());
        drop(lock);
        assert!(!LockFile::is_held(&path).unwrap());
        LockFile::try_acquire(&path).unwrap().unwrap().remove().unwrap();
        assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
        fs::remove_dir(&dir).unwrap();
    }
}
