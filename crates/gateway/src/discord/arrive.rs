//! What comes: from an event of the platform to a letter that is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use reqwest::Method;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use twilight_model::channel::message::MessageFlags;
use twilight_model::http::interaction::{
    InteractionResponse, InteractionResponseData, InteractionResponseType,
};
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker};

use super::backlog::{Backlog, Missed};
use super::payload::{Deed, File, Interaction, Member, Message, User};
use super::places::Known;
use super::post::made_at;
use super::rest::{Call, Fault};
use super::rules::{Mentioned, Place, PlaceKind, Said, Standing, Verdict, judge, listens};
use super::{Account, Bookmark, command, lock};
use crate::channel::{Arrival, Desk, Incoming};
use crate::letter::{
    Attachment, Interaction as Answerable, Letter, Press, Quote, ReplyPlace, RoomKind, Sender,
};

/// How long to wait before a letter is handed in again that could not be kept.
const PAUSE: Duration = Duration::from_secs(1);
/// The longest a person waits to see that a command was heard.
const HEARD: Duration = Duration::from_millis(2500);
/// What somebody is told who uses a command where the bot does not listen.
const DEAF: &str = "I do not listen in this channel.";

/// Something that happened.
#[derive(Debug)]
pub(super) enum Event {
    /// There is a new session, in these servers; what was said before it was not told.
    Began(Vec<Id<GuildMarker>>),
    /// A server, the last message of each of its channels, and those that may have threads.
    Told(Id<GuildMarker>, Vec<(Id<ChannelMarker>, u64)>, Vec<Id<ChannelMarker>>),
    Said(Box<Message>),
    /// A command or a button, and whether the person was told that it was heard.
    Called(Box<Interaction>, JoinHandle<Result<(), Fault>>),
}

/// Nobody takes letters any more.
#[derive(Debug)]
struct Closed;

/// Works through what happens, one after the other.
pub(super) async fn work(
    account: &Arc<Account>,
    desk: &Desk,
    mut events: mpsc::Receiver<(Event, Option<Bookmark>)>,
) {
    let mut clerk =
        Clerk { account, desk, backlog: Backlog::new(account), robots: HashMap::new(), registered: false };
    loop {
        let until = clerk.backlog.waits_until();
        let has_room = clerk.backlog.has_room();
        let mut bookmark = None;
        let done = tokio::select! {
            (missed, held) = clerk.backlog.next() => clerk.make_up(missed, held).await,
            event = events.recv(), if has_room => {
                let Some((event, place)) = event else { return };
                bookmark = place;
                clerk.take(event).await
            }
            () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now).into()), if until.is_some() => {
                clerk.backlog.give_up();
                Ok(())
            }
        };
        if done.is_err() {
            return;
        }
        let settled = clerk.backlog.settle(bookmark);
        if let Some(bookmark) = settled.and_then(|bookmark| serde_json::to_string(&bookmark).ok()) {
            desk.bookmark.send_replace(Some(bookmark));
        }
    }
}

/// Tells the person who pressed or called that it was heard.
pub(super) async fn acknowledge(account: Arc<Account>, call: Answering) -> Result<(), Fault> {
    let response = |kind, data| InteractionResponse { kind, data };
    let hidden = |content| InteractionResponseData {
        content,
        flags: Some(MessageFlags::EPHEMERAL),
        ..InteractionResponseData::default()
    };
    let later = InteractionResponseType::DeferredChannelMessageWithSource;
    let at_once = InteractionResponseType::ChannelMessageWithSource;
    let answer = match call.manner {
        Manner::Command => response(later, Some(hidden(None))),
        Manner::Button => response(InteractionResponseType::DeferredUpdateMessage, None),
        Manner::Deaf => response(at_once, Some(hidden(Some(DEAF.to_owned())))),
    };
    let body = serde_json::to_value(&answer).map_err(|error| Fault::Wrong(error.to_string()))?;
    let path = format!("interactions/{}/{}/callback", call.id, call.token);
    if call.manner == Manner::Command {
        lock(&account.waiting).put(call.id.clone(), ());
    }
    let call = Call::new(Method::POST, path).with_body(body).unsigned();
    let late = |_| Err(Fault::Unknown("Discord did not answer in time".to_owned()));
    tokio::time::timeout(HEARD, account.rest.tell(&call)).await.unwrap_or_else(late)
}

/// Something that wants an answer at once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Answering {
    id: String,
    token: String,
    manner: Manner,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    Command,
    Button,
    Deaf,
}

impl Answering {
    /// How something that was called or pressed is answered, if it is of a kind that the bot offers.
    pub(super) fn new(account: &Account, call: &Interaction) -> Option<Self> {
        // Somebody who has the bot for themselves can call it among others, where it neither hears nor speaks.
        let is_ignored = |channel: &Known| !listens(&account.settings, &channel.place());
        let deaf = call.is_elsewhere() || call.channel().is_some_and(is_ignored);
        let manner = match call.deed()? {
            _ if deaf => Manner::Deaf,
            Deed::Called(_) => Manner::Command,
            Deed::Pressed { .. } => Manner::Button,
        };
        Some(Self { id: call.id.to_string(), token: call.token.clone(), manner })
    }

    /// Whether it is for the gateway.
    pub(super) fn is_heard(&self) -> bool {
        self.manner != Manner::Deaf
    }
}

/// Who turns events into letters.
struct Clerk<'a> {
    account: &'a Arc<Account>,
    desk: &'a Desk,
    backlog: Backlog,
    /// How many messages of bots were heard in a row, by channel.
    robots: HashMap<String, u32>,
    registered: bool,
}

impl Clerk<'_> {
    async fn take(&mut self, event: Event) -> Result<(), Closed> {
        match event {
            Event::Began(guilds) => {
                self.register();
                self.backlog.begin(guilds);
                Ok(())
            }
            Event::Told(guild, channels, halls) => {
                self.backlog.told(guild, &channels, halls);
                Ok(())
            }
            Event::Said(message) => self.listen(*message).await,
            Event::Called(call, heard) => self.take_call(*call, heard).await,
        }
    }

    /// Registers the commands, once.
    fn register(&mut self) {
        if std::mem::replace(&mut self.registered, true) {
            return;
        }
        let account = Arc::clone(self.account);
        tokio::spawn(async move {
            if let Err(fault) = command::register(&account).await {
                tracing::warn!(why = fault.why(), "commands could not be registered with Discord");
            }
        });
    }

    /// Hears what was missed in a chat, and then what came there meanwhile.
    async fn make_up(&mut self, missed: Vec<Missed>, held: Vec<Message>) -> Result<(), Closed> {
        for missed in missed {
            self.hear(missed).await?;
        }
        for message in held {
            self.listen(message).await?;
        }
        Ok(())
    }

    /// A message that just came.
    async fn listen(&mut self, message: Message) -> Result<(), Closed> {
        match self.backlog.pass(message) {
            Some(message) => self.hear(message).await,
            None => Ok(()),
        }
    }

    /// A message, live or fetched.
    async fn hear(&mut self, Missed { message, roles }: Missed) -> Result<(), Closed> {
        let account = self.account;
        let Some(me) = account.me() else { return Ok(()) };
        if message.author.id.to_string() == me.user {
            return Ok(());
        }
        let place = account.place(message.channel_id, message.guild_id).await;
        let number = message.id.get();
        let chat = place.id.clone();
        let standing = Standing {
            bot: &me.user,
            takes_part: account.takes_part(&chat),
            bots_in_a_row: self.robots.get(&chat).copied().unwrap_or_default(),
        };
        let verdict = judge(&account.settings, standing, said(message, place, &me.user));
        let mut letter = match verdict {
            Verdict::Take(letter) => letter,
            Verdict::Drop(why) => {
                tracing::trace!(chat, why, "a message on Discord is not for the bot");
                if lock(&account.last).get(&chat).is_some() {
                    account.reach(chat, number);
                }
                return Ok(());
            }
        };
        match letter.sender.is_bot {
            true => *self.robots.entry(chat.clone()).or_default() += 1,
            false => drop(self.robots.remove(&chat)),
        }
        if let Some(roles) = roles {
            letter.sender.roles = roles;
        }
        self.hand_in(Incoming::Said(letter)).await?;
        account.reach(chat, number);
        Ok(())
    }

    /// A command or a button.
    async fn take_call(
        &mut self,
        call: Interaction,
        heard: JoinHandle<Result<(), Fault>>,
    ) -> Result<(), Closed> {
        // Where the platform tells the person that it failed, nothing may be done.
        match heard.await {
            Ok(Ok(()) | Err(Fault::Unknown(_))) => {}
            Ok(Err(fault)) => {
                tracing::warn!(why = fault.why(), "a command on Discord was told of too late");
                return Ok(());
            }
            Err(error) => {
                tracing::warn!(%error, "a command on Discord could not be answered");
                return Ok(());
            }
        }
        let Some(channel) = call.channel_id() else { return Ok(()) };
        let place = match call.channel() {
            Some(known) => known.place(),
            None => self.account.place(channel, call.guild_id).await,
        };
        let Some(mut incoming) = incoming(&call, &place) else { return Ok(()) };
        if !listens(&self.account.settings, &place) {
            let to = Answerable { id: call.id.to_string(), token: call.token };
            self.account.whisper(&to, DEAF).await;
            return Ok(());
        }
        match &mut incoming {
            Incoming::Said(letter) if letter.room.kind == RoomKind::Dm => {
                self.account.vouch(&mut letter.sender).await;
            }
            Incoming::Pressed(press) if press.room.kind == RoomKind::Dm => {
                self.account.vouch(&mut press.sender).await;
            }
            Incoming::Said(_) | Incoming::Pressed(_) => {}
        }
        self.hand_in(incoming).await
    }

    /// Hands something in until it is kept. Meanwhile nothing else is heard, and the platform keeps what comes.
    async fn hand_in(&mut self, what: Incoming) -> Result<(), Closed> {
        loop {
            let (kept, is_kept) = oneshot::channel();
            let arrival = Arrival { what: what.clone(), kept };
            self.desk.arrivals.send(arrival).await.map_err(|_| Closed)?;
            match is_kept.await {
                Ok(()) => return Ok(()),
                Err(_) => tokio::time::sleep(PAUSE).await,
            }
        }
    }
}

impl Account {
    /// What is known about a channel; the platform is asked if it must be.
    pub(super) async fn known(&self, channel: Id<ChannelMarker>) -> Option<Known> {
        if let Some(known) = lock(&self.places).get(channel) {
            return Some(known.clone());
        }
        let call = Call::get(format!("channels/{channel}"));
        match self.rest.ask_patiently::<Known>(&call).await {
            Ok(known) => {
                lock(&self.places).learn(known.clone());
                Some(known)
            }
            Err(fault) => {
                tracing::warn!(%channel, why = fault.why(), "Discord does not say what a channel is");
                None
            }
        }
    }

    /// Where something was said.
    pub(super) async fn place(&self, channel: Id<ChannelMarker>, guild: Option<Id<GuildMarker>>) -> Place {
        let known = lock(&self.places).get(channel).map(Known::place);
        let known = match (known, guild) {
            (None, Some(_)) => self.known(channel).await.map(|known| known.place()),
            (known, _) => known,
        };
        let id = channel.to_string();
        // In a server it is not less than a channel that nothing is known about, and the bot takes part in threads only.
        let kind = match guild {
            Some(_) if self.takes_part(&id) => PlaceKind::Thread { parent: None },
            Some(_) => PlaceKind::Channel,
            None => PlaceKind::Dm,
        };
        known.unwrap_or(Place { id, kind, name: None })
    }
}

/// Reads something the platform sent; what cannot be read is logged.
pub(super) fn read<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Option<T> {
    let parsed = serde_json::from_str(json);
    parsed.inspect_err(|error| tracing::error!(%error, "{what} from Discord cannot be read")).ok()
}

pub(super) fn said(message: Message, place: Place, bot: &str) -> Said {
    let quote = message.referenced_message.as_deref();
    let forwarded = message.forwarded();
    let files = message.attachments.iter();
    let files = files.chain(forwarded.clone().flat_map(|message| &message.attachments));
    let files = files.chain(quote.into_iter().flat_map(|message| &message.attachments));
    Said {
        place,
        sender: sender(&message.author, message.member.as_ref(), message.is_hook()),
        message: message.id.to_string(),
        sent: message.sent(),
        kind: message.kind,
        mentions: message.mentions.iter().map(mentioned).collect(),
        files: files.map(attachment).collect(),
        quote: quote.map(|quote| Quote {
            message: quote.id.to_string(),
            text: quote.content.clone(),
            is_ours: quote.author.id.to_string() == bot,
        }),
        forwarded: forwarded.map(|message| message.content.clone()).collect(),
        content: message.content,
    }
}

fn mentioned(mention: &User) -> Mentioned {
    Mentioned { id: mention.id.to_string(), is_bot: mention.bot }
}

fn attachment(file: &File) -> Attachment {
    Attachment {
        name: file.filename.clone().unwrap_or_else(|| "file".to_owned()),
        size: file.size,
        media_type: file.content_type.clone(),
        source: file.url.clone(),
    }
}

pub(super) fn sender(user: &User, member: Option<&Member>, is_hook: bool) -> Sender {
    Sender {
        id: user.id.to_string(),
        name: user.name(member),
        is_bot: user.bot || is_hook,
        roles: member.map(Member::roles).unwrap_or_default(),
    }
}

/// What a command or a button is for the rest of the gateway.
fn incoming(call: &Interaction, place: &Place) -> Option<Incoming> {
    let room = place.room();
    let sender = sender(call.author()?, call.member.as_ref(), false);
    let interaction = Answerable { id: call.id.to_string(), token: call.token.clone() };
    Some(match call.deed()? {
        Deed::Called(text) => Incoming::Said(Box::new(Letter {
            room,
            sender,
            message: interaction.id.clone(),
            sent: made_at(call.id.get()),
            text,
            files: Vec::new(),
            quote: None,
            reply: ReplyPlace::Here,
            interaction: Some(interaction),
        })),
        Deed::Pressed { message, value } => Incoming::Pressed(Box::new(Press {
            room,
            sender,
            message: message.to_string(),
            value,
            interaction,
        })),
    })
}
