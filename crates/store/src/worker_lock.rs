//! Proof that a worker is alive. A process that works on turns holds a lock on a small file next to
//! the database.
//!
//! The kernel releases the lock when the process ends, however it ends. A process id would not do:
//! ids are reused, and they mean nothing to a hermes in another container that shares the home.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use hermes_types::LockFile;

use crate::error::{Error, QueryResult};
use crate::file::{file_error, parent_of, with_suffix};
use crate::lock_owner::{self, LockOwner};

/// Follows the name of the database.
const FILE_SUFFIX: &str = ".worker-";
/// A process id and a name.
const MAX_OWNER_BYTES: u64 = 64;

/// The owner of a turn in progress.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnOwner {
    ThisStore,
    /// Another live process or handle.
    OtherProcess(Option<LockOwner>),
    /// The owner has exited.
    Exited,
}

/// The worker file of a store handle, created when it is first needed.
#[derive(Debug)]
pub(crate) struct WorkerLock {
    database: PathBuf,
    file: OnceLock<WorkerFile>,
}

#[derive(Debug)]
struct WorkerFile {
    id: String,
    path: PathBuf,
    _file: File,
}

impl WorkerLock {
    pub(crate) fn new(database: PathBuf) -> Self {
        Self { database, file: OnceLock::new() }
    }

    /// The id under which turns are owned.
    pub(crate) fn worker_id(&self) -> QueryResult<&str> {
        if let Some(file) = self.file.get() {
            return Ok(&file.id);
        }
        let file = self.create()?;
        Ok(&self.file.get_or_init(|| file).id)
    }

    fn create(&self) -> QueryResult<WorkerFile> {
        remove_stale(&self.database);
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| Error::NoRandom(error.to_string()))?;
        let id = format!("{:016x}", u64::from_ne_bytes(seed));
        let path = with_suffix(&self.database, &format!("{FILE_SUFFIX}{id}"));
        let create = || {
            let mut file = tempfile::NamedTempFile::new_in(parent_of(&path))?;
            file.as_file().try_lock()?;
            let pid = std::process::id();
            write!(file, "{pid} {}", lock_owner::process_name(pid))?;
            // The final name makes the file visible to others, so it is locked before the rename.
            Ok(file.persist(&path)?)
        };
        match create() {
            Ok(file) => Ok(WorkerFile { id, path, _file: file }),
            Err(error) => Err(file_error(&path, error).into()),
        }
    }

    /// The owner with a worker id.
    pub(crate) fn owner(&self, name: &str) -> TurnOwner {
        if self.file.get().is_some_and(|file| file.id == name) {
            return TurnOwner::ThisStore;
        }
        let path = with_suffix(&self.database, &format!("{FILE_SUFFIX}{name}"));
        match LockFile::is_held(&path) {
            Ok(true) => TurnOwner::OtherProcess(read_owner(&path)),
            Ok(false) => TurnOwner::Exited,
            Err(error) if error.kind() == io::ErrorKind::NotFound => TurnOwner::Exited,
            // A file that cannot be checked may belong to a live process.
            Err(_error) => TurnOwner::OtherProcess(None),
        }
    }
}

impl Drop for WorkerLock {
    fn drop(&mut self) {
        if let Some(file) = self.file.get() {
            // A leftover file is removed by the next worker.
            drop(fs::remove_file(&file.path));
        }
    }
}

fn read_owner(path: &Path) -> Option<LockOwner> {
    let mut text = String::new();
    File::open(path).ok()?.take(MAX_OWNER_BYTES).read_to_string(&mut text).ok()?;
    let (pid, name) = text.split_once(' ')?;
    Some(LockOwner { pid: pid.parse().ok()?, name: name.to_owned() })
}

/// Removes the files of workers that exited.
fn remove_stale(database: &Path) {
    let prefix = with_suffix(database, FILE_SUFFIX).into_os_string();
    for entry in fs::read_dir(parent_of(database)).into_iter().flatten().flatten() {
        let path = entry.path();
        let is_worker = path.as_os_str().as_encoded_bytes().starts_with(prefix.as_encoded_bytes());
        if is_worker && matches!(LockFile::is_held(&path), Ok(false)) {
            drop(fs::remove_file(path));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_file_lasts_as_long_as_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("hermes.db");
        let (one, other) = (WorkerLock::new(database.clone()), WorkerLock::new(database.clone()));
        let name = one.worker_id().unwrap().to_owned();
        assert_eq!(one.worker_id().unwrap(), name);
        assert_eq!((one.owner(&name), one.owner("unknown")), (TurnOwner::ThisStore, TurnOwner::Exited));
        let TurnOwner::OtherProcess(Some(owner)) = other.owner(&name) else { panic!() };
        assert_eq!(owner.pid, std::process::id());
        drop(one);
        assert_eq!(other.owner(&name), TurnOwner::Exited);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // A crash leaves a file without a lock.
        fs::write(with_suffix(&database, ".worker-dead"), "1 init").unwrap();
        assert_eq!(other.owner("dead"), TurnOwner::Exited);
        other.worker_id().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
