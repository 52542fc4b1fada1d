//! Answers that are too long for a conversation. They are put into a file of the place, where the model can page them.

use hermes_exec::files::{Expect, Parents, Write};
use hermes_types::{BackendName, FileAccess};
use serde_json::{Value, json};

use super::shelf::{self, Shelf};
use super::{Done, Scene, cut};
use crate::Hands;

/// Characters of an answer that are given as they are.
const MOST: usize = 100_000;
const PREVIEW: usize = 1_500;
/// Where they are put: what is in the temporary directory of a machine everybody there can read.
const FOLDER: &str = "/tmp/hermes-results";
const FOLDER_ON_MACHINES: &str = "~/.cache/hermes-results";

/// Replaces a long answer by where it is and how it begins.
pub(super) async fn keep_short(hands: &Hands, done: &mut Done, scene: Scene<'_>) {
    let whole = done.answer.to_string();
    let size = whole.chars().count();
    if size <= MOST {
        return;
    }
    let readable = readable(&done.answer);
    let preview = cut(&readable, PREVIEW);
    let mut answer = json!({"size": readable.chars().count(), "preview": preview});
    match put(hands, readable.as_bytes(), scene).await {
        Ok(path) => {
            answer["full_result"] = json!(path);
            answer["hint"] =
                json!("the answer is too long to be shown whole; read_file or search_files looks into it");
        }
        Err(why) => {
            answer["hint"] =
                json!(format!("the rest is lost, since it could not be kept: {why}; ask for less"));
        }
    }
    // What is short about it is still worth telling, the exit code first.
    if let (Value::Object(answer), Value::Object(told)) = (&mut answer, &done.answer) {
        let short = told.iter().filter(|(_, value)| value.to_string().len() < 500);
        for (name, value) in short {
            answer.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    done.answer = answer;
}

/// Long text stands by itself in the file, so that it has lines; anything else is there as indented JSON.
fn readable(answer: &Value) -> String {
    let mut text = String::new();
    if let Value::Object(fields) = answer {
        let long: Vec<&str> =
            fields.values().filter_map(Value::as_str).filter(|text| text.len() > MOST / 2).collect();
        if let [only] = long.as_slice() {
            text.push_str(only);
        }
    }
    if text.is_empty() { format!("{answer:#}") } else { text }
}

async fn put(hands: &Hands, content: &[u8], scene: Scene<'_>) -> Result<String, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let name: String = scene.call.as_str().chars().take(100).map(plain).collect();
    let folder = match hands.setup().plan.backend() {
        BackendName::Local | BackendName::Ssh => FOLDER_ON_MACHINES,
        _ => FOLDER,
    };
    let path = format!("{folder}/{name}.txt");
    let told = |done: Done| done.answer["error"].as_str().unwrap_or_default().to_owned();
    let shelf = Shelf::open(hands).await.map_err(|stopped| told(stopped.into()))?;
    let how = Write { expect: Expect::Anything, parents: Parents::Create };
    let act = |permit| async {
        let mut content = content;
        shelf.files.write(permit, &mut content, how).await
    };
    let touched = shelf.touch(FileAccess::Write, &path, scene, act).await;
    let written = touched.map_err(|stopped| told(stopped.into()))?.got;
    written.map(|_| path.clone()).map_err(|error| shelf::fault(&path, &error))
}
