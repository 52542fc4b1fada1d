//! The row format of a message: the text in a column of its own, everything else as JSON.

use hermes_types::{Call, CallId, Message, Part, Reasoning, Timestamp, Usage};
use rusqlite::Row;
use serde::{Deserialize, Serialize};

use crate::error::{Error, QueryError, QueryResult};

/// The maximum size of a message or a prompt.
const MAX_TEXT_BYTES: usize = 32 << 20;

/// The position of a message in its session, counted from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seq(u32);

impl Seq {
    /// Before the first message.
    pub const START: Self = Self(0);

    pub const fn new(number: u32) -> Self {
        Self(number)
    }

    pub const fn number(self) -> u32 {
        self.0
    }

    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

/// A message to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    pub message: Message,
    pub at: Timestamp,
    /// Why the model stopped, in the provider's term.
    pub finish: Option<String>,
    pub usage: Option<Usage>,
}

impl NewMessage {
    /// A message that did not come from a model.
    pub fn new(message: Message, at: Timestamp) -> Self {
        Self { message, at, finish: None, usage: None }
    }
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageRow {
    pub seq: Seq,
    pub at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub undone: bool,
    #[serde(flatten)]
    pub message: Message,
}

#[derive(Debug, PartialEq)]
pub(crate) struct MessageColumns {
    pub(crate) role: &'static str,
    pub(crate) text: String,
    pub(crate) rest: Option<String>,
    pub(crate) usage: Option<String>,
    pub(crate) sum: i64,
}

/// A part of an assistant message. For text, only the byte length: the `text` column has the text.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StoredPart {
    Text(usize),
    Reasoning(Reasoning),
    Call(Call),
}

/// The fields of a tool result except its text.
#[derive(Debug, Serialize, Deserialize)]
struct StoredToolResult {
    call: CallId,
    name: String,
}

pub(crate) const COLUMNS: &str = "seq, role, at, undone, sum, finish, usage, rest, text";

impl NewMessage {
    pub(crate) fn to_columns(&self, seq: Seq) -> QueryResult<MessageColumns> {
        let (role, rest) = match &self.message {
            Message::User { images, .. } if images.is_empty() => ("user", None),
            Message::User { images, .. } => ("user", Some(to_json(images)?)),
            Message::Tool { call, name, .. } => {
                ("tool", Some(to_json(&StoredToolResult { call: call.clone(), name: name.clone() })?))
            }
            Message::Assistant { parts } if matches!(parts.as_slice(), [Part::Text { .. }]) => {
                ("assistant", None)
            }
            Message::Assistant { parts } => {
                let stored = parts.iter().map(|part| match part {
                    Part::Text { text } => StoredPart::Text(text.len()),
                    Part::Reasoning(reasoning) => StoredPart::Reasoning(reasoning.clone()),
                    Part::Call(call) => StoredPart::Call(call.clone()),
                });
                ("assistant", Some(to_json(&stored.collect::<Vec<_>>())?))
            }
        };
        let text = self.message.text();
        let usage = self.usage.as_ref().map(to_json).transpose()?;
        check_size("a message", text.len() + rest.as_ref().map_or(0, String::len))?;
        let texts =
            [Some(role), self.finish.as_deref(), usage.as_deref(), rest.as_deref(), Some(text.as_str())];
        let sum = checksum(seq, self.at, texts);
        Ok(MessageColumns { role, text, rest, usage, sum })
    }
}

fn to_json(value: &impl Serialize) -> QueryResult<String> {
    serde_json::to_string(value)
        .map_err(|error| QueryError::Corrupt(format!("a message cannot be serialized: {error}")))
}

pub(crate) fn read_row(row: &Row<'_>) -> QueryResult<MessageRow> {
    let seq: u32 = row.get(0)?;
    let corrupt = |detail: &str| QueryError::Corrupt(format!("message {seq} of a session: {detail}"));
    let invalid = |error: serde_json::Error| corrupt(&error.to_string());
    let role: String = row.get(1)?;
    let at = Timestamp::from_seconds(row.get(2)?);
    let undone: Option<i64> = row.get(3)?;
    let (finish, usage): (Option<String>, Option<String>) = (row.get(5)?, row.get(6)?);
    let rest: Option<String> = row.get(7)?;
    let text: String = row.get(8)?;
    let texts =
        [Some(role.as_str()), finish.as_deref(), usage.as_deref(), rest.as_deref(), Some(text.as_str())];
    if checksum(Seq(seq), at, texts) ^ undone.unwrap_or_default() != row.get::<_, i64>(4)? {
        return Err(corrupt("its checksum does not match"));
    }
    let usage = usage.map(|usage| serde_json::from_str(&usage)).transpose().map_err(invalid)?;
    let message = match (role.as_str(), rest) {
        ("user", None) => Message::user(text),
        ("user", Some(rest)) => Message::User { text, images: serde_json::from_str(&rest).map_err(invalid)? },
        ("tool", Some(rest)) => {
            let StoredToolResult { call, name } = serde_json::from_str(&rest).map_err(invalid)?;
            Message::Tool { call, name, text }
        }
        ("assistant", None) => Message::Assistant { parts: vec![Part::Text { text }] },
        ("assistant", Some(rest)) => {
            let stored: Vec<StoredPart> = serde_json::from_str(&rest).map_err(invalid)?;
            let parts =
                restore_parts(stored, &text).ok_or_else(|| corrupt("its parts do not fit its text"))?;
            Message::Assistant { parts }
        }
        _ => return Err(corrupt("its format is unknown")),
    };
    Ok(MessageRow { seq: Seq(seq), at, finish, usage, undone: undone.is_some(), message })
}

fn restore_parts(stored: Vec<StoredPart>, mut text: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::with_capacity(stored.len());
    for part in stored {
        parts.push(match part {
            StoredPart::Text(length) => {
                let (words, rest) = text.split_at_checked(length)?;
                text = rest;
                Part::Text { text: words.to_owned() }
            }
            StoredPart::Reasoning(reasoning) => Part::Reasoning(reasoning),
            StoredPart::Call(call) => Part::Call(call),
        });
    }
    text.is_empty().then_some(parts)
}

pub(crate) fn check_size(what: &'static str, size: usize) -> QueryResult {
    if size > MAX_TEXT_BYTES {
        Err(Error::TooLarge { what, size, limit: MAX_TEXT_BYTES }.into())
    } else {
        Ok(())
    }
}

/// The checksum of a message. [`SET_UNDONE`] mixes in the number of the undo that removed it.
fn checksum(seq: Seq, at: Timestamp, texts: [Option<&str>; 5]) -> i64 {
    let position = format!("{} {}", seq.0, at.seconds());
    // A missing text differs from an empty one.
    let mark = |text: Option<&str>| if text.is_some() { "+" } else { "-" };
    let add = |sum: Checksum, text| sum.with(mark(text)).with(text.unwrap_or_default());
    texts.into_iter().fold(Checksum::default().with(&position), add).value()
}

/// Sets `undone` to `?2` and updates the checksum: `(a | b) - (a & b)` is the exclusive or that SQL
/// lacks.
pub(crate) const SET_UNDONE: &str =
    "undone = ?2, sum = (sum | ifnull(undone, ?2)) - (sum & ifnull(undone, ?2))";

/// An FNV-1a checksum that detects changed content. SQLite only detects damage of its own
/// structure.
pub(crate) struct Checksum(u64);

impl Default for Checksum {
    fn default() -> Self {
        Self(0xcbf2_9ce4_8422_2325)
    }
}

impl Checksum {
    /// Adds a text and its end marker.
    pub(crate) fn with(self, text: &str) -> Self {
        let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(text.bytes().chain([0xff]).fold(self.0, step))
    }

    pub(crate) fn value(self) -> i64 {
        self.0.cast_signed()
    }
}
