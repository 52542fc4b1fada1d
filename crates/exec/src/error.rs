//! What can go wrong with a place; what a command does wrong is an outcome.

use std::io;
use std::path::PathBuf;

use hermes_guest::client;
use hermes_types::BackendName;
use thiserror::Error;

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
    /// The session is no longer in the directory that the job was judged by. Nothing ran; look and ask again.
    #[error("the session has moved to another directory meanwhile; nothing was run")]
    Moved,
    /// There are as many places as there may be, and none of them ended in time.
    #[error("there are {most} places already, and none of them became idle")]
    Full {
        /// How many there may be.
        most: usize,
    },
    /// A place could not be ended.
    #[error("the place cannot be ended: {0}")]
    Ending(io::Error),
    /// Hermes itself is ending.
    #[error("interrupted")]
    Interrupted,
}

impl Error {
    pub(crate) fn file(path: &std::path::Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |error| Self::File { path, error }
    }
}
