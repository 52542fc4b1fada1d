//! What can go wrong with what is kept.

use std::io;
use std::path::{Path, PathBuf};

use rusqlite::ErrorCode;
use rusqlite::ffi;
use thiserror::Error;

use crate::lock::{self, Holder};

/// A fault of the store, or a wish that it cannot fulfil. Whatever it was, nothing was half done.
#[derive(Debug, Error)]
pub enum Error {
    /// The directory is not there.
    #[error("{}: there is no such directory", path.display())]
    NoDirectory {
        /// Which one.
        path: PathBuf,
    },
    /// The file may not be opened, or is no file.
    #[error("{}: {error}", path.display())]
    Forbidden {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The file can be read but not written.
    #[error("{}: it cannot be written", path.display())]
    ReadOnly {
        /// Which one.
        path: PathBuf,
    },
    /// There is no space left. What was to be written was not.
    #[error("{}: there is no space left on the disk", path.display())]
    DiskFull {
        /// Which one.
        path: PathBuf,
    },
    /// The file is something else.
    #[error("{}: this is not a database", path.display())]
    NotADatabase {
        /// Which one.
        path: PathBuf,
    },
    /// The file is a database of another program.
    #[error("{}: this is a database, but not one of hermes", path.display())]
    Foreign {
        /// Which one.
        path: PathBuf,
    },
    /// The file is damaged.
    #[error("{}: the database is damaged: {detail}", path.display())]
    Corrupt {
        /// Which one.
        path: PathBuf,
        /// What was found.
        detail: String,
    },
    /// A newer hermes has written the file.
    #[error(
        "{}: a newer hermes has written it: version {found} of the database, this one knows {known}",
        path.display()
    )]
    Newer {
        /// Which one.
        path: PathBuf,
        /// The version of the file.
        found: u32,
        /// The newest version known here.
        known: u32,
    },
    /// Another process is writing and does not end.
    #[error("{}: another process has been writing for too long{}", path.display(), lock::named(holder.as_ref()))]
    Busy {
        /// Which one.
        path: PathBuf,
        /// Who, where that can be known.
        holder: Option<Holder>,
    },
    /// The file could not be copied before its form is changed.
    #[error("{}: it cannot be copied before it is brought up to date: {detail}", path.display())]
    Backup {
        /// The copy.
        path: PathBuf,
        /// Why not.
        detail: String,
    },
    /// The system did not read or write.
    #[error("{}: {detail}", path.display())]
    Io {
        /// Which one.
        path: PathBuf,
        /// What it said.
        detail: String,
    },
    /// The system gives no random numbers, so nothing can be named.
    #[error("the system gives no random numbers: {0}")]
    NoRandom(String),
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// There is no such session.
    #[error("there is no session `{0}`")]
    NoSession(String),
    /// Several sessions could be meant.
    #[error("`{word}` could be any of {count} sessions")]
    Ambiguous {
        /// What was asked for.
        word: String,
        /// How many begin like that.
        count: usize,
    },
    /// Another session has the title.
    #[error("there is a session with the title `{0}` already")]
    TitleTaken(String),
    /// Nothing of the title can be shown.
    #[error("the title is empty")]
    EmptyTitle,
    /// The session has a turn that has not ended.
    #[error("session {0} is at work")]
    AtWork(String),
    /// The turn of the session is another process's.
    #[error("session {session} is at work in another process{}", lock::named(holder.as_ref()))]
    Elsewhere {
        /// Which session.
        session: String,
        /// Who, where that can be known.
        holder: Option<Holder>,
    },
    /// The turn has ended, or never was.
    #[error("there is no such turn")]
    NoTurn,
    /// No tool has answered this call.
    #[error("no tool has answered the call `{0}`")]
    NoAnswer(String),
    /// There is a question with this id already.
    #[error("there is a question `{0}` already")]
    SameQuestion(String),
    /// A text is larger than what is kept.
    #[error("{what} of {size} bytes is too large to be kept: {most} at most")]
    TooLarge {
        /// What it is.
        what: &'static str,
        /// How large it is.
        size: usize,
        /// How large it may be.
        most: usize,
    },
    /// A fault of ours.
    #[error("{}: {detail}", path.display())]
    Bug {
        /// Which file.
        path: PathBuf,
        /// What SQLite said.
        detail: String,
    },
}

impl Error {
    /// What to do about it, where something can be done.
    pub fn remedy(&self) -> Option<String> {
        Some(match self {
            Self::NoDirectory { .. } => "make it, or choose another home with `--home`".to_owned(),
            Self::Forbidden { path, .. } => {
                format!("it must be a file of yours: `ls -l {}` says whose it is", path.display())
            }
            Self::ReadOnly { path } => {
                format!(
                    "the file, its directory and the file system must be writable for you: `ls -l {}`",
                    path.display()
                )
            }
            Self::DiskFull { .. } => {
                "make room; nothing that was kept is lost, and `hermes sessions prune` needs little of it"
                    .to_owned()
            }
            Self::NotADatabase { path } | Self::Foreign { path } => {
                format!("move it away, and hermes makes a new one: `mv {0} {0}.other`", path.display())
            }
            Self::Corrupt { path, .. } => format!(
                "keep a copy of it; `sqlite3 {} .recover` saves what can be read, and moving it away starts anew",
                path.display()
            ),
            Self::Newer { .. } => "use the newer hermes, or another home with `--home`".to_owned(),
            Self::Busy { .. } => "try again when it has ended".to_owned(),
            Self::Backup { .. } => "make room or make the directory writable; nothing was changed".to_owned(),
            Self::NoSession(_) | Self::Ambiguous { .. } => "`hermes sessions ls` lists them".to_owned(),
            Self::AtWork(_) | Self::Elsewhere { .. } => "wait for its turn to end, or stop it".to_owned(),
            Self::Io { .. }
            | Self::NoRandom(_)
            | Self::Closed
            | Self::TitleTaken(_)
            | Self::EmptyTitle
            | Self::NoTurn
            | Self::NoAnswer(_)
            | Self::SameQuestion(_)
            | Self::TooLarge { .. }
            | Self::Bug { .. } => return None,
        })
    }
}

/// What stops a piece of work on a connection, before it is known which file it was.
#[derive(Debug)]
pub(crate) enum Fault {
    /// SQLite said so.
    Sql(rusqlite::Error),
    /// What was read cannot have been written by us.
    Damaged(String),
    /// Something with a name.
    Known(Error),
}

impl From<rusqlite::Error> for Fault {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        Self::Known(error)
    }
}

impl Fault {
    /// The error a caller sees.
    pub(crate) fn at(self, path: &Path) -> Error {
        let path = path.to_path_buf();
        match self {
            Self::Known(error) => error,
            Self::Damaged(detail) => Error::Corrupt { path, detail },
            Self::Sql(rusqlite::Error::SqliteFailure(error, said)) => {
                let detail = said.unwrap_or_else(|| error.to_string());
                named(error, path, detail)
            }
            // A value of the wrong type, or text that is not text: only damage puts that there.
            Self::Sql(
                error @ (rusqlite::Error::FromSqlConversionFailure(..)
                | rusqlite::Error::IntegralValueOutOfRange(..)
                | rusqlite::Error::Utf8Error(..)
                | rusqlite::Error::InvalidColumnType(..)),
            ) => Error::Corrupt { path, detail: error.to_string() },
            Self::Sql(error) => Error::Bug { path, detail: error.to_string() },
        }
    }

    /// Whether a rule of the schema forbids it, such as two of what there may be one of.
    pub(crate) fn is_forbidden_by_schema(error: &rusqlite::Error) -> bool {
        error.sqlite_error_code() == Some(ErrorCode::ConstraintViolation)
    }
}

fn named(error: ffi::Error, path: PathBuf, detail: String) -> Error {
    match (error.code, error.extended_code) {
        // The index of the log is a file that grows too.
        (ErrorCode::DiskFull, _) | (_, ffi::SQLITE_IOERR_SHMSIZE) => Error::DiskFull { path },
        (ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked | ErrorCode::FileLockingProtocolFailed, _) => {
            Error::Busy { holder: lock::writer(&path), path }
        }
        (ErrorCode::NotADatabase, _) => Error::NotADatabase { path },
        (ErrorCode::DatabaseCorrupt, _) => Error::Corrupt { path, detail },
        (ErrorCode::ReadOnly, _) => Error::ReadOnly { path },
        (ErrorCode::CannotOpen | ErrorCode::PermissionDenied, _) => cannot_open(path),
        (ErrorCode::SystemIoFailure, _) => Error::Io { path, detail },
        _ => Error::Bug { path, detail },
    }
}

/// SQLite does not say why it cannot open a file.
fn cannot_open(path: PathBuf) -> Error {
    let folder = path.parent().unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Error::NoDirectory { path: folder.to_path_buf() };
    }
    let error = match path.symlink_metadata() {
        Err(error) => error,
        Ok(meta) if meta.is_file() => io::ErrorKind::PermissionDenied.into(),
        Ok(_) => io::Error::other("this is not a file"),
    };
    Error::Forbidden { path, error }
}
