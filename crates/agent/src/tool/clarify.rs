//! `clarify`: asks the user a question.

use hermes_types::Attendance;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::{Clarification, ToolContext};

const MAX_CHOICES: usize = 4;
const MAX_QUESTION_BYTES: usize = 4_000;

/// Ask the person a question when their answer changes what you do. Offer up to four choices, or
/// none for an open question; they can always answer in their own words. Do not ask for permission
/// to run something: that is asked for you.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ClarifyArguments {
    /// The question.
    question: String,
    /// The choices.
    #[schemars(extend("maxItems" = MAX_CHOICES))]
    choices: Option<Vec<String>>,
}

impl ToolArguments for ClarifyArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let trimmed = |text: String| text.trim().to_owned();
        let question = trimmed(self.question);
        let choices = self.choices.into_iter().flatten().map(trimmed).filter(|choice| !choice.is_empty());
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
}
