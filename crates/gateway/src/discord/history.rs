//! What others said where the bot is called.

use serde_json::value::RawValue;
use twilight_model::channel::message::MessageType;

use super::arrive::{read, sender};
use super::payload::Message;
use super::rest::Call;
use super::rules::{Place, PlaceKind, needs_call};
use super::settings::Bots;
use super::{Account, lock};
use crate::letter::{Letter, Remark, RoomKind};

/// The most Discord gives at once.
const PAGE: u64 = 100;

impl Account {
    /// What was said between the bot's last message and a letter, oldest first. Nothing in direct messages, where the bot
    /// hears everything anyway, nor in a thread that was just opened for the answer.
    pub(super) async fn before(&self, letter: &Letter) -> Vec<Remark> {
        let limit = self.settings.history.min(PAGE);
        let room = &letter.room;
        let is_fresh = room.thread.as_deref() == Some(letter.message.as_str());
        if limit == 0 || is_fresh || letter.interaction.is_some() || !self.is_called_in(letter) {
            return Vec::new();
        }
        let (Some(me), Ok(channel), Ok(message)) =
            (self.me(), room.chat.parse::<u64>(), letter.message.parse::<u64>())
        else {
            return Vec::new();
        };
        let call = Call::get(format!("channels/{channel}/messages"))
            .with_query(format!("before={message}&limit={limit}"));
        let found: Vec<Box<RawValue>> = match self.rest.ask(&call).await {
            Ok(found) => found,
            Err(fault) => {
                tracing::warn!(why = fault.why(), "what was said before on Discord could not be fetched");
                return Vec::new();
            }
        };
        let mut messages: Vec<Message> =
            found.iter().filter_map(|json| read("a message", json.get())).collect();
        messages.sort_by_key(|message| std::cmp::Reverse(message.id));
        let is_ours = |message: &Message| message.author.id.to_string() == me.user;
        let mut remarks: Vec<Remark> = messages
            .iter()
            .filter(|message| is_said(message.kind))
            .take_while(|message| !is_ours(message))
            .filter_map(|message| self.remark(message))
            .collect();
        remarks.reverse();
        remarks
    }

    /// Whether the bot does not hear everything there.
    fn is_called_in(&self, letter: &Letter) -> bool {
        let room = &letter.room;
        match room.kind {
            RoomKind::Dm => false,
            RoomKind::Thread => true,
            RoomKind::Group => {
                let known = room.chat.parse().ok().and_then(|id| Some(lock(&self.places).get(id)?.place()));
                let place = known.unwrap_or_else(|| Place {
                    id: room.chat.clone(),
                    kind: PlaceKind::Channel,
                    name: room.name.clone(),
                });
                needs_call(&self.settings, &place)
            }
        }
    }

    fn remark(&self, message: &Message) -> Option<Remark> {
        let sender = sender(&message.author, message.member.as_ref(), message.is_hook());
        let is_heard = !sender.is_bot || self.settings.allow_bots != Bots::None;
        let text = match (message.content.trim(), message.attachments.len()) {
            ("", 0) => return None,
            ("", 1) => "(a file)".to_owned(),
            ("", count) => format!("({count} files)"),
            (words, _) => words.to_owned(),
        };
        is_heard.then(|| Remark { message: message.id.to_string(), name: sender.name, text })
    }
}

/// Whether somebody said something, and the platform did not only note that something happened.
fn is_said(kind: MessageType) -> bool {
    matches!(kind, MessageType::Regular | MessageType::Reply | MessageType::ChatInputCommand)
}
