//! Copies of files on their way between a platform and an environment.
//!
//! A copy is private and deleted when its owner drops it. One that is uploaded belongs to the
//! outbox part that names it; copies that no part names are deleted at the next start.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_session::IMPORT_DIR;
use hermes_store::ImageStore;
use hermes_types::{create_private_dir, removal, remove_if_exists};
use tempfile::{NamedTempFile, TempPath};
use tokio::fs::File;

/// Directories for files on their way between a platform and an environment.
pub(crate) struct MediaCache {
    incoming: PathBuf,
    outgoing: PathBuf,
    /// Attachments imported into the local environment.
    imported: PathBuf,
    pub(crate) images: ImageStore,
}

impl MediaCache {
    pub(crate) fn new(home: &Path, platform: &str) -> Self {
        Self {
            incoming: home.join("cache/incoming").join(platform),
            outgoing: home.join("cache/outgoing").join(platform),
            imported: home.join(IMPORT_DIR),
            images: ImageStore::new(home),
        }
    }

    pub(crate) fn create_incoming(&self) -> io::Result<TempPath> {
        Ok(create_file(&self.incoming)?.into_temp_path())
    }

    pub(crate) fn create_outgoing(&self) -> io::Result<(TempPath, File)> {
        let (file, path) = create_file(&self.outgoing)?.into_parts();
        Ok((path, File::from_std(file)))
    }

    /// Deletes interrupted downloads; they are downloaded again.
    pub(crate) fn clear_incoming(&self) {
        for path in list_dir(&self.incoming) {
            remove_copy(&path);
        }
    }

    /// Deletes imported attachments older than `age`, one message directory at a time.
    pub(crate) fn prune_imported(&self, age: Duration) {
        let is_folder = |path: &Path| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        let is_old = |path: &Path| {
            let changed = path.symlink_metadata().and_then(|found| found.modified());
            changed.is_ok_and(|at| at.elapsed().is_ok_and(|since| since > age))
        };
        for chat in list_dir(&self.imported).into_iter().filter(|path| is_folder(path)) {
            for message in list_dir(&chat).into_iter().filter(|path| is_folder(path) && is_old(path)) {
                if let Err(error) = removal::remove_dir(&message) {
                    tracing::warn!(%error, path = %message.display(), "cannot delete old files");
                }
            }
            // Fails unless it is empty.
            fs::remove_dir(&chat).ok();
        }
    }

    pub(crate) fn list_outgoing(&self) -> Vec<PathBuf> {
        list_dir(&self.outgoing)
    }
}

fn list_dir(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten();
    entries.flatten().map(|entry| entry.path()).collect()
}

/// Keeps a copy and returns its path.
pub(crate) fn keep_copy(copy: TempPath) -> PathBuf {
    copy.keep().unwrap_or_else(|failed| failed.path.to_path_buf())
}

fn create_file(folder: &Path) -> io::Result<NamedTempFile> {
    create_private_dir(folder)?;
    NamedTempFile::new_in(folder)
}

/// Deletes a copy; it may be gone already.
pub(crate) fn remove_copy(path: &Path) {
    if let Err(error) = remove_if_exists(path) {
        tracing::warn!(%error, path = %path.display(), "cannot delete file copy");
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn copies_are_private_and_deleted_on_drop() {
        let folder = tempfile::tempdir().unwrap();
        let cache = MediaCache::new(folder.path(), "discord");
        let (held, _) = cache.create_outgoing().unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&held), mode(held.parent().unwrap())), (0o600, 0o700));
        let gone = held.to_path_buf();
        drop(held);
        assert!(!gone.exists());
        let left = keep_copy(cache.create_outgoing().unwrap().0);
        let incoming = keep_copy(cache.create_incoming().unwrap());
        let next = MediaCache::new(folder.path(), "discord");
        next.clear_incoming();
        assert!(!incoming.exists());
        assert_eq!(next.list_outgoing(), [left]);
    }

    #[test]
    fn old_imports_are_deleted_without_following_links() {
        let home = tempfile::tempdir().unwrap();
        let (imported, elsewhere) = (home.path().join(IMPORT_DIR), home.path().join("elsewhere"));
        let message = imported.join("chat/message");
        for folder in [&message, &elsewhere.join("message")] {
            fs::create_dir_all(folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
        }
        std::os::unix::fs::symlink(&elsewhere, imported.join("link")).unwrap();
        let cache = MediaCache::new(home.path(), "discord");
        cache.prune_imported(Duration::from_secs(3_600));
        assert!(message.join("file").exists());
        cache.prune_imported(Duration::ZERO);
        assert!(!imported.join("chat").exists());
        assert!(elsewhere.join("message/file").exists());
    }
}
