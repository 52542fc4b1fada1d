//! Inbound messages, independent of the platform.

use hermes_session::{SessionCommand, SessionMessage, Surface};
use hermes_types::{Person, Timestamp};
use serde::{Deserialize, Serialize};

use crate::channel::Capabilities;
use crate::channel::discord;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    Discord,
}

impl Platform {
    pub const ALL: [Self; 1] = [Self::Discord];

    /// Name in config keys, on the command line and in the store.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Discord => "discord",
        }
    }

    pub fn from_name(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|platform| platform.as_str() == word)
    }

    pub const fn capabilities(self) -> Capabilities {
        match self {
            Self::Discord => discord::CAPABILITIES,
        }
    }

    pub fn is_chat_id(self, chat: &str) -> bool {
        match self {
            Self::Discord => !chat.is_empty() && chat.bytes().all(|byte| byte.is_ascii_digit()),
        }
    }

    /// The person with this user id. The same id on two platforms means two people.
    pub fn person(self, id: &str) -> Person {
        Person::new(format!("{}:{id}", self.as_str()))
    }
}

/// A conversation on a platform: a direct message, a group channel or a thread.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Chat {
    pub platform: Platform,
    pub kind: ChatKind,
    /// Id that replies are sent to.
    #[serde(rename = "chat")]
    pub id: String,
    pub thread: Option<String>,
    /// The channel of a thread.
    pub parent: Option<String>,
    pub name: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChatKind {
    Dm,
    Group,
    Thread,
}

impl ChatKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Thread => "thread",
        }
    }
}

/// The author of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// Platform user id. Names are not unique.
    pub id: String,
    pub name: String,
    pub is_bot: bool,
    pub roles: Vec<String>,
}

/// A message for the bot, as stored in the inbox.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InboundMessage {
    #[serde(rename = "room")]
    pub chat: Chat,
    pub sender: Sender,
    #[serde(rename = "message")]
    pub id: String,
    #[serde(rename = "sent")]
    pub sent_at: Timestamp,
    /// Text without the mention of the bot.
    pub text: String,
    #[serde(rename = "files")]
    pub attachments: Vec<Attachment>,
    pub quote: Option<Quote>,
    #[serde(rename = "reply")]
    pub reply_target: ReplyTarget,
    /// Set if the message is a slash command.
    pub interaction: Option<InteractionToken>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Chosen by the sender: not trusted.
    pub name: String,
    pub size: u64,
    pub media_type: Option<String>,
    /// Download location; only the channel interprets it.
    pub source: String,
}

/// The message that a message replies to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    #[serde(rename = "message")]
    pub id: String,
    pub text: String,
    pub is_ours: bool,
}

/// A message near an inbound message that was not addressed to the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextMessage {
    pub id: String,
    pub author: String,
    pub text: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReplyTarget {
    #[serde(rename = "here")]
    SameChat,
    /// In a new thread of this name.
    #[serde(rename = "thread")]
    NewThread(String),
}

/// What is needed to respond to a slash command or button.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InteractionToken {
    pub id: String,
    pub token: String,
    /// Whether the command was acknowledged to its user.
    #[serde(rename = "is_heard", default = "yes")]
    pub is_acknowledged: bool,
}

/// Rows written before this field existed were acknowledged first.
fn yes() -> bool {
    true
}

impl SessionMessage for InboundMessage {
    fn id(&self) -> &str {
        &self.id
    }

    fn sender(&self, person: &Person) -> String {
        format!("{} ({})", self.sender.name, person.as_str())
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn set_text(&mut self, text: String) {
        self.text = text;
    }

    /// Bots cannot give commands.
    fn command(&self) -> Option<SessionCommand> {
        if self.sender.is_bot { None } else { SessionCommand::parse(&self.text, Surface::Chat) }
    }
}

/// A press of a button under one of our messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ButtonPress {
    pub chat: Chat,
    pub sender: Sender,
    pub value: String,
    pub interaction: InteractionToken,
}
