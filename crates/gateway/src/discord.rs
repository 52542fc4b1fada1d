//! Discord.
//!
//! | | |
//! |---|---|
//! | needs | a bot token, and the intent to read message content, which the owner grants in the developer portal |
//! | promises | what was said while the connection was away is fetched; nothing is sent twice as far as Discord lets us know |
//! | cleans up | closes its session when it is told to stop; nothing else is left behind |
//!
//! What is sent is built with twilight's model. What is heard is read by our own, which asks for less, and the connections are
//! our own as well. Twilight's client of the HTTP API waits for every limit as long as it lasts, and cannot ask Discord to refuse
//! a message that was sent before; that of the gateway knows no proxies, and is not free in what it asks for and says of itself.

mod arrive;
mod backlog;
mod command;
mod connection;
mod fetch;
mod forum;
mod history;
mod limits;
mod payload;
mod places;
mod post;
mod proxy;
mod recent;
mod rest;
mod road;
mod rules;
mod settings;
mod socket;
mod text;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;

use crate::channel::{
    Channel, Desk, Found, Manners, Post, Sign, Undelivered, Unfetched, Unfit, Unit, Waiting,
};
use crate::letter::{Attachment, Interaction, Letter, Platform, Remark, Room};
use places::Places;
pub use proxy::Proxy;
use recent::Recent;
use rest::Rest;
pub use settings::{Bots, Channels, CommandSync, Mentions, Override, ReplyTo, Settings, Sight};

/// Messages of ours that are remembered.
const SENT: usize = 2000;
/// How Discord takes messages.
pub const MANNERS: Manners = Manners {
    longest: 2000,
    // Discord itself counts characters; what is between it and us may count as its clients do. This fits either way.
    unit: Unit::Utf16,
    edits: true,
    buttons: true,
    typing: Duration::from_secs(10),
    pace: Duration::from_millis(1200),
    most_files: 10,
    // More on servers that were boosted, which messages do not tell.
    largest_file: 10 * 1024 * 1024,
};
/// Reactions, commands and people that are remembered.
const MARKED: usize = 2000;
/// Chats where letters were written that are looked through after a lost session.
const CHATS: usize = 1_000;
/// Threads the bot takes part in; as many as the store remembers.
const THREADS: usize = 10_000;

/// The bot on Discord.
#[derive(Debug)]
pub struct Discord {
    account: Arc<Account>,
}

/// What is known from before.
#[derive(Debug, Clone, Default)]
pub struct Past {
    /// The threads the bot takes part in, those where something happened last at the end.
    pub threads: Vec<String>,
    /// The last message of each chat that was for the bot, by chat.
    pub last: Vec<(String, String)>,
    /// How far Discord was heard.
    pub bookmark: Option<String>,
}

/// All that the parts of the adapter share.
#[derive(Debug)]
struct Account {
    settings: Settings,
    rest: Rest,
    me: RwLock<Option<Me>>,
    /// Where it was left before.
    bookmark: Option<Bookmark>,
    threads: Mutex<Recent<String, ()>>,
    places: Mutex<Places>,
    /// The last message that was seen in each chat where messages were for the bot.
    last: Mutex<Recent<String, u64>>,
    /// Roles that were asked for, by person, and when.
    roles: Mutex<Recent<String, (Instant, Vec<String>)>>,
    sent: Mutex<Recent<String, post::Sent>>,
    /// The first message of ours that points to another one.
    pointing: Mutex<Recent<(String, String), String>>,
    /// Messages of ours that a change may be on its way to: until when, and what they are to say.
    unsure: Mutex<Recent<String, (Instant, String)>>,
    /// The signs of messages, and the channel of each.
    signs: Mutex<Recent<String, (String, Sign)>>,
    /// Commands that were told to wait and have heard nothing since.
    waiting: Mutex<Recent<String, ()>>,
}

/// How far Discord was heard: it tells again what came after.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Bookmark {
    session: String,
    /// Where it is gone on with; nothing where all sessions begin.
    url: Option<String>,
    sequence: u64,
    /// The last message that was heard.
    #[serde(default)]
    heard: u64,
    me: Me,
}

/// Who the bot is.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Me {
    user: String,
    application: String,
}

impl Discord {
    /// The bot with this token. Nothing is asked or connected yet.
    pub fn new(settings: Settings, past: Past) -> Self {
        let rest = Rest::new(&settings);
        let bookmark = past.bookmark.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let last = past.last.into_iter().filter_map(|(chat, message)| Some((message.parse().ok()?, chat)));
        let mut chats: Vec<(u64, String)> = last.collect();
        chats.sort_unstable();
        let (mut last, mut threads) = (Recent::new(CHATS), Recent::new(THREADS));
        chats.into_iter().for_each(|(message, chat)| last.put(chat, message));
        past.threads.into_iter().for_each(|thread| threads.put(thread, ()));
        Self {
            account: Arc::new(Account {
                settings,
                rest,
                me: RwLock::new(bookmark.as_ref().map(|bookmark: &Bookmark| bookmark.me.clone())),
                bookmark,
                threads: Mutex::new(threads),
                places: Mutex::default(),
                last: Mutex::new(last),
                roles: Mutex::new(Recent::new(MARKED)),
                sent: Mutex::new(Recent::new(SENT)),
                pointing: Mutex::new(Recent::new(SENT)),
                unsure: Mutex::new(Recent::new(MARKED)),
                signs: Mutex::new(Recent::new(MARKED)),
                waiting: Mutex::new(Recent::new(MARKED)),
            }),
        }
    }

    /// Whether the bot takes part in a thread.
    pub fn takes_part(&self, thread: &str) -> bool {
        self.account.takes_part(thread)
    }
}

impl Account {
    fn me(&self) -> Option<Me> {
        self.me.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn takes_part(&self, thread: &str) -> bool {
        lock(&self.threads).get(&thread.to_owned()).is_some()
    }

    /// Notes the last message that was seen in a chat.
    fn reach(&self, chat: String, message: u64) {
        let mut last = lock(&self.last);
        let message = last.get(&chat).map_or(message, |known| message.max(*known));
        last.put(chat, message);
    }

    fn join(&self, thread: &str) {
        lock(&self.threads).put(thread.to_owned(), ());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Channel for Discord {
    fn platform(&self) -> Platform {
        Platform::Discord
    }

    fn manners(&self) -> Manners {
        MANNERS
    }

    fn run<'a>(&'a self, desk: Desk, stop: CancellationToken) -> Waiting<'a, Result<(), Unfit>> {
        Box::pin(connection::run(&self.account, desk, stop))
    }

    fn send<'a>(
        &'a self,
        chat: &'a str,
        post: &'a Post,
        mark: &'a str,
    ) -> Waiting<'a, Result<String, Undelivered>> {
        Box::pin(self.account.send(chat, post, mark))
    }

    fn find<'a>(&'a self, chat: &'a str, post: &'a Post, mark: &'a str) -> Waiting<'a, Found> {
        Box::pin(self.account.find(chat, post, mark))
    }

    fn edit<'a>(
        &'a self,
        chat: &'a str,
        message: &'a str,
        post: &'a Post,
    ) -> Waiting<'a, Result<(), Undelivered>> {
        Box::pin(self.account.edit(chat, message, post))
    }

    fn assure<'a>(&'a self, chat: &'a str, message: &'a str, post: &'a Post) -> Waiting<'a, ()> {
        Box::pin(self.account.assure(chat, message, post))
    }

    fn open_thread<'a>(
        &'a self,
        letter: &'a Letter,
        name: &'a str,
    ) -> Waiting<'a, Result<Room, Undelivered>> {
        Box::pin(self.account.open_thread(letter, name))
    }

    fn after<'a>(&self, chat: &'a str, message: &'a str) -> &'a str {
        // A post of a forum has the id of its first message.
        if self.account.takes_part(message) { message } else { chat }
    }

    fn joined(&self, thread: &str) {
        self.account.join(thread);
    }

    fn before<'a>(&'a self, letter: &'a Letter) -> Waiting<'a, Vec<Remark>> {
        Box::pin(self.account.before(letter))
    }

    fn typing<'a>(&'a self, chat: &'a str) -> Waiting<'a, ()> {
        Box::pin(self.account.typing(chat))
    }

    fn mark<'a>(&'a self, letter: &'a Letter, sign: Sign) -> Waiting<'a, ()> {
        Box::pin(self.account.mark(letter, sign))
    }

    fn whisper<'a>(&'a self, to: &'a Interaction, text: &'a str) -> Waiting<'a, ()> {
        Box::pin(self.account.whisper(to, text))
    }

    fn hear<'a>(&'a self, command: &'a Interaction) -> Waiting<'a, bool> {
        Box::pin(self.account.hear(command))
    }

    fn fetch<'a>(
        &'a self,
        file: &'a Attachment,
        into: &'a Path,
        most: u64,
    ) -> Waiting<'a, Result<u64, Unfetched>> {
        Box::pin(self.account.fetch(file, into, most))
    }
}
