//! The interface between the gateway and a chat platform.

pub mod discord;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

pub use hermes_session::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::message::{
    Attachment, ButtonPress, Chat, ContextMessage, InboundMessage, InteractionToken, Platform,
};

/// One account on one chat platform.
pub trait Channel: Send + Sync {
    fn platform(&self) -> Platform;

    fn capabilities(&self) -> Capabilities {
        self.platform().capabilities()
    }

    /// Stays connected until `stop` is cancelled, and submits inbound events to `sink`. Reconnects
    /// on its own; returns an error only if retrying cannot help.
    fn run(
        self: Arc<Self>,
        sink: ChannelSink,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), FatalError>>;

    /// Sends a message and returns its platform id. The same message always has the same
    /// `idempotency_key`; a platform that supports such keys does not post it twice.
    fn send_message<'a>(
        &'a self,
        chat: &'a str,
        outbound: &'a OutboundMessage,
        idempotency_key: &'a str,
    ) -> BoxFuture<'a, Result<String, SendError>>;

    /// Looks for a message that may have been sent by an earlier attempt.
    fn find_message<'a>(
        &'a self,
        chat: &'a str,
        outbound: &'a OutboundMessage,
        idempotency_key: &'a str,
    ) -> BoxFuture<'a, DeliveryCheck>;

    /// Replaces the text of one of our messages.
    fn edit_message<'a>(
        &'a self,
        chat: &'a str,
        message: &'a str,
        outbound: &'a OutboundMessage,
    ) -> BoxFuture<'a, Result<(), SendError>>;

    /// Polls an edited message and reapplies the edit if a delayed earlier edit overwrote it.
    fn confirm_edit<'a>(
        &'a self,
        _chat: &'a str,
        _message: &'a str,
        _outbound: &'a OutboundMessage,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    /// Opens a thread for the reply to a message. Opening it again returns the same thread.
    fn open_thread<'a>(
        &'a self,
        message: &'a InboundMessage,
        name: &'a str,
    ) -> BoxFuture<'a, Result<Chat, SendError>>;

    /// The chat in which to continue after one of our messages. It differs from `chat` if that
    /// message started a thread (a forum post).
    fn followup_chat<'a>(&self, chat: &'a str, _message: &'a str) -> &'a str {
        chat
    }

    /// Records that the bot takes part in a thread, which changes what it listens to there.
    fn join_thread(&self, _thread: &str) {}

    /// Messages of others since our last message in the chat and before this one, oldest first.
    /// Called only for messages that are about to be answered.
    fn context_before<'a>(&'a self, _message: &'a InboundMessage) -> BoxFuture<'a, Vec<ContextMessage>> {
        Box::pin(async { Vec::new() })
    }

    /// Shows the typing indicator for a few seconds.
    fn show_typing<'a>(&'a self, chat: &'a str) -> BoxFuture<'a, ()>;

    /// Replaces our reaction on a message.
    fn set_reaction<'a>(&'a self, message: &'a InboundMessage, reaction: Reaction) -> BoxFuture<'a, ()>;

    /// Answers an interaction with a message that only its sender sees.
    fn reply_privately<'a>(&'a self, to: &'a InteractionToken, text: &'a str) -> BoxFuture<'a, ()>;

    /// Acknowledges a slash command. Returns false if the platform already reported a failure to
    /// the user, in which case the command must not run. Repeating it is harmless.
    fn acknowledge_command<'a>(&'a self, _command: &'a InteractionToken) -> BoxFuture<'a, bool> {
        Box::pin(async { true })
    }

    /// Downloads an attachment of at most `max_bytes` into an existing file. The content of that
    /// file is undefined after an error.
    fn download_attachment<'a>(
        &'a self,
        file: &'a Attachment,
        into: &'a Path,
        max_bytes: u64,
    ) -> BoxFuture<'a, Result<u64, FetchError>>;
}

/// Limits and features of a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capabilities {
    /// In UTF-16 units. Platforms that count characters accept such a text too.
    pub max_message_len: usize,
    pub can_edit: bool,
    /// How often the typing indicator has to be renewed.
    pub typing_interval: Duration,
    pub min_edit_interval: Duration,
    pub max_files: usize,
    pub max_file_bytes: u64,
}

/// A message to send, as stored in the outbox.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutboundMessage {
    pub text: String,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reply_to: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub buttons: Vec<MessageButton>,
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<AttachmentFile>,
    /// Key of the outbox part whose message this one replaces. If that was not sent, or is gone,
    /// this becomes a new message.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaces: Option<String>,
    /// Key of the outbox part this one continues. If that started a thread, this is sent there.
    #[serde(rename = "after", skip_serializing_if = "Option::is_none", default)]
    pub continues: Option<String>,
}

impl OutboundMessage {
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MessageButton {
    pub label: String,
    /// Value reported when it is pressed; at most 100 bytes.
    pub value: String,
    #[serde(rename = "look")]
    pub style: ButtonStyle,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ButtonStyle {
    #[serde(rename = "plain")]
    Secondary,
    #[serde(rename = "go")]
    Success,
    #[serde(rename = "stop")]
    Danger,
}

/// A file to upload. It was copied out of its environment before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachmentFile {
    pub name: String,
    pub path: std::path::PathBuf,
}

/// The bot's reaction on an inbound message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reaction {
    /// Received; a turn is running.
    Seen,
    Done,
    Failed,
    Nothing,
}

/// Why a message was not sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// It was not sent; try again later.
    #[error("{reason}")]
    Retry { after: Option<Duration>, reason: String },
    /// It may or may not have been sent.
    #[error("{0}")]
    Unknown(String),
    #[error("{0}")]
    Permanent(String),
}

/// Outcome of looking for a message that may have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryCheck {
    /// It was sent and has this id.
    Sent(String),
    NotSent,
    /// The platform cannot tell. Sending again may duplicate it.
    Unknown,
}

/// Why an attachment was not downloaded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FetchError {
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    #[error("{0}")]
    Failed(String),
}

/// An error of a channel that retrying cannot fix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason}")]
pub struct FatalError {
    pub reason: String,
    pub hint: String,
}

/// Where a channel delivers inbound events and reports its state.
#[derive(Debug, Clone)]
pub struct ChannelSink {
    pub inbound: mpsc::Sender<Inbound>,
    pub health: watch::Sender<ChannelHealth>,
    /// The platform's own position up to which every event is stored, for the next start.
    pub bookmark: watch::Sender<Option<String>>,
}

/// An inbound event and its acknowledgment.
#[derive(Debug)]
pub struct Inbound {
    pub event: InboundEvent,
    /// Sent once the event is stored; dropped if it could not be stored.
    pub ack: oneshot::Sender<()>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InboundEvent {
    Message(Box<InboundMessage>),
    ButtonPress(Box<ButtonPress>),
}

/// Connection state of a channel.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum ChannelHealth {
    Connecting,
    Up,
    Down {
        #[serde(rename = "why")]
        reason: String,
    },
}
