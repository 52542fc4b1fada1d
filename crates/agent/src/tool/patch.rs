//! `patch`: changes in files, by the text that is there or in a format for several files at once.

mod format;
mod matching;
mod several;

use hermes_exec::Error;
use hermes_exec::files::{Digest, Edit, Expect, FileFault, Occurrences, Parents, Part, Write};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_bytes::ByteBuf;
use serde_json::{Map, Value, json};
use similar::TextDiff;

use super::read_file::{is_binary, missing};
use super::shelf::{self, Shelf, Touched, checked};
use super::text::{Decoded, Style, lint, shown};
use super::{Done, Scene, arguments};
use crate::Hands;
use crate::hands::lock;
use matching::{Change, Strategy, Wanted};

/// The largest file that is changed.
const MOST_BYTES: usize = 16 << 20;
/// Failures of edits of one file in a row, after which other advice is given.
const PATIENCE: u32 = 3;
/// Lines around a change in a diff.
const CONTEXT: usize = 3;
/// How long the search for the shortest diff may take.
const DIFF_TIME: std::time::Duration = std::time::Duration::from_millis(300);

#[derive(Deserialize)]
struct Arguments {
    mode: Option<Mode>,
    path: Option<String>,
    old_string: Option<String>,
    new_string: Option<String>,
    #[serde(default)]
    replace_all: bool,
    patch: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
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

pub(super) async fn call(hands: &Hands, given: Map<String, Value>, scene: Scene<'_>) -> Done {
    let given: Arguments = match arguments(given) {
        Ok(given) => given,
        Err(wrong) => return wrong,
    };
    let mode = given.mode.unwrap_or(if given.patch.is_some() { Mode::Patch } else { Mode::Replace });
    let result = match mode {
        Mode::Replace => replace(hands, given, scene).await,
        Mode::Patch => several::apply(hands, given.patch.as_deref().unwrap_or_default(), scene).await,
    };
    match result {
        Ok(done) | Err(done) => done,
    }
}

/// A file that can be changed.
struct Original {
    decoded: Decoded,
    digest: Digest,
    real: String,
}

impl Original {
    fn new(path: &str, bytes: &[u8], digest: Option<Digest>, real: String) -> Result<Self, Done> {
        if is_binary(bytes) {
            return Err(Done::error(format!("{path} is not a text file")));
        }
        match (Decoded::new(bytes), digest) {
            (Some(decoded), Some(digest)) => Ok(Self { decoded, digest, real }),
            _ => Err(Done::error(format!("{path} has characters that cannot be told from broken ones"))),
        }
    }
}

async fn replace(hands: &Hands, given: Arguments, scene: Scene<'_>) -> Result<Done, Done> {
    let (Some(path), Some(old), Some(new)) = (given.path, given.old_string, given.new_string) else {
        return Err(Done::error("mode=replace needs `path`, `old_string` and `new_string`"));
    };
    let path = checked(&path)?;
    let wanted = if given.replace_all { Wanted::All } else { Wanted::One };
    if new.matches(PLACEHOLDER).count() > old.matches(PLACEHOLDER).count() {
        return Err(Done::error(format!(
            "`new_string` has `{PLACEHOLDER}` in it, which stands for a secret that you were not shown; leave those lines out"
        )));
    }
    let shelf = Shelf::open(hands, scene.watch).await.map_err(Done::from)?;
    let look = |permit| async { shelf.files.read(permit, Part::Whole).await?.read_to_end(MOST_BYTES).await };
    let Some(Touched { got, real }) = shelf.glance(path, look).await else {
        return unseen(&shelf, path, &old, &new, wanted, scene).await;
    };
    let (bytes, end) = match got {
        Ok(read) => read,
        Err(error) if shelf::is_missing(&error) => return Err(missing(&shelf, path).await),
        Err(Error::TooLarge(_)) => return unseen(&shelf, path, &old, &new, wanted, scene).await,
        Err(error) => return Err(Done::error(shelf::fault(path, &error))),
    };
    let original = Original::new(path, &bytes, end.whole.map(|whole| whole.digest), real)?;
    // Where lines end alike, how the model ends them does not matter.
    let is_mixed = original.decoded.text.contains('\r');
    let ended = |text: String| if is_mixed { text } else { text.replace("\r\n", "\n") };
    let (old, new) = (ended(old), ended(new));
    let changed = {
        let (text, old, new) = (original.decoded.text.clone(), old.clone(), new.clone());
        // The forgiving ways of finding a text take their time.
        let find = move || matching::replace(&text, &old, &new, wanted);
        tokio::task::spawn_blocking(find).await.map_err(Done::error)?
    };
    let change = match changed {
        Ok(change) => change,
        Err(why) => return Err(failed(hands, path, &old, &why)),
    };
    put(&shelf, path, &original, &change, (&old, &new, wanted), scene).await?;
    lock(&hands.notes).mend(path);
    let after = original.decoded.style.encode(&change.content);
    lock(&hands.notes).know(&original.real, digest(&after));
    let mut answer = json!({
        "success": true,
        "diff": diff(path, &original.decoded.text, &change.content),
        "files_modified": [original.real],
        "replacements": change.count,
    });
    if change.strategy != Strategy::Exact {
        answer["strategy"] = json!(change.strategy.word());
        answer["hint"] =
            json!("`old_string` was not there exactly; see in the diff whether the right text was changed");
    }
    if let Some(lint) = lint(path, &change.content) {
        answer["lint"] = lint;
    }
    Ok(Done::worked(answer))
}

/// Brings a change to the file, if it is still what it was.
async fn put(
    shelf: &Shelf<'_>,
    path: &str,
    original: &Original,
    change: &Change,
    (old, new, wanted): (&str, &str, Wanted),
    scene: Scene<'_>,
) -> Result<(), Done> {
    let style = original.decoded.style;
    let bytes = style.encode(&change.content);
    let exact = change.strategy == Strategy::Exact;
    let act = |permit| async {
        if exact {
            // Only what changes travels.
            let (_, written) = shelf.files.patch(permit, vec![edit(style, old, new, wanted)]).await?;
            return Ok(written);
        }
        let how = Write { expect: Expect::Content(original.digest), parents: Parents::Require };
        let mut content = bytes.as_slice();
        shelf.files.write(permit, &mut content, how).await
    };
    let touched = shelf.touch(FileAccess::Write, path, scene, act).await.map_err(Done::from)?;
    match touched.got {
        Ok(_written) => Ok(()),
        Err(Error::FileFailed(FileFault::NoMatch { .. } | FileFault::Ambiguous { .. })) => {
            Err(Done::error(shelf::fault(path, &Error::FileFailed(FileFault::Changed))))
        }
        Err(error) => Err(Done::error(shelf::fault(path, &error))),
    }
}

fn edit(style: Style, old: &str, new: &str, wanted: Wanted) -> Edit {
    let occurrences = match wanted {
        Wanted::One => Occurrences::One,
        Wanted::All => Occurrences::All,
    };
    let bytes = |text: &str| ByteBuf::from(style.part(text));
    Edit { old: bytes(old), new: bytes(new), occurrences }
}

/// Changes a file that may not be read without a question, or that is too large: exactly, and without a look at it.
async fn unseen(
    shelf: &Shelf<'_>,
    path: &str,
    old: &str,
    new: &str,
    wanted: Wanted,
    scene: Scene<'_>,
) -> Result<Done, Done> {
    let act = |permit| shelf.files.patch(permit, vec![edit(Style::default(), old, new, wanted)]);
    let touched = shelf.touch(FileAccess::Write, path, scene, act).await.map_err(Done::from)?;
    match touched.got {
        Ok((counts, written)) => Ok(Done::worked(json!({
            "success": true,
            "diff": Value::Null,
            "files_modified": [String::from_utf8_lossy(&written.path)],
            "replacements": counts.first(),
            "note": "the file was not read, so there is no diff",
        }))),
        Err(error) if shelf::is_missing(&error) => Err(missing(shelf, path).await),
        Err(error) => Err(Done::error(shelf::fault(path, &error))),
    }
}

/// Says why a text could not be replaced, more plainly each time.
fn failed(hands: &Hands, path: &str, old: &str, why: &str) -> Done {
    let mut answer = json!({"success": false, "error": format!("{path}: {}", shown(why))});
    if old.contains(PLACEHOLDER) {
        answer["hint"] = json!(format!(
            "`{PLACEHOLDER}` stands for a secret that you were not shown and is not in the file; leave that line out"
        ));
    }
    if lock(&hands.notes).fail(path) >= PATIENCE {
        answer["hint"] = json!(
            "this has failed several times in a row: read the part of the file again and copy the text from there, \
             without the line numbers, or write the whole file"
        );
    }
    Done::failed(answer)
}

/// What changes, as others show it.
fn diff(path: &str, before: &str, after: &str) -> String {
    let diff = TextDiff::configure().timeout(DIFF_TIME).diff_lines(before, after);
    let (a, b) = (format!("a/{path}"), format!("b/{path}"));
    shown(&diff.unified_diff().context_radius(CONTEXT).header(&a, &b).to_string()).into_owned()
}

fn digest(bytes: &[u8]) -> Digest {
    use sha2::Digest as _;
    Digest(sha2::Sha256::digest(bytes).into())
}
