//! OpenAI's Chat Completions, and the variants of other servers.
//!
//! | server | difference |
//! |---|---|
//! | OpenAI | `max_completion_tokens`; `developer` instead of `system` |
//! | OpenRouter | `reasoning`; `reasoning_details`, sent back unchanged; `usage.cost`; cache markers for Claude |
//! | DeepSeek, Kimi, MiMo | `reasoning_content`, which every later request must repeat |
//! | Ollama | all calls have index 0; the request sets the context window |
//! | llama.cpp | content as objects; grammars |

use hermes_types::{Call, Part, Usage};
use serde_json::{Map, Value, json};

use super::{DecodeResult, Decoder, ModelRequest, StreamStep, arguments_text, count, server_failure, text};
use crate::endpoint::{Effort, Endpoint};
use crate::error::{self, RequestFailure};
use crate::history::{self, HistoryEntry};
use crate::json;
use crate::reply::Finish;
use crate::reply_builder::{CallDelta, ReplyBuilder};

/// How a server wants earlier reasoning back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningReplay {
    Omit,
    /// As `reasoning_details`.
    Details,
    /// As `reasoning_content`, which must not be empty.
    Content,
}

pub(crate) fn encode(request: &ModelRequest<'_>) -> Map<String, Value> {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let is_openai = endpoint.is_hosted_by("openai.com") || endpoint.is_hosted_by("openai.azure.com");
    let mut body = Map::new();
    body.insert("model".to_owned(), endpoint.model.as_str().into());
    if !request.quirks.no_streaming {
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if let Some(max_output) = request.max_output() {
        let newer = (is_openai || !request.accepts("max_tokens")) && request.accepts("max_completion_tokens");
        body.insert(if newer { "max_completion_tokens" } else { "max_tokens" }.to_owned(), max_output.into());
    }
    if let Some(num_ctx) = request.quirks.num_ctx {
        body.insert("options".to_owned(), json!({"num_ctx": num_ctx}));
    }
    let is_openrouter = endpoint.is_hosted_by("openrouter.ai");
    if is_openrouter {
        body.insert("usage".to_owned(), json!({"include": true}));
    }
    match prompt.effort {
        Some(Effort::None) if is_openrouter => {
            body.insert("reasoning".to_owned(), json!({"enabled": false}));
        }
        Some(effort) if is_openrouter => {
            body.insert("reasoning".to_owned(), json!({"effort": effort.as_str()}));
        }
        Some(Effort::None) if endpoint.is_hosted_by("deepseek.com") => {
            body.insert("thinking".to_owned(), json!({"type": "disabled"}));
        }
        Some(effort) => {
            body.insert("reasoning_effort".to_owned(), effort.as_str().into());
        }
        None => {}
    }
    request.apply_extra_fields(&mut body);
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let parameters = request.tool_schema(&tool.parameters);
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": parameters,
            }})
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    let is_developer = is_openai && has_developer_role(&endpoint.model);
    let mut messages = messages(request, if is_developer { "developer" } else { "system" });
    if is_openrouter && endpoint.model.contains("claude") {
        add_cache_markers(&mut messages);
    }
    body.insert("messages".to_owned(), messages.into());
    body
}

/// OpenAI's reasoning models have this role instead of `system`.
fn has_developer_role(model: &str) -> bool {
    ["gpt-5", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}

fn reasoning_replay(endpoint: &Endpoint) -> ReasoningReplay {
    if endpoint.is_hosted_by("openrouter.ai") {
        return ReasoningReplay::Details;
    }
    let hosts = ["deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com", "xiaomimimo.com"];
    if hosts.iter().any(|host| endpoint.is_hosted_by(host)) {
        ReasoningReplay::Content
    } else {
        ReasoningReplay::Omit
    }
}

fn messages(request: &ModelRequest<'_>, system: &str) -> Vec<Value> {
    let endpoint = request.endpoint;
    let replay = match reasoning_replay(endpoint) {
        ReasoningReplay::Details if request.quirks.drop_reasoning => ReasoningReplay::Omit,
        replay => replay,
    };
    let issuer = endpoint.issuer();
    let mut messages = Vec::new();
    if !request.prompt.system.is_empty() {
        messages.push(json!({"role": system, "content": request.prompt.system}));
    }
    for entry in history::normalize(request.prompt.messages) {
        match entry {
            HistoryEntry::User(text, images) => {
                let content = user_content(&text, request.images.select(&images));
                messages.push(json!({"role": "user", "content": content}));
            }
            HistoryEntry::Assistant(parts) => messages.push(assistant_message(&parts, replay, &issuer)),
            HistoryEntry::Results(results) => messages.extend(results.iter().map(
                |(call, text)| json!({"role": "tool", "tool_call_id": call.id.as_str(), "content": text}),
            )),
        }
    }
    messages
}

/// Servers without image input may accept only a string.
fn user_content(text: &str, images: Vec<(&str, &str)>) -> Value {
    if images.is_empty() {
        return text.into();
    }
    let text = Some(text).filter(|text| !text.trim().is_empty());
    let text = text.map(|text| json!({"type": "text", "text": text}));
    let images = images.into_iter().map(
        |(kind, data)| json!({"type": "image_url", "image_url": {"url": format!("data:{kind};base64,{data}")}}),
    );
    text.into_iter().chain(images).collect()
}

fn assistant_message(parts: &[&Part], replay: ReasoningReplay, issuer: &str) -> Value {
    let mut message = Map::new();
    let mut content = String::new();
    let mut calls = Vec::new();
    let mut own = Vec::new();
    for part in parts {
        match part {
            Part::Text { text } if content.is_empty() => content.push_str(text),
            Part::Text { text } => content.extend(["\n\n", text]),
            Part::Call(call) => calls.push(encode_call(call)),
            Part::Reasoning(reasoning) => own.extend(history::issued_by(reasoning, issuer)),
        }
    }
    message.insert("role".to_owned(), "assistant".into());
    let content = if content.is_empty() { Value::Null } else { content.into() };
    message.insert("content".to_owned(), content);
    match replay {
        ReasoningReplay::Omit => {}
        ReasoningReplay::Details => {
            let details =
                own.iter().filter_map(|one| one.replay.as_ref()?.get("reasoning_details")?.as_array());
            let details: Vec<Value> = details.flatten().cloned().collect();
            if !details.is_empty() {
                message.insert("reasoning_details".to_owned(), details.into());
            }
        }
        ReasoningReplay::Content => {
            let text: String = own.iter().map(|one| one.text.as_str()).collect();
            let text = if text.trim().is_empty() { " ".to_owned() } else { text };
            message.insert("reasoning_content".to_owned(), text.into());
        }
    }
    if !calls.is_empty() {
        message.insert("tool_calls".to_owned(), calls.into());
    }
    Value::Object(message)
}

fn encode_call(call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": arguments_text(&call.arguments)});
    json!({"id": call.id.as_str(), "type": "function", "function": function})
}

/// Marks the parts that a provider of Claude should cache: the system prompt and the last three
/// messages with text.
fn add_cache_markers(messages: &mut [Value]) {
    for message in messages.iter_mut() {
        if let Value::String(text) = &mut message["content"] {
            let text = std::mem::take(text);
            message["content"] = json!([{"type": "text", "text": text}]);
        }
    }
    let marker = json!({"type": "ephemeral"});
    let (first, rest) = match messages.split_first_mut() {
        Some((first, rest)) if first["role"] == "system" => (Some(first), rest),
        _ => (None, messages),
    };
    let last = rest.iter_mut().rev().filter(|message| message["content"].is_array()).take(3);
    for message in first.into_iter().chain(last) {
        // Only text can be marked.
        let mut parts = message["content"].as_array_mut().into_iter().flatten();
        if let Some(text) = parts.find(|part| part["type"] == "text") {
            text["cache_control"] = marker.clone();
        }
    }
}

/// Decodes chunks and complete replies: a complete reply is a chunk with everything in it.
#[derive(Debug, Default)]
pub(crate) struct ChatDecoder {
    is_done: bool,
    /// The reply is not streamed, so each call in it is another one, whatever its index.
    is_complete: bool,
    finish_reason: Option<String>,
    details: Vec<Value>,
}

impl Decoder for ChatDecoder {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, data: &str) -> DecodeResult<StreamStep> {
        if data.trim() == "[DONE]" {
            self.is_done = true;
            return Ok(StreamStep::Done);
        }
        // Data that is not JSON is ignored; a reply without any readable data fails at its end.
        if let Ok(chunk) = json::parse(data) {
            self.chunk(builder, &chunk)?;
        }
        Ok(StreamStep::Continue)
    }

    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult {
        if body.get("choices").is_none() && body.get("error").is_none() {
            return Err(RequestFailure::malformed("the response has no choices"));
        }
        self.is_done = true;
        self.is_complete = true;
        self.chunk(builder, body)
    }

    fn finish(&mut self, builder: &mut ReplyBuilder<'_>) -> Option<Finish> {
        if !self.details.is_empty() {
            builder.set_first_replay(json!({"reasoning_details": std::mem::take(&mut self.details)}));
        }
        self.map_finish(builder)
    }
}

impl ChatDecoder {
    fn map_finish(&self, builder: &ReplyBuilder<'_>) -> Option<Finish> {
        match self.finish_reason.as_deref() {
            Some("length" | "max_tokens" | "model_length" | "MAX_TOKENS") => Some(Finish::Length),
            Some("content_filter" | "safety" | "refusal" | "SAFETY") => Some(Finish::Filtered(String::new())),
            Some("tool_calls" | "function_call" | "tool_use") => Some(Finish::Calls),
            Some(_) => Some(Finish::Stop),
            // Some servers send only the end marker.
            None if self.is_done && !builder.is_empty() => Some(Finish::Stop),
            None => None,
        }
    }

    fn chunk(&mut self, builder: &mut ReplyBuilder<'_>, chunk: &Value) -> DecodeResult {
        if chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(error::from_stream(chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            record_usage(builder, usage);
        }
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(()) };
        if let Some(usage) = choice.get("usage").filter(|usage| usage.is_object()) {
            record_usage(builder, usage);
        }
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.delta(builder, delta)?;
        }
        match choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            Some("error") => {
                return Err(server_failure(choice));
            }
            Some(reason) => {
                self.finish_reason = Some(reason.to_owned());
                builder.finish = self.map_finish(builder);
            }
            None => {}
        }
        Ok(())
    }

    fn delta(&mut self, builder: &mut ReplyBuilder<'_>, delta: &Value) -> DecodeResult {
        self.decode_reasoning(builder, delta);
        match delta.get("content") {
            Some(Value::String(text)) => builder.push_text(text),
            Some(blocks @ (Value::Array(_) | Value::Object(_))) => push_content(builder, blocks),
            _ => {}
        }
        builder.push_refusal(text(delta, "refusal"));
        let calls = match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.as_slice(),
            Some(one @ Value::Object(_)) => std::slice::from_ref(one),
            _ => &[],
        };
        for (position, call) in (0..).zip(calls) {
            let function = call.get("function").unwrap_or(call);
            builder.push_call(&CallDelta {
                index: if self.is_complete {
                    Some(position)
                } else {
                    call.get("index").and_then(Value::as_u64)
                },
                id: text(call, "id"),
                name: text(function, "name"),
                arguments: function.get("arguments").or_else(|| function.get("parameters")),
            })?;
        }
        // The older form, which allows only one call.
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            let (name, arguments) = (text(function, "name"), function.get("arguments"));
            builder.push_call(&CallDelta { index: Some(0), id: "", name, arguments })?;
        }
        Ok(())
    }

    /// Servers send reasoning under several names, some under two at once.
    fn decode_reasoning(&mut self, builder: &mut ReplyBuilder<'_>, delta: &Value) {
        let named = ["reasoning_content", "reasoning"].map(|key| text(delta, key));
        let reasoning = named.into_iter().find(|reasoning| !reasoning.is_empty()).unwrap_or_default();
        builder.push_reasoning(reasoning);
        let details = delta.get("reasoning_details").and_then(Value::as_array);
        for detail in details.into_iter().flatten() {
            if reasoning.is_empty() {
                builder.push_reasoning(text(detail, "text"));
                builder.push_reasoning(text(detail, "summary"));
            }
            self.merge_detail(detail);
        }
    }

    /// Joins the pieces of a reasoning block: text is appended, every other field is replaced.
    fn merge_detail(&mut self, piece: &Value) {
        let Some(piece) = piece.as_object() else { return };
        let same = |known: &&mut Value| {
            known.get("type") == piece.get("type")
                && known.get("index") == piece.get("index")
                && (piece.get("index").is_some() || known.get("id") == piece.get("id"))
                && known["type"] != "reasoning.encrypted"
        };
        let Some(Value::Object(known)) = self.details.iter_mut().rev().find(same) else {
            self.details.push(Value::Object(piece.clone()));
            return;
        };
        for (key, value) in piece {
            match (known.get_mut(key), value) {
                (Some(Value::String(old)), Value::String(new)) if key == "text" || key == "summary" => {
                    old.push_str(new);
                }
                (Some(_), Value::Null) => {}
                _ => {
                    known.insert(key.clone(), value.clone());
                }
            }
        }
    }
}

/// Adds content blocks: text or reasoning.
fn push_content(builder: &mut ReplyBuilder<'_>, blocks: &Value) {
    match blocks {
        Value::Array(blocks) => blocks.iter().for_each(|block| push_content(builder, block)),
        Value::String(text) => builder.push_text(text),
        Value::Object(block) => {
            let thinking = block.get("thinking").or_else(|| block.get("reasoning"));
            match thinking {
                Some(Value::String(reasoning)) => builder.push_reasoning(reasoning),
                Some(Value::Array(inner)) => {
                    inner.iter().for_each(|one| builder.push_reasoning(text(one, "text")))
                }
                _ => builder.push_text(block.get("text").and_then(Value::as_str).unwrap_or_default()),
            }
        }
        _ => {}
    }
}

fn record_usage(builder: &mut ReplyBuilder<'_>, usage: &Value) {
    let cached = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
    let cache_read = cached.iter().map(|path| count(usage, path)).max().unwrap_or(0);
    let cache_write = count(usage, "/prompt_tokens_details/cache_write_tokens");
    builder.usage = Usage {
        input: count(usage, "/prompt_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
        cache_read,
        cache_write,
        output: count(usage, "/completion_tokens"),
        reasoning: count(usage, "/completion_tokens_details/reasoning_tokens"),
    };
    if let Some(cost) = usage.get("cost").and_then(Value::as_f64) {
        builder.cost = Some(cost);
    }
}
