//! `patch`: changes in files, by the text that is there or in a format for several files at once.

mod format;
mod matching;
mod multi_file;

use hermes_exec::Error;
use hermes_exec::files::{Digest, Edit, Expect, FileFault, Occurrences, Parents, Part, Write};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::files::{self, FileOutcome, PlaceFiles, check_path};
use super::read_file::{is_binary, missing_file_result};
use super::text::{DecodedText, TextStyle, display_text, lint};
use super::{CallContext, ToolResult, parse_arguments};
use crate::ToolContext;
use crate::tool_context::lock;
use matching::{MatchStrategy, Occurrence, Replacement};

/// The largest file that is changed.
const MAX_FILE_BYTES: usize = 16 << 20;
/// Failures of edits of one file in a row, after which other advice is given.
const FAILURES_BEFORE_ADVICE: u32 = 3;
/// Lines around a change in a diff.
const DIFF_CONTEXT_LINES: usize = 3;
/// How long the search for the shortest diff may take.
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
    let description = "Change files. mode=replace: replace old_string by new_string in one file; old_string must be \
        there once, with enough text around it, or use replace_all. Small differences in white space are forgiven. \
        mode=patch: several files at once, in the format `*** Begin Patch`, `*** Update File: path` with @@ and lines \
        that begin with a blank, - or +, `*** Add File: path`, `*** Delete File: path`, `*** Move File: from -> to`, \
        `*** End Patch`; all of it is done or nothing. Gives a diff.";
    let parameters = json!({
        "type": "object",
        "properties": {
            "mode": {"type": "string", "enum": ["replace", "patch"], "default": "replace"},
            "path": {"type": "string", "description": "The file, for replace."},
            "old_string": {"type": "string", "description": "The text that is there, for replace."},
            "new_string": {"type": "string", "description": "The text that is to be there, for replace; may be empty."},
            "replace_all": {"type": "boolean", "description": "Replace every occurrence.", "default": false},
            "patch": {"type": "string", "description": "The patch, for patch."},
        },
        "required": ["mode"],
    });
    (description, parameters)
}

pub(super) async fn call(
    hands: &ToolContext,
    given: Map<String, Value>,
    scene: CallContext<'_>,
) -> ToolResult {
    let given: PatchArguments = match parse_arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    let mode =
        given.mode.unwrap_or(if given.patch.is_some() { PatchMode::Patch } else { PatchMode::Replace });
    let result = match mode {
        PatchMode::Replace => replace(hands, given, scene).await,
        PatchMode::Patch => {
            multi_file::apply_patch(hands, given.patch.as_deref().unwrap_or_default(), scene).await
        }
    };
    match result {
        Ok(done) | Err(done) => done,
    }
}

/// A file that can be changed.
struct OriginalFile {
    decoded: DecodedText,
    digest: Digest,
    real_path: String,
}

impl OriginalFile {
    fn new(path: &str, bytes: &[u8], digest: Option<Digest>, real: String) -> Result<Self, ToolResult> {
        if is_binary(bytes) {
            return Err(ToolResult::error(format!("{path} is not a text file")));
        }
        match (DecodedText::new(bytes), digest) {
            (Some(decoded), Some(digest)) => Ok(Self { decoded, digest, real_path: real }),
            _ => {
                Err(ToolResult::error(format!("{path} has characters that cannot be told from broken ones")))
            }
        }
    }
}

async fn replace(
    hands: &ToolContext,
    given: PatchArguments,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let (Some(path), Some(old), Some(new)) = (given.path, given.old_string, given.new_string) else {
        return Err(ToolResult::error("mode=replace needs `path`, `old_string` and `new_string`"));
    };
    let path = check_path(&path)?;
    let wanted = if given.replace_all { Occurrence::All } else { Occurrence::Single };
    if new.matches(PLACEHOLDER).count() > old.matches(PLACEHOLDER).count() {
        return Err(ToolResult::error(format!(
            "`new_string` has `{PLACEHOLDER}` in it, which stands for a secret that you were not shown; leave those lines out"
        )));
    }
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(ToolResult::from)?;
    let look =
        |permit| async { shelf.files.read(permit, Part::Whole).await?.read_to_end(MAX_FILE_BYTES).await };
    let Some(FileOutcome { result: got, real_path: real }) = shelf.if_unasked(path, look).await else {
        return replace_unread(&shelf, path, &old, &new, wanted, scene).await;
    };
    let (bytes, end) = match got {
        Ok(read) => read,
        Err(error) if files::is_missing(&error) => return Err(missing_file_result(&shelf, path).await),
        Err(Error::TooLarge(_)) => return replace_unread(&shelf, path, &old, &new, wanted, scene).await,
        Err(error) => return Err(ToolResult::error(files::describe_error(path, &error))),
    };
    let original = OriginalFile::new(path, &bytes, end.whole.map(|whole| whole.digest), real)?;
    // Where lines end alike, how the model ends them does not matter.
    let is_mixed = original.decoded.text.contains('\r');
    let ended = |text: String| if is_mixed { text } else { text.replace("\r\n", "\n") };
    let (old, new) = (ended(old), ended(new));
    let changed = {
        let (text, old, new) = (original.decoded.text.clone(), old.clone(), new.clone());
        // The forgiving ways of finding a text take their time.
        let find = move || matching::replace(&text, &old, &new, wanted);
        tokio::task::spawn_blocking(find).await.map_err(ToolResult::error)?
    };
    let change = match changed {
        Ok(change) => change,
        Err(why) => return Err(replace_failure(hands, path, &old, &why)),
    };
    write_change(&shelf, path, &original, &change, (&old, &new, wanted), scene).await?;
    lock(&hands.file_state).clear_failed_edits(path);
    let after = original.decoded.style.encode(&change.content);
    lock(&hands.file_state).record_digest(&original.real_path, sha256(&after));
    let mut answer = json!({
        "success": true,
        "diff": unified_diff(path, &original.decoded.text, &change.content),
        "files_modified": [original.real_path],
        "replacements": change.count,
    });
    if change.strategy != MatchStrategy::Exact {
        answer["strategy"] = json!(change.strategy.as_str());
        answer["hint"] =
            json!("`old_string` was not there exactly; see in the diff whether the right text was changed");
    }
    if let Some(lint) = lint(path, &change.content) {
        answer["lint"] = lint;
    }
    Ok(ToolResult::success(answer))
}

/// Brings a change to the file, if it is still what it was.
async fn write_change(
    shelf: &PlaceFiles<'_>,
    path: &str,
    original: &OriginalFile,
    change: &Replacement,
    (old, new, wanted): (&str, &str, Occurrence),
    scene: CallContext<'_>,
) -> Result<(), ToolResult> {
    let style = original.decoded.style;
    let bytes = style.encode(&change.content);
    let exact = change.strategy == MatchStrategy::Exact;
    let act = |permit| async {
        if exact {
            // Only what changes travels.
            let (_, written) = shelf.files.patch(permit, vec![exact_edit(style, old, new, wanted)]).await?;
            return Ok(written);
        }
        let how = Write { expect: Expect::Content(original.digest), parents: Parents::Require };
        let mut content = bytes.as_slice();
        shelf.files.write(permit, &mut content, how).await
    };
    let touched = shelf.with_permit(FileAccess::Write, path, scene, act).await.map_err(ToolResult::from)?;
    match touched.result {
        Ok(_written) => Ok(()),
        Err(Error::FileFailed(FileFault::NoMatch { .. } | FileFault::Ambiguous { .. })) => {
            Err(ToolResult::error(files::describe_error(path, &Error::FileFailed(FileFault::Changed))))
        }
        Err(error) => Err(ToolResult::error(files::describe_error(path, &error))),
    }
}

fn exact_edit(style: TextStyle, old: &str, new: &str, wanted: Occurrence) -> Edit {
    let occurrences = match wanted {
        Occurrence::Single => Occurrences::One,
        Occurrence::All => Occurrences::All,
    };
    let bytes = |text: &str| ByteBuf::from(style.encode_part(text));
    Edit { old: bytes(old), new: bytes(new), occurrences }
}

/// Changes a file that may not be read without a question, or that is too large: exactly, and without a look at it.
async fn replace_unread(
    shelf: &PlaceFiles<'_>,
    path: &str,
    old: &str,
    new: &str,
    wanted: Occurrence,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    let act = |permit| shelf.files.patch(permit, vec![exact_edit(TextStyle::default(), old, new, wanted)]);
    let touched = shelf.with_permit(FileAccess::Write, path, scene, act).await.map_err(ToolResult::from)?;
    match touched.result {
        Ok((counts, written)) => Ok(ToolResult::success(json!({
            "success": true,
            "diff": Value::Null,
            "files_modified": [String::from_utf8_lossy(&written.path)],
            "replacements": counts.first(),
            "note": "the file was not read, so there is no diff",
        }))),
        Err(error) if files::is_missing(&error) => Err(missing_file_result(shelf, path).await),
        Err(error) => Err(ToolResult::error(files::describe_error(path, &error))),
    }
}

/// Says why a text could not be replaced, more plainly each time.
fn replace_failure(hands: &ToolContext, path: &str, old: &str, why: &str) -> ToolResult {
    let mut answer = json!({"success": false, "error": format!("{path}: {}", display_text(why))});
    if old.contains(PLACEHOLDER) {
        answer["hint"] = json!(format!(
            "`{PLACEHOLDER}` stands for a secret that you were not shown and is not in the file; leave that line out"
        ));
    }
    if lock(&hands.file_state).record_failed_edit(path) >= FAILURES_BEFORE_ADVICE {
        answer["hint"] = json!(
            "this has failed several times in a row: read the part of the file again and copy the text from there, \
             without the line numbers, or write the whole file"
        );
    }
    ToolResult::failure(answer)
}

/// What changes, as others show it.
fn unified_diff(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIMEOUT).diff_lines(before, after);
    let (a, b) = (format!("a/{path}"), format!("b/{path}"));
    display_text(&diff.unified_diff().context_radius(DIFF_CONTEXT_LINES).header(&a, &b).to_string())
        .into_owned()
}

fn sha256(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    Digest(sha2::Sha256::digest(bytes).into())
}
