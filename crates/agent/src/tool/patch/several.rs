//! A patch of several files. Everything is read, worked out and allowed before the first file is touched.

use std::collections::HashSet;

use hermes_exec::Error;
use hermes_exec::files::{Digest, Expect, Kind, Parents, Part, Write};
use hermes_policy::Permit;
use hermes_types::FileAccess;
use serde_json::{Value, json};

use super::format::{self, Operation};
use super::{MOST_BYTES, Original, diff, digest};
use crate::Hands;
use crate::hands::lock;
use crate::tool::read_file::missing;
use crate::tool::shelf::{self, Shelf, Touched, checked};
use crate::tool::text::lint;
use crate::tool::{Done, Scene};

/// One file that is going to change.
struct Step {
    path: String,
    real: String,
    what: What,
    /// For the diff and the check of its syntax.
    before: String,
    after: String,
}

enum What {
    Put { bytes: Vec<u8>, expect: Expect },
    Remove,
}

/// Where a file is, and what is in it.
enum There {
    File(Original, u32),
    Nothing(String),
}

pub(super) async fn apply(hands: &Hands, text: &str, scene: Scene<'_>) -> Result<Done, Done> {
    if text.trim().is_empty() {
        return Err(Done::error("mode=patch needs `patch`"));
    }
    let operations = format::parse(text).map_err(Done::error)?;
    let shelf = Shelf::open(hands, scene.watch).await.map_err(Done::from)?;
    let (mut steps, mut wrong, mut notes) = (Vec::new(), Vec::new(), Vec::new());
    for operation in &operations {
        match plan(&shelf, operation, scene, &mut notes).await {
            Ok(planned) => steps.extend(planned),
            // What is not allowed ends it; what is wrong is told all at once.
            Err(done) if done.is_refused() => return Err(done),
            Err(done) => wrong.push(done.answer),
        }
    }
    let mut seen = HashSet::new();
    for step in &steps {
        if !seen.insert(step.real.as_str()) {
            wrong.push(json!({"error": format!("{}: the patch changes this file twice", step.path)}));
        }
    }
    if !wrong.is_empty() {
        let why: Vec<&str> = wrong.iter().filter_map(|answer| answer["error"].as_str()).collect();
        let error = format!("nothing was written: {}", why.join("; "));
        return Err(Done::failed(json!({"success": false, "error": error, "problems": wrong})));
    }
    let mut permits = Vec::new();
    for step in &steps {
        let access = match step.what {
            What::Put { .. } => FileAccess::Write,
            What::Remove => FileAccess::Delete,
        };
        permits.push(shelf.permit(access, &step.path, &step.real, scene).await.map_err(Done::from)?);
    }
    let mut done: Vec<&Step> = Vec::new();
    for (step, permit) in steps.iter().zip(permits) {
        if let Err(error) = carry_out(&shelf, step, permit).await {
            let finished: Vec<&str> = done.iter().map(|step| step.path.as_str()).collect();
            return Err(Done::failed(json!({
                "success": false,
                "error": format!("{}; the files before it are changed already", shelf::fault(&step.path, &error)),
                "files_modified": finished,
            })));
        }
        if let What::Put { bytes, .. } = &step.what {
            lock(&hands.notes).know(&step.real, digest(bytes));
        }
        done.push(step);
    }
    Ok(Done::worked(told(&steps, &notes)))
}

fn told(steps: &[Step], notes: &[String]) -> Value {
    let (mut modified, mut created, mut deleted) = (Vec::new(), Vec::new(), Vec::new());
    let (mut diffs, mut lints) = (String::new(), serde_json::Map::new());
    for step in steps {
        diffs.push_str(&diff(&step.path, &step.before, &step.after));
        match &step.what {
            What::Remove => deleted.push(&step.real),
            What::Put { expect: Expect::Absent, .. } => created.push(&step.real),
            What::Put { .. } => modified.push(&step.real),
        }
        if let (What::Put { .. }, Some(lint)) = (&step.what, lint(&step.path, &step.after)) {
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
async fn plan(
    shelf: &Shelf<'_>,
    operation: &Operation,
    scene: Scene<'_>,
    notes: &mut Vec<String>,
) -> Result<Vec<Step>, Done> {
    match operation {
        Operation::Add { path, content } => {
            let real = absent(shelf, path, scene).await?;
            Ok(vec![new_file(path, real, content.clone(), content.as_bytes().to_vec())])
        }
        Operation::Delete { path } => {
            let original = existing(shelf, path, scene).await?;
            Ok(vec![removal(shelf, path, original.0.decoded.text, scene).await?])
        }
        Operation::Update { path, to, hunks } => {
            let (original, mode) = existing(shelf, path, scene).await?;
            let Original { decoded, digest, real } = original;
            let after = format::changed(&decoded.text, hunks)
                .map_err(|why| Done::error(format!("{path}: {}", super::shown(&why))))?;
            let bytes = decoded.style.encode(&after);
            let Some(to) = to else {
                let what = What::Put { bytes, expect: Expect::Content(digest) };
                return Ok(vec![Step { path: path.clone(), real, what, before: decoded.text, after }]);
            };
            let target = absent(shelf, to, scene).await?;
            if mode & 0o111 != 0 {
                notes.push(format!(
                    "{to} is a new file and not executable, as {path} was; chmod +x makes it so"
                ));
            }
            let removal = removal(shelf, path, decoded.text, scene).await?;
            Ok(vec![new_file(to, target, after, bytes), removal])
        }
    }
}

fn new_file(path: &str, real: String, after: String, bytes: Vec<u8>) -> Step {
    let what = What::Put { bytes, expect: Expect::Absent };
    Step { path: path.to_owned(), real, what, before: String::new(), after }
}

/// Removing a link removes the link itself, so its own path is what counts.
async fn removal(shelf: &Shelf<'_>, path: &str, before: String, scene: Scene<'_>) -> Result<Step, Done> {
    let act = |permit| shelf.files.stat(permit);
    let touched = shelf.touch(FileAccess::Read, path, scene, act).await.map_err(Done::from)?;
    let stat = touched.got.map_err(|error| Done::error(shelf::fault(path, &error)))?;
    if stat.kind == Kind::Directory {
        return Err(Done::error(format!("{path} is a directory")));
    }
    let (path, real) = (path.to_owned(), touched.real);
    Ok(Step { path, real, what: What::Remove, before, after: String::new() })
}

/// The path of a file that is not there yet.
async fn absent(shelf: &Shelf<'_>, path: &str, scene: Scene<'_>) -> Result<String, Done> {
    match look(shelf, path, scene).await? {
        There::Nothing(real) => Ok(real),
        There::File(..) => Err(Done::error(format!("{path} is there already; update or delete it"))),
    }
}

async fn existing(shelf: &Shelf<'_>, path: &str, scene: Scene<'_>) -> Result<(Original, u32), Done> {
    match look(shelf, path, scene).await? {
        There::File(original, mode) => Ok((original, mode)),
        There::Nothing(_) => Err(missing(shelf, path).await),
    }
}

async fn look(shelf: &Shelf<'_>, path: &str, scene: Scene<'_>) -> Result<There, Done> {
    let path = checked(path)?;
    let act = |permit| async { shelf.files.read(permit, Part::Whole).await?.read_to_end(MOST_BYTES).await };
    let touched = shelf.touch(FileAccess::Read, path, scene, act).await.map_err(Done::from)?;
    let Touched { got, real } = touched;
    match got {
        Ok((bytes, end)) => {
            let digest: Option<Digest> = end.whole.map(|whole| whole.digest);
            Ok(There::File(Original::new(path, &bytes, digest, real)?, end.stat.mode))
        }
        Err(error) if shelf::is_missing(&error) => Ok(There::Nothing(real)),
        Err(error) => Err(Done::error(shelf::fault(path, &error))),
    }
}

async fn carry_out(shelf: &Shelf<'_>, step: &Step, permit: Permit) -> Result<(), Error> {
    match &step.what {
        What::Remove => shelf.files.remove(permit).await,
        What::Put { bytes, expect } => {
            let how = Write { expect: *expect, parents: Parents::Create };
            shelf.files.write(permit, &mut bytes.as_slice(), how).await.map(drop)
        }
    }
}
