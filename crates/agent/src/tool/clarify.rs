//! `clarify`: a question to the person behind the door.

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
                "description": "What can be chosen.",
            },
        },
        "required": ["question"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    let given: ClarifyArguments = match parse_arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    let trimmed = |text: String| text.trim().to_owned();
    let question = trimmed(given.question);
    let choices = given.choices.into_iter().flatten().map(trimmed).filter(|choice| !choice.is_empty());
    let choices: Vec<String> = choices.take(MAX_CHOICES).collect();
    if question.is_empty() {
        return ToolResult::error("`question` is empty");
    }
    if question.len() + choices.iter().map(String::len).sum::<usize>() > MAX_QUESTION_BYTES {
        return ToolResult::error(format!("question and choices are longer than {MAX_QUESTION_BYTES} bytes"));
    }
    if hands.config().attendance == Attendance::Unattended {
        return ToolResult::error("nobody is there to answer; decide by yourself and say what you assumed");
    }
    let asked = Clarification { question, choices };
    let answer = tokio::select! {
        answer = hands.config().approver.clarify(&asked) => answer,
        () = scene.stop.cancelled() => return ToolResult::error("interrupted before there was an answer"),
    };
    match answer {
        Some(answer) => ToolResult::success(json!({
            "question": asked.question, "choices_offered": asked.choices, "user_response": answer.trim(),
        })),
        None => ToolResult::error("nobody answered; decide by yourself and say what you assumed"),
    }
}
