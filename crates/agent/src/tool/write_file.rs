//! `write_file`: a whole file.

use hermes_exec::Error;
use hermes_exec::files::{Before, Expect, FileFault, Parents, Part, Write, Written};
use hermes_policy::redact::PLACEHOLDER;
use hermes_types::FileAccess;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::shelf::{self, NOT_FOUND, Shelf, Touched, checked};
use super::text::{Style, lint};
use super::{Done, Scene, arguments};
use crate::Hands;
use crate::hands::lock;

/// Bytes at the beginning of a file that tell how its lines end.
const SAMPLE: u64 = 200;
const MOST_SAMPLE: usize = 4 << 20;

#[derive(Deserialize)]
struct Arguments {
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

pub(super) async fn call(hands: &Hands, given: Map<String, Value>, scene: Scene<'_>) -> Done {
    match write(hands, given, scene).await {
        Ok(done) | Err(done) => done,
    }
}

async fn write(hands: &Hands, given: Map<String, Value>, scene: Scene<'_>) -> Result<Done, Done> {
    let Arguments { path, content } = arguments(given)?;
    let path = checked(&path)?;
    let shelf = Shelf::open(hands, scene.watch).await.map_err(Done::from)?;
    let part = Part::Lines { first: 1, count: SAMPLE };
    let look = |permit| async { shelf.files.read(permit, part).await?.read_to_end(MOST_SAMPLE).await };
    // What may not be read without a question is replaced as it is asked for, so that there is one question.
    let before = shelf.glance(path, look).await.and_then(|Touched { got, real }| Some((got.ok()?, real)));
    let mut warnings = Vec::new();
    let mut style = Style::default();
    if let Some(((sample, end), real)) = &before {
        style = Style::of(sample);
        if content.contains(PLACEHOLDER) && !String::from_utf8_lossy(sample).contains(PLACEHOLDER) {
            return Err(Done::error(format!(
                "the content has `{PLACEHOLDER}` in it, which stands for a secret that you were not shown; written, the \
                 secret would be lost. Change other lines of {path} with patch"
            )));
        }
        let stale = end.whole.is_some_and(|whole| lock(&hands.notes).is_stale(real, whole.digest));
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
        shelf.touch(FileAccess::Write, path, scene, act).await.map_err(Done::from)
    };
    let mut dirs_created = false;
    let mut touched = put(Parents::Require).await?;
    if matches!(touched.got, Err(Error::FileFailed(FileFault::Os { errno: NOT_FOUND }))) {
        dirs_created = true;
        touched = put(Parents::Create).await?;
    }
    let written = touched.got.map_err(|error| Done::error(shelf::fault(path, &error)))?;
    let real = String::from_utf8_lossy(&written.path).into_owned();
    lock(&hands.notes).know(&real, written.digest);
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
    Ok(Done::worked(answer))
}

fn is_new(written: &Written) -> bool {
    written.before == Before::Nothing
}
