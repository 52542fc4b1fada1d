//! Channels and threads.

use hermes_types::lock;
use serde::Deserialize;
use twilight_model::channel::ChannelType;
use twilight_model::id::Id;
use twilight_model::id::marker::{ChannelMarker, GuildMarker, MessageMarker};
use twilight_model::util::Timestamp;

use super::Discord;
use super::payload::{lenient, lenient_list};
use crate::message::{Chat, ChatKind, Platform};

#[derive(Debug, Clone, Deserialize)]
pub(super) struct ChannelInfo {
    pub(super) id: Id<ChannelMarker>,
    #[serde(rename = "type")]
    kind: ChannelType,
    pub(super) parent_id: Option<Id<ChannelMarker>>,
    pub(super) name: Option<String>,
    pub(super) guild_id: Option<Id<GuildMarker>>,
    /// As of when Discord reported the channel.
    last_message_id: Option<Id<MessageMarker>>,
    pub(super) owner_id: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    thread_metadata: Option<ThreadMetadata>,
}

#[derive(Debug, Clone, Deserialize)]
struct ThreadMetadata {
    archive_timestamp: Timestamp,
}

/// A list of active or archived threads.
#[derive(Debug, Deserialize)]
pub(super) struct ThreadList {
    pub(super) threads: Vec<ChannelInfo>,
    #[serde(default)]
    pub(super) has_more: bool,
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
        let has_threads = |known: &&ChannelInfo| known.is_forum() || known.can_open_thread();
        self.channels.iter().filter(has_threads).map(|known| known.id).collect()
    }

    pub(super) fn into_channels(self) -> impl Iterator<Item = ChannelInfo> {
        let all = self.channels.into_iter().chain(self.threads);
        all.map(move |known| known.with_guild(Some(self.id)))
    }
}

impl Discord {
    pub(super) fn cached_channel(&self, channel: Id<ChannelMarker>) -> Option<ChannelInfo> {
        lock(&self.channels).get(&channel).cloned()
    }

    pub(super) fn cache_channels(&self, channels: impl IntoIterator<Item = ChannelInfo>) {
        let mut cache = lock(&self.channels);
        for known in channels {
            cache.put(known.id, known);
        }
    }

    /// Whether the channel is known to be a forum or media channel.
    pub(super) fn is_forum(&self, channel: Id<ChannelMarker>) -> bool {
        self.cached_channel(channel).is_some_and(|known| known.is_forum())
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
            owner_id: None,
            thread_metadata: None,
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

    /// Whether threads can be opened from its messages.
    pub(super) fn can_open_thread(&self) -> bool {
        matches!(self.kind, ChannelType::GuildText | ChannelType::GuildAnnouncement)
    }

    /// When a thread was archived.
    pub(super) fn archived_at(&self) -> Option<Timestamp> {
        Some(self.thread_metadata.as_ref()?.archive_timestamp)
    }

    pub(super) fn to_chat(&self) -> Chat {
        let kind = match self.kind {
            // In a group DM others read along, so it is not a direct message.
            ChannelType::Private => ChatKind::Dm,
            kind if kind.is_thread() => ChatKind::Thread,
            _ => ChatKind::Group,
        };
        let parent = self.parent_id.filter(|_| kind == ChatKind::Thread);
        let parent = parent.map(|parent| parent.to_string());
        Chat { parent, name: self.name.clone(), ..new_chat(self.id, kind) }
    }
}

/// A chat of which only the id and kind are known.
pub(super) fn new_chat(channel: Id<ChannelMarker>, kind: ChatKind) -> Chat {
    let id = channel.to_string();
    let thread = (kind == ChatKind::Thread).then(|| id.clone());
    Chat { platform: Platform::Discord, kind, id, thread, parent: None, name: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_not_a_direct_message() {
        let kind = |kind: u8| {
            let known: ChannelInfo =
                serde_json::from_value(serde_json::json!({"id": "7", "type": kind})).unwrap();
            known.to_chat().kind
        };
        assert_eq!(
            [0, 1, 3, 11].map(kind),
            [ChatKind::Group, ChatKind::Dm, ChatKind::Group, ChatKind::Thread]
        );
    }
}
