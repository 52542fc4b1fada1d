//! The error of this crate.

use std::io;

use crate::channel::FetchError;
use hermes_session::AgentError;

/// Why the gateway cannot do something. The text is shown in chats.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hermes_store::Error),
    #[error(transparent)]
    Agent(#[from] AgentError),
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("cannot save it: {0}")]
    SaveFile(io::Error),
    #[error("too large: {size} bytes, the limit is {limit}")]
    AttachmentTooLarge { size: u64, limit: u64 },
    #[error(transparent)]
    Fetch(#[from] FetchError),
    #[error("stopped")]
    Stopped,
    #[error("timed out")]
    TimedOut,
    #[error("a reply can have at most {0} files")]
    TooManyFiles(usize),
    #[error("cannot copy it: {0}")]
    CopyFile(io::Error),
    #[error("the file is empty")]
    EmptyFile,
}
