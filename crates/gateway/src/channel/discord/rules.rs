//! Decides which messages are for the bot. No I/O.

use twilight_model::channel::message::MessageType;

use super::payload::{AttachmentPayload, MessagePayload};
use super::settings::{ChannelOverride, DiscordSettings};
use super::text;
use crate::access::BotPolicy;
use crate::message::{Chat, ChatKind, InboundMessage, Quote, ReplyTarget};

/// Bot messages in a row after which a person has to write first.
pub(super) const MAX_BOT_STREAK: u32 = 10;

/// Text of a message that has none.
const EMPTY_MESSAGE_TEXT: &str = "(message without text)";

/// The bot's own situation in a chat.
#[derive(Debug, Clone, Copy)]
pub(super) struct BotContext<'a> {
    pub(super) bot_id: &'a str,
    pub(super) has_joined: bool,
    pub(super) can_open_thread: bool,
    pub(super) bot_streak: u32,
}

/// Decides whether a message is for the bot, and converts it. The error is the reason to ignore it.
pub(super) fn evaluate_message(
    settings: &DiscordSettings,
    context: BotContext<'_>,
    chat: Chat,
    message: &MessagePayload,
) -> Result<Box<InboundMessage>, &'static str> {
    let mentioned = message.mentions.iter().any(|mention| mention.id.to_string() == context.bot_id)
        || text::has_mention(&message.content, context.bot_id);
    if let Some(reason) = ignore_reason(settings, context, &chat, message, mentioned) {
        return Err(reason);
    }
    let mut text_body = match mentioned {
        true => text::strip_mention(&message.content, context.bot_id),
        false => message.content.trim().to_owned(),
    };
    let reply_target = match context.can_open_thread && wants_thread(settings, &chat, message.kind) {
        true => ReplyTarget::NewThread(text::thread_name(&text_body)),
        false => ReplyTarget::SameChat,
    };
    for forwarded in message.forwarded().filter(|forwarded| !forwarded.content.trim().is_empty()) {
        // Quote every line, so that forwarded text cannot pass for the sender's.
        let quoted: Vec<String> = forwarded.content.trim().lines().map(|line| format!("> {line}")).collect();
        text_body =
            format!("{text_body}\n\nForwarded message:\n{}", quoted.join("\n")).trim_start().to_owned();
    }
    let quote = message.referenced_message.as_deref();
    let files = message.attachments.iter();
    let files = files.chain(message.forwarded().flat_map(|forwarded| &forwarded.attachments));
    let files = files.chain(quote.into_iter().flat_map(|quote| &quote.attachments));
    let attachments: Vec<_> = files.map(AttachmentPayload::to_attachment).collect();
    if text_body.is_empty() && attachments.is_empty() {
        text_body = EMPTY_MESSAGE_TEXT.to_owned();
    }
    Ok(Box::new(InboundMessage {
        chat,
        sender: message.sender(),
        id: message.id.to_string(),
        sent_at: message.sent_at(),
        text: text_body,
        attachments,
        quote: quote.map(|quote| Quote {
            id: quote.id.to_string(),
            text: quote.content.clone(),
            is_ours: quote.is_by(context.bot_id),
        }),
        reply_target,
        interaction: None,
    }))
}

pub(super) fn is_listening_in(settings: &DiscordSettings, chat: &Chat) -> bool {
    let (id, parent) = (chat.id.as_str(), chat.parent.as_deref());
    let allowed = settings.allowed_channels.is_empty() || settings.allowed_channels.contains(id, parent);
    chat.kind == ChatKind::Dm || (allowed && !settings.ignored_channels.contains(id, parent))
}

/// Why a message is ignored; the first reason counts.
fn ignore_reason(
    settings: &DiscordSettings,
    context: BotContext<'_>,
    chat: &Chat,
    message: &MessagePayload,
    mentioned: bool,
) -> Option<&'static str> {
    let is_free = is_free_response(settings, chat);
    let others = || message.mentions.iter().filter(|other| other.id.to_string() != context.bot_id);
    if message.is_by(context.bot_id) {
        return Some("sent by this bot");
    }
    if !matches!(message.kind, MessageType::Regular | MessageType::Reply) {
        return Some("system message");
    }
    if message.is_bot() {
        match settings.allow_bots {
            BotPolicy::None => return Some("bot message"),
            BotPolicy::Mentions if !mentioned => return Some("bot message that does not mention this bot"),
            _ if context.bot_streak >= MAX_BOT_STREAK => return Some("too many bot messages in a row"),
            BotPolicy::Mentions | BotPolicy::All => {}
        }
    }
    if chat.kind == ChatKind::Dm {
        return None;
    }
    if !mentioned && others().any(|other| other.bot) {
        return Some("mentions another bot");
    }
    if settings.ignore_no_mention && !mentioned && !is_free && others().next().is_some() {
        return Some("mentions only others");
    }
    if !is_listening_in(settings, chat) {
        return Some("channel is not listened to");
    }
    let joined = context.has_joined && chat.kind == ChatKind::Thread;
    let again = channel_override(settings, chat, |chosen| chosen.thread_require_mention);
    let is_required = !joined || again.unwrap_or(settings.thread_require_mention);
    if !mentioned && is_required && requires_mention(settings, chat) {
        return Some("bot not mentioned");
    }
    None
}

/// Whether the bot must be mentioned in a chat that it has not joined.
pub(super) fn requires_mention(settings: &DiscordSettings, chat: &Chat) -> bool {
    channel_override(settings, chat, |chosen| chosen.require_mention)
        .unwrap_or(settings.require_mention && !is_free_response(settings, chat))
}

fn is_free_response(settings: &DiscordSettings, chat: &Chat) -> bool {
    settings.free_response_channels.contains(&chat.id, chat.parent.as_deref())
}

fn wants_thread(settings: &DiscordSettings, chat: &Chat, kind: MessageType) -> bool {
    let usual = settings.auto_thread
        && !is_free_response(settings, chat)
        && !settings.no_thread_channels.contains(&chat.id, None)
        && kind != MessageType::Reply;
    let chosen = channel_override(settings, chat, |chosen| chosen.auto_thread);
    chat.kind == ChatKind::Group && chosen.unwrap_or(usual)
}

/// The override of a channel, or of a thread's parent.
fn channel_override<T>(
    settings: &DiscordSettings,
    chat: &Chat,
    what: impl Fn(&ChannelOverride) -> Option<T>,
) -> Option<T> {
    let of = |id: &str| settings.overrides.get(id).and_then(&what);
    of(&chat.id).or_else(|| chat.parent.as_deref().and_then(of))
}

#[cfg(test)]
pub(super) mod tests;
