//! What the server knows: people, places, messages, and what the client did.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::gateway::Session;
use super::injected::InjectedFaults;
use super::rate_limits::Buckets;

/// An id, as Discord makes them: the time in its upper bits.
pub type Snowflake = u64;

/// A person or a bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeUser {
    /// Its id.
    pub id: Snowflake,
    /// Its name.
    pub name: String,
    /// Whether it is a bot.
    pub bot: bool,
}

/// A server with its members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FakeGuild {
    /// Its id, which is also that of the role of everyone.
    pub id: Snowflake,
    /// Its name.
    pub name: String,
    /// Who owns it.
    pub owner: Snowflake,
    /// Its roles by id, without that of everyone.
    pub roles: BTreeMap<Snowflake, String>,
    /// The members, each with its roles.
    pub members: BTreeMap<Snowflake, BTreeSet<Snowflake>>,
}

/// What kind of channel it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FakeChannelKind {
    /// An ordinary channel.
    Text,
    /// A talk between a person and the bot.
    Dm,
    /// A thread that all can see.
    Thread,
    /// A thread by invitation.
    PrivateThread,
    /// A forum, whose posts are threads.
    Forum,
    /// A forum for files.
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

    /// Whether there are only threads in it.
    pub fn is_forum(self) -> bool {
        matches!(self, Self::Forum | Self::Media)
    }

    /// Whether it is a thread.
    pub fn is_thread(self) -> bool {
        matches!(self, Self::Thread | Self::PrivateThread)
    }
}

/// A channel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeChannel {
    /// Its id.
    pub id: Snowflake,
    /// Its kind.
    pub kind: FakeChannelKind,
    /// The guild; none for a direct talk.
    pub guild: Option<Snowflake>,
    /// Its name.
    pub name: String,
    /// Its topic.
    pub topic: Option<String>,
    /// Of a thread, the channel it belongs to.
    pub parent: Option<Snowflake>,
    /// Of a thread, who made it.
    pub owner: Option<Snowflake>,
    /// Of a direct talk, the person.
    pub recipient: Option<Snowflake>,
    /// Of a thread, who is in it.
    pub members: BTreeSet<Snowflake>,
    /// Whether it is archived.
    pub archived: bool,
    /// When it was archived, in milliseconds.
    pub archived_at: Option<u64>,
    /// Whether it is locked.
    pub locked: bool,
    /// After how many minutes a thread is archived.
    pub auto_archive: u64,
    /// Of a forum, whether each post must have a tag.
    pub requires_tags: bool,
}

/// A file of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FakeAttachment {
    /// Its id.
    pub id: Snowflake,
    /// Its name.
    pub name: String,
    /// What the sender said about it.
    pub description: Option<String>,
    /// What it says that it is.
    pub content_type: Option<String>,
    /// What it says that its size is.
    pub size: u64,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// How it is served.
    pub download: DownloadBehavior,
}

/// How a file is served.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum DownloadBehavior {
    /// At once.
    #[default]
    Immediate,
    /// So many bytes at a time, with so many milliseconds between.
    Slow(usize, u64),
    /// Its bytes again and again, without an end.
    Endless,
    /// Not a byte.
    Stalled,
    /// So many bytes, and then the connection breaks.
    Truncated(usize),
}

/// A message.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeMessage {
    /// Its id.
    pub id: Snowflake,
    /// Where it is.
    pub channel: Snowflake,
    /// Who wrote it.
    pub author: Snowflake,
    /// Discord's number of its kind: 0 ordinary, 19 a reply, 18 and 21 about threads, 20 the answer to a command.
    pub kind: u64,
    /// Its text.
    pub content: String,
    /// What its text was before each edit.
    pub edits: Vec<String>,
    /// Its files.
    pub attachments: Vec<FakeAttachment>,
    /// As they came.
    pub embeds: Value,
    /// As they came: rows of buttons.
    pub components: Value,
    /// The message it answers or points to.
    pub reference: Option<Snowflake>,
    /// Whom it mentions, after what was allowed.
    pub mentions: BTreeSet<Snowflake>,
    /// Which roles it mentions.
    pub mention_roles: BTreeSet<Snowflake>,
    /// Whether it mentions everyone.
    pub mention_everyone: bool,
    /// Emoji and who gave it.
    pub reactions: Vec<(String, Snowflake)>,
    /// The flags; 64 is one that only one person sees, 128 one that is to come.
    pub flags: u64,
    /// The nonce of the sender, or null.
    pub nonce: Value,
    /// The thread that was started from it.
    pub thread: Option<Snowflake>,
    /// The interaction it answers.
    pub interaction: Option<Snowflake>,
    /// When it was edited last, in milliseconds.
    pub edited: Option<u64>,
    /// Whether it is gone.
    pub deleted: bool,
}

/// A press of a button, or the call of a command.
#[derive(Debug, Clone, PartialEq)]
pub struct FakeInteraction {
    /// Its id.
    pub id: Snowflake,
    /// What the client needs to answer.
    pub token: String,
    /// Discord's number: 2 a command, 3 a component.
    pub kind: u64,
    /// Who did it.
    pub user: Snowflake,
    /// Where.
    pub channel: Snowflake,
    /// The message with the button.
    pub message: Option<Snowflake>,
    /// When.
    pub at: Instant,
    /// The answer: its number and its data.
    pub response: Option<(u64, Value)>,
    /// The message that is its original answer.
    pub original: Option<Snowflake>,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct RequestRecord {
    /// Method and path, without `/api/v10`.
    pub line: String,
    /// What follows the path.
    pub query: String,
    /// The body as JSON; null if it has none.
    pub body: Value,
    /// The status it was answered with; 0 if it was not answered.
    pub status: u16,
}

/// Everything.
#[derive(Debug, Default)]
pub struct World {
    /// The bot's own user, which is also its application.
    pub bot: Snowflake,
    /// Everyone.
    pub users: BTreeMap<Snowflake, FakeUser>,
    /// The guilds.
    pub guilds: BTreeMap<Snowflake, FakeGuild>,
    /// Channels, threads and direct talks.
    pub channels: BTreeMap<Snowflake, FakeChannel>,
    /// Messages, also those that are deleted.
    pub messages: BTreeMap<Snowflake, FakeMessage>,
    /// Commands by id, with the guild they are for.
    pub commands: BTreeMap<Snowflake, (Option<Snowflake>, Value)>,
    /// Interactions.
    pub interactions: BTreeMap<Snowflake, FakeInteraction>,
    /// The channels in which the bot was seen typing, one entry for each call.
    pub typing: Vec<Snowflake>,
    /// The files that were asked for, one entry for each time.
    pub downloads: Vec<Snowflake>,
    /// All requests.
    pub requests: Vec<RequestRecord>,
    /// How often a client identified itself.
    pub identified: u32,
    /// How often a client resumed.
    pub resumed: u32,
    /// The most heartbeats that a client sent to a websocket that had fallen silent.
    pub unanswered_heartbeats: u32,
    /// How many requests came since the server stalls.
    pub pending_requests: u32,
    /// How many requests the client gave up because the server stalls.
    pub abandoned_requests: u32,
    /// How many connections were taken.
    pub connections: u32,
    pub(super) base: String,
    pub(super) token: String,
    pub(super) violations: Vec<String>,
    pub(super) expected_violations: Vec<u64>,
    pub(super) nonces: BTreeMap<String, Snowflake>,
    pub(super) sessions: BTreeMap<String, Session>,
    pub(super) forgotten_sessions: BTreeSet<String>,
    pub(super) buckets: Buckets,
    pub(super) injected: InjectedFaults,
    pub(super) last_id: Snowflake,
}

/// The milliseconds since 1970 at which Discord's ids begin.
const EPOCH: u64 = 1_420_070_400_000;

impl World {
    /// A new id, later than all others.
    pub(super) fn next_id(&mut self) -> Snowflake {
        self.last_id = ((now_ms() - EPOCH) << 22).max(self.last_id + 1);
        self.last_id
    }

    /// Notes what the client should not have done, unless the test expects this code.
    pub(super) fn record_violation(&mut self, code: u64, why: String) {
        match self.expected_violations.iter().position(|expected| *expected == code) {
            Some(place) => {
                self.expected_violations.swap_remove(place);
            }
            None => self.violations.push(format!("{code}: {why}")),
        }
    }

    /// The messages of a channel that are still there, oldest first.
    pub fn messages_in(&self, channel: Snowflake) -> Vec<&FakeMessage> {
        self.messages.values().filter(|message| message.channel == channel && !message.deleted).collect()
    }

    /// What the bot wrote in a channel, oldest first.
    pub fn bot_messages_in(&self, channel: Snowflake) -> Vec<&FakeMessage> {
        self.messages_in(channel).into_iter().filter(|message| message.author == self.bot).collect()
    }

    /// The threads of a channel.
    pub fn threads_of(&self, channel: Snowflake) -> Vec<&FakeChannel> {
        let of = |thread: &&FakeChannel| thread.kind.is_thread() && thread.parent == Some(channel);
        self.channels.values().filter(of).collect()
    }

    /// Whether a client is connected and identified.
    pub fn is_connected(&self) -> bool {
        self.sessions.values().any(Session::is_live)
    }

    /// Who and what a text mentions.
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

/// The time in milliseconds since 1970.
pub(super) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or_default()
}

/// The time at which an id was made, in milliseconds since 1970.
pub(super) fn made_at(id: Snowflake) -> u64 {
    (id >> 22) + EPOCH
}

/// A time as Discord writes it.
pub(super) fn iso(ms: u64) -> String {
    let (days, left) = (ms / 86_400_000, ms % 86_400_000);
    // Counted from the first of March of the year 0, a year ends with its leap day.
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
    fn times_are_written_as_discord_writes_them() {
        assert_eq!(iso(0), "1970-01-01T00:00:00.000000+00:00");
        assert_eq!(iso(1_709_164_799_123), "2024-02-28T23:59:59.123000+00:00");
        assert_eq!(iso(1_709_164_800_000), "2024-02-29T00:00:00.000000+00:00");
        assert_eq!(iso(1_735_689_600_000), "2025-01-01T00:00:00.000000+00:00");
    }
}
