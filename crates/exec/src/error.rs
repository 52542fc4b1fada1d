//! What can go wrong with a place; what a command does wrong is an outcome.

use std::io;
use std::path::PathBuf;

use hermes_guest::client;
use hermes_guest::protocol::file::FileFault;
use hermes_types::{BackendName, FileAccess};
use thiserror::Error;

use crate::backend::docker::engine_error::EngineError;
use crate::backend::docker::pull;

/// A fault of our plumbing.
#[derive(Debug, Error)]
pub enum Error {
    /// The backend cannot be used.
    #[error("the {backend} backend cannot be used: {reason}")]
    Unavailable {
        /// Which one.
        backend: BackendName,
        /// Why.
        reason: String,
    },
    /// There is no engine that could make a container.
    #[error("the docker backend cannot be used: {0}")]
    Engine(#[from] EngineError),
    /// A file of ours could not be read or written.
    #[error("{}: {error}", path.display())]
    File {
        /// Which one.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The guest did not do what was asked.
    #[error("the guest: {0}")]
    Guest(#[from] client::Error),
    /// The permit was for something else. Nothing ran.
    #[error("{0}")]
    Permit(#[from] hermes_policy::permit::Misuse),
    /// The job is of a kind that is not run as a command.
    #[error("this job is not a command")]
    NotACommand,
    /// The job is of a kind that is not typed into a program.
    #[error("this job is not something to type")]
    NotInput,
    /// The job is of a kind that is not run by Python.
    #[error("this job is not a Python program")]
    NotPython,
    /// There is no Python in the place. Nothing ran.
    #[error(
        "there is no python3 in {place}; install Python 3.8 or newer there, or choose a place that has it"
    )]
    NoPython {
        /// Where it was looked for.
        place: String,
    },
    /// The session is no longer in the directory that the job was judged by. Nothing ran; look and ask again.
    #[error("the session has moved to another directory meanwhile; nothing was run")]
    SessionMoved,
    /// There are as many places as there may be, and none of them ended in time.
    #[error("there are {max} places already, and none of them became idle")]
    TooManyPlaces {
        /// How many there may be.
        max: usize,
    },
    /// The session has a place with other settings, in which something runs.
    #[error(
        "the place of this session, {name}, was made with other settings, and something still runs there"
    )]
    SettingsChanged {
        /// Which one.
        name: String,
    },
    /// The session has a place that is found through another run directory.
    #[error("the place of this session, {name}, is in use under another run directory")]
    InUseElsewhere {
        /// Which one.
        name: String,
    },
    /// A place could not be ended.
    #[error("the place cannot be ended: {0}")]
    EndPlace(io::Error),
    /// A container that is not ours has the name that ours would get.
    #[error("there is a container {name} that is not of this place")]
    NameTaken {
        /// Which one.
        name: String,
    },
    /// The engine did not remove a container.
    #[error("the engine has not removed the container {name}: {why}")]
    ContainerNotRemoved {
        /// Which one.
        name: String,
        /// What it says.
        why: String,
    },
    /// The engine does not have the image.
    #[error("the engine has no image {image}")]
    ImageMissing {
        /// Which one.
        image: String,
    },
    /// The image is for machines of another kind.
    #[error("the image {image} is built for {built}, but the engine runs {wanted}")]
    WrongPlatform {
        /// Which one.
        image: String,
        /// What it is for.
        built: String,
        /// What the engine runs.
        wanted: String,
    },
    /// An image could not be pulled.
    #[error("the image {image} could not be pulled: {error}")]
    Pull {
        /// Which one.
        image: String,
        /// Why.
        error: pull::PullError,
    },
    /// Files of another user, which only a container of the same image could remove.
    #[error("{} has files that users of the container own, and no container to remove them: {reason}", path.display())]
    FilesNotRemoved {
        /// Where they are.
        path: PathBuf,
        /// Why there is no container.
        reason: String,
    },
    /// What a container is to see is not visible to its engine.
    #[error(
        "hermes runs in the container {container}, and its engine cannot see {}, which is on no mount of it; \
         {} on the engine's machine is another one",
        path.display(), path.display()
    )]
    PathNotVisible {
        /// The path, as hermes sees it.
        path: PathBuf,
        /// The container of hermes.
        container: String,
    },
    /// Hermes itself is ending.
    #[error("interrupted")]
    Interrupted,
    /// The permit is not for this use of a file. Nothing was done.
    #[error("the permit is not to {} a file", access_word(.0))]
    WrongFileAccess(FileAccess),
    /// The path leads to another one than it was judged by. Nothing was done; it can be judged again by this one.
    #[error("the path leads to {0}, by which it was not judged; nothing was done")]
    PathElsewhere(String),
    /// The path leads to a name that cannot be judged, because it is no text. Nothing was done.
    #[error("the path leads to a name that is not text, so it cannot be judged; a command can rename it")]
    PathNotUtf8,
    /// It could not be done to the file. The file is as it was.
    #[error("{0}")]
    FileFailed(FileFault),
    /// There is more to read than was wanted.
    #[error("there are more than {0} bytes to read")]
    TooLarge(usize),
    /// What was to be written could not be read.
    #[error("the content to write: {0}")]
    ReadContent(io::Error),
}

fn access_word(access: &FileAccess) -> &'static str {
    match access {
        FileAccess::Read => "read",
        FileAccess::Write => "write",
        FileAccess::Delete => "delete",
    }
}

impl Error {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }
}
