//! What every platform can do for the gateway.

use std::fmt;
use std::path::Path;
use std::pin::Pin;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

use crate::letter::{Attachment, Interaction, Letter, Platform, Press, Remark, Room};

/// Something that is waited for.
pub type Waiting<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One account on one platform.
pub trait Channel: Send + Sync + fmt::Debug {
    /// Which platform it is.
    fn platform(&self) -> Platform;

    /// How it takes messages.
    fn manners(&self) -> Manners;

    /// Stays connected until it is told to stop, and tells what comes. It heals what can be healed and tells how it is; what
    /// cannot is its end.
    fn run<'a>(&'a self, desk: Desk, stop: CancellationToken) -> Waiting<'a, Result<(), Unfit>>;

    /// Sends a message and gives what the platform calls it. The mark is the same for the same message: where a platform
    /// knows such marks, one that was sent before is not sent again.
    fn send<'a>(
        &'a self,
        chat: &'a str,
        post: &'a Post,
        mark: &'a str,
    ) -> Waiting<'a, Result<String, Undelivered>>;

    /// Looks whether a message is there that we may have sent, where the platform lets us look.
    fn find<'a>(&'a self, chat: &'a str, post: &'a Post, mark: &'a str) -> Waiting<'a, Found>;

    /// Replaces what a message of ours says.
    fn edit<'a>(
        &'a self,
        chat: &'a str,
        message: &'a str,
        post: &'a Post,
    ) -> Waiting<'a, Result<(), Undelivered>>;

    /// Looks for a while whether a message of ours still says what it was changed to last, if a change before that may be on its
    /// way, and changes it again if it does not.
    fn assure<'a>(&'a self, _chat: &'a str, _message: &'a str, _post: &'a Post) -> Waiting<'a, ()> {
        Box::pin(async {})
    }

    /// Opens the thread that the answer to a letter is wanted in. Where it is open already, that is as good.
    fn open_thread<'a>(&'a self, letter: &'a Letter, name: &'a str)
    -> Waiting<'a, Result<Room, Undelivered>>;

    /// The chat where more is said after a message of ours in a chat.
    fn after<'a>(&self, chat: &'a str, _message: &'a str) -> &'a str {
        chat
    }

    /// Notes that we take part in a thread from now on, where that changes what is heard there.
    fn joined(&self, _thread: &str) {}

    /// What was said where a letter was written, since our own last message there and before it, oldest first, where that
    /// helps to understand it. Asked only about letters that are about to be answered.
    fn before<'a>(&'a self, _letter: &'a Letter) -> Waiting<'a, Vec<Remark>> {
        Box::pin(async { Vec::new() })
    }

    /// Shows for some seconds that something is being done.
    fn typing<'a>(&'a self, chat: &'a str) -> Waiting<'a, ()>;

    /// Shows at a message what became of it, instead of what was shown before.
    fn mark<'a>(&'a self, letter: &'a Letter, sign: Sign) -> Waiting<'a, ()>;

    /// Tells whoever pressed a button or used a command something that only they see.
    fn whisper<'a>(&'a self, to: &'a Interaction, text: &'a str) -> Waiting<'a, ()>;

    /// Tells whoever used a command that it is heard. False where the platform told them already that it failed, so that nothing
    /// may be done. One that was told before may be told again.
    fn hear<'a>(&'a self, _command: &'a Interaction) -> Waiting<'a, bool> {
        Box::pin(async { true })
    }

    /// Fetches a file that came with a letter, if it is no larger than this, into one that is there. What that one holds where
    /// this fails is of no use.
    fn fetch<'a>(
        &'a self,
        file: &'a Attachment,
        into: &'a Path,
        most: u64,
    ) -> Waiting<'a, Result<u64, Unfetched>>;
}

/// How a platform takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manners {
    /// The longest text of a message.
    pub longest: usize,
    /// What that counts.
    pub unit: Unit,
    /// Whether messages can be changed.
    pub edits: bool,
    /// Whether messages can have buttons.
    pub buttons: bool,
    /// How long typing is shown.
    pub typing: Duration,
    /// The shortest time between two changes of a message.
    pub pace: Duration,
    /// The most files of a message.
    pub most_files: usize,
    /// The largest file, in bytes.
    pub largest_file: u64,
}

/// What the length of a text counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Code points.
    Chars,
    /// Units of UTF-16.
    Utf16,
}

/// A message to be sent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Post {
    /// What it says.
    pub text: String,
    /// The message it is an answer to.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub reply_to: Option<String>,
    /// What can be pressed under it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub buttons: Vec<Button>,
    /// Files that go with it.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub files: Vec<Enclosure>,
    /// The mark of the part whose message it replaces. Where that was not sent, or is gone, it is a message of its own.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub replaces: Option<String>,
    /// The mark of the part it goes on with. Where that began a thread, it is sent there.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub after: Option<String>,
}

/// A button under a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Button {
    /// What it shows.
    pub label: String,
    /// What it says when it is pressed; at most 100 bytes.
    pub value: String,
    /// How it looks.
    pub look: Look,
}

/// How a button looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Look {
    /// One of several.
    Plain,
    /// It lets something happen.
    Go,
    /// It ends something.
    Stop,
}

/// A file that goes with a message. It was copied out of its place before it is sent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enclosure {
    /// The name it is sent under.
    pub name: String,
    /// Where the copy is.
    pub path: std::path::PathBuf,
}

/// What a letter shows about itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sign {
    /// It was seen and something is being done.
    Seen,
    /// It was answered.
    Done,
    /// It could not be answered.
    Failed,
    /// Nothing.
    Nothing,
}

/// Why a message was not sent, as far as is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undelivered {
    /// The platform wants it later.
    #[error("{why}")]
    Later {
        /// How much later, if the platform said so.
        after: Option<Duration>,
        /// Why.
        why: String,
    },
    /// It may have been sent.
    #[error("{0}")]
    Unknown(String),
    /// It will not be sent, ever.
    #[error("{0}")]
    Never(String),
}

/// Whether a message is there that may have been sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Found {
    /// It is, under this name.
    There(String),
    /// It is not.
    NotThere,
    /// The platform does not say. Sending it again may repeat it.
    Unclear,
}

/// Why a file was not fetched.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unfetched {
    /// It is larger than allowed.
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// Something else.
    #[error("{0}")]
    Failed(String),
}

/// Why a channel cannot work at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct Unfit {
    /// What is wrong.
    pub why: String,
    /// What to do about it.
    pub remedy: String,
}

/// Where a channel hands in what comes.
#[derive(Debug, Clone)]
pub struct Desk {
    /// What comes, in its order.
    pub arrivals: mpsc::Sender<Arrival>,
    /// How the channel is.
    pub health: watch::Sender<Health>,
    /// How far the platform was heard and everything kept, in words of its own, for the next start.
    pub bookmark: watch::Sender<Option<String>>,
}

/// Something that came.
#[derive(Debug)]
pub struct Arrival {
    /// What.
    pub what: Incoming,
    /// Told when it is kept, so that the platform may be told.
    pub kept: oneshot::Sender<()>,
}

/// What can come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Incoming {
    /// Somebody said something to us.
    Said(Box<Letter>),
    /// Somebody pressed a button.
    Pressed(Box<Press>),
}

/// How a channel is, by what was heard of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "state")]
pub enum Health {
    /// It is being connected.
    Connecting,
    /// It answers.
    Up,
    /// It does not.
    Down {
        /// Why.
        why: String,
    },
}
