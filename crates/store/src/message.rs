//! How a message lies in the file: its text once, in a column of its own, and what else there is of it as JSON.

use hermes_types::{Call, CallId, Message, Part, Reasoning, Timestamp, Usage};
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault};

/// Bytes of one message, or of one prompt.
const LARGEST: usize = 32 << 20;

/// The place of a message in its session: 1, 2, 3, whatever any clock says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u32);

impl Seq {
    /// Before all messages.
    pub const START: Self = Self(0);

    /// The place with this number.
    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    /// The number.
    pub const fn number(self) -> u32 {
        self.0
    }

    /// The place behind it.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A message to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// The message.
    pub message: Message,
    /// When it was said.
    pub at: Timestamp,
    /// Why the model stopped, in its provider's word.
    pub finish: Option<String>,
    /// What it cost to get.
    pub usage: Option<Usage>,
}

impl Entry {
    /// A message that no model was asked for.
    pub fn new(message: Message, at: Timestamp) -> Self {
        Self { message, at, finish: None, usage: None }
    }
}

/// A message that was kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    /// Where it stands.
    pub seq: Seq,
    /// When it was said.
    pub at: Timestamp,
    /// Why the model stopped.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    /// What it cost to get.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Whether it was taken back.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    /// The message.
    #[serde(flatten)]
    pub message: Message,
}

/// A message as columns.
#[derive(Debug, PartialEq)]
pub(crate) struct Columns {
    pub(crate) role: &'static str,
    pub(crate) text: String,
    pub(crate) rest: Option<String>,
    pub(crate) usage: Option<String>,
    pub(crate) sum: i64,
}

/// A part of what a model said; of words only how many bytes of the text they are.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum KeptPart {
    Text(usize),
    Reasoning(Reasoning),
    Call(Call),
}

/// What there is of an answer besides its text.
#[derive(Debug, Serialize, Deserialize)]
struct KeptAnswer {
    call: CallId,
    name: String,
}

pub(crate) const COLUMNS: &str = "seq, role, at, undone, sum, finish, usage, rest, text";

impl Entry {
    pub(crate) fn columns(&self, seq: Seq) -> Result<Columns, Fault> {
        let json = |result: serde_json::Result<String>| {
            result.map_err(|error| Fault::Damaged(format!("a message that is no JSON: {error}")))
        };
        let (role, rest) = match &self.message {
            Message::User { images, .. } if images.is_empty() => ("user", None),
            Message::User { images, .. } => ("user", Some(json(serde_json::to_string(images))?)),
            Message::Tool { call, name, .. } => {
                let answer = KeptAnswer { call: call.clone(), name: name.clone() };
                ("tool", Some(json(serde_json::to_string(&answer))?))
            }
            Message::Assistant { parts } if matches!(parts.as_slice(), [Part::Text { .. }]) => {
                ("assistant", None)
            }
            Message::Assistant { parts } => {
                let kept: Vec<KeptPart> = parts
                    .iter()
                    .map(|part| match part {
                        Part::Text { text } => KeptPart::Text(text.len()),
                        Part::Reasoning(reasoning) => KeptPart::Reasoning(reasoning.clone()),
                        Part::Call(call) => KeptPart::Call(call.clone()),
                    })
                    .collect();
                ("assistant", Some(json(serde_json::to_string(&kept))?))
            }
        };
        let text = self.message.text();
        let usage = match &self.usage {
            Some(usage) => Some(json(serde_json::to_string(usage))?),
            None => None,
        };
        bounded("a message", text.len() + rest.as_ref().map_or(0, String::len))?;
        let texts =
            [Some(role), self.finish.as_deref(), usage.as_deref(), rest.as_deref(), Some(text.as_str())];
        let sum = sum(seq, self.at, texts);
        Ok(Columns { role, text, rest, usage, sum })
    }
}

/// Reads the columns named in [`COLUMNS`].
pub(crate) fn read(row: &Row<'_>) -> Result<Kept, Fault> {
    let seq: u32 = row.get(0)?;
    let wrong = |what: &str| Fault::Damaged(format!("message {seq} of a session: {what}"));
    let role: String = row.get(1)?;
    let at = Timestamp::from_seconds(row.get(2)?);
    let undone: Option<i64> = row.get(3)?;
    let (finish, usage): (Option<String>, Option<String>) = (row.get(5)?, row.get(6)?);
    let rest: Option<String> = row.get(7)?;
    let text: String = row.get(8)?;
    let texts =
        [Some(role.as_str()), finish.as_deref(), usage.as_deref(), rest.as_deref(), Some(text.as_str())];
    if sum(Seq(seq), at, texts) ^ undone.unwrap_or_default() != row.get::<_, i64>(4)? {
        return Err(wrong("it is not what was written"));
    }
    let usage = match usage {
        Some(usage) => Some(serde_json::from_str(&usage).map_err(|error| wrong(&error.to_string()))?),
        None => None,
    };
    let message = match (role.as_str(), rest) {
        ("user", None) => Message::user(text),
        ("user", Some(rest)) => {
            let images = serde_json::from_str(&rest).map_err(|error| wrong(&error.to_string()))?;
            Message::User { text, images }
        }
        ("tool", Some(rest)) => {
            let KeptAnswer { call, name } =
                serde_json::from_str(&rest).map_err(|error| wrong(&error.to_string()))?;
            Message::Tool { call, name, text }
        }
        ("assistant", None) => Message::Assistant { parts: vec![Part::Text { text }] },
        ("assistant", Some(rest)) => {
            let kept: Vec<KeptPart> =
                serde_json::from_str(&rest).map_err(|error| wrong(&error.to_string()))?;
            Message::Assistant { parts: parts(kept, &text).ok_or_else(|| wrong("its parts do not fit"))? }
        }
        _ => return Err(wrong("it has no form that is known")),
    };
    Ok(Kept { seq: Seq(seq), at, finish, usage, undone: undone.is_some(), message })
}

fn parts(kept: Vec<KeptPart>, mut text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::with_capacity(kept.len());
    for part in kept {
        parts.push(match part {
            KeptPart::Text(length) => {
                let (words, rest) = text.split_at_checked(length)?;
                text = rest;
                Part::Text { text: words.to_owned() }
            }
            KeptPart::Reasoning(reasoning) => Part::Reasoning(reasoning),
            KeptPart::Call(call) => Part::Call(call),
        });
    }
    text.is_empty().then_some(parts)
}

pub(crate) fn bounded(what: &'static str, size: usize) -> Result<(), Fault> {
    if size > LARGEST { Err(Error::TooLarge { what, size, most: LARGEST }.into()) } else { Ok(()) }
}

/// The sum of everything in a message. The round in which it was taken back is mixed in by [`MARK`].
fn sum(seq: Seq, at: Timestamp, texts: [Option<&str>; 5]) -> i64 {
    let place = format!("{} {}", seq.0, at.seconds());
    // What is not there is not the same as an empty text.
    let mark = |text: Option<&str>| if text.is_some() { "+" } else { "-" };
    let whole = texts
        .into_iter()
        .fold(Sum::default().with(&place), |sum, text| sum.with(mark(text)).with(text.unwrap_or_default()));
    whole.value()
}

/// Changes the mark of a message to `?3`, and its sum with it: `(a | b) - (a & b)` is the exclusive or that SQL lacks.
pub(crate) const MARK: &str = "undone = ?3, sum = (sum | ifnull(undone, ?3)) - (sum & ifnull(undone, ?3))";

/// Tells whether a text is still what it was: FNV-1a. SQLite notices damage of its own structure, not of what it holds.
pub(crate) struct Sum(u64);

impl Default for Sum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Sum {
    /// With another text, and its end.
    pub(crate) fn with(self, text: &str) -> Self {
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().chain([0xff]).fold(self.0, step))
    }

    pub(crate) fn value(self) -> i64 {
        self.0.cast_signed()
    }
}
