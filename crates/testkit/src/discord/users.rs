//! Users of the server and their actions.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::DiscordServer;
use super::gateway::{GUILDS, MESSAGES};
use super::state::{
    DownloadBehavior, FakeAttachment, FakeChannel, FakeChannelKind, FakeGuild, FakeMessage, FakeUser,
    Snowflake, World, now_ms,
};

/// How soon a client must respond to an interaction.
const RESPONSE_LIMIT: Duration = Duration::from_secs(3);

/// A message of a user.
#[derive(Debug, Clone, Default)]
pub struct UserPost {
    /// `<@id>` in it mentions a user.
    pub text: String,
    pub files: Vec<UserFile>,
    pub reply_to: Option<Snowflake>,
    /// Further mentions, such as the author of the message replied to.
    pub mentions: Vec<Snowflake>,
}

#[derive(Debug, Clone, Default)]
pub struct UserFile {
    pub name: String,
    pub content_type: Option<String>,
    pub bytes: Vec<u8>,
    /// The real size if none.
    pub claimed_size: Option<u64>,
    pub download: DownloadBehavior,
}

/// The client's response to a button or a command.
#[derive(Debug, Clone, PartialEq)]
pub struct InteractionReply {
    pub interaction: Snowflake,
    /// Discord's type: 4 message, 5 and 6 deferred, 7 edit of the message.
    pub kind: u64,
    pub data: Value,
    /// The message that it created or edited.
    pub message: Option<Snowflake>,
}

impl DiscordServer {
    pub fn add_user(&self, name: &str) -> Snowflake {
        self.insert_user(name, false)
    }

    /// Adds another bot.
    pub fn add_bot(&self, name: &str) -> Snowflake {
        self.insert_user(name, true)
    }

    fn insert_user(&self, name: &str, bot: bool) -> Snowflake {
        self.state.update(|world| {
            let id = world.next_id();
            world.users.insert(id, FakeUser { id, name: name.to_owned(), bot });
            id
        })
    }

    /// Adds a guild with the bot and these users; the first owns it.
    pub fn add_guild(&self, name: &str, users: &[Snowflake]) -> Snowflake {
        self.state.update(|world| {
            let id = world.next_id();
            let owner = users.first().copied().unwrap_or(world.bot);
            let members =
                users.iter().copied().chain([world.bot]).map(|user| (user, BTreeSet::new())).collect();
            let guild = FakeGuild { id, name: name.to_owned(), owner, roles: BTreeMap::new(), members };
            let json = world.guild_create_json(&guild);
            world.guilds.insert(id, guild);
            world.dispatch(GUILDS, Some(id), "GUILD_CREATE", &json);
            id
        })
    }

    /// Adds a role to a guild and gives it to these users.
    pub fn add_role(&self, guild: Snowflake, name: &str, users: &[Snowflake]) -> Snowflake {
        self.state.update(|world| {
            let id = world.next_id();
            if let Some(guild) = world.guilds.get_mut(&guild) {
                guild.roles.insert(id, name.to_owned());
                for user in users {
                    guild.members.entry(*user).or_default().insert(id);
                }
            }
            id
        })
    }

    pub fn add_channel(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Text)
    }

    pub fn add_forum(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Forum)
    }

    pub fn add_media_channel(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Media)
    }

    /// Requires a tag for each new post of a forum.
    pub fn require_tags(&self, forum: Snowflake) {
        self.state.update(|world| {
            if let Some(forum) = world.channels.get_mut(&forum) {
                forum.requires_tags = true;
            }
        });
    }

    /// Starts a post as a user. Its first message has the id of its thread.
    pub fn start_forum_post(&self, user: Snowflake, forum: Snowflake, title: &str, text: &str) -> Snowflake {
        self.state.update(|world| {
            let thread = world.start_thread(user, forum, None, title, FakeChannelKind::Thread, 1440);
            let (mentions, mention_roles, mention_everyone) = world.parse_mentions(text);
            world.add_message(FakeMessage {
                content: text.to_owned(),
                mentions,
                mention_roles,
                mention_everyone,
                ..empty_message(thread, thread, user)
            })
        })
    }

    fn insert_channel(&self, guild: Snowflake, name: &str, kind: FakeChannelKind) -> Snowflake {
        self.state.update(|world| {
            let channel = FakeChannel {
                guild: Some(guild),
                name: name.to_owned(),
                ..empty_channel(world.next_id(), kind)
            };
            world.add_channel(channel, "CHANNEL_CREATE")
        })
    }

    /// The direct channel of a user with the bot.
    pub fn dm_channel(&self, user: Snowflake) -> Snowflake {
        self.state.update(|world| world.dm_channel(user))
    }

    /// Starts a thread as a user, in a channel or from one of its messages.
    pub fn start_thread(
        &self,
        user: Snowflake,
        channel: Snowflake,
        from: Option<Snowflake>,
        name: &str,
    ) -> Snowflake {
        self.state
            .update(|world| world.start_thread(user, channel, from, name, FakeChannelKind::Thread, 1440))
    }

    /// Sends a text as a user.
    pub fn send_text(&self, user: Snowflake, channel: Snowflake, text: &str) -> Snowflake {
        self.send_post(user, channel, UserPost { text: text.to_owned(), ..UserPost::default() })
    }

    /// Sends a message as a user.
    pub fn send_post(&self, user: Snowflake, channel: Snowflake, post: UserPost) -> Snowflake {
        self.state.update(|world| {
            let (mut mentions, mention_roles, mention_everyone) = world.parse_mentions(&post.text);
            mentions.extend(post.mentions);
            let attachments = post.files.into_iter().map(|file| FakeAttachment {
                id: world.next_id(),
                name: file.name,
                description: None,
                content_type: file.content_type,
                size: file.claimed_size.unwrap_or(file.bytes.len() as u64),
                bytes: file.bytes,
                download: file.download,
            });
            let attachments: Vec<FakeAttachment> = attachments.collect();
            let message = FakeMessage {
                kind: if post.reply_to.is_some() { 19 } else { 0 },
                content: post.text,
                attachments,
                reference: post.reply_to,
                mentions,
                mention_roles,
                mention_everyone,
                ..empty_message(world.next_id(), channel, user)
            };
            world.add_message(message)
        })
    }

    /// Edits a message as its author.
    pub fn edit_message(&self, message: Snowflake, text: &str) {
        self.state.update(|world| {
            let (mentions, ..) = world.parse_mentions(text);
            world.edit_message(message, |message| {
                message.edits.push(std::mem::replace(&mut message.content, text.to_owned()));
                message.mentions = mentions;
            });
        });
    }

    pub fn delete_message(&self, message: Snowflake) {
        self.state.update(|world| world.delete_message(message));
    }

    /// Reacts to a message as a user.
    pub fn react(&self, user: Snowflake, message: Snowflake, emoji: &str) {
        self.state.update(|world| world.add_reaction(user, message, emoji));
    }

    /// Delivers a message again, with the same id.
    pub fn replay(&self, message: Snowflake) {
        self.state.update(|world| {
            if let Some(message) = world.messages.get(&message) {
                let (json, guild) = (world.message_event(message), world.guild_of(message.channel));
                world.dispatch(MESSAGES, guild, "MESSAGE_CREATE", &json);
            }
        });
    }

    /// Presses a button as a user and waits for the client's response. None within 3 s is a
    /// violation and an error.
    pub async fn press_button(
        &self,
        user: Snowflake,
        message: Snowflake,
        custom_id: &str,
    ) -> io::Result<InteractionReply> {
        let channel = self.read(|world| world.messages.get(&message).map(|message| message.channel));
        let channel = channel.ok_or(io::ErrorKind::NotFound)?;
        let button = self.read(|world| button(&world.messages.get(&message)?.components, custom_id));
        let button = button.ok_or_else(|| io::Error::other(format!("no button {custom_id}")))?;
        if button["disabled"] == true {
            return Err(io::Error::other(format!("the button {custom_id} is disabled")));
        }
        let data = json!({"custom_id": custom_id, "component_type": button["type"], "id": 2});
        self.interact(user, channel, Some(message), 3, data).await
    }

    pub fn archive_thread(&self, thread: Snowflake) {
        self.state.update(|world| {
            let Some(channel) = world.channels.get_mut(&thread) else { return };
            (channel.archived, channel.archived_at) = (true, Some(now_ms()));
            let (guild, channel) = (channel.guild, channel.clone());
            let json = world.channel_json(&channel);
            world.dispatch(GUILDS, guild, "THREAD_UPDATE", &json);
        });
    }

    /// Invokes a command as a user, with options such as `[{"name": …, "type": 3, "value": …}]`.
    /// Waits as [`Self::press_button`] does.
    pub async fn invoke_command(
        &self,
        user: Snowflake,
        channel: Snowflake,
        name: &str,
        options: Value,
    ) -> io::Result<InteractionReply> {
        let id = self.read(|world| {
            let guild = world.guild_of(channel);
            let fits = |known: &Option<Snowflake>| known.is_none() || *known == guild;
            let is_named = |(_, (known, command)): &(&Snowflake, &(Option<Snowflake>, Value))| {
                fits(known) && command["name"] == name
            };
            world.commands.iter().find(is_named).map(|(id, _)| *id)
        });
        let id = id.ok_or_else(|| io::Error::other(format!("no command /{name}")))?;
        let data = json!({"id": id.to_string(), "name": name, "type": 1, "options": options});
        self.interact(user, channel, None, 2, data).await
    }

    async fn interact(
        &self,
        user: Snowflake,
        channel: Snowflake,
        message: Option<Snowflake>,
        kind: u64,
        data: Value,
    ) -> io::Result<InteractionReply> {
        let id = self.state.update(|world| world.start_interaction(user, channel, message, kind, &data));
        let answered = |world: &World| {
            let interaction = world.interactions.get(&id)?;
            let (kind, data) = interaction.response.clone()?;
            Some(InteractionReply { interaction: id, kind, data, message: interaction.original })
        };
        match tokio::time::timeout(RESPONSE_LIMIT, self.wait_for(answered)).await {
            Ok(reply) => reply,
            Err(_) => {
                let text = format!("no response to the interaction {id} within 3 s");
                self.state.update(|world| world.record_violation(10_062, text.clone()));
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }
}

fn button(components: &Value, custom_id: &str) -> Option<Value> {
    let rows = components.as_array()?.iter().filter_map(|row| row["components"].as_array());
    rows.flatten().find(|button| button["custom_id"] == custom_id).cloned()
}

pub(super) fn empty_channel(id: Snowflake, kind: FakeChannelKind) -> FakeChannel {
    FakeChannel {
        id,
        kind,
        guild: None,
        name: String::new(),
        topic: None,
        parent: None,
        owner: None,
        recipient: None,
        members: BTreeSet::new(),
        archived: false,
        archived_at: None,
        locked: false,
        auto_archive: 1440,
        requires_tags: false,
    }
}

pub(super) fn empty_message(id: Snowflake, channel: Snowflake, author: Snowflake) -> FakeMessage {
    FakeMessage {
        id,
        channel,
        author,
        kind: 0,
        content: String::new(),
        edits: Vec::new(),
        attachments: Vec::new(),
        embeds: json!([]),
        components: json!([]),
        reference: None,
        mentions: BTreeSet::new(),
        mention_roles: BTreeSet::new(),
        mention_everyone: false,
        reactions: Vec::new(),
        flags: 0,
        nonce: Value::Null,
        thread: None,
        interaction: None,
        edited: None,
        deleted: false,
    }
}
