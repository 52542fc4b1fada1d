//! Chat Completions: OpenAI's, and that of everybody who speaks it in their own way.
//!
//! | who | what is special |
//! |---|---|
//! | OpenAI | `max_completion_tokens`; `developer` instead of `system` |
//! | OpenRouter | `reasoning` and `reasoning_details`, sent back as they came; `usage.cost`; cache markers for Claude |
//! | DeepSeek, Kimi, MiMo | `reasoning_content`, which every later request must have |
//! | Ollama | all calls at index 0; the window is chosen by the request |
//! | llama.cpp | content as objects; grammars |

use hermes_types::{Arguments, Call, Part, Usage};
use serde_json::{Map, Value, json};

use super::{Flow, Request, count, text};
use crate::draft::{CallPiece, Draft};
use crate::endpoint::{Effort, Endpoint};
use crate::error::{self, Class, Fault};
use crate::history::{self, Turn};
use crate::json;
use crate::reply::Finish;

/// How a server wants earlier thoughts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Thoughts {
    /// Not at all.
    Unwanted,
    /// As a list that came with them.
    Details,
    /// As text, with each entry of the model that calls a tool, and not empty.
    Content,
}

pub(crate) fn encode(request: &Request<'_>) -> Map<String, Value> {
    let (endpoint, prompt) = (request.endpoint, request.prompt);
    let is_openai = endpoint.is_at("openai.com") || endpoint.is_at("openai.azure.com");
    let mut body = Map::new();
    body.insert("model".to_owned(), endpoint.model.as_str().into());
    if !request.manner.whole {
        body.insert("stream".to_owned(), true.into());
        body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    }
    if let Some(cap) = request.cap() {
        let newer = (is_openai || !request.takes("max_tokens")) && request.takes("max_completion_tokens");
        body.insert(if newer { "max_completion_tokens" } else { "max_tokens" }.to_owned(), cap.into());
    }
    if let Some(num_ctx) = request.manner.num_ctx {
        body.insert("options".to_owned(), json!({"num_ctx": num_ctx}));
    }
    let is_openrouter = endpoint.is_at("openrouter.ai");
    if is_openrouter {
        body.insert("usage".to_owned(), json!({"include": true}));
    }
    match prompt.effort {
        Some(Effort::None) if is_openrouter => {
            body.insert("reasoning".to_owned(), json!({"enabled": false}));
        }
        Some(effort) if is_openrouter => {
            body.insert("reasoning".to_owned(), json!({"effort": effort.word()}));
        }
        Some(Effort::None) if endpoint.is_at("deepseek.com") => {
            body.insert("thinking".to_owned(), json!({"type": "disabled"}));
        }
        Some(effort) => {
            body.insert("reasoning_effort".to_owned(), effort.word().into());
        }
        None => {}
    }
    request.extend(&mut body);
    if !prompt.tools.is_empty() {
        let tools = prompt.tools.iter().map(|tool| {
            let parameters = request.schema(&tool.parameters);
            json!({"type": "function", "function": {
                "name": tool.name, "description": tool.description, "parameters": parameters,
            }})
        });
        body.insert("tools".to_owned(), tools.collect());
    }
    let system = match is_openai && wants_developer(&endpoint.model) {
        true => "developer",
        false => "system",
    };
    let mut messages = messages(request, system);
    if is_openrouter && endpoint.model.contains("claude") {
        mark(&mut messages);
    }
    body.insert("messages".to_owned(), messages.into());
    body
}

/// The reasoning models of OpenAI have no system role.
fn wants_developer(model: &str) -> bool {
    ["gpt-5", "o1", "o3", "o4"].iter().any(|family| model.starts_with(family))
}

fn thoughts(endpoint: &Endpoint) -> Thoughts {
    if endpoint.is_at("openrouter.ai") {
        return Thoughts::Details;
    }
    let hosts = ["deepseek.com", "moonshot.ai", "moonshot.cn", "kimi.com", "xiaomimimo.com"];
    match hosts.iter().any(|host| endpoint.is_at(host)) {
        true => Thoughts::Content,
        false => Thoughts::Unwanted,
    }
}

fn messages(request: &Request<'_>, system: &str) -> Vec<Value> {
    let endpoint = request.endpoint;
    let thoughts = match (request.manner.forget_thoughts, thoughts(endpoint)) {
        (true, Thoughts::Details) => Thoughts::Unwanted,
        (_, wanted) => wanted,
    };
    let issuer = endpoint.issuer();
    let mut messages = Vec::new();
    if !request.prompt.system.is_empty() {
        messages.push(json!({"role": system, "content": request.prompt.system}));
    }
    for turn in history::turns(request.prompt.messages) {
        match turn {
            Turn::User(text, images) => {
                let content = user(&text, request.pictures.of(&images));
                messages.push(json!({"role": "user", "content": content}));
            }
            Turn::Assistant(parts) => messages.push(assistant(&parts, thoughts, &issuer)),
            Turn::Results(results) => messages.extend(results.iter().map(
                |(call, text)| json!({"role": "tool", "tool_call_id": call.id.as_str(), "content": text}),
            )),
        }
    }
    messages
}

/// Servers without eyes may know no other content than a text.
fn user(text: &str, pictures: Vec<(&str, &str)>) -> Value {
    if pictures.is_empty() {
        return text.into();
    }
    let words = Some(text).filter(|text| !text.trim().is_empty());
    let words = words.map(|text| json!({"type": "text", "text": text}));
    let pictures = pictures.into_iter().map(
        |(kind, data)| json!({"type": "image_url", "image_url": {"url": format!("data:{kind};base64,{data}")}}),
    );
    words.into_iter().chain(pictures).collect()
}

fn assistant(parts: &[&Part], thoughts: Thoughts, issuer: &str) -> Value {
    let mut message = Map::new();
    let mut words = String::new();
    let mut calls = Vec::new();
    let mut own = Vec::new();
    for part in parts {
        match part {
            Part::Text { text } if words.is_empty() => words.push_str(text),
            Part::Text { text } => words.extend(["\n\n", text]),
            Part::Call(call) => calls.push(call_out(call)),
            Part::Reasoning(reasoning) => own.extend(history::own(reasoning, issuer)),
        }
    }
    message.insert("role".to_owned(), "assistant".into());
    let content = match words.is_empty() {
        true => Value::Null,
        false => words.into(),
    };
    message.insert("content".to_owned(), content);
    match thoughts {
        Thoughts::Unwanted => {}
        Thoughts::Details => {
            let details =
                own.iter().filter_map(|one| one.replay.as_ref()?.get("reasoning_details")?.as_array());
            let details: Vec<Value> = details.flatten().cloned().collect();
            if !details.is_empty() {
                message.insert("reasoning_details".to_owned(), details.into());
            }
        }
        Thoughts::Content => {
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

fn call_out(call: &Call) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(object) => json::stable(object),
        Arguments::Broken { .. } => "{}".to_owned(),
    };
    json!({
        "id": call.id.as_str(),
        "type": "function",
        "function": {"name": call.name, "arguments": arguments},
    })
}

/// Marks what a provider of Claude should keep: the system prompt and the last three entries with words.
fn mark(messages: &mut [Value]) {
    for message in messages.iter_mut() {
        if let Value::String(words) = &mut message["content"] {
            let words = std::mem::take(words);
            message["content"] = json!([{"type": "text", "text": words}]);
        }
    }
    let marker = json!({"type": "ephemeral"});
    let (first, rest) = match messages.split_first_mut() {
        Some((first, rest)) if first["role"] == "system" => (Some(first), rest),
        _ => (None, messages),
    };
    let last = rest.iter_mut().rev().filter(|message| message["content"].is_array()).take(3);
    for message in first.into_iter().chain(last) {
        // Only words can be marked.
        let mut parts = message["content"].as_array_mut().into_iter().flatten();
        if let Some(words) = parts.find(|part| part["type"] == "text") {
            words["cache_control"] = marker.clone();
        }
    }
}

/// Reads chunks and whole answers alike: a whole one is a chunk with everything in it.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    done: bool,
    /// The answer came in one piece, so that each call in it is another one, whatever its index.
    is_whole: bool,
    finish: Option<String>,
    details: Vec<Value>,
}

impl Decoder {
    pub(crate) fn event(&mut self, draft: &mut Draft<'_>, data: &str) -> Result<Flow, Fault> {
        if data.trim() == "[DONE]" {
            self.done = true;
            return Ok(Flow::Done);
        }
        // What is no JSON at all is noise; an answer without anything that could be read is found out at its end.
        if let Ok(chunk) = json::parse(data) {
            self.chunk(draft, &chunk)?;
        }
        Ok(Flow::More)
    }

    pub(crate) fn whole(&mut self, draft: &mut Draft<'_>, body: &Value) -> Result<(), Fault> {
        if body.get("choices").is_none() && body.get("error").is_none() {
            return Err(Fault::malformed("the answer has no choices"));
        }
        self.done = true;
        self.is_whole = true;
        self.chunk(draft, body)
    }

    pub(crate) fn end(&mut self, draft: &mut Draft<'_>) -> Option<Finish> {
        if !self.details.is_empty() {
            draft.replay_first(json!({"reasoning_details": std::mem::take(&mut self.details)}));
        }
        self.finish(draft)
    }

    fn finish(&self, draft: &Draft<'_>) -> Option<Finish> {
        match self.finish.as_deref() {
            Some("length" | "max_tokens" | "model_length" | "MAX_TOKENS") => Some(Finish::Length),
            Some("content_filter" | "safety" | "refusal" | "SAFETY") => Some(Finish::Filtered(String::new())),
            Some("tool_calls" | "function_call" | "tool_use") => Some(Finish::Calls),
            Some(_) => Some(Finish::Stop),
            // Who says that all is done has said all.
            None if self.done && !draft.is_empty() => Some(Finish::Stop),
            None => None,
        }
    }

    fn chunk(&mut self, draft: &mut Draft<'_>, chunk: &Value) -> Result<(), Fault> {
        if chunk.get("error").is_some_and(|error| !error.is_null()) || chunk["object"] == "error" {
            return Err(error::in_stream(chunk));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            take_usage(draft, usage);
        }
        let Some(choice) = chunk.pointer("/choices/0") else { return Ok(()) };
        if let Some(usage) = choice.get("usage").filter(|usage| usage.is_object()) {
            take_usage(draft, usage);
        }
        if let Some(delta) = choice.get("delta").or_else(|| choice.get("message")) {
            self.delta(draft, delta)?;
        }
        match choice.get("finish_reason").and_then(Value::as_str).filter(|reason| !reason.is_empty()) {
            Some("error") => {
                let mut fault = error::in_stream(choice);
                if fault.class == Class::Unknown {
                    fault.class = Class::Server;
                }
                return Err(fault);
            }
            Some(reason) => {
                self.finish = Some(reason.to_owned());
                draft.finish = self.finish(draft);
            }
            None => {}
        }
        Ok(())
    }

    fn delta(&mut self, draft: &mut Draft<'_>, delta: &Value) -> Result<(), Fault> {
        self.reasoning(draft, delta);
        match delta.get("content") {
            Some(Value::String(words)) => draft.text(words),
            Some(blocks @ (Value::Array(_) | Value::Object(_))) => content(draft, blocks),
            _ => {}
        }
        draft.refusal(text(delta, "refusal"));
        let calls = match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.as_slice(),
            Some(one @ Value::Object(_)) => std::slice::from_ref(one),
            _ => &[],
        };
        for (position, call) in (0..).zip(calls) {
            let function = call.get("function").unwrap_or(call);
            draft.call(&CallPiece {
                index: match self.is_whole {
                    true => Some(position),
                    false => call.get("index").and_then(Value::as_u64),
                },
                id: text(call, "id"),
                name: text(function, "name"),
                arguments: function.get("arguments").or_else(|| function.get("parameters")),
            })?;
        }
        // The older form, of which there can be only one.
        if let Some(function) = delta.get("function_call").filter(|call| call.is_object()) {
            let (name, arguments) = (text(function, "name"), function.get("arguments"));
            draft.call(&CallPiece { index: Some(0), id: "", name, arguments })?;
        }
        Ok(())
    }

    /// Thoughts come under several names, and from some servers under two at once.
    fn reasoning(&mut self, draft: &mut Draft<'_>, delta: &Value) {
        let named = ["reasoning_content", "reasoning"].map(|key| text(delta, key));
        let thought = named.into_iter().find(|thought| !thought.is_empty()).unwrap_or_default();
        draft.reasoning(thought);
        let details = delta.get("reasoning_details").and_then(Value::as_array);
        for detail in details.into_iter().flatten() {
            if thought.is_empty() {
                draft.reasoning(text(detail, "text"));
                draft.reasoning(text(detail, "summary"));
            }
            self.detail(detail);
        }
    }

    /// Joins the pieces of a block of thoughts: text adds up, everything else is what came last.
    fn detail(&mut self, piece: &Value) {
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

/// Words in blocks: text, thoughts, or an object that is neither.
fn content(draft: &mut Draft<'_>, blocks: &Value) {
    match blocks {
        Value::Array(blocks) => blocks.iter().for_each(|block| content(draft, block)),
        Value::String(words) => draft.text(words),
        Value::Object(block) => {
            let thinking = block.get("thinking").or_else(|| block.get("reasoning"));
            match thinking {
                Some(Value::String(thought)) => draft.reasoning(thought),
                Some(Value::Array(inner)) => inner.iter().for_each(|one| draft.reasoning(text(one, "text"))),
                _ => draft.text(block.get("text").and_then(Value::as_str).unwrap_or_default()),
            }
        }
        _ => {}
    }
}

fn take_usage(draft: &mut Draft<'_>, usage: &Value) {
    let cached = ["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"];
    let cache_read = cached.iter().map(|path| count(usage, path)).max().unwrap_or(0);
    let cache_write = count(usage, "/prompt_tokens_details/cache_write_tokens");
    draft.usage = Usage {
        input: count(usage, "/prompt_tokens").saturating_sub(cache_read).saturating_sub(cache_write),
        cache_read,
        cache_write,
        output: count(usage, "/completion_tokens"),
        reasoning: count(usage, "/completion_tokens_details/reasoning_tokens"),
    };
    if let Some(cost) = usage.get("cost").and_then(Value::as_f64) {
        draft.cost = Some(cost);
    }
}
