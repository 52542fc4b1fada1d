//! Ollama: its own chat protocol, and how it treats prompts that do not fit.
//!
//! Tokens are quarters of bytes of the messages. `/v1/chat/completions` ignores the requested
//! window, and both protocols cut a prompt without saying so, unless a request forbids it.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::chat::check_tool;
use super::script::{ReplyItem, ScriptedReply, text_deltas};

/// An Ollama server with one model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct OllamaServer {
    pub version: String,
    /// The window of requests that ask for none, in tokens.
    pub default_window: u64,
    /// `num_ctx` of the Modelfile.
    pub modelfile_window: Option<u64>,
    /// The window that the model was trained for.
    pub trained_window: u64,
    pub can_think: bool,
}

impl Default for OllamaServer {
    fn default() -> Self {
        Self {
            version: "0.13.5".to_owned(),
            default_window: 4096,
            modelfile_window: None,
            trained_window: 40_960,
            can_think: true,
        }
    }
}

/// What the server does with a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PromptFit {
    Fits,
    Cut,
}

impl OllamaServer {
    pub(super) fn answer(&self, line: &str, model: &str) -> Option<Value> {
        let parameters = self.modelfile_window.map_or(String::new(), |tokens| format!("num_ctx    {tokens}"));
        let info = json!({"general.architecture": "qwen3", "qwen3.context_length": self.trained_window});
        Some(match line {
            "GET /api/version" => json!({"version": self.version}),
            "POST /api/show" => json!({"parameters": parameters, "model_info": info}),
            "GET /api/ps" => json!({"models": []}),
            "GET /v1/models" => json!({"object": "list", "data": [{"id": model, "object": "model"}]}),
            _ => return None,
        })
    }

    /// The treatment of a request to `/v1/chat/completions`, which cannot choose the window.
    pub(super) fn fit_compatible(&self, body: &Value) -> PromptFit {
        let window = self.modelfile_window.unwrap_or(self.default_window);
        if prompt_tokens(body) > window { PromptFit::Cut } else { PromptFit::Fits }
    }

    /// The treatment of a request to `/api/chat`, or the error that refuses it.
    pub(super) fn fit_native(&self, body: &Value) -> Result<PromptFit, String> {
        let requested = body["options"]["num_ctx"].as_u64().or(self.modelfile_window);
        let window = requested.unwrap_or(self.default_window).min(self.trained_window);
        let tokens = prompt_tokens(body);
        if tokens <= window {
            return Ok(PromptFit::Fits);
        }
        // Older versions do not know the field.
        let is_old = ["0.11.", "0.10.", "0.9."].iter().any(|old| self.version.starts_with(old));
        if body["truncate"] != false || is_old {
            return Ok(PromptFit::Cut);
        }
        let message = format!(
            "request ({tokens} tokens) exceeds the available context size ({window} tokens), try increasing it"
        );
        let inner = json!({"error": {
            "code": 400, "message": message, "type": "exceed_context_size_error",
            "n_prompt_tokens": tokens, "n_ctx": window,
        }});
        Err(inner.to_string())
    }

    pub(super) fn check(&self, body: &Value) -> Result<(), String> {
        let model = body["model"].as_str().filter(|model| !model.is_empty()).ok_or("model is required")?;
        if body["think"] != Value::Null && body["think"] != false && !self.can_think {
            return Err(format!("{model:?} does not support thinking"));
        }
        for tool in body["tools"].as_array().into_iter().flatten() {
            check_tool(&tool["function"])?;
        }
        let messages = body["messages"].as_array().ok_or("messages: expected an array")?;
        for (at, message) in messages.iter().enumerate() {
            let is_role = ["system", "user", "assistant", "tool"].iter().any(|role| message["role"] == *role);
            if !is_role || !message["content"].is_string() {
                return Err(format!("messages[{at}]: {message}"));
            }
            let images = message["images"].as_array();
            if images.into_iter().flatten().any(|image| !image.is_string()) {
                return Err(format!("messages[{at}]: images must be base64"));
            }
            for call in message["tool_calls"].as_array().into_iter().flatten() {
                if !call["function"]["arguments"].is_object() || !call["function"]["name"].is_string() {
                    return Err(
                        "json: cannot unmarshal string into Go struct field ToolCallFunction.arguments"
                            .to_owned(),
                    );
                }
            }
        }
        Ok(())
    }
}

fn prompt_tokens(body: &Value) -> u64 {
    let bytes = body["messages"].to_string().len() + body["tools"].to_string().len();
    u64::try_from(bytes / 4).unwrap_or(u64::MAX)
}

/// One document per line. Calls have no ids.
pub(super) fn stream(reply: &ScriptedReply, model: &str) -> String {
    let mut out = String::new();
    let mut send = |message: Value| {
        let line =
            json!({"model": model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": false});
        out.push_str(&format!("{line}\n"));
    };
    for item in &reply.items {
        match item {
            ReplyItem::Text(text) => text_deltas(text)
                .iter()
                .for_each(|piece| send(json!({"role": "assistant", "content": piece}))),
            ReplyItem::Reasoning(text) => text_deltas(text)
                .iter()
                .for_each(|piece| send(json!({"role": "assistant", "content": "", "thinking": piece}))),
            ReplyItem::Call { .. } => {
                send(json!({"role": "assistant", "content": "", "tool_calls": [encode_call(item)]}));
            }
        }
    }
    out.push_str(&format!("{}\n", last_line(reply, model, json!({"role": "assistant", "content": ""}))));
    out
}

pub(super) fn whole(reply: &ScriptedReply, model: &str) -> Value {
    let (mut content, mut thinking) = (String::new(), String::new());
    let mut calls = Vec::new();
    for item in &reply.items {
        match item {
            ReplyItem::Text(text) => content.push_str(text),
            ReplyItem::Reasoning(text) => thinking.push_str(text),
            ReplyItem::Call { .. } => calls.push(encode_call(item)),
        }
    }
    let mut message = json!({"role": "assistant", "content": content});
    if !thinking.is_empty() {
        message["thinking"] = thinking.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    last_line(reply, model, message)
}

fn encode_call(item: &ReplyItem) -> Value {
    let ReplyItem::Call { name, arguments, .. } = item else { return Value::Null };
    let arguments = match arguments {
        Value::String(text) => serde_json::from_str(text).unwrap_or(Value::Null),
        other => other.clone(),
    };
    json!({"function": {"name": name, "arguments": arguments}})
}

fn last_line(reply: &ScriptedReply, model: &str, message: Value) -> Value {
    let reason = if reply.finish_reason() == "length" { "length" } else { "stop" };
    json!({
        "model": model, "created_at": "2026-01-01T00:00:00Z", "message": message, "done": true,
        "done_reason": reason, "prompt_eval_count": 100, "eval_count": 20,
    })
}
