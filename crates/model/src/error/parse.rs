//! What providers say when they refuse, read by their own fields first and by their words only where they have no fields.
//!
//! | who | body |
//! |---|---|
//! | OpenAI and alike | `{"error": {"message", "type", "code", "param"}}` |
//! | Anthropic | `{"type": "error", "error": {"type", "message"}}` |
//! | OpenRouter | `{"error": {"code": 402, "message", "metadata": {"provider_name", "raw"}}}` |
//! | llama.cpp | `{"error": {"code": 400, "message", "type", "n_prompt_tokens", "n_ctx"}}` |
//! | vLLM | `{"object": "error", "message", "type", "code"}`, or as OpenAI |
//! | Ollama | `{"error": "text"}` |
//! | FastAPI | `{"detail": "text"}` |

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{Class, Fault};
use crate::json;

/// The longest wait a provider can ask of us.
const LONGEST_WAIT: Duration = Duration::from_secs(120);
/// The most of a message that is kept.
const LONGEST_MESSAGE: usize = 2000;

/// What a refusal says.
#[derive(Debug, Default)]
struct Told {
    kind: String,
    code: String,
    parameter: String,
    message: String,
    /// In lower case.
    words: String,
    prompt_tokens: Option<u64>,
    window: Option<u64>,
}

/// The fault of a response that is no answer.
pub(crate) fn of_response(status: u16, retry_after: Option<&str>, body: &str) -> Fault {
    let told = match json::parse(body) {
        Ok(value) => Told::new(&value),
        Err(_) => Told::plain(body),
    };
    let mut fault = fault(Some(status), told);
    fault.retry_after = retry_after.and_then(wait);
    fault
}

/// The fault that came in the middle of a stream, or with a status that says that all is well.
pub(crate) fn in_stream(value: &Value) -> Fault {
    let told = Told::new(value);
    let status = told.code.parse::<u16>().ok().filter(|code| (400..600).contains(code));
    fault(status, told)
}

fn fault(status: Option<u16>, told: Told) -> Fault {
    let room = room(&told);
    let class = class(status, &told, room);
    let message = match (told.message.trim(), status) {
        ("", Some(status)) => format!("HTTP status {status}, and no word about why"),
        ("", None) => "the provider reported an error, and no word about why".to_owned(),
        (message, Some(status)) => format!("{} (HTTP {status})", shortened(message)),
        (message, None) => shortened(message),
    };
    let parameter = Some(told.parameter).filter(|name| !name.is_empty());
    Fault { class, status, message, retry_after: None, room, parameter }
}

impl Told {
    fn new(value: &Value) -> Self {
        let error = match value.get("error") {
            Some(error @ (Value::Object(_) | Value::String(_))) => error,
            _ => value,
        };
        let text = |key: &str| match error.get(key) {
            Some(Value::String(text)) => text.clone(),
            Some(Value::Number(number)) => number.to_string(),
            _ => String::new(),
        };
        let mut message = match error {
            Value::String(text) => text.clone(),
            _ => text("message"),
        };
        if message.is_empty() {
            message = match value.get("detail").or_else(|| value.get("message")) {
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
                None => String::new(),
            };
        }
        // OpenRouter hands through what the server behind it said.
        let raw = error.pointer("/metadata/raw").and_then(Value::as_str).unwrap_or_default();
        if !raw.is_empty() && !message.contains(raw) {
            message = format!("{message}: {raw}");
        }
        let parameter = match text("param") {
            named if !named.is_empty() => named,
            _ => unexpected(&message),
        };
        let number = |key: &str| error.get(key).and_then(Value::as_u64);
        Self {
            kind: text("type"),
            code: text("code"),
            parameter,
            words: message.to_lowercase(),
            message,
            prompt_tokens: number("n_prompt_tokens"),
            window: number("n_ctx"),
        }
    }

    fn plain(body: &str) -> Self {
        // A page for people tells us nothing but that it is one.
        let message = match body.trim_start().starts_with('<') {
            true => String::new(),
            false => body.trim().to_owned(),
        };
        Self { words: message.to_lowercase(), message, ..Self::default() }
    }

    fn says(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.words.contains(word))
    }

    fn says_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.words.contains(phrase))
    }
}

fn class(status: Option<u16>, told: &Told, room: Option<u64>) -> Class {
    if let Some(class) = by_code(status, told, room) {
        return class;
    }
    // Words are looked at only where the status leaves it open.
    let open = matches!(status, None | Some(400 | 402 | 403 | 404 | 413 | 422 | 429 | 500 | 501));
    if let Some(class) = by_words(status, told, room).filter(|_| open) {
        return class;
    }
    match status {
        Some(401 | 403) => Class::Auth,
        Some(402) => Class::Billing,
        Some(408 | 504) => Class::Timeout,
        Some(413) => Class::PayloadTooLarge,
        Some(429) => Class::RateLimit,
        Some(503 | 529) => Class::Overloaded,
        Some(500..=599) => Class::Server,
        Some(404) if told.message.is_empty() => Class::Unknown,
        Some(400..=499) => Class::Format,
        _ => Class::Unknown,
    }
}

/// By the fields that providers document.
fn by_code(status: Option<u16>, told: &Told, room: Option<u64>) -> Option<Class> {
    for word in [told.code.as_str(), told.kind.as_str()] {
        let class = match word {
            "insufficient_quota"
            | "billing_hard_limit_reached"
            | "billing_error"
            | "insufficient_credits" => Class::Billing,
            "invalid_api_key" | "authentication_error" | "permission_error" | "permission_denied" => {
                Class::Auth
            }
            "rate_limit_exceeded" | "rate_limit_error" | "tokens" | "requests" if status == Some(429) => {
                match told.says(&["extra usage", "long context"]) {
                    true => Class::LongContextTier,
                    false => Class::RateLimit,
                }
            }
            "rate_limit_exceeded" | "rate_limit_error" => Class::RateLimit,
            "overloaded_error" | "server_overloaded" | "engine_overloaded_error" => Class::Overloaded,
            "server_error" | "api_error" | "internal_error" if status.is_none_or(|status| status >= 500) => {
                // llama.cpp reports what its grammar parser said as an error of its own.
                return by_words(status, told, room).or(Some(Class::Server));
            }
            "timeout_error" => Class::Timeout,
            "context_length_exceeded" if room.is_some() => Class::OutputCap,
            "context_length_exceeded" | "exceed_context_size_error" => Class::ContextOverflow,
            "request_too_large" => Class::PayloadTooLarge,
            "model_not_found" | "model_not_available" => Class::ModelNotFound,
            "not_found_error" if told.says_any(&["model"]) => Class::ModelNotFound,
            "content_policy_violation" | "content_filter" | "moderation_blocked" => Class::ContentPolicy,
            "invalid_encrypted_content" => Class::ReasoningRejected,
            "unsupported_parameter" | "unknown_parameter" | "unsupported_value" => {
                match (told.parameter.as_str(), room) {
                    ("stream", _) => Class::StreamUnsupported,
                    (_, Some(_)) => Class::OutputCap,
                    _ => Class::Parameter,
                }
            }
            _ => continue,
        };
        return Some(class);
    }
    None
}

/// The phrases of servers that have no codes. Each is narrow: what it does not match is a plain error.
fn by_words(status: Option<u16>, told: &Told, room: Option<u64>) -> Option<Class> {
    if room.is_some() {
        return Some(Class::OutputCap);
    }
    if told.says_any(&[
        "credit balance is too low", "insufficient credits", "insufficient balance", "requires more credits",
        "exceeded your current quota", "payment required",
    ]) {
        return Some(Class::Billing);
    }
    if status == Some(402) && told.says_any(&["try again", "rate limit"]) {
        return Some(Class::RateLimit);
    }
    if told.says(&["no endpoints", "data policy"]) || told.says(&["guardrail", "privacy"]) {
        return Some(Class::PolicyBlocked);
    }
    if told.says_any(OVERFLOW) {
        return Some(Class::ContextOverflow);
    }
    if told.says(&["signature", "thinking"])
        || told.says(&["thinking", "blocks", "cannot be modified"])
        || told.says(&["encrypted content", "could not be"])
    {
        return Some(Class::ReasoningRejected);
    }
    if told.says_any(&[
        "failed to parse grammar", "error parsing grammar", "unable to generate parser",
        "json schema conversion failed",
    ]) {
        return Some(Class::Grammar);
    }
    if told.says_any(SIGHTLESS) {
        return Some(Class::ImagesUnsupported);
    }
    let refuses = told
        .says_any(&["not support", "unsupported", "not available", "not allowed", "unrecognized", "unknown"]);
    if told.says(&["stream"]) && refuses && !told.says(&["stream_options"]) {
        return Some(Class::StreamUnsupported);
    }
    let is_model = told
        .says_any(&["does not exist", "not found", "not a valid model", "no such model", "unknown model"]);
    if told.says(&["model"]) && is_model {
        return Some(Class::ModelNotFound);
    }
    if told.says_any(&[
        "flagged by", "content policy", "content management policy", "safety system", "usage policies",
    ]) {
        return Some(Class::ContentPolicy);
    }
    // FastAPI and others name the field that is too much, without a code for it.
    let named = !told.parameter.is_empty() && matches!(status, Some(400 | 422));
    if named && (refuses || told.says_any(&["extra inputs are not permitted", "extra fields not permitted"]))
    {
        return Some(Class::Parameter);
    }
    None
}

/// No eyes, in the words of llama.cpp, OpenRouter, Ollama, OpenAI, vLLM, LM Studio, DeepSeek and Groq.
const SIGHTLESS: &[&str] = &[
    "image input is not supported", "support image input", "required for image input",
    "unsupported content part type", "image_url is only supported", "is not a multimodal model",
    "model does not support images", "unknown variant `image_url`", "content must be a string",
];

/// A window that is too small, in the words of those who have no code for it.
const OVERFLOW: &[&str] = &[
    "maximum context length", "context length exceeded", "context_length_exceeded",
    "exceeds the available context size", "exceed context limit", "exceeds the context window",
    "exceed context window", "context window exceeds", "context size has been exceeded",
    "prompt is too long", "input is too long for requested model", "input token count",
    "longer than the model's context length", "longer than the maximum model length",
    "exceeds the maximum number of tokens", "exceeds model's maximum context",
    "reduce the length of the messages", "prompt too long", "超过最大长度", "上下文长度",
];

/// The field in messages that name one, in the words of Pydantic (`body.stream_options: Extra inputs…`) and of OpenAI's older
/// ones (`Unrecognized request argument supplied: …`).
fn unexpected(message: &str) -> String {
    let candidates = [
        "reasoning_effort", "stream_options", "prompt_cache_key", "max_completion_tokens", "reasoning",
        "usage", "options", "think",
    ];
    let lower = message.to_lowercase();
    let complains = [
        "extra inputs", "extra fields", "unrecognized request argument", "unknown field",
        "unsupported parameter", "unknown parameter", "not supported", "unexpected keyword",
    ];
    match complains.iter().any(|phrase| lower.contains(phrase)) {
        true => candidates.iter().find(|name| lower.contains(**name)).copied().unwrap_or_default().to_owned(),
        false => String::new(),
    }
}

/// How many tokens of output there is room for, where it says so.
fn room(told: &Told) -> Option<u64> {
    if let (Some(prompt), Some(window)) = (told.prompt_tokens, told.window) {
        // Says only how long the prompt is: nothing is gained by a smaller cap.
        return (prompt < window).then(|| window - prompt);
    }
    let after = |phrase: &str| number(told.words.split_once(phrase)?.1);
    let before = |phrase: &str| last_number(told.words.split_once(phrase)?.0);
    // Anthropic: "max_tokens: 100000 > 64000, which is the maximum allowed number of output tokens".
    if told.says(&["max_tokens:", "maximum allowed number of output tokens"]) {
        return after(" > ");
    }
    // Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000".
    if told.says(&["exceed context limit", " > "]) {
        let input = after("exceed context limit: ")?;
        return after(" > ")?.checked_sub(input).filter(|room| *room > 0);
    }
    // OpenAI: "max_tokens is too large: 9999. This model supports at most 4096 completion tokens".
    if told.says(&["supports at most", "completion tokens"]) {
        return after("supports at most ");
    }
    // OpenAI: "maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in the messages, 4000 in the completion)".
    if told.says(&["maximum context length is", "in the messages"]) {
        let window = after("maximum context length is ")?;
        let asked = before(" in the completion").unwrap_or(0);
        let prompt = before(" in the messages")?;
        return window.checked_sub(prompt).filter(|room| *room > 0 && asked > 0);
    }
    // vLLM: "'max_tokens' … is too large: 5000. … maximum context length is 8192 tokens and your request has 4000 input tokens".
    if told.says(&["maximum context length is", "is too large", "input tokens"]) {
        let window = after("maximum context length is ")?;
        return window.checked_sub(before(" input tokens")?).filter(|room| *room > 0);
    }
    None
}

fn number(text: &str) -> Option<u64> {
    let digits: String =
        text.chars().take_while(|c| c.is_ascii_digit() || *c == ',').filter(|c| *c != ',').collect();
    digits.parse().ok()
}

fn last_number(text: &str) -> Option<u64> {
    let digits: Vec<char> = text.chars().rev().take_while(char::is_ascii_digit).collect();
    digits.into_iter().rev().collect::<String>().parse().ok()
}

/// `Retry-After`, in seconds or as a date.
fn wait(header: &str) -> Option<Duration> {
    let header = header.trim();
    let wait = match header.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Duration::from_secs_f64(seconds.min(1e6)),
        Ok(_) => return None,
        Err(_) => {
            let date = httpdate::parse_http_date(header).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO)
        }
    };
    Some(wait.min(LONGEST_WAIT))
}

fn shortened(message: &str) -> String {
    match message.char_indices().nth(LONGEST_MESSAGE) {
        Some((at, _)) => format!("{}…", message.get(..at).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
