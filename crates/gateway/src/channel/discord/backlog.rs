//! Fetches messages that were missed while no session existed, and holds back newer ones until
//! then.
//!
//! If a session cannot be resumed, Discord does not deliver the messages sent in between. A new
//! session reports the last message of each channel; what lies between that and the last processed
//! message is fetched, while live messages of other chats are processed. Only in a chat that is
//! being searched do live messages wait.
//!
//! A chat is fetched one page at a time, and each page is processed before the next is fetched;
//! chats take turns. So the missed messages are never all in memory, and a busy chat does not delay
//! the others. Failed requests are repeated later.
//!
//! Threads archived in the meantime are not reported, so every channel is asked for them. Direct
//! messages are fetched from users who wrote before. A bot cannot list other users: the first
//! direct message of a new user during such a gap is lost.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use hermes_types::lock;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker, MessageMarker};
use twilight_model::util::Timestamp;

use super::channels::{ChannelInfo, ThreadList};
use super::inbound::parse_messages;
use super::outbound::{CLOCK_SKEW, created_at, is_snowflake, snowflake};
use super::payload::{MemberPayload, MessagePayload, WithId};
use super::rest::{ApiError, ApiRequest};
use super::rules::is_listening_in;
use super::{Bookmark, Discord};
use crate::message::{ChatKind, Sender};

const PAGE_SIZE: usize = 100;
const RETRY_INTERVAL: Duration = Duration::from_secs(10);
/// Failed attempts in a row before a chat is left to the next session.
const MAX_ATTEMPTS: u32 = 20;
/// Channels that are searched for archived threads. Discord bans clients that ask too often for
/// what they may not see.
const MAX_THREAD_PARENTS: usize = 500;
/// How long to wait for the servers of a new session. Later ones are searched when they appear.
const GUILD_TIMEOUT: Duration = Duration::from_secs(5);
/// Oldest message to fetch; the inbox remembers handled messages for longer.
const MAX_AGE: Duration = Duration::from_secs(3 * 24 * 3_600);
/// Held messages after which no more events are read.
const MAX_HELD_MESSAGES: usize = 1000;
const ROLE_CACHE_TTL: Duration = Duration::from_secs(60);

/// Messages that were missed or have to wait.
pub(super) struct Backlog {
    account: Arc<Discord>,
    /// Servers of a new session that are not available yet.
    missing_guilds: HashSet<Id<GuildMarker>>,
    /// Until when to wait for them; `None` once some are late.
    guild_deadline: Option<Instant>,
    /// The last message certainly processed before the session; 0 in the first session.
    since: u64,
    /// Chats whose live messages have to wait.
    held_chats: HashMap<String, HeldChat>,
    /// Chats to search; the next one is at the end.
    queue: Vec<String>,
    /// Channels to search for archived threads.
    thread_parents: Vec<Id<ChannelMarker>>,
    fetches: JoinSet<FetchResult>,
    /// The chat of each fetch.
    fetch_chats: HashMap<tokio::task::Id, String>,
    /// The running search of a chat or channel.
    scan: Option<tokio::task::Id>,
    held_count: usize,
    /// The last message before which all are processed.
    confirmed: u64,
    newest: u64,
    /// Whether nothing was given up that could be fetched later.
    is_complete: bool,
    unsaved_bookmark: Option<Bookmark>,
}

/// A chat whose live messages have to wait.
struct HeldChat {
    scan: ScanState,
    since: u64,
    newest: u64,
    /// Failed attempts in a row.
    attempts: u32,
    held: Vec<MessagePayload>,
}

/// The search for the missed messages of a chat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ScanState {
    Waiting,
    Running,
    /// A new session asked for another search while one is running.
    RunningAgain,
}

impl HeldChat {
    fn new(scan: ScanState, since: u64) -> Self {
        Self { scan, since, newest: 0, attempts: 0, held: Vec::new() }
    }

    fn request_scan(&mut self) {
        if self.scan == ScanState::Running {
            self.scan = ScanState::RunningAgain;
        }
    }
}

enum FetchResult {
    Messages(HistoryPage),
    /// Threads with new messages, and whether the list is complete.
    Threads {
        found: Vec<ChannelInfo>,
        is_complete: bool,
    },
}

/// Messages of a chat, oldest first.
struct HistoryPage {
    missed: Vec<MessagePayload>,
    last_id: u64,
    remaining: Remaining,
}

impl HistoryPage {
    /// A page without messages.
    fn empty(last_id: u64, remaining: Remaining) -> Self {
        Self { missed: Vec::new(), last_id, remaining }
    }
}

/// What remains in a chat after a page.
enum Remaining {
    None,
    More,
    /// The rest cannot be fetched yet.
    Later(Duration),
}

impl Backlog {
    pub(super) fn new(account: &Arc<Discord>) -> Self {
        let confirmed_id = account.bookmark.as_ref().map(|bookmark| bookmark.confirmed).unwrap_or_default();
        Self {
            account: Arc::clone(account),
            missing_guilds: HashSet::new(),
            guild_deadline: None,
            since: 0,
            held_chats: HashMap::new(),
            queue: Vec::new(),
            thread_parents: Vec::new(),
            fetches: JoinSet::new(),
            fetch_chats: HashMap::new(),
            scan: None,
            held_count: 0,
            confirmed: confirmed_id,
            newest: confirmed_id,
            is_complete: true,
            unsaved_bookmark: None,
        }
    }

    /// A new session started; messages before it were not delivered.
    pub(super) fn start_session(&mut self, guilds: Vec<Id<GuildMarker>>) {
        let confirmed_id = self.confirmed;
        let oldest = snowflake(SystemTime::now() - MAX_AGE);
        self.since = match confirmed_id {
            0 => 0,
            // Ids come from several clocks.
            confirmed_id => confirmed_id.saturating_sub((CLOCK_SKEW.as_secs() * 1_000) << 22).max(oldest),
        };
        if (1..oldest).contains(&confirmed_id) {
            let days = MAX_AGE.as_secs() / 86_400;
            tracing::warn!("offline for more than {days} days; older messages are skipped");
        }
        let since = self.since;
        self.missing_guilds.clear();
        if confirmed_id == 0 {
            // First start: nothing was missed.
            self.confirmed = snowflake(SystemTime::now());
            self.newest = self.confirmed;
        }
        for (chat, last) in lock(&self.account.last_seen).iter() {
            let new = || HeldChat::new(ScanState::Waiting, 0);
            let held = self.held_chats.entry(chat.clone()).or_insert_with(new);
            // A handled message newer than the bookmark does not prove that all before it were
            // processed.
            let since = match *last {
                last if !is_snowflake(last) => last,
                last if confirmed_id > 0 && last > confirmed_id => since,
                last => since.max(last),
            };
            held.since = held.since.max(since);
            held.newest = held.newest.max(*last);
            held.request_scan();
        }
        if since > 0 || !self.held_chats.is_empty() {
            self.missing_guilds = guilds.into_iter().collect();
            self.guild_deadline = Some(Instant::now() + GUILD_TIMEOUT);
        }
        self.rebuild_queue();
    }

    pub(super) fn on_guild(
        &mut self,
        guild: Id<GuildMarker>,
        channels: &[(Id<ChannelMarker>, u64)],
        parents: Vec<Id<ChannelMarker>>,
    ) {
        if !self.missing_guilds.remove(&guild) {
            return;
        }
        for (channel, newest) in channels {
            self.note_last_message(*channel, *newest);
        }
        if self.since > 0 {
            let new_parents = parents.into_iter().filter(|parent| self.is_listening_in(*parent));
            let new_parents: Vec<_> =
                new_parents.filter(|parent| !self.thread_parents.contains(parent)).collect();
            let capacity = MAX_THREAD_PARENTS.saturating_sub(self.thread_parents.len());
            if new_parents.len() > capacity {
                tracing::warn!(
                    count = new_parents.len() - capacity,
                    "too many channels: some are not searched for archived threads"
                );
            }
            self.thread_parents.extend(new_parents.into_iter().take(capacity));
        }
        self.rebuild_queue();
    }

    fn is_listening_in(&self, channel: Id<ChannelMarker>) -> bool {
        let known = self.account.cached_channel(channel);
        known.is_some_and(|known| is_listening_in(&self.account.settings, &known.to_chat()))
    }

    /// Records the newest message of a channel.
    fn note_last_message(&mut self, channel: Id<ChannelMarker>, newest: u64) {
        if !self.is_listening_in(channel) {
            return;
        }
        let (chat, since) = (channel.to_string(), self.since);
        match self.held_chats.get_mut(&chat) {
            Some(held) if newest <= held.since && held.held.is_empty() && held.scan == ScanState::Waiting => {
                self.held_chats.remove(&chat);
            }
            Some(held) => {
                held.request_scan();
                held.newest = held.newest.max(newest);
            }
            None if since > 0 && newest > since => {
                let held = HeldChat { newest, ..HeldChat::new(ScanState::Waiting, since) };
                self.held_chats.insert(chat, held);
            }
            None => {}
        }
    }

    pub(super) fn guild_deadline(&self) -> Option<Instant> {
        self.guild_deadline.filter(|_| !self.missing_guilds.is_empty())
    }

    pub(super) fn stop_awaiting_guilds(&mut self) {
        tracing::warn!(count = self.missing_guilds.len(), "servers did not become available");
        self.guild_deadline = None;
        self.rebuild_queue();
    }

    /// Orders the chats once all servers are known: the most recently active first.
    fn rebuild_queue(&mut self) {
        if self.guild_deadline().is_some() {
            return;
        }
        let waiting = self.held_chats.iter().filter(|(_, held)| held.scan == ScanState::Waiting);
        let mut chats: Vec<(u64, String)> = waiting.map(|(chat, held)| (held.newest, chat.clone())).collect();
        chats.sort_unstable();
        self.queue = chats.into_iter().map(|(_, chat)| chat).collect();
        self.start_next();
    }

    /// Starts the next search unless one is running.
    fn start_next(&mut self) {
        while self.scan.is_none()
            && let Some(chat) = self.queue.pop()
        {
            let Some(held) = self.held_chats.get_mut(&chat) else { continue };
            held.scan = ScanState::Running;
            let (account, since) = (Arc::clone(&self.account), held.since);
            let channel = chat.parse().ok().and_then(Id::new_checked);
            let fetch = self.spawn_fetch(chat, async move {
                match channel {
                    Some(channel) => account.fetch_missed(channel, since).await,
                    None => HistoryPage::empty(since, Remaining::None),
                }
            });
            self.scan = Some(fetch);
        }
        if self.scan.is_none()
            && self.guild_deadline().is_none()
            && let Some(parent) = self.thread_parents.pop()
        {
            let (account, since) = (Arc::clone(&self.account), self.since);
            let fetch =
                self.fetches.spawn(async move { account.fetch_archived_threads(parent, since).await });
            self.scan = Some(fetch.id());
        }
    }

    fn spawn_fetch(
        &mut self,
        chat: String,
        fetch: impl Future<Output = HistoryPage> + Send + 'static,
    ) -> tokio::task::Id {
        let id = self.fetches.spawn(async move { FetchResult::Messages(fetch.await) }).id();
        self.fetch_chats.insert(id, chat);
        id
    }

    /// Waits for the next fetch. Returns messages to process now, in order.
    pub(super) async fn next_ready(&mut self) -> (Vec<MessagePayload>, Vec<MessagePayload>) {
        let Some(done) = self.fetches.join_next_with_id().await else { return std::future::pending().await };
        let (id, result) = match done {
            Ok((id, result)) => (id, result),
            Err(error) => {
                tracing::error!(%error, "cannot fetch missed messages");
                self.is_complete = false;
                (error.id(), FetchResult::Messages(HistoryPage::empty(0, Remaining::None)))
            }
        };
        self.scan = self.scan.filter(|running| *running != id);
        let ready = match (result, self.fetch_chats.remove(&id)) {
            (FetchResult::Messages(page), Some(chat)) => self.accept_page(chat, page),
            (FetchResult::Threads { found, is_complete }, _) => {
                self.is_complete &= is_complete;
                for (thread, newest) in found.iter().filter_map(ChannelInfo::last_message) {
                    self.note_last_message(thread, newest);
                }
                self.rebuild_queue();
                (Vec::new(), Vec::new())
            }
            (FetchResult::Messages(_), None) => (Vec::new(), Vec::new()),
        };
        self.start_next();
        ready
    }

    /// Accepts a page. Returns its messages and, if it was the last, the live messages held back.
    fn accept_page(&mut self, chat: String, page: HistoryPage) -> (Vec<MessagePayload>, Vec<MessagePayload>) {
        let Some(held) = self.held_chats.get_mut(&chat) else { return (page.missed, Vec::new()) };
        held.since = held.since.max(page.last_id);
        held.attempts = if page.missed.is_empty() { held.attempts } else { 0 };
        match page.remaining {
            Remaining::Later(wait) if held.attempts < MAX_ATTEMPTS => {
                held.attempts += 1;
                let since = held.since;
                self.spawn_fetch(chat, async move {
                    tokio::time::sleep(wait).await;
                    HistoryPage::empty(since, Remaining::More)
                });
                return (page.missed, Vec::new());
            }
            Remaining::Later(_) => {
                tracing::error!(chat, "giving up on missed messages until the next session");
                self.is_complete = false;
            }
            Remaining::More => held.scan = ScanState::RunningAgain,
            Remaining::None => {}
        }
        if held.scan == ScanState::RunningAgain {
            held.scan = ScanState::Waiting;
            if self.guild_deadline().is_none() {
                self.queue.insert(0, chat);
            }
            return (page.missed, Vec::new());
        }
        let since = held.since;
        let mut held = self.held_chats.remove(&chat).map(|held| held.held).unwrap_or_default();
        self.held_count = self.held_count.saturating_sub(held.len());
        held.retain(|message| message.id.get() > since);
        (page.missed, held)
    }

    pub(super) fn has_capacity(&self) -> bool {
        self.held_count < MAX_HELD_MESSAGES
    }

    /// Accepts a live message. Returns it unless it has to wait.
    pub(super) fn hold_or_release(&mut self, message: MessagePayload) -> Option<MessagePayload> {
        self.newest = self.newest.max(message.id.get());
        let chat = message.channel_id.to_string();
        if let Some(held) = self.held_chats.get_mut(&chat) {
            held.held.push(message);
            self.held_count += 1;
            return None;
        }
        let guild = self.account.role_guild().filter(|_| message.guild_id.is_none() && !message.is_bot());
        let Some(guild) = guild else { return Some(message) };
        let user = message.author.id.to_string();
        if let Some(roles) = self.account.cached_roles(&user) {
            return Some(message.with_roles(roles));
        }
        let (account, since) = (Arc::clone(&self.account), message.id.get() - 1);
        self.held_chats.insert(chat.clone(), HeldChat::new(ScanState::Running, since));
        self.spawn_fetch(chat, async move {
            match account.fetch_roles(guild, &user).await {
                Some(roles) => HistoryPage {
                    last_id: message.id.get(),
                    missed: vec![message.with_roles(roles)],
                    remaining: Remaining::None,
                },
                // Fetch it later like a missed message.
                None => HistoryPage::empty(since, Remaining::Later(RETRY_INTERVAL)),
            }
        });
        None
    }

    /// Returns the bookmark to save once everything before it is processed.
    pub(super) fn advance_bookmark(&mut self, bookmark: Option<Bookmark>) -> Option<Bookmark> {
        self.unsaved_bookmark = bookmark.or_else(|| self.unsaved_bookmark.take());
        let is_caught_up = self.held_chats.is_empty()
            && self.guild_deadline().is_none()
            && self.thread_parents.is_empty()
            && self.scan.is_none();
        if !self.is_complete || !is_caught_up {
            return None;
        }
        self.confirmed = self.newest;
        self.unsaved_bookmark.take().map(|bookmark| Bookmark { confirmed: self.confirmed, ..bookmark })
    }
}

impl Discord {
    /// One page of the messages after `since`.
    async fn fetch_missed(&self, channel: Id<ChannelMarker>, since: u64) -> HistoryPage {
        let call = ApiRequest::get(format!("channels/{channel}/messages?after={since}&limit={PAGE_SIZE}"));
        let end = |remaining| HistoryPage::empty(since, remaining);
        let found: Vec<Box<RawValue>> = match self.rest.fetch_with_retry(&call).await {
            Ok(found) => found,
            // Deleted, or the bot was removed: permanent, and nothing to do about.
            Err(ApiError::Rejected { reason, .. }) => {
                tracing::info!(%channel, reason, "chat is no longer readable");
                return end(Remaining::None);
            }
            Err(error) => {
                tracing::warn!(%channel, %error, "cannot fetch missed messages");
                return end(match error {
                    ApiError::Rejected { .. } | ApiError::Invalid(_) => Remaining::None,
                    ApiError::Retry { after: Some(after), .. } => Remaining::Later(after.max(RETRY_INTERVAL)),
                    ApiError::Retry { .. } | ApiError::Unknown(_) => Remaining::Later(RETRY_INTERVAL),
                });
            }
        };
        if found.is_empty() {
            return end(Remaining::None);
        }
        // Never treat an unknown channel as a direct message.
        let Some(known) = self.channel_info(channel).await else {
            return end(Remaining::Later(RETRY_INTERVAL));
        };
        let numbers =
            found.iter().filter_map(|json| serde_json::from_str::<WithId<MessageMarker>>(json.get()).ok());
        let reached = numbers.map(|numbered| numbered.id.get()).max().unwrap_or_default();
        // If no id of a page is readable, the next page would be the same.
        let left =
            if found.len() < PAGE_SIZE || reached <= since { Remaining::None } else { Remaining::More };
        let messages = parse_messages(&found);
        let guild = known.guild_id;
        let roles_of = if known.to_chat().kind == ChatKind::Dm { self.role_guild() } else { guild };
        let mut missed = Vec::with_capacity(messages.len());
        for mut message in messages {
            message.guild_id = guild;
            if let Some(guild) = roles_of
                && self.is_for_bot(&message).await
            {
                let Some(roles) = self.fetch_roles(guild, &message.author.id.to_string()).await else {
                    let (last_id, remaining) = (message.id.get() - 1, Remaining::Later(RETRY_INTERVAL));
                    return HistoryPage { missed, last_id, remaining };
                };
                message = message.with_roles(roles);
            }
            missed.push(message);
        }
        HistoryPage { missed, last_id: reached.max(since), remaining: left }
    }

    /// Archived threads with messages after `since`: public ones from the latest archived on,
    /// private ones that the bot joined from the newest page.
    async fn fetch_archived_threads(&self, parent: Id<ChannelMarker>, since: u64) -> FetchResult {
        let (mut found, mut before) = (Vec::new(), String::new());
        let (mut is_complete, mut is_visible) = (true, true);
        loop {
            let path = format!("channels/{parent}/threads/archived/public");
            let Some(listed) = self.list_archived(&path, &before, &mut is_complete).await else {
                is_visible = !before.is_empty();
                break;
            };
            let times = listed.threads.iter().filter_map(ChannelInfo::archived_at);
            let oldest = times.min_by_key(|at| at.as_micros());
            found.extend(listed.threads);
            let is_later = |at: &Timestamp| {
                u64::try_from(at.as_secs()).is_ok_and(|at| at >= created_at(since).seconds())
            };
            let Some(oldest) = oldest.filter(is_later).filter(|_| listed.has_more) else { break };
            let time = oldest.iso_8601().to_string();
            let next = format!("&before={}", utf8_percent_encode(&time, NON_ALPHANUMERIC));
            // Guards against an endless list of threads archived at the same moment.
            if next == before {
                break;
            }
            before = next;
        }
        if is_visible {
            let path = format!("channels/{parent}/users/@me/threads/archived/private");
            let joined = self.list_archived(&path, "", &mut is_complete).await;
            found.extend(joined.into_iter().flat_map(|listed| listed.threads));
        }
        found.retain(|known| known.last_message().is_some_and(|(_, newest)| newest > since));
        let guild = self.cached_channel(parent).and_then(|parent| parent.guild_id);
        self.cache_channels(found.iter().map(|known| known.clone().with_guild(guild)));
        FetchResult::Threads { found, is_complete }
    }

    async fn list_archived(&self, path: &str, before: &str, is_complete: &mut bool) -> Option<ThreadList> {
        let call = ApiRequest::get(format!("{path}?limit={PAGE_SIZE}{before}"));
        match self.rest.fetch_with_retry(&call).await {
            Ok(page) => Some(page),
            Err(error) => {
                tracing::debug!(%error, "cannot list archived threads");
                *is_complete &= matches!(error, ApiError::Rejected { .. } | ApiError::Invalid(_));
                None
            }
        }
    }

    async fn is_for_bot(&self, message: &MessagePayload) -> bool {
        let Some(me) = self.identity() else { return false };
        self.evaluate(&me.user, message, 0).await.is_ok_and(|inbound| !inbound.sender.is_bot)
    }

    fn role_guild(&self) -> Option<Id<GuildMarker>> {
        self.settings.dm_role_guild.as_ref()?.parse().ok().and_then(Id::new_checked)
    }

    fn cached_roles(&self, user: &str) -> Option<Vec<String>> {
        let roles = lock(&self.role_cache);
        let (at, roles) = roles.peek(user)?;
        (at.elapsed() < ROLE_CACHE_TTL).then(|| roles.clone())
    }

    /// A user's roles in a server; `None` if unknown.
    async fn fetch_roles(&self, guild: Id<GuildMarker>, user: &str) -> Option<Vec<String>> {
        let is_shared = self.role_guild() == Some(guild);
        if let Some(roles) = self.cached_roles(user).filter(|_| is_shared) {
            return Some(roles);
        }
        let call = ApiRequest::get(format!("guilds/{guild}/members/{user}"));
        let roles = match self.rest.fetch_with_retry::<MemberPayload>(&call).await {
            Ok(member) => member.roles,
            // Not a member.
            Err(ApiError::Rejected { .. }) => Vec::new(),
            Err(error) => {
                tracing::warn!(%error, "cannot fetch roles");
                return None;
            }
        };
        if is_shared {
            lock(&self.role_cache).put(user.to_owned(), (Instant::now(), roles.clone()));
        }
        Some(roles)
    }

    /// Adds the roles that apply in direct messages.
    pub(super) async fn load_dm_roles(&self, sender: &mut Sender) {
        if let Some(guild) = self.role_guild() {
            sender.roles = self.fetch_roles(guild, &sender.id).await.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::rules::tests::settings;
    use super::super::{Discord, DiscordSettings, ResumeState};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_failed_fetch_is_retried_before_it_is_given_up() {
        // Nothing listens there.
        let api_base = Some("http://127.0.0.1:1".to_owned());
        let unreachable = DiscordSettings { api_base, ..settings() };
        let discord = Arc::new(Discord::new(unreachable, ResumeState::default()));
        let mut backlog = Backlog::new(&discord);
        backlog.held_chats.insert("7".to_owned(), HeldChat::new(ScanState::Waiting, 0));
        backlog.rebuild_queue();
        let mut fetch_count = 0;
        while !backlog.held_chats.is_empty() {
            assert!(backlog.is_complete, "it is not left yet");
            backlog.next_ready().await;
            fetch_count += 1;
        }
        // A pause follows each but the last.
        assert_eq!((fetch_count, backlog.is_complete), (2 * MAX_ATTEMPTS + 1, false));
    }
}
