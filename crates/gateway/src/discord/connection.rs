//! The connection to the gateway: it is kept, noticed when it is lost, and made again.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use twilight_gateway::error::ReceiveMessageErrorType;
use twilight_gateway::queue::InMemoryQueue;
use twilight_gateway::{CloseFrame, ConfigBuilder, Intents, Message, Session, Shard, ShardId, ShardState};
use twilight_model::gateway::{CloseCode, OpCode};

use super::arrive::{self, Answering, Event, read};
use super::payload::{Interaction, Message as Written, Ready};
use super::places::Contents;
use super::tunnel::Tunnel;
use super::{Account, Bookmark, Me, lock, rest};
use crate::channel::{Desk, Health, Unfit};

/// What the bot wants to be told.
const INTENTS: Intents = Intents::GUILDS
    .union(Intents::GUILD_MESSAGES)
    .union(Intents::DIRECT_MESSAGES)
    .union(Intents::MESSAGE_CONTENT);
/// Where Discord's own gateway is.
const DISCORD: &str = "wss://gateway.discord.gg";
/// How many events wait for their turn.
const WAITING: usize = 1000;
/// The longest the platform says nothing before it told its pace.
const GREETING: Duration = Duration::from_secs(15);
/// The longest between two tries to connect.
const LONGEST: Duration = Duration::from_secs(60);
/// The longest a connection takes to close.
const FAREWELL: Duration = Duration::from_secs(2);

/// How a connection is closed that ended without a word.
const UNSAID: u16 = 1006;

const DISPATCH: u8 = OpCode::Dispatch as u8;
const RECONNECT: u8 = OpCode::Reconnect as u8;
const INVALID_SESSION: u8 = OpCode::InvalidSession as u8;
const HELLO: u8 = OpCode::Hello as u8;

/// Something the gateway says.
#[derive(Debug, Deserialize)]
struct Envelope<'a> {
    op: u8,
    #[serde(default)]
    t: Option<String>,
    #[serde(default)]
    s: Option<u64>,
    #[serde(borrow)]
    d: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
struct Hello {
    heartbeat_interval: u64,
}

/// How a connection ended.
enum End {
    /// It was told to stop.
    Stopped,
    /// It cannot heal.
    Unfit(Unfit),
    /// It was lost.
    Lost(String),
    /// Its session is over, and a new one is to be begun.
    Over,
}

/// What became of something that the gateway said.
enum Taken {
    /// It was heard.
    Heard,
    /// Nobody wants it any more.
    Unwanted,
    /// It was that the session is over.
    Over,
}

/// Stays connected until it is told to stop.
pub(super) async fn run(account: &Arc<Account>, desk: Desk, stop: CancellationToken) -> Result<(), Unfit> {
    // Where there are none, twilight does not give an error.
    rest::roots().map_err(|why| Unfit { why, remedy: "install the package ca-certificates".to_owned() })?;
    // An error says that there is one already.
    rustls::crypto::ring::default_provider().install_default().ok();
    desk.health.send_replace(Health::Connecting);
    let tunnel = match &account.settings.proxy {
        Some(proxy) => {
            let opened = Tunnel::open(proxy.clone()).await;
            Some(opened.map_err(|why| Unfit { why, remedy: "look at discord.proxy".to_owned() })?)
        }
        None => None,
    };
    let (sender, events) = mpsc::channel(WAITING);
    let bookmark = account.bookmark.clone();
    let keeper =
        Keeper { account, desk: &desk, tunnel, events: sender, stop, failures: 0, pace: GREETING, bookmark };
    tokio::select! {
        end = keeper.stay() => end,
        () = arrive::work(account, &desk, events) => Ok(()),
    }
}

/// Who keeps the connection.
struct Keeper<'a> {
    account: &'a Arc<Account>,
    desk: &'a Desk,
    /// The way through a proxy.
    tunnel: Option<Tunnel>,
    events: mpsc::Sender<(Event, Option<Bookmark>)>,
    stop: CancellationToken,
    /// How often connecting failed in a row.
    failures: u32,
    /// How long the platform may say nothing.
    pace: Duration,
    /// How far the platform was heard.
    bookmark: Option<Bookmark>,
}

impl Keeper<'_> {
    async fn stay(mut self) -> Result<(), Unfit> {
        // One queue for all connections: Discord takes one greeting in five seconds.
        let queue = InMemoryQueue::default();
        let mut first = self.config(&queue);
        if let Some(bookmark) = &self.bookmark {
            let session = Session::new(bookmark.sequence, bookmark.session.clone());
            first = first.session(session);
            if let Some(url) = &bookmark.url {
                first = first.resume_url(self.way(url));
            }
        }
        let mut shard = Shard::with_config(ShardId::ONE, first.build());
        loop {
            let end = self.listen(&mut shard).await;
            match end {
                End::Stopped => {
                    self.leave(&mut shard).await;
                    return Ok(());
                }
                End::Unfit(unfit) => {
                    self.desk.health.send_replace(Health::Down { why: unfit.why.clone() });
                    return Err(unfit);
                }
                End::Lost(why) => self.down(why),
                End::Over => {
                    // The old connection goes first: nobody would keep it alive while the platform wants some seconds of peace.
                    shard = Shard::with_config(ShardId::ONE, self.config(&queue).build());
                    let wait = Duration::from_secs(1).mul_f64(1.0 + 4.0 * fastrand::f64());
                    if !self.sleep(wait).await {
                        return Ok(());
                    }
                    continue;
                }
            }
            let mut next = self.config(&queue);
            if let Some(session) = shard.session() {
                next = next.session(Session::new(session.sequence(), session.id().to_owned()));
            }
            if let Some(url) = shard.resume_url() {
                next = next.resume_url(self.way(url));
            }
            shard = Shard::with_config(ShardId::ONE, next.build());
            if !self.rest().await {
                return Ok(());
            }
        }
    }

    fn config(&self, queue: &InMemoryQueue) -> ConfigBuilder {
        let settings = &self.account.settings;
        let token = rest::bare(settings.token.expose()).to_owned();
        let config = ConfigBuilder::new(token, INTENTS).queue(queue.clone());
        match (&settings.gateway_url, &self.tunnel) {
            (None, None) => config,
            (url, _) => config.proxy_url(self.way(url.as_deref().unwrap_or(DISCORD))),
        }
    }

    /// The address that a server is connected to by.
    fn way(&self, url: &str) -> String {
        let url = url.trim_end_matches('/');
        self.tunnel.as_ref().map_or_else(|| url.to_owned(), |tunnel| tunnel.through(url))
    }

    /// Whether the next thing twilight does is to connect again, which goes around a proxy.
    fn must_rejoin(&self, shard: &Shard) -> bool {
        self.tunnel.is_some() && matches!(shard.state(), ShardState::Disconnected { .. })
    }

    /// Why nothing gets through, as far as that is known better here.
    fn trouble(&self, seen: String) -> String {
        self.tunnel.as_ref().and_then(Tunnel::trouble).unwrap_or(seen)
    }

    /// Listens until the connection has to be made anew.
    async fn listen(&mut self, shard: &mut Shard) -> End {
        self.pace = GREETING;
        loop {
            let stop = self.stop.clone();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                next = tokio::time::timeout(self.pace, futures_util::StreamExt::next(shard)) => next,
            };
            match next {
                Err(_) => return End::Lost("Discord fell silent".to_owned()),
                Ok(None) => return End::Lost("the connection ended".to_owned()),
                Ok(Some(Ok(Message::Text(text)))) => {
                    match self.take(&text).await {
                        Taken::Heard => {}
                        Taken::Unwanted => return End::Stopped,
                        Taken::Over => return End::Over,
                    }
                    if self.must_rejoin(shard) {
                        return End::Lost("Discord wants a new connection".to_owned());
                    }
                }
                Ok(Some(Ok(Message::Close(frame)))) => {
                    if let Some(unfit) = frame.as_ref().and_then(|frame| hopeless(frame.code)) {
                        return End::Unfit(unfit);
                    }
                    let why = match frame {
                        Some(frame) if frame.code != UNSAID => {
                            let reason = format!("{} {}", frame.code, frame.reason);
                            format!("Discord closed the connection ({})", reason.trim_end())
                        }
                        _ => "the connection was lost".to_owned(),
                    };
                    if self.must_rejoin(shard) {
                        return End::Lost(self.trouble(why));
                    }
                    self.down(why);
                    self.pace = GREETING;
                    if !self.rest().await {
                        return End::Stopped;
                    }
                }
                Ok(Some(Err(error))) => match error.kind() {
                    ReceiveMessageErrorType::Reconnect => {
                        return End::Lost(self.trouble(unreachable(&error)));
                    }
                    _ if self.must_rejoin(shard) => return End::Lost(unreachable(&error)),
                    // A session whose end twilight does not know how to bridge is a session nevertheless.
                    ReceiveMessageErrorType::Deserializing { event } => match self.take(event).await {
                        Taken::Heard => {}
                        Taken::Unwanted => return End::Stopped,
                        Taken::Over => return End::Over,
                    },
                    kind => tracing::warn!(?kind, "Discord said something that cannot be read"),
                },
            }
        }
    }

    /// Takes what the gateway says.
    async fn take(&mut self, text: &str) -> Taken {
        let Some(envelope) = read::<Envelope<'_>>("an event", text) else { return Taken::Heard };
        let body = envelope.d.map(RawValue::get).unwrap_or("null");
        match envelope.op {
            HELLO => {
                if let Some(hello) = read::<Hello>("a greeting", body) {
                    // Twilight notices by itself when a heartbeat has no answer until the next one.
                    self.pace = Duration::from_millis(hello.heartbeat_interval) * 2 + Duration::from_secs(1);
                }
            }
            RECONNECT | INVALID_SESSION => {
                self.pace = GREETING;
                self.desk.health.send_replace(Health::Connecting);
                if envelope.op == INVALID_SESSION && body != "true" {
                    return Taken::Over;
                }
            }
            _ => {}
        }
        let Some(event) =
            envelope.t.filter(|_| envelope.op == DISPATCH).and_then(|name| self.dispatch(&name, body))
        else {
            return Taken::Heard;
        };
        if let (Some(bookmark), Some(sequence)) = (&mut self.bookmark, envelope.s) {
            bookmark.sequence = sequence;
        }
        tokio::select! {
            () = self.stop.cancelled() => Taken::Unwanted,
            sent = self.events.send((event, self.bookmark.clone())) => match sent {
                Ok(()) => Taken::Heard,
                Err(_) => Taken::Unwanted,
            },
        }
    }

    fn dispatch(&mut self, name: &str, body: &str) -> Option<Event> {
        let account = self.account;
        match name {
            "READY" => {
                let ready: Ready = read("a greeting", body)?;
                let user = ready.user.id.to_string();
                // They are the same for all bots but the oldest.
                let application =
                    ready.application.map_or_else(|| user.clone(), |named| named.id.to_string());
                let me = Me { user, application };
                *account.me.write().unwrap_or_else(PoisonError::into_inner) = Some(me.clone());
                let (session, url) = (ready.session_id, ready.resume_gateway_url);
                self.bookmark = Some(Bookmark { session, url, sequence: 0, heard: 0, me });
                self.up();
                return Some(Event::Began(ready.guilds.into_iter().map(|guild| guild.id).collect()));
            }
            "RESUMED" => self.up(),
            "GUILD_CREATE" => {
                let contents: Contents = read("a server", body)?;
                let told = Event::Told(contents.guild(), contents.last(), contents.halls());
                lock(&account.places).learn_all(contents);
                return Some(told);
            }
            "THREAD_LIST_SYNC" => lock(&account.places).learn_all(read("a server", body)?),
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                lock(&account.places).learn(read("a channel", body)?);
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => lock(&account.places).forget(&read("a channel", body)?),
            "MESSAGE_CREATE" => {
                let message: Box<Written> = read("a message", body)?;
                if account.me().is_some_and(|me| me.user == message.author.id.to_string()) {
                    if let Some(nonce) = &message.nonce {
                        account.heard(nonce, &message.id.to_string());
                    }
                    return None;
                }
                return Some(Event::Said(message));
            }
            "INTERACTION_CREATE" => {
                let call: Box<Interaction> = read("a command", body)?;
                let answering = Answering::new(account, &call)?;
                let is_heard = answering.is_heard();
                // Whoever called waits three seconds, whatever else is to be done.
                let heard = tokio::spawn(arrive::acknowledge(Arc::clone(account), answering));
                return is_heard.then_some(Event::Called(call, heard));
            }
            _ => {}
        }
        None
    }

    fn up(&mut self) {
        self.failures = 0;
        self.desk.health.send_replace(Health::Up);
    }

    fn down(&self, why: String) {
        self.desk.health.send_replace(Health::Down { why });
    }

    /// Waits before the next try. False when it was told to stop.
    async fn rest(&mut self) -> bool {
        let wait = pause(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        self.sleep(wait).await
    }

    async fn sleep(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }

    /// Leaves in a way that lets whoever comes next hear what was said meanwhile.
    async fn leave(&self, shard: &mut Shard) {
        if self.tunnel.is_some() {
            // Without a word the session stays as well, and nothing connects again.
            return;
        }
        shard.close(CloseFrame::RESUME);
        let closed = async {
            while let Some(Ok(Message::Text(_))) = futures_util::StreamExt::next(shard).await {
                // It would connect again by itself.
                if !matches!(shard.state(), ShardState::Disconnected { .. }) {
                    break;
                }
            }
        };
        // Whoever does not answer is left without a word.
        tokio::time::timeout(FAREWELL, closed).await.ok();
    }
}

/// How long to wait after so many failures: at once, then twice as long each time, and never two bots at the same moment.
fn pause(failures: u32, chance: f64) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1 << failures.min(10)).min(LONGEST).mul_f64(0.5 + chance / 2.0),
    }
}

fn unreachable(error: &twilight_gateway::error::ReceiveMessageError) -> String {
    format!("Discord cannot be reached: {}", super::deepest(error))
}

/// What is wrong when trying again cannot help.
fn hopeless(code: u16) -> Option<Unfit> {
    let (why, remedy) = match CloseCode::try_from(code).ok()? {
        CloseCode::AuthenticationFailed => (
            "Discord does not take the bot's token",
            "copy the token from the Bot page of the developer portal, and paste it to `hermes config set discord.bot_token -`",
        ),
        CloseCode::DisallowedIntents => (
            "the bot may not read message content",
            "turn on the Message Content Intent on the Bot page of the developer portal",
        ),
        CloseCode::ShardingRequired => {
            ("the bot is in more servers than one connection can serve", "remove it from some servers")
        }
        CloseCode::InvalidShard | CloseCode::InvalidApiVersion | CloseCode::InvalidIntents => {
            ("Discord no longer speaks with this version of hermes", "update hermes")
        }
        _ => return None,
    };
    Some(Unfit { why: why.to_owned(), remedy: remedy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_and_are_never_the_same() {
        assert_eq!(pause(0, 0.9), Duration::ZERO);
        assert_eq!((pause(1, 0.0), pause(1, 1.0)), (Duration::from_secs(1), Duration::from_secs(2)));
        assert_eq!((pause(3, 0.0), pause(3, 1.0)), (Duration::from_secs(4), Duration::from_secs(8)));
        assert_eq!(pause(u32::MAX, 1.0), LONGEST);
    }

    #[test]
    fn only_what_cannot_heal_is_an_end() {
        for code in [1000, 1006, 4000, 4001, 4007, 4008, 4009, 4999] {
            assert_eq!(hopeless(code), None, "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            assert!(hopeless(code).is_some_and(|unfit| !unfit.remedy.is_empty()), "{code}");
        }
    }
}
