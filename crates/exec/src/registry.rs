//! The places that exist: one small directory each, so that the file system is the list.
//!
//! A room holds the guest's socket and a record of what the place is. Whoever wants to make or remove a place
//! holds its lock, which ends with the process, so that nothing of it outlives a crash.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use hermes_types::PlaceId;
use serde::{Deserialize, Serialize};

use crate::{Error, Plan};

/// What is written down about a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its identity.
    pub place: PlaceId,
    /// What people call it.
    pub name: String,
    /// The word of its backend.
    pub backend: String,
    /// The session it is for.
    pub session: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// How long it may be idle, in seconds.
    pub lifetime: u64,
}

/// The directory of one place.
#[derive(Debug, Clone)]
pub struct Room {
    path: PathBuf,
}

impl Room {
    pub(crate) fn of(plan: &Plan) -> Self {
        Self { path: plan.host.run.join(plan.name()) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Where its guest listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("guest.sock")
    }

    fn record_path(&self) -> PathBuf {
        self.path.join("place.json")
    }

    /// What is written down about it, if anything is.
    pub fn record(&self) -> Option<Record> {
        serde_json::from_slice(&fs::read(self.record_path()).ok()?).ok()
    }

    /// Writes the record; the place counts from then on.
    pub(crate) fn write(&self, record: &Record) -> Result<(), Error> {
        let path = self.record_path();
        let fresh = self.path.join(".place.json.new");
        let text = serde_json::to_vec(record).map_err(io::Error::other).map_err(Error::file(&path))?;
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)).map_err(Error::file(&path))
    }

    /// Makes the directory, for this user alone.
    pub(crate) fn make(&self) -> Result<(), Error> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(Error::file(&self.path))
    }

    /// Removes the directory with everything in it.
    pub(crate) fn clear(&self) -> Result<(), Error> {
        match fs::remove_dir_all(&self.path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::file(&self.path)(error)),
            _ => Ok(()),
        }
    }

    /// Waits until nobody else makes or removes this place.
    pub(crate) fn lock(&self) -> Result<File, Error> {
        let run = self.path.parent().unwrap_or(Path::new("/"));
        private(run)?;
        let path = self.path.with_extension("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(Error::file(&path))?;
        file.lock().map_err(Error::file(&path))?;
        // The one we waited for may have been swept away; then it protects nothing.
        let held = file.metadata().map_err(Error::file(&path))?.ino();
        if fs::metadata(&path).is_ok_and(|now| now.ino() == held) { Ok(file) } else { self.lock() }
    }
}

/// Removes what is left of places that are gone. A place that somebody is making right now is left alone.
pub(crate) fn sweep(run: &Path) -> Result<(), Error> {
    let rooms = match fs::read_dir(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        listed => listed.map_err(Error::file(run))?,
    };
    for entry in rooms {
        let path = entry.map_err(Error::file(run))?.path();
        let room = Room { path: path.with_extension("") };
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hermes-")) {
            continue;
        }
        let lock = room.path.with_extension("lock");
        let Ok(file) = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&lock)
        else {
            continue;
        };
        if file.try_lock().is_ok() && std::os::unix::net::UnixStream::connect(room.socket()).is_err() {
            room.clear()?;
            // Whoever opened this lock meanwhile finds that its room is gone and makes both anew.
            fs::remove_file(&lock).map_err(Error::file(&lock))?;
        }
    }
    Ok(())
}

/// A directory that only this user can look into; one that somebody else prepared is refused.
fn private(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::file(path))?;
    let meta = fs::symlink_metadata(path).map_err(Error::file(path))?;
    if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o077 != 0 {
        let error = io::Error::new(io::ErrorKind::PermissionDenied, "not a directory of this user alone");
        return Err(Error::file(path)(error));
    }
    Ok(())
}
