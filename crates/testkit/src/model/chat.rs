//! Chat Completions: OpenAI's checks and its replies.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::image;
use super::script::{ModelScript, ReplyItem, ScriptedReply, text_deltas};

/// The fields of OpenAI, and those that other servers accept.
const FIELDS: &[&str] = &[
    "frequency_penalty", "logprobs", "max_completion_tokens", "max_tokens", "messages", "metadata", "model",
    "n", "parallel_tool_calls", "presence_penalty", "prompt_cache_key", "provider", "reasoning",
    "reasoning_effort", "response_format", "seed", "service_tier", "stop", "store", "stream",
    "stream_options", "temperature", "thinking", "tool_choice", "tools", "top_p", "usage", "user",
    "verbosity",
];
/// The longest id of a call that OpenAI accepts.
const MAX_ID_CHARS: usize = 40;
/// What Google accepts instead of its own signature.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// Checks a request. Ollama ignores fields that it does not know, and Gemini wants the signatures of
/// its calls back.
pub(super) fn check(body: &Value, script: &ModelScript) -> Result<(), String> {
    let fields = body.as_object().into_iter().flatten();
    for (field, _) in fields {
        if script.ollama.is_none() && !FIELDS.contains(&field.as_str()) {
            return Err(format!("Unrecognized request argument supplied: {field}"));
        }
    }
    if body["model"].as_str().is_none_or(str::is_empty) {
        return Err("you must provide a model parameter".to_owned());
    }
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err("The 'stream_options' parameter is only allowed when 'stream' is enabled.".to_owned());
    }
    for tool in body["tools"].as_array().into_iter().flatten() {
        check_tool(&tool["function"]).map_err(|why| format!("tools: {why}"))?;
        if tool["type"] != "function" {
            return Err("tools: Missing required parameter: 'type'".to_owned());
        }
    }
    let messages = body["messages"].as_array().filter(|messages| !messages.is_empty());
    let messages = messages.ok_or("messages: is empty")?;
    for call in messages.iter().flat_map(|message| message["tool_calls"].as_array().into_iter().flatten()) {
        let id = call["id"].as_str().unwrap_or_default();
        if id.chars().count() > MAX_ID_CHARS {
            return Err(format!("Invalid 'messages[1].tool_calls[0].id': string too long: {id}"));
        }
        if !script.signs_calls && !call["extra_content"].is_null() {
            return Err("tool_calls.0.extra_content: Extra inputs are not permitted".to_owned());
        }
    }
    let first_calls = messages.iter().map(|message| &message["tool_calls"][0]).filter(|call| !call.is_null());
    for call in first_calls.filter(|_| script.signs_calls) {
        let signature = &call["extra_content"]["google"]["thought_signature"];
        if signature.is_null() {
            return Err(format!(
                "Function call is missing a thought_signature in functionCall parts. Function call {}",
                call["function"]["name"]
            ));
        }
        if *signature != signature_of(call["id"].as_str().unwrap_or_default())
            && *signature != FOREIGN_SIGNATURE
        {
            return Err("Corrupted thought signature.".to_owned());
        }
    }
    check_messages(messages)
}

fn signature_of(id: &str) -> String {
    format!("signed {id}")
}

/// The field that Gemini adds to a call.
fn sign(call: &mut Value, id: &str, script: &ModelScript) {
    if script.signs_calls {
        call["extra_content"] = json!({"google": {"thought_signature": signature_of(id)}});
    }
}

/// Checks a tool, for every protocol.
pub(super) fn check_tool(tool: &Value) -> Result<(), String> {
    let name = tool["name"].as_str().unwrap_or_default();
    let allowed = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if name.is_empty() || name.len() > 64 || !name.chars().all(allowed) {
        return Err(format!("Invalid name {name:?}"));
    }
    let schema = tool.get("parameters").or_else(|| tool.get("input_schema"));
    match schema {
        Some(Value::Object(schema)) if schema.get("type").is_some_and(|kind| kind == "object") => Ok(()),
        _ => Err(format!("{name}: the schema is not an object")),
    }
}

fn check_messages(messages: &[Value]) -> Result<(), String> {
    // The calls without a result.
    let mut open: BTreeSet<String> = BTreeSet::new();
    for (at, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role != "tool" && !open.is_empty() {
            return Err(format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'. The following tool_call_ids did not have response messages: {}",
                open.into_iter().collect::<Vec<_>>().join(", ")
            ));
        }
        let content = &message["content"];
        let is_text = content.is_string()
            || content.as_array().is_some_and(|blocks| blocks.iter().all(|block| block["text"].is_string()));
        match role {
            "system" | "developer" if at > 0 => {
                return Err(format!("messages[{at}]: {role} is not the first"));
            }
            "system" | "developer" | "user" if is_text => {}
            "user" => {
                let parts = content.as_array().ok_or_else(|| format!("messages[{at}]: {message}"))?;
                for part in parts.iter().filter(|part| !part["text"].is_string()) {
                    image::from_chat(part).map_err(|why| format!("messages[{at}]: {why}"))?;
                }
            }
            "assistant" => {
                let calls = message["tool_calls"].as_array();
                if !is_text && (calls.is_none() || !content.is_null()) {
                    return Err(format!("messages[{at}]: content must be a string unless there are calls"));
                }
                if calls.is_some_and(Vec::is_empty) {
                    return Err(format!("messages[{at}].tool_calls: [] is too short"));
                }
                for call in calls.into_iter().flatten() {
                    let id = call["id"].as_str().filter(|id| !id.is_empty()).ok_or("a call without an id")?;
                    let arguments =
                        call["function"]["arguments"].as_str().ok_or("arguments must be a string")?;
                    let object =
                        serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                    if !object || call["type"] != "function" || !call["function"]["name"].is_string() {
                        return Err(format!("messages[{at}]: invalid call {id}"));
                    }
                    if !open.insert(id.to_owned()) {
                        return Err(format!("messages[{at}]: the id {id} is used twice"));
                    }
                }
            }
            "tool" if is_text => {
                let id = message["tool_call_id"].as_str().unwrap_or_default();
                if !open.remove(id) {
                    return Err(format!(
                        "messages[{at}]: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'"
                    ));
                }
            }
            _ => return Err(format!("messages[{at}]: {message}")),
        }
    }
    if open.is_empty() { Ok(()) } else { Err("the last calls have no results".to_owned()) }
}

fn usage() -> Value {
    json!({
        "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120,
        "prompt_tokens_details": {"cached_tokens": 60},
        "completion_tokens_details": {"reasoning_tokens": 5},
    })
}

pub(super) fn stream(reply: &ScriptedReply, model: &str, script: &ModelScript) -> String {
    let mut out = String::new();
    let mut send = |delta: Value, finish: Value| {
        let chunk = json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model,
            "choices": [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish}],
        });
        out.push_str(&format!("data: {chunk}\n\n"));
    };
    send(json!({"role": "assistant", "content": ""}), Value::Null);
    let mut index = 0;
    for item in &reply.items {
        match item {
            ReplyItem::Text(text) => {
                text_deltas(text).iter().for_each(|piece| send(json!({"content": piece}), Value::Null))
            }
            ReplyItem::Reasoning(text) => {
                text_deltas(text)
                    .iter()
                    .for_each(|piece| send(json!({"reasoning_content": piece}), Value::Null));
            }
            ReplyItem::Call { id, name, arguments } => {
                let (first, rest) = match arguments {
                    Value::String(text) => {
                        (json!(""), text_deltas(text).into_iter().map(Value::from).collect())
                    }
                    other => (other.clone(), Vec::new()),
                };
                let function = json!({"name": name, "arguments": first});
                let mut call = json!({"index": index, "id": id, "type": "function", "function": function});
                sign(&mut call, id, script);
                send(json!({"tool_calls": [call]}), Value::Null);
                for piece in rest {
                    send(
                        json!({"tool_calls": [{"index": index, "function": {"arguments": piece}}]}),
                        Value::Null,
                    );
                }
                index += 1;
            }
        }
    }
    send(json!({}), reply.finish_reason().into());
    let last = json!({
        "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1_700_000_000, "model": model, "choices": [], "usage": usage(),
    });
    out.push_str(&format!("data: {last}\n\ndata: [DONE]\n\n"));
    out
}

pub(super) fn whole(reply: &ScriptedReply, model: &str, script: &ModelScript) -> Value {
    let mut content = String::new();
    let mut reasoning = String::new();
    let mut calls = Vec::new();
    for item in &reply.items {
        match item {
            ReplyItem::Text(text) => content.push_str(text),
            ReplyItem::Reasoning(text) => reasoning.push_str(text),
            ReplyItem::Call { id, name, arguments } => {
                let function = json!({"name": name, "arguments": arguments});
                let mut call = json!({"id": id, "type": "function", "function": function});
                sign(&mut call, id, script);
                calls.push(call);
            }
        }
    }
    let mut message = json!({"role": "assistant", "content": content, "refusal": null});
    if !reasoning.is_empty() {
        message["reasoning_content"] = reasoning.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1_700_000_000, "model": model, "usage": usage(),
        "choices": [{"index": 0, "message": message, "logprobs": null, "finish_reason": reply.finish_reason()}],
    })
}
