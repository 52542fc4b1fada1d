//! Decodes the arguments of a tool call, in every form that providers send them.
//!
//! | received | result |
//! |---|---|
//! | JSON text of an object; an object; either inside a string or a list of one | that object |
//! | nothing, whitespace, `null`, `[]`, `""` | no arguments |
//! | `{}{…}`, the same object twice | the object, once |
//! | JSON with trailing commas, raw control characters, missing closing brackets, code fences | repaired, if the reply is complete |
//! | everything else, and everything truncated | broken; such a call never runs |

mod coerce;
mod repair;

use hermes_types::CallArguments;
use serde_json::{Map, Value};

pub use coerce::coerce;

use crate::json;

/// How deep strings may be nested around the object.
const MAX_NESTING: u8 = 3;

/// Whether a call arrived completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Completeness {
    /// Missing brackets were omitted by the model.
    Complete,
    /// The token limit or a lost connection ended the call, so the rest is unknown.
    Truncated,
}

/// Decodes arguments from their text.
pub fn decode(text: &str, completeness: Completeness) -> CallArguments {
    match parse_text(text, completeness, MAX_NESTING) {
        Ok(object) => CallArguments::Object(object),
        Err(reason) => CallArguments::Broken { text: text.to_owned(), why: reason },
    }
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
            Value::Array(items) => match items.as_slice() {
                [] => {}
                [one] => self.push(one),
                _ => self.text.push_str(&piece.to_string()),
            },
            scalar => self.text.push_str(&scalar.to_string()),
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

    pub(crate) fn finish(self, completeness: Completeness) -> CallArguments {
        let received = match (self.text.is_empty(), self.object.is_empty()) {
            (true, false) => Value::Object(self.object.clone()).to_string(),
            _ => self.text.clone(),
        };
        let broken = |reason: &str| CallArguments::Broken { text: received.clone(), why: reason.to_owned() };
        if self.has_contradiction {
            return broken("the same argument has two different values");
        }
        if completeness == Completeness::Truncated && self.is_empty() {
            return broken(TRUNCATED);
        }
        match decode(&self.text, completeness) {
            // Some servers send an empty object before the arguments.
            CallArguments::Object(object)
                if completeness == Completeness::Truncated && object.is_empty() && self.object.is_empty() =>
            {
                broken(TRUNCATED)
            }
            CallArguments::Object(object) if self.object.is_empty() => CallArguments::Object(object),
            CallArguments::Object(object) if object.is_empty() || object == self.object => {
                CallArguments::Object(self.object)
            }
            CallArguments::Object(_) => broken("the arguments came twice with different values"),
            broken @ CallArguments::Broken { .. } => broken,
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

const TRUNCATED: &str = "the arguments are truncated";

fn parse_text(text: &str, completeness: Completeness, depth: u8) -> Result<Map<String, Value>, String> {
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}' || c == '\0');
    if trimmed.is_empty() {
        return Ok(Map::new());
    }
    match parse_values(trimmed) {
        Ok(values) => merge_values(values, completeness, depth),
        Err(_) if completeness == Completeness::Truncated => Err(TRUNCATED.to_owned()),
        Err(error) => {
            let repaired = repair::repair(trimmed).and_then(|repaired| parse_values(&repaired).ok());
            match repaired {
                Some(values) => merge_values(values, completeness, depth),
                None => Err(format!("not JSON: {error}")),
            }
        }
    }
}

/// Parses a sequence of values.
fn parse_values(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    fn all(text: &str) -> Result<Vec<Value>, serde_json::Error> {
        serde_json::Deserializer::from_str(text).into_iter().collect()
    }
    all(text).or_else(|error| match json::replace_lone_surrogates(text) {
        Some(clean) => all(&clean),
        None => Err(error),
    })
}

/// The one object that the values represent.
fn merge_values(
    values: Vec<Value>,
    completeness: Completeness,
    depth: u8,
) -> Result<Map<String, Value>, String> {
    let mut found: Option<Map<String, Value>> = None;
    for value in values {
        let object = into_object(value, completeness, depth)?;
        match &found {
            Some(known) if object.is_empty() || *known == object => {}
            Some(known) if !known.is_empty() => {
                return Err("there are several different objects".to_owned());
            }
            _ => found = Some(object),
        }
    }
    Ok(found.unwrap_or_default())
}

fn into_object(value: Value, completeness: Completeness, depth: u8) -> Result<Map<String, Value>, String> {
    let kind = match value {
        Value::Object(object) => return Ok(object),
        Value::Null => return Ok(Map::new()),
        Value::String(text) if depth > 0 => return parse_text(&text, completeness, depth - 1),
        Value::Array(mut items) if items.len() < 2 && depth > 0 => {
            return items.pop().map_or(Ok(Map::new()), |item| into_object(item, completeness, depth - 1));
        }
        Value::String(_) => "a string",
        Value::Array(_) => "a list",
        Value::Number(_) => "a number",
        Value::Bool(_) => "a boolean",
    };
    Err(format!("{kind}, not an object"))
}

#[cfg(test)]
mod tests;
