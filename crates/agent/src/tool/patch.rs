//! `patch`: changes files, by replacing a text or by a patch of several files.

mod format;
mod matching;
mod multi_file;

use hermes_exec::Error as ExecError;
use hermes_exec::files::{
    ContentDigest, FileEdit, FileError, FileRange, Occurrences, ParentDirs, Precondition, WriteOptions,
};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::read_file::missing_file_result;
use super::{CallContext, ToolResult, parse_arguments};
use crate::tool_support::files::{FileOutcome, PlaceFiles, check_path, describe_error, is_missing};
use crate::tool_support::text::{DecodedText, TextStyle, display_text, is_binary, lint};
use crate::{ToolContext, lock};
use matching::{MatchStrategy, Occurrence, Replacement};

const MAX_FILE_BYTES: usize = 16 << 20;
/// Failed edits of one file in a row after which the advice changes.
const FAILURES_BEFORE_ADVICE: u32 = 3;
const DIFF_CONTEXT_LINES: usize = 3;
/// Limits the search for the shortest diff.
const DIFF_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(300);

#[derive(Deserialize)]
struct PatchArguments {
    mode: Option<PatchMode>,
    path: Option<String>,
    old_string: Option<String>,
    new_string: Option<String>,
    #[serde(default)]
    replace_all: bool,
    patch: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum PatchMode {
    Replace,
    Patch,
}

pub(super) fn spec() -> (&'static str, Value) {
    let description = "Change files. mode=replace: replace old_string by new_string in one file; old_string must \
        occur once, with enough text around it, or use replace_all. Small differences in white space are forgiven. \
        mode=patch: several files at once, in the format `*** Begin Patch`, `*** Update File: path` with @@ and lines \
        that begin with a blank, - or +, `*** Add File: path`, `*** Delete File: path`, `*** Move File: from -> to`, \
        `*** End Patch`; all of it is applied or nothing. Returns a diff.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["replace", "patch"], "default": "replace"},
            "path": {"type": "string", "description": "The file, for replace."},
            "old_string": {"type": "string", "description": "The current text, for replace."},
            "new_string": {"type": "string", "description": "The new text, for replace; may be empty."},
            "replace_all": {"type": "boolean", "description": "Replace every occurrence.", "default": false},
            "patch": {"type": "string", "description": "The patch, for patch."},
        },
        "required": ["mode"],
    });
    (description, parameters)
}

pub(super) async fn call(
    context: &ToolContext,
    arguments: Map<String, Value>,
    call: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let given: PatchArguments = parse_arguments(arguments)?;
    let mode =
        given.mode.unwrap_or(if given.patch.is_some() { PatchMode::Patch } else { PatchMode::Replace });
    match mode {
        PatchMode::Replace => replace(context, given, call).await,
        PatchMode::Patch => {
            multi_file::apply_patch(context, given.patch.as_deref().unwrap_or_default(), call).await
        }
    }
}

/// A file that can be changed.
struct OriginalFile {
    decoded: DecodedText,
    digest: ContentDigest,
    real_path: String,
}

impl OriginalFile {
    fn new(
        path: &str,
        bytes: &[u8],
        digest: Option<ContentDigest>,
        real_path: String,
    ) -> Result<Self, ToolResult> {
        if is_binary(bytes) {
            return Err(ToolResult::error(format!("{path} is not a text file")));
        }
        match (DecodedText::new(bytes), digest) {
            (Some(decoded), Some(digest)) => Ok(Self { decoded, digest, real_path }),
            _ => Err(ToolResult::error(format!("{path} contains characters that patch cannot preserve"))),
        }
    }
}

/// The replacement that the model asks for.
struct TextEdit {
    old: String,
    new: String,
    occurrence: Occurrence,
}

impl TextEdit {
    /// The same edit for the guest, which replaces exact matches only.
    fn to_exact(&self, style: TextStyle) -> FileEdit {
        let occurrences = match self.occurrence {
            Occurrence::Single => Occurrences::One,
            Occurrence::All => Occurrences::All,
        };
        let bytes = |text: &str| ByteBuf::from(style.encode_part(text));
        FileEdit { old: bytes(&self.old), new: bytes(&self.new), occurrences }
    }
}

async fn replace(
    context: &ToolContext,
    given: PatchArguments,
    call: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let (Some(path), Some(old), Some(new)) = (given.path, given.old_string, given.new_string) else {
        return Err(ToolResult::error("mode=replace needs `path`, `old_string` and `new_string`"));
    };
    let path = check_path(&path)?;
    let occurrence = if given.replace_all { Occurrence::All } else { Occurrence::Single };
    let mut edit = TextEdit { old, new, occurrence };
    if edit.new.matches(PLACEHOLDER).count() > edit.old.matches(PLACEHOLDER).count() {
        return Err(ToolResult::error(format!(
            "`new_string` contains `{PLACEHOLDER}`, which stands for a secret that you were not shown; leave those lines out"
        )));
    }
    let files = PlaceFiles::open(context, call.observer).await?;
    let read = |permit| async {
        files.files.read(permit, FileRange::Whole).await?.read_to_end(MAX_FILE_BYTES).await
    };
    let Some(FileOutcome { result, real_path }) = files.if_unasked(path, read).await else {
        return replace_unread(&files, path, &edit, call).await;
    };
    let (bytes, end) = match result {
        Ok(read) => read,
        Err(error) if is_missing(&error) => return Err(missing_file_result(&files, path).await),
        Err(ExecError::TooLarge(_)) => return replace_unread(&files, path, &edit, call).await,
        Err(error) => return Err(ToolResult::error(describe_error(path, &error))),
    };
    let original = OriginalFile::new(path, &bytes, end.whole.map(|whole| whole.digest), real_path)?;
    if !original.decoded.text.contains('\r') {
        // The line ends of the file are uniform, so those of the model do not matter.
        edit.old = edit.old.replace("\r\n", "\n");
        edit.new = edit.new.replace("\r\n", "\n");
    }
    let found = {
        let (text, old, new) = (original.decoded.text.clone(), edit.old.clone(), edit.new.clone());
        // Approximate matching of a large file takes long.
        let find = move || matching::replace(&text, &old, &new, occurrence);
        tokio::task::spawn_blocking(find).await.map_err(ToolResult::error)?
    };
    let replacement = found.map_err(|reason| replace_failure(context, path, &edit.old, &reason))?;
    write_replacement(&files, path, &original, &replacement, &edit, call).await?;
    let after = original.decoded.style.encode(&replacement.content);
    let mut file_state = lock(&context.file_state);
    file_state.clear_failed_edits(path);
    file_state.record_digest(&original.real_path, sha256(&after));
    let mut result = json!({
        "success": true,
        "diff": unified_diff(path, &original.decoded.text, &replacement.content),
        "files_modified": [original.real_path],
        "replacements": replacement.count,
    });
    if replacement.strategy != MatchStrategy::Exact {
        result["strategy"] = json!(replacement.strategy.as_str());
        result["hint"] =
            json!("`old_string` had no exact match; check in the diff that the right text was changed");
    }
    if let Some(lint) = lint(path, &replacement.content) {
        result["lint"] = lint;
    }
    Ok(ToolResult::success(result))
}

/// Writes a replacement, unless the file has changed since it was read.
async fn write_replacement(
    files: &PlaceFiles<'_>,
    path: &str,
    original: &OriginalFile,
    replacement: &Replacement,
    edit: &TextEdit,
    call: CallContext<'_>,
) -> Result<(), ToolResult> {
    let style = original.decoded.style;
    let bytes = style.encode(&replacement.content);
    let write = |permit| async {
        if replacement.strategy == MatchStrategy::Exact {
            // Sends only the edit instead of the whole file.
            let (_, written) = files.files.patch(permit, vec![edit.to_exact(style)]).await?;
            return Ok(written);
        }
        let options = WriteOptions {
            precondition: Precondition::Content(original.digest),
            parents: ParentDirs::Require,
        };
        let mut content = bytes.as_slice();
        files.files.write(permit, &mut content, options).await
    };
    match files.with_permit(FileAccess::Write, path, call, write).await?.result {
        Ok(_written) => Ok(()),
        Err(ExecError::FileFailed(FileError::NoMatch { .. } | FileError::Ambiguous { .. })) => {
            Err(ToolResult::error(describe_error(path, &ExecError::FileFailed(FileError::ContentChanged))))
        }
        Err(error) => Err(ToolResult::error(describe_error(path, &error))),
    }
}

/// Replaces exact matches in a file without reading it, because it is too large or because reading
/// it would need a question.
async fn replace_unread(
    files: &PlaceFiles<'_>,
    path: &str,
    edit: &TextEdit,
    call: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let patch = |permit| files.files.patch(permit, vec![edit.to_exact(TextStyle::default())]);
    match files.with_permit(FileAccess::Write, path, call, patch).await?.result {
        Ok((counts, written)) => Ok(ToolResult::success(json!({
            "success": true,
            "diff": Value::Null,
            "files_modified": [String::from_utf8_lossy(&written.path)],
            "replacements": counts.first(),
            "note": "the file was not read, so there is no diff",
        }))),
        Err(error) if is_missing(&error) => Err(missing_file_result(files, path).await),
        Err(error) => Err(ToolResult::error(describe_error(path, &error))),
    }
}

/// The result for a text that could not be replaced. Repeated failures get more advice.
fn replace_failure(context: &ToolContext, path: &str, old: &str, reason: &str) -> ToolResult {
    let mut result = json!({"success": false, "error": format!("{path}: {}", display_text(reason))});
    if old.contains(PLACEHOLDER) {
        result["hint"] = json!(format!(
            "`{PLACEHOLDER}` stands for a secret that you were not shown and is not in the file; leave that line out"
        ));
    }
    if lock(&context.file_state).record_failed_edit(path) >= FAILURES_BEFORE_ADVICE {
        result["hint"] = json!(
            "this has failed several times in a row: read the part of the file again and copy the text from there, \
             without the line numbers, or write the whole file"
        );
    }
    ToolResult::failure(result)
}

fn unified_diff(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(before, after);
    let (a, b) = (format!("a/{path}"), format!("b/{path}"));
    display_text(&diff.unified_diff().context_radius(DIFF_CONTEXT_LINES).header(&a, &b).to_string())
        .into_owned()
}

fn sha256(bytes: &[u8]) -> ContentDigest {
    use sha2::Digest as _;
    ContentDigest(sha2::Sha256::digest(bytes).into())
}
