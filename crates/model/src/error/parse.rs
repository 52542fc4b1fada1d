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
//! | Ollama | `{"error": "text"}`; the text may be the JSON of an error of llama.cpp |
//! | FastAPI | `{"detail": "text"}` |
//! | Google | `[{"error": {"code": 400, "message", "status"}}]` |

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
    status: Option<u16>,
    kind: String,
    code: String,
    /// The field of the request that the provider rejects, or the empty string.
    parameter: String,
    message: String,
    /// The message in lower case.
    lowercase: String,
    /// The number of tokens left for output, if the error says so.
    available_output: Option<u64>,
}

/// The headers with which a provider asks for a delay.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct RetryHeaders<'a> {
    /// `Retry-After`: seconds or a date.
    pub(crate) retry_after: Option<&'a str>,
    /// `Retry-After-Ms`: milliseconds. It is more precise and counts first.
    pub(crate) retry_after_ms: Option<&'a str>,
}

/// The failure for a response with an error status.
pub(crate) fn from_response(status: u16, headers: RetryHeaders<'_>, body: &str) -> RequestFailure {
    let error = match json::parse(body) {
        Ok(value) => ErrorFields::new(&value),
        Err(_) if body.trim_start().starts_with('<') => ErrorFields::default(),
        Err(_) => ErrorFields::new(&body.trim().into()),
    };
    let retry_after = headers.delay();
    RequestFailure { retry_after, ..ErrorFields { status: Some(status), ..error }.into_failure() }
}

/// The failure for an error inside of a stream, or of a response with a success status.
pub(crate) fn from_stream(value: &Value) -> RequestFailure {
    let error = ErrorFields::new(value);
    let status = error.code.parse::<u16>().ok().filter(|code| (400..600).contains(code));
    ErrorFields { status, ..error }.into_failure()
}

impl ErrorFields {
    fn new(value: &Value) -> Self {
        // Google's errors are in a list.
        let value = value.get(0).unwrap_or(value);
        let error = match &value["error"] {
            Value::String(text) if text.starts_with('{') => {
                if let Some(inner) = json::parse(text).ok().filter(|inner| inner["error"].is_object()) {
                    return Self::new(&inner);
                }
                &value["error"]
            }
            error @ (Value::Object(_) | Value::String(_)) => error,
            _ => value,
        };
        let text = |field: &Value| match field {
            Value::String(text) => text.clone(),
            Value::Null => String::new(),
            other => other.to_string(),
        };
        let own = if error.is_string() { error } else { &error["message"] };
        let messages = [own, &value["detail"], &value["message"]].map(text);
        let mut message = messages.into_iter().find(|message| !message.is_empty()).unwrap_or_default();
        // OpenRouter passes on the message of the server behind it.
        let raw = error["metadata"]["raw"].as_str().unwrap_or_default();
        if !message.contains(raw) {
            message = format!("{message}: {raw}");
        }
        let lowercase = message.to_lowercase();
        let parameter = match text(&error["param"]) {
            named if !named.is_empty() => named,
            _ => rejected_field(&lowercase).to_owned(),
        };
        let available_output = match (error["n_prompt_tokens"].as_u64(), error["n_ctx"].as_u64()) {
            // A prompt that fills the window gains nothing from a smaller output limit.
            (Some(prompt), Some(window)) => window.checked_sub(prompt).filter(|left| *left > 0),
            _ => available_output(&lowercase),
        };
        Self {
            status: None,
            kind: text(&error["type"]),
            code: text(&error["code"]),
            parameter,
            message,
            lowercase,
            available_output,
        }
    }

    fn into_failure(self) -> RequestFailure {
        let message = match (self.message.trim(), self.status) {
            ("", Some(status)) => format!("HTTP status {status} without an error message"),
            ("", None) => "the provider reported an error without a message".to_owned(),
            (message, Some(status)) => format!("{} (HTTP {status})", truncate(message)),
            (message, None) => truncate(message),
        };
        RequestFailure {
            class: self.class(),
            status: self.status,
            message,
            retry_after: None,
            available_output: self.available_output,
            parameter: Some(self.parameter).filter(|name| !name.is_empty()),
        }
    }

    fn contains_all(&self, words: &[&str]) -> bool {
        words.iter().all(|word| self.lowercase.contains(word))
    }

    fn contains_any(&self, phrases: &[&str]) -> bool {
        phrases.iter().any(|phrase| self.lowercase.contains(phrase))
    }

    fn class(&self) -> FailureClass {
        let words = [&self.code, &self.kind];
        if let Some(class) = words.into_iter().find_map(|word| self.class_of_code(word)) {
            return class;
        }
        // Phrases count only where the status is ambiguous.
        let is_ambiguous =
            matches!(self.status, None | Some(400 | 402 | 403 | 404 | 413 | 422 | 429 | 500 | 501));
        if let Some(class) = self.class_by_phrases().filter(|_| is_ambiguous) {
            return class;
        }
        match self.status {
            Some(401 | 403) => FailureClass::Auth,
            Some(402) => FailureClass::Billing,
            Some(408 | 504) => FailureClass::Timeout,
            Some(413) => FailureClass::PayloadTooLarge,
            Some(429) => FailureClass::RateLimit,
            Some(503 | 529) => FailureClass::Overloaded,
            Some(500..=599) => FailureClass::Server,
            Some(404) if self.message.is_empty() => FailureClass::Unknown,
            Some(400..=499) => FailureClass::Format,
            _ => FailureClass::Unknown,
        }
    }

    fn class_of_code(&self, word: &str) -> Option<FailureClass> {
        let is_limited = self.status == Some(429);
        Some(match word {
            "insufficient_quota"
            | "billing_hard_limit_reached"
            | "billing_error"
            | "insufficient_credits" => FailureClass::Billing,
            "invalid_api_key" | "authentication_error" | "permission_error" | "permission_denied" => {
                FailureClass::Auth
            }
            "tokens" | "requests" if !is_limited => return None,
            "rate_limit_exceeded" | "rate_limit_error" | "tokens" | "requests" => {
                let is_tier = is_limited && self.contains_all(&["extra usage", "long context"]);
                if is_tier { FailureClass::LongContextTier } else { FailureClass::RateLimit }
            }
            "overloaded_error" | "server_overloaded" | "engine_overloaded_error" => FailureClass::Overloaded,
            "server_error" | "api_error" | "internal_error" if self.status.is_none_or(|code| code >= 500) => {
                // llama.cpp reports errors of its grammar parser as server errors.
                self.class_by_phrases().unwrap_or(FailureClass::Server)
            }
            "timeout_error" => FailureClass::Timeout,
            "context_length_exceeded" if self.available_output.is_some() => FailureClass::OutputCap,
            "context_length_exceeded" | "exceed_context_size_error" => FailureClass::ContextOverflow,
            "request_too_large" => FailureClass::PayloadTooLarge,
            "model_not_found" | "model_not_available" => FailureClass::ModelNotFound,
            "not_found_error" if self.lowercase.contains("model") => FailureClass::ModelNotFound,
            "content_policy_violation" | "content_filter" | "moderation_blocked" => {
                FailureClass::ContentPolicy
            }
            "invalid_encrypted_content" => FailureClass::ReasoningRejected,
            "unsupported_parameter" | "unknown_parameter" | "unsupported_value" => {
                match (self.parameter.as_str(), self.available_output) {
                    ("stream", _) => FailureClass::StreamUnsupported,
                    (_, Some(_)) => FailureClass::OutputCap,
                    _ => FailureClass::Parameter,
                }
            }
            _ => return None,
        })
    }

    /// Classifies by the phrases of servers without codes. Each phrase is narrow; a message that
    /// matches none is a plain error.
    fn class_by_phrases(&self) -> Option<FailureClass> {
        let refuses = self.contains_any(&[
            "not support", "unsupported", "not available", "not allowed", "unrecognized", "unknown",
        ]);
        // FastAPI and others name the rejected field without a code.
        let names_field = !self.parameter.is_empty() && matches!(self.status, Some(400 | 422));
        let has_extra_field =
            self.contains_any(&["extra inputs are not permitted", "extra fields not permitted"]);
        let has_all = |words: &[&str]| self.contains_all(words);
        let classes = [
            (FailureClass::Auth, is_claude_code_only(&self.lowercase)),
            (FailureClass::OutputCap, self.available_output.is_some()),
            (FailureClass::Billing, self.contains_any(NO_CREDIT)),
            (
                FailureClass::RateLimit,
                self.status == Some(402) && self.contains_any(&["try again", "rate limit"]),
            ),
            (
                FailureClass::PolicyBlocked,
                has_all(&["no endpoints", "data policy"]) || has_all(&["guardrail", "privacy"]),
            ),
            (FailureClass::ContextOverflow, self.contains_any(CONTEXT_OVERFLOW)),
            (
                FailureClass::ReasoningRejected,
                has_all(&["signature", "thinking"])
                    || has_all(&["expected `thinking`", "but found"])
                    || has_all(&["thought", "signature"])
                    || has_all(&["thinking", "blocks", "cannot be modified"])
                    || has_all(&["encrypted content", "could not be"]),
            ),
            (
                FailureClass::ReasoningMissing,
                has_all(&["reasoning_content"]) && self.contains_any(&["passed back", "is missing"]),
            ),
            (FailureClass::Grammar, self.contains_any(NO_GRAMMAR)),
            (FailureClass::ImagesUnsupported, self.contains_any(NO_IMAGE_INPUT)),
            (
                FailureClass::StreamUnsupported,
                refuses && has_all(&["stream"]) && !has_all(&["stream_options"]),
            ),
            (FailureClass::ModelNotFound, has_all(&["model"]) && self.contains_any(NO_MODEL)),
            (FailureClass::ContentPolicy, self.contains_any(CONTENT_POLICY)),
            (FailureClass::Parameter, names_field && (refuses || has_extra_field)),
        ];
        classes.into_iter().find_map(|(class, matches)| matches.then_some(class))
    }
}

/// The refusal of a token of Claude Code that another program sent.
const CLAUDE_CODE_ONLY: &[&str] = &["only authorized for use with claude code"];

/// Whether a message in any case refuses a token of Claude Code.
pub(super) fn is_claude_code_only(message: &str) -> bool {
    let lowercase = message.to_lowercase();
    CLAUDE_CODE_ONLY.iter().any(|phrase| lowercase.contains(phrase))
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
    "maximum context length",
    "context length exceeded",
    "context_length_exceeded",
    "exceeds the available context size",
    "exceed context limit",
    "exceeds the context window",
    "exceed context window",
    "context window exceeds",
    "context size has been exceeded",
    "prompt is too long",
    "input is too long for requested model",
    "input token count",
    "longer than the model's context length",
    "longer than the maximum model length",
    "exceeds the maximum number of tokens",
    "exceeds model's maximum context",
    "reduce the length of the messages",
    "prompt too long",
    "input length exceeds the context length",
    "prompt is longer than the context length",
    "超过最大长度",
    "上下文长度",
];

/// The field that a message in lower case rejects, as Pydantic (`body.stream_options: Extra
/// inputs…`) and older servers of OpenAI (`Unrecognized request argument supplied: …`) write it.
fn rejected_field(lowercase: &str) -> &'static str {
    let complaints = [
        "extra inputs", "extra fields", "unrecognized request argument", "unknown field",
        "unsupported parameter", "unknown parameter", "not supported", "unexpected keyword",
        "does not support thinking",
    ];
    let candidates = [
        "reasoning_effort", "stream_options", "prompt_cache_key", "max_completion_tokens", "reasoning",
        "verbosity", "usage", "options", "think",
    ];
    if !complaints.iter().any(|phrase| lowercase.contains(phrase)) {
        return "";
    }
    candidates.into_iter().find(|name| lowercase.contains(name)).unwrap_or_default()
}

/// The number of tokens left for output, if the message in lower case says so.
fn available_output(lowercase: &str) -> Option<u64> {
    let after = |phrase: &str| number(lowercase.split_once(phrase)?.1);
    let before = |phrase: &str| {
        lowercase.split_once(phrase)?.0.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
    };
    let has_all = |words: &[&str]| words.iter().all(|word| lowercase.contains(word));
    let difference = |window: u64, input: u64| window.checked_sub(input).filter(|left| *left > 0);
    // Anthropic: "max_tokens: 100000 > 64000, which is the maximum allowed number of output
    // tokens".
    if has_all(&["max_tokens:", "maximum allowed number of output tokens"]) {
        return after(" > ");
    }
    // Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000".
    if has_all(&["exceed context limit", " > "]) {
        let input = after("exceed context limit: ")?;
        return difference(after(" > ")?, input);
    }
    // OpenAI: "max_tokens is too large: 9999. This model supports at most 4096 completion tokens".
    if has_all(&["supports at most", "completion tokens"]) {
        return after("supports at most ");
    }
    // OpenAI: "maximum context length is 8192 tokens. However, you requested 9000 tokens (5000 in
    // the messages, 4000 in the completion)".
    if has_all(&["maximum context length is", "in the messages"]) {
        let window = after("maximum context length is ")?;
        let asked = before(" in the completion").unwrap_or(0);
        let prompt = before(" in the messages")?;
        return difference(window, prompt).filter(|_| asked > 0);
    }
    // vLLM: "'max_tokens' … is too large: 5000. … maximum context length is 8192 tokens and your
    // request has 4000 input tokens".
    if has_all(&["maximum context length is", "is too large", "input tokens"]) {
        let window = after("maximum context length is ")?;
        return difference(window, before(" input tokens")?);
    }
    None
}

fn number(text: &str) -> Option<u64> {
    let digits = text.split(|c: char| !c.is_ascii_digit() && c != ',').next()?;
    digits.replace(',', "").parse().ok()
}

impl RetryHeaders<'_> {
    /// The delay, up to the maximum.
    fn delay(self) -> Option<Duration> {
        let milliseconds = self.retry_after_ms.and_then(|text| text.trim().parse::<f64>().ok());
        let seconds = milliseconds.map(|milliseconds| milliseconds / 1000.0);
        let seconds = seconds.or_else(|| self.retry_after?.trim().parse().ok());
        match seconds {
            Some(seconds) if !seconds.is_finite() || seconds < 0.0 => None,
            Some(seconds) => Some(Duration::from_secs_f64(seconds.min(MAX_RETRY_AFTER.as_secs_f64()))),
            None => {
                let date = httpdate::parse_http_date(self.retry_after?.trim()).ok()?;
                Some(date.duration_since(SystemTime::now()).unwrap_or_default().min(MAX_RETRY_AFTER))
            }
        }
    }
}

fn truncate(message: &str) -> String {
    match message.char_indices().nth(MAX_MESSAGE_CHARS) {
        Some((at, _)) => format!("{}…", message.get(..at).unwrap_or_default()),
        None => message.to_owned(),
    }
}

#[cfg(test)]
mod tests;
