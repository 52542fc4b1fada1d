//! A Discord server on this machine: version 10 of its HTTP API and of its gateway.
//!
//! It knows the rules of the vendor and notes every breach: see [`Server::faults`]. A test plays the people, looks at what the
//! client did, and can have things go wrong at any time.

mod gateway;
mod injected;
mod json;
mod mutations;
mod platform;
mod rate_limits;
mod request;
mod rest;
mod state;
mod users;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::server_task::Aside;
use gateway::Out;
pub use injected::InjectedFault;
pub use state::{
    DownloadBehavior, FakeAttachment, FakeChannel, FakeChannelKind, FakeGuild, FakeInteraction, FakeMessage,
    FakeUser, RequestRecord, Snowflake, World,
};
pub use users::{InteractionReply, UserFile, UserPost};

/// How the server is.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// The token it accepts.
    pub token: String,
    /// The name of the bot.
    pub bot: String,
    /// How often a client must send a heartbeat.
    pub heartbeat_interval: Duration,
    /// The privileged intents that were granted, as bits.
    pub privileged_intents: u64,
    /// How many requests it takes.
    pub rate_limits: ServerRateLimits,
    /// How much it tells.
    pub event_detail: EventDetail,
    /// How long [`Server::wait_for`] waits.
    pub wait_timeout: Duration,
}

/// How many requests are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRateLimits {
    /// As many as the vendor takes: five messages in five seconds.
    Real,
    /// More than a test makes; the headers are there all the same.
    Unlimited,
}

/// How much is told about what happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventDetail {
    /// What the vendor tells.
    #[default]
    Full,
    /// What nothing could be done without, and things that nobody heard of yet.
    Minimal,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            token: "MTAwMDAwMDAwMDAwMDAwMDAwMA.test.token".to_owned(),
            bot: "hermes".to_owned(),
            heartbeat_interval: Duration::from_millis(41_250),
            privileged_intents: u64::MAX,
            rate_limits: ServerRateLimits::Real,
            event_detail: EventDetail::Full,
            wait_timeout: Duration::from_secs(30),
        }
    }
}

/// A Discord server on a port of this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct DiscordServer {
    address: SocketAddr,
    bot: Snowflake,
    shared: Arc<ServerState>,
    _aside: Aside,
}

/// What the server, its connections and the test share.
#[derive(Debug)]
struct ServerState {
    options: ServerOptions,
    world: Mutex<World>,
    changed: watch::Sender<u64>,
}

impl ServerState {
    /// Does something with the world, and tells those who wait.
    fn update<T>(&self, deed: impl FnOnce(&mut World) -> T) -> T {
        let result = deed(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Only looks.
    fn read<T>(&self, at: impl FnOnce(&World) -> T) -> T {
        at(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DiscordServer {
    /// Starts a server with nobody but the bot.
    pub async fn start(options: ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?.into_std()?;
        let address = listener.local_addr()?;
        let mut world =
            World { base: format!("http://{address}"), token: options.token.clone(), ..World::default() };
        world.buckets.wide = options.rate_limits == ServerRateLimits::Unlimited;
        let bot = world.next_id();
        world.bot = bot;
        world.users.insert(bot, FakeUser { id: bot, name: options.bot.clone(), bot: true });
        let shared =
            Arc::new(ServerState { options, world: Mutex::new(world), changed: watch::Sender::default() });
        let served = Arc::clone(&shared);
        let aside = Aside::begin("discord", move || serve(listener, served))?;
        Ok(Self { address, bot, shared, _aside: aside })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base of the HTTP API.
    pub fn api_base(&self) -> String {
        self.read(|world| format!("{}/api/v10", world.base))
    }

    /// Where the gateway is.
    pub fn gateway_url(&self) -> String {
        self.read(|world| world.base.replacen("http", "ws", 1))
    }

    /// Says from now on that it is somewhere else: at what stands before it.
    pub fn set_base(&self, base: &str) {
        self.shared.update(|world| base.clone_into(&mut world.base));
    }

    /// The token it accepts.
    pub fn token(&self) -> &str {
        &self.shared.options.token
    }

    /// The bot's own id.
    pub fn bot(&self) -> Snowflake {
        self.bot
    }

    /// Looks at everything. The world stands still meanwhile, so nothing else of the server can be asked from within.
    pub fn read<T>(&self, at: impl FnOnce(&World) -> T) -> T {
        self.shared.read(at)
    }

    /// Every breach of the rules so far, its code first. A test ends by looking here.
    pub fn violations(&self) -> Vec<String> {
        self.read(|world| world.violations.clone())
    }

    /// The next breach with this code is wanted: it is answered as always, and not noted. The code is that of the error, or of
    /// the close of the websocket, or the status where there is no better one.
    pub fn expect_violation(&self, code: u64) {
        self.shared.update(|world| world.expected_violations.push(code));
    }

    /// Waits until there is what the test looks for. After the time of [`Options::patience`] it is an error with all faults.
    pub async fn wait_for<T>(&self, look: impl Fn(&World) -> Option<T>) -> io::Result<T> {
        let mut changes = self.shared.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = self.read(&look) {
                    return found;
                }
                // The sender lives as long as the server.
                changes.changed().await.ok();
            }
        };
        let late = |_| {
            let (faults, requests) = self.read(|world| (world.violations.clone(), world.requests.len()));
            let text = format!("waited in vain; {requests} requests, faults: {faults:?}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        tokio::time::timeout(self.shared.options.wait_timeout, found).await.map_err(late)
    }

    /// Has something go wrong with the next calls of a route.
    pub fn inject(&self, route: &str, times: u32, trouble: InjectedFault) {
        if times > 0 {
            self.shared.update(|world| world.injected.rules.push((route.to_owned(), times, trouble)));
        }
    }

    /// What was asked for by requests that broke on their way is done now.
    pub fn deliver_delayed(&self) {
        self.shared.update(rest::arrive_late);
    }

    /// Nothing goes wrong with any route any more.
    pub fn clear_injected(&self) {
        self.shared.update(|world| {
            world.injected.rules.clear();
            world.buckets.release();
        });
    }

    /// From now on requests and connections are taken and not answered. [`Self::recover`] ends it.
    pub fn stall(&self) {
        self.shared.update(|world| world.injected.stalled = true);
    }

    /// The websockets fall silent without closing, and new ones get not a word. [`Self::recover`] ends it for new ones.
    pub fn silence(&self) {
        self.shared.update(|world| {
            world.injected.silent = true;
            world.sessions.values().for_each(|session| session.tell(Out::Die));
        });
    }

    /// Neither stalls nor is silent any more. Requests that hang are broken.
    pub fn recover(&self) {
        self.shared.update(|world| {
            world.injected.stalled = false;
            world.injected.silent = false;
            world.pending_requests = 0;
        });
    }

    /// Breaks all websockets. Their sessions stay.
    pub fn drop_connections(&self) {
        self.command_all(|| Out::Cut);
    }

    /// Closes all websockets with a code. Their sessions stay.
    pub fn close_connections(&self, code: u16) {
        self.command_all(|| Out::Close(code));
    }

    /// Asks the clients to reconnect.
    pub fn request_reconnect(&self) {
        self.command_all(|| Out::Say(serde_json::json!({"op": 7, "s": null, "t": null, "d": null})));
    }

    /// Tells the clients that their session is broken and may be resumed.
    pub fn invalidate_resumable(&self) {
        self.command_all(|| Out::Say(serde_json::json!({"op": 9, "s": null, "t": null, "d": true})));
    }

    /// Tells the clients that their session is over, and forgets it.
    pub fn invalidate(&self) {
        self.command_all(|| Out::Say(serde_json::json!({"op": 9, "s": null, "t": null, "d": false})));
        self.forget_sessions();
    }

    /// Forgets all sessions without a word; a client that resumes learns of it.
    pub fn forget_sessions(&self) {
        self.shared.update(|world| {
            let ids: Vec<String> = std::mem::take(&mut world.sessions).into_keys().collect();
            world.forgotten_sessions.extend(ids);
        });
    }

    /// Takes the permission to make threads from the bot.
    pub fn forbid_threads(&self) {
        self.shared.update(|world| world.injected.no_threads = true);
    }

    /// Has threads get ids of their own, as servers may that are not the vendor's.
    pub fn use_separate_thread_ids(&self) {
        self.shared.update(|world| world.injected.separate_thread_ids = true);
    }

    /// Gives the permission to make threads back.
    pub fn allow_threads(&self) {
        self.shared.update(|world| world.injected.no_threads = false);
    }

    fn command_all(&self, out: impl Fn() -> Out) {
        self.shared.update(|world| world.sessions.values().for_each(|session| session.tell(out())));
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<ServerState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        shared.update(|world| world.connections += 1);
        stream.set_nodelay(true).ok();
        let shared = Arc::clone(&shared);
        connections.spawn(async move {
            let answer = service_fn(move |request| rest::respond(request, Arc::clone(&shared)));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            // A connection that ends badly is often what the test wanted.
            connection.with_upgrades().await.ok();
        });
    }
}
