//! Copies of files on their way between a platform and a place.
//!
//! A copy is private, and gone when nobody holds it any more. One that goes out is left to the message it goes with,
//! which is kept in the store; whatever no message waits for is removed at the next start.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hermes_agent::{Album, IMPORT_DIR};
use tokio::fs::File;

/// Where the copies of one platform are.
#[derive(Debug)]
pub(crate) struct Depot {
    incoming: PathBuf,
    outgoing: PathBuf,
    /// What was brought to this machine itself.
    brought: PathBuf,
    /// The pictures that came.
    pub(crate) album: Album,
    /// No two copies of any start have the same name.
    began: u128,
    count: AtomicU64,
}

/// A copy. It is removed with this.
#[derive(Debug)]
pub(crate) struct Held(PathBuf);

impl Depot {
    pub(crate) fn new(home: &Path, platform: &str) -> Self {
        Self {
            incoming: home.join("cache/incoming").join(platform),
            outgoing: home.join("cache/outgoing").join(platform),
            brought: home.join(IMPORT_DIR),
            album: Album::new(home),
            began: SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos(),
            count: AtomicU64::new(0),
        }
    }

    /// An empty file for something that comes.
    pub(crate) fn incoming(&self) -> io::Result<Held> {
        Ok(self.make(&self.incoming)?.0)
    }

    /// An empty file for something that goes out.
    pub(crate) fn outgoing(&self) -> io::Result<(Held, File)> {
        let (held, file) = self.make(&self.outgoing)?;
        Ok((held, File::from_std(file)))
    }

    fn make(&self, folder: &Path) -> io::Result<(Held, fs::File)> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let held = Held(folder.join(format!("{:x}-{number:x}", self.began)));
        let file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&held.0)?;
        Ok((held, file))
    }

    /// Removes what was coming when hermes was stopped: it is fetched again.
    pub(crate) fn forget_incoming(&self) {
        for path in listed(&self.incoming) {
            remove(&path);
        }
    }

    /// Removes what was brought to this machine longer ago than this, a message at a time.
    pub(crate) fn forget_brought(&self, age: Duration) {
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let is_old = |path: &Path| {
            let changed = path.symlink_metadata().and_then(|found| found.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > age))
        };
        for chat in listed(&self.brought).into_iter().filter(|path| is_folder(path)) {
            for message in listed(&chat).into_iter().filter(|path| is_folder(path) && is_old(path)) {
                if let Err(error) = fs::remove_dir_all(&message) {
                    tracing::warn!(%error, path = %message.display(), "old files cannot be removed");
                }
            }
            // Only an empty one can be removed.
            fs::remove_dir(&chat).ok();
        }
    }

    /// What was to go out when hermes was stopped.
    pub(crate) fn left_outgoing(&self) -> Vec<PathBuf> {
        listed(&self.outgoing)
    }
}

fn listed(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

impl Held {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Leaves the copy where it is, to whatever knows its path.
    pub(crate) fn leave(mut self) -> PathBuf {
        std::mem::take(&mut self.0)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.0.as_os_str().is_empty() {
            remove(&self.0);
        }
    }
}

/// Removes a copy that may be gone already.
pub(crate) fn remove(path: &Path) {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            tracing::warn!(%error, path = %path.display(), "a copy of a file cannot be removed");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn copies_are_private_and_go_with_whoever_holds_them() {
        let folder = tempfile::tempdir().unwrap();
        let depot = Depot::new(folder.path(), "discord");
        let (held, _) = depot.outgoing().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(held.path()), mode(held.path().parent().unwrap())), (0o600, 0o700));
        let gone = held.path().to_owned();
        drop(held);
        assert!(!gone.exists());
        let left = depot.outgoing().unwrap().0.leave();
        let came = depot.incoming().unwrap().leave();
        let next = Depot::new(folder.path(), "discord");
        next.forget_incoming();
        assert!(!came.exists());
        assert_eq!(next.left_outgoing(), [left]);
    }

    #[test]
    fn what_was_brought_long_ago_is_removed_and_no_link_is_followed() {
        let home = tempfile::tempdir().unwrap();
        let (brought, elsewhere) = (home.path().join(IMPORT_DIR), home.path().join("elsewhere"));
        let message = brought.join("chat/message");
        for folder in [&message, &elsewhere.join("message")] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, brought.join("link")).unwrap();
        let depot = Depot::new(home.path(), "discord");
        depot.forget_brought(Duration::from_secs(3_600));
        assert!(message.join("file").exists());
        depot.forget_brought(Duration::ZERO);
        assert!(!brought.join("chat").exists());
        assert!(elsewhere.join("message/file").exists());
    }
}
