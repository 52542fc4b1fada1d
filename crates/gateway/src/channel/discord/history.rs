//! Earlier messages of a chat, as context.

use serde_json::value::RawValue;
use twilight_model::channel::message::MessageType;

use super::Discord;
use super::inbound::parse_messages;
use super::payload::MessagePayload;
use super::rest::ApiRequest;
use super::rules::requires_mention;
use crate::access::BotPolicy;
use crate::message::{ChatKind, ContextMessage, InboundMessage};

const MAX_CONTEXT_MESSAGES: u64 = 100;

impl Discord {
    /// Messages between the bot's last message and this one, oldest first. Empty in direct
    /// messages, where the bot receives everything, and in a thread just opened for the reply.
    pub(super) async fn context_before(&self, inbound: &InboundMessage) -> Vec<ContextMessage> {
        let limit = self.settings.history.min(MAX_CONTEXT_MESSAGES);
        let chat = &inbound.chat;
        let is_fresh = chat.thread.as_deref() == Some(inbound.id.as_str());
        if limit == 0 || is_fresh || inbound.interaction.is_some() || !self.requires_mention_in(inbound) {
            return Vec::new();
        }
        let (Some(me), Ok(channel), Ok(message)) =
            (self.identity(), chat.id.parse::<u64>(), inbound.id.parse::<u64>())
        else {
            return Vec::new();
        };
        let call = ApiRequest::get(format!("channels/{channel}/messages?before={message}&limit={limit}"));
        let found: Vec<Box<RawValue>> = match self.rest.fetch(&call).await {
            Ok(found) => found,
            Err(error) => {
                tracing::warn!(%error, "cannot fetch context messages");
                return Vec::new();
            }
        };
        let messages = parse_messages(&found);
        let mut context: Vec<ContextMessage> = messages
            .iter()
            .rev()
            .filter(|message| is_user_message(message.kind))
            .take_while(|message| !message.is_by(&me.user))
            .filter_map(|message| self.context_message(message))
            .collect();
        context.reverse();
        context
    }

    /// Whether the bot receives only messages that mention it.
    fn requires_mention_in(&self, inbound: &InboundMessage) -> bool {
        let chat = &inbound.chat;
        match chat.kind {
            ChatKind::Dm => false,
            ChatKind::Thread => true,
            ChatKind::Group => requires_mention(&self.settings, chat),
        }
    }

    fn context_message(&self, message: &MessagePayload) -> Option<ContextMessage> {
        let sender = message.sender();
        let is_included = !sender.is_bot || self.settings.allow_bots != BotPolicy::None;
        let text = match (message.content.trim(), message.attachments.len()) {
            ("", 0) => return None,
            ("", 1) => "(a file)".to_owned(),
            ("", count) => format!("({count} files)"),
            (content, _) => content.to_owned(),
        };
        is_included.then(|| ContextMessage { id: message.id.to_string(), author: sender.name, text })
    }
}

/// Whether a user wrote it; false for system messages.
fn is_user_message(kind: MessageType) -> bool {
    matches!(kind, MessageType::Regular | MessageType::Reply | MessageType::ChatInputCommand)
}
