//! Decides which messages are for the bot. No I/O.

use hermes_types::Timestamp;
use twilight_model::channel::message::MessageType;

use super::settings::{ChannelOverride, DiscordSettings};
use super::text;
use crate::access::BotPolicy;
use crate::message::{Attachment, Chat, ChatKind, InboundMessage, Platform, Quote, ReplyTarget, Sender};

/// Bot messages in a row after which a person has to write first.
pub(super) const MAX_BOT_STREAK: u32 = 10;

/// Text of a message that has none.
const EMPTY_MESSAGE_TEXT: &str = "(message without text)";

/// A message, with what is needed to decide about it.
#[derive(Debug, Clone)]
pub(super) struct CandidateMessage {
    pub(super) channel: ChannelRef,
    pub(super) sender: Sender,
    pub(super) message: String,
    pub(super) sent: Timestamp,
    pub(super) kind: MessageType,
    pub(super) content: String,
    pub(super) mentions: Vec<Mention>,
    pub(super) files: Vec<Attachment>,
    pub(super) quote: Option<Quote>,
    pub(super) forwarded: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ChannelRef {
    pub(super) id: String,
    pub(super) kind: ChannelKind,
    pub(super) name: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChannelKind {
    Dm,
    /// A server channel that can have threads.
    Channel,
    /// A server channel that cannot.
    NoThreads,
    Thread {
        parent: Option<String>,
    },
}

impl ChannelRef {
    fn parent(&self) -> Option<&str> {
        match &self.kind {
            ChannelKind::Thread { parent } => parent.as_deref(),
            ChannelKind::Dm | ChannelKind::Channel | ChannelKind::NoThreads => None,
        }
    }

    fn is_dm(&self) -> bool {
        self.kind == ChannelKind::Dm
    }

    pub(super) fn to_chat(&self) -> Chat {
        let (kind, thread) = match &self.kind {
            ChannelKind::Dm => (ChatKind::Dm, None),
            ChannelKind::Channel | ChannelKind::NoThreads => (ChatKind::Group, None),
            ChannelKind::Thread { .. } => (ChatKind::Thread, Some(self.id.clone())),
        };
        Chat {
            platform: Platform::Discord,
            kind,
            id: self.id.clone(),
            thread,
            parent: self.parent().map(str::to_owned),
            name: self.name.clone(),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) id: String,
    pub(super) is_bot: bool,
}

/// The bot's own situation in a channel.
#[derive(Debug, Clone, Copy)]
pub(super) struct BotContext<'a> {
    pub(super) bot_id: &'a str,
    pub(super) has_joined: bool,
    pub(super) bot_streak: u32,
}

/// Whether a message is for the bot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum MessageDecision {
    Accept(Box<InboundMessage>),
    Ignore(&'static str),
}

/// Decides whether a message is for the bot, and converts it.
pub(super) fn evaluate_message(
    settings: &DiscordSettings,
    context: BotContext<'_>,
    candidate: CandidateMessage,
) -> MessageDecision {
    let mentioned = is_mentioned(&candidate, context.bot_id);
    if let Some(reason) = ignore_reason(settings, context, &candidate, mentioned) {
        return MessageDecision::Ignore(reason);
    }
    let mut text_body = match mentioned {
        true => text::strip_mention(&candidate.content, context.bot_id),
        false => candidate.content.trim().to_owned(),
    };
    let reply = match wants_thread(settings, &candidate) {
        true => ReplyTarget::NewThread(text::thread_name(&text_body)),
        false => ReplyTarget::SameChat,
    };
    for forwarded in candidate.forwarded.iter().filter(|text| !text.trim().is_empty()) {
        // Quote every line, so that forwarded text cannot pass for the sender's.
        let quoted: Vec<String> = forwarded.trim().lines().map(|line| format!("> {line}")).collect();
        text_body =
            format!("{text_body}\n\nForwarded message:\n{}", quoted.join("\n")).trim_start().to_owned();
    }
    if text_body.is_empty() && candidate.files.is_empty() {
        text_body = EMPTY_MESSAGE_TEXT.to_owned();
    }
    MessageDecision::Accept(Box::new(InboundMessage {
        chat: candidate.channel.to_chat(),
        sender: candidate.sender,
        id: candidate.message,
        sent_at: candidate.sent,
        text: text_body,
        attachments: candidate.files,
        quote: candidate.quote,
        reply_target: reply,
        interaction: None,
    }))
}

pub(super) fn is_listening_in(settings: &DiscordSettings, channel: &ChannelRef) -> bool {
    let (id, parent) = (channel.id.as_str(), channel.parent());
    let allowed = settings.allowed_channels.is_empty() || settings.allowed_channels.contains(id, parent);
    channel.is_dm() || (allowed && !settings.ignored_channels.contains(id, parent))
}

/// Why a message is ignored; the first reason counts.
fn ignore_reason(
    settings: &DiscordSettings,
    context: BotContext<'_>,
    candidate: &CandidateMessage,
    mentioned: bool,
) -> Option<&'static str> {
    let channel = &candidate.channel;
    let is_free = settings.free_response_channels.contains(&channel.id, channel.parent());
    let others = || candidate.mentions.iter().filter(|other| other.id != context.bot_id);
    if candidate.sender.id == context.bot_id {
        return Some("sent by this bot");
    }
    if !matches!(candidate.kind, MessageType::Regular | MessageType::Reply) {
        return Some("system message");
    }
    if candidate.sender.is_bot {
        match settings.allow_bots {
            BotPolicy::None => return Some("bot message"),
            BotPolicy::Mentions if !mentioned => return Some("bot message that does not mention this bot"),
            _ if context.bot_streak >= MAX_BOT_STREAK => return Some("too many bot messages in a row"),
            BotPolicy::Mentions | BotPolicy::All => {}
        }
    }
    if channel.is_dm() {
        return None;
    }
    if !mentioned && others().any(|other| other.is_bot) {
        return Some("mentions another bot");
    }
    if settings.ignore_no_mention && !mentioned && !is_free && others().next().is_some() {
        return Some("mentions only others");
    }
    if !is_listening_in(settings, channel) {
        return Some("channel is not listened to");
    }
    if requires_mention_now(settings, context, channel) && !mentioned {
        return Some("bot not mentioned");
    }
    None
}

/// Whether the bot must be mentioned in a channel.
pub(super) fn requires_mention(settings: &DiscordSettings, channel: &ChannelRef) -> bool {
    let is_free = settings.free_response_channels.contains(&channel.id, channel.parent());
    channel_override(settings, channel, |chosen| chosen.require_mention)
        .unwrap_or(settings.require_mention && !is_free)
}

fn requires_mention_now(settings: &DiscordSettings, context: BotContext<'_>, channel: &ChannelRef) -> bool {
    let joined = context.has_joined && matches!(channel.kind, ChannelKind::Thread { .. });
    let again = channel_override(settings, channel, |chosen| chosen.thread_require_mention);
    requires_mention(settings, channel) && (!joined || again.unwrap_or(settings.thread_require_mention))
}

fn wants_thread(settings: &DiscordSettings, candidate: &CandidateMessage) -> bool {
    let id = candidate.channel.id.as_str();
    let usual = settings.auto_thread
        && !settings.free_response_channels.contains(id, None)
        && !settings.no_thread_channels.contains(id, None)
        && candidate.kind != MessageType::Reply;
    let chosen = channel_override(settings, &candidate.channel, |chosen| chosen.auto_thread);
    candidate.channel.kind == ChannelKind::Channel && chosen.unwrap_or(usual)
}

/// The override of a channel, or of a thread's parent.
fn channel_override<T>(
    settings: &DiscordSettings,
    channel: &ChannelRef,
    what: impl Fn(&ChannelOverride) -> Option<T>,
) -> Option<T> {
    let of = |id: &str| settings.overrides.get(id).and_then(&what);
    of(&channel.id).or_else(|| channel.parent().and_then(of))
}

/// Whether the bot is mentioned, as Discord reports it or in the text outside of code.
fn is_mentioned(candidate: &CandidateMessage, bot: &str) -> bool {
    candidate.mentions.iter().any(|mention| mention.id == bot) || text::has_mention(&candidate.content, bot)
}

#[cfg(test)]
mod tests;
