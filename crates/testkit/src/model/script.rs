//! The script of a model: its replies and how they are delivered.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::ollama::OllamaServer;

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ModelScript {
    /// The address to listen at; a free local port if none.
    pub listen: Option<String>,
    /// The key that requests must have.
    pub key: Option<String>,
    /// The responses, one after another.
    pub steps: Vec<ScriptStep>,
    /// The response to all further requests.
    pub always: Option<ScriptStep>,
    /// Responses to other routes, by method and path.
    pub routes: BTreeMap<String, Value>,
    /// The server is Ollama.
    pub ollama: Option<OllamaServer>,
    /// Calls have signatures that each later request must repeat, as those of Gemini in Chat
    /// Completions.
    pub signs_calls: bool,
    /// The largest output limit that Messages accepts.
    pub max_output: Option<u64>,
    /// Does not record requests: those of a long run would fill the memory.
    pub discard_requests: bool,
}

/// The response to one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ScriptStep {
    Reply(ScriptedReply),
    /// Responds with these bytes.
    Raw {
        status: u16,
        #[serde(default)]
        headers: Vec<(String, String)>,
        body: String,
        #[serde(default)]
        delivery: BodyDelivery,
    },
    /// An error in the vendor's form.
    Error {
        status: u16,
        #[serde(default)]
        headers: Vec<(String, String)>,
        body: Value,
    },
    /// Responds with this text and the last text of the user, for concurrent requests in any order.
    Echo(String),
    /// Never responds.
    Silence,
}

/// A reply of the model.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedReply {
    pub items: Vec<ReplyItem>,
    /// The finish reason of Chat Completions: `stop`, `length`, `tool_calls` or `content_filter`.
    /// Derived from the items if none.
    pub finish: Option<String>,
    pub delivery: BodyDelivery,
}

/// A part of a reply.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyItem {
    Text(String),
    Reasoning(String),
    Call {
        id: String,
        name: String,
        /// A string is sent as the text of the arguments, any other value unchanged if the protocol
        /// can.
        arguments: Value,
    },
}

/// How a body is sent.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BodyDelivery {
    /// Bytes of each chunk.
    pub chunk: Option<usize>,
    /// Before each chunk.
    pub pause_ms: u64,
    /// The connection breaks after this many bytes.
    pub cut: Option<usize>,
    /// Nothing is sent after this many bytes.
    pub silent: Option<usize>,
}

impl BodyDelivery {
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

impl ScriptStep {
    /// A reply of text.
    pub fn text(text: &str) -> Self {
        Self::reply([ReplyItem::Text(text.to_owned())])
    }

    /// A reply of one tool call.
    pub fn call(id: &str, name: &str, arguments: Value) -> Self {
        Self::reply([ReplyItem::Call { id: id.to_owned(), name: name.to_owned(), arguments }])
    }

    pub fn reply(items: impl IntoIterator<Item = ReplyItem>) -> Self {
        Self::Reply(ScriptedReply { items: items.into_iter().collect(), ..ScriptedReply::default() })
    }

    pub fn error(status: u16, body: Value) -> Self {
        Self::Error { status, headers: Vec::new(), body }
    }
}

/// The last text of a user in a request.
pub(super) fn last_user_text(request: &Value) -> String {
    let messages = ["messages", "input"].iter().find_map(|name| request[*name].as_array());
    let mut messages = messages.into_iter().flatten().rev();
    let last = messages.find(|message| message["role"] == "user").map(|message| &message["content"]);
    match last {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts.iter().filter_map(|part| part["text"].as_str()).collect(),
        _ => String::new(),
    }
}

impl ScriptedReply {
    pub(super) fn text(text: String) -> Self {
        Self { items: vec![ReplyItem::Text(text)], ..Self::default() }
    }

    pub(super) fn finish_reason(&self) -> &str {
        let calls = self.items.iter().any(|item| matches!(item, ReplyItem::Call { .. }));
        self.finish.as_deref().unwrap_or(if calls { "tool_calls" } else { "stop" })
    }
}

/// Splits text into deltas of a few characters, as models stream it.
pub(super) fn text_deltas(text: &str) -> Vec<String> {
    let chars: Vec<char> = text.chars().collect();
    chars.chunks(7).map(|chunk| chunk.iter().collect()).collect()
}

pub(super) fn argument_text(arguments: &Value) -> String {
    match arguments {
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
