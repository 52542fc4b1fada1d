//! What a model is to say, and how its words travel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything about a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Script {
    /// The address to listen at; a free port of this machine if none.
    pub listen: Option<String>,
    /// The key a request must have.
    pub key: Option<String>,
    /// What the requests are answered with, one after another.
    pub steps: Vec<Step>,
    /// What all further requests are answered with.
    pub always: Option<Step>,
    /// Answers to other paths, by method and path.
    pub routes: BTreeMap<String, Value>,
    /// Whether requests are forgotten once they are answered: those of a long run would fill the memory.
    pub forgets: bool,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// The model speaks.
    Answer(Answer),
    /// These very bytes.
    Raw {
        /// The HTTP status.
        status: u16,
        /// The headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body.
        body: String,
        /// How it travels.
        #[serde(default)]
        delivery: Delivery,
    },
    /// A refusal in the vendor's words.
    Error {
        /// The HTTP status.
        status: u16,
        /// The headers.
        #[serde(default)]
        headers: Vec<(String, String)>,
        /// The body.
        body: Value,
    },
    /// The model says these words, and after them what was said to it last: for crowds, where nobody knows who comes first.
    Echo(String),
    /// Not even a status.
    Silence,
}

/// What the model says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Answer {
    /// In this order.
    pub says: Vec<Said>,
    /// The reason for its end, in the words of Chat Completions: `stop`, `length`, `tool_calls`, `content_filter`. By what it
    /// says if none.
    pub finish: Option<String>,
    /// How it travels.
    pub delivery: Delivery,
}

/// One thing that a model says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Said {
    /// Words.
    Text(String),
    /// Thoughts.
    Reasoning(String),
    /// A call.
    Call {
        /// Its id.
        id: String,
        /// The tool.
        name: String,
        /// A text is sent as the text of its arguments, anything else as it is, where the protocol can.
        arguments: Value,
    },
}

/// How a body travels.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delivery {
    /// In pieces of so many bytes.
    pub chunk: Option<usize>,
    /// With so many milliseconds before each.
    pub pause_ms: u64,
    /// After so many bytes the connection breaks.
    pub cut: Option<usize>,
    /// After so many bytes nothing comes any more.
    pub silent: Option<usize>,
}

impl Delivery {
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

impl Step {
    /// The model says one thing and is done.
    pub fn text(words: &str) -> Self {
        Self::says([Said::Text(words.to_owned())])
    }

    /// The model calls one tool.
    pub fn call(id: &str, name: &str, arguments: Value) -> Self {
        Self::says([Said::Call { id: id.to_owned(), name: name.to_owned(), arguments }])
    }

    /// The model says several things.
    pub fn says(says: impl IntoIterator<Item = Said>) -> Self {
        Self::Answer(Answer { says: says.into_iter().collect(), ..Answer::default() })
    }

    /// A refusal.
    pub fn error(status: u16, body: Value) -> Self {
        Self::Error { status, headers: Vec::new(), body }
    }
}

/// What a request has a person say last.
pub(super) fn last_words(request: &Value) -> String {
    let said = ["messages", "input"].iter().find_map(|name| request[*name].as_array());
    let mut said = said.into_iter().flatten().rev();
    let last = said.find(|message| message["role"] == "user").map(|message| &message["content"]);
    match last {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

impl Answer {
    /// One of words alone.
    pub(super) fn text(words: String) -> Self {
        Self { says: vec![Said::Text(words)], ..Self::default() }
    }

    /// Why it ends.
    pub(super) fn ending(&self) -> &str {
        let calls = self.says.iter().any(|said| matches!(said, Said::Call { .. }));
        self.finish.as_deref().unwrap_or(if calls { "tool_calls" } else { "stop" })
    }
}

/// The text in pieces of a few letters, as models speak.
pub(super) fn pieces(text: &str) -> Vec<String> {
    let letters: Vec<char> = text.chars().collect();
    letters.chunks(7).map(|piece| piece.iter().collect()).collect()
}

/// The text of arguments.
pub(super) fn argument_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
