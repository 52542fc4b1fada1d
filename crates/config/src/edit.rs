//! Changing one value of a YAML text and leaving every other byte alone.
//!
//! The edit is made on the text, at the spans of the parsed tree, so comments, order, quoting and blank lines
//! stay as the owner wrote them. A comment inside a replaced value moves to a line of its own. The
//! result is parsed again and compared with what the change should have given: an edit that cannot be made
//! safely is refused and nothing is written.

mod render;
mod splice;

use serde_json::{Map, Value};
use thiserror::Error;

use super::yaml::{self, Document, From, Style, YamlError};
use render::{Among, scalar};
use splice::Editor;

/// One step from a mapping or a list to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// The value under this key.
    Key(String),
    /// The item at this index; the length of the list means behind its end.
    Index(usize),
}

/// Why a text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditError {
    /// The text is not YAML.
    #[error("line {}: {}", .0.at.line, .0.message)]
    Unreadable(YamlError),
    /// A step leads through something that has no such part.
    #[error("`{0}` is neither a map nor a list that has this part")]
    NoSuchPart(String),
    /// The value is tied to others by an anchor, an alias or a tag.
    #[error("`{0}` uses an anchor, an alias or a tag")]
    Shared(String),
    /// The changed text would not mean what was asked for.
    #[error("this part of the file is written in a way that cannot be changed safely")]
    Unsafe,
}

/// Puts `value` at `path`, making the maps on the way.
pub fn set(text: &str, path: &[Step], value: &Value) -> Result<String, EditError> {
    let document = read(text)?;
    let mut wanted = document.root.to_json();
    put(&mut wanted, path, value.clone()).ok_or_else(|| EditError::NoSuchPart(words(path)))?;
    checked(text, &document, Editor::new(text, &document).set(path, value)?, &wanted)
}

/// Removes the value at `path`, and maps that are empty without it. Removing what is not there changes nothing.
pub fn unset(text: &str, path: &[Step]) -> Result<String, EditError> {
    let document = read(text)?;
    let mut wanted = document.root.to_json();
    if !remove(&mut wanted, path) {
        return Ok(text.to_owned());
    }
    checked(text, &document, Editor::new(text, &document).unset(path)?, &wanted)
}

/// Gives the last step of `path` another name, where it stands.
pub fn rename(text: &str, path: &[Step], to: &str) -> Result<String, EditError> {
    let document = read(text)?;
    let Some((Step::Key(from), above)) = path.split_last() else { return Err(EditError::Unsafe) };
    let mut map = &document.root;
    let mut wanted = document.root.to_json();
    let mut at = &mut wanted;
    for step in above {
        let Step::Key(key) = step else { return Err(EditError::Unsafe) };
        let no_such_part = || EditError::NoSuchPart(words(path));
        map = map.get(key).ok_or_else(no_such_part)?;
        at = at.get_mut(key).ok_or_else(no_such_part)?;
    }
    let entry = map.entry(from).filter(|entry| entry.from == From::Here).ok_or(EditError::Unsafe)?;
    if let Value::Object(fields) = at {
        let renamed = |(key, value)| (if key == *from { to.to_owned() } else { key }, value);
        *fields = std::mem::take(fields).into_iter().map(renamed).collect();
    }
    let key = scalar(to, Style::Plain, Among::Commas);
    checked(text, &document, Editor::new(text, &document).splice(entry.span.clone(), &key), &wanted)
}

/// The comments of a text, in order.
pub fn comments(text: &str) -> Result<Vec<&str>, EditError> {
    read(text).map(|document| comments_of(text, &document))
}

fn comments_of<'t>(text: &'t str, document: &Document) -> Vec<&'t str> {
    document.comments.iter().filter_map(|span| text.get(span.clone())).map(str::trim_end).collect()
}

fn read(text: &str) -> Result<Document, EditError> {
    yaml::parse_document(text).map_err(EditError::Unreadable)
}

fn checked(before: &str, old: &Document, after: String, wanted: &Value) -> Result<String, EditError> {
    let new = read(&after).map_err(|_| EditError::Unsafe)?;
    let sorted = |text, document| {
        let mut found = comments_of(text, document);
        found.sort_unstable();
        found
    };
    let same_comments = sorted(before, old) == sorted(&after, &new);
    if same_comments && new.root.to_json() == *wanted { Ok(after) } else { Err(EditError::Unsafe) }
}

/// Applies the change to plain data; `None` where a step leads nowhere.
pub(crate) fn put(at: &mut Value, path: &[Step], value: Value) -> Option<()> {
    let Some((step, rest)) = path.split_first() else {
        *at = value;
        return Some(());
    };
    match step {
        Step::Key(key) => {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            put(at.as_object_mut()?.entry(key.clone()).or_insert(Value::Null), rest, value)
        }
        Step::Index(index) => {
            let items = at.as_array_mut()?;
            if *index == items.len() {
                items.push(Value::Null);
            }
            put(items.get_mut(*index)?, rest, value)
        }
    }
}

/// Removes from plain data; whether it was there.
pub(crate) fn remove(at: &mut Value, path: &[Step]) -> bool {
    match (path, at) {
        ([Step::Key(key)], Value::Object(map)) => map.shift_remove(key).is_some(),
        ([Step::Index(index)], Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        ([Step::Key(key), rest @ ..], Value::Object(map)) => {
            let Some(inner) = map.get_mut(key) else { return false };
            let removed = remove(inner, rest);
            if removed && inner.as_object().is_some_and(Map::is_empty) {
                map.shift_remove(key);
            }
            removed
        }
        ([Step::Index(index), rest @ ..], Value::Array(items)) => {
            items.get_mut(*index).is_some_and(|inner| remove(inner, rest))
        }
        _ => false,
    }
}

pub(crate) fn words(path: &[Step]) -> String {
    let parts: Vec<String> = path
        .iter()
        .map(|step| match step {
            Step::Key(key) => key.clone(),
            Step::Index(index) => index.to_string(),
        })
        .collect();
    parts.join(".")
}
