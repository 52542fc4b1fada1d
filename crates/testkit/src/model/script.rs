//! What a model is to say, and how its words travel.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Everything about a model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelScript {
    /// The address to listen at; a free port of this machine if none.
    pub listen: Option<String>,
    /// The key a request must have.
    pub key: Option<String>,
    /// What the requests are answered with, one after another.
    pub steps: Vec<ScriptStep>,
    /// What all further requests are answered with.
    pub always: Option<ScriptStep>,
    /// Answers to other paths, by method and path.
    pub routes: BTreeMap<String, Value>,
    /// Whether requests are forgotten once they are answered: those of a long run would fill the memory.
    pub discard_requests: bool,
}

/// The answer to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptStep {
    /// The model speaks.
    Reply(ScriptedReply),
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
        delivery: BodyDelivery,
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
pub struct ScriptedReply {
    /// In this order.
    pub items: Vec<ReplyItem>,
    /// The reason for its end, in the words of Chat Completions: `stop`, `length`, `tool_calls`, `content_filter`. By what it
    /// says if none.
    pub finish: Option<String>,
    /// How it travels.
    pub delivery: BodyDelivery,
}

/// One thing that a model says.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyItem {
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
pub struct BodyDelivery {
    /// In pieces of so many bytes.
    pub chunk: Option<usize>,
    /// With so many milliseconds before each.
    pub pause_ms: u64,
    /// After so many bytes the connection breaks.
    pub cut: Option<usize>,
    /// After so many bytes nothing comes any more.
    pub silent: Option<usize>,
}

impl BodyDelivery {
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

impl ScriptStep {
    /// The model says one thing and is done.
    pub fn text(words: &str) -> Self {
        Self::reply([ReplyItem::Text(words.to_owned())])
    }

    /// The model calls one tool.
    pub fn call(id: &str, name: &str, arguments: Value) -> Self {
        Self::reply([ReplyItem::Call { id: id.to_owned(), name: name.to_owned(), arguments }])
    }

    /// The model says several things.
    pub fn reply(says: impl IntoIterator<Item = ReplyItem>) -> Self {
        Self::Reply(ScriptedReply { items: says.into_iter().collect(), ..ScriptedReply::default() })
    }

    /// A refusal.
    pub fn error(status: u16, body: Value) -> Self {
        Self::Error { status, headers: Vec::new(), body }
    }
}

/// What a request has a person say last.
pub(super) fn last_user_text(request: &Value) -> String {
    let said = ["messages", "input"].iter().find_map(|name| request[*name].as_array());
    let mut said = said.into_iter().flatten().rev();
    let last = said.find(|message| message["role"] == "user").map(|message| &message["content"]);
    match last {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

impl ScriptedReply {
    /// One of words alone.
    pub(super) fn text(words: String) -> Self {
        Self { items: vec![ReplyItem::Text(words)], ..Self::default() }
    }

    /// Why it ends.
    pub(super) fn finish_reason(&self) -> &str {
        let calls = self.items.iter().any(|said| matches!(said, ReplyItem::Call { .. }));
        self.finish.as_deref().unwrap_or(if calls { "tool_calls" } else { "stop" })
    }
}

/// The text in pieces of a few letters, as models speak.
pub(super) fn text_deltas(text: &str) -> Vec<String> {
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
