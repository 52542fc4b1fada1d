//! The JSON forms of the API.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::state::{
    FakeAttachment, FakeChannel, FakeChannelKind, FakeGuild, FakeMessage, Snowflake, World, created_at, iso,
};

const ADMINISTRATOR_PERMISSIONS: &str = "2251799813685247";

const HAS_THREAD: u64 = 1 << 5;

const REQUIRES_TAG: u64 = 1 << 4;

fn ids(list: impl IntoIterator<Item = Snowflake>) -> Vec<String> {
    list.into_iter().map(|id| id.to_string()).collect()
}

impl World {
    pub(super) fn user_json(&self, id: Snowflake) -> Value {
        let (name, bot) = match self.users.get(&id) {
            Some(user) => (user.name.as_str(), user.bot),
            None => ("deleted", false),
        };
        json!({
            "id": id.to_string(), "username": name, "discriminator": "0", "global_name": name, "avatar": null, "bot": bot,
            "public_flags": 0, "accent_color": null, "banner": null, "avatar_decoration_data": null,
        })
    }

    pub(super) fn me_json(&self) -> Value {
        let mut me = self.user_json(self.bot);
        for (key, value) in [
            ("mfa_enabled", json!(false)),
            ("verified", json!(true)),
            ("flags", json!(0)),
            ("email", Value::Null),
        ] {
            me[key] = value;
        }
        me
    }

    /// A member without the user.
    fn membership(&self, guild: Snowflake, user: Snowflake) -> Value {
        let none = BTreeSet::new();
        let roles = self.guilds.get(&guild).and_then(|guild| guild.members.get(&user)).unwrap_or(&none);
        json!({
            "nick": null, "avatar": null, "banner": null, "roles": ids(roles.iter().copied()), "joined_at": iso(created_at(guild)),
            "premium_since": null, "deaf": false, "mute": false, "flags": 0, "pending": false,
            "communication_disabled_until": null,
        })
    }

    pub(super) fn member_json(&self, guild: Snowflake, user: Snowflake) -> Value {
        let mut member = self.membership(guild, user);
        member["user"] = self.user_json(user);
        member
    }

    pub(super) fn thread_member_json(thread: Snowflake, user: Snowflake) -> Value {
        json!({
            "id": thread.to_string(), "user_id": user.to_string(), "join_timestamp": iso(created_at(thread)), "flags": 0,
        })
    }

    pub(super) fn channel_json(&self, channel: &FakeChannel) -> Value {
        // The last message of a forum is its last thread.
        let last = if channel.kind.is_forum() {
            self.threads_of(channel.id).last().map(|thread| thread.id)
        } else {
            self.messages_in(channel.id).last().map(|message| message.id)
        };
        let mut json = json!({
            "id": channel.id.to_string(), "type": channel.kind.number(),
            "last_message_id": last.map(|id| id.to_string()), "flags": if channel.requires_tags { REQUIRES_TAG } else { 0 },
        });
        let mut set = |key: &str, value: Value| json[key] = value;
        if let Some(guild) = channel.guild {
            set("guild_id", guild.to_string().into());
            set("name", channel.name.as_str().into());
            set("parent_id", channel.parent.map(|id| id.to_string()).into());
            set("rate_limit_per_user", 0.into());
        }
        match channel.kind {
            FakeChannelKind::Dm => {
                let recipient = channel.recipient.map(|user| self.user_json(user));
                set("recipients", recipient.into_iter().collect());
            }
            FakeChannelKind::Text | FakeChannelKind::Forum | FakeChannelKind::Media => {
                set("topic", channel.topic.clone().into());
                set("position", 0.into());
                set("nsfw", false.into());
                set("permission_overwrites", json!([]));
                set("default_auto_archive_duration", 1440.into());
                if channel.kind.is_forum() {
                    set("available_tags", json!([]));
                    set("default_reaction_emoji", Value::Null);
                    set("default_sort_order", Value::Null);
                    set("default_forum_layout", 0.into());
                }
            }
            FakeChannelKind::Thread | FakeChannelKind::PrivateThread => {
                let count = self.messages_in(channel.id).len();
                set("owner_id", channel.owner.unwrap_or_default().to_string().into());
                set("message_count", count.into());
                set("total_message_sent", count.into());
                set("member_count", channel.members.len().into());
                set(
                    "thread_metadata",
                    json!({
                        "archived": channel.archived, "auto_archive_duration": channel.auto_archive,
                        "archive_timestamp": iso(channel.archived_at.unwrap_or_else(|| created_at(channel.id))), "create_timestamp": iso(created_at(channel.id)),
                        "locked": channel.locked, "invitable": true,
                    }),
                );
                if channel.members.contains(&self.bot) {
                    set("member", Self::thread_member_json(channel.id, self.bot));
                }
            }
        }
        json
    }

    /// A guild without its channels and members.
    pub(super) fn guild_json(&self, guild: &FakeGuild) -> Value {
        let role = |id: Snowflake, name: &str, position: usize| {
            json!({
                "id": id.to_string(), "name": name, "color": 0, "hoist": false, "icon": null, "unicode_emoji": null,
                "colors": {"primary_color": 0, "secondary_color": null, "tertiary_color": null}, "position": position,
                "permissions": ADMINISTRATOR_PERMISSIONS, "managed": false, "mentionable": true, "flags": 0,
            })
        };
        let everyone = role(guild.id, "@everyone", 0);
        let others =
            guild.roles.iter().enumerate().map(|(position, (id, name))| role(*id, name, position + 1));
        let roles: Vec<Value> = std::iter::once(everyone).chain(others).collect();
        json!({
            "id": guild.id.to_string(), "name": guild.name, "icon": null, "splash": null, "discovery_splash": null,
            "owner_id": guild.owner.to_string(), "afk_channel_id": null, "afk_timeout": 300, "verification_level": 0,
            "default_message_notifications": 0, "explicit_content_filter": 0, "roles": roles, "emojis": [], "features": [],
            "mfa_level": 0, "application_id": null, "system_channel_id": null, "system_channel_flags": 0,
            "rules_channel_id": null, "max_members": 500_000, "vanity_url_code": null, "description": null, "banner": null,
            "premium_tier": 0, "premium_subscription_count": 0, "preferred_locale": "en-US",
            "public_updates_channel_id": null, "nsfw_level": 0, "premium_progress_bar_enabled": false, "stickers": [],
            "safety_alerts_channel_id": null,
        })
    }

    /// A complete guild, as a new session gets it.
    pub(super) fn guild_create_json(&self, guild: &FakeGuild) -> Value {
        let mut json = self.guild_json(guild);
        let of = |threads: bool| -> Vec<Value> {
            let here = self.channels.values().filter(|channel| channel.guild == Some(guild.id));
            here.filter(|channel| channel.kind.is_thread() == threads && !channel.archived)
                .map(|channel| self.channel_json(channel))
                .collect()
        };
        json["channels"] = of(false).into();
        json["threads"] = of(true).into();
        json["members"] = guild.members.keys().map(|user| self.member_json(guild.id, *user)).collect();
        json["member_count"] = guild.members.len().into();
        json["joined_at"] = iso(created_at(guild.id)).into();
        for (key, value) in [("large", json!(false)), ("unavailable", json!(false))] {
            json[key] = value;
        }
        for key in
            ["voice_states", "presences", "stage_instances", "guild_scheduled_events", "soundboard_sounds"]
        {
            json[key] = json!([]);
        }
        json
    }

    pub(super) fn attachment_json(&self, channel: Snowflake, attachment: &FakeAttachment) -> Value {
        let plain = |char: char| if char.is_ascii_alphanumeric() || char == '.' { char } else { '_' };
        let name: String = attachment.name.chars().map(plain).collect();
        let url = format!("{}/attachments/{channel}/{}/{name}", self.base, attachment.id);
        let mut json = json!({
            "id": attachment.id.to_string(), "filename": attachment.name, "size": attachment.size, "url": url,
            "proxy_url": url, "content_type": attachment.content_type,
        });
        if let Some(description) = &attachment.description {
            json["description"] = description.as_str().into();
        }
        json
    }

    /// A message as the HTTP API returns it.
    pub(super) fn message_json(&self, message: &FakeMessage) -> Value {
        self.message_at_depth(message, 0)
    }

    fn message_at_depth(&self, message: &FakeMessage, depth: usize) -> Value {
        let guild = self.channels.get(&message.channel).and_then(|channel| channel.guild);
        let thread = message.thread.and_then(|thread| self.channels.get(&thread));
        let flags = message.flags | if thread.is_some() { HAS_THREAD } else { 0 };
        let files = message.attachments.iter().map(|file| self.attachment_json(message.channel, file));
        let mut json = json!({
            "id": message.id.to_string(), "channel_id": message.channel.to_string(), "type": message.kind,
            "author": self.user_json(message.author), "content": message.content, "timestamp": iso(created_at(message.id)),
            "edited_timestamp": message.edited.map(iso), "tts": false, "mention_everyone": message.mention_everyone,
            "mentions": message.mentions.iter().map(|user| self.mention_json(guild, *user)).collect::<Vec<_>>(),
            "mention_roles": ids(message.mention_roles.iter().copied()), "attachments": files.collect::<Vec<_>>(),
            "embeds": message.embeds, "components": message.components, "pinned": false, "flags": flags,
        });
        if !message.nonce.is_null() {
            json["nonce"] = message.nonce.clone();
        }
        if !message.reactions.is_empty() {
            json["reactions"] = self.reactions_json(message);
        }
        if let Some(thread) = thread {
            json["thread"] = self.channel_json(thread);
        }
        if let Some(target) = message.reference {
            let there = self.messages.get(&target).filter(|target| !target.deleted);
            let channel = self.messages.get(&target).map_or(message.channel, |target| target.channel);
            json["message_reference"] = json!({
                "type": 0, "message_id": target.to_string(), "channel_id": channel.to_string(),
            });
            if let Some(guild) = guild {
                json["message_reference"]["guild_id"] = guild.to_string().into();
            }
            // References are resolved only one level deep.
            if depth == 0 {
                json["referenced_message"] =
                    there.map_or(Value::Null, |there| self.message_at_depth(there, 1));
            }
        }
        if let Some(interaction) = message.interaction.and_then(|id| self.interactions.get(&id)) {
            json["application_id"] = self.bot.to_string().into();
            json["webhook_id"] = self.bot.to_string().into();
            json["interaction_metadata"] = json!({
                "id": interaction.id.to_string(), "type": interaction.kind, "user": self.user_json(interaction.user),
                "authorizing_integration_owners": {"0": guild.unwrap_or_default().to_string()},
            });
        }
        json
    }

    fn mention_json(&self, guild: Option<Snowflake>, user: Snowflake) -> Value {
        let mut json = self.user_json(user);
        if let Some(guild) = guild {
            json["member"] = self.membership(guild, user);
        }
        json
    }

    fn reactions_json(&self, message: &FakeMessage) -> Value {
        let mut emojis: Vec<&str> = Vec::new();
        for (emoji, _) in &message.reactions {
            if !emojis.contains(&emoji.as_str()) {
                emojis.push(emoji);
            }
        }
        let one = |emoji: &str| {
            let by: Vec<Snowflake> =
                message.reactions.iter().filter(|(e, _)| e == emoji).map(|(_, user)| *user).collect();
            json!({
                "emoji": emoji_json(emoji), "count": by.len(), "count_details": {"burst": 0, "normal": by.len()},
                "me": by.contains(&self.bot), "me_burst": false, "burst_colors": [],
            })
        };
        emojis.into_iter().map(one).collect()
    }

    /// A message as an event has it: with its guild and its author's membership.
    pub(super) fn message_event(&self, message: &FakeMessage) -> Value {
        let mut json = self.message_json(message);
        if let Some(channel) = self.channels.get(&message.channel) {
            json["channel_type"] = channel.kind.number().into();
            if let Some(guild) = channel.guild {
                json["guild_id"] = guild.to_string().into();
                json["member"] = self.membership(guild, message.author);
            }
        }
        json
    }
}

/// An emoji by name; those of a guild are `name:id`.
pub(super) fn emoji_json(emoji: &str) -> Value {
    match emoji.split_once(':') {
        Some((name, id)) => json!({"id": id, "name": name, "animated": false}),
        None => json!({"id": null, "name": emoji}),
    }
}
