//! The guest program embedded in this binary.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use hermes_types::{LockFile, replace_file};
use rustix::fs::{MemfdFlags, Mode, OFlags};

use crate::Error;
use crate::registry::create_dirs;

const GUEST_PROGRAM: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/hermes-guest"));

/// The directory is private; inside a container any user may execute the guest.
const PROGRAM_MODE: u32 = 0o755;

pub(crate) fn guest_path(cache: &Path) -> PathBuf {
    cache.join(concat!("hermes-guest-", env!("HERMES_GUEST_HASH")))
}

/// Writes the guest to the cache unless it is there, and returns its path. Every environment that
/// is created calls this.
pub(crate) fn install_guest(cache: &Path) -> Result<PathBuf, Error> {
    let path = guest_path(cache);
    if is_intact(&path) {
        return Ok(path);
    }
    create_dirs(cache)?;
    // The lock also excludes other threads of this process.
    let _lock = LockFile::acquire(&cache.join(".lock")).map_err(Error::file(cache))?;
    if is_intact(&path) {
        return Ok(path);
    }
    let written = replace_file(&path, PROGRAM_MODE, |new| {
        let mut file = File::options().write(true).open(new)?;
        file.write_all(GUEST_PROGRAM)?;
        file.sync_all()
    });
    written.map_err(Error::file(&path))?;
    Ok(path)
}

/// The guest as a memory file, to run it without writing to the cache.
pub(crate) fn guest_in_memory() -> io::Result<File> {
    let mut writable = File::from(rustix::fs::memfd_create("hermes-guest", MemfdFlags::CLOEXEC)?);
    writable.write_all(GUEST_PROGRAM)?;
    // A file that is open for writing cannot be executed.
    File::open(format!("/proc/self/fd/{}", writable.as_raw_fd()))
}

/// Whether the file is exactly the embedded program and only this user can change it. All bytes are
/// compared: a command with this user's rights could forge size and times of another program, and
/// the comparison takes less time than a hash (under a millisecond, once per environment).
fn is_intact(path: &Path) -> bool {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()) else { return false };
    let mut file = File::from(file);
    let is_ours = file.metadata().is_ok_and(|meta| {
        meta.is_file()
            && meta.uid() == rustix::process::geteuid().as_raw()
            && meta.mode() & 0o7777 == PROGRAM_MODE
            && meta.len() == GUEST_PROGRAM.len() as u64
    });
    let mut bytes = Vec::with_capacity(GUEST_PROGRAM.len() + 1);
    is_ours && file.read_to_end(&mut bytes).is_ok() && bytes == GUEST_PROGRAM
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use std::fs;

    use super::*;

    #[test]
    fn a_guest_that_was_changed_is_replaced_before_it_runs() {
        let cache = tempfile::tempdir().unwrap();
        let path = install_guest(cache.path()).unwrap();
        let restored = || {
            install_guest(cache.path()).unwrap();
            let meta = fs::symlink_metadata(&path).unwrap();
            assert!(meta.is_file() && meta.mode() & 0o7777 == PROGRAM_MODE, "{meta:?}");
            assert_eq!(fs::read(&path).unwrap(), GUEST_PROGRAM);
        };
        // The same size, owner and times as the real one.
        let times = fs::metadata(&path).unwrap().modified().unwrap();
        let mut other = GUEST_PROGRAM.to_vec();
        *other.last_mut().unwrap() ^= 1;
        fs::write(&path, &other).unwrap();
        File::options().write(true).open(&path).unwrap().set_modified(times).unwrap();
        restored();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        restored();
        let elsewhere = cache.path().join("elsewhere");
        fs::rename(&path, &elsewhere).unwrap();
        symlink(&elsewhere, &path).unwrap();
        restored();
    }

    #[test]
    fn the_guest_is_written_once_and_is_small() {
        let cache = tempfile::tempdir().unwrap();
        let first = install_guest(cache.path()).unwrap();
        let made = fs::metadata(&first).unwrap();
        assert_eq!(install_guest(cache.path()).unwrap(), first);
        assert_eq!(fs::metadata(&first).unwrap().ino(), made.ino());
        // A third of the glibc build is glibc.
        let most = if env!("HERMES_GUEST_TARGET").contains("-musl") { 2 << 20 } else { 37 << 16 };
        assert!(made.len() < most, "{} bytes for {}", made.len(), env!("HERMES_GUEST_TARGET"));
        fs::write(&first, "damaged").unwrap();
        install_guest(cache.path()).unwrap();
        assert_eq!(fs::metadata(&first).unwrap().len(), made.len());
        assert_eq!(fs::read_dir(cache.path()).unwrap().count(), 2);
    }
}
