//! A fake Discord server: version 10 of the HTTP API and of the gateway.
//!
//! It enforces the vendor's rules and records every violation: see [`DiscordServer::violations`]. A
//! test plays the users, reads what the client did, and injects faults at any time.

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

use crate::server_task::ServerTask;
use gateway::SocketCommand;
pub use injected::InjectedFault;
pub use state::{
    DownloadBehavior, FakeAttachment, FakeChannel, FakeChannelKind, FakeGuild, FakeInteraction, FakeMessage,
    FakeUser, RequestRecord, Snowflake, World,
};
pub use users::{InteractionReply, UserFile, UserPost};

#[derive(Debug, Clone)]
pub struct ServerOptions {
    pub token: String,
    /// The name of the bot.
    pub bot: String,
    pub heartbeat_interval: Duration,
    /// The granted privileged intents, as bits.
    pub privileged_intents: u64,
    pub rate_limits: ServerRateLimits,
    pub event_detail: EventDetail,
    /// The limit of [`DiscordServer::wait_for`].
    pub wait_timeout: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerRateLimits {
    /// As the vendor: five messages in five seconds.
    Real,
    /// More than a test makes; responses still have the headers.
    Unlimited,
}

/// How detailed gateway events are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EventDetail {
    /// As the vendor sends them.
    #[default]
    Full,
    /// Only indispensable fields, plus one unknown field.
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

/// A fake Discord server on a local port. It stops when it is dropped.
#[derive(Debug)]
pub struct DiscordServer {
    address: SocketAddr,
    bot: Snowflake,
    state: Arc<ServerState>,
    _task: ServerTask,
}

/// Shared by the server, its connections and the test.
#[derive(Debug)]
struct ServerState {
    options: ServerOptions,
    world: Mutex<World>,
    changed: watch::Sender<u64>,
}

impl ServerState {
    /// Changes the world and notifies waiting tests.
    fn update<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let result = change(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        result
    }

    fn read<T>(&self, access: impl FnOnce(&World) -> T) -> T {
        access(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl DiscordServer {
    /// Starts a server with only the bot.
    pub async fn start(options: ServerOptions) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?.into_std()?;
        let address = listener.local_addr()?;
        let mut world =
            World { base: format!("http://{address}"), token: options.token.clone(), ..World::default() };
        world.rate_limiter.is_unlimited = options.rate_limits == ServerRateLimits::Unlimited;
        let bot = world.next_id();
        world.bot = bot;
        world.users.insert(bot, FakeUser { id: bot, name: options.bot.clone(), bot: true });
        let state =
            Arc::new(ServerState { options, world: Mutex::new(world), changed: watch::Sender::default() });
        let served = Arc::clone(&state);
        let task = ServerTask::spawn("discord", move || serve(listener, served))?;
        Ok(Self { address, bot, state, _task: task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base of the HTTP API.
    pub fn api_base(&self) -> String {
        self.read(|world| format!("{}/api/v10", world.base))
    }

    pub fn gateway_url(&self) -> String {
        self.read(|world| world.base.replacen("http", "ws", 1))
    }

    /// Announces another base address, such as that of a [`crate::tls::TlsFront`].
    pub fn set_base(&self, base: &str) {
        self.state.update(|world| base.clone_into(&mut world.base));
    }

    pub fn token(&self) -> &str {
        &self.state.options.token
    }

    pub fn bot(&self) -> Snowflake {
        self.bot
    }

    /// Reads the world, which is locked for that time: the closure must not call the server.
    pub fn read<T>(&self, access: impl FnOnce(&World) -> T) -> T {
        self.state.read(access)
    }

    /// All violations of the rules so far, each with its code. Every test ends with checking them.
    pub fn violations(&self) -> Vec<String> {
        self.read(|world| world.violations.clone())
    }

    /// Does not record the next violation with this code. The code is that of the error or of the
    /// websocket close, or else the HTTP status.
    pub fn expect_violation(&self, code: u64) {
        self.state.update(|world| world.expected_violations.push(code));
    }

    /// Waits until `find` returns a value. After [`ServerOptions::wait_timeout`] it fails and lists
    /// all violations.
    pub async fn wait_for<T>(&self, find: impl Fn(&World) -> Option<T>) -> io::Result<T> {
        let mut changes = self.state.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = self.read(&find) {
                    return found;
                }
                // The sender lives as long as the server.
                changes.changed().await.ok();
            }
        };
        let late = |_| {
            let (violations, requests) = self.read(|world| (world.violations.clone(), world.requests.len()));
            let text = format!("timed out; {requests} requests, violations: {violations:?}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        tokio::time::timeout(self.state.options.wait_timeout, found).await.map_err(late)
    }

    /// Injects a fault into the next calls of a route.
    pub fn inject(&self, route: &str, times: u32, fault: InjectedFault) {
        if times > 0 {
            self.state.update(|world| world.injected.rules.push((route.to_owned(), times, fault)));
        }
    }

    /// Performs the requests that [`InjectedFault::Delay`] held back.
    pub fn deliver_delayed(&self) {
        self.state.update(rest::deliver_delayed);
    }

    /// Removes all injected faults.
    pub fn clear_injected(&self) {
        self.state.update(|world| {
            world.injected.rules.clear();
            world.rate_limiter.unblock();
        });
    }

    /// Accepts requests and connections without responding, until [`Self::recover`].
    pub fn stall(&self) {
        self.state.update(|world| world.injected.stalled = true);
    }

    /// Stops sending on all websockets without closing them. [`Self::recover`] ends it for new
    /// ones.
    pub fn silence(&self) {
        self.state.update(|world| {
            world.injected.silent = true;
            world.sessions.values().for_each(|session| session.command(SocketCommand::GoSilent));
        });
    }

    /// Ends stalling and silence. Pending requests fail.
    pub fn recover(&self) {
        self.state.update(|world| {
            world.injected.stalled = false;
            world.injected.silent = false;
            world.pending_requests = 0;
        });
    }

    /// Drops all websockets. Their sessions stay.
    pub fn drop_connections(&self) {
        self.command_all(|| SocketCommand::Disconnect);
    }

    /// Closes all websockets with a code. Their sessions stay.
    pub fn close_connections(&self, code: u16) {
        self.command_all(|| SocketCommand::Close(code));
    }

    /// Asks the clients to reconnect.
    pub fn request_reconnect(&self) {
        self.command_all(|| {
            SocketCommand::Send(serde_json::json!({"op": 7, "s": null, "t": null, "d": null}))
        });
    }

    /// Sends an invalid session that clients may resume.
    pub fn invalidate_resumable(&self) {
        self.command_all(|| {
            SocketCommand::Send(serde_json::json!({"op": 9, "s": null, "t": null, "d": true}))
        });
    }

    /// Sends an invalid session that clients may not resume, and forgets it.
    pub fn invalidate(&self) {
        self.command_all(|| {
            SocketCommand::Send(serde_json::json!({"op": 9, "s": null, "t": null, "d": false}))
        });
        self.forget_sessions();
    }

    /// Forgets all sessions without telling the clients.
    pub fn forget_sessions(&self) {
        self.state.update(|world| {
            let ids: Vec<String> = std::mem::take(&mut world.sessions).into_keys().collect();
            world.forgotten_sessions.extend(ids);
        });
    }

    /// Denies the bot the permission to create threads.
    pub fn forbid_threads(&self) {
        self.state.update(|world| world.injected.no_threads = true);
    }

    /// Gives threads ids that differ from their message, as other servers may.
    pub fn use_separate_thread_ids(&self) {
        self.state.update(|world| world.injected.separate_thread_ids = true);
    }

    fn command_all(&self, command: impl Fn() -> SocketCommand) {
        self.state.update(|world| world.sessions.values().for_each(|session| session.command(command())));
    }
}

async fn serve(listener: std::net::TcpListener, state: Arc<ServerState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        state.update(|world| world.connections += 1);
        stream.set_nodelay(true).ok();
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let answer = service_fn(move |request| rest::respond(request, Arc::clone(&state)));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
            // A connection often breaks because the test wants it.
            connection.with_upgrades().await.ok();
        });
    }
}
