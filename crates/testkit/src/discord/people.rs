//! The people of the server, and what they do.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use serde_json::{Value, json};

use super::Server;
use super::gateway::{GUILDS, MESSAGES};
use super::state::{Attachment, Channel, Guild, Id, Kind, Manner, Message, User, World, now_ms};

/// What a person writes.
#[derive(Debug, Clone, Default)]
pub struct Post {
    /// The text. Who is mentioned in it as `<@id>` is mentioned.
    pub text: String,
    /// The files.
    pub files: Vec<File>,
    /// The message that is answered.
    pub reply_to: Option<Id>,
    /// Who is mentioned besides, as the one who is answered.
    pub mentions: Vec<Id>,
}

/// A file that a person sends.
#[derive(Debug, Clone, Default)]
pub struct File {
    /// Its name.
    pub name: String,
    /// What it says that it is.
    pub content_type: Option<String>,
    /// What is in it.
    pub bytes: Vec<u8>,
    /// What it says that its size is; its real size if none.
    pub claims: Option<u64>,
    /// How it is served.
    pub manner: Manner,
}

/// The client's answer to a press or a command.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// The interaction.
    pub interaction: Id,
    /// Discord's number: 4 a message, 5 and 6 later, 7 a change of the message.
    pub kind: u64,
    /// What came with it.
    pub data: Value,
    /// The message that it made or changed.
    pub message: Option<Id>,
}

impl Server {
    /// A new person.
    pub fn user(&self, name: &str) -> Id {
        self.someone(name, false)
    }

    /// Another bot.
    pub fn other_bot(&self, name: &str) -> Id {
        self.someone(name, true)
    }

    fn someone(&self, name: &str, bot: bool) -> Id {
        self.shared.with(|world| {
            let id = world.id();
            world.users.insert(id, User { id, name: name.to_owned(), bot });
            id
        })
    }

    /// A new guild with the bot and these people; the first owns it.
    pub fn guild(&self, name: &str, people: &[Id]) -> Id {
        self.shared.with(|world| {
            let id = world.id();
            let owner = people.first().copied().unwrap_or(world.bot);
            let members =
                people.iter().copied().chain([world.bot]).map(|user| (user, BTreeSet::new())).collect();
            let guild = Guild { id, name: name.to_owned(), owner, roles: BTreeMap::new(), members };
            let json = world.guild_create_json(&guild);
            world.guilds.insert(id, guild);
            world.dispatch(GUILDS, Some(id), "GUILD_CREATE", &json);
            id
        })
    }

    /// A new role in a guild, for these people.
    pub fn role(&self, guild: Id, name: &str, people: &[Id]) -> Id {
        self.shared.with(|world| {
            let id = world.id();
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
    pub fn channel(&self, guild: Id, name: &str) -> Id {
        self.place(guild, name, Kind::Text)
    }

    /// A new forum.
    pub fn forum(&self, guild: Id, name: &str) -> Id {
        self.place(guild, name, Kind::Forum)
    }

    /// A new channel for posts with files.
    pub fn media(&self, guild: Id, name: &str) -> Id {
        self.place(guild, name, Kind::Media)
    }

    /// From now on each post of a forum must have a tag.
    pub fn want_tags(&self, forum: Id) {
        self.shared.with(|world| {
            if let Some(forum) = world.channels.get_mut(&forum) {
                forum.wants_tags = true;
            }
        });
    }

    /// A person begins a post. Its first message has the id of its thread.
    pub fn begin_post(&self, user: Id, forum: Id, title: &str, text: &str) -> Id {
        self.shared.with(|world| {
            let thread = world.start_thread(user, forum, None, title, Kind::Thread, 1440);
            let (mentions, mention_roles, mention_everyone) = world.mentioned(text);
            world.add_message(Message {
                content: text.to_owned(),
                mentions,
                mention_roles,
                mention_everyone,
                ..blank_message(thread, thread, user)
            })
        })
    }

    fn place(&self, guild: Id, name: &str, kind: Kind) -> Id {
        self.shared.with(|world| {
            let channel = Channel { guild: Some(guild), name: name.to_owned(), ..blank(world.id(), kind) };
            world.add_channel(channel, "CHANNEL_CREATE")
        })
    }

    /// The direct talk of a person with the bot.
    pub fn dm(&self, user: Id) -> Id {
        self.shared.with(|world| world.dm(user))
    }

    /// A thread that a person starts, in a channel or from a message of it.
    pub fn thread(&self, user: Id, channel: Id, from: Option<Id>, name: &str) -> Id {
        self.shared.with(|world| world.start_thread(user, channel, from, name, Kind::Thread, 1440))
    }

    /// A person writes in a channel.
    pub fn say(&self, user: Id, channel: Id, text: &str) -> Id {
        self.post(user, channel, Post { text: text.to_owned(), ..Post::default() })
    }

    /// A person writes, with all that there is.
    pub fn post(&self, user: Id, channel: Id, post: Post) -> Id {
        self.shared.with(|world| {
            let (mut mentions, mention_roles, mention_everyone) = world.mentioned(&post.text);
            mentions.extend(post.mentions);
            let attachments = post.files.into_iter().map(|file| Attachment {
                id: world.id(),
                name: file.name,
                description: None,
                content_type: file.content_type,
                size: file.claims.unwrap_or(file.bytes.len() as u64),
                bytes: file.bytes,
                manner: file.manner,
            });
            let attachments: Vec<Attachment> = attachments.collect();
            let message = Message {
                kind: if post.reply_to.is_some() { 19 } else { 0 },
                content: post.text,
                attachments,
                reference: post.reply_to,
                mentions,
                mention_roles,
                mention_everyone,
                ..blank_message(world.id(), channel, user)
            };
            world.add_message(message)
        })
    }

    /// A person changes what they wrote.
    pub fn edit(&self, message: Id, text: &str) {
        self.shared.with(|world| {
            let (mentions, ..) = world.mentioned(text);
            world.change(message, |message| {
                message.edits.push(std::mem::replace(&mut message.content, text.to_owned()));
                message.mentions = mentions;
            });
        });
    }

    /// Someone removes a message.
    pub fn delete(&self, message: Id) {
        self.shared.with(|world| world.remove(message));
    }

    /// A person reacts to a message.
    pub fn react(&self, user: Id, message: Id, emoji: &str) {
        self.shared.with(|world| world.react(user, message, emoji));
    }

    /// Delivers a message once more, with the same id.
    pub fn replay(&self, message: Id) {
        self.shared.with(|world| {
            if let Some(message) = world.messages.get(&message) {
                let (json, guild) = (world.message_event(message), world.guild_of(message.channel));
                world.dispatch(MESSAGES, guild, "MESSAGE_CREATE", &json);
            }
        });
    }

    /// A person presses a button. Waits for the client's answer; none within 3 s is a fault and an error.
    pub async fn press(&self, user: Id, message: Id, custom_id: &str) -> io::Result<Reply> {
        let channel = self.look(|world| world.messages.get(&message).map(|message| message.channel));
        let channel = channel.ok_or(io::ErrorKind::NotFound)?;
        let button = self.look(|world| button(&world.messages.get(&message)?.components, custom_id));
        let button = button.ok_or_else(|| io::Error::other(format!("there is no button {custom_id}")))?;
        if button["disabled"] == true {
            return Err(io::Error::other(format!("the button {custom_id} is disabled")));
        }
        let data = json!({"custom_id": custom_id, "component_type": button["type"], "id": 2});
        self.interact(user, channel, Some(message), 3, data).await
    }

    /// A thread is closed.
    pub fn archive(&self, thread: Id) {
        self.shared.with(|world| {
            let Some(channel) = world.channels.get_mut(&thread) else { return };
            (channel.archived, channel.archived_at) = (true, Some(now_ms()));
            let (guild, channel) = (channel.guild, channel.clone());
            let json = world.channel_json(&channel);
            world.dispatch(GUILDS, guild, "THREAD_UPDATE", &json);
        });
    }

    /// A person calls a command. Options are `[{"name": …, "type": 3, "value": …}]`. Waits as [`Self::press`] does.
    pub async fn invoke(&self, user: Id, channel: Id, name: &str, options: Value) -> io::Result<Reply> {
        let id = self.look(|world| {
            let guild = world.guild_of(channel);
            let fits = |known: &Option<Id>| known.is_none() || *known == guild;
            let named =
                |(_, (known, command)): &(&Id, &(Option<Id>, Value))| fits(known) && command["name"] == name;
            world.commands.iter().find(named).map(|(id, _)| *id)
        });
        let id = id.ok_or_else(|| io::Error::other(format!("there is no command /{name}")))?;
        let data = json!({"id": id.to_string(), "name": name, "type": 1, "options": options});
        self.interact(user, channel, None, 2, data).await
    }

    async fn interact(
        &self,
        user: Id,
        channel: Id,
        message: Option<Id>,
        kind: u64,
        data: Value,
    ) -> io::Result<Reply> {
        let id = self.shared.with(|world| world.interact(user, channel, message, kind, &data));
        let answered = |world: &World| {
            let interaction = world.interactions.get(&id)?;
            let (kind, data) = interaction.response.clone()?;
            Some(Reply { interaction: id, kind, data, message: interaction.original })
        };
        let limit = Duration::from_secs(3);
        match tokio::time::timeout(limit, self.wait_for(answered)).await {
            Ok(reply) => reply,
            Err(_) => {
                let text = format!("nothing answered the interaction {id} within 3 s");
                self.shared.with(|world| world.fault(10_062, text.clone()));
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
pub(super) fn blank(id: Id, kind: Kind) -> Channel {
    Channel {
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
        wants_tags: false,
    }
}

/// A message without anything in it.
pub(super) fn blank_message(id: Id, channel: Id, author: Id) -> Message {
    Message {
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
