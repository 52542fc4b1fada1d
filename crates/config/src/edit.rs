//! Changes one value of a YAML text and leaves all other bytes unchanged.
//!
//! The edit is made in the text, at the spans of the parsed tree, so comments, order, quoting and
//! blank lines are preserved. A comment inside a replaced value moves to its own line. The result
//! is parsed and compared with the intended change; an edit that cannot be made safely is an error.

mod render;
mod splice;

use serde_json::{Map, Value};
use thiserror::Error;

use super::yaml::{self, Document, ScalarStyle, YamlError};
use render::{ScalarContext, scalar};
use splice::YamlEditor;

/// One step from a mapping or a list to a value in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PathStep {
    Key(String),
    /// An item; the length of the list appends one.
    Index(usize),
}

/// The reason why a text was not changed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum EditError {
    #[error("not UTF-8")]
    NotText,
    /// The text is not YAML.
    #[error("line {}: {}", .0.at.line, .0.message)]
    Unreadable(YamlError),
    #[error("`{0}` is neither a map nor a list that has this part")]
    NoSuchPart(String),
    #[error("`{0}` uses an anchor, an alias or a tag")]
    Shared(String),
    /// The changed text would not have the intended meaning.
    #[error("this part of the file is written in a way that cannot be changed safely")]
    Unsafe,
}

/// Sets the value at `path` and creates missing maps.
pub fn set(text: &str, path: &[PathStep], value: &Value) -> Result<String, EditError> {
    let document = read(text)?;
    let mut expected = document.root.to_json();
    set_value(&mut expected, path, value.clone()).ok_or_else(|| EditError::NoSuchPart(dotted_path(path)))?;
    verify_edit(text, &document, YamlEditor::new(text, &document).set(path, value)?, &expected)
}

/// Removes the value at `path`, and maps that become empty. A missing value is not an error.
pub fn unset(text: &str, path: &[PathStep]) -> Result<String, EditError> {
    let document = read(text)?;
    let mut expected = document.root.to_json();
    if !remove_value(&mut expected, path) {
        return Ok(text.to_owned());
    }
    verify_edit(text, &document, YamlEditor::new(text, &document).unset(path)?, &expected)
}

/// Renames the last step of `path` in place.
pub fn rename(text: &str, path: &[PathStep], to: &str) -> Result<String, EditError> {
    let document = read(text)?;
    let Some((PathStep::Key(from), above)) = path.split_last() else { return Err(EditError::Unsafe) };
    let mut map = &document.root;
    let mut expected = document.root.to_json();
    let mut at = &mut expected;
    for step in above {
        let PathStep::Key(key) = step else { return Err(EditError::Unsafe) };
        let no_such_part = || EditError::NoSuchPart(dotted_path(path));
        map = map.get(key).ok_or_else(no_such_part)?;
        at = at.get_mut(key).ok_or_else(no_such_part)?;
    }
    let entry = map.entry(from).filter(|entry| !entry.is_merged).ok_or(EditError::Unsafe)?;
    if let Value::Object(fields) = at {
        let renamed = |(key, value)| (if key == *from { to.to_owned() } else { key }, value);
        *fields = std::mem::take(fields).into_iter().map(renamed).collect();
    }
    let key = scalar(to, ScalarStyle::Plain, ScalarContext::Flow);
    verify_edit(text, &document, YamlEditor::new(text, &document).splice(entry.span.clone(), &key), &expected)
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

fn verify_edit(before: &str, old: &Document, after: String, expected: &Value) -> Result<String, EditError> {
    let new = read(&after).map_err(|_| EditError::Unsafe)?;
    let sorted = |text, document| {
        let mut found = comments_of(text, document);
        found.sort_unstable();
        found
    };
    let same_comments = sorted(before, old) == sorted(&after, &new);
    if same_comments && new.root.to_json() == *expected { Ok(after) } else { Err(EditError::Unsafe) }
}

/// Applies the change to plain data; `None` if a step does not exist.
pub(crate) fn set_value(at: &mut Value, path: &[PathStep], value: Value) -> Option<()> {
    let Some((step, rest)) = path.split_first() else {
        *at = value;
        return Some(());
    };
    match step {
        PathStep::Key(key) => {
            if at.is_null() {
                *at = Value::Object(Map::new());
            }
            set_value(at.as_object_mut()?.entry(key.clone()).or_insert(Value::Null), rest, value)
        }
        PathStep::Index(index) => {
            let items = at.as_array_mut()?;
            if *index == items.len() {
                items.push(Value::Null);
            }
            set_value(items.get_mut(*index)?, rest, value)
        }
    }
}

/// Removes a value from plain data; false if it does not exist.
pub(crate) fn remove_value(at: &mut Value, path: &[PathStep]) -> bool {
    match (path, at) {
        ([PathStep::Key(key)], Value::Object(map)) => map.shift_remove(key).is_some(),
        ([PathStep::Index(index)], Value::Array(items)) if *index < items.len() => {
            items.remove(*index);
            true
        }
        ([PathStep::Key(key), rest @ ..], Value::Object(map)) => {
            let Some(inner) = map.get_mut(key) else { return false };
            let removed = remove_value(inner, rest);
            if removed && inner.as_object().is_some_and(Map::is_empty) {
                map.shift_remove(key);
            }
            removed
        }
        ([PathStep::Index(index), rest @ ..], Value::Array(items)) => {
            items.get_mut(*index).is_some_and(|inner| remove_value(inner, rest))
        }
        _ => false,
    }
}

pub(crate) fn dotted_path(path: &[PathStep]) -> String {
    let part = |step: &PathStep| match step {
        PathStep::Key(key) => key.clone(),
        PathStep::Index(index) => index.to_string(),
    };
    path.iter().map(part).collect::<Vec<_>>().join(".")
}
