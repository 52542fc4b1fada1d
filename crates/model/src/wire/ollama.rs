//! Ollama's own chat protocol. Its OpenAI-compatible one ignores the requested context window and
//! cuts a prompt that does not fit without saying so.
//!
//! | field | meaning |
//! |---|---|
//! | `options.num_ctx` | the window with which the model is loaded |
//! | `truncate`, `shift` | false: an error instead of a shortened prompt (0.12.6 and later) |
//! | `think` | reasoning; a level only for gpt-oss |
//!
//! A stream is one JSON document per line. Calls may have no id, and their arguments are objects.

use hermes_types::{Part, Usage};
use serde_json::{Value, json};

use super::{DecodeResult, Decoder, ModelRequest, count, encode_arguments, text};
use crate::endpoint::Effort;
use crate::error;
use crate::history::HistoryEntry;
use crate::reply::Finish;
use crate::reply_builder::{CallDelta, ReplyBuilder};

pub(super) fn encode(request: &ModelRequest<'_>, body: &mut Value) {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    // Without this field Ollama streams.
    body["stream"] = (!request.quirks.no_streaming).into();
    body["truncate"] = false.into();
    body["shift"] = false.into();
    let mut options = json!({});
    if let Some(window) = endpoint.context_window {
        options["num_ctx"] = window.into();
    }
    if let Some(max_output) = request.max_output() {
        options["num_predict"] = max_output.into();
    }
    body["options"] = options;
    match prompt.effort {
        None => {}
        Some(effort) if endpoint.model.contains("gpt-oss") => {
            body["think"] = json!(effort.clamp(Effort::Low, Effort::High));
        }
        Some(effort) => body["think"] = (effort != Effort::None).into(),
    }
    request.add_fields_and_tools(body, |tool, parameters| {
        json!({"type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": parameters,
        }})
    });
    body["messages"] = messages(request).into();
}

fn messages(request: &ModelRequest<'_>) -> Vec<Value> {
    let mut messages = Vec::new();
    if !request.prompt.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.prompt.system}));
    }
    for entry in request.history() {
        match entry {
            HistoryEntry::User(text, images) => {
                let mut message = json!({"role": "user", "content": text});
                let images: Vec<&str> =
                    request.images.select(&images).into_iter().map(|(_, data)| data).collect();
                if !images.is_empty() {
                    message["images"] = json!(images);
                }
                messages.push(message);
            }
            HistoryEntry::Assistant(parts) => messages.push(assistant_message(&parts)),
            HistoryEntry::Results(results) => messages.extend(results.iter().map(|(call, text)| {
                json!({
                    "role": "tool", "tool_name": call.name, "tool_call_id": call.id.as_str(), "content": text,
                })
            })),
        }
    }
    messages
}

fn assistant_message(parts: &[&Part]) -> Value {
    let mut texts = Vec::new();
    let mut thoughts = String::new();
    let mut calls: Vec<Value> = Vec::new();
    for part in parts {
        match part {
            Part::Text { text } => texts.push(text.as_str()),
            Part::Reasoning(reasoning) => thoughts.push_str(&reasoning.text),
            Part::Call(call) => calls.push(json!({"id": call.id.as_str(), "function": {
                "name": call.name, "arguments": encode_arguments(&call.arguments),
            }})),
        }
    }
    let mut message = json!({"role": "assistant", "content": texts.join("\n\n")});
    // Templates show the reasoning before a call, and drop that of earlier turns.
    if !thoughts.is_empty() && !calls.is_empty() {
        message["thinking"] = thoughts.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

/// Decodes the lines of a stream, and complete replies: a complete reply is its last line.
#[derive(Debug, Default)]
pub(super) struct OllamaDecoder {
    /// Calls so far: each is complete when it arrives.
    calls: u64,
}

impl Decoder for OllamaDecoder {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, line: &Value) -> DecodeResult {
        if line.get("error").is_some_and(|error| !error.is_null()) {
            return Err(error::from_stream(line));
        }
        let message = &line["message"];
        builder.push_reasoning(text(message, "thinking"));
        builder.push_text(text(message, "content"));
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            builder.push_call(&CallDelta {
                index: Some(self.calls),
                id: text(call, "id"),
                name: text(function, "name"),
                arguments: function.get("arguments"),
                ..CallDelta::default()
            })?;
            builder.close_calls();
            self.calls += 1;
        }
        if line["done"] == true {
            builder.usage = Usage {
                input: count(line, "/prompt_eval_count"),
                output: count(line, "/eval_count"),
                ..Usage::default()
            };
            builder.finish =
                Some(if text(line, "done_reason") == "length" { Finish::Length } else { Finish::Stop });
            builder.has_ended = true;
        }
        Ok(())
    }

    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult {
        self.decode_event(builder, body)
    }
}
