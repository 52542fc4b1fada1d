//! A directory of the host that ends with its jail.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_room_is_removed_once_and_never_while_locked_or_replaced() {
        let folder = std::env::temp_dir().join(format!("hermes-room-{}", std::process::id()));
        let (room, lock) = (folder.join("room"), folder.join("room.lock"));
        let make = || {
            fs::create_dir_all(room.join("guest")).unwrap();
            fs::write(&lock, "").unwrap();
            Room::hold(&room).unwrap()
        };
        let busy = File::create({
            fs::create_dir_all(&folder).unwrap();
            &lock
        })
        .unwrap();
        let held = make();
        busy.lock().unwrap();
        held.remove().unwrap();
        assert!(room.exists() && lock.exists(), "somebody has the lock");
        drop(busy);
        let held = Room::hold(&room).unwrap();
        fs::remove_dir_all(&room).unwrap();
        drop(make());
        held.remove().unwrap();
        assert!(room.exists(), "it is another one by now");
        make().remove().unwrap();
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
        fs::remove_dir(&folder).unwrap();
    }
}
