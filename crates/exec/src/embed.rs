//! The guest program embedded in this binary.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hermes_types::{LockFile, replace_file};

use crate::Error;
use crate::registry::create_dirs;

const GUEST_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hermes-guest"));

pub(crate) fn guest_path(cache: &Path) -> PathBuf {
    cache.join(concat!("hermes-guest-", env!("HERMES_GUEST_HASH")))
}

/// Writes the guest to the cache unless it is there, and returns its path.
pub(crate) fn install_guest(cache: &Path) -> Result<PathBuf, Error> {
    let path = guest_path(cache);
    let ours = |meta: fs::Metadata| -> bool {
        meta.len() == GUEST_PROGRAM.len() as u64 && meta.uid() == rustix::process::geteuid().as_raw()
    };
    if fs::symlink_metadata(&path).is_ok_and(ours) {
        return Ok(path);
    }
    create_dirs(cache)?;
    // The lock also excludes other threads of this process.
    let _lock = LockFile::acquire(&cache.join(".lock")).map_err(Error::file(cache))?;
    if fs::symlink_metadata(&path).is_ok_and(ours) {
        return Ok(path);
    }
    // The directory is private; inside a container any user may execute the guest.
    let written = replace_file(&path, 0o755, |new| {
        let mut file = File::options().write(true).open(new)?;
        file.write_all(GUEST_PROGRAM)?;
        file.sync_all()
    });
    written.map_err(Error::file(&path))?;
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_guest_is_written_once_and_is_small() {
        let cache = tempfile::tempdir().unwrap();
        let first = install_guest(cache.path()).unwrap();
        let made = fs::metadata(&first).unwrap();
        assert_eq!(install_guest(cache.path()).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().ino(), made.ino());
        // A third of the glibc build is glibc.
        let most = if env!("HERMES_GUEST_TARGET").contains("-musl") { 2 << 20 } else { 9 << 18 };
        assert!(made.len() < most, "{} bytes for {}", made.len(), env!("HERMES_GUEST_TARGET"));
        fs::write(&first, "damaged").unwrap();
        install_guest(cache.path()).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().len(), made.len());
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
    }
}
