//! A run directory that is removed by the process that uses it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::file::{LockFile, is_same_file};

/// A directory and the lock file next to it, which has the same name and the extension `lock`.
///
/// The directory is held open, so that its replacement is noticed.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    dir: File,
}

impl RunDir {
    pub fn open(path: &Path) -> io::Result<Self> {
        let dir = File::open(path)?;
        // A symbolic link is another file than its target.
        if !dir.metadata()?.is_dir() || !is_same_file(&fs::symlink_metadata(path)?, &dir.metadata()?) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        Ok(Self { path: path.to_owned(), dir })
    }

    /// Removes the directory and its lock file, unless another process holds the lock, because it
    /// is about to create the next directory with this name.
    pub fn remove(self) -> io::Result<()> {
        let Some(lock) = LockFile::try_acquire(&self.path.with_extension("lock"))? else { return Ok(()) };
        let ours = self.dir.metadata()?;
        if fs::symlink_metadata(&self.path).is_ok_and(|found| !is_same_file(&found, &ours)) {
            return Ok(());
        }
        let removed = fs::remove_dir_all(&self.path);
        lock.remove()?;
        removed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_dir_is_not_removed_while_locked_or_replaced() {
        let parent = std::env::temp_dir().join(format!("hermes-run-dir-{}", std::process::id()));
        let (path, lock) = (parent.join("place"), parent.join("place.lock"));
        let create = || {
            fs::create_dir_all(path.join("guest")).unwrap();
            fs::write(&lock, "").unwrap();
            RunDir::open(&path).unwrap()
        };
        let run_dir = create();
        let other = File::open(&lock).unwrap();
        other.lock().unwrap();
        run_dir.remove().unwrap();
        assert!(path.exists() && lock.exists(), "another process holds the lock");
        drop(other);
        let run_dir = RunDir::open(&path).unwrap();
        fs::rename(&path, parent.join("old")).unwrap();
        drop(create());
        run_dir.remove().unwrap();
        assert!(path.exists(), "the directory was replaced");
        fs::remove_dir_all(parent.join("old")).unwrap();
        std::os::unix::fs::symlink(&path, parent.join("link")).unwrap();
        assert!(RunDir::open(&parent.join("link")).is_err());
        fs::remove_file(parent.join("link")).unwrap();
        create().remove().unwrap();
        assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);
        fs::remove_dir(&parent).unwrap();
    }
}
