//! Responses: OpenAI's checks and its replies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::chat::check_tool;
use super::image;
use super::script::{ReplyItem, ScriptedReply, argument_text, text_deltas};

const FIELDS: &[&str] = &[
    "include", "input", "instructions", "max_output_tokens", "metadata", "model", "parallel_tool_calls",
    "prompt_cache_key", "reasoning", "service_tier", "store", "stream", "temperature", "text", "tool_choice",
    "tools", "top_p", "truncation", "user",
];

pub(super) fn check(body: &Value) -> Result<(), String> {
    for (field, _) in body.as_object().into_iter().flatten() {
        if !FIELDS.contains(&field.as_str()) {
            return Err(format!("Unknown parameter: '{field}'."));
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("Missing required parameter: 'model'.".to_owned());
    }
    if body["prompt_cache_key"].as_str().is_some_and(|key| key.len() > 64) {
        return Err("Invalid 'prompt_cache_key': string too long.".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        check_tool(tool).map_err(|why| format!("tools: {why}"))?;
        if tool["type"] != "function" {
            return Err("Missing required parameter: 'tools[0].type'.".to_owned());
        }
    }
    match &body["input"] {
        Value::String(text) if !text.is_empty() => Ok(()),
        Value::Array(items) if !items.is_empty() => check_items(items),
        _ => Err("Missing required parameter: 'input'.".to_owned()),
    }
}

fn check_items(items: &[Value]) -> Result<(), String> {
    let mut open: BTreeSet<&str> = BTreeSet::new();
    for (at, item) in items.iter().enumerate() {
        let text = |key: &str| item[key].as_str().unwrap_or_default();
        match (text("type"), text("role")) {
            ("" | "message", "user" | "assistant" | "system" | "developer") => {
                if !item["content"].is_string() && !item["content"].is_array() {
                    return Err(format!("Invalid type for 'input[{at}].content'."));
                }
                let parts = item["content"].as_array().into_iter().flatten();
                for part in parts.filter(|part| !part["text"].is_string()) {
                    match text("role") {
                        "user" => drop(image::from_responses(part)?),
                        _ => return Err(format!("Invalid value: 'input[{at}].content'.")),
                    }
                }
            }
            ("function_call", _) => {
                let object =
                    serde_json::from_str::<Value>(text("arguments")).is_ok_and(|value| value.is_object());
                if !object
                    || text("name").is_empty()
                    || text("call_id").is_empty()
                    || text("call_id").len() > 64
                {
                    return Err(format!("Invalid 'input[{at}]': {item}"));
                }
                open.insert(text("call_id"));
            }
            ("function_call_output", _) => {
                if !open.remove(text("call_id")) || !item["output"].is_string() {
                    return Err(format!(
                        "No tool call found for function call output with call_id {}.",
                        text("call_id")
                    ));
                }
            }
            ("reasoning", _) => {
                if !item["id"].is_string() || !item["summary"].is_array() {
                    return Err(format!("Invalid 'input[{at}]': {item}"));
                }
                if items.get(at + 1).is_none() {
                    return Err(format!(
                        "Item '{}' of type 'reasoning' was provided without its required following item.",
                        text("id")
                    ));
                }
            }
            _ => return Err(format!("Invalid value: 'input[{at}]': {item}")),
        }
    }
    match open.first() {
        Some(call) => Err(format!("No tool output found for function call {call}.")),
        None => Ok(()),
    }
}

fn items(reply: &ScriptedReply) -> Vec<Value> {
    let encode = |(at, item): (usize, &ReplyItem)| match item {
        ReplyItem::Text(text) => json!({
            "id": format!("msg_{at}"), "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": []}],
        }),
        ReplyItem::Reasoning(text) => json!({
            "id": format!("rs_{at}"), "type": "reasoning", "summary": [{"type": "summary_text", "text": text}],
            "encrypted_content": format!("sealed {}", text.len()),
        }),
        ReplyItem::Call { id, name, arguments } => {
            // A call that the token limit ended is incomplete.
            let is_cut = reply.finish_reason() == "length" && at + 1 == reply.items.len();
            json!({
                "id": format!("fc_{at}"), "type": "function_call", "call_id": id, "name": name,
                "status": if is_cut { "incomplete" } else { "completed" }, "arguments": argument_text(arguments),
            })
        }
    };
    reply.items.iter().enumerate().map(encode).collect()
}

fn response(reply: &ScriptedReply, model: &str, output: Vec<Value>, is_done: bool) -> Value {
    let (status, details) = match (is_done, reply.finish_reason()) {
        (false, _) => ("in_progress", Value::Null),
        (true, "length") => ("incomplete", json!({"reason": "max_output_tokens"})),
        (true, "content_filter") => ("incomplete", json!({"reason": "content_filter"})),
        (true, _) => ("completed", Value::Null),
    };
    let usage = json!({
        "input_tokens": 100, "input_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 0},
        "output_tokens": 20, "output_tokens_details": {"reasoning_tokens": 5}, "total_tokens": 120,
    });
    json!({
        "id": "resp_1", "object": "response", "created_at": 1_700_000_000, "status": status, "error": null, "incomplete_details": details,
        "instructions": null, "model": model, "output": output, "parallel_tool_calls": true, "tool_choice": "auto", "tools": [],
        "temperature": 1.0, "top_p": 1.0, "metadata": {}, "usage": if is_done { usage } else { Value::Null },
    })
}

pub(super) fn stream(reply: &ScriptedReply, model: &str) -> String {
    let mut out = String::new();
    let mut number = 0;
    let mut send = |mut event: Value| {
        event["sequence_number"] = number.into();
        number += 1;
        let kind = event["type"].as_str().unwrap_or_default().to_owned();
        out.push_str(&format!("event: {kind}\ndata: {event}\n\n"));
    };
    send(json!({"type": "response.created", "response": response(reply, model, Vec::new(), false)}));
    let items = items(reply);
    for ((at, reply_item), item) in reply.items.iter().enumerate().zip(&items) {
        let id = &item["id"];
        let mut started = item.clone();
        match reply_item {
            ReplyItem::Text(text) => {
                started["content"] = json!([]);
                started["status"] = "in_progress".into();
                send(json!({"type": "response.output_item.added", "output_index": at, "item": started}));
                let empty = json!({"type": "output_text", "text": "", "annotations": []});
                let part = json!({"type": "response.content_part.added", "item_id": id, "output_index": at, "content_index": 0, "part": empty});
                send(part);
                for delta in text_deltas(text) {
                    send(json!({
                        "type": "response.output_text.delta", "item_id": id, "output_index": at, "content_index": 0, "delta": delta, "logprobs": [],
                    }));
                }
                send(json!({
                    "type": "response.output_text.done", "item_id": id, "output_index": at, "content_index": 0, "text": text, "logprobs": [],
                }));
                let part = &item["content"][0];
                send(
                    json!({"type": "response.content_part.done", "item_id": id, "output_index": at, "content_index": 0, "part": part}),
                );
            }
            ReplyItem::Reasoning(text) => {
                started["summary"] = json!([]);
                started["encrypted_content"] = "".into();
                send(json!({"type": "response.output_item.added", "output_index": at, "item": started}));
                let empty = json!({"type": "summary_text", "text": ""});
                send(
                    json!({"type": "response.reasoning_summary_part.added", "item_id": id, "output_index": at, "summary_index": 0, "part": empty}),
                );
                for delta in text_deltas(text) {
                    send(
                        json!({"type": "response.reasoning_summary_text.delta", "item_id": id, "output_index": at, "summary_index": 0, "delta": delta}),
                    );
                }
            }
            ReplyItem::Call { arguments, .. } => {
                started["arguments"] = "".into();
                started["status"] = "in_progress".into();
                send(json!({"type": "response.output_item.added", "output_index": at, "item": started}));
                let text = argument_text(arguments);
                for delta in text_deltas(&text) {
                    send(
                        json!({"type": "response.function_call_arguments.delta", "item_id": id, "output_index": at, "delta": delta}),
                    );
                }
                send(
                    json!({"type": "response.function_call_arguments.done", "item_id": id, "output_index": at, "arguments": text}),
                );
            }
        }
        send(json!({"type": "response.output_item.done", "output_index": at, "item": item}));
    }
    let kind = match reply.finish_reason() {
        "length" | "content_filter" => "response.incomplete",
        _ => "response.completed",
    };
    send(json!({"type": kind, "response": response(reply, model, items, true)}));
    out
}

pub(super) fn whole(reply: &ScriptedReply, model: &str) -> Value {
    response(reply, model, items(reply), true)
}
