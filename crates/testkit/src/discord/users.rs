//! The people of the server, and what they do.

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

/// What a person writes.
#[derive(Debug, Clone, Default)]
pub struct UserPost {
    /// The text. Who is mentioned in it as `<@id>` is mentioned.
    pub text: String,
    /// The files.
    pub files: Vec<UserFile>,
    /// The message that is answered.
    pub reply_to: Option<Snowflake>,
    /// Who is mentioned besides, as the one who is answered.
    pub mentions: Vec<Snowflake>,
}

/// A file that a person sends.
#[derive(Debug, Clone, Default)]
pub struct UserFile {
    /// Its name.
    pub name: String,
    /// What it says that it is.
    pub content_type: Option<String>,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// What it says that its size is; its real size if none.
    pub claimed_size: Option<u64>,
    /// How it is served.
    pub download: DownloadBehavior,
}

/// The client's answer to a press or a command.
#[derive(Debug, Clone, PartialEq)]
pub struct InteractionReply {
    /// The interaction.
    pub interaction: Snowflake,
    /// Discord's number: 4 a message, 5 and 6 later, 7 a change of the message.
    pub kind: u64,
    /// What came with it.
    pub data: Value,
    /// The message that it made or changed.
    pub message: Option<Snowflake>,
}

impl DiscordServer {
    /// A new person.
    pub fn add_user(&self, name: &str) -> Snowflake {
        self.insert_user(name, false)
    }

    /// Another bot.
    pub fn add_bot(&self, name: &str) -> Snowflake {
        self.insert_user(name, true)
    }

    fn insert_user(&self, name: &str, bot: bool) -> Snowflake {
        self.shared.update(|world| {
            let id = world.next_id();
            world.users.insert(id, FakeUser { id, name: name.to_owned(), bot });
            id
        })
    }

    /// A new guild with the bot and these people; the first owns it.
    pub fn add_guild(&self, name: &str, people: &[Snowflake]) -> Snowflake {
        self.shared.update(|world| {
            let id = world.next_id();
            let owner = people.first().copied().unwrap_or(world.bot);
            let members =
                people.iter().copied().chain([world.bot]).map(|user| (user, BTreeSet::new())).collect();
            let guild = FakeGuild { id, name: name.to_owned(), owner, roles: BTreeMap::new(), members };
            let json = world.guild_create_json(&guild);
            world.guilds.insert(id, guild);
            world.dispatch(GUILDS, Some(id), "GUILD_CREATE", &json);
            id
        })
    }

    /// A new role in a guild, for these people.
    pub fn add_role(&self, guild: Snowflake, name: &str, people: &[Snowflake]) -> Snowflake {
        self.shared.update(|world| {
            let id = world.next_id();
            if let Some(guild) = world.guilds.get_mut(&guild) {
                guild.roles.insert(id, name.to_owned());
                for user in people {
                    guild.members.entry(*user).or_default().insert(id);
                }
            }
            id
        })
    }

    /// A new channel.
    pub fn add_channel(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Text)
    }

    /// A new forum.
    pub fn add_forum(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Forum)
    }

    /// A new channel for posts with files.
    pub fn add_media_channel(&self, guild: Snowflake, name: &str) -> Snowflake {
        self.insert_channel(guild, name, FakeChannelKind::Media)
    }

    /// From now on each post of a forum must have a tag.
    pub fn require_tags(&self, forum: Snowflake) {
        self.shared.update(|world| {
            if let Some(forum) = world.channels.get_mut(&forum) {
                forum.requires_tags = true;
            }
        });
    }

    /// A person begins a post. Its first message has the id of its thread.
    pub fn start_forum_post(&self, user: Snowflake, forum: Snowflake, title: &str, text: &str) -> Snowflake {
        self.shared.update(|world| {
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
        self.shared.update(|world| {
            let channel = FakeChannel {
                guild: Some(guild),
                name: name.to_owned(),
                ..empty_channel(world.next_id(), kind)
            };
            world.add_channel(channel, "CHANNEL_CREATE")
        })
    }

    /// The direct talk of a person with the bot.
    pub fn dm_channel(&self, user: Snowflake) -> Snowflake {
        self.shared.update(|world| world.dm(user))
    }

    /// A thread that a person starts, in a channel or from a message of it.
    pub fn start_thread(
        &self,
        user: Snowflake,
        channel: Snowflake,
        from: Option<Snowflake>,
        name: &str,
    ) -> Snowflake {
        self.shared
            .update(|world| world.start_thread(user, channel, from, name, FakeChannelKind::Thread, 1440))
    }

    /// A person writes in a channel.
    pub fn send_text(&self, user: Snowflake, channel: Snowflake, text: &str) -> Snowflake {
        self.send_post(user, channel, UserPost { text: text.to_owned(), ..UserPost::default() })
    }

    /// A person writes, with all that there is.
    pub fn send_post(&self, user: Snowflake, channel: Snowflake, post: UserPost) -> Snowflake {
        self.shared.update(|world| {
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

    /// A person changes what they wrote.
    pub fn edit_message(&self, message: Snowflake, text: &str) {
        self.shared.update(|world| {
            let (mentions, ..) = world.parse_mentions(text);
            world.change(message, |message| {
                message.edits.push(std::mem::replace(&mut message.content, text.to_owned()));
                message.mentions = mentions;
            });
        });
    }

    /// Someone removes a message.
    pub fn delete_message(&self, message: Snowflake) {
        self.shared.update(|world| world.remove(message));
    }

    /// A person reacts to a message.
    pub fn react(&self, user: Snowflake, message: Snowflake, emoji: &str) {
        self.shared.update(|world| world.react(user, message, emoji));
    }

    /// Delivers a message once more, with the same id.
    pub fn replay(&self, message: Snowflake) {
        self.shared.update(|world| {
            if let Some(message) = world.messages.get(&message) {
                let (json, guild) = (world.message_event(message), world.guild_of(message.channel));
                world.dispatch(MESSAGES, guild, "MESSAGE_CREATE", &json);
            }
        });
    }

    /// A person presses a button. Waits for the client's answer; none within 3 s is a fault and an error.
    pub async fn press_button(
        &self,
        user: Snowflake,
        message: Snowflake,
        custom_id: &str,
    ) -> io::Result<InteractionReply> {
        let channel = self.read(|world| world.messages.get(&message).map(|message| message.channel));
        let channel = channel.ok_or(io::ErrorKind::NotFound)?;
        let button = self.read(|world| button(&world.messages.get(&message)?.components, custom_id));
        let button = button.ok_or_else(|| io::Error::other(format!("there is no button {custom_id}")))?;
        if button["disabled"] == true {
            return Err(io::Error::other(format!("the button {custom_id} is disabled")));
        }
        let data = json!({"custom_id": custom_id, "component_type": button["type"], "id": 2});
        self.interact(user, channel, Some(message), 3, data).await
    }

    /// A thread is closed.
    pub fn archive_thread(&self, thread: Snowflake) {
        self.shared.update(|world| {
            let Some(channel) = world.channels.get_mut(&thread) else { return };
            (channel.archived, channel.archived_at) = (true, Some(now_ms()));
            let (guild, channel) = (channel.guild, channel.clone());
            let json = world.channel_json(&channel);
            world.dispatch(GUILDS, guild, "THREAD_UPDATE", &json);
        });
    }

    /// A person calls a command. Options are `[{"name": …, "type": 3, "value": …}]`. Waits as [`Self::press`] does.
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
            let named = |(_, (known, command)): &(&Snowflake, &(Option<Snowflake>, Value))| {
                fits(known) && command["name"] == name
            };
            world.commands.iter().find(named).map(|(id, _)| *id)
        });
        let id = id.ok_or_else(|| io::Error::other(format!("there is no command /{name}")))?;
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
        let id = self.shared.update(|world| world.interact(user, channel, message, kind, &data));
        let answered = |world: &World| {
            let interaction = world.interactions.get(&id)?;
            let (kind, data) = interaction.response.clone()?;
            Some(InteractionReply { interaction: id, kind, data, message: interaction.original })
        };
        let limit = Duration::from_secs(3);
        match tokio::time::timeout(limit, self.wait_for(answered)).await {
            Ok(reply) => reply,
            Err(_) => {
                let text = format!("nothing answered the interaction {id} within 3 s");
                self.shared.update(|world| world.record_violation(10_062, text.clone()));
                Err(io::Error::new(io::ErrorKind::TimedOut, text))
            }
        }
    }
}

/// The component with this id.
fn button(components: &Value, custom_id: &str) -> Option<Value> {
    let rows = components.as_array()?.iter().filter_map(|row| row["components"].as_array());
    rows.flatten().find(|button| button["custom_id"] == custom_id).cloned()
}

/// A channel without anything special.
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

/// A message without anything in it.
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
