//! The session engine: one conversation with one mailbox, whatever its front end is.
//!
//! A [`SessionActor`] owns a conversation. It takes [`SessionInput`]s from its mailbox, runs
//! commands and turns, and decides what happens to inputs that arrive during a turn. A [`Frontend`]
//! renders what happens: the terminal and the chat gateway each implement it. A [`SessionHost`]
//! provides models and environments. A [`SessionPool`] holds what the sessions of a process share.
//!
//! *Invariants.* A session processes one input at a time. A front end contains no session logic: a
//! command has the same name, syntax and meaning everywhere, see [`command`].
//!
//! *Where to start reading.* [`actor`] for how an input is processed, [`command`] for the commands,
//! [`frontend`] for what differs between terminal and chats.

mod actor;
mod background;
pub mod command;
mod error;
mod frontend;
mod input;
mod pool;
mod question;

pub use actor::SessionActor;
pub use background::{BackgroundTask, parent_session};
pub use command::{CommandSpec, SessionCommand, Surface, UserRole};
pub use error::Error;
pub use frontend::{
    BusyPolicy, CommandReply, ConversationReset, Frontend, FrontendInput, ResumedTurn, SessionHost,
    SessionRequest, TurnFrontend, TurnStart,
};
pub use hermes_agent::{
    Approver, AuditLog, BoxFuture, Clarification, Error as AgentError, ExportPolicy, IMPORT_DIR, ModelConfig,
    Question, QuestionPolicy, SessionConfig, StopReason, SystemPrompt, ToolContext, TurnEvent, TurnJournal,
    TurnResult, UserInput,
};
pub use input::{SessionInput, SessionMessage};
pub use pool::SessionPool;
pub use question::{answer_question, outcome_text};

use hermes_types::lock;
