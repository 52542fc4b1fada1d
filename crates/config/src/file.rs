//! Atomic changes of files under a lock: a crash leaves the old file or the new one, and two
//! writers lose nothing.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

use hermes_types::{LockFile, create_private_dir, replace_file};

/// The permissions of a written file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// The permissions of the old file; a new one is readable only by its owner.
    Preserve,
    /// Readable only by its owner.
    Private,
}

/// Reads a file; `None` if it does not exist.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The lock of a home, held while a file is read, changed and written.
#[derive(Debug)]
pub struct ConfigLock {
    _file: LockFile,
}

impl ConfigLock {
    /// Creates the home if it does not exist, and waits for its lock.
    pub fn acquire(home: &Path) -> io::Result<Self> {
        create_private_dir(home)?;
        let lock = LockFile::acquire(&home.join(".config.lock"))?;
        match_owner(&lock.file, home)?;
        Ok(Self { _file: lock })
    }

    /// Replaces a file atomically. A symbolic link stays a link.
    pub fn write(&self, path: &Path, bytes: &[u8], mode: FileMode) -> io::Result<()> {
        let target = follow_links(path)?;
        let folder = target.parent().unwrap_or(Path::new("."));
        let old = fs::metadata(&target).ok();
        let mode = match (mode, &old) {
            (FileMode::Preserve, Some(old)) => old.permissions().mode() & 0o7777,
            _ => 0o600,
        };
        replace_file(&target, 0o600, |new| {
            let mut file = File::options().write(true).open(new)?;
            file.write_all(bytes)?;
            match &old {
                Some(old) => set_owner(&file, old.uid(), old.gid())?,
                None => match_owner(&file, folder)?,
            }
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()
        })?;
        File::open(folder)?.sync_all()
    }
}

/// The file at the end of a chain of symbolic links, which need not exist.
fn follow_links(path: &Path) -> io::Result<PathBuf> {
    let mut target = path.to_path_buf();
    for _ in 0..16 {
        match fs::read_link(&target) {
            Ok(link) => target = target.parent().unwrap_or(Path::new(".")).join(link),
            Err(_) => return Ok(target),
        }
    }
    Err(io::Error::other("too many links"))
}

/// Gives a file to the owner of its directory, for root in the home of another user.
pub fn match_owner(file: &File, folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(folder)?;
    set_owner(file, owner.uid(), owner.gid())
}

fn set_owner(file: &File, uid: u32, gid: u32) -> io::Result<()> {
    let current = file.metadata()?;
    if (current.uid(), current.gid()) == (uid, gid) {
        return Ok(());
    }
    match fchown(file, Some(uid), Some(gid)) {
        // Only root can change the owner; for other users the file stays their own.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_a_link_and_the_mode_is_preserved() {
        let home = tempfile::tempdir().unwrap();
        let real = home.path().join("real.yaml");
        fs::write(&real, "a: 1\n").unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        let link = home.path().join("config.yaml");
        std::os::unix::fs::symlink("real.yaml", &link).unwrap();
        let lock = ConfigLock::acquire(home.path()).unwrap();
        lock.write(&link, b"a: 2\n", FileMode::Preserve).unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&real).unwrap(), "a: 2\n");
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o640);
        lock.write(&link, b"a: 3\n", FileMode::Private).unwrap();
        assert_eq!(fs::metadata(&real).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_failed_write_leaves_no_temporary_file() {
        let home = tempfile::tempdir().unwrap();
        let lock = ConfigLock::acquire(home.path()).unwrap();
        let missing = home.path().join("nowhere").join("config.yaml");
        lock.write(&missing, b"x", FileMode::Preserve).unwrap_err();
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [".config.lock"]);
    }
}
