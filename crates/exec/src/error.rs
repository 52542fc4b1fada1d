//! Errors of this crate. The failure of a command is an outcome, not an error.

use std::io;
use std::path::PathBuf;

use hermes_guest::client;
use hermes_guest::protocol::file::FileError;
use hermes_guest::protocol::message::Rejection;
use hermes_types::{BackendName, FileAccess};
use thiserror::Error;

use crate::backend::docker::engine_error::EngineError;
use crate::backend::docker::pull;

#[derive(Debug, Error)]
pub enum Error {
    #[error("cannot use the {backend} backend: {reason}")]
    Unavailable { backend: BackendName, reason: String },
    #[error("cannot use the docker backend: {0}")]
    Engine(#[from] EngineError),
    #[error("{}: {error}", path.display())]
    File { path: PathBuf, error: io::Error },
    #[error("guest error: {0}")]
    Guest(client::Error),
    /// Nothing ran.
    #[error("{0}")]
    Permit(#[from] hermes_policy::permit::PermitMismatch),
    #[error("cannot run this job as a command")]
    NotACommand,
    #[error("cannot write this job to a process")]
    NotInput,
    #[error("cannot run this job as a Python program")]
    NotPython,
    /// Nothing ran.
    #[error("no python3 in {place}; install Python 3.8 or newer there, or choose another environment")]
    NoPython { place: String },
    /// Nothing ran; the caller reads the session state again and asks the gate again.
    #[error("nothing ran: another command changed the session, or typed into the process")]
    SessionMoved,
    #[error("cannot create another environment: all {max} are in use")]
    TooManyPlaces { max: usize },
    #[error(
        "cannot create another environment: {max} of the same person are in use, the most that one may have"
    )]
    TooManyOfPerson { max: usize },
    /// The session has a busy place with other settings.
    #[error("cannot recreate {name} with the new settings: a process still runs there")]
    SettingsChanged { name: String },
    #[error("cannot use {name}: it is in use through another run directory")]
    InUseElsewhere { name: String },
    #[error("cannot end the environment: {0}")]
    EndPlace(io::Error),
    #[error("cannot create the container {name}: another container has this name")]
    NameTaken { name: String },
    #[error("cannot remove the container {name}: {why}")]
    ContainerNotRemoved { name: String, why: String },
    #[error("the engine has no image {image}")]
    ImageMissing { image: String },
    #[error("the image {image} is built for {built}, but the engine runs {wanted}")]
    WrongPlatform { image: String, built: String, wanted: String },
    #[error("cannot pull the image {image}: {error}")]
    Pull { image: String, error: pull::PullError },
    /// Only a container of the same image can remove these files.
    #[error("cannot remove {}, which has files of container users: {reason}", path.display())]
    FilesNotRemoved { path: PathBuf, reason: String },
    /// The engine cannot see a mount source. Hermes runs in the container.
    #[error(
        "cannot mount {}: hermes runs in the container {container}, and none of its mounts contains this path",
        path.display()
    )]
    PathNotVisible { path: PathBuf, container: String },
    #[error("cannot serialize the settings of the environment: {0}")]
    Serialize(#[from] serde_json::Error),
    /// The process is shutting down.
    #[error("interrupted")]
    Interrupted,
    /// Nothing was done.
    #[error("the permit does not allow to {} a file", _0.as_str())]
    WrongFileAccess(FileAccess),
    /// Nothing was done; the caller asks the gate again with this path.
    #[error("nothing was done: the path now resolves to {0}, which the gate did not judge")]
    PathElsewhere(String),
    /// Nothing was done.
    #[error("nothing was done: the path resolves to a name that is not UTF-8; rename it with a command")]
    PathNotUtf8,
    /// The file is unchanged.
    #[error("{0}")]
    FileFailed(FileError),
    #[error("the file has more than {0} bytes")]
    TooLarge(usize),
    #[error("cannot read the content to write: {0}")]
    ReadContent(io::Error),
}

/// Separates errors about a file or a session from errors of the guest.
impl From<client::Error> for Error {
    fn from(error: client::Error) -> Self {
        match error {
            client::Error::Rejected(Rejection::SessionMoved) => Self::SessionMoved,
            client::Error::Rejected(Rejection::File(FileError::ResolvesElsewhere { real })) => {
                match String::from_utf8(real.into_vec()) {
                    Ok(real) if real.starts_with('/') => Self::PathElsewhere(real),
                    Ok(_relative) => {
                        Self::Guest(client::Error::Protocol(client::ProtocolViolation::Unexpected))
                    }
                    Err(_) => Self::PathNotUtf8,
                }
            }
            client::Error::Rejected(Rejection::File(error)) => Self::FileFailed(error),
            other => Self::Guest(other),
        }
    }
}

impl Error {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }
}
