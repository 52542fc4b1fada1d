//! Which messages are for the bot, and what becomes of them. Nothing here asks or does anything.

use hermes_types::Timestamp;
use twilight_model::channel::message::MessageType;

use super::settings::{Bots, Override, Settings};
use super::text;
use crate::letter::{Attachment, Letter, Platform, Quote, ReplyPlace, Room, RoomKind, Sender};

/// How many messages of other bots are heard in a channel before a person has to say something.
pub(super) const BOTS_IN_A_ROW: u32 = 10;

/// What stands for the words of a message that has none.
const WORDLESS: &str = "(a message without any text)";

/// A message, with what has to be known to judge it.
#[derive(Debug, Clone)]
pub(super) struct Said {
    pub(super) place: Place,
    pub(super) sender: Sender,
    pub(super) message: String,
    pub(super) sent: Timestamp,
    pub(super) kind: MessageType,
    pub(super) content: String,
    /// Whom it mentions, as the platform says.
    pub(super) mentions: Vec<Mentioned>,
    pub(super) files: Vec<Attachment>,
    pub(super) quote: Option<Quote>,
    /// What was forwarded with it.
    pub(super) forwarded: Vec<String>,
}

/// Where something was said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) id: String,
    pub(super) kind: PlaceKind,
    pub(super) name: Option<String>,
}

/// What kind of place it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PlaceKind {
    /// Between a person and the bot.
    Dm,
    /// A channel of a server in which threads can be opened.
    Channel,
    /// A channel of a server in which they cannot.
    Threadless,
    /// A thread of a channel.
    Thread {
        /// The channel.
        parent: Option<String>,
    },
}

impl Place {
    fn parent(&self) -> Option<&str> {
        match &self.kind {
            PlaceKind::Thread { parent } => parent.as_deref(),
            PlaceKind::Dm | PlaceKind::Channel | PlaceKind::Threadless => None,
        }
    }

    fn is_dm(&self) -> bool {
        self.kind == PlaceKind::Dm
    }

    /// The room it is for the rest of the gateway.
    pub(super) fn room(&self) -> Room {
        let (kind, thread) = match &self.kind {
            PlaceKind::Dm => (RoomKind::Dm, None),
            PlaceKind::Channel | PlaceKind::Threadless => (RoomKind::Group, None),
            PlaceKind::Thread { .. } => (RoomKind::Thread, Some(self.id.clone())),
        };
        Room {
            platform: Platform::Discord,
            kind,
            chat: self.id.clone(),
            thread,
            parent: self.parent().map(str::to_owned),
            name: self.name.clone(),
        }
    }
}

/// Somebody who is mentioned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mentioned {
    pub(super) id: String,
    pub(super) is_bot: bool,
}

/// What the bot knows about itself there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Standing<'a> {
    /// Its own id.
    pub(super) bot: &'a str,
    /// Whether it takes part in the thread.
    pub(super) takes_part: bool,
    /// How many messages of bots were heard there since a person said something.
    pub(super) bots_in_a_row: u32,
}

/// What becomes of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is for the bot.
    Take(Box<Letter>),
    /// It is not, and why.
    Drop(&'static str),
}

/// Decides about a message.
pub(super) fn judge(settings: &Settings, standing: Standing<'_>, said: Said) -> Verdict {
    let mentioned = is_mentioned(&said, standing.bot);
    if let Some(why) = refusal(settings, standing, &said, mentioned) {
        return Verdict::Drop(why);
    }
    let mut words = match mentioned {
        true => text::without_mention(&said.content, standing.bot),
        false => said.content.trim().to_owned(),
    };
    let reply = match wants_thread(settings, &said) {
        true => ReplyPlace::Thread(text::thread_name(&words)),
        false => ReplyPlace::Here,
    };
    for forwarded in said.forwarded.iter().filter(|text| !text.trim().is_empty()) {
        // Somebody else's words: no line of them can pass for one of whoever forwards them.
        let quoted: Vec<String> = forwarded.trim().lines().map(|line| format!("> {line}")).collect();
        words = format!("{words}\n\nForwarded message:\n{}", quoted.join("\n")).trim_start().to_owned();
    }
    if words.is_empty() && said.files.is_empty() {
        words = WORDLESS.to_owned();
    }
    Verdict::Take(Box::new(Letter {
        room: said.place.room(),
        sender: said.sender,
        message: said.message,
        sent: said.sent,
        text: words,
        files: said.files,
        quote: said.quote,
        reply,
        interaction: None,
    }))
}

/// Whether the bot listens in a place at all.
pub(super) fn listens(settings: &Settings, place: &Place) -> bool {
    let (id, parent) = (place.id.as_str(), place.parent());
    let allowed = settings.allowed_channels.is_empty() || settings.allowed_channels.name(id, parent);
    place.is_dm() || (allowed && !settings.ignored_channels.name(id, parent))
}

/// Why a message is not for the bot, in the order of the questions.
fn refusal(
    settings: &Settings,
    standing: Standing<'_>,
    said: &Said,
    mentioned: bool,
) -> Option<&'static str> {
    let place = &said.place;
    let is_free = settings.free_response_channels.name(&place.id, place.parent());
    let others = || said.mentions.iter().filter(|other| other.id != standing.bot);
    if said.sender.id == standing.bot {
        return Some("the bot said it");
    }
    if !matches!(said.kind, MessageType::Regular | MessageType::Reply) {
        return Some("nobody said it");
    }
    if said.sender.is_bot {
        match settings.allow_bots {
            Bots::None => return Some("a bot said it"),
            Bots::Mentions if !mentioned => return Some("a bot said it to somebody else"),
            _ if standing.bots_in_a_row >= BOTS_IN_A_ROW => return Some("bots have talked long enough"),
            Bots::Mentions | Bots::All => {}
        }
    }
    if place.is_dm() {
        return None;
    }
    if !mentioned && others().any(|other| other.is_bot) {
        return Some("it is for another bot");
    }
    if settings.ignore_no_mention && !mentioned && !is_free && others().next().is_some() {
        return Some("it is for somebody else");
    }
    if !listens(settings, place) {
        return Some("the bot does not listen there");
    }
    if needs_mention(settings, standing, place) && !mentioned {
        return Some("the bot was not mentioned");
    }
    None
}

/// Whether whoever wants something of the bot in a channel has to call it.
pub(super) fn needs_call(settings: &Settings, place: &Place) -> bool {
    let is_free = settings.free_response_channels.name(&place.id, place.parent());
    overridden(settings, place, |different| different.require_mention)
        .unwrap_or(settings.require_mention && !is_free)
}

fn needs_mention(settings: &Settings, standing: Standing<'_>, place: &Place) -> bool {
    let joined = standing.takes_part && matches!(place.kind, PlaceKind::Thread { .. });
    let again = overridden(settings, place, |different| different.thread_require_mention);
    needs_call(settings, place) && (!joined || again.unwrap_or(settings.thread_require_mention))
}

fn wants_thread(settings: &Settings, said: &Said) -> bool {
    let id = said.place.id.as_str();
    let usual = settings.auto_thread
        && !settings.free_response_channels.name(id, None)
        && !settings.no_thread_channels.name(id, None)
        && said.kind != MessageType::Reply;
    let chosen = overridden(settings, &said.place, |different| different.auto_thread);
    said.place.kind == PlaceKind::Channel && chosen.unwrap_or(usual)
}

/// What an owner chose for a place, or for the channel of a thread.
fn overridden<T>(settings: &Settings, place: &Place, what: impl Fn(&Override) -> Option<T>) -> Option<T> {
    let of = |id: &str| settings.overrides.get(id).and_then(&what);
    of(&place.id).or_else(|| place.parent().and_then(of))
}

/// Whether the bot is called by name: the platform says so, or it stands in the words outside of code.
fn is_mentioned(said: &Said, bot: &str) -> bool {
    said.mentions.iter().any(|mention| mention.id == bot) || text::mentions(&said.content, bot)
}

#[cfg(test)]
mod tests;
