//! A patch of several files. All files are read, all changes computed and all permits granted
//! before the first file changes.

use std::collections::HashSet;

use hermes_exec::Error as ExecError;
use hermes_exec::files::{FileKind, FileRange, ParentDirs, Precondition, WriteOptions};
use hermes_policy::Permit;
use hermes_types::FileAccess;
use serde_json::{Value, json};

use super::format::{self, PatchOperation};
use super::{MAX_FILE_BYTES, OriginalFile, sha256, unified_diff};
use crate::tool::read_file::missing_file_result;
use crate::tool::{CallContext, CallResult, ToolResult};
use crate::tool_support::files::{FileOutcome, PlaceFiles, check_path, file_error, is_missing};
use crate::tool_support::text::{display_text, lint};
use crate::{Error, ToolContext, lock};

/// The change of one file.
struct FileStep {
    path: String,
    real_path: String,
    /// The new bytes and the state that the file must be in; none to remove the file.
    write: Option<(Vec<u8>, Precondition)>,
    /// Content for the diff and the syntax check.
    before: String,
    after: String,
}

pub(super) async fn apply_patch(context: &ToolContext, text: &str, call: CallContext<'_>) -> CallResult {
    if text.trim().is_empty() {
        return Err(ToolResult::error("mode=patch needs `patch`"));
    }
    let operations = format::parse_patch(text)?;
    let files = PlaceFiles::open(context, call).await?;
    let (steps, notes) = plan_steps(&files, &operations).await?;
    let mut permits = Vec::new();
    for step in &steps {
        let access = if step.write.is_some() { FileAccess::Write } else { FileAccess::Delete };
        permits.push(files.request_permit(access, &step.path, &step.real_path).await?);
    }
    let mut finished: Vec<&str> = Vec::new();
    for (step, permit) in steps.iter().zip(permits) {
        if let Err(error) = apply_step(&files, step, permit).await {
            let error = file_error(&step.path, &error);
            return Err(ToolResult::failure(json!({
                "success": false,
                "error": format!("{error}; the files before it are changed already"),
                "files_modified": finished,
            })));
        }
        if let Some((bytes, _)) = &step.write {
            lock(&context.file_state).record_digest(&step.real_path, sha256(bytes));
        }
        finished.push(&step.path);
    }
    Ok(ToolResult::success(success_json(&steps, &notes)))
}

/// Computes all steps and notes about them. A denial ends the patch; other errors are reported
/// together.
async fn plan_steps(
    files: &PlaceFiles<'_>,
    operations: &[PatchOperation],
) -> Result<(Vec<FileStep>, Vec<String>), ToolResult> {
    let (mut steps, mut problems, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for operation in operations {
        match plan_operation(files, operation, &mut notes).await {
            Ok(planned) => steps.extend(planned),
            Err(result) if result.is_denied() => return Err(result),
            Err(result) => problems.push(result.content),
        }
    }
    let mut changed = HashSet::new();
    for step in &steps {
        if !changed.insert(step.real_path.as_str()) {
            problems.push(json!({"error": format!("{}: the patch changes this file twice", step.path)}));
        }
    }
    if problems.is_empty() {
        return Ok((steps, notes));
    }
    let reasons: Vec<&str> = problems.iter().filter_map(|problem| problem["error"].as_str()).collect();
    let error = format!("nothing was written: {}", reasons.join("; "));
    Err(ToolResult::failure(json!({"success": false, "error": error, "problems": problems})))
}

fn success_json(steps: &[FileStep], notes: &[String]) -> Value {
    let (mut modified, mut created, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let (mut diffs, mut lints) = (String::new(), serde_json::Map::new());
    for step in steps {
        diffs.push_str(&unified_diff(&step.path, &step.before, &step.after));
        match &step.write {
            None => deleted.push(&step.real_path),
            Some((_, Precondition::Absent)) => created.push(&step.real_path),
            Some(_) => modified.push(&step.real_path),
        }
        if let (Some(_), Some(lint)) = (&step.write, lint(&step.path, &step.after)) {
            lints.insert(step.path.clone(), lint);
        }
    }
    let mut result = json!({
        "success": true,
        "diff": diffs,
        "files_modified": modified,
        "files_created": created,
        "files_deleted": deleted,
    });
    if !lints.is_empty() {
        result["lint"] = Value::Object(lints);
    }
    if !notes.is_empty() {
        result["note"] = json!(notes.join("; "));
    }
    result
}

/// Computes the steps of one operation from the current files.
async fn plan_operation(
    files: &PlaceFiles<'_>,
    operation: &PatchOperation,
    notes: &mut Vec<String>,
) -> Result<Vec<FileStep>, ToolResult> {
    match operation {
        PatchOperation::Add { path, content } => {
            let real_path = require_absent(files, path).await?;
            Ok(vec![creation_step(path, real_path, content.clone(), content.as_bytes().to_vec())])
        }
        PatchOperation::Delete { path } => {
            let original = require_existing(files, path).await?;
            Ok(vec![removal_step(files, path, original.decoded.text).await?])
        }
        PatchOperation::Update { path, to, hunks } => {
            let OriginalFile { decoded, digest, mode, real_path } = require_existing(files, path).await?;
            let after = format::apply_hunks(&decoded.text, hunks).map_err(|reason| {
                ToolResult::error(format!("{path}: {}", display_text(&reason.to_string())))
            })?;
            let bytes = decoded.style.encode(&after);
            let Some(to) = to else {
                let write = Some((bytes, Precondition::Content(digest)));
                let (path, before) = (path.clone(), decoded.text);
                return Ok(vec![FileStep { path, real_path, write, before, after }]);
            };
            let target = require_absent(files, to).await?;
            if mode & 0o111 != 0 {
                notes.push(format!(
                    "{to} is a new file and not executable, as {path} was; chmod +x makes it so"
                ));
            }
            let removal = removal_step(files, path, decoded.text).await?;
            Ok(vec![creation_step(to, target, after, bytes), removal])
        }
    }
}

fn creation_step(path: &str, real_path: String, after: String, bytes: Vec<u8>) -> FileStep {
    let write = Some((bytes, Precondition::Absent));
    FileStep { path: path.to_owned(), real_path, write, before: String::new(), after }
}

/// Removing a link removes the link itself, so the path of the link counts.
async fn removal_step(files: &PlaceFiles<'_>, path: &str, before: String) -> Result<FileStep, Error> {
    let stat = |permit| files.guest.stat(permit);
    let FileOutcome { result, real_path } = files.with_permit(FileAccess::Read, path, stat).await?;
    if result.map_err(|error| file_error(path, &error))?.kind == FileKind::Directory {
        return Err(Error::File(format!("{path} is a directory")));
    }
    let path = path.to_owned();
    Ok(FileStep { path, real_path, write: None, before, after: String::new() })
}

/// The real path of a file that must not exist yet.
async fn require_absent(files: &PlaceFiles<'_>, path: &str) -> Result<String, ToolResult> {
    match read_target(files, path).await? {
        (None, real_path) => Ok(real_path),
        (Some(_), _) => Err(ToolResult::error(format!("{path} exists already; update or delete it"))),
    }
}

async fn require_existing(files: &PlaceFiles<'_>, path: &str) -> Result<OriginalFile, ToolResult> {
    match read_target(files, path).await? {
        (Some(original), _) => Ok(original),
        (None, _) => Err(missing_file_result(files, path).await),
    }
}

/// A file that a patch names, none if it does not exist, and its real path.
async fn read_target(
    files: &PlaceFiles<'_>,
    path: &str,
) -> Result<(Option<OriginalFile>, String), ToolResult> {
    let path = check_path(path)?;
    let read = |permit| files.read(permit, FileRange::Whole, MAX_FILE_BYTES);
    let FileOutcome { result, real_path } = files.with_permit(FileAccess::Read, path, read).await?;
    match result {
        Ok(read) => Ok((Some(OriginalFile::new(path, read, real_path.clone())?), real_path)),
        Err(error) if is_missing(&error) => Ok((None, real_path)),
        Err(error) => Err(file_error(path, &error).into()),
    }
}

async fn apply_step(files: &PlaceFiles<'_>, step: &FileStep, permit: Permit) -> Result<(), ExecError> {
    let Some((bytes, precondition)) = &step.write else { return files.guest.remove(permit).await };
    let options = WriteOptions { precondition: *precondition, parents: ParentDirs::Create };
    files.write(permit, bytes, options).await.map(drop)
}
