//! `write_file`: a whole file.

use hermes_exec::Error;
use hermes_exec::files::{Before, Expect, FileFault, Parents, Part, Write, Written};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::files::{self, ENOENT, FileOutcome, PlaceFiles, check_path};
use super::text::{TextStyle, lint};
use super::{CallContext, ToolResult, parse_arguments};
use crate::ToolContext;
use crate::tool_context::lock;

/// Bytes at the beginning of a file that tell how its lines end.
const SAMPLE_LINES: u64 = 200;
const MAX_SAMPLE_BYTES: usize = 4 << 20;

#[derive(Deserialize)]
struct WriteFileArguments {
    path: String,
    content: String,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Write a whole file, and the directories above it; what was there is replaced. Use `patch` to \
        change a part of a file, and this instead of echo or a heredoc.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "path": {"type": "string", "description": "Absolute, relative to the working directory, or below ~."},
            "content": {"type": "string", "description": "All of the new content."},
        },
        "required": ["path", "content"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    match write_file(hands, given, scene).await {
        Ok(done) | Err(done) => done,
    }
}

async fn write_file(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let WriteFileArguments { path, content } = parse_arguments(given)?;
    let path = check_path(&path)?;
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(ToolResult::from)?;
    let part = Part::Lines { first: 1, count: SAMPLE_LINES };
    let look = |permit| async { shelf.files.read(permit, part).await?.read_to_end(MAX_SAMPLE_BYTES).await };
    // What may not be read without a question is replaced as it is asked for, so that there is one question.
    let before = shelf
        .if_unasked(path, look)
        .await
        .and_then(|FileOutcome { result: got, real_path: real }| Some((got.ok()?, real)));
    let mut warnings = Vec::new();
    let mut style = TextStyle::default();
    if let Some(((sample, end), real)) = &before {
        style = TextStyle::of(sample);
        if content.contains(PLACEHOLDER) && !String::from_utf8_lossy(sample).contains(PLACEHOLDER) {
            return Err(ToolResult::error(format!(
                "the content has `{PLACEHOLDER}` in it, which stands for a secret that you were not shown; written, the \
                 secret would be lost. Change other lines of {path} with patch"
            )));
        }
        let stale = end.whole.is_some_and(|whole| lock(&hands.file_state).is_stale(real, whole.digest));
        if stale {
            warnings.push("the file had been changed by somebody else since you last read it");
        }
    }
    let bytes = style.encode(&content);
    let put = async |parents| {
        let how = Write { expect: Expect::Anything, parents };
        let act = |permit| async {
            let mut content = bytes.as_slice();
            shelf.files.write(permit, &mut content, how).await
        };
        shelf.with_permit(FileAccess::Write, path, scene, act).await.map_err(ToolResult::from)
    };
    let mut dirs_created = false;
    let mut touched = put(Parents::Require).await?;
    if matches!(touched.result, Err(Error::FileFailed(FileFault::Os { errno: ENOENT }))) {
        dirs_created = true;
        touched = put(Parents::Create).await?;
    }
    let written = touched.result.map_err(|error| ToolResult::error(files::describe_error(path, &error)))?;
    let real = String::from_utf8_lossy(&written.path).into_owned();
    lock(&hands.file_state).record_digest(&real, written.digest);
    let mut answer = json!({
        "bytes_written": written.length,
        "dirs_created": dirs_created,
        "resolved_path": real,
        "files_modified": [real],
        "created": is_new(&written),
    });
    if let Some(lint) = lint(&real, &content) {
        answer["lint"] = lint;
    }
    if !warnings.is_empty() {
        answer["_warning"] = json!(warnings.join("; "));
    }
    Ok(ToolResult::success(answer))
}

fn is_new(written: &Written) -> bool {
    written.before == Before::Nothing
}
