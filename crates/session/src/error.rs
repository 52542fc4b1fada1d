//! The error of this crate.

/// Why a session cannot do something. The text is shown to the user.
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
}
