//! What a single turn leaves: its answer, or one document, and an exit code.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use hermes_agent::{StopReason, TurnResult};
use serde_json::json;

use super::repl::Repl;
use crate::screen::OutputFormat;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve::model;

pub(super) fn report(talk: &mut Repl<'_>, ended: &TurnResult) -> Result<ExitCode, Failure> {
    let screen = talk.context().screen;
    let first = talk.conversation().and_then(|conversation| conversation.model_config().endpoints.first());
    if screen.format == OutputFormat::Json {
        screen.json(&json!({
            "session": talk.conversation().map(|conversation| conversation.id().as_str()),
            "text": ended.text,
            "exit": ended.stop_reason.as_str(),
            "reason": ended.stop_reason.user_message(),
            "model": first.map(|first| &first.model),
            "provider": first.map(|first| &first.provider),
            "calls": ended.model_calls,
            "usage": ended.usage,
            "cost": ended.cost,
            "tools": talk.input().calls(),
        }))?;
    } else if !io::stdout().is_terminal() && !ended.text.is_empty() {
        // On a terminal it was shown as it came.
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
        | StopReason::EmptyReply
        | StopReason::InvalidCalls
        | StopReason::Loop(_) => FailureKind::Failed.code(),
    }
}
