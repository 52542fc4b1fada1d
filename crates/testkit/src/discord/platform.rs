//! [`FakePlatform`] for the fake Discord server.

use std::io;
use std::time::Duration;

use tokio::sync::watch;

use super::mutations::EPHEMERAL;
use super::state::{FakeChannelKind, FakeMessage, Snowflake, World};
use super::{
    DiscordServer, DownloadBehavior, InjectedFault, ServerOptions, ServerRateLimits, UserFile, UserPost,
};
use crate::fake_platform::{BotMessage, FakePlatform, PlatformAction, Supported, UserMessage};

const SEND_ROUTE: &str = "POST /channels/*/messages";

impl FakePlatform for DiscordServer {
    type Id = Snowflake;

    const NAME: &'static str = "discord";
    const MAX_TEXT_LENGTH: usize = 2000;

    fn text_length(text: &str) -> usize {
        text.chars().count()
    }

    async fn launch(wait_timeout: Duration) -> io::Result<Self> {
        Self::start(ServerOptions {
            rate_limits: ServerRateLimits::Unlimited,
            heartbeat_interval: Duration::from_secs(2),
            wait_timeout,
            ..ServerOptions::default()
        })
        .await
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        vec![
            ("DISCORD_BOT_TOKEN", self.token().to_owned()),
            ("DISCORD_API_BASE", self.api_base()),
            ("DISCORD_GATEWAY_URL", self.gateway_url()),
        ]
    }

    fn add_person(&self, name: &str) -> Snowflake {
        self.add_user(name)
    }

    fn direct_chat(&self, person: Snowflake) -> Snowflake {
        self.dm_channel(person)
    }

    fn add_group(&self, name: &str, people: &[Snowflake]) -> Snowflake {
        let guild = self.add_guild(name, people);
        self.add_channel(guild, name)
    }

    fn send(&self, person: Snowflake, chat: Snowflake, message: UserMessage<Snowflake>) -> Snowflake {
        let text =
            if message.mentions_bot { format!("<@{}> {}", self.bot(), message.text) } else { message.text };
        let files =
            message.files.into_iter().map(|(name, bytes)| UserFile { name, bytes, ..UserFile::default() });
        let files = files.collect();
        self.send_post(
            person,
            chat,
            UserPost { text, files, reply_to: message.reply_to, ..UserPost::default() },
        )
    }

    fn send_endless_file(&self, person: Snowflake, chat: Snowflake, name: &str) -> Supported {
        let file = UserFile {
            name: name.to_owned(),
            bytes: b"0123456789".to_vec(),
            claimed_size: Some(10),
            download: DownloadBehavior::Endless,
            ..UserFile::default()
        };
        self.send_post(person, chat, UserPost { files: vec![file], ..UserPost::default() });
        Ok(())
    }

    fn reply_chat(&self, message: Snowflake) -> Option<Snowflake> {
        self.read(|world| {
            let message = world.messages.get(&message)?;
            match world.channels.get(&message.channel)?.kind {
                FakeChannelKind::Text | FakeChannelKind::Forum | FakeChannelKind::Media => message.thread,
                FakeChannelKind::Dm | FakeChannelKind::Thread | FakeChannelKind::PrivateThread => {
                    Some(message.channel)
                }
            }
        })
    }

    fn bot_messages(&self, chat: Snowflake) -> Vec<BotMessage<Snowflake>> {
        // System messages have the bot as author too.
        let is_content =
            |message: &&FakeMessage| matches!(message.kind, 0 | 19 | 20) && message.flags & EPHEMERAL == 0;
        self.read(|world| {
            world.bot_messages_in(chat).into_iter().filter(is_content).map(to_bot_message).collect()
        })
    }

    fn actions(&self) -> Vec<PlatformAction<Snowflake>> {
        self.read(|world| {
            let meant = world.requests.iter().filter(|request| !request.line.contains(" /applications/"));
            let chat = |line: &str| line.split_once(" /channels/")?.1.split('/').next()?.parse().ok();
            meant
                .map(|request| PlatformAction {
                    chat: chat(&request.line),
                    description: request.line.clone(),
                })
                .collect()
        })
    }

    fn supports_edits() -> Supported {
        Ok(())
    }

    fn supports_buttons() -> Supported {
        Ok(())
    }

    async fn click_button(&self, person: Snowflake, message: Snowflake, button: &str) -> io::Result<()> {
        self.press_button(person, message, button).await.map(drop)
    }

    fn private_notices(&self, person: Snowflake) -> Vec<String> {
        let by = |world: &World, message: &FakeMessage| {
            let interaction = message.interaction.and_then(|id| world.interactions.get(&id));
            message.flags & EPHEMERAL != 0
                && interaction.is_some_and(|interaction| interaction.user == person)
        };
        self.read(|world| {
            let message = world.messages.values().filter(|message| by(world, message));
            message.map(|message| message.content.clone()).collect()
        })
    }

    fn connection_count(&self) -> usize {
        self.read(|world| (world.identified + world.resumed) as usize)
    }

    fn drop_connection(&self) -> Supported {
        self.drop_connections();
        Ok(())
    }

    fn go_silent(&self) -> Supported {
        self.silence();
        Ok(())
    }

    fn unanswered_heartbeats(&self) -> usize {
        self.read(|world| world.unanswered_heartbeats as usize)
    }

    fn stop_answering(&self) -> Supported {
        self.stall();
        Ok(())
    }

    fn pending_requests(&self) -> usize {
        self.read(|world| world.pending_requests as usize)
    }

    fn abandoned_requests(&self) -> usize {
        self.read(|world| world.abandoned_requests as usize)
    }

    fn resume_answering(&self) {
        self.recover();
    }

    fn redeliver(&self, messages: &[Snowflake]) {
        messages.iter().for_each(|message| self.replay(*message));
    }

    fn throttle_sends(&self, times: u32, retry_after: Duration) -> Supported {
        let retry_after = retry_after.as_secs_f64();
        self.inject(SEND_ROUTE, times, InjectedFault::RateLimit { retry_after, global: false });
        Ok(())
    }

    fn fail_sends(&self, times: u32) -> Supported {
        self.inject(SEND_ROUTE, times, InjectedFault::Fail(502));
        Ok(())
    }

    fn lose_send_responses(&self, times: u32) -> Supported {
        self.inject(SEND_ROUTE, times, InjectedFault::LoseResponse);
        Ok(())
    }

    fn refused_sends(&self) -> usize {
        let refused = |world: &World| {
            let sent = world.requests.iter().filter(|request| request.line.ends_with("/messages"));
            sent.filter(|request| matches!(request.status, 429 | 502)).count()
        };
        self.read(refused)
    }

    fn violations(&self) -> Vec<String> {
        Self::violations(self)
    }

    fn subscribe(&self) -> watch::Receiver<u64> {
        self.state.changed.subscribe()
    }
}

fn to_bot_message(message: &FakeMessage) -> BotMessage<Snowflake> {
    let rows = message.components.as_array().into_iter().flatten();
    let buttons = rows.filter_map(|row| row["components"].as_array()).flatten();
    let word = |button: &serde_json::Value, key: &str| button[key].as_str().unwrap_or_default().to_owned();
    BotMessage {
        id: message.id,
        text: message.content.clone(),
        previous_texts: message.edits.clone(),
        buttons: buttons
            .filter(|button| button["disabled"] != true)
            .map(|button| (word(button, "label"), word(button, "custom_id")))
            .collect(),
        files: message.attachments.iter().map(|file| (file.name.clone(), file.bytes.clone())).collect(),
        notifies_everyone: message.mention_everyone,
    }
}
