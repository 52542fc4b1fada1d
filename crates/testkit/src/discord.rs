//! A Discord server on this machine: version 10 of its HTTP API and of its gateway.
//!
//! It knows the rules of the vendor and notes every breach: see [`Server::faults`]. A test plays the people, looks at what the
//! client did, and can have things go wrong at any time.

mod deeds;
mod form;
mod gateway;
mod limits;
mod people;
mod rest;
mod state;
mod trouble;
mod venue;
mod wire;

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::aside::Aside;
use gateway::Out;
pub use people::{File, Post, Reply};
pub use state::{Attachment, Channel, Guild, Id, Interaction, Kind, Manner, Message, Request, User, World};
pub use trouble::Trouble;

/// How the server is.
#[derive(Debug, Clone)]
pub struct Options {
    /// The token it accepts.
    pub token: String,
    /// The name of the bot.
    pub bot: String,
    /// How often a client must send a heartbeat.
    pub heartbeat: Duration,
    /// The privileged intents that were granted, as bits.
    pub privileged: u64,
    /// How many requests it takes.
    pub limits: Limits,
    /// How much it tells.
    pub telling: Telling,
    /// How long [`Server::wait_for`] waits.
    pub patience: Duration,
}

/// How many requests are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limits {
    /// As many as the vendor takes: five messages in five seconds.
    Real,
    /// More than a test makes; the headers are there all the same.
    Wide,
}

/// How much is told about what happens.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Telling {
    /// What the vendor tells.
    #[default]
    Everything,
    /// What nothing could be done without, and things that nobody heard of yet.
    Least,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: "MTAwMDAwMDAwMDAwMDAwMDAwMA.test.token".to_owned(),
            bot: "hermes".to_owned(),
            heartbeat: Duration::from_millis(41_250),
            privileged: u64::MAX,
            limits: Limits::Real,
            telling: Telling::Everything,
            patience: Duration::from_secs(30),
        }
    }
}

/// A Discord server on a port of this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    address: SocketAddr,
    bot: Id,
    shared: Arc<Shared>,
    _aside: Aside,
}

/// What the server, its connections and the test share.
#[derive(Debug)]
struct Shared {
    options: Options,
    world: Mutex<World>,
    changed: watch::Sender<u64>,
}

impl Shared {
    /// Does something with the world, and tells those who wait.
    fn with<T>(&self, deed: impl FnOnce(&mut World) -> T) -> T {
        let result = deed(&mut self.world.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_modify(|count| *count += 1);
        result
    }

    /// Only looks.
    fn look<T>(&self, at: impl FnOnce(&World) -> T) -> T {
        at(&self.world.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Server {
    /// Starts a server with nobody but the bot.
    pub async fn start(options: Options) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?.into_std()?;
        let address = listener.local_addr()?;
        let mut world =
            World { base: format!("http://{address}"), token: options.token.clone(), ..World::default() };
        world.buckets.wide = options.limits == Limits::Wide;
        let bot = world.id();
        world.bot = bot;
        world.users.insert(bot, User { id: bot, name: options.bot.clone(), bot: true });
        let shared =
            Arc::new(Shared { options, world: Mutex::new(world), changed: watch::Sender::default() });
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
        self.look(|world| format!("{}/api/v10", world.base))
    }

    /// Where the gateway is.
    pub fn gateway_url(&self) -> String {
        self.look(|world| world.base.replacen("http", "ws", 1))
    }

    /// Says from now on that it is somewhere else: at what stands before it.
    pub fn move_to(&self, base: &str) {
        self.shared.with(|world| base.clone_into(&mut world.base));
    }

    /// The token it accepts.
    pub fn token(&self) -> &str {
        &self.shared.options.token
    }

    /// The bot's own id.
    pub fn bot(&self) -> Id {
        self.bot
    }

    /// Looks at everything. The world stands still meanwhile, so nothing else of the server can be asked from within.
    pub fn look<T>(&self, at: impl FnOnce(&World) -> T) -> T {
        self.shared.look(at)
    }

    /// Every breach of the rules so far, its code first. A test ends by looking here.
    pub fn faults(&self) -> Vec<String> {
        self.look(|world| world.faults.clone())
    }

    /// The next breach with this code is wanted: it is answered as always, and not noted. The code is that of the error, or of
    /// the close of the websocket, or the status where there is no better one.
    pub fn expect(&self, code: u64) {
        self.shared.with(|world| world.expected.push(code));
    }

    /// Waits until there is what the test looks for. After the time of [`Options::patience`] it is an error with all faults.
    pub async fn wait_for<T>(&self, look: impl Fn(&World) -> Option<T>) -> io::Result<T> {
        let mut changes = self.shared.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = self.look(&look) {
                    return found;
                }
                // The sender lives as long as the server.
                changes.changed().await.ok();
            }
        };
        let late = |_| {
            let (faults, requests) = self.look(|world| (world.faults.clone(), world.requests.len()));
            let text = format!("waited in vain; {requests} requests, faults: {faults:?}");
            io::Error::new(io::ErrorKind::TimedOut, text)
        };
        tokio::time::timeout(self.shared.options.patience, found).await.map_err(late)
    }

    /// Has something go wrong with the next calls of a route.
    pub fn trouble(&self, route: &str, times: u32, trouble: Trouble) {
        if times > 0 {
            self.shared.with(|world| world.troubles.rules.push((route.to_owned(), times, trouble)));
        }
    }

    /// What was asked for by requests that broke on their way is done now.
    pub fn arrive_late(&self) {
        self.shared.with(rest::arrive_late);
    }

    /// Nothing goes wrong with any route any more.
    pub fn clear_troubles(&self) {
        self.shared.with(|world| {
            world.troubles.rules.clear();
            world.buckets.release();
        });
    }

    /// From now on requests and connections are taken and not answered. [`Self::recover`] ends it.
    pub fn stall(&self) {
        self.shared.with(|world| world.troubles.stalled = true);
    }

    /// The websockets fall silent without closing, and new ones get not a word. [`Self::recover`] ends it for new ones.
    pub fn silence(&self) {
        self.shared.with(|world| {
            world.troubles.silent = true;
            world.sessions.values().for_each(|session| session.tell(Out::Die));
        });
    }

    /// Neither stalls nor is silent any more. Requests that hang are broken.
    pub fn recover(&self) {
        self.shared.with(|world| {
            world.troubles.stalled = false;
            world.troubles.silent = false;
            world.hanging = 0;
        });
    }

    /// Breaks all websockets. Their sessions stay.
    pub fn cut(&self) {
        self.tell_all(|| Out::Cut);
    }

    /// Closes all websockets with a code. Their sessions stay.
    pub fn close(&self, code: u16) {
        self.tell_all(|| Out::Close(code));
    }

    /// Asks the clients to reconnect.
    pub fn reconnect(&self) {
        self.tell_all(|| Out::Say(serde_json::json!({"op": 7, "s": null, "t": null, "d": null})));
    }

    /// Tells the clients that their session is broken and may be resumed.
    pub fn invalidate_resumable(&self) {
        self.tell_all(|| Out::Say(serde_json::json!({"op": 9, "s": null, "t": null, "d": true})));
    }

    /// Tells the clients that their session is over, and forgets it.
    pub fn invalidate(&self) {
        self.tell_all(|| Out::Say(serde_json::json!({"op": 9, "s": null, "t": null, "d": false})));
        self.forget_sessions();
    }

    /// Forgets all sessions without a word; a client that resumes learns of it.
    pub fn forget_sessions(&self) {
        self.shared.with(|world| {
            let ids: Vec<String> = std::mem::take(&mut world.sessions).into_keys().collect();
            world.gone.extend(ids);
        });
    }

    /// Takes the permission to make threads from the bot.
    pub fn forbid_threads(&self) {
        self.shared.with(|world| world.troubles.no_threads = true);
    }

    /// Has threads get ids of their own, as servers may that are not the vendor's.
    pub fn number_threads(&self) {
        self.shared.with(|world| world.troubles.threads_apart = true);
    }

    /// Gives the permission to make threads back.
    pub fn allow_threads(&self) {
        self.shared.with(|world| world.troubles.no_threads = false);
    }

    fn tell_all(&self, out: impl Fn() -> Out) {
        self.shared.with(|world| world.sessions.values().for_each(|session| session.tell(out())));
    }
}

async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        shared.with(|world| world.connections += 1);
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
