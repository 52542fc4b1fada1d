//! The protocols. Each file has both directions of one: the request from a prompt, and the draft of a reply from what comes.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod responses;

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::album::Pictures;
use crate::draft::{Draft, Spoken};
use crate::endpoint::{Api, Endpoint};
use crate::error::Fault;
use crate::reply::{Finish, Prompt};

/// A request to be written.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) prompt: &'a Prompt<'a>,
    pub(crate) manner: &'a Manner,
    /// The pictures in it that are sent.
    pub(crate) pictures: &'a Pictures<'a>,
}

/// How a server wants to be spoken to, as far as we had to learn it from what it refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Manner {
    /// It cannot stream.
    pub(crate) whole: bool,
    /// It cannot make a grammar of every schema.
    pub(crate) plain_schemas: bool,
    /// Fields it does not take.
    pub(crate) without: BTreeSet<String>,
    /// The window that Ollama is to load the model with.
    pub(crate) num_ctx: Option<u64>,
    /// For this call: thoughts are not sent back.
    pub(crate) forget_thoughts: bool,
    /// For this call: a smaller output cap.
    pub(crate) cap: Option<u64>,
}

impl Request<'_> {
    pub(crate) fn path(&self) -> &'static str {
        match self.endpoint.api {
            Api::ChatCompletions => "/chat/completions",
            Api::AnthropicMessages => "/v1/messages",
            Api::Responses => "/responses",
        }
    }

    /// The body. What changes from call to call comes last.
    pub(crate) fn body(&self) -> Vec<u8> {
        let body = match self.endpoint.api {
            Api::ChatCompletions => chat::encode(self),
            Api::AnthropicMessages => anthropic::encode(self),
            Api::Responses => responses::encode(self),
        };
        Value::Object(body).to_string().into_bytes()
    }

    /// The output cap to ask for.
    fn cap(&self) -> Option<u64> {
        let asked = self.prompt.max_output.map(u64::from);
        match (asked, self.manner.cap) {
            (Some(asked), Some(room)) => Some(asked.min(room)),
            (asked, room) => asked.or(room),
        }
    }

    fn takes(&self, field: &str) -> bool {
        !self.manner.without.contains(field)
    }

    /// The schema of a tool's arguments.
    fn schema(&self, parameters: &Value) -> Value {
        let mut schema = parameters.clone();
        if self.manner.plain_schemas {
            plain(&mut schema);
        }
        schema
    }

    /// The owner's own fields go over ours, but the conversation is not theirs.
    fn extend(&self, body: &mut Map<String, Value>) {
        for (key, value) in &self.endpoint.extra {
            body.insert(key.clone(), value.clone());
        }
        body.retain(|key, _| self.takes(key));
    }
}

/// Takes out what llama.cpp cannot make a grammar of.
fn plain(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            // A property may have one of these names; its schema is an object, the keyword is a text.
            object.retain(|key, value| !(matches!(key.as_str(), "pattern" | "format") && value.is_string()));
            object.values_mut().for_each(plain);
        }
        Value::Array(items) => items.iter_mut().for_each(plain),
        _ => {}
    }
}

/// Whether more is to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    More,
    /// The protocol's own end.
    Done,
}

/// The reader of a protocol's answers.
#[derive(Debug)]
pub(crate) enum Decoder {
    Chat(chat::Decoder),
    Anthropic(anthropic::Decoder),
    Responses(responses::Decoder),
}

impl Decoder {
    pub(crate) fn new(api: Api) -> Self {
        match api {
            Api::ChatCompletions => Self::Chat(chat::Decoder::default()),
            Api::AnthropicMessages => Self::Anthropic(anthropic::Decoder::default()),
            Api::Responses => Self::Responses(responses::Decoder::default()),
        }
    }

    /// Whether a model there may write its calls as text.
    pub(crate) fn spoken(api: Api) -> Spoken {
        match api {
            Api::ChatCompletions => Spoken::Recognized,
            Api::AnthropicMessages | Api::Responses => Spoken::Ignored,
        }
    }

    /// An event of a stream.
    pub(crate) fn event(&mut self, draft: &mut Draft<'_>, data: &str) -> Result<Flow, Fault> {
        match self {
            Self::Chat(decoder) => decoder.event(draft, data),
            Self::Anthropic(decoder) => decoder.event(draft, data),
            Self::Responses(decoder) => decoder.event(draft, data),
        }
    }

    /// An answer that came in one piece.
    pub(crate) fn whole(&mut self, draft: &mut Draft<'_>, body: &Value) -> Result<(), Fault> {
        match self {
            Self::Chat(decoder) => decoder.whole(draft, body),
            Self::Anthropic(decoder) => decoder.whole(draft, body),
            Self::Responses(decoder) => decoder.whole(draft, body),
        }
    }

    /// Nothing more will come. The finish that was told, or none if it ended in the middle.
    pub(crate) fn end(&mut self, draft: &mut Draft<'_>) -> Option<Finish> {
        match self {
            Self::Chat(decoder) => decoder.end(draft),
            Self::Anthropic(_) | Self::Responses(_) => draft.finish.clone(),
        }
    }
}

/// The text of a field, or nothing.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The number at a path, or nothing.
fn count(value: &Value, path: &str) -> u64 {
    let number = value.pointer(path);
    // Some servers count in floats.
    number
        .and_then(|number| number.as_u64().or_else(|| format!("{:.0}", number.as_f64()?).parse().ok()))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
