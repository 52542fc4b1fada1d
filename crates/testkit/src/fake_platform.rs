//! The interface of a strict fake platform, for the checks that are the same on every platform.
//!
//! It uses no platform's vocabulary. If a platform cannot do something it gives the reason, and the
//! check that needs it prints that reason: a check that does not apply is never skipped silently.

use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use tokio::sync::watch;

/// The result of an operation that not every platform supports.
pub type Supported<T = ()> = Result<T, NotSupported>;

/// Why a platform does not support an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NotSupported(pub &'static str);

/// A strict fake platform with one bot. The test plays all other users.
pub trait FakePlatform: Send + Sync + Sized {
    /// Identifies users, chats and messages. Its text is the platform's own form.
    type Id: Copy + Eq + Debug + Display + Send + Sync;

    /// The name in the configuration.
    const NAME: &'static str;
    /// The longest text of a message, as counted by [`Self::text_length`].
    const MAX_TEXT_LENGTH: usize;

    /// The length of a text as the platform counts it.
    fn text_length(text: &str) -> usize;

    /// Starts with only the bot, without rate limits. Operations that wait end after
    /// `wait_timeout`.
    fn launch(wait_timeout: Duration) -> impl Future<Output = io::Result<Self>> + Send;

    /// The variables with the address and the credentials.
    fn environment(&self) -> Vec<(&'static str, String)>;

    fn add_person(&self, name: &str) -> Self::Id;

    /// The direct chat of a user with the bot.
    fn direct_chat(&self, person: Self::Id) -> Self::Id;

    /// Adds a group of the bot and these users.
    fn add_group(&self, name: &str, people: &[Self::Id]) -> Self::Id;

    /// Sends a message as a user and returns its id.
    fn send(&self, person: Self::Id, chat: Self::Id, message: UserMessage<Self::Id>) -> Self::Id;

    /// Sends a file as a user that claims to be small and never ends.
    fn send_endless_file(&self, person: Self::Id, chat: Self::Id, name: &str) -> Supported;

    /// The chat of the reply to a message, if it exists yet: in a group it may be a thread.
    fn reply_chat(&self, message: Self::Id) -> Option<Self::Id>;

    /// The bot's messages in a chat, oldest first.
    fn bot_messages(&self, chat: Self::Id) -> Vec<BotMessage<Self::Id>>;

    /// Everything that the bot did, except for keeping its connection and registering commands.
    fn actions(&self) -> Vec<PlatformAction<Self::Id>>;

    fn supports_edits() -> Supported;

    fn supports_buttons() -> Supported;

    /// Presses a button as a user and waits until the bot has acknowledged it.
    fn click_button(
        &self,
        person: Self::Id,
        message: Self::Id,
        button: &str,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// The bot's messages about pressed buttons that only this user sees.
    fn private_notices(&self, person: Self::Id) -> Vec<String>;

    fn connection_count(&self) -> usize;

    /// Drops the connection. The bot must fetch messages that arrive before it reconnects.
    fn drop_connection(&self) -> Supported;

    /// Keeps connections open without sending anything, until [`Self::resume_answering`].
    fn go_silent(&self) -> Supported;

    /// The most heartbeats that the bot sent on one connection without an answer.
    fn unanswered_heartbeats(&self) -> usize;

    /// Leaves requests without a response, until [`Self::resume_answering`].
    fn stop_answering(&self) -> Supported;

    /// Requests since [`Self::stop_answering`].
    fn pending_requests(&self) -> usize;

    /// Those of them that the bot gave up.
    fn abandoned_requests(&self) -> usize;

    /// Responds again. Pending requests fail without an effect.
    fn resume_answering(&self);

    /// Delivers messages to the bot again.
    fn redeliver(&self, messages: &[Self::Id]);

    /// Rate-limits the next messages of the bot. A retry before the delay is a violation.
    fn throttle_sends(&self, times: u32, retry_after: Duration) -> Supported;

    /// Fails the next messages of the bot with a server error.
    fn fail_sends(&self, times: u32) -> Supported;

    /// Accepts the next messages of the bot, but drops the connection before the response.
    fn lose_send_responses(&self, times: u32) -> Supported;

    /// The number of messages that were refused on behalf of the test.
    fn refused_sends(&self) -> usize;

    /// All violations of the platform's rules so far.
    fn violations(&self) -> Vec<String>;

    /// Reports every change.
    fn subscribe(&self) -> watch::Receiver<u64>;
}

/// A message that a user sends.
#[derive(Debug, Clone)]
pub struct UserMessage<Id> {
    pub text: String,
    pub mentions_bot: bool,
    pub reply_to: Option<Id>,
    /// Names and contents.
    pub files: Vec<(String, Vec<u8>)>,
}

impl<Id> UserMessage<Id> {
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), mentions_bot: false, reply_to: None, files: Vec::new() }
    }

    /// A message that mentions the bot.
    pub fn mention(text: &str) -> Self {
        Self { mentions_bot: true, ..Self::new(text) }
    }
}

/// A message of the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BotMessage<Id> {
    pub id: Id,
    pub text: String,
    /// The texts before each edit.
    pub previous_texts: Vec<String>,
    /// Labels and ids of the enabled buttons.
    pub buttons: Vec<(String, String)>,
    /// Names and contents.
    pub files: Vec<(String, Vec<u8>)>,
    pub notifies_everyone: bool,
}

/// An action of the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlatformAction<Id> {
    /// The chat, if the action belongs to one.
    pub chat: Option<Id>,
    /// In the platform's vocabulary.
    pub description: String,
}
