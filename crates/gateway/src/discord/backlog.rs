//! What was said while nobody listened, and what has to wait until it is heard.
//!
//! A session that is over cannot be gone on with, and what was said meanwhile is not told. So the last messages of channels,
//! which a new session tells, are held against the last one that was heard, and what lies between is fetched. That is done
//! beside what comes live; only in a chat that is being looked through the new has to wait for the old.
//!
//! A chat is looked through a page at a time, each of which is heard before the next one is fetched, and chats take turns: what
//! was missed is never in memory as a whole, and a chat where much was said does not keep the others waiting. What cannot be
//! fetched now is fetched later.
//!
//! Threads that were archived meanwhile are not told of, so each channel is asked for them. Direct messages are fetched from
//! people who wrote before. A bot cannot ask which others there are: the first message of somebody new that is sent while no
//! session can be gone on with stays unheard.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker};
use twilight_model::util::Timestamp;

use super::arrive::{read, said};
use super::payload::Message;
use super::places::Known;
use super::post::{SKEW, made_at, snowflake, tells_time};
use super::rest::{Call, Fault};
use super::rules::{PlaceKind, Standing, Verdict, judge, listens};
use super::{Account, Bookmark, lock};
use crate::letter::Sender;

/// How many messages are asked for at once.
const PAGE: usize = 100;
/// How long to wait before what could not be fetched is asked for again.
const PAUSE: Duration = Duration::from_secs(10);
/// How often that is done in a row before it is left to the next session.
const TRIES: u32 = 20;
/// How many channels are asked for archived threads: whoever asks too often for what it may not see is shut out.
const HALLS: usize = 500;
/// How long the servers of a new session are waited for. Those that are told of later are looked through then.
const GATHERING: Duration = Duration::from_secs(5);
/// How long ago something may have been said. What was answered is remembered for longer.
const OLDEST: Duration = Duration::from_secs(3 * 24 * 3_600);
/// How many messages wait before no more is listened to.
const HELD: usize = 1000;
/// How long roles are believed that were asked for.
const BELIEVED: Duration = Duration::from_secs(60);

/// What is still to be heard.
#[derive(Debug)]
pub(super) struct Backlog {
    account: Arc<Account>,
    /// The servers of a new session that have not been told of, and until when they are waited for.
    awaited: HashSet<Id<GuildMarker>>,
    until: Instant,
    /// Those that are waited for no longer.
    late: HashSet<Id<GuildMarker>>,
    /// What was surely heard before the session; nothing if it is the first.
    floor: u64,
    /// Chats whose messages have to wait.
    waiting: HashMap<String, Waits>,
    /// Those of them that are to be looked through; the next is the last.
    queue: Vec<String>,
    /// Channels that are to be asked for archived threads.
    halls: Vec<Id<ChannelMarker>>,
    errands: JoinSet<Brought>,
    /// Which chat each errand is for.
    errand_of: HashMap<tokio::task::Id, String>,
    /// The errand that looks through a chat or a channel.
    looking: Option<tokio::task::Id>,
    /// How many messages wait.
    held: usize,
    /// The last message of which it is certain that all before it were heard.
    heard: u64,
    /// The last message that came.
    newest: u64,
    /// Whether nothing was lost that could be had at another time.
    sure: bool,
    unkept: Option<Bookmark>,
}

/// A chat whose messages have to wait.
#[derive(Debug, Default)]
struct Waits {
    /// Whether it is to be looked through.
    look: bool,
    /// What was heard there.
    since: u64,
    /// The last message that is known of.
    newest: u64,
    /// How often nothing could be fetched, in a row.
    tries: u32,
    held: Vec<Message>,
}

/// What an errand brought.
#[derive(Debug)]
enum Brought {
    /// Messages of a chat.
    Messages(Page),
    /// Threads in which something was said, and whether these are all.
    Threads { found: Vec<Known>, whole: bool },
}

/// Messages of a chat, in their order.
#[derive(Debug)]
struct Page {
    missed: Vec<Missed>,
    /// The last message that was looked at.
    reached: u64,
    left: Left,
}

/// What is left in a chat behind a page.
#[derive(Debug)]
enum Left {
    Nothing,
    /// There may be more.
    More,
    /// The rest cannot be had now.
    Later(Duration),
}

/// A message that was fetched, with the roles of whoever wrote it where they were asked for.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) message: Message,
    pub(super) roles: Option<Vec<String>>,
}

/// Some archived threads of a channel.
#[derive(Debug, Deserialize)]
struct Shelf {
    threads: Vec<Shelved>,
    #[serde(default)]
    has_more: bool,
}

#[derive(Debug, Deserialize)]
struct Shelved {
    #[serde(flatten)]
    known: Known,
    thread_metadata: Metadata,
}

#[derive(Debug, Deserialize)]
struct Metadata {
    archive_timestamp: Timestamp,
}

/// A member, as far as it matters here.
#[derive(Debug, Deserialize)]
struct Member {
    #[serde(default)]
    roles: Vec<String>,
}

impl Backlog {
    pub(super) fn new(account: &Arc<Account>) -> Self {
        let heard = account.bookmark.as_ref().map(|bookmark| bookmark.heard).unwrap_or_default();
        Self {
            account: Arc::clone(account),
            awaited: HashSet::new(),
            until: Instant::now(),
            late: HashSet::new(),
            floor: 0,
            waiting: HashMap::new(),
            queue: Vec::new(),
            halls: Vec::new(),
            errands: JoinSet::new(),
            errand_of: HashMap::new(),
            looking: None,
            held: 0,
            heard,
            newest: heard,
            sure: true,
            unkept: None,
        }
    }

    /// A new session: what was said before it was not told.
    pub(super) fn begin(&mut self, guilds: Vec<Id<GuildMarker>>) {
        let heard = self.heard;
        let oldest = snowflake(SystemTime::now() - OLDEST);
        self.floor = match heard {
            0 => 0,
            // Ids are made by several clocks.
            heard => heard.saturating_sub(ticks(SKEW)).max(oldest),
        };
        if (1..oldest).contains(&heard) {
            let days = OLDEST.as_secs() / 86_400;
            tracing::warn!("nobody listened for more than {days} days; what was said before is left out");
        }
        let floor = self.floor;
        self.late.clear();
        if heard == 0 {
            // It never listened before, so there is nothing that it missed.
            self.heard = snowflake(SystemTime::now());
            self.newest = self.heard;
        }
        for (chat, last) in lock(&self.account.last).iter() {
            let waits = self.waiting.entry(chat.clone()).or_default();
            // A letter that is later than what was surely heard does not tell that all before it was heard.
            let since = match *last {
                last if !tells_time(last) => last,
                last if heard > 0 && last > heard => floor,
                last => floor.max(last),
            };
            waits.since = waits.since.max(since);
            waits.newest = waits.newest.max(*last);
            waits.look = true;
        }
        if floor > 0 || !self.waiting.is_empty() {
            self.awaited = guilds.into_iter().collect();
            self.until = Instant::now() + GATHERING;
        }
        self.gather();
    }

    /// A server was told of, with the last message of each of its channels, and those of them that may have threads.
    pub(super) fn told(
        &mut self,
        guild: Id<GuildMarker>,
        channels: &[(Id<ChannelMarker>, u64)],
        halls: Vec<Id<ChannelMarker>>,
    ) {
        if !self.awaited.remove(&guild) && !self.late.remove(&guild) {
            return;
        }
        for (channel, newest) in channels {
            self.is_said(*channel, *newest);
        }
        if self.floor > 0 {
            let listened = halls.into_iter().filter(|hall| self.listens(*hall));
            let listened: Vec<_> = listened.filter(|hall| !self.halls.contains(hall)).collect();
            let room = HALLS.saturating_sub(self.halls.len());
            if listened.len() > room {
                tracing::warn!(count = listened.len() - room, "channels are not asked for archived threads");
            }
            self.halls.extend(listened.into_iter().take(room));
        }
        self.gather();
    }

    /// Whether the bot listens in a channel that is known.
    fn listens(&self, channel: Id<ChannelMarker>) -> bool {
        let place = lock(&self.account.places).get(channel).map(Known::place);
        place.is_some_and(|place| listens(&self.account.settings, &place))
    }

    /// The last message of a channel is this one.
    fn is_said(&mut self, channel: Id<ChannelMarker>, newest: u64) {
        if !self.listens(channel) {
            return;
        }
        let (chat, floor) = (channel.to_string(), self.floor);
        let is_running = self.errand_of.values().any(|running| *running == chat);
        match self.waiting.get_mut(&chat) {
            Some(waits) if newest <= waits.since && waits.held.is_empty() && !is_running => {
                self.waiting.remove(&chat);
            }
            Some(waits) => {
                waits.look = true;
                waits.newest = waits.newest.max(newest);
            }
            None if floor > 0 && newest > floor => {
                self.waiting.insert(chat, Waits { look: true, since: floor, newest, ..Waits::default() });
            }
            None => {}
        }
    }

    /// When no server is waited for any more, if one is.
    pub(super) fn waits_until(&self) -> Option<Instant> {
        (!self.awaited.is_empty()).then_some(self.until)
    }

    /// Waits for no server any more.
    pub(super) fn give_up(&mut self) {
        tracing::warn!(count = self.awaited.len(), "Discord did not tell of some servers");
        self.late.extend(self.awaited.drain());
        self.gather();
    }

    /// Puts the chats in order once all are known: those where something was said last come first.
    fn gather(&mut self) {
        if !self.awaited.is_empty() {
            return;
        }
        let running: HashSet<&String> = self.errand_of.values().collect();
        let mut chats: Vec<(u64, String)> = self
            .waiting
            .iter()
            .filter(|(chat, waits)| waits.look && !running.contains(chat))
            .map(|(chat, waits)| (waits.newest, chat.clone()))
            .collect();
        chats.sort_unstable();
        self.queue = chats.into_iter().map(|(_, chat)| chat).collect();
        self.set_out();
    }

    /// Looks through the next chat, unless one is being looked through.
    fn set_out(&mut self) {
        while self.looking.is_none()
            && let Some(chat) = self.queue.pop()
        {
            let Some(waits) = self.waiting.get_mut(&chat) else { continue };
            waits.look = false;
            let (account, since) = (Arc::clone(&self.account), waits.since);
            let channel = chat.parse().ok().and_then(Id::new_checked);
            let errand = self.send(chat, async move {
                match channel {
                    Some(channel) => account.missed(channel, since).await,
                    None => Page { missed: Vec::new(), reached: since, left: Left::Nothing },
                }
            });
            self.looking = Some(errand);
        }
        if self.looking.is_none()
            && self.awaited.is_empty()
            && let Some(hall) = self.halls.pop()
        {
            let (account, floor) = (Arc::clone(&self.account), self.floor);
            let errand = self.errands.spawn(async move { account.archived(hall, floor).await });
            self.looking = Some(errand.id());
        }
    }

    fn send(&mut self, chat: String, errand: impl Future<Output = Page> + Send + 'static) -> tokio::task::Id {
        let id = self.errands.spawn(async move { Brought::Messages(errand.await) }).id();
        self.errand_of.insert(id, chat);
        id
    }

    /// Waits for what the next errand brings, if there is one: all that is to be heard now, in its order.
    pub(super) async fn next(&mut self) -> (Vec<Missed>, Vec<Message>) {
        let Some(done) = self.errands.join_next_with_id().await else { return std::future::pending().await };
        let (id, brought) = match done {
            Ok((id, brought)) => (id, brought),
            Err(error) => {
                tracing::error!(%error, "what was missed on Discord could not be fetched");
                self.sure = false;
                let page = Page { missed: Vec::new(), reached: 0, left: Left::Nothing };
                (error.id(), Brought::Messages(page))
            }
        };
        self.looking = self.looking.filter(|looking| *looking != id);
        let heard = match (brought, self.errand_of.remove(&id)) {
            (Brought::Messages(page), Some(chat)) => self.take(chat, page),
            (Brought::Threads { found, whole }, _) => {
                self.sure &= whole;
                for (thread, newest) in found.iter().filter_map(Known::last) {
                    self.is_said(thread, newest);
                }
                self.gather();
                (Vec::new(), Vec::new())
            }
            (Brought::Messages(_), None) => (Vec::new(), Vec::new()),
        };
        self.set_out();
        heard
    }

    /// Takes a page of a chat. Gives what is to be heard, and behind it what came there meanwhile, if that was all.
    fn take(&mut self, chat: String, page: Page) -> (Vec<Missed>, Vec<Message>) {
        let Some(waits) = self.waiting.get_mut(&chat) else { return (page.missed, Vec::new()) };
        waits.since = waits.since.max(page.reached);
        waits.tries = if page.missed.is_empty() { waits.tries } else { 0 };
        match page.left {
            Left::Later(wait) if waits.tries < TRIES => {
                waits.tries += 1;
                let since = waits.since;
                self.send_later(chat, since, wait);
                return (page.missed, Vec::new());
            }
            Left::Later(_) => {
                tracing::error!(chat, "what was missed on Discord is left to the next session");
                self.sure = false;
            }
            Left::More => waits.look = true,
            Left::Nothing => {}
        }
        // There may have been a new session meanwhile as well.
        if waits.look {
            if self.awaited.is_empty() {
                self.queue.insert(0, chat);
            }
            return (page.missed, Vec::new());
        }
        let since = waits.since;
        let mut held = self.waiting.remove(&chat).map(|waits| waits.held).unwrap_or_default();
        self.held = self.held.saturating_sub(held.len());
        held.retain(|message| message.id.get() > since);
        (page.missed, held)
    }

    /// Whether more can wait.
    pub(super) fn has_room(&self) -> bool {
        self.held < HELD
    }

    /// A message came. It is given back where it can be heard at once.
    pub(super) fn pass(&mut self, message: Message) -> Option<Missed> {
        self.newest = self.newest.max(message.id.get());
        let chat = message.channel_id.to_string();
        if let Some(waits) = self.waiting.get_mut(&chat) {
            waits.held.push(message);
            self.held += 1;
            return None;
        }
        let is_person = !message.author.bot && !message.is_hook();
        let guild = self.account.role_guild().filter(|_| message.guild_id.is_none() && is_person);
        let Some(guild) = guild else { return Some(Missed { message, roles: None }) };
        let user = message.author.id.to_string();
        if let Some(roles) = self.account.believed(&user) {
            return Some(Missed { message, roles: Some(roles) });
        }
        let (account, since) = (Arc::clone(&self.account), message.id.get() - 1);
        self.waiting.insert(chat.clone(), Waits { since, ..Waits::default() });
        self.send(chat, async move {
            match account.roles(guild, &user).await {
                Some(roles) => Page {
                    reached: message.id.get(),
                    missed: vec![Missed { message, roles: Some(roles) }],
                    left: Left::Nothing,
                },
                // It is fetched like one that was missed.
                None => Page { missed: Vec::new(), reached: since, left: Left::Later(PAUSE) },
            }
        });
        None
    }

    /// Looks through a chat after a while.
    fn send_later(&mut self, chat: String, since: u64, wait: Duration) {
        self.send(chat, async move {
            tokio::time::sleep(wait).await;
            Page { missed: Vec::new(), reached: since, left: Left::More }
        });
    }

    /// Notes how far everything was heard, and gives what the next start needs to know, if that is more than before.
    pub(super) fn settle(&mut self, bookmark: Option<Bookmark>) -> Option<Bookmark> {
        self.unkept = bookmark.or_else(|| self.unkept.take());
        let is_caught_up = self.waiting.is_empty()
            && self.awaited.is_empty()
            && self.halls.is_empty()
            && self.looking.is_none();
        if !self.sure || !is_caught_up {
            return None;
        }
        self.heard = self.newest;
        self.unkept.take().map(|bookmark| Bookmark { heard: self.heard, ..bookmark })
    }
}

/// How much later ids are after a time.
fn ticks(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or_default() << 22
}

/// A message, as far as it must be known even if nothing else of it can be read.
#[derive(Debug, Deserialize)]
struct Numbered {
    id: Id<ChannelMarker>,
}

impl Account {
    /// What was said in a chat after a message, oldest first: as much as the platform gives at once.
    async fn missed(&self, channel: Id<ChannelMarker>, since: u64) -> Page {
        let call = Call::get(format!("channels/{channel}/messages"))
            .with_query(format!("after={since}&limit={PAGE}"));
        let end = |left| Page { missed: Vec::new(), reached: since, left };
        let found: Vec<Box<RawValue>> = match self.rest.ask_patiently(&call).await {
            Ok(found) => found,
            Err(fault) => {
                if let Fault::Refused { why, .. } = &fault {
                    // It was deleted, or the bot was sent away: that is so at every start, and nobody has to do anything.
                    tracing::info!(%channel, why, "a chat on Discord can no longer be read");
                } else {
                    tracing::warn!(%channel, why = fault.why(), "what was missed on Discord could not be fetched");
                }
                return end(match fault {
                    Fault::Refused { .. } | Fault::Wrong(_) => Left::Nothing,
                    Fault::Later { after, .. } => Left::Later(after.unwrap_or_default().max(PAUSE)),
                    Fault::Unknown(_) => Left::Later(PAUSE),
                });
            }
        };
        if found.is_empty() {
            return end(Left::Nothing);
        }
        // What is not known to be a direct message must not be taken for one.
        let Some(known) = self.known(channel).await else { return end(Left::Later(PAUSE)) };
        let numbers = found.iter().filter_map(|json| serde_json::from_str::<Numbered>(json.get()).ok());
        let reached = numbers.map(|numbered| numbered.id.get()).max().unwrap_or_default();
        // Where nothing of a page could be read, the next one would be the same.
        let left = if found.len() < PAGE || reached <= since { Left::Nothing } else { Left::More };
        let mut messages: Vec<Message> =
            found.iter().filter_map(|json| read("a message", json.get())).collect();
        messages.sort_by_key(|message| message.id);
        let guild = known.guild();
        let roles_of = if known.place().kind == PlaceKind::Dm { self.role_guild() } else { guild };
        let mut missed = Vec::with_capacity(messages.len());
        for mut message in messages {
            message.guild_id = guild;
            let roles = match roles_of {
                Some(guild) if self.is_wanted(&message).await => {
                    match self.roles(guild, &message.author.id.to_string()).await {
                        Some(roles) => Some(roles),
                        None => {
                            let reached = message.id.get() - 1;
                            return Page { missed, reached, left: Left::Later(PAUSE) };
                        }
                    }
                }
                _ => None,
            };
            missed.push(Missed { message, roles });
        }
        Page { missed, reached: reached.max(since), left }
    }

    /// The archived threads of a channel in which something was said after a message. Those that all can see are listed from the
    /// one that was archived last; of the others that the bot is in, the newest are looked at.
    async fn archived(&self, hall: Id<ChannelMarker>, since: u64) -> Brought {
        let (mut found, mut before) = (Vec::new(), String::new());
        let (mut whole, mut may_see) = (true, true);
        loop {
            let path = format!("channels/{hall}/threads/archived/public");
            let Some(listed) = self.shelf(path, &before, &mut whole).await else {
                may_see = !before.is_empty();
                break;
            };
            let times = listed.threads.iter().map(|shelved| shelved.thread_metadata.archive_timestamp);
            let oldest = times.min_by_key(|at| at.as_micros());
            found.extend(listed.threads.into_iter().map(|shelved| shelved.known));
            let is_later =
                |at: &Timestamp| u64::try_from(at.as_secs()).is_ok_and(|at| at >= made_at(since).seconds());
            let Some(oldest) = oldest.filter(is_later).filter(|_| listed.has_more) else { break };
            let time = oldest.iso_8601().to_string();
            let next = format!("&before={}", utf8_percent_encode(&time, NON_ALPHANUMERIC));
            // What was archived at the same moment would be listed for ever.
            if next == before {
                break;
            }
            before = next;
        }
        if may_see {
            let path = format!("channels/{hall}/users/@me/threads/archived/private");
            let joined = self.shelf(path, "", &mut whole).await;
            found.extend(joined.into_iter().flat_map(|listed| listed.threads).map(|shelved| shelved.known));
        }
        found.retain(|known| known.last().is_some_and(|(_, newest)| newest > since));
        let mut places = lock(&self.places);
        let guild = places.get(hall).and_then(Known::guild);
        found.iter().for_each(|known| places.learn(known.clone().within(guild)));
        Brought::Threads { found, whole }
    }

    /// Some archived threads, where they may be seen.
    async fn shelf(&self, path: String, before: &str, whole: &mut bool) -> Option<Shelf> {
        let call = Call::get(path).with_query(format!("limit={PAGE}{before}"));
        match self.rest.ask_patiently(&call).await {
            Ok(shelf) => Some(shelf),
            Err(fault) => {
                tracing::debug!(why = fault.why(), "archived threads on Discord could not be listed");
                *whole &= matches!(fault, Fault::Refused { .. } | Fault::Wrong(_));
                None
            }
        }
    }

    /// Whether a message of a person is for the bot.
    async fn is_wanted(&self, message: &Message) -> bool {
        let Some(me) = self.me() else { return false };
        let place = self.place(message.channel_id, message.guild_id).await;
        let standing = Standing { bot: &me.user, takes_part: self.takes_part(&place.id), bots_in_a_row: 0 };
        let verdict = judge(&self.settings, standing, said(message.clone(), place, &me.user));
        matches!(verdict, Verdict::Take(letter) if !letter.sender.is_bot)
    }

    /// The server whose roles count in direct messages.
    fn role_guild(&self) -> Option<Id<GuildMarker>> {
        self.settings.dm_role_guild.as_ref()?.parse().ok().and_then(Id::new_checked)
    }

    /// The roles of somebody, if they were asked for a moment ago.
    fn believed(&self, user: &str) -> Option<Vec<String>> {
        let roles = lock(&self.roles);
        let (at, roles) = roles.get(&user.to_owned())?;
        (at.elapsed() < BELIEVED).then(|| roles.clone())
    }

    /// The roles of somebody in a server; nothing where they are not known.
    async fn roles(&self, guild: Id<GuildMarker>, user: &str) -> Option<Vec<String>> {
        let is_shared = self.role_guild() == Some(guild);
        if let Some(roles) = self.believed(user).filter(|_| is_shared) {
            return Some(roles);
        }
        let call = Call::get(format!("guilds/{guild}/members/{user}"));
        let roles = match self.rest.ask_patiently::<Member>(&call).await {
            Ok(member) => member.roles,
            // Whoever is not a member has no roles.
            Err(Fault::Refused { .. }) => Vec::new(),
            Err(fault) => {
                tracing::warn!(why = fault.why(), "the roles of somebody on Discord are not known");
                return None;
            }
        };
        if is_shared {
            lock(&self.roles).put(user.to_owned(), (Instant::now(), roles.clone()));
        }
        Some(roles)
    }

    /// Gives somebody who calls in a direct message the roles that count there.
    pub(super) async fn vouch(&self, sender: &mut Sender) {
        if let Some(guild) = self.role_guild() {
            sender.roles = self.roles(guild, &sender.id).await.unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use hermes_types::Secret;

    use super::super::{Discord, Past, Settings};
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_be_fetched_is_asked_for_again_before_it_is_left() {
        // Nobody listens there.
        let api_base = Some("http://127.0.0.1:1".to_owned());
        let settings = Settings { api_base, ..Settings::new(Secret::new("token")) };
        let discord = Discord::new(settings, Past::default());
        let mut backlog = Backlog::new(&discord.account);
        backlog.waiting.insert("7".to_owned(), Waits { look: true, ..Waits::default() });
        backlog.gather();
        let mut errands = 0;
        while !backlog.waiting.is_empty() {
            assert!(backlog.sure, "it is not left yet");
            backlog.next().await;
            errands += 1;
        }
        // Each but the last is followed by a pause.
        assert_eq!((errands, backlog.sure), (2 * TRIES + 1, false));
    }
}
