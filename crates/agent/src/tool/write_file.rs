//! `write_file`: writes a whole file.

use hermes_exec::Error as ExecError;
use hermes_exec::files::{FileError, FileRange, ParentDirs, Precondition, WriteEffect, WriteOptions};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;

use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::tool_support::files::{ENOENT, FileOutcome, PlaceFiles, check_path, file_error};
use crate::tool_support::text::{TextStyle, lint};
use crate::{ToolContext, lock};

/// Lines at the start of a file that decide its line ends.
const SAMPLE_LINES: u64 = 200;
const MAX_SAMPLE_BYTES: usize = 4 << 20;

/// Write a whole file, and the directories above it; an existing file is replaced. Use `patch` to
/// change a part of a file, and this instead of echo or a heredoc.
#[derive(Deserialize, JsonSchema)]
pub(super) struct WriteFileArguments {
    /// Absolute, relative to the working directory, or below ~.
    path: String,
    /// All of the new content.
    content: String,
}

impl ToolArguments for WriteFileArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let Self { path, content } = self;
        let path = check_path(&path)?;
        let files = PlaceFiles::open(context, call).await?;
        let part = FileRange::Lines { first: 1, count: SAMPLE_LINES };
        let read = |permit| files.read(permit, part, MAX_SAMPLE_BYTES);
        // A file that needs a question to be read is replaced unread, so that there is only one
        // question.
        let before = files.if_unasked(path, read).await;
        let before = before.and_then(|FileOutcome { result, real_path }| Some((result.ok()?, real_path)));
        let mut warning = None;
        let mut style = TextStyle::default();
        if let Some(((sample, end), real_path)) = &before {
            style = TextStyle::of(sample);
            if content.contains(PLACEHOLDER) && !String::from_utf8_lossy(sample).contains(PLACEHOLDER) {
                return Err(ToolResult::error(format!(
                    "the content contains `{PLACEHOLDER}`, which stands for a secret that you were not shown; writing it \
                     would lose the secret. Change other lines of {path} with patch"
                )));
            }
            if end.whole.is_some_and(|whole| lock(&context.file_state).is_stale(real_path, whole.digest)) {
                warning = Some("another process had changed the file since you last read it");
            }
        }
        let bytes = style.encode(&content);
        let write = async |parents| {
            let options = WriteOptions { precondition: Precondition::Anything, parents };
            let write = |permit| files.write(permit, &bytes, options);
            files.with_permit(FileAccess::Write, path, write).await
        };
        let mut dirs_created = false;
        let mut outcome = write(ParentDirs::Require).await?;
        if matches!(outcome.result, Err(ExecError::FileFailed(FileError::Os { errno: ENOENT }))) {
            dirs_created = true;
            outcome = write(ParentDirs::Create).await?;
        }
        let written = outcome.result.map_err(|error| file_error(path, &error))?;
        let real_path = String::from_utf8_lossy(&written.path).into_owned();
        lock(&context.file_state).record_digest(&real_path, written.digest);
        let mut result = json!({
            "bytes_written": written.length,
            "dirs_created": dirs_created,
            "resolved_path": real_path,
            "files_modified": [real_path],
            "created": written.effect == WriteEffect::Created,
        });
        if let Some(lint) = lint(&real_path, &content) {
            result["lint"] = lint;
        }
        if let Some(warning) = warning {
            result["_warning"] = json!(warning);
        }
        Ok(ToolResult::success(result))
    }
}
