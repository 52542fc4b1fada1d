//! Inbound events: from a gateway event to a stored message.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_types::lock;
use percent_encoding::utf8_percent_encode;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};
use twilight_model::channel::message::MessageFlags;
use twilight_model::http::interaction::InteractionResponseType::{
    self, ChannelMessageWithSource, DeferredChannelMessageWithSource, DeferredUpdateMessage,
};
use twilight_model::http::interaction::{InteractionResponse, InteractionResponseData};
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker};

use super::backlog::Backlog;
use super::channels::{ChannelInfo, new_chat};
use super::outbound::{TOKEN_ESCAPES, created_at};
use super::payload::{InteractionAction, InteractionPayload, MessagePayload};
use super::rest::{ApiError, ApiRequest};
use super::rules::{BotContext, evaluate_message, is_listening_in};
use super::{Bookmark, Discord, slash_commands};
use crate::channel::{ChannelSink, Inbound, InboundEvent};
use crate::message::{ButtonPress, Chat, ChatKind, InboundMessage, InteractionToken, ReplyTarget};

/// Delay before an event that could not be stored is submitted again.
const RESUBMIT_INTERVAL: Duration = Duration::from_secs(1);
/// Discord reports a failure to the user after three seconds.
const ACK_TIMEOUT: Duration = Duration::from_millis(2500);
/// Discord's code for an interaction that was acknowledged before.
const ALREADY_ACKNOWLEDGED: u64 = 40_060;
/// Reply to a command in a channel where the bot does not listen.
const NOT_LISTENING_REPLY: &str = "I'm not listening in this channel.";

/// A gateway event.
pub(super) enum DispatchEvent {
    /// A new session with these servers; earlier messages were not delivered.
    SessionStarted(Vec<Id<GuildMarker>>),
    /// A server, the last message of each channel, and the channels that may have threads.
    GuildAvailable(Id<GuildMarker>, Vec<(Id<ChannelMarker>, u64)>, Vec<Id<ChannelMarker>>),
    MessageCreated(Box<MessagePayload>),
}

type SinkClosed = mpsc::error::SendError<Inbound>;

/// Processes gateway events and missed messages, one after the other.
pub(super) async fn run_dispatcher(
    account: &Arc<Discord>,
    sink: &ChannelSink,
    mut events: mpsc::Receiver<(DispatchEvent, Option<Bookmark>)>,
) {
    let mut dispatcher = Dispatcher {
        account,
        sink,
        backlog: Backlog::new(account),
        bot_streak: HashMap::new(),
        has_registered_commands: false,
    };
    loop {
        let until = dispatcher.backlog.guild_deadline();
        let has_room = dispatcher.backlog.has_capacity();
        let mut bookmark = None;
        let done = tokio::select! {
            (missed, held) = dispatcher.backlog.next_ready() => dispatcher.replay(missed, held).await,
            event = events.recv(), if has_room => {
                let Some((event, channel)) = event else { return };
                bookmark = channel;
                dispatcher.on_event(event).await
            }
            () = tokio::time::sleep_until(until.unwrap_or_else(Instant::now).into()), if until.is_some() => {
                dispatcher.backlog.stop_awaiting_guilds();
                Ok(())
            }
        };
        if done.is_err() {
            return;
        }
        let settled = dispatcher.backlog.advance_bookmark(bookmark);
        if let Some(bookmark) = settled.and_then(|bookmark| serde_json::to_string(&bookmark).ok()) {
            sink.bookmark.send_replace(Some(bookmark));
        }
    }
}

/// Handles a slash command or button press. Discord waits three seconds for the acknowledgment.
pub(super) async fn on_interaction(
    account: Arc<Discord>,
    sink: mpsc::Sender<Inbound>,
    call: InteractionPayload,
) {
    let (Some(channel), Some(action)) = (call.channel_id(), call.action()) else { return };
    let to = InteractionToken { id: call.id.to_string(), token: call.token.clone(), is_acknowledged: false };
    // A command is acknowledged once it is stored. A button press is not stored: the user can press
    // again.
    if let InteractionAction::Button(_) = action
        && !call.is_foreign_context()
        && !account.respond(&to, DeferredUpdateMessage, None).await
    {
        return;
    }
    let chat = match &call.channel {
        Some(known) => known.to_chat(),
        None => account.chat(channel, call.guild_id).await,
    };
    // A user-installed app can be called in chats where the bot is not a member.
    if call.is_foreign_context() || !is_listening_in(&account.settings, &chat) {
        if let InteractionAction::Command(_) = action {
            account.respond(&to, ChannelMessageWithSource, Some(NOT_LISTENING_REPLY)).await;
        }
        return;
    }
    let Some(mut sender) = call.sender() else { return };
    if chat.kind == ChatKind::Dm {
        account.load_dm_roles(&mut sender).await;
    }
    let event = match action {
        InteractionAction::Command(text) => InboundEvent::Message(Box::new(InboundMessage {
            chat,
            sender,
            id: to.id.clone(),
            sent_at: created_at(call.id.get()),
            text,
            attachments: Vec::new(),
            quote: None,
            reply_target: ReplyTarget::SameChat,
            interaction: Some(to),
        })),
        InteractionAction::Button(value) => {
            InboundEvent::ButtonPress(Box::new(ButtonPress { chat, sender, value, interaction: to }))
        }
    };
    // On shutdown, Discord reports the failure.
    submit(&sink, event).await.ok();
}

/// Submits an event until it is stored.
async fn submit(sink: &mpsc::Sender<Inbound>, what: InboundEvent) -> Result<(), SinkClosed> {
    loop {
        let (ack, acknowledged) = oneshot::channel();
        let arrival = Inbound { event: what.clone(), ack };
        sink.send(arrival).await?;
        match acknowledged.await {
            Ok(()) => return Ok(()),
            Err(_) => tokio::time::sleep(RESUBMIT_INTERVAL).await,
        }
    }
}

/// Turns Discord events into inbound messages.
struct Dispatcher<'a> {
    account: &'a Arc<Discord>,
    sink: &'a ChannelSink,
    backlog: Backlog,
    /// Consecutive bot messages, by channel.
    bot_streak: HashMap<String, u32>,
    has_registered_commands: bool,
}

impl Dispatcher<'_> {
    async fn on_event(&mut self, event: DispatchEvent) -> Result<(), SinkClosed> {
        match event {
            DispatchEvent::SessionStarted(guilds) => {
                self.register_commands();
                self.backlog.start_session(guilds);
                Ok(())
            }
            DispatchEvent::GuildAvailable(guild, channels, thread_parents) => {
                self.backlog.on_guild(guild, &channels, thread_parents);
                Ok(())
            }
            DispatchEvent::MessageCreated(message) => self.on_live_message(*message).await,
        }
    }

    fn register_commands(&mut self) {
        if std::mem::replace(&mut self.has_registered_commands, true) {
            return;
        }
        let account = Arc::clone(self.account);
        tokio::spawn(async move {
            if let Err(error) = slash_commands::register(&account).await {
                tracing::warn!(%error, "cannot register slash commands");
            }
        });
    }

    /// Processes the missed messages of a chat, then those that arrived in the meantime.
    async fn replay(
        &mut self,
        missed: Vec<MessagePayload>,
        held: Vec<MessagePayload>,
    ) -> Result<(), SinkClosed> {
        for missed in missed {
            self.on_message(missed).await?;
        }
        for message in held {
            self.on_live_message(message).await?;
        }
        Ok(())
    }

    async fn on_live_message(&mut self, message: MessagePayload) -> Result<(), SinkClosed> {
        match self.backlog.hold_or_release(message) {
            Some(message) => self.on_message(message).await,
            None => Ok(()),
        }
    }

    /// Handles a live or fetched message.
    async fn on_message(&mut self, message: MessagePayload) -> Result<(), SinkClosed> {
        let account = self.account;
        let Some(me) = account.identity() else { return Ok(()) };
        if message.is_by(&me.user) {
            return Ok(());
        }
        let number = message.id.get();
        let chat = message.channel_id.to_string();
        let bot_streak = self.bot_streak.get(&chat).copied().unwrap_or_default();
        let inbound = match account.evaluate(&me.user, &message, bot_streak).await {
            Ok(inbound) => inbound,
            Err(reason) => {
                tracing::trace!(chat, reason, "message ignored");
                if lock(&account.last_seen).contains(&chat) {
                    account.record_last_seen(chat, number);
                }
                return Ok(());
            }
        };
        match inbound.sender.is_bot {
            true => *self.bot_streak.entry(chat.clone()).or_default() += 1,
            false => drop(self.bot_streak.remove(&chat)),
        }
        // Blocks until it is stored; Discord buffers later events.
        submit(&self.sink.inbound, InboundEvent::Message(inbound)).await?;
        account.record_last_seen(chat, number);
        Ok(())
    }
}

impl Discord {
    /// Acknowledges a command. Returns false if Discord already reported a failure to the user.
    pub(super) async fn acknowledge_command(&self, command: &InteractionToken) -> bool {
        let is_accepted = self.respond(command, DeferredChannelMessageWithSource, None).await;
        if is_accepted {
            lock(&self.deferred_interactions).put(command.id.clone(), ());
        }
        is_accepted
    }

    /// Responds to an interaction, visible only to its user. Returns false if Discord already
    /// reported a failure to them.
    async fn respond(
        &self,
        to: &InteractionToken,
        kind: InteractionResponseType,
        text: Option<&str>,
    ) -> bool {
        let data = InteractionResponseData {
            content: text.map(str::to_owned),
            flags: Some(MessageFlags::EPHEMERAL),
            ..InteractionResponseData::default()
        };
        let response = InteractionResponse { kind, data: (kind != DeferredUpdateMessage).then_some(data) };
        let token = utf8_percent_encode(&to.token, TOKEN_ESCAPES);
        let call =
            ApiRequest::post(format!("interactions/{}/{token}/callback", to.id), json!(response)).unsigned();
        let late = |_| Err(ApiError::Unknown("Discord did not respond in time".to_owned()));
        match tokio::time::timeout(ACK_TIMEOUT, self.rest.execute_with_retry(&call))
            .await
            .unwrap_or_else(late)
        {
            Ok(()) | Err(ApiError::Unknown(_)) => true,
            Err(error) if error.code() == Some(ALREADY_ACKNOWLEDGED) => true,
            Err(error) => {
                tracing::warn!(%error, "cannot acknowledge interaction");
                false
            }
        }
    }

    /// Converts a message if it is for the bot, else returns the reason to ignore it.
    pub(super) async fn evaluate(
        &self,
        bot_id: &str,
        message: &MessagePayload,
        bot_streak: u32,
    ) -> Result<Box<InboundMessage>, &'static str> {
        let chat = self.chat(message.channel_id, message.guild_id).await;
        let has_joined = self.has_joined(&chat.id);
        // An unknown server channel is treated as a plain channel.
        let known = self.cached_channel(message.channel_id);
        let can_open_thread = known.is_none_or(|known| known.can_open_thread());
        let context = BotContext { bot_id, has_joined, can_open_thread, bot_streak };
        evaluate_message(&self.settings, context, chat, message)
    }

    /// Looks up a channel, in the cache or with a request.
    pub(super) async fn channel_info(&self, channel: Id<ChannelMarker>) -> Option<ChannelInfo> {
        if let Some(known) = self.cached_channel(channel) {
            return Some(known);
        }
        let call = ApiRequest::get(format!("channels/{channel}"));
        match self.rest.fetch_with_retry::<ChannelInfo>(&call).await {
            Ok(known) => {
                self.cache_channels([known.clone()]);
                Some(known)
            }
            Err(error) => {
                tracing::warn!(%channel, %error, "cannot look up channel");
                None
            }
        }
    }

    async fn chat(&self, channel: Id<ChannelMarker>, guild: Option<Id<GuildMarker>>) -> Chat {
        let known = match guild {
            Some(_) => self.channel_info(channel).await,
            None => self.cached_channel(channel),
        };
        // The bot joins only threads.
        let kind = match guild {
            Some(_) if self.has_joined(&channel.to_string()) => ChatKind::Thread,
            Some(_) => ChatKind::Group,
            None => ChatKind::Dm,
        };
        known.map_or_else(|| new_chat(channel, kind), |known| known.to_chat())
    }
}

/// Parses a payload; logs what cannot be parsed.
pub(super) fn parse_payload<'a, T: Deserialize<'a>>(what: &str, json: &'a str) -> Option<T> {
    let parsed = serde_json::from_str(json);
    parsed.inspect_err(|error| tracing::error!(%error, "cannot parse {what}")).ok()
}

/// Parses listed messages, oldest first.
pub(super) fn parse_messages(found: &[Box<RawValue>]) -> Vec<MessagePayload> {
    let parsed = found.iter().filter_map(|json| parse_payload("a message", json.get()));
    let mut messages: Vec<MessagePayload> = parsed.collect();
    messages.sort_by_key(|message| message.id);
    messages
}
