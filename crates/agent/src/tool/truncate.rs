//! Answers that are too long for a conversation. They are put into a file of the place, where the model can page them.

use hermes_exec::files::{Expect, Parents, Write};
use hermes_types::{BackendName, CallId, FileAccess};
use serde_json::{Value, json};

use super::files::{self, PlaceFiles};
use super::{CallContext, ToolResult, truncate_chars};
use crate::{ToolContext, process_events};

/// Characters of an answer that are given as they are.
const MAX_RESULT_CHARS: usize = 100_000;
/// Characters of all answers to the calls of one message.
const MAX_BATCH_CHARS: usize = 200_000;
/// Characters of an answer that is never put into a file.
const MIN_SPILLED_CHARS: usize = 3_000;
const PREVIEW_CHARS: usize = 1_500;
/// What is told beside an answer stays, however long it is.
const KEPT_FIELDS: [&str; 3] = ["warning", "user_says", process_events::NOTICE_FIELD];
/// Where they are put: what is in the temporary directory of a machine everybody there can read.
const RESULTS_DIR: &str = "/tmp/hermes-results";
const RESULTS_DIR_ON_HOST: &str = "~/.cache/hermes-results";

/// Replaces a long answer by where it is and how it begins.
pub(super) async fn truncate_result(hands: &ToolContext, done: &mut ToolResult, scene: CallContext<'_>) {
    if done.content.to_string().chars().count() > MAX_RESULT_CHARS {
        done.content = spill(hands, &done.content, scene).await;
    }
}

/// Of the answers to the calls of one message those that are too long together, the longest first, each with what it
/// is replaced by. The scene is that of any of them.
pub(crate) async fn truncate_results(
    hands: &ToolContext,
    mut answers: Vec<(CallId, String)>,
    scene: CallContext<'_>,
) -> Vec<(CallId, String)> {
    let size = |text: &str| text.chars().count();
    let mut total: usize = answers.iter().map(|(_, text)| size(text)).sum();
    answers.sort_by_key(|(_, text)| std::cmp::Reverse(size(text)));
    let mut replaced = Vec::new();
    for (call, text) in answers {
        let before = size(&text);
        if total <= MAX_BATCH_CHARS || before <= MIN_SPILLED_CHARS {
            break;
        }
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let text = spill(hands, &answer, CallContext { call_id: &call, ..scene }).await.to_string();
        total = total - before + size(&text);
        replaced.push((call, text));
    }
    replaced
}

/// Where a long answer is and how it begins.
async fn spill(hands: &ToolContext, whole: &Value, scene: CallContext<'_>) -> Value {
    let readable = readable_text(whole);
    let preview = truncate_chars(&readable, PREVIEW_CHARS);
    let mut answer = json!({"size": readable.chars().count(), "preview": preview});
    match write_spill_file(hands, readable.as_bytes(), scene).await {
        Ok(path) => {
            answer["full_result"] = json!(path);
            answer["hint"] =
                json!("the answer is too long to be shown whole; read_file or search_files looks into it");
        }
        Err(why) => {
            answer["hint"] =
                json!(format!("the rest is lost, since it could not be kept: {why}; ask for less"));
        }
    }
    // What is short about it is still worth telling, the exit code first.
    if let (Value::Object(answer), Value::Object(told)) = (&mut answer, whole) {
        let is_kept =
            |name: &str, value: &Value| KEPT_FIELDS.contains(&name) || value.to_string().len() < 500;
        let short = told.iter().filter(|(name, value)| is_kept(name, value));
        for (name, value) in short {
            answer.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    answer
}

/// Long text stands by itself in the file, so that it has lines; anything else is there as indented JSON.
fn readable_text(answer: &Value) -> String {
    let mut text = String::new();
    if let Value::Object(fields) = answer {
        let texts = || fields.values().filter_map(Value::as_str);
        let quarter = texts().map(str::len).sum::<usize>() / 4;
        let long: Vec<&str> = texts().filter(|text| text.len() > quarter).collect();
        if let [only] = long.as_slice() {
            text.push_str(only);
        }
    }
    if text.is_empty() { format!("{answer:#}") } else { text }
}

async fn write_spill_file(
    hands: &ToolContext,
    content: &[u8],
    scene: CallContext<'_>,
) -> Result<String, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let name: String = scene.call_id.as_str().chars().take(100).map(plain).collect();
    let folder = match hands.config().place.backend_name() {
        BackendName::Local | BackendName::Ssh => RESULTS_DIR_ON_HOST,
        _ => RESULTS_DIR,
    };
    let path = format!("{folder}/{name}.txt");
    let told = |done: ToolResult| done.content["error"].as_str().unwrap_or_default().to_owned();
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(|stopped| told(stopped.into()))?;
    let how = Write { expect: Expect::Anything, parents: Parents::Create };
    let act = |permit| async {
        let mut content = content;
        shelf.files.write(permit, &mut content, how).await
    };
    let touched = shelf.with_permit(FileAccess::Write, &path, scene, act).await;
    let written = touched.map_err(|stopped| told(stopped.into()))?.result;
    written.map(|_| path.clone()).map_err(|error| files::describe_error(&path, &error))
}
