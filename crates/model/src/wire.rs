//! The protocols. Each file encodes requests and decodes replies of one protocol.

pub(crate) mod anthropic;
pub(crate) mod chat;
pub(crate) mod responses;

use std::collections::BTreeSet;

use hermes_types::CallArguments;
use serde_json::{Map, Value};

use crate::endpoint::{Api, Endpoint};
use crate::error::{self, FailureClass, RequestFailure};
use crate::json;
use crate::reply::{Finish, Prompt};
use crate::reply_builder::ReplyBuilder;
use crate::vision::LoadedImages;

/// A request to encode.
#[derive(Clone, Copy)]
pub(crate) struct ModelRequest<'a> {
    pub(crate) endpoint: &'a Endpoint,
    pub(crate) prompt: &'a Prompt<'a>,
    pub(crate) quirks: &'a ServerQuirks,
    /// The images to send.
    pub(crate) images: &'a LoadedImages<'a>,
}

/// Deviations of a server from its protocol, learned from the requests that it rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ServerQuirks {
    pub(crate) no_streaming: bool,
    /// The server cannot convert every schema to a grammar.
    pub(crate) simplify_schemas: bool,
    pub(crate) rejected_fields: BTreeSet<String>,
    /// The context window with which Ollama loads the model.
    pub(crate) num_ctx: Option<u64>,
    /// For this call: do not send reasoning back.
    pub(crate) drop_reasoning: bool,
    /// For this call: a smaller output limit.
    pub(crate) max_output: Option<u64>,
}

impl ModelRequest<'_> {
    pub(crate) fn path(&self) -> &'static str {
        match self.endpoint.api {
            Api::ChatCompletions => "/chat/completions",
            Api::AnthropicMessages => "/v1/messages",
            Api::Responses => "/responses",
        }
    }

    /// The body. Fields that change from call to call come last, for the sake of prompt caches.
    pub(crate) fn body(&self) -> Vec<u8> {
        let body = match self.endpoint.api {
            Api::ChatCompletions => chat::encode(self),
            Api::AnthropicMessages => anthropic::encode(self),
            Api::Responses => responses::encode(self),
        };
        Value::Object(body).to_string().into_bytes()
    }

    fn max_output(&self) -> Option<u64> {
        let asked = self.prompt.max_output.map(u64::from);
        asked.into_iter().chain(self.quirks.max_output).min()
    }

    fn accepts(&self, field: &str) -> bool {
        !self.quirks.rejected_fields.contains(field)
    }

    /// The schema of a tool's arguments.
    fn tool_schema(&self, parameters: &Value) -> Value {
        let mut schema = parameters.clone();
        if self.quirks.simplify_schemas {
            simplify_schema(&mut schema);
        }
        schema
    }

    /// Adds the configured fields, which override ours. The caller adds the conversation after
    /// them.
    fn apply_extra_fields(&self, body: &mut Map<String, Value>) {
        for (key, value) in &self.endpoint.extra_fields {
            body.insert(key.clone(), value.clone());
        }
        body.retain(|key, _| self.accepts(key));
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

/// Whether a stream goes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StreamStep {
    Continue,
    /// The protocol's end marker was read.
    Done,
}

pub(crate) type DecodeResult<T = ()> = Result<T, RequestFailure>;

/// Decodes the replies of a protocol.
pub(crate) trait Decoder: Send {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, data: &str) -> DecodeResult<StreamStep>;

    /// Decodes a reply that is not streamed.
    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult;

    /// The finish reason at the end of the stream, or none if the reply is incomplete.
    fn finish(&mut self, builder: &mut ReplyBuilder<'_>) -> Option<Finish> {
        builder.finish.clone()
    }
}

pub(crate) fn decoder(api: Api) -> Box<dyn Decoder> {
    match api {
        Api::ChatCompletions => Box::new(chat::ChatDecoder::default()),
        Api::AnthropicMessages => Box::new(anthropic::AnthropicDecoder::default()),
        Api::Responses => Box::new(responses::ResponsesDecoder::default()),
    }
}

/// The arguments of a call as JSON text; unreadable ones are sent back as none.
fn arguments_text(arguments: &CallArguments) -> String {
    match arguments {
        CallArguments::Object(object) => json::to_stable_text(object),
        CallArguments::Broken { .. } => "{}".to_owned(),
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
