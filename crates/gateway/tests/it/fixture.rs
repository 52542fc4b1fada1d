//! A connected bot and a receiver of its inbound events.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::discord::{
    ChannelSet, CommandSync, CommandVisibility, Discord, DiscordSettings, MentionPolicy, ReplyMode,
    ResumeState,
};
use hermes_gateway::{
    BotPolicy, ButtonPress, Channel, ChannelHealth, ChannelSink, FatalError, Inbound, InboundEvent,
    InboundMessage, OutboundMessage,
};
use hermes_testkit::discord::{DiscordServer, InteractionReply, ServerOptions, ServerRateLimits, Snowflake};
use hermes_testkit::tls::{CertificateAuthority, TlsFront};
use hermes_types::Secret;
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Limit after which a test gives up.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct BotFixture {
    pub(crate) server: DiscordServer,
    pub(crate) discord: Arc<Discord>,
    pub(crate) inbound: mpsc::Receiver<Inbound>,
    pub(crate) health: watch::Receiver<ChannelHealth>,
    pub(crate) ann: Snowflake,
    pub(crate) guild: Snowflake,
    pub(crate) channel: Snowflake,
    bookmark: watch::Receiver<Option<String>>,
    stop: CancellationToken,
    task: JoinHandle<Result<(), FatalError>>,
}

/// A server with one user, one guild and one channel.
pub(crate) struct World {
    pub(crate) server: DiscordServer,
    pub(crate) ann: Snowflake,
    pub(crate) guild: Snowflake,
    pub(crate) channel: Snowflake,
}

pub(crate) async fn world(options: ServerOptions) -> World {
    let server = DiscordServer::start(options).await.unwrap();
    let ann = server.add_user("ann");
    let guild = server.add_guild("guild", &[ann]);
    let channel = server.add_channel(guild, "general");
    World { server, ann, guild, channel }
}

/// Starts a server behind TLS with this host name, and returns the settings for it.
pub(crate) async fn world_behind_tls(name: &str) -> (World, TlsFront, DiscordSettings) {
    let world = world(without_rate_limits()).await;
    let authority = CertificateAuthority::new().unwrap();
    let front = TlsFront::start(world.server.address(), &authority, name).unwrap();
    world.server.set_base(&format!("https://{}", front.address()));
    let settings =
        DiscordSettings { root_certificates: Some(authority.roots().unwrap()), ..settings(&world.server) };
    (world, front, settings)
}

/// Options without rate limits.
pub(crate) fn without_rate_limits() -> ServerOptions {
    ServerOptions { rate_limits: ServerRateLimits::Unlimited, ..ServerOptions::default() }
}

/// The defaults of the config keys, for a test server.
pub(crate) fn settings(server: &DiscordServer) -> DiscordSettings {
    DiscordSettings {
        token: Secret::new(server.token()),
        api_base: Some(server.api_base()),
        gateway_url: Some(server.gateway_url()),
        proxy: None,
        root_certificates: None,
        require_mention: true,
        free_response_channels: ChannelSet::default(),
        thread_require_mention: false,
        auto_thread: true,
        no_thread_channels: ChannelSet::default(),
        allowed_channels: ChannelSet::default(),
        ignored_channels: ChannelSet::default(),
        overrides: BTreeMap::new(),
        allow_bots: BotPolicy::None,
        ignore_no_mention: true,
        dm_role_guild: None,
        history: 50,
        reactions: true,
        reply_to: ReplyMode::First,
        mentions: MentionPolicy { everyone: false, roles: false, users: true, replied_user: true },
        max_attachment_bytes: 32 * 1024 * 1024,
        command_sync: CommandSync::Safe,
        command_visibility: CommandVisibility::Everyone,
    }
}

pub(crate) async fn with_timeout<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIMEOUT, future).await.expect("timed out")
}

pub(crate) fn text_message(text: &str) -> OutboundMessage {
    OutboundMessage { text: text.to_owned(), ..OutboundMessage::default() }
}

impl BotFixture {
    /// Starts a bot with default settings and waits until it is connected.
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(crate) async fn with(configure: impl FnOnce(&mut DiscordSettings)) -> Self {
        let world = world(without_rate_limits()).await;
        let mut settings = settings(&world.server);
        configure(&mut settings);
        let mut bot = Self::start(world, settings, ResumeState::default());
        bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
        bot
    }

    pub(crate) fn start(world: World, settings: DiscordSettings, resume_state: ResumeState) -> Self {
        let World { server, ann, guild, channel } = world;
        let discord = Arc::new(Discord::new(settings, resume_state));
        let (sender, inbound) = mpsc::channel(16);
        let (health_sender, health) = watch::channel(ChannelHealth::Connecting);
        let (bookmarks, bookmark) = watch::channel(None);
        let sink = ChannelSink { inbound: sender, health: health_sender, bookmark: bookmarks };
        let stop = CancellationToken::new();
        let task = tokio::spawn(Arc::clone(&discord).run(sink, stop.clone()));
        Self { server, discord, inbound, health, ann, guild, channel, bookmark, stop, task }
    }

    /// A text that mentions the bot.
    pub(crate) fn mention(&self, text: &str) -> String {
        format!("<@{}> {text}", self.server.bot())
    }

    /// Waits for a connection state.
    pub(crate) async fn wait_for_health(
        &mut self,
        condition: impl FnMut(&ChannelHealth) -> bool,
    ) -> ChannelHealth {
        with_timeout(self.health.wait_for(condition)).await.unwrap().clone()
    }

    /// Waits for the next event and acknowledges it.
    pub(crate) async fn next_event(&mut self) -> InboundEvent {
        let inbound_event = with_timeout(self.inbound.recv()).await.expect("the channel has ended");
        inbound_event.ack.send(()).unwrap();
        inbound_event.event
    }

    pub(crate) async fn next_message(&mut self) -> InboundMessage {
        match self.next_event().await {
            InboundEvent::Message(message) => *message,
            InboundEvent::ButtonPress(press) => panic!("not a message: {press:?}"),
        }
    }

    /// Invokes a command as Ann and acknowledges it as the gateway does.
    pub(crate) async fn invoke_command(
        &mut self,
        name: &str,
        options: Value,
    ) -> (InboundMessage, io::Result<InteractionReply>) {
        let (server, discord, inbound) = (&self.server, &self.discord, &mut self.inbound);
        let received = async {
            let inbound_event = with_timeout(inbound.recv()).await.unwrap();
            let InboundEvent::Message(message) = inbound_event.event else {
                panic!("not a message: {:?}", inbound_event.event)
            };
            inbound_event.ack.send(()).unwrap();
            discord.acknowledge_command(message.interaction.as_ref().unwrap()).await;
            *message
        };
        tokio::join!(received, server.invoke_command(self.ann, self.channel, name, options))
    }

    pub(crate) async fn next_press(&mut self) -> ButtonPress {
        match self.next_event().await {
            InboundEvent::ButtonPress(press) => *press,
            InboundEvent::Message(message) => panic!("not a press: {message:?}"),
        }
    }

    /// Asserts that no earlier message arrived.
    pub(crate) async fn assert_nothing_arrived(&mut self) {
        let dm = self.server.dm_channel(self.ann);
        self.server.send_text(self.ann, dm, "the next message");
        assert_eq!(self.next_message().await.text, "the next message");
    }

    /// Restarts the bot without its state.
    pub(crate) async fn restart(self) -> Self {
        self.stop.cancel();
        assert_eq!(with_timeout(self.task).await.unwrap(), Ok(()));
        let settings = settings(&self.server);
        let Self { server, ann, guild, channel, .. } = self;
        let mut bot = Self::start(World { server, ann, guild, channel }, settings, ResumeState::default());
        bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
        bot
    }

    /// Stops the bot, makes the server forget its sessions, and returns the state for the next
    /// start.
    pub(crate) async fn stop_and_forget_sessions(self) -> (World, ResumeState) {
        self.stop.cancel();
        assert_eq!(with_timeout(self.task).await.unwrap(), Ok(()));
        let bookmark = self.bookmark.borrow().clone();
        self.server.forget_sessions();
        let Self { server, ann, guild, channel, .. } = self;
        (World { server, ann, guild, channel }, ResumeState { bookmark, ..ResumeState::default() })
    }

    /// Stops the bot and asserts that the server saw no violations.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        assert_eq!(with_timeout(self.task).await.unwrap(), Ok(()));
        assert_eq!(self.server.violations(), Vec::<String>::new());
    }

    /// Waits until the bot ends.
    pub(crate) async fn wait_for_end(self) -> (DiscordServer, Result<(), FatalError>) {
        let end = with_timeout(self.task).await.unwrap();
        (self.server, end)
    }
}
