//! Anthropic's Messages: its checks and its replies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chat::check_tool;
use super::image;
use super::script::{ReplyItem, ScriptedReply, argument_text, text_deltas};

const FIELDS: &[&str] = &[
    "max_tokens", "messages", "metadata", "model", "output_config", "service_tier", "stop_sequences",
    "stream", "system", "temperature", "thinking", "tool_choice", "tools", "top_k", "top_p",
];

/// The longest id of a call.
const MAX_ID_CHARS: usize = 64;

pub(super) fn check(body: &Value, max_output: Option<u64>) -> Result<(), String> {
    for (field, _) in body.as_object().into_iter().flatten() {
        if !FIELDS.contains(&field.as_str()) {
            return Err(format!("{field}: Extra inputs are not permitted"));
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("model: Field required".to_owned());
    }
    let cap = body["max_tokens"].as_u64().filter(|cap| *cap > 0).ok_or("max_tokens: Field required")?;
    if let Some(max) = max_output.filter(|max| cap > *max) {
        return Err(format!(
            "max_tokens: {cap} > {max}, which is the maximum allowed number of output tokens for {}",
            body["model"]
        ));
    }
    if body["thinking"]["budget_tokens"].as_u64().is_some_and(|budget| budget >= cap || budget < 1024) {
        return Err("`max_tokens` must be greater than `thinking.budget_tokens`".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        check_tool(tool).map_err(|why| format!("tools: {why}"))?;
    }
    let markers = body.to_string().matches("\"cache_control\"").count();
    if markers > 4 {
        return Err(format!("A maximum of 4 blocks with cache_control may be provided. Found {markers}."));
    }
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("messages: Field required")?;
    check_messages(messages)?;
    if body["thinking"]["type"] == "enabled" { check_open_turn(messages) } else { Ok(()) }
}

/// With a budget for reasoning, a turn that waits for results must begin with reasoning.
fn check_open_turn(messages: &[Value]) -> Result<(), String> {
    let has = |message: &Value, kind: &str| {
        message["content"].as_array().into_iter().flatten().any(|block| block["type"] == kind)
    };
    if !messages.last().is_some_and(|last| has(last, "tool_result")) {
        return Ok(());
    }
    let is_results = |message: &Value| message["role"] == "user" && has(message, "tool_result");
    let turn =
        messages.iter().rev().take_while(|message| message["role"] == "assistant" || is_results(message));
    let Some(first) = turn.filter(|message| message["role"] == "assistant").last() else { return Ok(()) };
    let kind = first["content"][0]["type"].as_str().unwrap_or_default();
    if matches!(kind, "thinking" | "redacted_thinking") {
        return Ok(());
    }
    Err(format!(
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `{kind}`. When `thinking` is enabled, a final `assistant` message must start with a thinking block."
    ))
}

fn check_messages(messages: &[Value]) -> Result<(), String> {
    let mut open: BTreeSet<String> = BTreeSet::new();
    let mut seen: BTreeSet<String> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let expected = if at % 2 == 0 { "user" } else { "assistant" };
        if message["role"] != expected {
            return Err(format!("messages.{at}: roles must alternate between \"user\" and \"assistant\""));
        }
        let one;
        let blocks = match &message["content"] {
            Value::String(text) => {
                one = vec![json!({"type": "text", "text": text})];
                one.as_slice()
            }
            Value::Array(blocks) if !blocks.is_empty() => blocks.as_slice(),
            _ => return Err(format!("messages.{at}: all messages must have non-empty content")),
        };
        let mut past_results = false;
        for block in blocks {
            match (expected, block["type"].as_str().unwrap_or_default()) {
                (_, "text") => {
                    past_results = true;
                    if block["text"].as_str().is_none_or(|text| text.trim().is_empty()) {
                        return Err(
                            "messages: text content blocks must contain non-whitespace text".to_owned()
                        );
                    }
                }
                ("user", "image") => {
                    past_results = true;
                    image::from_anthropic(block).map_err(|why| format!("messages.{at}: {why}"))?;
                }
                ("assistant", "thinking")
                    if block["signature"].is_string() && block["thinking"].is_string() => {}
                ("assistant", "redacted_thinking") if block["data"].is_string() => {}
                ("assistant", "tool_use") if block["input"].is_object() && block["name"].is_string() => {
                    let id = block["id"].as_str().unwrap_or_default();
                    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
                    let is_valid = !id.is_empty() && id.len() <= MAX_ID_CHARS && id.chars().all(allowed);
                    if !is_valid || !open.insert(id.to_owned()) || !seen.insert(id.to_owned()) {
                        return Err(format!("messages.{at}: tool_use.id {id:?}"));
                    }
                }
                ("user", "tool_result") if !past_results => {
                    let id = block["tool_use_id"].as_str().unwrap_or_default();
                    if !open.remove(id) {
                        return Err(format!(
                            "messages.{at}: unexpected `tool_use_id` found in `tool_result` blocks: {id}"
                        ));
                    }
                }
                _ => return Err(format!("messages.{at}: unexpected block {block}")),
            }
        }
        if expected == "user" && !open.is_empty() {
            return Err(format!(
                "messages.{at}: `tool_use` ids were found without `tool_result` blocks: {open:?}"
            ));
        }
    }
    Ok(())
}

fn stop_reason(reply: &ScriptedReply) -> &str {
    match reply.finish_reason() {
        "length" => "max_tokens",
        "tool_calls" => "tool_use",
        "content_filter" => "refusal",
        "stop" => "end_turn",
        other => other,
    }
}

fn blocks(reply: &ScriptedReply) -> Vec<Value> {
    let block = |item: &ReplyItem| match item {
        ReplyItem::Text(text) => json!({"type": "text", "text": text, "citations": null}),
        ReplyItem::Reasoning(text) => {
            json!({"type": "thinking", "thinking": text, "signature": format!("signed {}", text.len())})
        }
        ReplyItem::Call { id, name, arguments } => {
            let input: Value =
                serde_json::from_str(&argument_text(arguments)).unwrap_or_else(|_| arguments.clone());
            json!({"type": "tool_use", "id": id, "name": name, "input": input})
        }
    };
    reply.items.iter().map(block).collect()
}

fn usage(output: u64) -> Value {
    json!({"input_tokens": 40, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 60, "output_tokens": output})
}

pub(super) fn stream(reply: &ScriptedReply, model: &str) -> String {
    let mut out = String::new();
    let mut send = |event: Value| {
        let kind = event["type"].as_str().unwrap_or_default();
        out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    };
    let message = json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": [], "stop_reason": null, "stop_sequence": null,
        "usage": usage(1),
    });
    send(json!({"type": "message_start", "message": message}));
    send(json!({"type": "ping"}));
    for (index, item) in reply.items.iter().enumerate() {
        match item {
            ReplyItem::Text(text) => {
                send(
                    json!({"type": "content_block_start", "index": index, "content_block": {"type": "text", "text": ""}}),
                );
                for piece in text_deltas(text) {
                    send(delta_of(index, json!({"type": "text_delta", "text": piece})));
                }
            }
            ReplyItem::Reasoning(text) => {
                let block = json!({"type": "thinking", "thinking": "", "signature": ""});
                send(json!({"type": "content_block_start", "index": index, "content_block": block}));
                for piece in text_deltas(text) {
                    send(delta_of(index, json!({"type": "thinking_delta", "thinking": piece})));
                }
                let signature = format!("signed {}", text.len());
                send(delta_of(index, json!({"type": "signature_delta", "signature": signature})));
            }
            ReplyItem::Call { id, name, arguments } => {
                let block = json!({"type": "tool_use", "id": id, "name": name, "input": {}});
                send(json!({"type": "content_block_start", "index": index, "content_block": block}));
                send(delta_of(index, json!({"type": "input_json_delta", "partial_json": ""})));
                for piece in text_deltas(&argument_text(arguments)) {
                    send(delta_of(index, json!({"type": "input_json_delta", "partial_json": piece})));
                }
            }
        }
        send(json!({"type": "content_block_stop", "index": index}));
    }
    let delta = json!({"stop_reason": stop_reason(reply), "stop_sequence": null});
    send(json!({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 20}}));
    send(json!({"type": "message_stop"}));
    out
}

fn delta_of(index: usize, delta: Value) -> Value {
    json!({"type": "content_block_delta", "index": index, "delta": delta})
}

pub(super) fn whole(reply: &ScriptedReply, model: &str) -> Value {
    json!({
        "id": "msg_1", "type": "message", "role": "assistant", "model": model, "content": blocks(reply),
        "stop_reason": stop_reason(reply), "stop_sequence": null, "usage": usage(20),
    })
}
