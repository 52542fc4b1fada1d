//! Discord, for the checks that are the same on every platform.

use std::io;
use std::time::Duration;

use tokio::sync::watch;

use super::deeds::EPHEMERAL;
use super::state::{Id, Kind, Message, World};
use super::{File, Limits, Manner, Options, Post, Server, Trouble};
use crate::venue::{Able, Deed, Seen, Venue, Words};

/// How messages are sent.
const SEND: &str = "POST /channels/*/messages";

impl Venue for Server {
    type Id = Id;

    const WORD: &'static str = "discord";
    const LONGEST: usize = 2000;

    fn length(text: &str) -> usize {
        text.chars().count()
    }

    async fn open(patience: Duration) -> io::Result<Self> {
        let heartbeat = Duration::from_secs(2);
        Self::start(Options { limits: Limits::Wide, heartbeat, patience, ..Options::default() }).await
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DISCORD_BOT_TOKEN", self.token().to_owned()),
            ("DISCORD_API_BASE", self.api_base()),
            ("DISCORD_GATEWAY_URL", self.gateway_url()),
        ]
    }

    fn person(&self, name: &str) -> Id {
        self.user(name)
    }

    fn direct(&self, person: Id) -> Id {
        self.dm(person)
    }

    fn group(&self, name: &str, people: &[Id]) -> Id {
        let guild = self.guild(name, people);
        self.channel(guild, name)
    }

    fn tell(&self, person: Id, chat: Id, words: Words<Id>) -> Id {
        let text = if words.calls { format!("<@{}> {}", self.bot(), words.text) } else { words.text };
        let files = words.files.into_iter().map(|(name, bytes)| File { name, bytes, ..File::default() });
        let files = files.collect();
        self.post(person, chat, Post { text, files, reply_to: words.reply_to, ..Post::default() })
    }

    fn bluff(&self, person: Id, chat: Id, name: &str) -> Able {
        let file = File {
            name: name.to_owned(),
            bytes: b"0123456789".to_vec(),
            claims: Some(10),
            manner: Manner::Endless,
            ..File::default()
        };
        self.post(person, chat, Post { files: vec![file], ..Post::default() });
        Ok(())
    }

    fn answered_in(&self, message: Id) -> Option<Id> {
        self.look(|world| {
            let message = world.messages.get(&message)?;
            match world.channels.get(&message.channel)?.kind {
                Kind::Text | Kind::Forum | Kind::Media => message.thread,
                Kind::Dm | Kind::Thread | Kind::PrivateThread => Some(message.channel),
            }
        })
    }

    fn seen(&self, chat: Id) -> Vec<Seen<Id>> {
        // What Discord itself writes in the bot's name is left out.
        let is_meant = |said: &&Message| matches!(said.kind, 0 | 19 | 20) && said.flags & EPHEMERAL == 0;
        self.look(|world| world.said_by_bot(chat).into_iter().filter(is_meant).map(seen).collect())
    }

    fn deeds(&self) -> Vec<Deed<Id>> {
        self.look(|world| {
            let meant = world.requests.iter().filter(|request| !request.line.contains(" /applications/"));
            let chat = |line: &str| line.split_once(" /channels/")?.1.split('/').next()?.parse().ok();
            meant.map(|request| Deed { chat: chat(&request.line), what: request.line.clone() }).collect()
        })
    }

    fn edits() -> Able {
        Ok(())
    }

    fn buttons() -> Able {
        Ok(())
    }

    async fn push(&self, person: Id, message: Id, button: &str) -> io::Result<()> {
        self.press(person, message, button).await.map(drop)
    }

    fn whispers(&self, person: Id) -> Vec<String> {
        let by = |world: &World, said: &Message| {
            let interaction = said.interaction.and_then(|id| world.interactions.get(&id));
            said.flags & EPHEMERAL != 0 && interaction.is_some_and(|interaction| interaction.user == person)
        };
        self.look(|world| {
            let said = world.messages.values().filter(|said| by(world, said));
            said.map(|said| said.content.clone()).collect()
        })
    }

    fn connections(&self) -> usize {
        self.look(|world| (world.identified + world.resumed) as usize)
    }

    fn break_off(&self) -> Able {
        self.cut();
        Ok(())
    }

    fn fall_silent(&self) -> Able {
        self.silence();
        Ok(())
    }

    fn unheard(&self) -> usize {
        self.look(|world| world.unheard as usize)
    }

    fn hang(&self) -> Able {
        self.stall();
        Ok(())
    }

    fn hanging(&self) -> usize {
        self.look(|world| world.hanging as usize)
    }

    fn given_up(&self) -> usize {
        self.look(|world| world.given_up as usize)
    }

    fn relent(&self) {
        self.recover();
    }

    fn repeat(&self, messages: &[Id]) {
        messages.iter().for_each(|message| self.replay(*message));
    }

    fn throttle(&self, times: u32, retry_after: Duration) -> Able {
        let retry_after = retry_after.as_secs_f64();
        self.trouble(SEND, times, Trouble::RateLimit { retry_after, global: false });
        Ok(())
    }

    fn fail(&self, times: u32) -> Able {
        self.trouble(SEND, times, Trouble::Fail(502));
        Ok(())
    }

    fn lose_answers(&self, times: u32) -> Able {
        self.trouble(SEND, times, Trouble::Vanish);
        Ok(())
    }

    fn refusals(&self) -> usize {
        let refused = |world: &World| {
            let sent = world.requests.iter().filter(|request| request.line.ends_with("/messages"));
            sent.filter(|request| matches!(request.status, 429 | 502)).count()
        };
        self.look(refused)
    }

    fn faults(&self) -> Vec<String> {
        Self::faults(self)
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.shared.changed.subscribe()
    }
}

/// A message as all platforms have them.
fn seen(said: &Message) -> Seen<Id> {
    let rows = said.components.as_array().into_iter().flatten();
    let buttons = rows.filter_map(|row| row["components"].as_array()).flatten();
    let word = |button: &serde_json::Value, key: &str| button[key].as_str().unwrap_or_default().to_owned();
    Seen {
        id: said.id,
        text: said.content.clone(),
        before: said.edits.clone(),
        buttons: buttons
            .filter(|button| button["disabled"] != true)
            .map(|button| (word(button, "label"), word(button, "custom_id")))
            .collect(),
        files: said.attachments.iter().map(|file| (file.name.clone(), file.bytes.clone())).collect(),
        rings: said.mention_everyone,
    }
}
