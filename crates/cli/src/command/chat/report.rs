//! What a single turn leaves: its answer, or one document, and an exit code.

use std::io::{self, IsTerminal};
use std::process::ExitCode;

use hermes_agent::{Ended, Exit};
use serde_json::json;

use super::talk::Talk;
use crate::failure::{Failure, Kind};
use crate::screen::Format;
use crate::wire::model;

pub(super) fn report(talk: &mut Talk<'_>, ended: &Ended) -> Result<ExitCode, Failure> {
    let screen = talk.context().screen;
    let first = talk.conversation().and_then(|conversation| conversation.mind().chain.first());
    if screen.format == Format::Json {
        screen.json(&json!({
            "session": talk.conversation().map(|conversation| conversation.id().as_str()),
            "text": ended.text,
            "exit": ended.exit.word(),
            "reason": ended.exit.explained(),
            "model": first.map(|first| &first.model),
            "provider": first.map(|first| &first.provider),
            "calls": ended.calls,
            "usage": ended.usage,
            "cost": ended.cost,
            "tools": talk.seat().calls(),
        }))?;
    } else if !io::stdout().is_terminal() && !ended.text.is_empty() {
        // On a terminal it was shown as it came.
        screen.line(ended.text.trim_end_matches('\n'))?;
    }
    Ok(code(&ended.exit))
}

fn code(exit: &Exit) -> ExitCode {
    match exit {
        Exit::Answered => ExitCode::SUCCESS,
        Exit::Interrupted => ExitCode::from(130),
        Exit::Denied | Exit::Refused(_) => Kind::Refused.code(),
        Exit::Failed(error) => model::fault(error).kind.code(),
        Exit::Exhausted | Exit::Truncated | Exit::Empty | Exit::Confused | Exit::Circling(_) => {
            Kind::Failed.code()
        }
    }
}
