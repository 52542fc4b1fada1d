//! A run directory that is removed by the process that uses it.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::file::{LockFile, is_same_file};
use crate::removal;

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
        let removed = removal::remove_dir(&self.path);
        lock.remove()?;
        if let Some(parent) = self.path.parent() {
            remove_unused_parent(parent);
        }
        removed
    }
}

/// The lock of a process that creates a run directory.
pub const ADMISSION_LOCK: &str = ".admission";
/// Files next to run directories that only matter while there are some.
pub const MARKERS: [&str; 2] = [".swept", ".storage"];

/// Removes the directory of run directories if there is none left. A process that uses it at the
/// same time has created a lock there, so the directory stays, or creates the directory again.
pub fn remove_unused_parent(parent: &Path) {
    let is_unused = || {
        let entries = fs::read_dir(parent).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).all(|name| {
            let is = |known: &str| name == *known;
            is(ADMISSION_LOCK) || MARKERS.into_iter().any(is)
        })
    };
    if !is_unused() {
        return;
    }
    // A process that is about to create a run directory waits for this lock, or holds it.
    let Ok(Some(lock)) = LockFile::try_acquire(&parent.join(ADMISSION_LOCK)) else { return };
    if is_unused() {
        for marker in MARKERS {
            fs::remove_file(parent.join(marker)).ok();
        }
        // Fails if another process has created its lock by now.
        drop(lock.remove().and_then(|()| fs::remove_dir(parent)));
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{Mode, OFlags};

    use super::*;

    #[test]
    fn a_run_dir_of_any_depth_is_removed_on_a_small_stack() {
        let parent = std::env::temp_dir().join(format!("hermes-run-dir-deep-{}", std::process::id()));
        let path = parent.join("place");
        fs::create_dir_all(&path).unwrap();
        let mut here: rustix::fd::OwnedFd = File::open(&path).unwrap().into();
        for _ in 0..2_000 {
            rustix::fs::mkdirat(&here, "d", Mode::RWXU).unwrap();
            here = rustix::fs::openat(&here, "d", OFlags::DIRECTORY, Mode::empty()).unwrap();
        }
        let run_dir = RunDir::open(&path).unwrap();
        let removal = std::thread::Builder::new().stack_size(64 * 1024).spawn(move || run_dir.remove());
        removal.unwrap().join().unwrap().unwrap();
        assert!(!parent.exists(), "nothing is left");
    }

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
        remove_unused_parent(&parent);
        fs::remove_dir_all(parent.join("old")).unwrap();
        std::os::unix::fs::symlink(&path, parent.join("link")).unwrap();
        assert!(RunDir::open(&parent.join("link")).is_err());
        fs::remove_file(parent.join("link")).unwrap();
        for marker in MARKERS {
            fs::write(parent.join(marker), "").unwrap();
        }
        create().remove().unwrap();
        assert!(!parent.exists(), "nothing is left");
    }
}
