//! What is asked of a model and what comes back.

use std::time::Duration;

use hermes_types::{Message, Part, ToolSpec, Usage};

use crate::album::Sight;
use crate::endpoint::Effort;
use crate::eyes;

/// A conversation to be continued.
#[derive(Debug, Clone, Copy)]
pub struct Prompt<'a> {
    /// Who the model is and what it should know.
    pub system: &'a str,
    /// What it may call.
    pub tools: &'a [ToolSpec],
    /// What was said so far.
    pub messages: &'a [Message],
    /// The longest answer in tokens.
    pub max_output: Option<u32>,
    /// How much it should think; none leaves it to the provider.
    pub effort: Option<Effort>,
    /// What providers keep a prompt's cache by.
    pub session: &'a str,
    /// How the pictures in it are shown.
    pub sight: &'a Sight,
}

impl Prompt<'_> {
    /// About how many tokens it has.
    pub(crate) fn size(&self) -> usize {
        let messages: usize = self.messages.iter().map(|message| message.text().len()).sum();
        let tools: usize = self.tools.iter().map(|tool| tool.description.len() + 400).sum();
        (self.system.len() + messages + tools) / 4 + eyes::recent(self.messages).count() * eyes::TOKENS
    }
}

/// What happens while an answer comes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// More words.
    Text(String),
    /// More thoughts.
    Reasoning(String),
    /// A call begins.
    Call {
        /// The tool.
        name: String,
    },
    /// An attempt failed and there will be another.
    Retrying {
        /// What was wrong.
        why: String,
        /// When it will be.
        wait: Duration,
        /// Which attempt failed, from 1.
        attempt: u32,
    },
    /// Another model is asked instead.
    Fallback {
        /// The one that failed.
        from: String,
        /// The one that is asked.
        to: String,
    },
}

/// An answer.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Its parts, in the order in which they came.
    pub parts: Vec<Part>,
    /// Why it ended.
    pub finish: Finish,
    /// What it took.
    pub usage: Usage,
    /// US dollars, where the provider says it.
    pub cost: Option<f64>,
    /// Who answered.
    pub provider: String,
    /// The model that was asked.
    pub model: String,
}

impl Reply {
    /// It as an entry of the conversation.
    pub fn message(&self) -> Message {
        Message::Assistant { parts: self.parts.clone() }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Finish {
    /// All was said.
    Stop,
    /// Tools are to be called.
    Calls,
    /// The output cap or the window ended it. A call that was cut off by it is broken.
    Length,
    /// The connection was lost after words had been shown. A call that was cut off by it is broken.
    Dropped(String),
    /// The provider or the model refused, with what they said.
    Filtered(String),
}
