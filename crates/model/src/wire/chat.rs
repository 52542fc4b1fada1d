//! OpenAI's Chat Completions, and the variants of other servers.
//!
//! | server | difference |
//! |---|---|
//! | OpenAI | `max_completion_tokens`; `developer` instead of `system` |
//! | OpenRouter | `reasoning`; `reasoning_details`, sent back unchanged; `usage.cost`; cache markers |
//! | DeepSeek, Kimi, MiMo | `reasoning_content`, repeated with every reply that calls a tool |
//! | Gemini | `extra_content` of a call holds a signature, which every later request must repeat |
//! | Mistral | ids of calls have exactly nine letters and digits |
//! | Ollama | all calls have index 0 |
//! | llama.cpp | content as objects; grammars |

use hermes_types::{Call, CallId, Part, Usage};
use serde_json::{Value, json};

use super::{
    DecodeResult, Decoder, ModelRequest, anthropic, count, encode_arguments, reply_items, server_failure,
    text,
};
use crate::endpoint::Effort;
use crate::error;
use crate::history::HistoryEntry;
use crate::reply::Finish;
use crate::reply_builder::{CallDelta, ReplyBuilder};

/// OpenAI's limit for the ids of calls.
const MAX_ID_CHARS: usize = 40;
/// The field of a call with data of its issuer.
const EXTRA_CONTENT: &str = "extra_content";
/// Google's signature for a call that another model made. Gemini 3 rejects a call without one.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// How a server expects earlier reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningReplay {
    Omit,
    /// As `reasoning_details`.
    Details,
    /// As `reasoning_content`, which must not be empty, with replies that call a tool.
    Content,
    /// The same with every reply.
    ContentAlways,
}

pub(super) fn encode(request: &ModelRequest<'_>, body: &mut Value) {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let is_openai = endpoint.is_hosted_by("openai.com") || endpoint.is_hosted_by("openai.azure.com");
    let is_openrouter = endpoint.is_hosted_by("openrouter.ai");
    if !request.quirks.no_streaming {
        body["stream_options"] = json!({"include_usage": true});
    }
    if let Some(max_output) = request.max_output() {
        let newer = (is_openai || !request.accepts("max_tokens")) && request.accepts("max_completion_tokens");
        body[if newer { "max_completion_tokens" } else { "max_tokens" }] = max_output.into();
    }
    if is_openrouter {
        body["usage"] = json!({"include": true});
    }
    if let Some(effort) = prompt.effort {
        encode_effort(request, effort, body);
    }
    request.add_fields_and_tools(body, |tool, parameters| {
        json!({"type": "function", "function": {
            "name": tool.name, "description": tool.description, "parameters": parameters,
        }})
    });
    // OpenAI's reasoning models have another role instead of `system`.
    let is_reasoning = ["gpt-5", "o1", "o3", "o4"].iter().any(|family| endpoint.model.starts_with(family));
    let mut messages = messages(request, if is_openai && is_reasoning { "developer" } else { "system" });
    if is_openrouter && endpoint.model.contains("claude") {
        add_cache_markers(&mut messages);
    }
    body["messages"] = messages.into();
}

fn encode_effort(request: &ModelRequest<'_>, effort: Effort, body: &mut Value) {
    let endpoint = request.endpoint;
    let strongest = |strongest: Effort| if effort >= strongest { strongest } else { effort };
    if endpoint.is_hosted_by("openrouter.ai") {
        let version = anthropic::model_version(&endpoint.model);
        let always_thinks = endpoint.model.contains("claude") && version.is_none_or(|known| known >= (4, 6));
        match strongest(Effort::Max) {
            // These models reject being told not to reason, and read the effort from another field.
            Effort::None if always_thinks => {}
            effort if always_thinks => body["verbosity"] = json!(effort),
            Effort::None => body["reasoning"] = json!({"enabled": false}),
            effort => body["reasoning"] = json!({"effort": effort}),
        }
    } else if endpoint.is_hosted_by("deepseek.com") {
        match effort {
            Effort::None => body["thinking"] = json!({"type": "disabled"}),
            Effort::Xhigh | Effort::Max | Effort::Ultra => body["reasoning_effort"] = json!(Effort::Max),
            effort => body["reasoning_effort"] = json!(effort),
        }
    } else if endpoint.is_hosted_by("openai.com") {
        body["reasoning_effort"] = json!(strongest(Effort::Xhigh));
    } else if endpoint.is_hosted_by("googleapis.com") {
        body["reasoning_effort"] = json!(strongest(Effort::High));
    } else {
        body["reasoning_effort"] = json!(strongest(Effort::Max));
    }
}

fn reasoning_replay(request: &ModelRequest<'_>) -> ReasoningReplay {
    let is_hosted_by = |domain: &&str| request.endpoint.is_hosted_by(domain);
    let vendors = ["deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com", "xiaomimimo.com"];
    if vendors.iter().any(is_hosted_by) && request.quirks.replay_all_reasoning {
        ReasoningReplay::ContentAlways
    } else if vendors.iter().any(is_hosted_by) {
        ReasoningReplay::Content
    } else if is_hosted_by(&"openrouter.ai") && !request.quirks.drop_reasoning {
        ReasoningReplay::Details
    } else {
        ReasoningReplay::Omit
    }
}

fn messages(request: &ModelRequest<'_>, system: &str) -> Vec<Value> {
    let replay = reasoning_replay(request);
    let mut messages = Vec::new();
    if !request.prompt.system.is_empty() {
        messages.push(json!({"role": system, "content": request.prompt.system}));
    }
    for entry in request.history() {
        match entry {
            HistoryEntry::User(text, images) => {
                let content = user_content(&text, request.images.select(&images));
                messages.push(json!({"role": "user", "content": content}));
            }
            HistoryEntry::Assistant(parts) => messages.push(assistant_message(request, &parts, replay)),
            HistoryEntry::Results(results) => {
                messages.extend(results.iter().map(|(call, text)| {
                    json!({"role": "tool", "tool_call_id": call_id(request, &call.id), "content": text})
                }));
            }
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

fn assistant_message(request: &ModelRequest<'_>, parts: &[&Part], replay: ReasoningReplay) -> Value {
    let mut texts = Vec::new();
    let mut calls: Vec<Value> = Vec::new();
    let mut reasoning = Vec::new();
    for part in parts {
        match part {
            Part::Text { text } => texts.push(text.as_str()),
            Part::Call(call) => calls.push(encode_call(request, call)),
            Part::Reasoning(one) => reasoning.push(one),
        }
    }
    let content = (!texts.is_empty()).then(|| texts.join("\n\n"));
    let mut message = json!({"role": "assistant", "content": content});
    match replay {
        ReasoningReplay::Omit => {}
        ReasoningReplay::Details => {
            let details =
                reasoning.iter().filter_map(|one| one.replay.as_ref()?.get("reasoning_details")?.as_array());
            let details: Vec<&Value> = details.flatten().collect();
            if !details.is_empty() {
                message["reasoning_details"] = json!(details);
            }
        }
        ReasoningReplay::Content if calls.is_empty() => {}
        ReasoningReplay::Content | ReasoningReplay::ContentAlways => {
            let text: String = reasoning.iter().map(|one| one.text.as_str()).collect();
            message["reasoning_content"] = if text.trim().is_empty() { " ".into() } else { text.into() };
        }
    }
    if let Some(first) = calls.first_mut().filter(|_| needs_signatures(request)) {
        // Only the first of parallel calls has a signature.
        if first[EXTRA_CONTENT].is_null() {
            first[EXTRA_CONTENT] = json!({"google": {"thought_signature": FOREIGN_SIGNATURE}});
        }
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn encode_call(request: &ModelRequest<'_>, call: &Call) -> Value {
    let function = json!({"name": call.name, "arguments": encode_arguments(&call.arguments).to_string()});
    let mut encoded = json!({"id": call_id(request, &call.id), "type": "function", "function": function});
    let own = call.replay.as_ref().filter(|_| !request.quirks.drop_reasoning);
    let own = own.filter(|replay| replay.issuer == request.endpoint.issuer());
    if let (Some(replay), Value::Object(fields)) = (own, &mut encoded) {
        fields.extend(replay.fields.clone());
    }
    encoded
}

fn call_id(request: &ModelRequest<'_>, id: &CallId) -> String {
    let has_nine_characters =
        || id.as_str().len() == 9 && id.as_str().chars().all(|c| c.is_ascii_alphanumeric());
    if request.endpoint.is_hosted_by("mistral.ai") && !has_nine_characters() {
        return super::hash_id(id, "", 9);
    }
    super::limit_call_id(id, MAX_ID_CHARS)
}

/// Whether the calls of other models need a signature: Gemini 3 and later at Google, and every
/// Gemini whose server rejected the signatures that it got.
fn needs_signatures(request: &ModelRequest<'_>) -> bool {
    let endpoint = request.endpoint;
    let Some((_, version)) = endpoint.model.split_once("gemini") else { return false };
    let numbers = version.split(|c: char| !c.is_ascii_digit()).filter(|number| !number.is_empty());
    let is_strict =
        numbers.map(str::parse::<u32>).next().is_some_and(|major| major.is_ok_and(|major| major >= 3));
    request.quirks.drop_reasoning || (is_strict && endpoint.is_hosted_by("googleapis.com"))
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
pub(super) struct ChatDecoder {
    details: Vec<Value>,
}

impl Decoder for ChatDecoder {
    fn decode_event(&mut self, builder: &mut ReplyBuilder<'_>, chunk: &Value) -> DecodeResult {
        if chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(error::from_stream(chunk));
        }
        let choice = &chunk["choices"][0];
        for usage in [&chunk["usage"], &choice["usage"]] {
            if usage.is_object() {
                record_usage(builder, usage);
            }
        }
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.decode_delta(builder, delta)?;
        }
        builder.finish = Some(match text(choice, "finish_reason") {
            "" => return Ok(()),
            "error" => return Err(server_failure(choice)),
            "length" | "max_tokens" | "model_length" | "MAX_TOKENS" => Finish::Length,
            "content_filter" | "safety" | "refusal" | "SAFETY" => Finish::Filtered(String::new()),
            "tool_calls" | "function_call" | "tool_use" => Finish::Calls,
            _ => Finish::Stop,
        });
        Ok(())
    }

    fn decode_body(&mut self, builder: &mut ReplyBuilder<'_>, body: &Value) -> DecodeResult {
        reply_items(body, "choices")?;
        self.decode_event(builder, body)
    }

    fn finish(&mut self, builder: &mut ReplyBuilder<'_>) {
        if !self.details.is_empty() {
            builder.set_first_replay(json!({"reasoning_details": std::mem::take(&mut self.details)}));
        }
        // Some servers send only the end marker.
        if builder.has_ended && !builder.is_empty() {
            builder.finish.get_or_insert(Finish::Stop);
        }
    }
}

impl ChatDecoder {
    fn decode_delta(&mut self, builder: &mut ReplyBuilder<'_>, delta: &Value) -> DecodeResult {
        self.decode_reasoning(builder, delta);
        match delta.get("content") {
            Some(Value::String(text)) => builder.push_text(text),
            Some(blocks @ (Value::Array(_) | Value::Object(_))) => push_content(builder, blocks),
            _ => {}
        }
        builder.refusal.push_str(text(delta, "refusal"));
        let calls = match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.as_slice(),
            Some(one @ Value::Object(_)) => std::slice::from_ref(one),
            _ => &[],
        };
        for (position, call) in (0..).zip(calls) {
            let function = call.get("function").unwrap_or(call);
            builder.push_call(&CallDelta {
                // Each call of a complete reply is another one, whatever its index.
                index: if builder.has_ended { Some(position) } else { call["index"].as_u64() },
                id: text(call, "id"),
                name: text(function, "name"),
                arguments: function.get("arguments").or_else(|| function.get("parameters")),
                replay: call
                    .get(EXTRA_CONTENT)
                    .filter(|extra| !extra.is_null())
                    .map(|extra| (EXTRA_CONTENT, extra)),
            })?;
        }
        // The older form, which allows only one call.
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            let (name, arguments) = (text(function, "name"), function.get("arguments"));
            builder.push_call(&CallDelta { index: Some(0), name, arguments, ..CallDelta::default() })?;
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
        Value::Array(several) => several.iter().for_each(|block| push_content(builder, block)),
        Value::String(text) => builder.push_text(text),
        Value::Object(_) => match blocks.get("thinking").or_else(|| blocks.get("reasoning")) {
            Some(Value::String(reasoning)) => builder.push_reasoning(reasoning),
            Some(Value::Array(inner)) => {
                inner.iter().for_each(|one| builder.push_reasoning(text(one, "text")));
            }
            _ => builder.push_text(text(blocks, "text")),
        },
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
