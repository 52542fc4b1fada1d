//! Outbound operations: messages, edits, threads, reactions, private replies.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hermes_types::{Timestamp, lock};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};
use twilight_model::channel::message::MessageFlags;
use twilight_model::channel::message::component::{ButtonStyle, ComponentType};
use twilight_model::id::Id;
use twilight_model::id::marker::ChannelMarker;

use super::Discord;
use super::channels::ChannelInfo;
use super::payload::{CreatedObject, MessagePayload, WithId};
use super::rest::{ApiError, ApiRequest};
use super::settings::ReplyMode;
use crate::channel::{self, AttachmentFile, DeliveryCheck, OutboundMessage, Reaction, SendError};
use crate::message::{Chat, ChatKind, InboundMessage, InteractionToken};

const MAX_MESSAGE_CHARS: usize = 2000;
const MAX_NONCE_CHARS: usize = 25;
const SEARCH_LIMIT: usize = 100;
const THREAD_EXISTS_CODE: u64 = 160_004;
const NOT_A_TEXT_CHANNEL_CODE: u64 = 50_008;
pub(super) const AUTO_ARCHIVE_MINUTES: u32 = 1440;
/// How far back to look for a message without a record of its first attempt.
const DEFAULT_SEARCH_WINDOW: Duration = Duration::from_secs(15 * 60);
/// How long an edit without response may still take effect.
const EDIT_SETTLE_TIME: Duration = Duration::from_secs(60);
/// First check of an uncertain edit; the delay doubles each time.
const FIRST_CHECK_DELAY: Duration = Duration::from_secs(2);
pub(super) const CLOCK_SKEW: Duration = Duration::from_secs(120);
const DISCORD_EPOCH_MILLIS: u64 = 1_420_070_400_000;
/// Ids below this age are counters of test servers, not snowflakes.
const MIN_SNOWFLAKE_MILLIS: u64 = 365 * 24 * 3_600 * 1000;

/// What is known about a message we sent or tried to send.
#[derive(Debug, Clone, Default)]
pub(super) struct SendRecord {
    /// `None` if we only received its event.
    first_attempt: Option<SystemTime>,
    id: Option<String>,
}

impl Discord {
    pub(super) async fn send_message(
        &self,
        chat: &str,
        outbound: &OutboundMessage,
        mark: &str,
    ) -> Result<String, SendError> {
        let nonce = nonce(mark);
        let known = {
            let mut sent = lock(&self.sent_messages);
            let record = sent.get_or_insert_mut(nonce.clone(), SendRecord::default);
            record.first_attempt.get_or_insert_with(SystemTime::now);
            record.id.clone()
        };
        if let Some(id) = known {
            return Ok(id);
        }
        let channel = parse_id(chat)?;
        let mut body = self.message_body(outbound);
        if !outbound.files.is_empty() {
            let named = outbound.files.iter().enumerate();
            body["attachments"] = named.map(|(id, file)| json!({"id": id, "filename": file.name})).collect();
        }
        let made = match self.is_forum(channel) {
            true => self.create_post(channel, outbound, body).await?,
            false => match self.create_message(channel, outbound, body.clone(), &nonce).await {
                // It is a forum that is not in the cache yet.
                Err(error) if error.code() == Some(NOT_A_TEXT_CHANNEL_CODE) => {
                    self.create_post(channel, outbound, body).await?
                }
                written => written?,
            },
        };
        self.record_sent(&nonce, &made);
        Ok(made)
    }

    async fn create_message(
        &self,
        channel: Id<ChannelMarker>,
        outbound: &OutboundMessage,
        mut body: Value,
        nonce: &str,
    ) -> Result<String, ApiError> {
        body["nonce"] = nonce.into();
        body["enforce_nonce"] = true.into();
        if let Some(question) = self.reply_reference(&channel.to_string(), outbound, nonce) {
            body["message_reference"] = json!({"message_id": question, "fail_if_not_exists": false});
        }
        let call =
            ApiRequest::post(format!("channels/{channel}/messages"), body).with_files(outbound.files.clone());
        Ok(self.rest.fetch::<CreatedObject>(&call).await?.id.to_string())
    }

    /// Records the id of a message we sent.
    pub(super) fn record_sent(&self, nonce: &str, message: &str) {
        let mut sent = lock(&self.sent_messages);
        sent.get_or_insert_mut(nonce.to_owned(), SendRecord::default).id = Some(message.to_owned());
    }

    /// Looks for a message that may have been sent. Events carry our nonce, listed messages do not:
    /// there it is the first of ours with the same text and files, after the first attempt, that is
    /// not known to be another one.
    pub(super) async fn find_message(
        &self,
        chat: &str,
        outbound: &OutboundMessage,
        mark: &str,
    ) -> DeliveryCheck {
        let nonce = nonce(mark);
        let (tried, others) = {
            let sent = lock(&self.sent_messages);
            let record = sent.peek(&nonce).cloned();
            if let Some(id) = record.as_ref().and_then(|sent| sent.id.clone()) {
                return DeliveryCheck::Sent(id);
            }
            let others: Vec<String> = sent.iter().filter_map(|(_, sent)| sent.id.clone()).collect();
            (record.and_then(|sent| sent.first_attempt), others)
        };
        let (Ok(channel), Some(me)) = (parse_id(chat), self.identity()) else {
            return DeliveryCheck::Unknown;
        };
        // A reply is newer than its question, whatever the clocks say.
        let question: Option<u64> = outbound.reply_to.as_ref().and_then(|id| id.parse().ok());
        let after = search_after(tried, question);
        let known = match self.cached_channel(channel) {
            None => self.rest.fetch(&ApiRequest::get(format!("channels/{channel}"))).await.ok(),
            known => known,
        };
        if let Some(known) = known.filter(ChannelInfo::is_forum) {
            self.cache_channels([known]);
            // The post may be archived already.
            let like = self.find_posts(channel, outbound, after).await.unwrap_or_default();
            return match like.into_iter().find(|thread| !others.contains(thread)) {
                Some(thread) => {
                    self.record_joined_thread(&thread);
                    self.record_sent(&nonce, &thread);
                    DeliveryCheck::Sent(thread)
                }
                None => DeliveryCheck::Unknown,
            };
        }
        let call = ApiRequest::get(format!("channels/{channel}/messages?after={after}&limit={SEARCH_LIMIT}"));
        let there: Vec<MessagePayload> = match self.rest.fetch(&call).await {
            Ok(there) => there,
            Err(error) => {
                tracing::debug!(%error, "cannot list messages");
                return DeliveryCheck::Unknown;
            }
        };
        let sizes = file_sizes(&outbound.files).await;
        let fits = |message: &&MessagePayload| {
            message.is_by(&me.user)
                && message.attachments.iter().map(|file| file.size).eq(sizes.iter().copied())
                && message.content.trim() == outbound.text.trim()
                && !others.contains(&message.id.to_string())
        };
        match there.iter().filter(fits).min_by_key(|message| message.id) {
            Some(message) => {
                let id = message.id.to_string();
                self.record_sent(&nonce, &id);
                DeliveryCheck::Sent(id)
            }
            // There may be more messages, or it is older.
            None if there.len() >= SEARCH_LIMIT || (tried, question) == (None, None) => {
                DeliveryCheck::Unknown
            }
            None => DeliveryCheck::NotSent,
        }
    }

    pub(super) async fn edit_message(
        &self,
        chat: &str,
        message: &str,
        outbound: &OutboundMessage,
    ) -> Result<(), SendError> {
        let (channel, message) = (parse_id(chat)?, parse_id(message)?);
        // The first message of a post is in its thread, with the same id.
        let channel = if self.is_forum(channel) { message } else { channel };
        let path = format!("channels/{channel}/messages/{message}");
        let call = ApiRequest::new(Method::PATCH, path).with_body(self.message_body(outbound));
        let message = message.to_string();
        if let Some(pending) = lock(&self.pending_edits).get_mut(&message) {
            outbound.text.clone_into(&mut pending.1);
        }
        let changed = self.rest.execute(&call).await;
        if matches!(changed, Err(ApiError::Unknown(_))) {
            lock(&self.pending_edits)
                .put(message, (Instant::now() + EDIT_SETTLE_TIME, outbound.text.clone()));
        }
        Ok(changed?)
    }

    /// Checks until no edit can be in flight any more, or a later edit takes over.
    pub(super) async fn confirm_edit(&self, chat: &str, message: &str, outbound: &OutboundMessage) {
        let (Ok(channel), Ok(number)) = (parse_id(chat), parse_id(message)) else { return };
        let channel = if self.is_forum(channel) { number } else { channel };
        let call = ApiRequest::get(format!("channels/{channel}/messages/{number}"));
        let mut pause = FIRST_CHECK_DELAY;
        loop {
            let pending = lock(&self.pending_edits).peek(&number.to_string()).cloned();
            let Some((until, _)) = pending.filter(|(_, text)| *text == outbound.text) else { return };
            let is_last = until <= Instant::now();
            match self.rest.fetch_with_retry::<MessagePayload>(&call).await {
                Ok(there) if there.content.trim() != outbound.text.trim() => {
                    tracing::info!(chat, message, "reapplying an overwritten edit");
                    if let Err(error) = self.edit_message(chat, message, outbound).await {
                        tracing::warn!(chat, message, %error, "cannot reapply edit");
                    }
                }
                Ok(_) => {}
                Err(error) => {
                    tracing::debug!(%error, "cannot read message");
                    return;
                }
            }
            if is_last {
                lock(&self.pending_edits).pop(&number.to_string());
                return;
            }
            tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            pause = EDIT_SETTLE_TIME.min(pause * 2);
        }
    }

    pub(super) async fn open_thread(&self, inbound: &InboundMessage, name: &str) -> Result<Chat, SendError> {
        if inbound.chat.kind != ChatKind::Group || inbound.interaction.is_some() {
            return Err(SendError::Permanent(
                "a thread can only be opened from a message in a channel".to_owned(),
            ));
        }
        let (channel, message) = (parse_id(&inbound.chat.id)?, parse_id(&inbound.id)?);
        let path = format!("channels/{channel}/messages/{message}/threads");
        let call =
            ApiRequest::post(path, json!({"name": name, "auto_archive_duration": AUTO_ARCHIVE_MINUTES}));
        let id = match self.rest.fetch::<WithId<ChannelMarker>>(&call).await {
            Ok(made) => made.id,
            // A thread has the id of the message it was opened from.
            Err(error) if error.code() == Some(THREAD_EXISTS_CODE) => message,
            Err(error) => return Err(error.into()),
        };
        self.record_joined_thread(&id.to_string());
        // The message stays in the channel.
        lock(&self.reactions).put(inbound.id.clone(), (inbound.chat.id.clone(), Reaction::Nothing));
        let thread = ChannelInfo::new_thread(id, channel, name);
        let chat = thread.to_chat();
        self.cache_channels([thread]);
        Ok(chat)
    }

    pub(super) async fn show_typing(&self, chat: &str) {
        let Ok(channel) = parse_id(chat) else { return };
        let call = ApiRequest::new(Method::POST, format!("channels/{channel}/typing"));
        if let Err(error) = self.rest.execute(&call).await {
            tracing::debug!(%error, "cannot show typing");
        }
    }

    pub(super) async fn set_reaction(&self, inbound: &InboundMessage, reaction: Reaction) {
        if !self.settings.reactions || inbound.interaction.is_some() {
            return;
        }
        // The message a thread was opened from is in the parent channel, unless that is a forum.
        let parent = inbound.chat.parent.as_deref().and_then(|parent| parse_id(parent).ok());
        let is_start = inbound.chat.thread.as_deref() == Some(inbound.id.as_str())
            && parent.is_some_and(|parent| !self.is_forum(parent));
        let chat = inbound.chat.parent.as_ref().filter(|_| is_start).unwrap_or(&inbound.chat.id);
        let (chat, before) = {
            let mut reactions = lock(&self.reactions);
            let before = reactions.pop(&inbound.id);
            // An existing reaction says where it is.
            let chat = before.as_ref().map_or(chat, |(chat, _)| chat).clone();
            reactions.put(inbound.id.clone(), (chat.clone(), reaction));
            (chat, before.map(|(_, reaction)| reaction))
        };
        let (Ok(channel), Ok(message)) = (parse_id(&chat), parse_id(&inbound.id)) else { return };
        if before == Some(reaction) {
            return;
        }
        // After a restart, assume the reaction of a running turn.
        let before =
            before.unwrap_or(if reaction == Reaction::Seen { Reaction::Nothing } else { Reaction::Seen });
        for (method, emoji) in [(Method::PUT, emoji(reaction)), (Method::DELETE, emoji(before))] {
            let Some(emoji) = emoji else { continue };
            let emoji = utf8_percent_encode(emoji, NON_ALPHANUMERIC);
            let path = format!("channels/{channel}/messages/{message}/reactions/{emoji}/@me");
            if let Err(error) = self.rest.execute_with_retry(&ApiRequest::new(method, path)).await {
                tracing::debug!(%error, "cannot change reaction");
            }
        }
    }

    pub(super) async fn reply_privately(&self, to: &InteractionToken, text: &str) {
        let Some(me) = self.identity() else {
            tracing::warn!("cannot reply privately before the first connection");
            return;
        };
        let hook = format!("webhooks/{}/{}", me.application, utf8_percent_encode(&to.token, TOKEN_ESCAPES));
        let chars: Vec<char> = text.chars().collect();
        for part in chars.chunks(MAX_MESSAGE_CHARS) {
            let mut body = json!({
                "content": part.iter().collect::<String>(),
                "allowed_mentions": {"parse": []},
            });
            let call = match lock(&self.deferred_interactions).pop(&to.id) {
                Some(()) => ApiRequest::new(Method::PATCH, format!("{hook}/messages/@original")),
                None => {
                    body["flags"] = MessageFlags::EPHEMERAL.bits().into();
                    ApiRequest::new(Method::POST, hook.clone())
                }
            };
            if let Err(error) = self.rest.execute_with_retry(&call.unsigned().with_body(body)).await {
                tracing::warn!(%error, "cannot reply privately");
                return;
            }
        }
    }

    /// The fields that both new and edited messages have.
    fn message_body(&self, outbound: &OutboundMessage) -> Value {
        let chosen = self.settings.mentions;
        let kinds = [(chosen.everyone, "everyone"), (chosen.roles, "roles"), (chosen.users, "users")];
        let kinds = kinds.into_iter().filter_map(|(is_allowed, kind)| is_allowed.then_some(kind));
        let mentions = json!({"parse": kinds.collect::<Vec<_>>(), "replied_user": chosen.replied_user});
        json!({"content": outbound.text, "allowed_mentions": mentions, "components": button_rows(outbound)})
    }

    /// The message to refer to, if any.
    fn reply_reference(&self, chat: &str, outbound: &OutboundMessage, nonce: &str) -> Option<String> {
        let question = outbound.reply_to.clone()?;
        // The starting message is not in the thread.
        if question == chat || question.parse::<u64>().is_err() {
            return None;
        }
        let points = match self.settings.reply_to {
            ReplyMode::Off => false,
            ReplyMode::All => true,
            ReplyMode::First => {
                let mut reply_refs = lock(&self.reply_refs);
                reply_refs.get_or_insert((chat.to_owned(), question.clone()), || nonce.to_owned()) == nonce
            }
        };
        points.then_some(question)
    }
}

/// File sizes; Discord may change the names.
async fn file_sizes(files: &[AttachmentFile]) -> Vec<u64> {
    let mut sizes = Vec::with_capacity(files.len());
    for file in files {
        sizes.push(tokio::fs::metadata(&file.path).await.map_or(0, |found| found.len()));
    }
    sizes
}

pub(super) const TOKEN_ESCAPES: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The id after which to search for a message.
fn search_after(tried: Option<SystemTime>, question: Option<u64>) -> u64 {
    match (tried, question) {
        (Some(tried), Some(question)) if is_snowflake(question) => {
            snowflake(tried - CLOCK_SKEW).max(question)
        }
        (Some(tried), None) => snowflake(tried - CLOCK_SKEW),
        (_, Some(question)) => question,
        (None, None) => snowflake(SystemTime::now() - DEFAULT_SEARCH_WINDOW),
    }
}

/// Buttons, five per row.
fn button_rows(outbound: &OutboundMessage) -> Vec<Value> {
    let button = |button: &channel::MessageButton| {
        let label: String = button.label.chars().take(80).collect();
        let style = match button.style {
            channel::ButtonStyle::Secondary => ButtonStyle::Secondary,
            channel::ButtonStyle::Success => ButtonStyle::Success,
            channel::ButtonStyle::Danger => ButtonStyle::Danger,
        };
        json!({"type": ComponentType::Button, "custom_id": button.value, "label": label, "style": style})
    };
    let rows = outbound.buttons.chunks(5).take(5).map(|row| row.iter().map(button).collect::<Vec<_>>());
    rows.map(|row| json!({"type": ComponentType::ActionRow, "components": row})).collect()
}

fn emoji(reaction: Reaction) -> Option<&'static str> {
    match reaction {
        Reaction::Seen => Some("👀"),
        Reaction::Done => Some("✅"),
        Reaction::Failed => Some("❌"),
        Reaction::Nothing => None,
    }
}

/// A nonce that Discord accepts; deterministic.
fn nonce(mark: &str) -> String {
    if !mark.is_empty() && mark.len() <= MAX_NONCE_CHARS && mark.is_ascii() {
        return mark.to_owned();
    }
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", mark.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

pub(super) fn snowflake(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(since).unwrap_or_default().saturating_sub(DISCORD_EPOCH_MILLIS) << 22
}

/// When an id was created; now if it does not tell.
pub(super) fn created_at(id: u64) -> Timestamp {
    match is_snowflake(id) {
        true => Timestamp::from_seconds(((id >> 22) + DISCORD_EPOCH_MILLIS) / 1000),
        false => Timestamp::now(),
    }
}

/// Whether an id carries a time; test servers just count.
pub(super) fn is_snowflake(id: u64) -> bool {
    id >> 22 > MIN_SNOWFLAKE_MILLIS
}

fn parse_id(text: &str) -> Result<Id<ChannelMarker>, SendError> {
    let id = text.parse().ok().and_then(Id::new_checked);
    id.ok_or_else(|| SendError::Permanent(format!("not a Discord id: {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nonces_fit_and_are_deterministic() {
        assert_eq!(nonce("01J9ABCDEF.1"), "01J9ABCDEF.1");
        let long = "a".repeat(26);
        assert_eq!(nonce(&long), nonce(&long));
        assert_eq!(nonce(&long).len(), 16);
        assert_ne!(nonce(&long), nonce(&"a".repeat(27)));
        assert_eq!(nonce("").len(), 16);
    }

    #[test]
    fn a_reply_is_searched_after_its_question() {
        let tried = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (long_ago, after) = (snowflake(tried - CLOCK_SKEW * 2), snowflake(tried));
        assert_eq!(search_after(Some(tried), Some(long_ago)), snowflake(tried - CLOCK_SKEW));
        assert_eq!(search_after(Some(tried), Some(after)), after);
        assert_eq!(search_after(Some(tried), Some(1001)), 1001);
        assert_eq!(search_after(None, Some(1001)), 1001);
        assert_eq!(search_after(Some(tried), None), snowflake(tried - CLOCK_SKEW));
    }

    #[test]
    fn snowflakes_contain_their_time() {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(created_at(snowflake(at)), Timestamp::from_seconds(1_700_000_000));
        assert!(is_snowflake(snowflake(at)) && !is_snowflake(1001));
        assert_eq!(snowflake(UNIX_EPOCH), 0);
    }
}
