//! Answers that are too long for a conversation. They are put into a file of the place, where the model can page them.

use hermes_exec::files::{Expect, Parents, Write};
use hermes_types::{BackendName, CallId, FileAccess};
use serde_json::{Value, json};

use super::shelf::{self, Shelf};
use super::{Done, Scene, cut};
use crate::{Hands, notice};

/// Characters of an answer that are given as they are.
const MOST: usize = 100_000;
/// Characters of all answers to the calls of one message.
const MOST_TOGETHER: usize = 200_000;
/// Characters of an answer that is never put into a file.
const SHORT: usize = 3_000;
const PREVIEW: usize = 1_500;
/// What is told beside an answer stays, however long it is.
const BESIDE: [&str; 3] = ["warning", "user_says", notice::FIELD];
/// Where they are put: what is in the temporary directory of a machine everybody there can read.
const FOLDER: &str = "/tmp/hermes-results";
const FOLDER_ON_MACHINES: &str = "~/.cache/hermes-results";

/// Replaces a long answer by where it is and how it begins.
pub(super) async fn keep_short(hands: &Hands, done: &mut Done, scene: Scene<'_>) {
    if done.answer.to_string().chars().count() > MOST {
        done.answer = spilled(hands, &done.answer, scene).await;
    }
}

/// Of the answers to the calls of one message those that are too long together, the longest first, each with what it
/// is replaced by. The scene is that of any of them.
pub(crate) async fn keep_short_together(
    hands: &Hands,
    mut answers: Vec<(CallId, String)>,
    scene: Scene<'_>,
) -> Vec<(CallId, String)> {
    let size = |text: &str| text.chars().count();
    let mut total: usize = answers.iter().map(|(_, text)| size(text)).sum();
    answers.sort_by_key(|(_, text)| std::cmp::Reverse(size(text)));
    let mut replaced = Vec::new();
    for (call, text) in answers {
        let before = size(&text);
        if total <= MOST_TOGETHER || before <= SHORT {
            break;
        }
        let answer = serde_json::from_str(&text).unwrap_or(Value::String(text));
        let text = spilled(hands, &answer, Scene { call: &call, ..scene }).await.to_string();
        total = total - before + size(&text);
        replaced.push((call, text));
    }
    replaced
}

/// Where a long answer is and how it begins.
async fn spilled(hands: &Hands, whole: &Value, scene: Scene<'_>) -> Value {
    let readable = readable(whole);
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
    if let (Value::Object(answer), Value::Object(told)) = (&mut answer, whole) {
        let is_kept = |name: &str, value: &Value| BESIDE.contains(&name) || value.to_string().len() < 500;
        let short = told.iter().filter(|(name, value)| is_kept(name, value));
        for (name, value) in short {
            answer.entry(name.clone()).or_insert_with(|| value.clone());
        }
    }
    answer
}

/// Long text stands by itself in the file, so that it has lines; anything else is there as indented JSON.
fn readable(answer: &Value) -> String {
    let mut text = String::new();
    if let Value::Object(fields) = answer {
        let texts = || fields.values().filter_map(Value::as_str);
        let quarter = texts().map(str::len).sum::<usize>() / 4;
        let long: Vec<&str> = texts().filter(|text| text.len() > quarter).collect();
        if let [only] = long.as_slice() {
            text.push_str(only);
        }
    }
    if text.is_empty() { format!("{answer:#}") } else { text }
}

async fn put(hands: &Hands, content: &[u8], scene: Scene<'_>) -> Result<String, String> {
    let plain = |c: char| if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') { c } else { '_' };
    let name: String = scene.call.as_str().chars().take(100).map(plain).collect();
    let folder = match hands.setup().plan.backend_name() {
        BackendName::Local | BackendName::Ssh => FOLDER_ON_MACHINES,
        _ => FOLDER,
    };
    let path = format!("{folder}/{name}.txt");
    let told = |done: Done| done.answer["error"].as_str().unwrap_or_default().to_owned();
    let shelf = Shelf::open(hands, scene.watch).await.map_err(|stopped| told(stopped.into()))?;
    let how = Write { expect: Expect::Anything, parents: Parents::Create };
    let act = |permit| async {
        let mut content = content;
        shelf.files.write(permit, &mut content, how).await
    };
    let touched = shelf.touch(FileAccess::Write, &path, scene, act).await;
    let written = touched.map_err(|stopped| told(stopped.into()))?.got;
    written.map(|_| path.clone()).map_err(|error| shelf::fault(&path, &error))
}
