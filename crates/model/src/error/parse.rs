//! Classifies the errors of providers, by documented fields first and by phrases only where a
//! provider has no fields.
//!
//! | provider | body |
//! |---|---|
//! | OpenAI and compatible | `{"error": {"message", "type", "code", "param"}}` |
//! | Anthropic | `{"type": "error", "error": {"type", "message"}}` |
//! | OpenRouter | `{"error": {"code": 402, "message", "metadata": {"provider_name", "raw"}}}` |
//! | llama.cpp | `{"error": {"code": 400, "message", "type", "n_prompt_tokens", "n_ctx"}}` |
//! | vLLM | `{"object": "error", "message", "type", "code"}`, or as OpenAI |
//! | Ollama | `{"error": "text"}` |
//! | FastAPI | `{"detail": "text"}` |

use std::time::{Duration, SystemTime};

use serde_json::Value;

use super::{FailureClass, RequestFailure};
use crate::json;

/// A provider cannot ask for a longer delay.
const MAX_RETRY_AFTER: Duration = Duration::from_secs(120);
const MAX_MESSAGE_CHARS: usize = 2000;

/// The fields of an error, whichever provider sent it.
#[derive(Debug, Default)]
struct ErrorFields {
    kind: String,
    code: String,
    parameter: String,
    message: String,
    /// The message in lower case.
    lowercase: String,
    prompt_tokens: Option<u64>,
    context_window: Option<u64>,
}

/// The failure for a response with an error status.
pub(crate) fn from_response(status: u16, retry_after: Option<&str>, body: &str) -> RequestFailure {
    let error = match json::parse(body) {
        Ok(value) => ErrorFields::new(&value),
        Err(_) => ErrorFields::plain(body),
    };
    let mut failure = failure(Some(status), error);
    failure.retry_after = retry_after.and_then(parse_retry_after);
    failure
}

/// The failure for an error inside of a stream, or of a response with a success status.
pub(crate) fn from_stream(value: &Value) -> RequestFailure {
    let error = ErrorFields::new(value);
    let status = error.code.parse::<u16>().ok().filter(|code| (400..600).contains(code));
    failure(status, error)
}

fn failure(status: Option<u16>, error: ErrorFields) -> RequestFailure {
    let available_output = available_output(&error);
    let class = class(status, &error, available_output);
    let message = match (error.message.trim(), status) {
        ("", Some(status)) => format!("HTTP status {status} without an error message"),
        ("", None) => "the provider reported an error without a message".to_owned(),
        (message, Some(status)) => format!("{} (HTTP {status})", truncate(message)),
        (message, None) => truncate(message),
    };
    let parameter = Some(error.parameter).filter(|name| !name.is_empty());
    RequestFailure { class, status, message, retry_after: None, available_output, parameter }
}

impl ErrorFields {
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
        // OpenRouter passes on the message of the server behind it.
        let raw = error.pointer("/metadata/raw").and_then(Value::as_str).unwrap_or_default();
        if !raw.is_empty() && !message.contains(raw) {
            message = format!("{message}: {raw}");
        }
        let parameter = match text("param") {
            named if !named.is_empty() => named,
            _ => rejected_field(&message),
        };
        let number = |key: &str| error.get(key).and_then(Value::as_u64);
        Self {
            kind: text("type"),
            code: text("code"),
            parameter,
            lowercase: message.to_lowercase(),
            message,
            prompt_tokens: number("n_prompt_tokens"),
            context_window: number("n_ctx"),
        }
    }

    fn plain(body: &str) -> Self {
        let is_html = body.trim_start().starts_with('<');
        let message = if is_html { String::new() } else { body.trim().to_owned() };
        Self { lowercase: message.to_lowercase(), message, ..Self::default() }
    }

    fn contains_all(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.lowercase.contains(word))
    }

    fn contains_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.lowercase.contains(phrase))
    }
}

fn class(status: Option<u16>, error: &ErrorFields, available_output: Option<u64>) -> FailureClass {
    if let Some(class) = by_code(status, error, available_output) {
        return class;
    }
    // Phrases count only where the status is ambiguous.
    let is_ambiguous = matches!(status, None | Some(400 | 402 | 403 | 404 | 413 | 422 | 429 | 500 | 501));
    if let Some(class) = by_phrases(status, error, available_output).filter(|_| is_ambiguous) {
        return class;
    }
    match status {
        Some(401 | 403) => FailureClass::Auth,
        Some(402) => FailureClass::Billing,
        Some(408 | 504) => FailureClass::Timeout,
        Some(413) => FailureClass::PayloadTooLarge,
        Some(429) => FailureClass::RateLimit,
        Some(503 | 529) => FailureClass::Overloaded,
        Some(500..=599) => FailureClass::Server,
        Some(404) if error.message.is_empty() => FailureClass::Unknown,
        Some(400..=499) => FailureClass::Format,
        _ => FailureClass::Unknown,
    }
}

/// Classifies by documented fields.
fn by_code(status: Option<u16>, error: &ErrorFields, available_output: Option<u64>) -> Option<FailureClass> {
    for word in [error.code.as_str(), error.kind.as_str()] {
        let class = match word {
            "insufficient_quota"
            | "billing_hard_limit_reached"
            | "billing_error"
            | "insufficient_credits" => FailureClass::Billing,
            "invalid_api_key" | "authentication_error" | "permission_error" | "permission_denied" => {
                FailureClass::Auth
            }
            "rate_limit_exceeded" | "rate_limit_error" | "tokens" | "requests" if status == Some(429) => {
                if error.contains_all(&["extra usage", "long context"]) {
                    FailureClass::LongContextTier
                } else {
                    FailureClass::RateLimit
                }
            }
            "rate_limit_exceeded" | "rate_limit_error" => FailureClass::RateLimit,
            "overloaded_error" | "server_overloaded" | "engine_overloaded_error" => FailureClass::Overloaded,
            "server_error" | "api_error" | "internal_error" if status.is_none_or(|status| status >= 500) => {
                // llama.cpp reports errors of its grammar parser as server errors.
                return by_phrases(status, error, available_output).or(Some(FailureClass::Server));
            }
            "timeout_error" => FailureClass::Timeout,
            "context_length_exceeded" if available_output.is_some() => FailureClass::OutputCap,
            "context_length_exceeded" | "exceed_context_size_error" => FailureClass::ContextOverflow,
            "request_too_large" => FailureClass::PayloadTooLarge,
            "model_not_found" | "model_not_available" => FailureClass::ModelNotFound,
            "not_found_error" if error.contains_any(&["model"]) => FailureClass::ModelNotFound,
            "content_policy_violation" | "content_filter" | "moderation_blocked" => {
                FailureClass::ContentPolicy
            }
            "invalid_encrypted_content" => FailureClass::ReasoningRejected,
            "unsupported_parameter" | "unknown_parameter" | "unsupported_value" => {
                match (error.parameter.as_str(), available_output) {
                    ("stream", _) => FailureClass::StreamUnsupported,
                    (_, Some(_)) => FailureClass::OutputCap,
                    _ => FailureClass::Parameter,
                }
            }
            _ => continue,
        };
        return Some(class);
    }
    None
}

/// Classifies by the phrases of servers without codes. Each phrase is narrow; a message that
/// matches none is a plain error.
fn by_phrases(
    status: Option<u16>,
    error: &ErrorFields,
    available_output: Option<u64>,
) -> Option<FailureClass> {
    let refuses = error.contains_any(&[
        "not support", "unsupported", "not available", "not allowed", "unrecognized", "unknown",
    ]);
    // FastAPI and others name the rejected field without a code.
    let names_field = !error.parameter.is_empty() && matches!(status, Some(400 | 422));
    let has_extra_field =
        error.contains_any(&["extra inputs are not permitted", "extra fields not permitted"]);
    let classes = [
        (FailureClass::OutputCap, available_output.is_some()),
        (FailureClass::Billing, error.contains_any(NO_CREDIT)),
        (FailureClass::RateLimit, status == Some(402) && error.contains_any(&["try again", "rate limit"])),
        (
            FailureClass::PolicyBlocked,
            error.contains_all(&["no endpoints", "data policy"])
                || error.contains_all(&["guardrail", "privacy"]),
        ),
        (FailureClass::ContextOverflow, error.contains_any(CONTEXT_OVERFLOW)),
        (
            FailureClass::ReasoningRejected,
            error.contains_all(&["signature", "thinking"])
                || error.contains_all(&["thinking", "blocks", "cannot be modified"])
                || error.contains_all(&["encrypted content", "could not be"]),
        ),
        (FailureClass::Grammar, error.contains_any(NO_GRAMMAR)),
        (FailureClass::ImagesUnsupported, error.contains_any(NO_IMAGE_INPUT)),
        (
            FailureClass::StreamUnsupported,
            refuses && error.contains_all(&["stream"]) && !error.contains_all(&["stream_options"]),
        ),
        (FailureClass::ModelNotFound, error.contains_all(&["model"]) && error.contains_any(NO_MODEL)),
        (FailureClass::ContentPolicy, error.contains_any(CONTENT_POLICY)),
        (FailureClass::Parameter, names_field && (refuses || has_extra_field)),
    ];
    classes.into_iter().find_map(|(class, matches)| matches.then_some(class))
}

const NO_CREDIT: &[&str] = &[
    "credit balance is too low", "insufficient credits", "insufficient balance", "requires more credits",
    "exceeded your current quota", "payment required",
];

const NO_GRAMMAR: &[&str] = &[
    "failed to parse grammar", "error parsing grammar", "unable to generate parser",
    "json schema conversion failed",
];

const NO_MODEL: &[&str] =
    &["does not exist", "not found", "not a valid model", "no such model", "unknown model"];

const CONTENT_POLICY: &[&str] =
    &["flagged by", "content policy", "content management policy", "safety system", "usage policies"];

/// No image input, in the words of llama.cpp, OpenRouter, Ollama, OpenAI, vLLM, LM Studio, DeepSeek
/// and Groq.
const NO_IMAGE_INPUT: &[&str] = &[
    "image input is not supported", "support image input", "required for image input",
    "unsupported content part type", "image_url is only supported", "is not a multimodal model",
    "model does not support images", "unknown variant `image_url`", "content must be a string",
];

/// A conversation that is too long, in the words of providers without a code for it.
const CONTEXT_OVERFLOW: &[&str] = &[
    "maximum context length", "context length exceeded", "context_length_exceeded",
    "exceeds the available context size", "exceed context limit", "exceeds the context window",
    "exceed context window", "context window exceeds", "context size has been exceeded",
    "prompt is too long", "input is too long for requested model", "input token count",
    "longer than the model's context length", "longer than the maximum model length",
    "exceeds the maximum number of tokens", "exceeds model's maximum context",
    "reduce the length of the messages", "prompt too long", "超过最大长度", "上下文长度",
];

/// The field that a message rejects, as Pydantic (`body.stream_options: Extra inputs…`) and older
/// servers of OpenAI (`Unrecognized request argument supplied: …`) write it.
fn rejected_field(message: &str) -> String {
    let candidates = [
        "reasoning_effort", "stream_options", "prompt_cache_key", "max_completion_tokens", "reasoning",
        "usage", "options", "think",
    ];
    let lower = message.to_lowercase();
    let complaints = [
        "extra inputs", "extra fields", "unrecognized request argument", "unknown field",
        "unsupported parameter", "unknown parameter", "not supported", "unexpected keyword",
    ];
    if !complaints.iter().any(|phrase| lower.contains(phrase)) {
        return String::new();
    }
    candidates.iter().find(|name| lower.contains(**name)).copied().unwrap_or_default().to_owned()
}

/// The number of tokens left for output, if the message says so.
fn available_output(error: &ErrorFields) -> Option<u64> {
    if let (Some(prompt), Some(window)) = (error.prompt_tokens, error.context_window) {
        // A prompt that fills the window gains nothing from a smaller output limit.
        return (prompt < window).then(|| window - prompt);
    }
    let after = |phrase: &str| number(error.lowercase.split_once(phrase)?.1);
    let before = |phrase: &str| last_number(error.lowercase.split_once(phrase)?.0);
    let difference = |window: u64, input: u64| window.checked_sub(input).filter(|left| *left > 0);
    // Anthropic: "max_tokens: 100000 > 64000, which is the maximum allowed number of output
    // tokens".
    if error.contains_all(&["max_tokens:", "maximum allowed number of output tokens"]) {
        return after(" > ");
    }
    // Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000".
    if error.contains_all(&["exceed context limit", " > "]) {
        let input = after("exceed context limit: ")?;
        return difference(after(" > ")?, input);
    }
    // OpenAI: "max_tokens is too large: 9999. This model supports at most 4096 completion tokens".
    if error.contains_all(&["supports at most", "completion tokens"]) {
        return after("supports at most ");
    }
    // OpenAI: "maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in
    // the messages, 4000 in the completion)".
    if error.contains_all(&["maximum context length is", "in the messages"]) {
        let window = after("maximum context length is ")?;
        let asked = before(" in the completion").unwrap_or(0);
        let prompt = before(" in the messages")?;
        return difference(window, prompt).filter(|_| asked > 0);
    }
    // vLLM: "'max_tokens' … is too large: 5000. … maximum context length is 8192 tokens and your
    // request has 4000 input tokens".
    if error.contains_all(&["maximum context length is", "is too large", "input tokens"]) {
        let window = after("maximum context length is ")?;
        return difference(window, before(" input tokens")?);
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

/// Parses `Retry-After`: seconds or a date.
fn parse_retry_after(header: &str) -> Option<Duration> {
    let header = header.trim();
    let delay = match header.parse::<f64>() {
        Ok(seconds) if seconds.is_finite() && seconds >= 0.0 => Duration::from_secs_f64(seconds.min(1e6)),
        Ok(_) => return None,
        Err(_) => {
            let date = httpdate::parse_http_date(header).ok()?;
            date.duration_since(SystemTime::now()).unwrap_or(Duration::ZERO)
        }
    };
    Some(delay.min(MAX_RETRY_AFTER))
}

fn truncate(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", message.get(..at).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
