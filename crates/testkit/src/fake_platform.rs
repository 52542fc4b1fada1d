//! What a strict fake platform does for the checks that are the same on every platform.
//!
//! It is said in words of no platform. What a platform cannot do it says with the reason, and the check that needs it says so too:
//! a check that does not apply is heard of, never left out in silence.

use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use tokio::sync::watch;

/// Something that not every platform can do.
pub type Supported<T = ()> = Result<T, NotSupported>;

/// Why something does not apply to a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSupported(pub &'static str);

/// A strict fake platform with one bot, and everybody else whom a test plays.
pub trait FakePlatform: Send + Sync + Sized {
    /// What persons, chats and messages are known by. Shown, that of a person is what the platform calls them.
    type Id: Copy + Eq + Debug + Display + Send + Sync;

    /// The platform's word in the configuration.
    const NAME: &'static str;
    /// The longest text that a message has, by [`Self::length`].
    const MAX_TEXT_LENGTH: usize;

    /// The length of a text, as the platform counts it.
    fn text_length(text: &str) -> usize;

    /// Begins with nobody but the bot. It takes as much as a test says, and waits so long for what a test waits for.
    fn launch(patience: Duration) -> impl Future<Output = io::Result<Self>> + Send;

    /// The variables by which the program finds it and is let in.
    fn environment(&self) -> Vec<(&'static str, String)>;

    /// A new person.
    fn add_person(&self, name: &str) -> Self::Id;

    /// The direct chat of a person with the bot.
    fn direct_chat(&self, person: Self::Id) -> Self::Id;

    /// A new group of the bot and these people.
    fn add_group(&self, name: &str, people: &[Self::Id]) -> Self::Id;

    /// A person says something in a chat. Gives the message.
    fn send(&self, person: Self::Id, chat: Self::Id, words: UserMessage<Self::Id>) -> Self::Id;

    /// A person sends a file of this name that is said to be small and never ends.
    fn send_endless_file(&self, person: Self::Id, chat: Self::Id, name: &str) -> Supported;

    /// The chat in which a message is answered, as soon as there is one: in a group that may be a thread.
    fn reply_chat(&self, message: Self::Id) -> Option<Self::Id>;

    /// What the bot has said in a chat, oldest first.
    fn bot_messages(&self, chat: Self::Id) -> Vec<BotMessage<Self::Id>>;

    /// Everything that the bot has done, but for staying connected and telling which commands it knows.
    fn actions(&self) -> Vec<PlatformAction<Self::Id>>;

    /// Whether messages can be changed.
    fn supports_edits() -> Supported;

    /// Whether messages can have buttons.
    fn supports_buttons() -> Supported;

    /// A person presses a button of a message, and the bot takes notice of it.
    fn click_button(
        &self,
        person: Self::Id,
        message: Self::Id,
        button: &str,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// What the bot told this person and nobody else sees, about buttons that they pressed.
    fn private_notices(&self, person: Self::Id) -> Vec<String>;

    /// How often the bot has connected.
    fn connection_count(&self) -> usize;

    /// Breaks the connection. What is said meanwhile is for the bot to find.
    fn drop_connection(&self) -> Supported;

    /// The connection stays and says nothing any more, as do new ones, until [`Self::relent`].
    fn go_silent(&self) -> Supported;

    /// The most signs of life that the bot gave on one connection without hearing anything.
    fn unanswered_heartbeats(&self) -> usize;

    /// What the bot asks for is not answered, until [`Self::relent`].
    fn stop_answering(&self) -> Supported;

    /// How many requests came since then.
    fn pending_requests(&self) -> usize;

    /// How many of them the bot gave up.
    fn abandoned_requests(&self) -> usize;

    /// Answers again. What hung until now is broken off and was never done.
    fn resume_answering(&self);

    /// Tells the bot of messages once more.
    fn redeliver(&self, messages: &[Self::Id]);

    /// Refuses the next messages of the bot, which may come again after so long. To come earlier is a fault.
    fn throttle_sends(&self, times: u32, retry_after: Duration) -> Supported;

    /// Refuses the next messages of the bot because something is broken.
    fn fail_sends(&self, times: u32) -> Supported;

    /// Takes the next messages of the bot, and breaks before it says so.
    fn lose_send_responses(&self, times: u32) -> Supported;

    /// How many messages of the bot were refused because the test wanted it.
    fn refused_sends(&self) -> usize;

    /// Every breach of the platform's rules so far.
    fn violations(&self) -> Vec<String>;

    /// Tells when anything has changed.
    fn subscribe(&self) -> watch::Receiver<u64>;
}

/// What somebody says.
#[derive(Debug, Clone)]
pub struct UserMessage<Id> {
    /// The text.
    pub text: String,
    /// Whether the bot is called by its name.
    pub mentions_bot: bool,
    /// The message that it is an answer to.
    pub reply_to: Option<Id>,
    /// Files: their names and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
}

impl<Id> UserMessage<Id> {
    /// Words and nothing else.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), mentions_bot: false, reply_to: None, files: Vec::new() }
    }

    /// Words to the bot, by its name.
    pub fn mention(text: &str) -> Self {
        Self { mentions_bot: true, ..Self::new(text) }
    }
}

/// A message of the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotMessage<Id> {
    /// Its id.
    pub id: Id,
    /// What it says.
    pub text: String,
    /// What it said before each change.
    pub previous_texts: Vec<String>,
    /// Its buttons that can be pressed: what they show, and what they are known by.
    pub buttons: Vec<(String, String)>,
    /// Its files: their names and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether everybody in the chat was notified of it.
    pub notifies_everyone: bool,
}

/// Something that the bot did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformAction<Id> {
    /// The chat in which it did it, if it was in one.
    pub chat: Option<Id>,
    /// What, in the platform's words.
    pub description: String,
}
