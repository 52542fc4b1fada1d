//! The arguments of a tool call: one decoder for every shape in which they come, from any provider, in pieces or whole.
//!
//! | what comes | what it is |
//! |---|---|
//! | JSON text of an object; an object; either inside a text or a list of one | that object |
//! | nothing, blanks, `null`, `[]`, `""` | no arguments |
//! | `{}{…}`, the same object twice | the object, once |
//! | JSON with trailing commas, raw control characters, missing closing brackets, code fences | mended, if the reply ended as it should |
//! | all else, and everything that was cut off | broken; such a call is never run |

mod coerce;
mod repair;

use hermes_types::Arguments;
use serde_json::{Map, Value};

pub use coerce::coerce;

use crate::json;

/// How often a text may hold a text that holds the object.
const DEPTH: u8 = 3;

/// How the reply that held the call ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The call is whole: what is missing was left out by the model.
    Whole,
    /// The token limit or a lost connection ended it: what is missing is unknown.
    Cut,
}

/// Reads the arguments from their text.
pub fn decode(text: &str, ending: Ending) -> Arguments {
    match read(text, ending, DEPTH) {
        Ok(object) => Arguments::Object(object),
        Err(why) => Arguments::Broken { text: text.to_owned(), why },
    }
}

/// Arguments that are still arriving, as text, as values, or both.
#[derive(Debug, Default, Clone)]
pub(crate) struct Pieces {
    text: String,
    object: Map<String, Value>,
    contradiction: bool,
}

impl Pieces {
    /// Takes the next piece, whatever it is.
    pub(crate) fn push(&mut self, piece: &Value) {
        match piece {
            Value::Null => {}
            Value::String(text) => self.text.push_str(text),
            Value::Object(object) => object.iter().for_each(|(key, value)| self.entry(key, value)),
            Value::Array(items) => match items.as_slice() {
                [] => {}
                [one] => self.push(one),
                _ => self.text.push_str(&piece.to_string()),
            },
            scalar => self.text.push_str(&scalar.to_string()),
        }
    }

    /// Whether nothing came yet that could be an argument.
    pub(crate) fn is_empty(&self) -> bool {
        self.object.is_empty() && self.text.trim().is_empty()
    }

    /// Replaces all pieces by the whole text, if there is one.
    pub(crate) fn replace(&mut self, whole: &Value) {
        let mut other = Self::default();
        other.push(whole);
        if !other.is_empty() {
            *self = other;
        }
    }

    /// What they come to.
    pub(crate) fn finish(self, ending: Ending) -> Arguments {
        let said = match (self.text.is_empty(), self.object.is_empty()) {
            (true, false) => Value::Object(self.object.clone()).to_string(),
            _ => self.text.clone(),
        };
        let broken = |why: &str| Arguments::Broken { text: said.clone(), why: why.to_owned() };
        if self.contradiction {
            return broken("two different values came for the same argument");
        }
        if ending == Ending::Cut && self.is_empty() {
            return broken(CUT);
        }
        match decode(&self.text, ending) {
            // Some servers send an empty object before the real one.
            Arguments::Object(object)
                if ending == Ending::Cut && object.is_empty() && self.object.is_empty() =>
            {
                broken(CUT)
            }
            Arguments::Object(object) if self.object.is_empty() => Arguments::Object(object),
            Arguments::Object(object) if object.is_empty() || object == self.object => {
                Arguments::Object(self.object)
            }
            Arguments::Object(_) => broken("it came twice, and not the same"),
            broken @ Arguments::Broken { .. } => broken,
        }
    }

    /// An entry of an object. A server that repeats itself may only say more of the same.
    fn entry(&mut self, key: &str, value: &Value) {
        let contradicts = match (self.object.get(key), value) {
            (None | Some(Value::Null), _) => false,
            (Some(Value::String(old)), Value::String(new)) => !new.starts_with(old.as_str()),
            (Some(old), new) => old != new,
        };
        self.contradiction |= contradicts;
        self.object.insert(key.to_owned(), value.clone());
    }
}

const CUT: &str = "it was cut off before its end";

fn read(text: &str, ending: Ending, depth: u8) -> Result<Map<String, Value>, String> {
    let trimmed = text.trim_matches(|c: char| c.is_whitespace() || c == '\u{feff}' || c == '\0');
    if trimmed.is_empty() {
        return Ok(Map::new());
    }
    match values(trimmed) {
        Ok(values) => object(values, ending, depth),
        Err(_) if ending == Ending::Cut => Err(CUT.to_owned()),
        Err(error) => {
            let mended = repair::repair(trimmed).and_then(|mended| values(&mended).ok());
            match mended {
                Some(values) => object(values, ending, depth),
                None => Err(format!("it is not JSON: {error}")),
            }
        }
    }
}

/// The values in a text, one after another.
fn values(text: &str) -> Result<Vec<Value>, serde_json::Error> {
    fn all(text: &str) -> Result<Vec<Value>, serde_json::Error> {
        serde_json::Deserializer::from_str(text).into_iter().collect()
    }
    all(text).or_else(|error| match json::scrubbed(text) {
        Some(clean) => all(&clean),
        None => Err(error),
    })
}

/// The one object that several values come to.
fn object(values: Vec<Value>, ending: Ending, depth: u8) -> Result<Map<String, Value>, String> {
    let mut found: Option<Map<String, Value>> = None;
    for value in values {
        let object = one(value, ending, depth)?;
        match &found {
            Some(known) if object.is_empty() || *known == object => {}
            Some(known) if !known.is_empty() => {
                return Err("there are several different objects in it".to_owned());
            }
            _ => found = Some(object),
        }
    }
    Ok(found.unwrap_or_default())
}

fn one(value: Value, ending: Ending, depth: u8) -> Result<Map<String, Value>, String> {
    let kind = match value {
        Value::Object(object) => return Ok(object),
        Value::Null => return Ok(Map::new()),
        Value::String(text) if depth > 0 => return read(&text, ending, depth - 1),
        Value::Array(mut items) if items.len() < 2 && depth > 0 => {
            return items.pop().map_or(Ok(Map::new()), |item| one(item, ending, depth - 1));
        }
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Number(_) => "a number",
        Value::Bool(_) => "true or false",
    };
    Err(format!("it is {kind}, not an object"))
}

#[cfg(test)]
mod tests;
