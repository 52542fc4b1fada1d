//! What was said while nobody listened, and what has to wait until it is heard.
//!
//! A session that is over cannot be gone on with, and what was said meanwhile is not told. So the last messages of channels,
//! which a new session tells, are held against the last one that was heard, and what lies between is fetched. That is done
//! beside what comes live; only in a chat that is being looked through the new has to wait for the old.
//!
//! Direct messages are fetched from people who wrote before. A bot cannot ask which others there are: the first message of
//! somebody new that is sent while no session can be gone on with stays unheard.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::task::JoinSet;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker};

use super::arrive::{read, said};
use super::payload::Message;
use super::post::{SKEW, snowflake, tells_time};
use super::rest::{Call, Fault};
use super::rules::{PlaceKind, Standing, Verdict, judge, listens};
use super::{Account, Bookmark, lock};
use crate::letter::Sender;

/// How many chats where letters were written are looked through, and how many others besides.
const CHATS: usize = 100;
/// How many messages are asked for at once.
const PAGE: usize = 100;
/// How often that is done in a chat.
const PAGES: usize = 5;
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
    errands: JoinSet<Brought>,
    /// Which chat each errand is for.
    errand_of: HashMap<tokio::task::Id, String>,
    /// The errand that looks through a chat.
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
    /// Whether letters were written there.
    has_letters: bool,
    held: Vec<Message>,
}

/// What an errand brought.
#[derive(Debug)]
pub(super) struct Brought {
    missed: Vec<Missed>,
    /// Whether that is all that could be had.
    whole: bool,
}

/// A message that was fetched, with the roles of whoever wrote it where they were asked for.
#[derive(Debug)]
pub(super) struct Missed {
    pub(super) message: Message,
    pub(super) roles: Option<Vec<String>>,
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
        self.floor = match self.heard {
            0 => 0,
            // Ids are made by several clocks.
            heard => heard.saturating_sub(ticks(SKEW)).max(snowflake(SystemTime::now() - OLDEST)),
        };
        let floor = self.floor;
        self.late.clear();
        if self.heard == 0 {
            // It never listened before, so there is nothing that it missed.
            self.heard = snowflake(SystemTime::now());
            self.newest = self.heard;
        }
        let mut chats: Vec<(String, u64)> =
            lock(&self.account.last).iter().map(|(chat, last)| (chat.clone(), *last)).collect();
        chats.sort_by_key(|(_, last)| std::cmp::Reverse(*last));
        for (chat, last) in chats.into_iter().take(CHATS) {
            let waits = self.waiting.entry(chat).or_default();
            waits.since = if tells_time(last) { last.max(floor) } else { last };
            waits.newest = waits.newest.max(last);
            (waits.look, waits.has_letters) = (true, true);
        }
        if floor > 0 || !self.waiting.is_empty() {
            self.awaited = guilds.into_iter().collect();
            self.until = Instant::now() + GATHERING;
        }
        self.gather();
    }

    /// A server was told of, with the last message of each of its channels.
    pub(super) fn told(&mut self, guild: Id<GuildMarker>, channels: &[(Id<ChannelMarker>, u64)]) {
        if !self.awaited.remove(&guild) && !self.late.remove(&guild) {
            return;
        }
        let floor = self.floor;
        for (channel, newest) in channels {
            let chat = channel.to_string();
            let place = lock(&self.account.places).get(*channel).map(super::places::Known::place);
            if place.is_none_or(|place| !listens(&self.account.settings, &place)) {
                continue;
            }
            let is_running = self.errand_of.values().any(|running| *running == chat);
            match self.waiting.get_mut(&chat) {
                Some(waits) if *newest <= waits.since && waits.held.is_empty() && !is_running => {
                    self.waiting.remove(&chat);
                }
                Some(waits) => {
                    waits.look = true;
                    waits.newest = waits.newest.max(*newest);
                }
                None if floor > 0 && *newest > floor => {
                    let waits = Waits { look: true, since: floor, newest: *newest, ..Waits::default() };
                    self.waiting.insert(chat, waits);
                }
                None => {}
            }
        }
        self.gather();
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
        let mut chats: Vec<(u64, bool, String)> = self
            .waiting
            .iter()
            .filter(|(chat, waits)| waits.look && !running.contains(chat))
            .map(|(chat, waits)| (waits.newest, waits.has_letters, chat.clone()))
            .collect();
        chats.sort_unstable();
        let others = chats.iter().filter(|(_, has_letters, _)| !has_letters).count();
        let mut surplus = others.saturating_sub(CHATS);
        if surplus > 0 {
            tracing::warn!(surplus, "more channels than are looked through have messages that were missed");
        }
        chats.retain(|(_, has_letters, chat)| {
            let is_surplus = surplus > 0
                && !has_letters
                && self.waiting.get(chat).is_some_and(|waits| waits.held.is_empty());
            if is_surplus {
                surplus -= 1;
                self.waiting.remove(chat);
            }
            !is_surplus
        });
        self.queue = chats.into_iter().map(|(.., chat)| chat).collect();
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
                    None => Brought { missed: Vec::new(), whole: true },
                }
            });
            self.looking = Some(errand);
        }
    }

    fn send(
        &mut self,
        chat: String,
        errand: impl Future<Output = Brought> + Send + 'static,
    ) -> tokio::task::Id {
        let id = self.errands.spawn(errand).id();
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
                (error.id(), Brought { missed: Vec::new(), whole: false })
            }
        };
        self.sure &= brought.whole;
        let chat = self.errand_of.remove(&id).unwrap_or_default();
        self.looking = self.looking.filter(|looking| *looking != id);
        let last = brought.missed.last().map_or(0, |missed| missed.message.id.get());
        let mut held = Vec::new();
        match self.waiting.get_mut(&chat) {
            // There was a new session meanwhile, so there may be more by now.
            Some(waits) if waits.look => {
                waits.since = waits.since.max(last);
                if self.awaited.is_empty() {
                    self.queue.push(chat);
                }
            }
            _ => {
                held = self.waiting.remove(&chat).map(|waits| waits.held).unwrap_or_default();
                self.held = self.held.saturating_sub(held.len());
                held.retain(|message| message.id.get() > last);
            }
        }
        self.set_out();
        (brought.missed, held)
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
        let account = Arc::clone(&self.account);
        self.waiting.insert(chat.clone(), Waits::default());
        self.send(chat, async move {
            let roles = account.roles(guild, &user).await;
            let whole = roles.is_some();
            Brought { missed: vec![Missed { message, roles: Some(roles.unwrap_or_default()) }], whole }
        });
        None
    }

    /// Something was lost that can be had when hermes is started again.
    pub(super) fn doubt(&mut self) {
        self.sure = false;
    }

    /// Notes how far everything was heard, and gives what the next start needs to know, if that is more than before.
    pub(super) fn settle(&mut self, bookmark: Option<Bookmark>) -> Option<Bookmark> {
        self.unkept = bookmark.or_else(|| self.unkept.take());
        if !self.sure || !self.waiting.is_empty() || !self.awaited.is_empty() {
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

impl Account {
    /// What was said in a chat after a message, oldest first.
    async fn missed(&self, channel: Id<ChannelMarker>, since: u64) -> Brought {
        let (mut messages, mut after, mut whole) = (Vec::new(), since, true);
        for page in 1..=PAGES {
            let call = Call::get(format!("channels/{channel}/messages"))
                .with_query(format!("after={after}&limit={PAGE}"));
            let found: Vec<Box<RawValue>> = match self.rest.ask_patiently(&call).await {
                Ok(found) => found,
                Err(fault) => {
                    tracing::warn!(%channel, why = fault.why(), "what was missed on Discord could not be fetched");
                    whole = matches!(fault, Fault::Refused { .. } | Fault::Wrong(_));
                    break;
                }
            };
            let is_last = found.len() < PAGE;
            let mut found: Vec<Message> =
                found.iter().filter_map(|json| read("a message", json.get())).collect();
            found.sort_by_key(|message| message.id);
            after = found.last().map_or(after, |message| message.id.get());
            messages.append(&mut found);
            if is_last {
                break;
            }
            if page == PAGES {
                tracing::warn!(%channel, "more was said on Discord than is looked through");
            }
        }
        if messages.is_empty() {
            return Brought { missed: Vec::new(), whole };
        }
        // What is not known to be a direct message must not be taken for one.
        let Some(known) = self.known(channel).await else {
            return Brought { missed: Vec::new(), whole: false };
        };
        let guild = known.guild();
        let roles_of = if known.place().kind == PlaceKind::Dm { self.role_guild() } else { guild };
        let mut missed = Vec::with_capacity(messages.len());
        for mut message in messages {
            message.guild_id = guild;
            let roles = match roles_of {
                Some(guild) if self.is_wanted(&message).await => {
                    let roles = self.roles(guild, &message.author.id.to_string()).await;
                    whole &= roles.is_some();
                    Some(roles.unwrap_or_default())
                }
                _ => None,
            };
            missed.push(Missed { message, roles });
        }
        Brought { missed, whole }
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
