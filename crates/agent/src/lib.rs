//! The turn loop and its tools.
//!
//! A model asks for tools by name; [`Tool`] is the closed list of them, with the effects of each.
//! A [`ToolContext`] is the context in which the tools of one session run: its execution
//! environment, its limits and its [`Approvals`].
//!
//! *Invariant.* A tool acts on the environment only with a permit, and a permit comes only from
//! [`Approvals`], so no tool can skip the gate.
//!
//! *Where to start reading.* [`turn`] for the loop, [`approvals`] for the way from a job to a
//! permit, [`tool`] for the list of tools with one file each, [`tool_support`] for the parts they
//! share, [`http`] for the only way to the web.

mod activity;
pub mod approvals;
pub mod approver;
mod audit;
mod call_plan;
pub mod conversation;
mod error;
pub mod http;
mod journal;
mod loop_guard;
mod preview;
mod process_events;
pub mod prompt;
mod review;
pub mod tool;
pub mod tool_context;
pub mod tool_support;
mod turn;

use hermes_types::lock;

pub use approvals::{Approval, Approvals, ApprovedBy, Denied, QuestionPolicy};
pub use approver::{Approver, BoxFuture, Clarification};
pub use audit::AuditLog;
pub use conversation::{
    Conversation, ModelConfig, PendingSteer, StopReason, TurnControl, TurnEvent, TurnObserver, TurnResult,
    UserInput,
};
pub use error::Error;
pub use hermes_policy::Question;
pub use http::WebClient;
pub use journal::TurnJournal;
pub use loop_guard::{LoopGuardConfig, LoopLimits};
pub use prompt::{SystemPrompt, SystemPromptInput};
pub use review::ApprovalReviewer;
pub use tool::execute_code::{CodeExecutionConfig, CodeMode};
pub use tool::{CallContext, Effects, Tool, ToolResult, TurnRef};
pub use tool_context::{SessionConfig, ToolContext, ToolLimits};
pub use tool_support::transfer::{ExportPolicy, IMPORT_DIR};
