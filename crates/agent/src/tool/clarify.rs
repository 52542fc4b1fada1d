//! `clarify`: asks the user a question.

use hermes_types::Attendance;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{CallContext, ToolResult, parse_arguments};
use crate::{Clarification, ToolContext};

const MAX_CHOICES: usize = 4;
const MAX_QUESTION_BYTES: usize = 4_000;

#[derive(Deserialize)]
struct ClarifyArguments {
    question: String,
    choices: Option<Vec<String>>,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Ask the person a question when their answer changes what you do. Offer up to four choices, or \
        none for an open question; they can always answer in their own words. Do not ask for permission to run \
        something: that is asked for you.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "question": {"type": "string", "description": "The question."},
            "choices": {
                "type": "array",
                "items": {"type": "string"},
                "maxItems": MAX_CHOICES,
                "description": "The choices.",
            },
        },
        "required": ["question"],
    });
    (description, parameters)
}

pub(super) async fn call(
    context: &ToolContext,
    arguments: Map<String, Value>,
    call: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let given: ClarifyArguments = parse_arguments(arguments)?;
    let trimmed = |text: String| text.trim().to_owned();
    let question = trimmed(given.question);
    let choices = given.choices.into_iter().flatten().map(trimmed).filter(|choice| !choice.is_empty());
    let choices: Vec<String> = choices.take(MAX_CHOICES).collect();
    if question.is_empty() {
        return Err(ToolResult::error("`question` is empty"));
    }
    if question.len() + choices.iter().map(String::len).sum::<usize>() > MAX_QUESTION_BYTES {
        return Err(ToolResult::error(format!(
            "question and choices are longer than {MAX_QUESTION_BYTES} bytes"
        )));
    }
    if context.config().attendance == Attendance::Unattended {
        return Err(ToolResult::error(
            "no person is there to answer; decide by yourself and say what you assumed",
        ));
    }
    let clarification = Clarification { question, choices };
    let answer = tokio::select! {
        answer = context.config().approver.clarify(&clarification) => answer,
        () = call.stop.cancelled() => return Err(ToolResult::error("interrupted before an answer came")),
    };
    let Some(answer) = answer else {
        return Err(ToolResult::error("no answer came; decide by yourself and say what you assumed"));
    };
    Ok(ToolResult::success(json!({
        "question": clarification.question, "choices_offered": clarification.choices, "user_response": answer.trim(),
    })))
}
