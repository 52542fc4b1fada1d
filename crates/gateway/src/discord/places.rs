//! The channels and threads the platform told about.

use std::collections::HashMap;

use serde::Deserialize;
use twilight_model::channel::ChannelType;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker, MessageMarker};

use super::payload::each;
use super::rules::{Place, PlaceKind};

/// Channels that are remembered before all are forgotten and asked for again.
const MOST: usize = 50_000;

/// What is known about channels.
#[derive(Debug, Default)]
pub(super) struct Places(HashMap<Id<ChannelMarker>, Known>);

/// A channel, as far as it matters here.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct Known {
    id: Id<ChannelMarker>,
    #[serde(rename = "type")]
    kind: ChannelType,
    #[serde(default)]
    parent_id: Option<Id<ChannelMarker>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    guild_id: Option<Id<GuildMarker>>,
    /// The last message there, as far as the platform said when it told of the channel.
    #[serde(default)]
    last_message_id: Option<Id<MessageMarker>>,
}

/// A server and what is in it.
#[derive(Debug, Deserialize)]
pub(super) struct Contents {
    #[serde(alias = "guild_id")]
    id: Id<GuildMarker>,
    #[serde(default, deserialize_with = "each")]
    channels: Vec<Known>,
    #[serde(default, deserialize_with = "each")]
    threads: Vec<Known>,
}

impl Contents {
    /// The server.
    pub(super) fn guild(&self) -> Id<GuildMarker> {
        self.id
    }

    /// The last message of each channel in which there are messages.
    pub(super) fn last(&self) -> Vec<(Id<ChannelMarker>, u64)> {
        self.channels.iter().chain(&self.threads).filter_map(Known::last).collect()
    }

    /// The channels that may have threads.
    pub(super) fn halls(&self) -> Vec<Id<ChannelMarker>> {
        let has_threads =
            |known: &&Known| known.is_forum() || matches!(known.place().kind, PlaceKind::Channel);
        self.channels.iter().filter(has_threads).map(|known| known.id).collect()
    }
}

/// A channel that is gone.
#[derive(Debug, Deserialize)]
pub(super) struct Gone {
    id: Id<ChannelMarker>,
}

impl Places {
    pub(super) fn get(&self, id: Id<ChannelMarker>) -> Option<&Known> {
        self.0.get(&id)
    }

    pub(super) fn learn(&mut self, known: Known) {
        if self.0.len() >= MOST {
            self.0.clear();
        }
        self.0.insert(known.id, known);
    }

    pub(super) fn learn_all(&mut self, contents: Contents) {
        for known in contents.channels.into_iter().chain(contents.threads) {
            self.learn(known.within(Some(contents.id)));
        }
    }

    pub(super) fn forget(&mut self, gone: &Gone) {
        self.0.remove(&gone.id);
    }
}

impl Known {
    /// A thread that was opened in a channel.
    pub(super) fn thread(id: Id<ChannelMarker>, parent: Id<ChannelMarker>, name: &str) -> Self {
        Self {
            id,
            kind: ChannelType::PublicThread,
            parent_id: Some(parent),
            name: Some(name.to_owned()),
            guild_id: None,
            last_message_id: None,
        }
    }

    pub(super) fn id(&self) -> Id<ChannelMarker> {
        self.id
    }

    /// Whether there are only threads in it, and no messages.
    pub(super) fn is_forum(&self) -> bool {
        matches!(self.kind, ChannelType::GuildForum | ChannelType::GuildMedia)
    }

    /// Its last message, if there are messages in it.
    pub(super) fn last(&self) -> Option<(Id<ChannelMarker>, u64)> {
        let last = self.last_message_id.filter(|_| !self.is_forum())?;
        Some((self.id, last.get()))
    }

    /// The same in a server, which the platform does not always tell.
    pub(super) fn within(self, guild: Option<Id<GuildMarker>>) -> Self {
        Self { guild_id: guild.or(self.guild_id), ..self }
    }

    pub(super) fn guild(&self) -> Option<Id<GuildMarker>> {
        self.guild_id
    }

    pub(super) fn place(&self) -> Place {
        let kind = match self.kind {
            // A group is no direct message: what is said there is heard by others.
            ChannelType::Private => PlaceKind::Dm,
            kind if kind.is_thread() => {
                PlaceKind::Thread { parent: self.parent_id.map(|parent| parent.to_string()) }
            }
            ChannelType::GuildText | ChannelType::GuildAnnouncement => PlaceKind::Channel,
            _ => PlaceKind::Threadless,
        };
        Place { id: self.id.to_string(), kind, name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::letter::RoomKind;

    #[test]
    fn what_others_hear_is_no_direct_message() {
        let kind = |kind: u8| {
            let known: Known = serde_json::from_value(serde_json::json!({"id": "7", "type": kind})).unwrap();
            known.place().room().kind
        };
        assert_eq!(
            [0, 1, 3, 11].map(kind),
            [RoomKind::Group, RoomKind::Dm, RoomKind::Group, RoomKind::Thread]
        );
    }
}
