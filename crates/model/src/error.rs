//! Failures of model requests, classified by what helps against them.

mod parse;

use std::time::Duration;

use thiserror::Error as ThisError;

pub(crate) use parse::{RetryHeaders, from_response, from_stream};

use crate::provider::Provider;

/// No model could be chosen, or none of the chain replied.
#[derive(Debug, Clone, PartialEq, ThisError)]
pub enum Error {
    #[error("no model is configured")]
    NoModel,
    #[error("no provider for {model}: no API key and no base_url are configured")]
    NoProvider { model: String },
    #[error("model.provider is {provider}, but model.base_url is not set")]
    NoBaseUrl { provider: String },
    #[error("the provider {name} is disabled (`providers.{name}.enabled`)")]
    ProviderDisabled { name: String },
    #[error("cannot use the provider {name}: it needs a login or a library that this version does not have")]
    UnsupportedProvider { name: String },
    #[error("unknown provider `{name}`")]
    UnknownProvider { name: String, known: Vec<String> },
    #[error("no API key for {}", .provider.id)]
    NoKey { provider: &'static Provider },
    #[error("invalid base_url for {provider}: `{base_url}`")]
    InvalidBaseUrl { provider: String, base_url: String },
    #[error("providers.{server}.transport: unknown protocol `{transport}`")]
    UnknownTransport { server: String, transport: String },
    /// Every model failed; this is the failure of the last one.
    #[error("{model} ({provider}): {failure}")]
    Failed { provider: String, model: String, failure: Box<RequestFailure> },
}

impl Error {
    pub fn class(&self) -> Option<FailureClass> {
        let Self::Failed { failure, .. } = self else { return None };
        Some(failure.class)
    }

    /// Imperative sentences that say what a user can do about it.
    pub fn hints(&self) -> Vec<String> {
        let store_key = "Run `hermes config set OPENROUTER_API_KEY -` to store the key of a provider.";
        let own_server =
            "Run `hermes config set model.base_url http://localhost:11434/v1` to use your own server.";
        let hints: &[&str] = match self {
            Self::NoModel => {
                &["Run `hermes config set model.default NAME` to choose a model.", store_key, own_server]
            }
            Self::NoProvider { .. } => &[store_key, own_server],
            Self::NoBaseUrl { provider } if provider == "ollama" => {
                &["Run `hermes config set model.base_url http://localhost:11434/v1`."]
            }
            Self::NoBaseUrl { .. } => &["Run `hermes config set model.base_url http://localhost:8000/v1`."],
            Self::ProviderDisabled { name } => {
                return vec![format!("Run `hermes config set model.provider NAME`, or enable {name}.")];
            }
            Self::UnsupportedProvider { .. } => {
                &["Run `hermes config set model.provider NAME` with a provider that takes an API key."]
            }
            Self::UnknownProvider { known, .. } => {
                return vec![
                    format!("Use one of {}.", known.join(", ")),
                    "Add your own servers under `providers:` in config.yaml.".to_owned(),
                ];
            }
            Self::NoKey { provider } => {
                let name = provider.key_variables.first().copied().unwrap_or_default();
                return vec![format!("Run `hermes config set {name} -` to store it in the secrets file.")];
            }
            Self::InvalidBaseUrl { .. } => {
                &["Use an address with http:// or https://, for example http://localhost:8000/v1."]
            }
            Self::UnknownTransport { .. } => {
                &["Use chat_completions, anthropic_messages or codex_responses."]
            }
            Self::Failed { failure, .. } if parse::is_claude_code_only(&failure.message) => &[
                "Run `hermes config set ANTHROPIC_API_KEY -` to store an API key: Anthropic accepts the token of \
                 Claude Code only from Claude Code.",
            ],
            Self::Failed { failure, .. } => {
                return failure.class.hint().map(str::to_owned).into_iter().collect();
            }
        };
        hints.iter().map(|hint| (*hint).to_owned()).collect()
    }
}

/// Why one request failed.
#[derive(Debug, Clone, Default, PartialEq, ThisError)]
#[error("{message}")]
pub struct RequestFailure {
    pub class: FailureClass,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// In the provider's words where it gave any.
    pub message: String,
    /// The delay that the provider asked for.
    pub retry_after: Option<Duration>,
    /// Tokens that are left for output, if the provider said so.
    pub available_output: Option<u64>,
    /// The field of the request that the provider rejects.
    pub parameter: Option<String>,
}

impl RequestFailure {
    pub(crate) fn new(class: FailureClass, message: impl Into<String>) -> Self {
        Self { class, message: message.into(), ..Self::default() }
    }

    /// Whether the images of the request may be the cause. A failure with a known cause has
    /// another.
    pub(crate) fn may_be_about_images(&self) -> bool {
        match self.class {
            FailureClass::ImagesUnsupported | FailureClass::PayloadTooLarge => true,
            FailureClass::Format
            | FailureClass::Parameter
            | FailureClass::ModelNotFound
            | FailureClass::Unknown => matches!(self.status, Some(400 | 404 | 415 | 422)),
            _ => false,
        }
    }

    /// Whether the request may succeed without images, after everything else failed.
    pub(crate) fn may_pass_without_images(&self) -> bool {
        matches!(
            self.class,
            FailureClass::ContextOverflow | FailureClass::ContentPolicy | FailureClass::Server
        )
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(FailureClass::Malformed, message)
    }
}

/// Kinds of failure, by what helps against them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum FailureClass {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// The account has no credit left.
    Billing,
    RateLimit,
    Overloaded,
    /// The provider failed internally.
    Server,
    Timeout,
    Unreachable,
    /// The server's certificate is not trusted.
    Untrusted,
    /// The connection was lost during the reply.
    Dropped,
    /// The response cannot be decoded.
    Malformed,
    /// The conversation is longer than the context window.
    ContextOverflow,
    /// The request has too many bytes.
    PayloadTooLarge,
    /// The account's plan does not include a conversation of this length.
    LongContextTier,
    ModelNotFound,
    /// The account's privacy settings exclude every server of this model.
    PolicyBlocked,
    ContentPolicy,
    /// The server rejected reasoning that was sent back.
    ReasoningRejected,
    /// The server wants the reasoning of every earlier reply.
    ReasoningMissing,
    /// The server cannot convert a tool's schema into a grammar.
    Grammar,
    ImagesUnsupported,
    StreamUnsupported,
    /// The requested output limit is too large.
    OutputCap,
    /// The server rejects a field of the request.
    Parameter,
    /// The server rejects the request for another reason.
    Format,
    #[default]
    Unknown,
}

impl FailureClass {
    /// Whether the same request may succeed later.
    pub(crate) const fn is_transient(self) -> bool {
        matches!(
            self,
            Self::RateLimit
                | Self::Overloaded
                | Self::Server
                | Self::Timeout
                | Self::Unreachable
                | Self::Dropped
                | Self::Malformed
                | Self::Unknown
        )
    }

    /// Whether another model may succeed. It helps neither against a conversation that is too long
    /// nor against the privacy settings of the account.
    pub(crate) const fn falls_back(self) -> bool {
        !matches!(
            self,
            Self::ContextOverflow | Self::PayloadTooLarge | Self::LongContextTier | Self::PolicyBlocked
        )
    }

    /// Whether to ask another model before retrying this one.
    pub(crate) const fn falls_back_immediately(self) -> bool {
        matches!(self, Self::RateLimit | Self::Billing | Self::Malformed)
    }

    const fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Auth => {
                "Check the API key: `hermes status` shows where it comes from, `hermes config set` stores one."
            }
            Self::Billing => "Add credit at the provider, or set `fallback_providers`.",
            Self::RateLimit | Self::Overloaded => "Try again later, or set `fallback_providers`.",
            Self::Unreachable => "Check that the server is running and that `model.base_url` is correct.",
            Self::Timeout => "For a slow server, raise `providers.<id>.request_timeout_seconds`.",
            Self::ContextOverflow | Self::PayloadTooLarge => {
                "Start a new conversation: this one is too long for the model. If the server is Ollama, raise \
                 `model.ollama_num_ctx`."
            }
            Self::LongContextTier => "Start a new conversation, or allow long context at the provider.",
            Self::ModelNotFound => "Set `model.default` to a model name that the provider knows.",
            Self::PolicyBlocked => {
                "Change the privacy settings of your account, which exclude every server of this model."
            }
            Self::ImagesUnsupported => "Set `agent.image_input_mode` to `auto` or `text`.",
            Self::ContentPolicy => "Rephrase the request, or choose another model.",
            _ => return None,
        })
    }
}
