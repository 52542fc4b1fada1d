//! The protocols. Each file encodes requests and decodes replies of one protocol.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod ollama;
pub(crate) mod responses;

use std::collections::BTreeSet;

use hermes_types::{CallArguments, CallId, ToolSpec};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::endpoint::{Api, Endpoint};
use crate::error::{self, FailureClass, RequestFailure};
use crate::history::{self, HistoryEntry};
use crate::json;
use crate::reply::Prompt;
use crate::reply_builder::ReplyBuilder;
use crate::vision::LoadedImages;

/// One request to one endpoint.
pub(crate) struct ModelRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) prompt: &'a Prompt<'a>,
    pub(crate) quirks: &'a ServerQuirks,
    /// The images to send.
    pub(crate) images: LoadedImages<'a>,
}

/// Deviations of a server from its protocol, learned from the requests that it rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerQuirks {
    pub(crate) no_streaming: bool,
    /// The server cannot convert every schema to a grammar.
    pub(crate) simplify_schemas: bool,
    pub(crate) rejected_fields: BTreeSet<String>,
    /// The server wants reasoning back with every reply, not only with those that call tools.
    pub(crate) replay_all_reasoning: bool,
    /// For this call: do not send reasoning back.
    pub(crate) drop_reasoning: bool,
    /// The provider rejected the token of Claude Code; the key is used instead.
    pub(crate) token_rejected: bool,
    /// For this call: a smaller output limit.
    pub(crate) max_output: Option<u64>,
}

impl ModelRequest<'_> {
    pub(crate) fn path(&self) -> &'static str {
        match self.endpoint.api {
            Api::ChatCompletions => "/chat/completions",
            Api::AnthropicMessages => "/v1/messages",
            Api::Responses => "/responses",
            Api::OllamaChat => "/api/chat",
        }
    }

    /// The body. Fields that change from call to call come last, for the sake of prompt caches.
    pub(crate) fn body(&self) -> Vec<u8> {
        let mut body = json!({"model": self.endpoint.model});
        if !self.quirks.no_streaming {
            body["stream"] = true.into();
        }
        match self.endpoint.api {
            Api::ChatCompletions => chat::encode(self, &mut body),
            Api::AnthropicMessages => anthropic::encode(self, &mut body),
            Api::Responses => responses::encode(self, &mut body),
            Api::OllamaChat => ollama::encode(self, &mut body),
        }
        body.to_string().into_bytes()
    }

    fn max_output(&self) -> Option<u64> {
        let asked = self.prompt.max_output.or(self.endpoint.max_output).map(u64::from);
        asked.into_iter().chain(self.quirks.max_output).min()
    }

    fn history(&self) -> Vec<HistoryEntry<'_>> {
        history::normalize(self.prompt.messages, &self.endpoint.issuer())
    }

    fn accepts(&self, field: &str) -> bool {
        !self.quirks.rejected_fields.contains(field)
    }

    /// Adds the configured fields, which override ours, and the tools. The caller adds the
    /// conversation after them.
    fn add_fields_and_tools(&self, body: &mut Value, encode_tool: impl Fn(&ToolSpec, Value) -> Value) {
        if let Value::Object(fields) = body {
            fields.extend(self.endpoint.extra_fields.clone());
            fields.retain(|key, _| self.accepts(key));
        }
        let tools = self.prompt.tools.iter().map(|tool| {
            let mut schema = tool.parameters.clone();
            if self.quirks.simplify_schemas {
                simplify_schema(&mut schema);
            }
            encode_tool(tool, schema)
        });
        if tools.len() > 0 {
            body["tools"] = tools.collect();
        }
    }
}

/// Removes the keywords that llama.cpp cannot convert to a grammar.
fn simplify_schema(schema: &mut Value) {
    match schema {
        Value::Object(object) => {
            // A property may have one of these names, but its schema is an object.
            object.retain(|key, value| !(matches!(key.as_str(), "pattern" | "format") && value.is_string()));
            object.values_mut().for_each(simplify_schema);
        }
        Value::Array(items) => items.iter_mut().for_each(simplify_schema),
        _ => {}
    }
}

pub(crate) type DecodeResult<T = ()> = Result<T, RequestFailure>;

/// Decodes the replies of a protocol. A decoder sets [`ReplyBuilder::finish`] when it reads the
/// finish reason, and [`ReplyBuilder::has_ended`] when nothing follows.
pub(crate) trait Decoder: Send {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, event: &Value) -> DecodeResult;

    /// Decodes a reply that is not streamed.
    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult;

    /// Adds what is certain only at the end of the reply, complete or not.
    fn finish(&mut self, _builder: &mut ReplyBuilder<'_>) {}
}

pub(crate) fn decoder(api: Api) -> Box<dyn Decoder> {
    match api {
        Api::ChatCompletions => Box::new(chat::ChatDecoder::default()),
        Api::AnthropicMessages => Box::new(anthropic::AnthropicDecoder::default()),
        Api::Responses => Box::new(responses::ResponsesDecoder::default()),
        Api::OllamaChat => Box::new(ollama::OllamaDecoder::default()),
    }
}

/// The id of a call for a provider that limits its length. The same id always gives the same result,
/// so a call and its result agree in every request.
fn limit_call_id(id: &CallId, max_chars: usize) -> String {
    if id.as_str().chars().count() <= max_chars { id.as_str().to_owned() } else { hash_id(id, "", max_chars) }
}

/// An id of letters and digits derived from another id.
fn hash_id(id: &CallId, salt: &str, max_chars: usize) -> String {
    let hash = Sha256::new().chain_update(id.as_str()).chain_update(salt).finalize();
    hash.iter().flat_map(|byte| [byte >> 4, byte & 15]).map(hex_digit).take(max_chars).collect()
}

fn hex_digit(value: u8) -> char {
    char::from_digit(u32::from(value), 16).unwrap_or_default()
}

/// The arguments of a call, with sorted keys; unreadable ones are sent back as none.
fn encode_arguments(arguments: &CallArguments) -> Value {
    match arguments {
        CallArguments::Object(object) => json::sort_keys(object),
        CallArguments::Broken { .. } => json!({}),
    }
}

/// The failure that a server reports in the place of a reply.
fn server_failure(value: &Value) -> RequestFailure {
    let mut failure = error::from_stream(value);
    if failure.class == FailureClass::Unknown {
        failure.class = FailureClass::Server;
    }
    failure
}

/// The list that holds the reply of a body that is not streamed.
fn reply_items<'a>(body: &'a Value, key: &str) -> DecodeResult<&'a Vec<Value>> {
    match (&body[key], &body["error"]) {
        (Value::Array(items), _) => Ok(items),
        (_, Value::Null) => Err(RequestFailure::malformed(format!("the response has no {key}"))),
        _ => Err(error::from_stream(body)),
    }
}

/// A text field, or the empty string.
fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// A number at a path, or 0.
fn count(value: &Value, path: &str) -> u64 {
    let number = value.pointer(path);
    // Some servers send floats.
    number
        .and_then(|number| number.as_u64().or_else(|| format!("{:.0}", number.as_f64()?).parse().ok()))
        .unwrap_or(0)
}

#[cfg(test)]
mod tests;
