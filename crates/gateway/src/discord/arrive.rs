//! What comes: from an event of the platform to a letter that is kept.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use twilight_model::channel::message::MessageFlags;
use twilight_model::http::interaction::InteractionResponseType::{
    self, ChannelMessageWithSource, DeferredChannelMessageWithSource, DeferredUpdateMessage,
};
use twilight_model::http::interaction::{InteractionResponse, InteractionResponseData};
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker};

use super::backlog::{Backlog, Missed};
use super::payload::{Deed, File, Interaction, Member, Message, User};
use super::places::Known;
use super::post::{NON_TOKEN, made_at};
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
/// Somebody was answered already.
const ANSWERED: u64 = 40_060;
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

/// Takes a command or a button. Whoever used it waits three seconds, whatever else is to be done.
pub(super) async fn take_call(account: Arc<Account>, desk: mpsc::Sender<Arrival>, call: Interaction) {
    let (Some(channel), Some(deed)) = (call.channel_id(), call.deed()) else { return };
    let to = Answerable { id: call.id.to_string(), token: call.token.clone(), is_heard: false };
    // A command is heard when it is kept. A press is all there is of it: it can be done again.
    if let Deed::Pressed { .. } = deed
        && !call.is_elsewhere()
        && !account.answer(&to, DeferredUpdateMessage, None).await
    {
        return;
    }
    let place = match call.channel() {
        Some(known) => known.place(),
        None => account.place(channel, call.guild_id).await,
    };
    // Somebody who has the bot for themselves can call it among others, where it neither hears nor speaks.
    if call.is_elsewhere() || !listens(&account.settings, &place) {
        if let Deed::Called(_) = deed {
            account.answer(&to, ChannelMessageWithSource, Some(DEAF)).await;
        }
        return;
    }
    let Some(mut incoming) = incoming(&call, &place, to, deed) else { return };
    let (room, sender) = match &mut incoming {
        Incoming::Said(letter) => (&letter.room, &mut letter.sender),
        Incoming::Pressed(press) => (&press.room, &mut press.sender),
    };
    if room.kind == RoomKind::Dm {
        account.vouch(sender).await;
    }
    // Where nobody takes it any more, the platform tells them.
    hand_in(&desk, incoming).await.ok();
}

/// Hands something in until it is kept.
async fn hand_in(desk: &mpsc::Sender<Arrival>, what: Incoming) -> Result<(), Closed> {
    loop {
        let (kept, is_kept) = oneshot::channel();
        let arrival = Arrival { what: what.clone(), kept };
        desk.send(arrival).await.map_err(|_| Closed)?;
        match is_kept.await {
            Ok(()) => return Ok(()),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
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
        // Meanwhile nothing else is heard, and the platform keeps what comes.
        hand_in(&self.desk.arrivals, Incoming::Said(letter)).await?;
        account.reach(chat, number);
        Ok(())
    }
}

impl Account {
    /// Tells whoever used a command that it is heard, or was, unless Discord told them that it failed.
    pub(super) async fn hear(&self, command: &Answerable) -> bool {
        let is_heard = self.answer(command, DeferredChannelMessageWithSource, None).await;
        if is_heard {
            lock(&self.waiting).put(command.id.clone(), ());
        }
        is_heard
    }

    /// Answers whoever called or pressed, with words that only they see. False if Discord tells them that it failed.
    async fn answer(&self, to: &Answerable, kind: InteractionResponseType, words: Option<&str>) -> bool {
        let data = InteractionResponseData {
            content: words.map(str::to_owned),
            flags: Some(MessageFlags::EPHEMERAL),
            ..InteractionResponseData::default()
        };
        let response = InteractionResponse { kind, data: (kind != DeferredUpdateMessage).then_some(data) };
        let token = utf8_percent_encode(&to.token, NON_TOKEN);
        let call = Call::post(format!("interactions/{}/{token}/callback", to.id), json!(response)).unsigned();
        let late = |_| Err(Fault::Unknown("Discord did not answer in time".to_owned()));
        match tokio::time::timeout(HEARD, self.rest.insist(&call)).await.unwrap_or_else(late) {
            Ok(()) | Err(Fault::Unknown(_)) => true,
            Err(fault) if fault.code() == Some(ANSWERED) => true,
            Err(fault) => {
                tracing::warn!(why = fault.why(), "a command on Discord was told of too late");
                false
            }
        }
    }

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
fn incoming(call: &Interaction, place: &Place, interaction: Answerable, deed: Deed) -> Option<Incoming> {
    let room = place.room();
    let sender = sender(call.author()?, call.member.as_ref(), false);
    Some(match deed {
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
