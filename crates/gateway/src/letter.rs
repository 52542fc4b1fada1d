//! What people send, whatever platform they use.

use hermes_types::{Person, Timestamp};
use serde::{Deserialize, Serialize};

use crate::channel::Manners;
use crate::discord;

/// A platform that people chat on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Platform {
    /// Discord.
    Discord,
}

impl Platform {
    /// All of them.
    pub const ALL: [Self; 1] = [Self::Discord];

    /// Its word, in keys, on the command line and in the store.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Discord => "discord",
        }
    }

    /// The platform with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|platform| platform.word() == word)
    }

    /// How it takes messages.
    pub const fn manners(self) -> Manners {
        match self {
            Self::Discord => discord::MANNERS,
        }
    }

    /// Whether a chat there could be called so.
    pub fn has(self, chat: &str) -> bool {
        match self {
            Self::Discord => !chat.is_empty() && chat.bytes().all(|byte| byte.is_ascii_digit()),
        }
    }

    /// Somebody with this id there. No id means the same person on two platforms.
    pub fn person(self, id: &str) -> Person {
        Person::new(format!("{}:{id}", self.word()))
    }
}

/// Where something is said.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Room {
    /// On which platform.
    pub platform: Platform,
    /// What kind of room it is.
    pub kind: RoomKind,
    /// What answers are sent to.
    pub chat: String,
    /// The thread, where the platform tells threads from chats.
    pub thread: Option<String>,
    /// What it is a part of: the channel of a thread.
    pub parent: Option<String>,
    /// What people call it.
    pub name: Option<String>,
}

/// A kind of room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RoomKind {
    /// Two talk with each other.
    Dm,
    /// Several do.
    Group,
    /// Several talk about one thing, apart from the rest.
    Thread,
}

impl RoomKind {
    /// Its word in session keys.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Dm => "dm",
            Self::Group => "group",
            Self::Thread => "thread",
        }
    }
}

/// Who sends something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sender {
    /// What the platform calls them. Names can be anybody's.
    pub id: String,
    /// What people call them.
    pub name: String,
    /// Whether a program sends it.
    pub is_bot: bool,
    /// Their roles, where the platform has such.
    pub roles: Vec<String>,
}

/// Something that was said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Letter {
    /// Where.
    pub room: Room,
    /// By whom.
    pub sender: Sender,
    /// What the platform calls it in its chat.
    pub message: String,
    /// When.
    pub sent: Timestamp,
    /// The words, without the call by name that only says whom they are for.
    pub text: String,
    /// Files that came with it. Nothing of them has been fetched.
    pub files: Vec<Attachment>,
    /// What it is an answer to.
    pub quote: Option<Quote>,
    /// Where the answer is wanted.
    pub reply: ReplyPlace,
    /// How a command that was not written as a message is answered.
    pub interaction: Option<Interaction>,
}

/// A file that came with a letter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Its name, as somebody else chose it.
    pub name: String,
    /// Bytes, as the platform says.
    pub size: u64,
    /// What the platform says it is.
    pub media_type: Option<String>,
    /// Where it can be fetched; the channel knows how.
    pub source: String,
}

/// What a letter is an answer to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Quote {
    /// What the platform calls it.
    pub message: String,
    /// What was said.
    pub text: String,
    /// Whether we said it.
    pub is_ours: bool,
}

/// Something that somebody said near a letter. It is nobody's letter: whoever said it did not say it to us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remark {
    /// What the platform calls it in its chat.
    pub message: String,
    /// What people call whoever said it.
    pub name: String,
    /// What was said.
    pub text: String,
}

/// Where an answer is wanted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReplyPlace {
    /// Where it was asked.
    Here,
    /// In a thread of its own, which is to be opened under this name.
    Thread(String),
}

/// What an answer to a command or a button needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interaction {
    /// What the platform calls it.
    pub id: String,
    /// Proves that we were asked.
    pub token: String,
    /// Whether whoever used a command knows that it is heard.
    #[serde(default = "yes")]
    pub is_heard: bool,
}

/// Letters that do not say so were kept when everybody was told first.
fn yes() -> bool {
    true
}

impl Letter {
    /// Whether it is a command, and whoever used it does not know yet that it is heard.
    pub(crate) fn is_unheard(&self) -> bool {
        self.interaction.as_ref().is_some_and(|command| !command.is_heard)
    }
}

/// A button under one of our messages that was pressed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Press {
    /// Where.
    pub room: Room,
    /// By whom.
    pub sender: Sender,
    /// Which message of ours.
    pub message: String,
    /// What the button was given to say.
    pub value: String,
    /// How it is answered.
    pub interaction: Interaction,
}
