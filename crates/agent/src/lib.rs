//! The turn loop and its tools.
//!
//! A model asks for tools by name; [`Tool`] is the closed list of them, with what each may touch. [`Hands`] are what a
//! session does them with: its place, the gate in front of it, and the people who can be asked. Whatever a tool does
//! in the place it does with a permit that [`Hands::permit`] got from the gate, so that no tool can forget to ask.
//!
//! *Where to start reading.* [`hands`] for the way from a tool call to a permit, [`tool`] for the list of tools, and one
//! file below it for each, [`http`] for the one way to the web.

pub mod approver;
mod call_plan;
pub mod conversation;
pub mod http;
mod loop_guard;
mod preview;
mod process_events;
pub mod prompt;
pub mod tool;
pub mod tool_context;
mod turn;

pub use approver::{Approver, BoxFuture, Clarification};
pub use conversation::{
    Conversation, Error, ModelConfig, PendingSteer, ReplyFn, ReplySink, StopReason, TurnControl, TurnEvent,
    TurnObserver, TurnResult, UserInput,
};
pub use hermes_model::{Album, Unkept};
pub use hermes_policy::{Answer, Question};
pub use http::WebClient;
pub use loop_guard::{LoopGuardConfig, RepeatLimits};
pub use prompt::{SystemPrompt, SystemPromptInput};
pub use tool::execute_code::{CodeExecutionConfig, CodeMode};
pub use tool::{CallContext, Effects, ExportPolicy, IMPORT_DIR, Tool, ToolResult, TransferError, TurnRef};
pub use tool_context::{Denied, PullAuth, QuestionPolicy, SessionConfig, ToolContext, ToolLimits};
