//! The state of the fake server: users, channels, messages, and the requests of the client.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::gateway::FakeSession;
use super::injected::InjectedFaults;
use super::rate_limits::FakeRateLimiter;

/// An id of Discord, with the time in its upper bits.
pub type Snowflake = u64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeUser {
    pub id: Snowflake,
    pub name: String,
    pub bot: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeGuild {
    /// Also the id of the role `@everyone`.
    pub id: Snowflake,
    pub name: String,
    pub owner: Snowflake,
    /// Without `@everyone`.
    pub roles: BTreeMap<Snowflake, String>,
    /// Each with its roles.
    pub members: BTreeMap<Snowflake, BTreeSet<Snowflake>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeChannelKind {
    Text,
    Dm,
    /// A public thread.
    Thread,
    PrivateThread,
    /// Its posts are threads.
    Forum,
    Media,
}

impl FakeChannelKind {
    /// Discord's number.
    pub fn number(self) -> u64 {
        match self {
            Self::Text => 0,
            Self::Dm => 1,
            Self::Thread => 11,
            Self::PrivateThread => 12,
            Self::Forum => 15,
            Self::Media => 16,
        }
    }

    /// Whether it contains only threads.
    pub fn is_forum(self) -> bool {
        matches!(self, Self::Forum | Self::Media)
    }

    pub fn is_thread(self) -> bool {
        matches!(self, Self::Thread | Self::PrivateThread)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeChannel {
    pub id: Snowflake,
    pub kind: FakeChannelKind,
    /// None for a direct channel.
    pub guild: Option<Snowflake>,
    pub name: String,
    pub topic: Option<String>,
    /// The channel of a thread.
    pub parent: Option<Snowflake>,
    /// The creator of a thread.
    pub owner: Option<Snowflake>,
    /// The user of a direct channel.
    pub recipient: Option<Snowflake>,
    /// The members of a thread.
    pub members: BTreeSet<Snowflake>,
    pub archived: bool,
    /// In milliseconds.
    pub archived_at: Option<u64>,
    pub locked: bool,
    /// In minutes.
    pub auto_archive: u64,
    /// Whether each post of a forum must have a tag.
    pub requires_tags: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeAttachment {
    pub id: Snowflake,
    pub name: String,
    pub description: Option<String>,
    pub content_type: Option<String>,
    /// The claimed size.
    pub size: u64,
    pub bytes: Vec<u8>,
    pub download: DownloadBehavior,
}

/// How the server sends a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DownloadBehavior {
    #[default]
    Immediate,
    /// Chunks of this many bytes, with a pause of this many milliseconds.
    Slow(usize, u64),
    /// The bytes repeat without an end.
    Endless,
    /// Nothing is sent.
    Stalled,
    /// The connection breaks after this many bytes.
    Truncated(usize),
}

#[derive(Debug, Clone, PartialEq)]
pub struct FakeMessage {
    pub id: Snowflake,
    pub channel: Snowflake,
    pub author: Snowflake,
    /// Discord's type: 0 ordinary, 19 reply, 18 and 21 about threads, 20 response to a command.
    pub kind: u64,
    pub content: String,
    /// The text before each edit.
    pub edits: Vec<String>,
    pub attachments: Vec<FakeAttachment>,
    pub embeds: Value,
    /// Rows of buttons.
    pub components: Value,
    /// The message that it replies to.
    pub reference: Option<Snowflake>,
    /// Only allowed mentions.
    pub mentions: BTreeSet<Snowflake>,
    pub mention_roles: BTreeSet<Snowflake>,
    pub mention_everyone: bool,
    /// Emoji and user.
    pub reactions: Vec<(String, Snowflake)>,
    /// 64 means that only one user sees it, 128 that its content follows.
    pub flags: u64,
    /// The sender's nonce, or null.
    pub nonce: Value,
    /// The thread that started from it.
    pub thread: Option<Snowflake>,
    /// The interaction that it responds to.
    pub interaction: Option<Snowflake>,
    /// The time of the last edit, in milliseconds.
    pub edited: Option<u64>,
    pub deleted: bool,
}

/// A pressed button or an invoked command.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeInteraction {
    pub id: Snowflake,
    /// The client needs it to respond.
    pub token: String,
    /// Discord's type: 2 command, 3 component.
    pub kind: u64,
    pub user: Snowflake,
    pub channel: Snowflake,
    /// The message with the button.
    pub message: Option<Snowflake>,
    pub at: Instant,
    /// The response type and its data.
    pub response: Option<(u64, Value)>,
    /// The message that the response created.
    pub original: Option<Snowflake>,
}

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// Method and path, without `/api/v10`.
    pub line: String,
    pub query: String,
    /// Null if there is none.
    pub body: Value,
    /// The status of the response; 0 without one.
    pub status: u16,
}

/// The whole state.
#[derive(Debug, Default)]
pub struct World {
    /// The bot's user, which is also its application.
    pub bot: Snowflake,
    pub users: BTreeMap<Snowflake, FakeUser>,
    pub guilds: BTreeMap<Snowflake, FakeGuild>,
    /// With threads and direct channels.
    pub channels: BTreeMap<Snowflake, FakeChannel>,
    /// With deleted ones.
    pub messages: BTreeMap<Snowflake, FakeMessage>,
    /// By id, with their guild.
    pub commands: BTreeMap<Snowflake, (Option<Snowflake>, Value)>,
    pub interactions: BTreeMap<Snowflake, FakeInteraction>,
    /// The channel of each typing request.
    pub typing: Vec<Snowflake>,
    /// The attachment of each download.
    pub downloads: Vec<Snowflake>,
    pub requests: Vec<RequestRecord>,
    /// The number of identified sessions.
    pub identified: u32,
    /// The number of resumed sessions.
    pub resumed: u32,
    /// The most heartbeats that a client sent to one silent websocket.
    pub unanswered_heartbeats: u32,
    /// Requests since the server stalls.
    pub pending_requests: u32,
    /// Requests that the client gave up while the server stalls.
    pub abandoned_requests: u32,
    /// Accepted connections.
    pub connections: u32,
    pub(super) base: String,
    pub(super) token: String,
    pub(super) violations: Vec<String>,
    pub(super) expected_violations: Vec<u64>,
    pub(super) nonces: BTreeMap<String, Snowflake>,
    pub(super) sessions: BTreeMap<String, FakeSession>,
    pub(super) forgotten_sessions: BTreeSet<String>,
    pub(super) rate_limiter: FakeRateLimiter,
    pub(super) injected: InjectedFaults,
    pub(super) last_id: Snowflake,
}

/// The start of Discord's ids, in milliseconds since 1970.
const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;

impl World {
    /// Returns a new id that is later than all others.
    pub(super) fn next_id(&mut self) -> Snowflake {
        self.last_id = ((now_ms() - DISCORD_EPOCH_MS) << 22).max(self.last_id + 1);
        self.last_id
    }

    /// Records a violation, unless the test expects this code.
    pub(super) fn record_violation(&mut self, code: u64, description: String) {
        match self.expected_violations.iter().position(|expected| *expected == code) {
            Some(at) => {
                self.expected_violations.swap_remove(at);
            }
            None => self.violations.push(format!("{code}: {description}")),
        }
    }

    /// The messages of a channel without deleted ones, oldest first.
    pub fn messages_in(&self, channel: Snowflake) -> Vec<&FakeMessage> {
        self.messages.values().filter(|message| message.channel == channel && !message.deleted).collect()
    }

    /// The bot's messages in a channel, oldest first.
    pub fn bot_messages_in(&self, channel: Snowflake) -> Vec<&FakeMessage> {
        self.messages_in(channel).into_iter().filter(|message| message.author == self.bot).collect()
    }

    pub fn threads_of(&self, channel: Snowflake) -> Vec<&FakeChannel> {
        let of = |thread: &&FakeChannel| thread.kind.is_thread() && thread.parent == Some(channel);
        self.channels.values().filter(of).collect()
    }

    /// Whether an identified client is connected.
    pub fn is_connected(&self) -> bool {
        self.sessions.values().any(FakeSession::is_live)
    }

    /// The users and roles that a text mentions, and whether it mentions everyone.
    pub(super) fn parse_mentions(&self, text: &str) -> (BTreeSet<Snowflake>, BTreeSet<Snowflake>, bool) {
        let (mut users, mut roles) = (BTreeSet::new(), BTreeSet::new());
        for piece in text.split("<@").skip(1) {
            let Some((inside, _)) = piece.split_once('>') else { continue };
            let role = inside.strip_prefix('&');
            let number = role.or(inside.strip_prefix('!')).unwrap_or(inside);
            match (number.parse::<Snowflake>(), role) {
                (Ok(id), Some(_)) => roles.insert(id),
                (Ok(id), None) if self.users.contains_key(&id) => users.insert(id),
                _ => false,
            };
        }
        (users, roles, text.contains("@everyone") || text.contains("@here"))
    }
}

/// Milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// The time of an id, in milliseconds since 1970.
pub(super) fn created_at(id: Snowflake) -> u64 {
    (id >> 22) + DISCORD_EPOCH_MS
}

/// Formats a time as Discord does.
pub(super) fn iso(ms: u64) -> String {
    let (days, left) = (ms / 86_400_000, ms % 86_400_000);
    // Years start in March, so that the leap day is the last day of a year.
    let shifted = days + 719_468;
    let (era, of_era) = (shifted / 146_097, shifted % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    let (hour, minute, second) = (left / 3_600_000, left / 60_000 % 60, left / 1000 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{:03}000+00:00", left % 1000)
}

#[cfg(test)]
mod tests {
    use super::iso;

    #[test]
    fn times_have_the_format_of_discord() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(iso(1_709_164_799_123), "2024-02-28T23:59:59.123000+00:00");
        assert_eq!(iso(1_709_164_800_000), "2024-02-29T00:00:00.000000+00:00");
        assert_eq!(iso(1_735_689_600_000), "2025-01-01T00:00:00.000000+00:00");
    }
}
