//! Changes of the state, and the gateway events that they cause.

use std::time::Instant;

use serde_json::{Value, json};

use super::gateway::{GUILDS, MESSAGES, REACTIONS};
use super::json::emoji_json;
use super::state::{FakeChannel, FakeChannelKind, FakeInteraction, FakeMessage, Snowflake, World, now_ms};
use super::users::{empty_channel, empty_message};

/// The flag of a message that only one user sees.
pub(super) const EPHEMERAL: u64 = 1 << 6;

impl World {
    pub(super) fn guild_of(&self, channel: Snowflake) -> Option<Snowflake> {
        self.channels.get(&channel)?.guild
    }

    pub(super) fn add_channel(&mut self, channel: FakeChannel, event: &str) -> Snowflake {
        let (id, guild) = (channel.id, channel.guild);
        let mut json = self.channel_json(&channel);
        if channel.kind.is_thread() {
            json["newly_created"] = true.into();
        }
        self.channels.insert(id, channel);
        self.dispatch(GUILDS, guild, event, &json);
        id
    }

    pub(super) fn dm_channel(&mut self, user: Snowflake) -> Snowflake {
        let known = self.channels.values().find(|channel| channel.recipient == Some(user));
        if let Some(channel) = known {
            return channel.id;
        }
        let channel =
            FakeChannel { recipient: Some(user), ..empty_channel(self.next_id(), FakeChannelKind::Dm) };
        // Bots get no event for a new direct channel.
        let id = channel.id;
        self.channels.insert(id, channel);
        id
    }

    pub(super) fn add_message(&mut self, message: FakeMessage) -> Snowflake {
        let (id, guild) = (message.id, self.guild_of(message.channel));
        let json = self.message_event(&message);
        let hidden = message.flags & EPHEMERAL != 0;
        if let Some(channel) =
            self.channels.get_mut(&message.channel).filter(|channel| channel.kind.is_thread())
        {
            channel.members.insert(message.author);
        }
        self.messages.insert(id, message);
        if !hidden {
            self.dispatch(MESSAGES, guild, "MESSAGE_CREATE", &json);
        }
        id
    }

    pub(super) fn edit_message(&mut self, id: Snowflake, change: impl FnOnce(&mut FakeMessage)) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        change(message);
        message.edited = Some(now_ms());
        self.dispatch_edit(id);
    }

    pub(super) fn dispatch_edit(&mut self, id: Snowflake) {
        let Some(message) = self.messages.get(&id).filter(|message| message.flags & EPHEMERAL == 0) else {
            return;
        };
        let (json, guild) = (self.message_event(message), self.guild_of(message.channel));
        self.dispatch(MESSAGES, guild, "MESSAGE_UPDATE", &json);
    }

    pub(super) fn delete_message(&mut self, id: Snowflake) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.deleted = true;
        let channel = message.channel;
        let mut json = json!({"id": id.to_string(), "channel_id": channel.to_string()});
        let guild = self.guild_of(channel);
        if let Some(guild) = guild {
            json["guild_id"] = guild.to_string().into();
        }
        self.dispatch(MESSAGES, guild, "MESSAGE_DELETE", &json);
    }

    pub(super) fn add_reaction(&mut self, user: Snowflake, id: Snowflake, emoji: &str) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let reaction = (emoji.to_owned(), user);
        if message.reactions.contains(&reaction) {
            return;
        }
        message.reactions.push(reaction);
        self.dispatch_reaction("MESSAGE_REACTION_ADD", user, id, emoji);
    }

    pub(super) fn remove_reaction(&mut self, user: Snowflake, id: Snowflake, emoji: &str) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.reactions.retain(|(known, by)| known != emoji || *by != user);
        self.dispatch_reaction("MESSAGE_REACTION_REMOVE", user, id, emoji);
    }

    fn dispatch_reaction(&mut self, event: &str, user: Snowflake, id: Snowflake, emoji: &str) {
        let Some(message) = self.messages.get(&id) else { return };
        let guild = self.guild_of(message.channel);
        let mut json = json!({
            "user_id": user.to_string(), "channel_id": message.channel.to_string(), "message_id": id.to_string(),
            "emoji": emoji_json(emoji), "burst": false, "type": 0, "message_author_id": message.author.to_string(),
        });
        if let Some(guild) = guild {
            json["guild_id"] = guild.to_string().into();
            if event.ends_with("ADD") {
                json["member"] = self.member_json(guild, user);
            }
        }
        self.dispatch(REACTIONS, guild, event, &json);
    }

    /// Starts a thread. One that starts from a message has the message's id.
    pub(super) fn start_thread(
        &mut self,
        user: Snowflake,
        parent: Snowflake,
        from: Option<Snowflake>,
        name: &str,
        kind: FakeChannelKind,
        auto_archive: u64,
    ) -> Snowflake {
        let id = from.filter(|_| !self.injected.separate_thread_ids).unwrap_or_else(|| self.next_id());
        let thread = FakeChannel {
            guild: self.guild_of(parent),
            name: name.to_owned(),
            parent: Some(parent),
            owner: Some(user),
            members: [user].into(),
            auto_archive,
            ..empty_channel(id, kind)
        };
        self.add_channel(thread, "THREAD_CREATE");
        let is_forum = self.channels.get(&parent).is_some_and(|parent| parent.kind.is_forum());
        if let Some(from) = from {
            if let Some(message) = self.messages.get_mut(&from) {
                message.thread = Some(id);
            }
            self.dispatch_edit(from);
            let starter =
                FakeMessage { kind: 21, reference: Some(from), ..empty_message(self.next_id(), id, user) };
            self.add_message(starter);
        } else if kind == FakeChannelKind::Thread && !is_forum {
            let note = FakeMessage {
                kind: 18,
                content: name.to_owned(),
                ..empty_message(self.next_id(), parent, user)
            };
            self.add_message(note);
        }
        id
    }

    /// Starts an interaction and sends its event.
    pub(super) fn start_interaction(
        &mut self,
        user: Snowflake,
        channel: Snowflake,
        message: Option<Snowflake>,
        kind: u64,
        data: &Value,
    ) -> Snowflake {
        let id = self.next_id();
        let token = format!("interaction-{id:x}");
        let mut json = json!({
            "id": id.to_string(), "application_id": self.bot.to_string(), "type": kind, "data": data,
            "channel_id": channel.to_string(), "token": token, "version": 1, "locale": "en-US", "entitlements": [],
            "app_permissions": "2251799813685247", "attachment_size_limit": 10_485_760,
        });
        if let Some(channel) = self.channels.get(&channel) {
            json["channel"] = self.channel_json(channel);
        }
        match self.guild_of(channel) {
            Some(guild) => {
                json["guild_id"] = guild.to_string().into();
                json["guild"] = json!({"id": guild.to_string(), "locale": "en-US", "features": []});
                json["guild_locale"] = "en-US".into();
                json["member"] = self.member_json(guild, user);
                json["member"]["permissions"] = "2251799813685247".into();
                json["context"] = 0.into();
                json["authorizing_integration_owners"] = json!({"0": guild.to_string()});
            }
            None => {
                json["user"] = self.user_json(user);
                json["context"] = 1.into();
                json["authorizing_integration_owners"] = json!({"0": "0"});
            }
        }
        if let Some(message) = message.and_then(|id| self.messages.get(&id)) {
            json["message"] = self.message_json(message);
        }
        let interaction = FakeInteraction {
            id,
            token,
            kind,
            user,
            channel,
            message,
            at: Instant::now(),
            response: None,
            original: None,
        };
        self.interactions.insert(id, interaction);
        self.dispatch(0, None, "INTERACTION_CREATE", &json);
        id
    }
}
