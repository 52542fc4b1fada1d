//! Changing a file so that a crash leaves the old one or the new one, and two writers lose nothing.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};

/// Which permissions a written file gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileMode {
    /// Those it had; a new file is the owner's alone.
    Preserve,
    /// The owner's alone, whatever it had.
    Private,
}

/// Reads a file; `None` when there is none.
pub fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok(Some(bytes))
}

/// Holds the home's lock as long as it lives, so that reading, changing and writing is one step.
#[derive(Debug)]
pub struct ConfigLock {
    _file: File,
}

impl ConfigLock {
    /// Waits for the lock of this home, which is made if it is not there.
    pub fn acquire(home: &Path) -> io::Result<Self> {
        create_private_dir(home)?;
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(home.join(".config.lock"))?;
        match_owner(&file, home)?;
        file.lock()?;
        Ok(Self { _file: file })
    }
}

/// Makes the home, for its owner alone.
pub fn create_private_dir(home: &Path) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    fs::DirBuilder::new().recursive(true).mode(0o700).create(home)
}

impl ConfigLock {
    /// Replaces a file at once: a reader sees the old one or the new one, never a part. A link stays a link.
    pub fn write(&self, path: &Path, bytes: &[u8], mode: FileMode) -> io::Result<()> {
        let target = follow_links(path)?;
        let folder = target.parent().unwrap_or(Path::new("."));
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        // One fixed name: what a crash left behind is overwritten by the next writer.
        let temporary = folder.join(format!(".{name}.new"));
        let before = fs::metadata(&target).ok();
        let kept = before.as_ref().map_or(0o600, |meta| meta.permissions().mode() & 0o7777);
        let written = (|| {
            remove_if_there(&temporary)?;
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&temporary)?;
            file.write_all(bytes)?;
            match &before {
                Some(meta) => set_owner(&file, meta.uid(), meta.gid())?,
                None => match_owner(&file, folder)?,
            }
            let mode = if mode == FileMode::Private { 0o600 } else { kept };
            file.set_permissions(fs::Permissions::from_mode(mode))?;
            file.sync_all()?;
            fs::rename(&temporary, &target)?;
            File::open(folder)?.sync_all()
        })();
        if written.is_err() {
            remove_if_there(&temporary)?;
        }
        written
    }
}

/// The file a chain of links ends at, whether or not it is there yet.
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

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A file made by root in another user's home belongs to that user.
pub fn match_owner(file: &File, folder: &Path) -> io::Result<()> {
    let owner = fs::metadata(folder)?;
    set_owner(file, owner.uid(), owner.gid())
}

fn set_owner(file: &File, uid: u32, gid: u32) -> io::Result<()> {
    let now = file.metadata()?;
    if (now.uid(), now.gid()) == (uid, gid) {
        return Ok(());
    }
    match fchown(file, Some(uid), Some(gid)) {
        // Only root can give a file away; for others it stays their own.
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_stays_a_link_and_the_mode_is_kept() {
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
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let home = tempfile::tempdir().unwrap();
        let lock = ConfigLock::acquire(home.path()).unwrap();
        let missing = home.path().join("nowhere").join("config.yaml");
        lock.write(&missing, b"x", FileMode::Preserve).unwrap_err();
        let names: Vec<_> = fs::read_dir(home.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        assert_eq!(names, [".config.lock"]);
    }
}
