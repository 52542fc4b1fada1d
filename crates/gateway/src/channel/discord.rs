//! Discord.
//!
//! | | |
//! |---|---|
//! | needs | a bot token, and the Message Content Intent, which the owner enables in the developer portal |
//! | promises | fetches messages missed while disconnected; sends nothing twice as far as Discord can tell |
//! | cleans up | closes its session on shutdown; leaves nothing else behind |
//!
//! Outbound data uses twilight's model. Inbound data uses our own, which requires fewer fields, and
//! so do the connections: twilight's HTTP client waits for every rate limit as long as it lasts and
//! cannot set `enforce_nonce`; its gateway client supports no proxies and fixes the identify
//! properties.

mod attachments;
mod backlog;
mod channels;
mod connection;
mod forum;
mod history;
mod inbound;
mod outbound;
mod payload;
mod rate_limits;
mod rest;
mod rules;
mod settings;
mod slash_commands;
mod socket;
mod text;

use std::hash::Hash;
use std::num::NonZeroUsize;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hermes_types::lock;
use lru::LruCache;
use serde::{Deserialize, Serialize};
use tokio_util::sync::CancellationToken;
use twilight_model::id::Id;
use twilight_model::id::marker::ChannelMarker;

use crate::channel::{
    BoxFuture, Capabilities, Channel, ChannelSink, DeliveryCheck, FatalError, FetchError, OutboundMessage,
    Reaction, SendError,
};
use crate::message::{Attachment, Chat, ContextMessage, InboundMessage, InteractionToken, Platform};
use channels::ChannelInfo;
use rest::RestClient;
pub use settings::{
    ChannelOverride, ChannelSet, CommandSync, CommandVisibility, DiscordSettings, MentionPolicy, ReplyMode,
};

const MAX_SENT_RECORDS: usize = 2000;
pub const CAPABILITIES: Capabilities = Capabilities {
    max_message_len: 2000,
    can_edit: true,
    typing_interval: Duration::from_secs(10),
    min_edit_interval: Duration::from_millis(1200),
    max_files: 10,
    // Boosted servers allow more, but messages do not say so.
    max_file_bytes: 10 * 1024 * 1024,
};
/// Entries of the small caches.
const MAX_CACHED_ITEMS: usize = 2000;
/// Chats that are searched for missed messages after a lost session.
const MAX_TRACKED_CHATS: usize = 1_000;
const MAX_CACHED_CHANNELS: usize = 50_000;
/// Joined threads; as many as the store remembers.
const MAX_JOINED_THREADS: usize = 10_000;

/// State from before the start.
#[derive(Debug, Clone, Default)]
pub struct ResumeState {
    /// Joined threads, least recently used first.
    pub threads: Vec<String>,
    /// The last message for the bot in each chat.
    pub last_messages: Vec<(String, String)>,
    pub bookmark: Option<String>,
}

/// One account, with the state shared by the parts of the adapter.
pub struct Discord {
    settings: DiscordSettings,
    rest: RestClient,
    identity: Mutex<Option<BotIdentity>>,
    /// Position before this start.
    bookmark: Option<Bookmark>,
    joined_threads: Mutex<LruCache<String, ()>>,
    channels: Mutex<LruCache<Id<ChannelMarker>, ChannelInfo>>,
    /// Last seen message of each chat with messages for the bot.
    last_seen: Mutex<LruCache<String, u64>>,
    /// Fetched roles by user, and when.
    role_cache: Mutex<LruCache<String, (Instant, Vec<String>)>>,
    sent_messages: Mutex<LruCache<String, outbound::SendRecord>>,
    /// Our first message that refers to another one.
    reply_refs: Mutex<LruCache<(String, String), String>>,
    /// Edits whose outcome is unknown: deadline and intended text, by message id.
    pending_edits: Mutex<LruCache<String, (Instant, String)>>,
    /// Our reactions and their channel, by message id.
    reactions: Mutex<LruCache<String, (String, Reaction)>>,
    /// Acknowledged commands that have no response yet.
    deferred_interactions: Mutex<LruCache<String, ()>>,
}

/// Position in Discord's event stream, from which a session can be resumed.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Bookmark {
    session: String,
    /// Resume URL, if it differs from the default.
    url: Option<String>,
    sequence: u64,
    /// Id of the last processed message.
    #[serde(rename = "heard", default)]
    confirmed: u64,
    #[serde(rename = "me")]
    identity: BotIdentity,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct BotIdentity {
    user: String,
    application: String,
}

impl Discord {
    /// Creates the adapter; does not connect yet.
    pub fn new(settings: DiscordSettings, past: ResumeState) -> Self {
        let rest = RestClient::new(&settings);
        let bookmark = past.bookmark.as_deref().and_then(|text| serde_json::from_str(text).ok());
        let last =
            past.last_messages.into_iter().filter_map(|(chat, message)| Some((message.parse().ok()?, chat)));
        let mut chats: Vec<(u64, String)> = last.collect();
        chats.sort_unstable();
        let (mut last, mut threads) = (new_cache(MAX_TRACKED_CHATS), new_cache(MAX_JOINED_THREADS));
        for (message, chat) in chats {
            last.put(chat, message);
        }
        for thread in past.threads {
            threads.put(thread, ());
        }
        Self {
            settings,
            rest,
            identity: Mutex::new(bookmark.as_ref().map(|bookmark: &Bookmark| bookmark.identity.clone())),
            bookmark,
            joined_threads: Mutex::new(threads),
            channels: Mutex::new(new_cache(MAX_CACHED_CHANNELS)),
            last_seen: Mutex::new(last),
            role_cache: Mutex::new(new_cache(MAX_CACHED_ITEMS)),
            sent_messages: Mutex::new(new_cache(MAX_SENT_RECORDS)),
            reply_refs: Mutex::new(new_cache(MAX_SENT_RECORDS)),
            pending_edits: Mutex::new(new_cache(MAX_CACHED_ITEMS)),
            reactions: Mutex::new(new_cache(MAX_CACHED_ITEMS)),
            deferred_interactions: Mutex::new(new_cache(MAX_CACHED_ITEMS)),
        }
    }

    pub fn has_joined(&self, thread: &str) -> bool {
        lock(&self.joined_threads).contains(thread)
    }

    fn identity(&self) -> Option<BotIdentity> {
        lock(&self.identity).clone()
    }

    fn record_last_seen(&self, chat: String, message: u64) {
        let mut last = lock(&self.last_seen);
        let message = last.peek(&chat).map_or(message, |known| message.max(*known));
        last.put(chat, message);
    }

    fn record_joined_thread(&self, thread: &str) {
        lock(&self.joined_threads).put(thread.to_owned(), ());
    }
}

fn new_cache<K: Hash + Eq, V>(capacity: usize) -> LruCache<K, V> {
    LruCache::new(NonZeroUsize::new(capacity).unwrap_or(NonZeroUsize::MIN))
}

/// Boxes the futures of the methods with the same names.
macro_rules! box_methods {
    ($($name:ident($($arg:ident: $type:ty),*) -> $output:ty;)*) => {$(
        fn $name<'a>(&'a self, $($arg: $type),*) -> BoxFuture<'a, $output> {
            Box::pin(Self::$name(self, $($arg),*))
        }
    )*};
}

impl Channel for Discord {
    fn platform(&self) -> Platform {
        Platform::Discord
    }

    fn run(
        self: Arc<Self>,
        sink: ChannelSink,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), FatalError>> {
        Box::pin(connection::run(self, sink, stop))
    }

    fn followup_chat<'a>(&self, chat: &'a str, message: &'a str) -> &'a str {
        // A forum post has the id of its first message.
        if self.has_joined(message) { message } else { chat }
    }

    fn join_thread(&self, thread: &str) {
        self.record_joined_thread(thread);
    }

    box_methods! {
        send_message(chat: &'a str, outbound: &'a OutboundMessage, key: &'a str) -> Result<String, SendError>;
        find_message(chat: &'a str, outbound: &'a OutboundMessage, key: &'a str) -> DeliveryCheck;
        edit_message(chat: &'a str, message: &'a str, outbound: &'a OutboundMessage) -> Result<(), SendError>;
        confirm_edit(chat: &'a str, message: &'a str, outbound: &'a OutboundMessage) -> ();
        open_thread(message: &'a InboundMessage, name: &'a str) -> Result<Chat, SendError>;
        context_before(message: &'a InboundMessage) -> Vec<ContextMessage>;
        show_typing(chat: &'a str) -> ();
        set_reaction(message: &'a InboundMessage, reaction: Reaction) -> ();
        reply_privately(to: &'a InteractionToken, text: &'a str) -> ();
        acknowledge_command(command: &'a InteractionToken) -> bool;
        download_attachment(file: &'a Attachment, into: &'a Path, max_bytes: u64) -> Result<u64, FetchError>;
    }
}
