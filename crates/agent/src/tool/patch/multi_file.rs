//! A patch of several files. Everything is read, worked out and allowed before the first file is touched.

use std::collections::HashSet;

use hermes_exec::Error;
use hermes_exec::files::{Digest, Expect, Kind, Parents, Part, Write};
use hermes_policy::Permit;
use hermes_types::FileAccess;
use serde_json::{Value, json};

use super::format::{self, PatchOperation};
use super::{MAX_FILE_BYTES, OriginalFile, sha256, unified_diff};
use crate::ToolContext;
use crate::tool::files::{self, FileOutcome, PlaceFiles, check_path};
use crate::tool::read_file::missing_file_result;
use crate::tool::text::lint;
use crate::tool::{CallContext, ToolResult};
use crate::tool_context::lock;

/// One file that is going to change.
struct FileStep {
    path: String,
    real_path: String,
    change: FileChange,
    /// For the diff and the check of its syntax.
    before: String,
    after: String,
}

enum FileChange {
    Write { bytes: Vec<u8>, expect: Expect },
    Remove,
}

/// Where a file is, and what is in it.
enum TargetFile {
    Existing(OriginalFile, u32),
    Absent(String),
}

pub(super) async fn apply_patch(
    hands: &ToolContext,
    text: &str,
    scene: CallContext<'_>,
) -> Result<ToolResult, ToolResult> {
    if text.trim().is_empty() {
        return Err(ToolResult::error("mode=patch needs `patch`"));
    }
    let operations = format::parse_patch(text).map_err(ToolResult::error)?;
    let shelf = PlaceFiles::open(hands, scene.observer).await.map_err(ToolResult::from)?;
    let (mut steps, mut wrong, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for operation in &operations {
        match plan_operation(&shelf, operation, scene, &mut notes).await {
            Ok(planned) => steps.extend(planned),
            // What is not allowed ends it; what is wrong is told all at once.
            Err(done) if done.is_denied() => return Err(done),
            Err(done) => wrong.push(done.content),
        }
    }
    let mut seen = HashSet::new();
    for step in &steps {
        if !seen.insert(step.real_path.as_str()) {
            wrong.push(json!({"error": format!("{}: the patch changes this file twice", step.path)}));
        }
    }
    if !wrong.is_empty() {
        let why: Vec<&str> = wrong.iter().filter_map(|answer| answer["error"].as_str()).collect();
        let error = format!("nothing was written: {}", why.join("; "));
        return Err(ToolResult::failure(json!({"success": false, "error": error, "problems": wrong})));
    }
    let mut permits = Vec::new();
    for step in &steps {
        let access = match step.change {
            FileChange::Write { .. } => FileAccess::Write,
            FileChange::Remove => FileAccess::Delete,
        };
        permits.push(
            shelf
                .request_permit(access, &step.path, &step.real_path, scene)
                .await
                .map_err(ToolResult::from)?,
        );
    }
    let mut done: Vec<&FileStep> = Vec::new();
    for (step, permit) in steps.iter().zip(permits) {
        if let Err(error) = apply_step(&shelf, step, permit).await {
            let finished: Vec<&str> = done.iter().map(|step| step.path.as_str()).collect();
            return Err(ToolResult::failure(json!({
                "success": false,
                "error": format!("{}; the files before it are changed already", files::describe_error(&step.path, &error)),
                "files_modified": finished,
            })));
        }
        if let FileChange::Write { bytes, .. } = &step.change {
            lock(&hands.file_state).record_digest(&step.real_path, sha256(bytes));
        }
        done.push(step);
    }
    Ok(ToolResult::success(success_json(&steps, &notes)))
}

fn success_json(steps: &[FileStep], notes: &[String]) -> Value {
    let (mut modified, mut created, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let (mut diffs, mut lints) = (String::new(), serde_json::Map::new());
    for step in steps {
        diffs.push_str(&unified_diff(&step.path, &step.before, &step.after));
        match &step.change {
            FileChange::Remove => deleted.push(&step.real_path),
            FileChange::Write { expect: Expect::Absent, .. } => created.push(&step.real_path),
            FileChange::Write { .. } => modified.push(&step.real_path),
        }
        if let (FileChange::Write { .. }, Some(lint)) = (&step.change, lint(&step.path, &step.after)) {
            lints.insert(step.path.clone(), lint);
        }
    }
    let mut answer = json!({
        "success": true,
        "diff": diffs,
        "files_modified": modified,
        "files_created": created,
        "files_deleted": deleted,
    });
    if !lints.is_empty() {
        answer["lint"] = Value::Object(lints);
    }
    if !notes.is_empty() {
        answer["note"] = json!(notes.join("; "));
    }
    answer
}

/// Works out what an operation means for the files that are there.
async fn plan_operation(
    shelf: &PlaceFiles<'_>,
    operation: &PatchOperation,
    scene: CallContext<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<FileStep>, ToolResult> {
    match operation {
        PatchOperation::Add { path, content } => {
            let real = require_absent(shelf, path, scene).await?;
            Ok(vec![creation_step(path, real, content.clone(), content.as_bytes().to_vec())])
        }
        PatchOperation::Delete { path } => {
            let original = require_existing(shelf, path, scene).await?;
            Ok(vec![removal_step(shelf, path, original.0.decoded.text, scene).await?])
        }
        PatchOperation::Update { path, to, hunks } => {
            let (original, mode) = require_existing(shelf, path, scene).await?;
            let OriginalFile { decoded, digest, real_path } = original;
            let after = format::apply_hunks(&decoded.text, hunks)
                .map_err(|why| ToolResult::error(format!("{path}: {}", super::display_text(&why))))?;
            let bytes = decoded.style.encode(&after);
            let Some(to) = to else {
                let change = FileChange::Write { bytes, expect: Expect::Content(digest) };
                return Ok(vec![FileStep {
                    path: path.clone(),
                    real_path,
                    change,
                    before: decoded.text,
                    after,
                }]);
            };
            let target = require_absent(shelf, to, scene).await?;
            if mode & 0o111 != 0 {
                notes.push(format!(
                    "{to} is a new file and not executable, as {path} was; chmod +x makes it so"
                ));
            }
            let removal = removal_step(shelf, path, decoded.text, scene).await?;
            Ok(vec![creation_step(to, target, after, bytes), removal])
        }
    }
}

fn creation_step(path: &str, real: String, after: String, bytes: Vec<u8>) -> FileStep {
    let what = FileChange::Write { bytes, expect: Expect::Absent };
    FileStep { path: path.to_owned(), real_path: real, change: what, before: String::new(), after }
}

/// Removing a link removes the link itself, so its own path is what counts.
async fn removal_step(
    shelf: &PlaceFiles<'_>,
    path: &str,
    before: String,
    scene: CallContext<'_>,
) -> Result<FileStep, ToolResult> {
    let act = |permit| shelf.files.stat(permit);
    let touched = shelf.with_permit(FileAccess::Read, path, scene, act).await.map_err(ToolResult::from)?;
    let stat = touched.result.map_err(|error| ToolResult::error(files::describe_error(path, &error)))?;
    if stat.kind == Kind::Directory {
        return Err(ToolResult::error(format!("{path} is a directory")));
    }
    let (path, real) = (path.to_owned(), touched.real_path);
    Ok(FileStep { path, real_path: real, change: FileChange::Remove, before, after: String::new() })
}

/// The path of a file that is not there yet.
async fn require_absent(
    shelf: &PlaceFiles<'_>,
    path: &str,
    scene: CallContext<'_>,
) -> Result<String, ToolResult> {
    match read_target(shelf, path, scene).await? {
        TargetFile::Absent(real) => Ok(real),
        TargetFile::Existing(..) => {
            Err(ToolResult::error(format!("{path} is there already; update or delete it")))
        }
    }
}

async fn require_existing(
    shelf: &PlaceFiles<'_>,
    path: &str,
    scene: CallContext<'_>,
) -> Result<(OriginalFile, u32), ToolResult> {
    match read_target(shelf, path, scene).await? {
        TargetFile::Existing(original, mode) => Ok((original, mode)),
        TargetFile::Absent(_) => Err(missing_file_result(shelf, path).await),
    }
}

async fn read_target(
    shelf: &PlaceFiles<'_>,
    path: &str,
    scene: CallContext<'_>,
) -> Result<TargetFile, ToolResult> {
    let path = check_path(path)?;
    let act =
        |permit| async { shelf.files.read(permit, Part::Whole).await?.read_to_end(MAX_FILE_BYTES).await };
    let touched = shelf.with_permit(FileAccess::Read, path, scene, act).await.map_err(ToolResult::from)?;
    let FileOutcome { result: got, real_path: real } = touched;
    match got {
        Ok((bytes, end)) => {
            let digest: Option<Digest> = end.whole.map(|whole| whole.digest);
            Ok(TargetFile::Existing(OriginalFile::new(path, &bytes, digest, real)?, end.stat.mode))
        }
        Err(error) if files::is_missing(&error) => Ok(TargetFile::Absent(real)),
        Err(error) => Err(ToolResult::error(files::describe_error(path, &error))),
    }
}

async fn apply_step(shelf: &PlaceFiles<'_>, step: &FileStep, permit: Permit) -> Result<(), Error> {
    match &step.change {
        FileChange::Remove => shelf.files.remove(permit).await,
        FileChange::Write { bytes, expect } => {
            let how = Write { expect: *expect, parents: Parents::Create };
            shelf.files.write(permit, &mut bytes.as_slice(), how).await.map(drop)
        }
    }
}
