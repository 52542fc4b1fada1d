//! OpenAI's Responses. Nothing is stored at the provider: each request has the whole conversation,
//! with encrypted reasoning.

use std::collections::BTreeSet;

use hermes_types::{CallId, Part, Usage};
use serde_json::{Value, json};

use super::{
    DecodeResult, Decoder, ModelRequest, count, encode_arguments, reply_items, server_failure, text,
};
use crate::endpoint::Effort;
use crate::error;
use crate::history::HistoryEntry;
use crate::reply::Finish;
use crate::reply_builder::{CallDelta, ReplyBuilder};

/// The API's limit for call ids and cache keys.
const MAX_ID_CHARS: usize = 64;

pub(super) fn encode(request: &ModelRequest<'_>, body: &mut Value) {
    let prompt = request.prompt;
    body["store"] = false.into();
    body["include"] = json!(["reasoning.encrypted_content"]);
    body["parallel_tool_calls"] = true.into();
    if !prompt.session.is_empty() {
        body["prompt_cache_key"] = prompt.session.chars().take(MAX_ID_CHARS).collect::<String>().into();
    }
    if let Some(max_output) = request.max_output() {
        // The API accepts no less than 16.
        body["max_output_tokens"] = max_output.max(16).into();
    }
    if let Some(effort) = prompt.effort {
        let effort = match effort {
            Effort::Minimal => Effort::Low,
            Effort::Xhigh | Effort::Max | Effort::Ultra if request.endpoint.is_hosted_by("x.ai") => {
                Effort::High
            }
            Effort::Max | Effort::Ultra => Effort::Xhigh,
            other => other,
        };
        body["reasoning"] = json!({"effort": effort, "summary": "auto"});
    }
    request.add_fields_and_tools(body, |tool, parameters| {
        json!({
            "type": "function", "name": tool.name, "description": tool.description,
            "parameters": parameters, "strict": false,
        })
    });
    if !prompt.system.is_empty() {
        body["instructions"] = prompt.system.into();
    }
    body["input"] = input(request).into();
}

fn input(request: &ModelRequest<'_>) -> Vec<Value> {
    let mut items = Vec::new();
    for entry in request.history() {
        match entry {
            HistoryEntry::User(text, images) => {
                let content = user_content(&text, request.images.select(&images));
                items.push(json!({"role": "user", "content": content}));
            }
            HistoryEntry::Assistant(parts) => {
                items.extend(parts.iter().filter_map(|part| encode_item(part, request.quirks.drop_reasoning)));
            }
            HistoryEntry::Results(results) => items.extend(results.iter().map(|(call, text)| {
                json!({"type": "function_call_output", "call_id": call_id(&call.id), "output": text})
            })),
        }
    }
    items
}

fn user_content(text: &str, images: Vec<(&str, &str)>) -> Value {
    if images.is_empty() {
        return text.into();
    }
    let text = json!({"type": "input_text", "text": text});
    let images = images.into_iter().map(|(kind, data)| {
        json!({"type": "input_image", "image_url": format!("data:{kind};base64,{data}"), "detail": "auto"})
    });
    [text].into_iter().chain(images).collect()
}

fn encode_item(part: &Part, drop_reasoning: bool) -> Option<Value> {
    Some(match part {
        Part::Text { text } => json!({"role": "assistant", "content": text}),
        Part::Reasoning(_) if drop_reasoning => return None,
        Part::Reasoning(reasoning) => reasoning.replay.clone()?,
        Part::Call(call) => {
            let arguments = encode_arguments(&call.arguments).to_string();
            json!({"type": "function_call", "call_id": call_id(&call.id), "name": call.name, "arguments": arguments})
        }
    })
}

fn call_id(id: &CallId) -> String {
    super::limit_call_id(id, MAX_ID_CHARS)
}

/// Decodes the events of a response.
#[derive(Debug, Default)]
pub(super) struct ResponsesDecoder {
    /// The indexes of messages whose text was streamed.
    streamed: BTreeSet<u64>,
}

impl Decoder for ResponsesDecoder {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, event: &Value) -> DecodeResult {
        let index = count(event, "/output_index");
        match text(event, "type") {
            "response.output_text.delta" => {
                self.streamed.insert(index);
                builder.push_plain_text(text(event, "delta"));
            }
            "response.refusal.delta" => builder.refusal.push_str(text(event, "delta")),
            "response.reasoning_summary_text.delta" | "response.reasoning_text.delta" => {
                builder.push_reasoning(text(event, "delta"));
            }
            "response.reasoning_summary_part.added" if count(event, "/summary_index") > 0 => {
                builder.push_reasoning("\n\n")
            }
            "response.output_item.added" if event["item"]["type"] == "function_call" => {
                push_call(builder, index, &event["item"])?;
            }
            "response.function_call_arguments.delta" => {
                let arguments = event.get("delta");
                builder.push_call(&CallDelta { index: Some(index), arguments, ..CallDelta::default() })?;
            }
            "response.function_call_arguments.done" => {
                builder.set_call_arguments(index, event.get("arguments"))
            }
            "response.output_item.done" => self.decode_item(builder, index, &event["item"])?,
            "response.completed" | "response.incomplete" => {
                self.decode_response(builder, &event["response"])?;
                builder.has_ended = true;
            }
            "response.failed" | "response.cancelled" => return Err(server_failure(&event["response"])),
            "error" => return Err(error::from_stream(event)),
            _ => {}
        }
        Ok(())
    }

    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult {
        reply_items(body, "output")?;
        self.decode_response(builder, body)
    }
}

impl ResponsesDecoder {
    /// Decodes the complete response. Its items count only if they were not streamed.
    fn decode_response(&mut self, builder: &mut ReplyBuilder<'_>, response: &Value) -> DecodeResult {
        if matches!(text(response, "status"), "failed" | "cancelled") {
            return Err(server_failure(response));
        }
        if builder.is_empty() {
            let items = response["output"].as_array().into_iter().flatten();
            for (index, item) in (0..).zip(items) {
                self.decode_item(builder, index, item)?;
            }
        }
        let usage = &response["usage"];
        let cache_read = count(usage, "/input_tokens_details/cached_tokens");
        let cache_write = count(usage, "/input_tokens_details/cache_write_tokens");
        builder.usage = Usage {
            input: count(usage, "/input_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
            cache_read,
            cache_write,
            output: count(usage, "/output_tokens"),
            reasoning: count(usage, "/output_tokens_details/reasoning_tokens"),
        };
        builder.finish = Some(match response.pointer("/incomplete_details/reason").and_then(Value::as_str) {
            Some("content_filter") => Finish::Filtered(String::new()),
            Some(_) => Finish::Length,
            None if text(response, "status") == "incomplete" => Finish::Length,
            None => Finish::Stop,
        });
        Ok(())
    }

    /// Decodes a finished item.
    fn decode_item(&mut self, builder: &mut ReplyBuilder<'_>, index: u64, item: &Value) -> DecodeResult {
        match text(item, "type") {
            "function_call" => {
                push_call(builder, index, item)?;
                builder.set_call_arguments(index, item.get("arguments"));
                if text(item, "status") != "incomplete" {
                    builder.close_calls();
                }
            }
            "reasoning" => {
                let mut replay = item.clone();
                replay.as_object_mut().map(|fields| fields.remove("status"));
                builder.set_replay(replay);
            }
            "message" if !self.streamed.contains(&index) => {
                for block in item["content"].as_array().into_iter().flatten() {
                    builder.push_plain_text(text(block, "text"));
                    builder.refusal.push_str(text(block, "refusal"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}

fn push_call(builder: &mut ReplyBuilder<'_>, index: u64, item: &Value) -> DecodeResult {
    let id = match text(item, "call_id") {
        "" => text(item, "id"),
        id => id,
    };
    let name = text(item, "name");
    builder.push_call(&CallDelta { index: Some(index), id, name, ..CallDelta::default() })
}
