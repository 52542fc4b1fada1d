//! The result of a single turn: its answer or a JSON document, and an exit code.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use hermes_agent::{StopReason, TurnResult};
use serde_json::json;

use super::repl::Repl;
use crate::{FailureKind, Result};
use hermes_config::resolve::model;

pub(super) fn report(repl: &Repl, ended: &TurnResult) -> Result<ExitCode> {
    let screen = repl.context.screen;
    let first = repl.conversation().and_then(|conversation| conversation.model_config().endpoints.first());
    if screen.is_json() {
        screen.json(&json!({
            "session": repl.conversation().map(|conversation| conversation.id().as_str()),
            "text": ended.text,
            "exit": ended.stop_reason.as_str(),
            "reason": ended.stop_reason.user_message(),
            "model": first.map(|first| &first.model),
            "provider": first.map(|first| &first.provider),
            "calls": ended.model_calls,
            "usage": ended.usage,
            "cost": ended.cost,
            "tools": *repl.output.calls(),
        }))?;
    } else if !io::stdout().is_terminal() && !ended.text.is_empty() {
        // On a terminal it was shown while it was generated.
        screen.line(ended.text.trim_end_matches('\n'))?;
    }
    Ok(code(&ended.stop_reason))
}

fn code(exit: &StopReason) -> ExitCode {
    match exit {
        StopReason::Answered => ExitCode::SUCCESS,
        StopReason::Interrupted => ExitCode::from(130),
        StopReason::Denied | StopReason::Refused(_) => FailureKind::Refused.code(),
        StopReason::Failed(error) => model::model_failure(error).kind.code(),
        StopReason::BudgetExhausted
        | StopReason::Truncated
        | StopReason::Disconnected
        | StopReason::ReasoningExhausted
        | StopReason::TimedOut(_)
        | StopReason::Loop
        | StopReason::EmptyReply
        | StopReason::InvalidCalls => FailureKind::Failed.code(),
    }
}
