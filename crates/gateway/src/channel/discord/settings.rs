//! Settings of the Discord adapter.

use std::collections::{BTreeMap, BTreeSet};

use hermes_net::ProxyServer;
use hermes_types::Secret;
use rustls::RootCertStore;

use crate::access::BotPolicy;

/// Settings of the Discord adapter.
#[derive(Debug, Clone)]
pub struct DiscordSettings {
    pub token: Secret,
    /// Base URL of the HTTP API, if not Discord's own: `http://127.0.0.1:8080/api/v10`.
    pub api_base: Option<String>,
    /// Gateway URL, if not Discord's own: `ws://127.0.0.1:8080`.
    pub gateway_url: Option<String>,
    /// Proxy for all connections.
    pub proxy: Option<ProxyServer>,
    /// Trusted root certificates, if not the system's.
    pub root_certificates: Option<RootCertStore>,
    /// Whether the bot must be mentioned in server channels.
    pub require_mention: bool,
    /// Channels where no mention is needed.
    pub free_response_channels: ChannelSet,
    /// Whether it must be mentioned in threads that it joined.
    pub thread_require_mention: bool,
    /// Whether a reply gets its own thread.
    pub auto_thread: bool,
    /// Channels without automatic threads.
    pub no_thread_channels: ChannelSet,
    /// Channels to listen in; empty means all.
    pub allowed_channels: ChannelSet,
    /// Channels to ignore.
    pub ignored_channels: ChannelSet,
    /// Settings of single channels.
    pub overrides: BTreeMap<String, ChannelOverride>,
    /// Which other bots may talk to this one.
    pub allow_bots: BotPolicy,
    /// Whether messages that mention only others are ignored.
    pub ignore_no_mention: bool,
    /// A server whose roles also apply in direct messages.
    pub dm_role_guild: Option<String>,
    /// How many earlier messages are given as context.
    pub history: u64,
    pub reactions: bool,
    /// Which messages of a reply refer to the question.
    pub reply_to: ReplyMode,
    /// Who may be notified by mentions in a reply.
    pub mentions: MentionPolicy,
    /// Largest attachment in bytes; 0 means no limit.
    pub max_attachment_bytes: u64,
    pub command_sync: CommandSync,
    /// Who sees the slash commands.
    pub command_visibility: CommandVisibility,
}

/// Settings of one channel.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct ChannelOverride {
    pub require_mention: Option<bool>,
    /// Whether a reply gets its own thread.
    pub auto_thread: Option<bool>,
    /// Whether it must be mentioned in joined threads.
    pub thread_require_mention: Option<bool>,
}

/// A set of channel ids. `*` in it means all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelSet(BTreeSet<String>);

impl ChannelSet {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether the channel or its parent is in the set.
    pub fn contains(&self, channel: &str, parent: Option<&str>) -> bool {
        [Some("*"), Some(channel), parent].into_iter().flatten().any(|id| self.0.contains(id))
    }
}

impl<S: AsRef<str>> FromIterator<S> for ChannelSet {
    fn from_iter<I: IntoIterator<Item = S>>(words: I) -> Self {
        let ids = words.into_iter().map(|word| word.as_ref().trim().to_owned());
        Self(ids.filter(|id| !id.is_empty()).collect())
    }
}

/// Which messages of a reply refer to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplyMode {
    Off,
    First,
    All,
}

/// Who may be notified by mentions in a reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MentionPolicy {
    /// `@everyone` and `@here`.
    pub everyone: bool,
    pub roles: bool,
    pub users: bool,
    pub replied_user: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandSync {
    /// Only if they differ.
    Safe,
    Bulk,
    Off,
}

/// Who sees slash commands. Who may use them is decided by access control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CommandVisibility {
    Everyone,
    /// Server administrators, until they enable them for others.
    Admins,
}
