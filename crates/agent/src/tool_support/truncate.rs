//! Keeps tool results short enough for a conversation. Long results are spilled to a file of the
//! environment, where the model can page through them.

use std::cmp::Reverse;

use hermes_exec::files::{ParentDirs, Precondition, WriteOptions};
use hermes_types::{BackendName, CallId, FileAccess};
use serde_json::{Value, json};

use super::files::{PlaceFiles, file_error};
use super::text::truncate_chars;
use crate::{CallContext, Error, ToolContext, ToolResult, process_events};

/// A longer result is spilled.
const MAX_RESULT_CHARS: usize = 100_000;
/// Budget for the results of all calls of one message together.
const MAX_BATCH_CHARS: usize = 200_000;
/// A shorter result is never spilled.
const MIN_SPILLED_CHARS: usize = 3_000;
const PREVIEW_CHARS: usize = 1_500;
/// A value of at most this many bytes stays in a spilled result.
const MAX_KEPT_BYTES: usize = 500;
/// Fields that stay in a spilled result however long they are.
const KEPT_FIELDS: [&str; 3] = ["warning", "user_says", process_events::NOTICE_FIELD];
const RESULTS_DIR: &str = "/tmp/hermes-results";
/// On a machine with other users, the temporary directory would expose the results to them.
const RESULTS_DIR_ON_HOST: &str = "~/.cache/hermes-results";

/// Spills a result that is too long.
pub(crate) async fn truncate_result(context: &ToolContext, result: &mut ToolResult, call: CallContext<'_>) {
    if result.content.to_string().chars().count() > MAX_RESULT_CHARS {
        result.content = spill(context, &result.content, call).await;
    }
}

/// Spills the longest results of one message until the batch fits its budget, and returns the
/// replaced ones. `call` may be any call of the message.
pub(crate) async fn truncate_results(
    context: &ToolContext,
    mut results: Vec<(CallId, String)>,
    call: CallContext<'_>,
) -> Vec<(CallId, String)> {
    let mut total: usize = results.iter().map(|(_, text)| text.chars().count()).sum();
    results.sort_by_key(|(_, text)| Reverse(text.chars().count()));
    let mut replaced = Vec::new();
    for (call_id, text) in results {
        let size = text.chars().count();
        if total <= MAX_BATCH_CHARS || size <= MIN_SPILLED_CHARS {
            break;
        }
        let content = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let spilled = spill(context, &content, CallContext { call_id: &call_id, ..call }).await.to_string();
        total = total - size + spilled.chars().count();
        replaced.push((call_id, spilled));
    }
    replaced
}

/// Writes a result to a file, and returns the path, a preview and the short fields.
async fn spill(context: &ToolContext, content: &Value, call: CallContext<'_>) -> Value {
    let text = readable_text(content);
    let mut spilled = json!({"size": text.chars().count(), "preview": truncate_chars(&text, PREVIEW_CHARS)});
    match write_spill_file(context, text.as_bytes(), call).await {
        Ok(path) => {
            spilled["full_result"] = json!(path);
            spilled["hint"] = json!(
                "the result is too long to be shown whole; page through it with read_file or search_files"
            );
        }
        Err(reason) => {
            spilled["hint"] =
                json!(format!("the rest is lost, since it could not be saved: {reason}; ask for less"));
        }
    }
    // Short fields, such as the exit code, still help.
    if let (Value::Object(spilled), Value::Object(fields)) = (&mut spilled, content) {
        for (name, value) in fields {
            if KEPT_FIELDS.contains(&name.as_str()) || value.to_string().len() < MAX_KEPT_BYTES {
                spilled.entry(name.clone()).or_insert_with(|| value.clone());
            }
        }
    }
    spilled
}

/// The one long text of a result, so that the file has lines; otherwise indented JSON.
fn readable_text(content: &Value) -> String {
    if let Value::Object(fields) = content {
        let texts = || fields.values().filter_map(Value::as_str);
        let quarter = texts().map(str::len).sum::<usize>() / 4;
        let long: Vec<&str> = texts().filter(|text| text.len() > quarter).collect();
        if let [text] = long.as_slice()
            && !text.is_empty()
        {
            return (*text).to_owned();
        }
    }
    format!("{content:#}")
}

async fn write_spill_file(
    context: &ToolContext,
    content: &[u8],
    call: CallContext<'_>,
) -> Result<String, Error> {
    let sanitize = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let name: String = call.call_id.as_str().chars().take(100).map(sanitize).collect();
    let dir = match context.config().place.backend_name() {
        BackendName::Local | BackendName::Ssh => RESULTS_DIR_ON_HOST,
        _ => RESULTS_DIR,
    };
    let path = format!("{dir}/{name}.txt");
    let options = WriteOptions { precondition: Precondition::Anything, parents: ParentDirs::Create };
    let files = PlaceFiles::open(context, call).await?;
    let write = |permit| files.write(permit, content, options);
    match files.with_permit(FileAccess::Write, &path, write).await?.result {
        Ok(_written) => Ok(path),
        Err(error) => Err(file_error(&path, &error)),
    }
}
