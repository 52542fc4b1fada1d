//! What is sent: messages, changes, threads, reactions, words for one person only.

use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hermes_types::Timestamp;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Method;
use serde_json::{Value, json};
use twilight_model::channel::message::component::{ActionRow, Button, ButtonStyle, Component};
use twilight_model::channel::message::{AllowedMentions, MentionType, MessageFlags};
use twilight_model::id::Id;
use twilight_model::id::marker::ChannelMarker;

use super::payload::{Made, Message};
use super::places::Known;
use super::rest::{Call, Fault};
use super::settings::ReplyTo;
use super::{Account, lock};
use crate::channel::{Enclosure, Found, Look, Post, Sign, Undelivered};
use crate::letter::{Interaction, Letter, Platform, Room, RoomKind};

/// The longest text of a message.
const LONGEST: usize = 2000;
/// The longest mark Discord knows a message by.
const LONGEST_NONCE: usize = 25;
/// How many messages are looked at.
const LOOKED_AT: usize = 100;
/// The platform's word for a thread that is there already.
const THREAD_IS_THERE: u64 = 160_004;
/// The platform's word for a channel that takes no messages.
const NO_MESSAGES_HERE: u64 = 50_008;
/// How many minutes a thread stays open when nothing happens.
pub(super) const ARCHIVE: u32 = 1440;
/// How far back a message is looked for that nobody remembers sending.
const UNREMEMBERED: Duration = Duration::from_secs(15 * 60);
/// How long a change may be on its way that has no answer.
const LINGERS: Duration = Duration::from_secs(60);
/// When it is looked for the first time whether it came; each pause is twice as long as the one before it.
const FIRST_LOOK: Duration = Duration::from_secs(2);
/// How far the clocks of two machines may be apart.
pub(super) const SKEW: Duration = Duration::from_secs(120);
/// The milliseconds since 1970 at which Discord's ids begin.
const EPOCH: u64 = 1_420_070_400_000;
/// How many milliseconds Discord had ids and nobody had bots.
const FIRST_YEAR: u64 = 365 * 24 * 3_600 * 1000;

/// A message of ours.
#[derive(Debug, Clone)]
pub(super) struct Sent {
    /// When it was tried first; nothing if we only heard of it.
    tried: Option<SystemTime>,
    /// What Discord calls it, once we know.
    id: Option<String>,
}

impl Post {
    /// Its files as they are sent.
    pub(super) fn named_files(&self) -> Vec<(String, PathBuf)> {
        self.files.iter().map(|file| (file.name.clone(), file.path.clone())).collect()
    }
}

impl Account {
    pub(super) async fn send(&self, chat: &str, post: &Post, mark: &str) -> Result<String, Undelivered> {
        let nonce = nonce(mark);
        let known = {
            let mut sent = lock(&self.sent);
            let kept = sent.entry(nonce.clone(), || Sent { tried: None, id: None });
            kept.tried.get_or_insert_with(SystemTime::now);
            kept.id.clone()
        };
        if let Some(id) = known {
            return Ok(id);
        }
        let channel = id(chat)?;
        let mut body = self.body(post);
        if !post.files.is_empty() {
            let named = post.files.iter().enumerate();
            body["attachments"] = named.map(|(id, file)| json!({"id": id, "filename": file.name})).collect();
        }
        let made = match self.is_forum(channel) {
            true => self.begin_post(channel, post, body).await?,
            false => match self.write(channel, post, body.clone(), &nonce).await {
                // Nobody said yet what it is.
                Err(fault) if fault.code() == Some(NO_MESSAGES_HERE) => {
                    self.begin_post(channel, post, body).await?
                }
                written => written?,
            },
        };
        self.heard(&nonce, &made);
        Ok(made)
    }

    /// Sends a message where there can be messages.
    async fn write(
        &self,
        channel: Id<ChannelMarker>,
        post: &Post,
        mut body: Value,
        nonce: &str,
    ) -> Result<String, Fault> {
        body["nonce"] = nonce.into();
        body["enforce_nonce"] = true.into();
        if let Some(question) = self.pointed(&channel.to_string(), post, nonce) {
            body["message_reference"] = json!({"message_id": question, "fail_if_not_exists": false});
        }
        let call = Call::post(format!("channels/{channel}/messages"), body).with_files(post.named_files());
        Ok(self.rest.ask::<Made>(&call).await?.id.to_string())
    }

    /// Notes what Discord calls a message of ours.
    pub(super) fn heard(&self, nonce: &str, message: &str) {
        let mut sent = lock(&self.sent);
        sent.entry(nonce.to_owned(), || Sent { tried: None, id: None }).id = Some(message.to_owned());
    }

    /// Looks for a message that may have been sent. The gateway tells marks, the list of messages does not: there it is
    /// one of ours with the same words and files, later than when it was tried, that is not known to be another one.
    pub(super) async fn find(&self, chat: &str, post: &Post, mark: &str) -> Found {
        let nonce = nonce(mark);
        let (tried, others) = {
            let sent = lock(&self.sent);
            let kept = sent.get(&nonce).cloned();
            if let Some(id) = kept.as_ref().and_then(|sent| sent.id.clone()) {
                return Found::There(id);
            }
            let others: Vec<String> = sent.iter().filter_map(|(_, sent)| sent.id.clone()).collect();
            (kept.and_then(|sent| sent.tried), others)
        };
        let (Ok(channel), Some(me)) = (id(chat), self.me()) else { return Found::Unclear };
        // An answer is later than its question, whatever the clocks say.
        let question: Option<u64> = post.reply_to.as_ref().and_then(|id| id.parse().ok());
        let after = earliest(tried, question);
        let known = lock(&self.places).get(channel).cloned();
        let known = match known {
            None => self.rest.ask(&Call::get(format!("channels/{channel}"))).await.ok(),
            known => known,
        };
        if let Some(known) = known.filter(Known::is_forum) {
            lock(&self.places).learn(known);
            // A post may be archived by now.
            let like = self.posts_like(channel, post, after).await.unwrap_or_default();
            return match like.into_iter().find(|thread| !others.contains(thread)) {
                Some(thread) => {
                    self.join(&thread);
                    self.heard(&nonce, &thread);
                    Found::There(thread)
                }
                None => Found::Unclear,
            };
        }
        let call = Call::get(format!("channels/{channel}/messages"))
            .with_query(format!("after={after}&limit={LOOKED_AT}"));
        let there: Vec<Message> = match self.rest.ask(&call).await {
            Ok(there) => there,
            Err(fault) => {
                tracing::debug!(why = fault.why(), "messages of Discord could not be looked at");
                return Found::Unclear;
            }
        };
        let sizes = sizes(&post.files).await;
        let fits = |message: &&Message| {
            message.author.id.to_string() == me.user
                && message.attachments.iter().map(|file| file.size).eq(sizes.iter().copied())
                && message.content.trim() == post.text.trim()
                && !others.contains(&message.id.to_string())
        };
        match there.iter().filter(fits).min_by_key(|message| message.id) {
            Some(message) => {
                let id = message.id.to_string();
                self.heard(&nonce, &id);
                Found::There(id)
            }
            // There may be more, or it may be older.
            None if there.len() >= LOOKED_AT || (tried, question) == (None, None) => Found::Unclear,
            None => Found::NotThere,
        }
    }

    pub(super) async fn edit(&self, chat: &str, message: &str, post: &Post) -> Result<(), Undelivered> {
        let (channel, message) = (id(chat)?, id(message)?);
        // The first message of a post is in its thread, and has the id of it.
        let channel = if self.is_forum(channel) { message } else { channel };
        let path = format!("channels/{channel}/messages/{message}");
        let call = Call::new(Method::PATCH, path).with_body(self.body(post));
        let message = message.to_string();
        if let Some(unsure) = lock(&self.unsure).get_mut(&message) {
            post.text.clone_into(&mut unsure.1);
        }
        let changed = self.rest.tell(&call).await;
        if matches!(changed, Err(Fault::Unknown(_))) {
            lock(&self.unsure).put(message, (Instant::now() + LINGERS, post.text.clone()));
        }
        Ok(changed?)
    }

    /// Looks until nothing can be on its way any more, or whatever changes the message next does it.
    pub(super) async fn assure(&self, chat: &str, message: &str, post: &Post) {
        let (Ok(channel), Ok(number)) = (id(chat), id(message)) else { return };
        let channel = if self.is_forum(channel) { number } else { channel };
        let call = Call::get(format!("channels/{channel}/messages/{number}"));
        let mut pause = FIRST_LOOK;
        loop {
            let unsure = lock(&self.unsure).get(&number.to_string()).cloned();
            let Some((until, _)) = unsure.filter(|(_, text)| *text == post.text) else { return };
            let is_last = until <= Instant::now();
            match self.rest.ask_patiently::<Message>(&call).await {
                Ok(there) if there.content.trim() != post.text.trim() => {
                    tracing::info!(chat, message, "a change came late and is made up for");
                    if let Err(error) = self.edit(chat, message, post).await {
                        tracing::warn!(chat, message, %error, "a message does not say what it should");
                    }
                }
                Ok(_) => {}
                Err(fault) => {
                    tracing::debug!(why = fault.why(), "a message of Discord could not be looked at");
                    return;
                }
            }
            if is_last {
                lock(&self.unsure).take(&number.to_string());
                return;
            }
            tokio::time::sleep(pause.min(until.saturating_duration_since(Instant::now()))).await;
            pause = LINGERS.min(pause * 2);
        }
    }

    pub(super) async fn open_thread(&self, letter: &Letter, name: &str) -> Result<Room, Undelivered> {
        if letter.room.kind != RoomKind::Group || letter.interaction.is_some() {
            return Err(Undelivered::Never(
                "a thread can only be opened from a message in a channel".to_owned(),
            ));
        }
        let channel = id(&letter.room.chat)?;
        let path = format!("channels/{channel}/messages/{}/threads", id(&letter.message)?);
        let call = Call::post(path, json!({"name": name, "auto_archive_duration": ARCHIVE}));
        let thread = match self.rest.ask::<Made>(&call).await {
            Ok(made) => made.id.to_string(),
            // A thread has the id of the message it was opened from.
            Err(fault) if fault.code() == Some(THREAD_IS_THERE) => letter.message.clone(),
            Err(fault) => return Err(fault.into()),
        };
        self.join(&thread);
        // The message stays in the channel, whatever the thread is called.
        lock(&self.signs).put(letter.message.clone(), (letter.room.chat.clone(), Sign::Nothing));
        if let (Ok(thread), Ok(parent)) = (id(&thread), id(&letter.room.chat)) {
            lock(&self.places).learn(Known::thread(thread, parent, name));
        }
        Ok(Room {
            platform: Platform::Discord,
            kind: RoomKind::Thread,
            chat: thread.clone(),
            thread: Some(thread),
            parent: Some(letter.room.chat.clone()),
            name: Some(name.to_owned()),
        })
    }

    pub(super) async fn typing(&self, chat: &str) {
        let Ok(channel) = id(chat) else { return };
        let call = Call::new(Method::POST, format!("channels/{channel}/typing"));
        if let Err(fault) = self.rest.tell(&call).await {
            tracing::debug!(why = fault.why(), "typing could not be shown on Discord");
        }
    }

    pub(super) async fn mark(&self, letter: &Letter, sign: Sign) {
        if !self.settings.reactions || letter.interaction.is_some() {
            return;
        }
        // The message that a thread was opened from is in the channel of the thread, unless that has no messages.
        let parent = letter.room.parent.as_deref().and_then(|parent| id(parent).ok());
        let is_start = letter.room.thread.as_deref() == Some(letter.message.as_str())
            && parent.is_some_and(|parent| !self.is_forum(parent));
        let chat = letter.room.parent.as_ref().filter(|_| is_start).unwrap_or(&letter.room.chat);
        let (chat, before) = {
            let mut signs = lock(&self.signs);
            let before = signs.take(&letter.message);
            // Where it has a sign already, it is.
            let chat = before.as_ref().map_or(chat, |(chat, _)| chat).clone();
            signs.put(letter.message.clone(), (chat.clone(), sign));
            (chat, before.map(|(_, sign)| sign))
        };
        let (Ok(channel), Ok(message)) = (id(&chat), id(&letter.message)) else { return };
        if before == Some(sign) {
            return;
        }
        // After a restart nobody knows what is there; it is what is shown while something is done.
        let before = before.unwrap_or(if sign == Sign::Seen { Sign::Nothing } else { Sign::Seen });
        for (method, emoji) in [(Method::PUT, emoji(sign)), (Method::DELETE, emoji(before))] {
            let Some(emoji) = emoji else { continue };
            let emoji = utf8_percent_encode(emoji, NON_ALPHANUMERIC);
            let path = format!("channels/{channel}/messages/{message}/reactions/{emoji}/@me");
            if let Err(fault) = self.rest.insist(&Call::new(method, path)).await {
                tracing::debug!(why = fault.why(), "a reaction on Discord could not be changed");
            }
        }
    }

    pub(super) async fn whisper(&self, to: &Interaction, text: &str) {
        let Some(me) = self.me() else {
            tracing::warn!("nobody can be told anything on Discord before it is connected");
            return;
        };
        let hook = format!("webhooks/{}/{}", me.application, utf8_percent_encode(&to.token, NON_TOKEN));
        let letters: Vec<char> = text.chars().collect();
        for part in letters.chunks(LONGEST) {
            let mut body = json!({
                "content": part.iter().collect::<String>(),
                "allowed_mentions": {"parse": []},
            });
            let call = match lock(&self.waiting).take(&to.id) {
                Some(()) => Call::new(Method::PATCH, format!("{hook}/messages/@original")),
                None => {
                    body["flags"] = MessageFlags::EPHEMERAL.bits().into();
                    Call::new(Method::POST, hook.clone())
                }
            };
            if let Err(fault) = self.rest.insist(&call.unsigned().with_body(body)).await {
                tracing::warn!(why = fault.why(), "somebody could not be told something on Discord");
                return;
            }
        }
    }

    /// What a message says, without what only a new one has.
    fn body(&self, post: &Post) -> Value {
        let chosen = self.settings.mentions;
        let kinds = [
            (chosen.everyone, MentionType::Everyone),
            (chosen.roles, MentionType::Roles),
            (chosen.users, MentionType::Users),
        ];
        let mentions = AllowedMentions {
            parse: kinds.into_iter().filter_map(|(is_allowed, kind)| is_allowed.then_some(kind)).collect(),
            replied_user: chosen.replied_user,
            ..AllowedMentions::default()
        };
        json!({"content": post.text, "allowed_mentions": mentions, "components": rows(post)})
    }

    /// The message that one of ours points to.
    fn pointed(&self, chat: &str, post: &Post, nonce: &str) -> Option<String> {
        let question = post.reply_to.clone()?;
        // The message that a thread was opened from is not in the thread.
        if question == chat || question.parse::<u64>().is_err() {
            return None;
        }
        let points = match self.settings.reply_to {
            ReplyTo::Off => false,
            ReplyTo::All => true,
            ReplyTo::First => {
                let mut pointing = lock(&self.pointing);
                pointing.entry((chat.to_owned(), question.clone()), || nonce.to_owned()) == nonce
            }
        };
        points.then_some(question)
    }
}

/// How large files are. Discord changes names as it likes.
async fn sizes(files: &[Enclosure]) -> Vec<u64> {
    let mut sizes = Vec::with_capacity(files.len());
    for file in files {
        sizes.push(tokio::fs::metadata(&file.path).await.map_or(0, |found| found.len()));
    }
    sizes
}

/// What may stand in an address as it is.
pub(super) const NON_TOKEN: &percent_encoding::AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.');

/// The last id before a message that was tried then, as an answer to that.
fn earliest(tried: Option<SystemTime>, question: Option<u64>) -> u64 {
    match (tried, question) {
        (Some(tried), Some(question)) if tells_time(question) => snowflake(tried - SKEW).max(question),
        (Some(tried), None) => snowflake(tried - SKEW),
        (_, Some(question)) => question,
        (None, None) => snowflake(SystemTime::now() - UNREMEMBERED),
    }
}

/// Buttons, five in a row.
fn rows(post: &Post) -> Vec<Component> {
    let button = |button: &crate::channel::Button| {
        Component::Button(Button {
            custom_id: Some(button.value.clone()),
            disabled: false,
            emoji: None,
            id: None,
            label: Some(button.label.chars().take(80).collect()),
            sku_id: None,
            style: match button.look {
                Look::Plain => ButtonStyle::Secondary,
                Look::Go => ButtonStyle::Success,
                Look::Stop => ButtonStyle::Danger,
            },
            url: None,
        })
    };
    let rows = post.buttons.chunks(5).take(5);
    rows.map(|row| Component::ActionRow(ActionRow { components: row.iter().map(button).collect(), id: None }))
        .collect()
}

fn emoji(sign: Sign) -> Option<&'static str> {
    match sign {
        Sign::Seen => Some("👀"),
        Sign::Done => Some("✅"),
        Sign::Failed => Some("❌"),
        Sign::Nothing => None,
    }
}

/// A mark that Discord takes. The same mark is always the same.
fn nonce(mark: &str) -> String {
    if !mark.is_empty() && mark.len() <= LONGEST_NONCE && mark.is_ascii() {
        return mark.to_owned();
    }
    let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", mark.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

/// The first id of a time.
pub(super) fn snowflake(at: SystemTime) -> u64 {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    u64::try_from(since).unwrap_or_default().saturating_sub(EPOCH) << 22
}

/// When an id was made; now, where it does not tell.
pub(super) fn made_at(id: u64) -> Timestamp {
    match tells_time(id) {
        true => Timestamp::from_seconds(((id >> 22) + EPOCH) / 1000),
        false => Timestamp::now(),
    }
}

/// Whether an id is one of Discord's own: other servers may just count.
pub(super) fn tells_time(id: u64) -> bool {
    id >> 22 > FIRST_YEAR
}

/// An id of the platform.
fn id(text: &str) -> Result<Id<ChannelMarker>, Undelivered> {
    let id = text.parse().ok().and_then(Id::new_checked);
    id.ok_or_else(|| Undelivered::Never(format!("Discord has nothing that is called {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_fit_and_stay_the_same() {
        assert_eq!(nonce("01J9ABCDEF.1"), "01J9ABCDEF.1");
        let long = "a".repeat(26);
        assert_eq!(nonce(&long), nonce(&long));
        assert_eq!(nonce(&long).len(), 16);
        assert_ne!(nonce(&long), nonce(&"a".repeat(27)));
        assert_eq!(nonce("").len(), 16);
    }

    #[test]
    fn an_answer_is_looked_for_after_its_question_where_ids_only_count() {
        let tried = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let (long_ago, after) = (snowflake(tried - SKEW * 2), snowflake(tried));
        assert_eq!(earliest(Some(tried), Some(long_ago)), snowflake(tried - SKEW));
        assert_eq!(earliest(Some(tried), Some(after)), after);
        assert_eq!(earliest(Some(tried), Some(1001)), 1001);
        assert_eq!(earliest(None, Some(1001)), 1001);
        assert_eq!(earliest(Some(tried), None), snowflake(tried - SKEW));
    }

    #[test]
    fn ids_tell_their_time() {
        let at = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert_eq!(made_at(snowflake(at)), Timestamp::from_seconds(1_700_000_000));
        assert!(tells_time(snowflake(at)) && !tells_time(1001));
        assert_eq!(snowflake(UNIX_EPOCH), 0);
    }
}
