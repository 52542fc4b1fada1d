//! Cache of channels and threads.

use std::collections::HashMap;

use serde::Deserialize;
use twilight_model::channel::ChannelType;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker, MessageMarker};

use super::payload::{WithId, lenient_list};
use super::rules::{ChannelKind, ChannelRef};

/// The cache is cleared when it reaches this size.
const MAX_CACHED_CHANNELS: usize = 50_000;

#[derive(Debug, Default)]
pub(super) struct ChannelCache(HashMap<Id<ChannelMarker>, ChannelInfo>);

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ChannelInfo {
    pub(super) id: Id<ChannelMarker>,
    #[serde(rename = "type")]
    kind: ChannelType,
    #[serde(default)]
    parent_id: Option<Id<ChannelMarker>>,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    pub(super) guild_id: Option<Id<GuildMarker>>,
    /// As of when Discord reported the channel.
    #[serde(default)]
    last_message_id: Option<Id<MessageMarker>>,
}

/// A server with its channels and threads.
#[derive(Debug, Deserialize)]
pub(super) struct GuildCreate {
    #[serde(alias = "guild_id")]
    pub(super) id: Id<GuildMarker>,
    #[serde(default, deserialize_with = "lenient_list")]
    channels: Vec<ChannelInfo>,
    #[serde(default, deserialize_with = "lenient_list")]
    threads: Vec<ChannelInfo>,
}

impl GuildCreate {
    pub(super) fn last_messages(&self) -> Vec<(Id<ChannelMarker>, u64)> {
        self.channels.iter().chain(&self.threads).filter_map(ChannelInfo::last_message).collect()
    }

    pub(super) fn thread_parents(&self) -> Vec<Id<ChannelMarker>> {
        let has_threads =
            |known: &&ChannelInfo| known.is_forum() || matches!(known.to_ref().kind, ChannelKind::Channel);
        self.channels.iter().filter(has_threads).map(|known| known.id).collect()
    }
}

impl ChannelCache {
    pub(super) fn get(&self, id: Id<ChannelMarker>) -> Option<&ChannelInfo> {
        self.0.get(&id)
    }

    pub(super) fn insert(&mut self, known: ChannelInfo) {
        if self.0.len() >= MAX_CACHED_CHANNELS {
            self.0.clear();
        }
        self.0.insert(known.id, known);
    }

    pub(super) fn insert_guild(&mut self, contents: GuildCreate) {
        for known in contents.channels.into_iter().chain(contents.threads) {
            self.insert(known.with_guild(Some(contents.id)));
        }
    }

    pub(super) fn remove(&mut self, deleted: &WithId<ChannelMarker>) {
        self.0.remove(&deleted.id);
    }
}

impl ChannelInfo {
    pub(super) fn new_thread(id: Id<ChannelMarker>, parent: Id<ChannelMarker>, name: &str) -> Self {
        Self {
            id,
            kind: ChannelType::PublicThread,
            parent_id: Some(parent),
            name: Some(name.to_owned()),
            guild_id: None,
            last_message_id: None,
        }
    }

    /// Whether it contains only threads.
    pub(super) fn is_forum(&self) -> bool {
        matches!(self.kind, ChannelType::GuildForum | ChannelType::GuildMedia)
    }

    pub(super) fn last_message(&self) -> Option<(Id<ChannelMarker>, u64)> {
        let last = self.last_message_id.filter(|_| !self.is_forum())?;
        Some((self.id, last.get()))
    }

    /// Sets the server, which Discord sometimes omits.
    pub(super) fn with_guild(self, guild: Option<Id<GuildMarker>>) -> Self {
        Self { guild_id: guild.or(self.guild_id), ..self }
    }

    pub(super) fn to_ref(&self) -> ChannelRef {
        let kind = match self.kind {
            // In a group DM others read along, so it is not a direct message.
            ChannelType::Private => ChannelKind::Dm,
            kind if kind.is_thread() => {
                ChannelKind::Thread { parent: self.parent_id.map(|parent| parent.to_string()) }
            }
            ChannelType::GuildText | ChannelType::GuildAnnouncement => ChannelKind::Channel,
            _ => ChannelKind::NoThreads,
        };
        ChannelRef { id: self.id.to_string(), kind, name: self.name.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::ChatKind;

    #[test]
    fn a_group_is_not_a_direct_message() {
        let kind = |kind: u8| {
            let known: ChannelInfo =
                serde_json::from_value(serde_json::json!({"id": "7", "type": kind})).unwrap();
            known.to_ref().to_chat().kind
        };
        assert_eq!(
            [0, 1, 3, 11].map(kind),
            [ChatKind::Group, ChatKind::Dm, ChatKind::Group, ChatKind::Thread]
        );
    }
}
