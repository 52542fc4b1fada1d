//! What a strict fake platform does for the checks that are the same on every platform.
//!
//! It is said in words of no platform. What a platform cannot do it says with the reason, and the check that needs it says so too:
//! a check that does not apply is heard of, never left out in silence.

use std::fmt::{Debug, Display};
use std::io;
use std::time::Duration;

use tokio::sync::watch;

/// Something that not every platform can do.
pub type Able<T = ()> = Result<T, Unable>;

/// Why something does not apply to a platform.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unable(pub &'static str);

/// A strict fake platform with one bot, and everybody else whom a test plays.
pub trait Venue: Send + Sync + Sized {
    /// What persons, chats and messages are known by. Shown, that of a person is what the platform calls them.
    type Id: Copy + Eq + Debug + Display + Send + Sync;

    /// The platform's word in the configuration.
    const WORD: &'static str;
    /// The longest text that a message has, by [`Self::length`].
    const LONGEST: usize;

    /// The length of a text, as the platform counts it.
    fn length(text: &str) -> usize;

    /// Begins with nobody but the bot. It takes as much as a test says, and waits so long for what a test waits for.
    fn open(patience: Duration) -> impl Future<Output = io::Result<Self>> + Send;

    /// The variables by which the program finds it and is let in.
    fn environment(&self) -> Vec<(&'static str, String)>;

    /// A new person.
    fn person(&self, name: &str) -> Self::Id;

    /// The direct chat of a person with the bot.
    fn direct(&self, person: Self::Id) -> Self::Id;

    /// A new group of the bot and these people.
    fn group(&self, name: &str, people: &[Self::Id]) -> Self::Id;

    /// A person says something in a chat. Gives the message.
    fn tell(&self, person: Self::Id, chat: Self::Id, words: Words<Self::Id>) -> Self::Id;

    /// A person sends a file of this name that is said to be small and never ends.
    fn bluff(&self, person: Self::Id, chat: Self::Id, name: &str) -> Able;

    /// The chat in which a message is answered, as soon as there is one: in a group that may be a thread.
    fn answered_in(&self, message: Self::Id) -> Option<Self::Id>;

    /// What the bot has said in a chat, oldest first.
    fn seen(&self, chat: Self::Id) -> Vec<Seen<Self::Id>>;

    /// Everything that the bot has done, but for staying connected and telling which commands it knows.
    fn deeds(&self) -> Vec<Deed<Self::Id>>;

    /// Whether messages can be changed.
    fn edits() -> Able;

    /// Whether messages can have buttons.
    fn buttons() -> Able;

    /// A person presses a button of a message, and the bot takes notice of it.
    fn push(
        &self,
        person: Self::Id,
        message: Self::Id,
        button: &str,
    ) -> impl Future<Output = io::Result<()>> + Send;

    /// What the bot told this person and nobody else sees, about buttons that they pressed.
    fn whispers(&self, person: Self::Id) -> Vec<String>;

    /// How often the bot has connected.
    fn connections(&self) -> usize;

    /// Breaks the connection. What is said meanwhile is for the bot to find.
    fn break_off(&self) -> Able;

    /// The connection stays and says nothing any more, as do new ones, until [`Self::relent`].
    fn fall_silent(&self) -> Able;

    /// The most signs of life that the bot gave on one connection without hearing anything.
    fn unheard(&self) -> usize;

    /// What the bot asks for is not answered, until [`Self::relent`].
    fn hang(&self) -> Able;

    /// How many requests came since then.
    fn hanging(&self) -> usize;

    /// How many of them the bot gave up.
    fn given_up(&self) -> usize;

    /// Answers again. What hung until now is broken off and was never done.
    fn relent(&self);

    /// Tells the bot of messages once more.
    fn repeat(&self, messages: &[Self::Id]);

    /// Refuses the next messages of the bot, which may come again after so long. To come earlier is a fault.
    fn throttle(&self, times: u32, retry_after: Duration) -> Able;

    /// Refuses the next messages of the bot because something is broken.
    fn fail(&self, times: u32) -> Able;

    /// Takes the next messages of the bot, and breaks before it says so.
    fn lose_answers(&self, times: u32) -> Able;

    /// How many messages of the bot were refused because the test wanted it.
    fn refusals(&self) -> usize;

    /// Every breach of the platform's rules so far.
    fn faults(&self) -> Vec<String>;

    /// Tells when anything has changed.
    fn changes(&self) -> watch::Receiver<u64>;
}

/// What somebody says.
#[derive(Debug, Clone)]
pub struct Words<Id> {
    /// The text.
    pub text: String,
    /// Whether the bot is called by its name.
    pub calls: bool,
    /// The message that it is an answer to.
    pub reply_to: Option<Id>,
    /// Files: their names and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
}

impl<Id> Words<Id> {
    /// Words and nothing else.
    pub fn new(text: &str) -> Self {
        Self { text: text.to_owned(), calls: false, reply_to: None, files: Vec::new() }
    }

    /// Words to the bot, by its name.
    pub fn call(text: &str) -> Self {
        Self { calls: true, ..Self::new(text) }
    }
}

/// A message of the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Seen<Id> {
    /// Its id.
    pub id: Id,
    /// What it says.
    pub text: String,
    /// What it said before each change.
    pub before: Vec<String>,
    /// Its buttons that can be pressed: what they show, and what they are known by.
    pub buttons: Vec<(String, String)>,
    /// Its files: their names and what is in them.
    pub files: Vec<(String, Vec<u8>)>,
    /// Whether everybody in the chat was notified of it.
    pub rings: bool,
}

/// Something that the bot did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deed<Id> {
    /// The chat in which it did it, if it was in one.
    pub chat: Option<Id>,
    /// What, in the platform's words.
    pub what: String,
}
