//! Decodes the arguments of a tool call, in every form that providers send them.
//!
//! | received | result |
//! |---|---|
//! | JSON text of an object; an object; either inside a string or a list of one | that object |
//! | nothing, whitespace, `null`, `[]`, `""` | no arguments |
//! | `{}{…}`, the same object twice | the object, once |
//! | trailing commas, control characters, missing closing brackets, code fences | repaired, if complete |
//! | everything else, and everything truncated | broken; such a call never runs |

mod coerce;
mod repair;

use hermes_types::CallArguments;
use serde::de::Error as _;
use serde_json::{Error, Map, Value};

pub use coerce::coerce;

use crate::json;

/// How deep strings may be nested around the object.
const MAX_NESTING: u8 = 3;

const TRUNCATED: &str = "the arguments are truncated";

type ArgumentsResult = serde_json::Result<Map<String, Value>>;

/// Decodes arguments from their text. If the token limit or a lost connection truncated the call,
/// missing brackets are not added: the rest is unknown.
pub(crate) fn decode(text: &str, is_truncated: bool) -> ArgumentsResult {
    parse_text(text, is_truncated, MAX_NESTING)
}

/// Arguments that arrive as text, as values, or as both.
#[derive(Debug, Default, Clone)]
pub(crate) struct ArgumentsBuilder {
    text: String,
    object: Map<String, Value>,
    has_contradiction: bool,
}

impl ArgumentsBuilder {
    /// Adds a piece of any type.
    pub(crate) fn push(&mut self, piece: &Value) {
        match piece {
            Value::Null => {}
            Value::String(text) => self.text.push_str(text),
            Value::Object(object) => object.iter().for_each(|(key, value)| self.merge_entry(key, value)),
            Value::Array(items) if items.len() < 2 => items.iter().for_each(|item| self.push(item)),
            other => self.text.push_str(&other.to_string()),
        }
    }

    /// Whether no argument arrived yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_empty() && self.text.trim().is_empty()
    }

    /// Replaces all pieces by the complete arguments, if there are any.
    pub(crate) fn replace(&mut self, complete: &Value) {
        let mut other = Self::default();
        other.push(complete);
        if !other.is_empty() {
            *self = other;
        }
    }

    pub(crate) fn finish(self, is_truncated: bool) -> CallArguments {
        let received = match (self.text.is_empty(), self.object.is_empty()) {
            (true, false) => Value::Object(self.object.clone()).to_string(),
            _ => self.text.clone(),
        };
        match self.decode(is_truncated) {
            Ok(object) => CallArguments::Object(object),
            Err(error) => CallArguments::Broken { text: received, why: error.to_string() },
        }
    }

    fn decode(self, is_truncated: bool) -> ArgumentsResult {
        if self.has_contradiction {
            return Err(Error::custom("the same argument has two different values"));
        }
        let object = decode(&self.text, is_truncated)?;
        match (object.is_empty(), self.object.is_empty()) {
            // Some servers send an empty object before the arguments.
            (true, true) if is_truncated => Err(Error::custom(TRUNCATED)),
            (_, true) => Ok(object),
            (true, false) => Ok(self.object),
            (false, false) if object == self.object => Ok(object),
            (false, false) => Err(Error::custom("the arguments came twice with different values")),
        }
    }

    /// Adds an entry of an object. A server that repeats an entry may only extend its text.
    fn merge_entry(&mut self, key: &str, value: &Value) {
        let contradicts = match (self.object.get(key), value) {
            (None | Some(Value::Null), _) => false,
            (Some(Value::String(old)), Value::String(new)) => !new.starts_with(old.as_str()),
            (Some(old), new) => old != new,
        };
        self.has_contradiction |= contradicts;
        self.object.insert(key.to_owned(), value.clone());
    }
}

fn parse_text(text: &str, is_truncated: bool, depth: u8) -> ArgumentsResult {
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}' || c == '\0');
    let values = parse_values(trimmed).or_else(|error| {
        if is_truncated {
            return Err(Error::custom(TRUNCATED));
        }
        let repaired = repair::repair(trimmed).and_then(|repaired| parse_values(&repaired).ok());
        repaired.ok_or_else(|| Error::custom(format!("not JSON: {error}")))
    })?;
    merge_values(values, is_truncated, depth)
}

/// Parses a sequence of values.
fn parse_values(text: &str) -> serde_json::Result<Vec<Value>> {
    let parse = |text: &str| serde_json::Deserializer::from_str(text).into_iter().collect();
    json::tolerate_lone_surrogates(text, parse)
}

/// The one object that the values represent.
fn merge_values(values: Vec<Value>, is_truncated: bool, depth: u8) -> ArgumentsResult {
    let mut found = Map::new();
    for value in values {
        let object = into_object(value, is_truncated, depth)?;
        if found.is_empty() {
            found = object;
        } else if !object.is_empty() && found != object {
            return Err(Error::custom("there are several different objects"));
        }
    }
    Ok(found)
}

fn into_object(value: Value, is_truncated: bool, depth: u8) -> ArgumentsResult {
    let kind = match value {
        Value::Object(object) => return Ok(object),
        Value::Null => return Ok(Map::new()),
        Value::String(text) if depth > 0 => return parse_text(&text, is_truncated, depth - 1),
        Value::Array(mut items) if items.len() < 2 && depth > 0 => {
            return into_object(items.pop().unwrap_or_default(), is_truncated, depth - 1);
        }
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a boolean",
    };
    Err(Error::custom(format!("{kind}, not an object")))
}

#[cfg(test)]
mod tests;
