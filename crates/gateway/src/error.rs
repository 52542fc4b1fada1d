//! The error of this crate.

use std::io;

use crate::channel::FetchError;

/// Why the gateway cannot do something. The text is shown in chats.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Store(#[from] hermes_store::Error),
    #[error(transparent)]
    Agent(#[from] hermes_agent::Error),
    /// The host cannot provide something.
    #[error("{0}")]
    Host(String),
    /// The user may not use the command.
    #[error("{0}")]
    CommandDenied(String),
    #[error("no conversation is open")]
    NoConversation,
    #[error("there is nothing to resume")]
    NothingToResume,
    #[error("Something went wrong: {0}")]
    Turn(hermes_agent::Error),
    #[error("cannot end the conversation: {0}")]
    EndConversation(hermes_store::Error),
    #[error("Started a new conversation, but the old environment could not be removed: {0}")]
    RemoveSandbox(Box<Self>),
    #[error("cannot write to the database")]
    NotRecorded,
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
