//! Prompts, replies, and the events while a reply arrives.

use std::time::Duration;

use hermes_types::{Call, CallArguments, Message, Part, ToolSpec, Usage};
use strum::IntoStaticStr;

use crate::endpoint::Effort;
use crate::vision::{self, ImageMode};

/// A conversation that a model continues.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// The system prompt.
    pub system: &'a str,
    pub tools: &'a [ToolSpec],
    pub messages: &'a [Message],
    /// In tokens.
    pub max_output: Option<u32>,
    /// None leaves it to the provider.
    pub effort: Option<Effort>,
    /// The key of the provider's prompt cache.
    pub session: &'a str,
    pub image_mode: ImageMode,
}

impl Prompt<'_> {
    pub(crate) fn estimated_tokens(&self) -> usize {
        let arguments = |call: &Call| match &call.arguments {
            CallArguments::Object(object) => serde_json::to_string(object).map_or(0, |text| text.len()),
            CallArguments::Broken { .. } => 0,
        };
        let length = |message: &Message| message.text().len() + message.calls().map(arguments).sum::<usize>();
        let messages: usize = self.messages.iter().map(length).sum();
        let tools: usize = self.tools.iter().map(|tool| tool.description.len() + 400).sum();
        (self.system.len() + messages + tools) / 4
            + vision::recent_images(self.messages).count() * vision::TOKENS_PER_IMAGE
    }
}

/// Reported while a reply arrives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplyEvent {
    Text(String),
    Reasoning(String),
    /// An attempt failed, and another follows after the delay. Attempts are counted from 1.
    Retrying {
        reason: String,
        delay: Duration,
        attempt: u32,
    },
    /// The next model of the chain is asked.
    Fallback {
        from: String,
        to: String,
    },
}

/// A reply of a model.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// In the order in which they arrived.
    pub parts: Vec<Part>,
    pub finish: Finish,
    pub usage: Usage,
    /// In US dollars, if the provider reports it.
    pub cost: Option<f64>,
    pub provider: String,
    pub model: String,
}

impl Reply {
    /// The reply as a message of the conversation.
    pub fn message(&self) -> Message {
        Message::Assistant { parts: self.parts.clone() }
    }
}

/// Why a reply ended.
#[derive(Debug, Clone, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case", const_into_str)]
pub enum Finish {
    Stop,
    /// The model calls tools.
    #[strum(serialize = "tool_calls")]
    Calls,
    /// The output limit or the context window was reached. A truncated call is broken.
    Length,
    /// The connection was lost after text had been shown. A truncated call is broken.
    Dropped(String),
    /// The provider or the model refused, for this reason.
    #[strum(serialize = "content_filter")]
    Filtered(String),
}

impl Finish {
    pub const fn as_str(&self) -> &'static str {
        self.into_str()
    }
}
