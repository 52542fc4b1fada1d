//! Who works on turns. Whoever does has a small file beside the database, and holds a lock on it as long as it lives.
//!
//! The kernel lets go of the lock when the process ends, however it ends. A number of a process would not do: it is used again,
//! and it means nothing to a hermes in another container that shares the same home.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use crate::error::{Error, Fault};
use crate::file::{beside, file_error, remove_if_there};
use crate::lock::{self, Holder};

/// What stands behind the name of the database.
const ENDING: &str = ".worker-";
/// Bytes that are read of such a file: a number and a name.
const LONGEST: u64 = 64;

/// Where a turn is being worked on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Held {
    /// With this handle.
    Here,
    /// By somebody else who lives.
    Elsewhere(Option<Holder>),
    /// Nowhere: whoever did has died.
    Nowhere,
}

/// The sign that the owner of a handle lives, given when it is first needed.
#[derive(Debug)]
pub(crate) struct Presence {
    database: PathBuf,
    sign: OnceLock<Sign>,
}

#[derive(Debug)]
struct Sign {
    name: String,
    path: PathBuf,
    _locked: File,
}

impl Presence {
    pub(crate) fn new(database: PathBuf) -> Self {
        Self { database, sign: OnceLock::new() }
    }

    /// The name under which turns are held.
    pub(crate) fn name(&self) -> Result<&str, Fault> {
        if let Some(sign) = self.sign.get() {
            return Ok(&sign.name);
        }
        let sign = self.make()?;
        Ok(&self.sign.get_or_init(|| sign).name)
    }

    fn make(&self) -> Result<Sign, Fault> {
        sweep(&self.database);
        let mut seed = [0; 8];
        getrandom::fill(&mut seed).map_err(|error| Error::NoRandom(error.to_string()))?;
        let name = format!("{:016x}", u64::from_ne_bytes(seed));
        let path = beside(&self.database, &format!("{ENDING}{name}"));
        let unlocked = beside(&self.database, &format!(".new-{name}"));
        let made = (|| {
            let mut file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(&unlocked)?;
            file.try_lock()?;
            let pid = std::process::id();
            file.write_all(format!("{pid} {}", lock::name_of(pid)).as_bytes())?;
            // Under its own name it is seen by others, so it is locked before.
            fs::rename(&unlocked, &path)?;
            Ok(file)
        })();
        match made {
            Ok(file) => Ok(Sign { name, path, _locked: file }),
            Err(error) => {
                drop(remove_if_there(&unlocked));
                Err(file_error(&path, error).into())
            }
        }
    }

    /// Where whoever has this name works.
    pub(crate) fn held(&self, name: &str) -> Held {
        if self.sign.get().is_some_and(|sign| sign.name == name) {
            return Held::Here;
        }
        let path = beside(&self.database, &format!("{ENDING}{name}"));
        match alive(&path) {
            Ok(true) => Held::Elsewhere(named(&path)),
            Ok(false) => Held::Nowhere,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Held::Nowhere,
            // What cannot be looked at may live.
            Err(_error) => Held::Elsewhere(None),
        }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        if let Some(sign) = self.sign.get() {
            // What is left is swept by the next one.
            drop(remove_if_there(&sign.path));
        }
    }
}

/// Whether somebody holds the lock. Several may ask at once without taking each other for the holder.
fn alive(path: &Path) -> io::Result<bool> {
    match File::open(path)?.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn named(path: &Path) -> Option<Holder> {
    let mut text = String::new();
    File::open(path).ok()?.take(LONGEST).read_to_string(&mut text).ok()?;
    let (pid, name) = text.split_once(' ')?;
    Some(Holder { pid: pid.parse().ok()?, name: name.to_owned() })
}

/// Removes the files of the dead.
fn sweep(database: &Path) {
    let (Some(folder), Some(name)) = (database.parent(), database.file_name()) else { return };
    let mut beginning = OsString::from(name);
    beginning.push(ENDING);
    let is_sign = |name: &OsStr| name.as_encoded_bytes().starts_with(beginning.as_encoded_bytes());
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten().filter(|entry| is_sign(&entry.file_name())) {
        if matches!(alive(&entry.path()), Ok(false)) {
            drop(remove_if_there(&entry.path()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sign_holds_as_long_as_its_owner() {
        let folder = tempfile::tempdir().unwrap();
        let database = folder.path().join("hermes.db");
        let (one, other) = (Presence::new(database.clone()), Presence::new(database.clone()));
        let name = one.name().unwrap().to_owned();
        assert_eq!(one.name().unwrap(), name);
        assert_eq!((one.held(&name), one.held("nobody")), (Held::Here, Held::Nowhere));
        let Held::Elsewhere(Some(holder)) = other.held(&name) else { panic!() };
        assert_eq!(holder.pid, std::process::id());
        drop(one);
        assert_eq!(other.held(&name), Held::Nowhere);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        // What a crash left: a file that nobody has locked.
        fs::write(beside(&database, ".worker-dead"), "1 init").unwrap();
        assert_eq!(other.held("dead"), Held::Nowhere);
        other.name().unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
