//! What can go wrong between us and a model.

mod parse;

use std::time::Duration;

use thiserror::Error;

pub(crate) use parse::{in_stream, of_response};

/// No answer could be had.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum Error {
    /// There is no model to ask.
    #[error("no model is configured")]
    NoEndpoint,
    /// Every model that could be asked failed; this is what the last one said.
    #[error("{model} ({provider}): {fault}")]
    Failed {
        /// Who failed.
        provider: String,
        /// With which model.
        model: String,
        /// How.
        fault: Fault,
    },
}

impl Error {
    /// What kind of failure it is.
    pub fn class(&self) -> Option<Class> {
        match self {
            Self::NoEndpoint => None,
            Self::Failed { fault, .. } => Some(fault.class),
        }
    }

    /// What a person can do about it.
    pub fn hint(&self) -> Option<&'static str> {
        self.class().and_then(Class::hint)
    }
}

/// One failed attempt.
#[derive(Debug, Clone, PartialEq, Error)]
#[error("{message}")]
pub struct Fault {
    /// What kind it is.
    pub class: Class,
    /// The HTTP status, if it came to that.
    pub status: Option<u16>,
    /// What happened, in the provider's words where it had any.
    pub message: String,
    /// How long the provider wants us to wait.
    pub retry_after: Option<Duration>,
    /// How many tokens of output there is room for, if the provider said it.
    pub room: Option<u64>,
    /// The field of the request that the provider does not take.
    pub parameter: Option<String>,
}

impl Fault {
    pub(crate) fn new(class: Class, message: impl Into<String>) -> Self {
        Self { class, status: None, message: message.into(), retry_after: None, room: None, parameter: None }
    }

    /// Whether it may have been the pictures in the request. What has a known cause has another one.
    pub(crate) fn may_be_about_images(&self) -> bool {
        match self.class {
            Class::ImagesUnsupported | Class::PayloadTooLarge => true,
            Class::Format | Class::Parameter | Class::ModelNotFound | Class::Unknown => {
                matches!(self.status, Some(400 | 404 | 415 | 422))
            }
            _ => false,
        }
    }

    /// Whether the same conversation may be answered if it is asked without pictures, after all else failed.
    pub(crate) fn may_pass_without_images(&self) -> bool {
        matches!(self.class, Class::ContextOverflow | Class::ContentPolicy | Class::Server)
    }

    pub(crate) fn malformed(message: impl Into<String>) -> Self {
        Self::new(Class::Malformed, message)
    }
}

/// Kinds of failure, by what helps against them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// The key is missing, wrong or not allowed to do this.
    Auth,
    /// There is no money left.
    Billing,
    /// Too many requests.
    RateLimit,
    /// The provider has too much to do.
    Overloaded,
    /// The provider broke.
    Server,
    /// Nothing came in time.
    Timeout,
    /// The server could not be reached.
    Unreachable,
    /// Whoever answers cannot be trusted.
    Untrusted,
    /// The connection was lost in the middle.
    Dropped,
    /// What came is not an answer.
    Malformed,
    /// The conversation is longer than the model's window.
    ContextOverflow,
    /// The request has too many bytes.
    PayloadTooLarge,
    /// This length of conversation is not part of the account's plan.
    LongContextTier,
    /// There is no such model.
    ModelNotFound,
    /// The account's own settings forbid every server of this model.
    PolicyBlocked,
    /// The provider refuses the content.
    ContentPolicy,
    /// Thoughts we sent back were not accepted.
    ReasoningRejected,
    /// The server cannot turn a tool's schema into a grammar.
    Grammar,
    /// The server takes no pictures.
    ImagesUnsupported,
    /// The server cannot stream.
    StreamUnsupported,
    /// The output cap is larger than there is room for.
    OutputCap,
    /// A field that is not essential is not taken.
    Parameter,
    /// The request is wrong in another way.
    Format,
    /// Something else.
    Unknown,
}

impl Class {
    /// Whether the same request may succeed later.
    pub const fn is_passing(self) -> bool {
        match self {
            Self::RateLimit
            | Self::Overloaded
            | Self::Server
            | Self::Timeout
            | Self::Unreachable
            | Self::Dropped
            | Self::Malformed
            | Self::Unknown => true,
            Self::Auth
            | Self::Billing
            | Self::Untrusted
            | Self::ContextOverflow
            | Self::PayloadTooLarge
            | Self::LongContextTier
            | Self::ModelNotFound
            | Self::PolicyBlocked
            | Self::ContentPolicy
            | Self::ReasoningRejected
            | Self::Grammar
            | Self::ImagesUnsupported
            | Self::StreamUnsupported
            | Self::OutputCap
            | Self::Parameter
            | Self::Format => false,
        }
    }

    /// Whether a shorter conversation helps.
    pub const fn wants_compression(self) -> bool {
        matches!(self, Self::ContextOverflow | Self::PayloadTooLarge | Self::LongContextTier)
    }

    /// Whether another model may do better.
    pub(crate) const fn falls_back(self) -> bool {
        !self.wants_compression() && !matches!(self, Self::PolicyBlocked)
    }

    /// Whether another model is asked before this one is asked again.
    pub(crate) const fn falls_back_at_once(self) -> bool {
        matches!(self, Self::RateLimit | Self::Billing | Self::Malformed)
    }

    const fn hint(self) -> Option<&'static str> {
        Some(match self {
            Self::Auth => "check the key; `hermes config set` stores one, `hermes status` says which is used",
            Self::Billing => "add credit at the provider, or set `fallback_providers` to another one",
            Self::RateLimit | Self::Overloaded => {
                "wait a little, or set `fallback_providers` to another model"
            }
            Self::Unreachable => "is the server running, and is `model.base_url` right?",
            Self::Timeout => "`providers.<id>.request_timeout_seconds` gives a slow server more time",
            Self::ContextOverflow | Self::PayloadTooLarge => "start a new conversation, or compress this one",
            Self::LongContextTier => "compress the conversation, or allow long context at the provider",
            Self::ModelNotFound => {
                "`model.default` names the model; is it spelled as the provider spells it?"
            }
            Self::PolicyBlocked => "the privacy settings of your account forbid every server of this model",
            Self::ImagesUnsupported => {
                "`agent.image_input_mode: auto` asks such a model without pictures, `text` every model"
            }
            Self::ContentPolicy => "say it in other words, or choose another model",
            _ => return None,
        })
    }
}
