//! `patch`: changes files, by replacing a text or by a patch of several files.

mod format;
mod matching;
mod multi_file;

use hermes_exec::Error as ExecError;
use hermes_exec::files::{
    ContentDigest, FileEdit, FileError, FileRange, Occurrences, ParentDirs, Precondition, ReadSummary,
    WriteOptions,
};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::{Value, json};
use similar::TextDiff;

use super::read_file::file_failure;
use super::{CallContext, CallResult, ToolArguments, ToolResult};
use crate::tool_support::files::{FileOutcome, PlaceFiles, check_path, file_error};
use crate::tool_support::text::{DecodedText, TextStyle, display_text, is_binary, lint};
use crate::{Error, ToolContext, lock};
use matching::Replacement;

const MAX_FILE_BYTES: usize = 16 << 20;
/// Failed edits of one file in a row after which the advice changes.
const FAILURES_BEFORE_ADVICE: u32 = 3;
const DIFF_CONTEXT_LINES: usize = 3;
/// Limits the search for the shortest diff.
const DIFF_TIMEOUT: std::time::Duration = std::time::Duration::from_millis(300);

/// Change files. mode=replace: replace old_string by new_string in one file; old_string must occur
/// once, with enough text around it, or use replace_all. Small differences in white space are
/// forgiven. mode=patch: several files at once, in the format `*** Begin Patch`, `*** Update File:
/// path` with @@ and lines that begin with a blank, - or +, `*** Add File: path`, `*** Delete File:
/// path`, `*** Move File: from -> to`, `*** End Patch`; all of it is applied or nothing. Returns a
/// diff.
#[derive(Deserialize, JsonSchema)]
pub(super) struct PatchArguments {
    #[schemars(with = "PatchMode", extend("default" = "replace"))]
    mode: Option<PatchMode>,
    /// The file, for replace.
    path: Option<String>,
    /// The current text, for replace.
    old_string: Option<String>,
    /// The new text, for replace; may be empty.
    new_string: Option<String>,
    /// Replace every occurrence.
    #[serde(default)]
    replace_all: bool,
    /// The patch, for patch.
    patch: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum PatchMode {
    Replace,
    Patch,
}

impl ToolArguments for PatchArguments {
    async fn run(self, context: &ToolContext, call: CallContext<'_>) -> CallResult {
        let mode =
            self.mode.unwrap_or(if self.patch.is_some() { PatchMode::Patch } else { PatchMode::Replace });
        match mode {
            PatchMode::Replace => replace(context, self, call).await,
            PatchMode::Patch => {
                multi_file::apply_patch(context, self.patch.as_deref().unwrap_or_default(), call).await
            }
        }
    }
}

/// A file that can be changed.
struct OriginalFile {
    decoded: DecodedText,
    digest: ContentDigest,
    mode: u32,
    real_path: String,
}

impl OriginalFile {
    fn new(path: &str, (bytes, end): (Vec<u8>, ReadSummary), real_path: String) -> Result<Self, Error> {
        if is_binary(&bytes) {
            return Err(Error::File(format!("{path} is not a text file")));
        }
        match (DecodedText::new(&bytes), end.whole) {
            (Some(decoded), Some(whole)) => {
                Ok(Self { decoded, digest: whole.digest, mode: end.stat.mode, real_path })
            }
            _ => Err(Error::File(format!("{path} contains characters that patch cannot preserve"))),
        }
    }
}

/// The replacement that the model asks for.
struct TextEdit {
    old: String,
    new: String,
    occurrences: Occurrences,
}

impl TextEdit {
    /// The same edit for the guest, which replaces exact matches only.
    fn to_exact(&self, style: TextStyle) -> FileEdit {
        let bytes = |text: &str| ByteBuf::from(style.encode_part(text));
        FileEdit { old: bytes(&self.old), new: bytes(&self.new), occurrences: self.occurrences }
    }
}

async fn replace(context: &ToolContext, given: PatchArguments, call: CallContext<'_>) -> CallResult {
    let (Some(path), Some(old), Some(new)) = (given.path, given.old_string, given.new_string) else {
        return Err(ToolResult::error("mode=replace needs `path`, `old_string` and `new_string`"));
    };
    let path = check_path(&path)?;
    let occurrences = if given.replace_all { Occurrences::All } else { Occurrences::One };
    let mut edit = TextEdit { old, new, occurrences };
    if edit.new.matches(PLACEHOLDER).count() > edit.old.matches(PLACEHOLDER).count() {
        return Err(ToolResult::error(format!(
            "`new_string` contains `{PLACEHOLDER}`, which stands for a secret that you were not shown; leave those lines out"
        )));
    }
    let files = PlaceFiles::open(context, call).await?;
    let read = |permit| files.read(permit, FileRange::Whole, MAX_FILE_BYTES);
    let original = match files.if_unasked(path, read).await {
        Some(FileOutcome { result: Ok(read), real_path }) => OriginalFile::new(path, read, real_path)?,
        None | Some(FileOutcome { result: Err(ExecError::TooLarge(_)), .. }) => {
            return replace_unread(&files, path, &edit).await;
        }
        Some(FileOutcome { result: Err(error), .. }) => return Err(file_failure(&files, path, &error).await),
    };
    if !original.decoded.text.contains('\r') {
        // The line ends of the file are uniform, so those of the model do not matter.
        edit.old = edit.old.replace("\r\n", "\n");
        edit.new = edit.new.replace("\r\n", "\n");
    }
    let found = {
        let (text, old, new) = (original.decoded.text.clone(), edit.old.clone(), edit.new.clone());
        // Approximate matching of a large file takes long.
        let find = move || matching::replace(&text, &old, &new, occurrences);
        tokio::task::spawn_blocking(find).await.map_err(ToolResult::error)?
    };
    let replacement = found.map_err(|reason| replace_failure(context, path, &edit.old, &reason))?;
    write_replacement(&files, path, &original, &replacement, &edit).await?;
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
    if replacement.strategy != matching::EXACT {
        result["strategy"] = json!(replacement.strategy);
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
) -> Result<(), Error> {
    let style = original.decoded.style;
    let bytes = style.encode(&replacement.content);
    let (precondition, parents) = (Precondition::Content(original.digest), ParentDirs::Require);
    let write = |permit| async {
        if replacement.strategy == matching::EXACT {
            // Sends only the edit instead of the whole file.
            return Ok(files.guest.patch(permit, vec![edit.to_exact(style)]).await?.1);
        }
        files.write(permit, &bytes, WriteOptions { precondition, parents }).await
    };
    match files.with_permit(FileAccess::Write, path, write).await?.result {
        Ok(_written) => Ok(()),
        Err(ExecError::FileFailed(FileError::NoMatch { .. } | FileError::Ambiguous { .. })) => {
            Err(file_error(path, &ExecError::FileFailed(FileError::ContentChanged)))
        }
        Err(error) => Err(file_error(path, &error)),
    }
}

/// Replaces exact matches in a file without reading it, because it is too large or because reading
/// it would need a question.
async fn replace_unread(files: &PlaceFiles<'_>, path: &str, edit: &TextEdit) -> CallResult {
    let patch = |permit| files.guest.patch(permit, vec![edit.to_exact(TextStyle::default())]);
    match files.with_permit(FileAccess::Write, path, patch).await?.result {
        Ok((counts, written)) => Ok(ToolResult::success(json!({
            "success": true,
            "diff": Value::Null,
            "files_modified": [String::from_utf8_lossy(&written.path)],
            "replacements": counts.first(),
            "note": "the file was not read, so there is no diff",
        }))),
        Err(error) => Err(file_failure(files, path, &error).await),
    }
}

/// The result for a text that could not be replaced. Repeated failures get more advice.
fn replace_failure(context: &ToolContext, path: &str, old: &str, reason: &Error) -> ToolResult {
    let reason = reason.to_string();
    let mut result = json!({"success": false, "error": format!("{path}: {}", display_text(&reason))});
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
