//! The way out of a place that has no network of its own.
//!
//! Such a place has loopback and nothing else. The guest listens there on [`PORT`] and every connection to it arrives
//! here as a stream, where it is served: HTTP `CONNECT`, plain HTTP and SOCKS5, told apart by the first byte. What a
//! connection asks for is resolved here, once, and reached only if every address found is public and none of this
//! machine's own ([`reach`]).
//!
//! | limit | value |
//! |---|---|
//! | connections at once, of one client | 128 |
//! | bytes before the target is known | 64 KiB |
//! | time until the target is known | 30 s |
//! | time to resolve, and to connect | 20 s each |
//! | silence in both directions | 10 min; 1 min once one side has ended |
//!
//! Nothing here trusts the place: whoever runs there may speak to the port as it likes, and a guest that was taken over
//! may open streams as it likes.

mod http;
mod relay;
mod socks;
mod target;

pub use target::{HostError, resolve_public};

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hermes_guest::client::{Client, Listener};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::Address;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::registry::PlaceDir;

/// The port of the proxy on the loopback of every place that has one. Fixed, so that the environment of a session
/// stays right whoever is attached; the network is the place's own, so it is free.
pub const PORT: u16 = 13128;

/// How long a connection may take to say what it wants.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How often a process that serves by itself looks whether anything runs.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The variables that make programs use the proxy.
pub fn proxy_env() -> Vec<(String, String)> {
    // Not a `socks5:` address, though the port speaks that too: some clients refuse to start with one.
    let proxy = format!("http://127.0.0.1:{PORT}");
    let away = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let here = ["NO_PROXY", "no_proxy"];
    let to_proxy = away.map(|name| (name.to_owned(), proxy.clone()));
    let to_itself = here.map(|name| (name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
    let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    to_proxy.into_iter().chain(to_itself).chain([node]).collect()
}

/// A proxy that serves a place. Dropping it ends it with every connection.
#[derive(Debug)]
pub struct ProxyTask {
    task: JoinHandle<()>,
}

impl Drop for ProxyTask {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Serves the place at the other end. Several may serve one place at once.
pub async fn attach(client: &Client) -> Result<ProxyTask, Error> {
    let listener = client.listen(Address::Loopback(PORT)).await?;
    Ok(ProxyTask { task: tokio::spawn(accept_connections(listener)) })
}

/// Serves a place by itself, for as long as something runs there: what was left in the background when whoever
/// started it has ended. Returns at once if another process does this already.
pub async fn serve_while_running(run: &Path, name: &str) -> Result<(), Error> {
    let room = PlaceDir::named(run, name);
    let Some(turn) = room.lock_proxy().await? else { return Ok(()) };
    let kept = serve_until_idle(&room).await;
    turn.discard()?;
    kept
}

async fn serve_until_idle(room: &PlaceDir) -> Result<(), Error> {
    let stream = room.connect().await.map_err(Error::file(&room.socket()))?;
    let client = Client::connect(stream).await?;
    let _proxy = attach(&client).await?;
    while client.stats().await.is_ok_and(|stats| stats.running > 0) {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = client.closed() => {}
        }
    }
    Ok(())
}

async fn accept_connections(mut listener: Listener) {
    let slots = Arc::new(Semaphore::new(limit::CARRIED));
    let mut served = JoinSet::new();
    // The semaphore is never closed.
    while let Ok(slot) = slots.clone().acquire_owned().await {
        let Some(connection) = listener.accept().await else { return };
        while served.try_join_next().is_some() {}
        served.spawn(async move {
            serve_connection(connection).await;
            drop(slot);
        });
    }
}

/// Serves one connection to its end.
pub async fn serve_connection<S>(connection: S)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut client = BufReader::with_capacity(relay::BUFFER_BYTES, connection);
    let Ok(Ok(first)) = timeout_at(deadline, client.fill_buf()).await else { return };
    let served = match first.first() {
        None => return,
        Some(&socks::VERSION) => socks::serve(client, deadline).await,
        Some(_) => http::serve(client, deadline).await,
    };
    // A connection that broke has nobody left to tell.
    drop(served);
}
