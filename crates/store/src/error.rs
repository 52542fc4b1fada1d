//! Errors of the store.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use thiserror::Error;

use crate::file::parent_of;
use crate::lock_owner::{self, LockOwner};

/// An error of the store. The failed operation changed nothing.
#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot open the database in {}: no such directory", path.display())]
    NoDirectory { path: PathBuf },
    #[error("cannot open {}: {error}", path.display())]
    Forbidden { path: PathBuf, error: io::Error },
    #[error("cannot write {}: the file is read-only", path.display())]
    ReadOnly { path: PathBuf },
    #[error("cannot write {}: no space left on device", path.display())]
    DiskFull { path: PathBuf },
    #[error("cannot open {}: not an SQLite database", path.display())]
    NotADatabase { path: PathBuf },
    #[error("cannot open {}: this database belongs to another program", path.display())]
    Foreign { path: PathBuf },
    #[error("the database {} is corrupt: {detail}", path.display())]
    Corrupt { path: PathBuf, detail: String },
    #[error(
        "cannot open {}: it has schema version {found}, written by a newer hermes; this one supports {known}",
        path.display()
    )]
    Newer { path: PathBuf, found: u32, known: u32 },
    #[error("cannot write {}: database is locked by another process{}", path.display(), lock_owner::describe(owner.as_ref()))]
    Busy {
        path: PathBuf,
        /// The writing process, if known.
        owner: Option<LockOwner>,
    },
    #[error("cannot migrate the database: backup to {} failed: {detail}", path.display())]
    Backup {
        /// The path of the copy.
        path: PathBuf,
        detail: String,
    },
    #[error("cannot use {}: the file holds no approval key", path.display())]
    InvalidKey { path: PathBuf },
    #[error("I/O error in {}: {detail}", path.display())]
    Io { path: PathBuf, detail: String },
    #[error("cannot get random numbers from the system: {0}")]
    NoRandom(String),
    #[error("the store is closed")]
    Closed,
    #[error("no session matches `{0}`")]
    NoSession(String),
    #[error("`{word}` matches {count} sessions")]
    Ambiguous { word: String, count: usize },
    #[error("another session already has the title `{0}`")]
    TitleTaken(String),
    /// No visible character is left in the title.
    #[error("the title is empty")]
    EmptyTitle,
    #[error("session {0} has a turn in progress")]
    TurnInProgress(String),
    #[error("session {session} has a turn in progress in another process{}", lock_owner::describe(owner.as_ref()))]
    OwnedByOther {
        session: String,
        /// The process, if known.
        owner: Option<LockOwner>,
    },
    /// The turn has ended or never existed.
    #[error("no such turn")]
    NoTurn,
    #[error("the tool call `{0}` has no result")]
    NoToolResult(String),
    #[error("the question `{0}` already exists")]
    DuplicateQuestion(String),
    #[error("cannot store {what} of {size} bytes: the limit is {limit} bytes")]
    TooLarge { what: &'static str, size: usize, limit: usize },
    /// A statement that the schema does not support: a defect of Hermes.
    #[error("internal database error in {}: {detail}", path.display())]
    Bug { path: PathBuf, detail: String },
}

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// How to fix the problem, as an imperative sentence.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoDirectory { .. } => "Create it, or choose another home with `--home`.".to_owned(),
            Self::Forbidden { path, .. } => {
                format!("Check that you own the file: `ls -l {}`.", path.display())
            }
            Self::ReadOnly { path } => {
                format!(
                    "Make the file, its directory and the file system writable for you: `ls -l {}`.",
                    path.display()
                )
            }
            Self::DiskFull { .. } => {
                "Free some disk space; stored data is intact, and `hermes sessions prune` needs little space."
                    .to_owned()
            }
            Self::NotADatabase { path } | Self::Foreign { path } => {
                format!(
                    "Move the file away and hermes creates a new one: `mv {0} {0}.other`.",
                    path.display()
                )
            }
            Self::Corrupt { path, .. } => format!(
                "Keep a copy; `sqlite3 {} .recover` saves the readable part, and moving the file away starts a new one.",
                path.display()
            ),
            Self::Newer { .. } => "Use the newer hermes, or another home with `--home`.".to_owned(),
            Self::Busy { .. } => "Try again when that process has finished.".to_owned(),
            Self::Backup { .. } => {
                "Free some disk space or make the directory writable; nothing was changed.".to_owned()
            }
            Self::InvalidKey { path } => format!(
                "Remove it (`rm {}`): Hermes creates a new key and asks again about every command that was allowed.",
                path.display()
            ),
            Self::NoSession(_) | Self::Ambiguous { .. } => {
                "Run `hermes sessions ls` to list the sessions.".to_owned()
            }
            Self::TurnInProgress(_) | Self::OwnedByOther { .. } => {
                "Wait for the turn to end, or stop it.".to_owned()
            }
            _ => return None,
        })
    }
}

/// An error of one operation on a connection, before the file path is attached.
#[derive(Debug, Error)]
pub(crate) enum QueryError {
    #[error(transparent)]
    Sql(#[from] rusqlite::Error),
    /// A stored value that Hermes cannot have written.
    #[error("{0}")]
    Corrupt(String),
    #[error(transparent)]
    Store(#[from] Error),
}

pub(crate) type QueryResult<T = ()> = Result<T, QueryError>;

impl QueryError {
    /// Attaches the path.
    pub(crate) fn into_error(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Store(error) => error,
            Self::Corrupt(detail) => Error::Corrupt { path, detail },
            Self::Sql(rusqlite::Error::SqliteFailure(error, message)) => {
                let detail = message.unwrap_or_else(|| error.to_string());
                classify(error, path, detail)
            }
            // A value of the wrong type or invalid UTF-8 can only come from corruption.
            Self::Sql(
                error @ (rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::InvalidColumnType(..)),
            ) => Error::Corrupt { path, detail: error.to_string() },
            Self::Sql(error) => Error::Bug { path, detail: error.to_string() },
        }
    }
}

fn classify(error: ffi::Error, path: PathBuf, detail: String) -> Error {
    match (error.code, error.extended_code) {
        // The WAL index is a file that can fill the disk too.
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Error::DiskFull { path },
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed, _) => {
            Error::Busy { owner: lock_owner::find_writer(&path), path }
        }
        (ErrorCode::NotADatabase, _) => Error::NotADatabase { path },
        (ErrorCode::DatabaseCorrupt, _) => Error::Corrupt { path, detail },
        (ErrorCode::ReadOnly, _) => Error::ReadOnly { path },
        (ErrorCode::CannotOpen | ErrorCode::PermissionDenied, _) => cannot_open(path),
        (ErrorCode::SystemIoFailure, _) => Error::Io { path, detail },
        _ => Error::Bug { path, detail },
    }
}

/// Finds out why SQLite could not open a file; SQLite does not say.
fn cannot_open(path: PathBuf) -> Error {
    let folder = parent_of(&path);
    if !folder.is_dir() {
        return Error::NoDirectory { path: folder.to_path_buf() };
    }
    let error = match path.symlink_metadata() {
        Err(error) => error,
        Ok(meta) if meta.is_file() => io::ErrorKind::PermissionDenied.into(),
        Ok(_) => io::Error::other("not a regular file"),
    };
    Error::Forbidden { path, error }
}
