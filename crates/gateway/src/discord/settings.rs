//! What an owner can choose about Discord.

use std::collections::{BTreeMap, BTreeSet};

use hermes_types::Secret;
use rustls::RootCertStore;

use super::proxy::Proxy;

/// What an owner chose.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The token of the bot.
    pub token: Secret,
    /// Where the HTTP API is, if it is not Discord's own: `http://127.0.0.1:8080/api/v10`.
    pub api_base: Option<String>,
    /// Where the gateway is, if it is not Discord's own: `ws://127.0.0.1:8080`.
    pub gateway_url: Option<String>,
    /// What everything goes through.
    pub proxy: Option<Proxy>,
    /// Whose certificates are trusted, if not those whom this machine trusts.
    pub roots: Option<RootCertStore>,
    /// Whether the bot must be mentioned in channels of servers.
    pub require_mention: bool,
    /// Channels where it need not be.
    pub free_response_channels: Channels,
    /// Whether it must be mentioned in threads it takes part in.
    pub thread_require_mention: bool,
    /// Whether an answer gets a thread of its own.
    pub auto_thread: bool,
    /// Channels where it does not.
    pub no_thread_channels: Channels,
    /// The only channels the bot listens to; empty for all.
    pub allowed_channels: Channels,
    /// Channels it does not listen to.
    pub ignored_channels: Channels,
    /// What is different in single channels.
    pub overrides: BTreeMap<String, Override>,
    /// Which other bots are heard.
    pub allow_bots: Bots,
    /// Whether words to other people, called by name, are not for the bot.
    pub ignore_no_mention: bool,
    /// A server whose roles count in direct messages too.
    pub dm_role_guild: Option<String>,
    /// How many earlier messages of a place are given with a call there.
    pub history: u64,
    /// Whether messages get reactions while they are worked on.
    pub reactions: bool,
    /// Which parts of an answer point to the question.
    pub reply_to: ReplyTo,
    /// Whom an answer may notify.
    pub mentions: Mentions,
    /// The largest file taken, in bytes; 0 for no limit.
    pub max_attachment_bytes: u64,
    /// How commands are registered.
    pub command_sync: CommandSync,
    /// Who finds commands when they type a slash.
    pub commands_seen_by: Sight,
}

impl Settings {
    /// What holds where an owner chose nothing.
    pub fn new(token: Secret) -> Self {
        Self {
            token,
            api_base: None,
            gateway_url: None,
            proxy: None,
            roots: None,
            require_mention: true,
            free_response_channels: Channels::default(),
            thread_require_mention: false,
            auto_thread: true,
            no_thread_channels: Channels::default(),
            allowed_channels: Channels::default(),
            ignored_channels: Channels::default(),
            overrides: BTreeMap::new(),
            allow_bots: Bots::None,
            ignore_no_mention: true,
            dm_role_guild: None,
            history: 50,
            reactions: true,
            reply_to: ReplyTo::First,
            mentions: Mentions::default(),
            max_attachment_bytes: 32 * 1024 * 1024,
            command_sync: CommandSync::Safe,
            commands_seen_by: Sight::Everybody,
        }
    }
}

/// What is different in a channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Override {
    /// Whether the bot must be mentioned.
    pub require_mention: Option<bool>,
    /// Whether an answer gets a thread of its own.
    pub auto_thread: Option<bool>,
    /// Whether the bot must be mentioned in threads it takes part in.
    pub thread_require_mention: Option<bool>,
}

/// A set of channels by id, or all of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Channels {
    all: bool,
    ids: BTreeSet<String>,
}

impl Channels {
    /// Whether it names none.
    pub fn is_empty(&self) -> bool {
        !self.all && self.ids.is_empty()
    }

    /// Whether it names a channel or what the channel is a part of.
    pub fn name(&self, channel: &str, parent: Option<&str>) -> bool {
        self.all || self.ids.contains(channel) || parent.is_some_and(|parent| self.ids.contains(parent))
    }
}

impl<S: AsRef<str>> FromIterator<S> for Channels {
    fn from_iter<I: IntoIterator<Item = S>>(words: I) -> Self {
        let mut channels = Self::default();
        for word in words {
            match word.as_ref().trim() {
                "" => {}
                "*" => channels.all = true,
                id => drop(channels.ids.insert(id.to_owned())),
            }
        }
        channels
    }
}

/// Which other bots are heard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bots {
    /// None.
    None,
    /// Those that mention the bot.
    Mentions,
    /// All.
    All,
}

/// Which parts of an answer point to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyTo {
    /// None.
    Off,
    /// The first.
    First,
    /// All.
    All,
}

/// Whom an answer may notify.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mentions {
    /// Everyone, or all who are there.
    pub everyone: bool,
    /// Roles.
    pub roles: bool,
    /// People.
    pub users: bool,
    /// Who is answered.
    pub replied_user: bool,
}

impl Default for Mentions {
    fn default() -> Self {
        Self { everyone: false, roles: false, users: true, replied_user: true }
    }
}

/// How commands are registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSync {
    /// Only when they are not what they should be.
    Safe,
    /// At every start.
    Bulk,
    /// Not at all.
    Off,
}

/// Who finds commands. Who may use them is another question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sight {
    /// Everybody.
    Everybody,
    /// Those who administrate a server, until they show them to others.
    Admins,
}
