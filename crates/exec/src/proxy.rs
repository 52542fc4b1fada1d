//! Network access for places that have no network of their own.
//!
//! Such a place has only a loopback interface. The guest listens there on [`PORT`] and forwards
//! every connection as a stream to this process, which serves HTTP `CONNECT`, plain HTTP and
//! SOCKS5; the first byte tells which. The target is resolved here, once, and connected only if
//! every address is public and none belongs to this machine ([`target`]).
//!
//! | limit | value |
//! |---|---|
//! | concurrent connections of one client | 128 |
//! | bytes before the target is known | 64 KiB |
//! | time until the target is known | 30 s |
//! | time to resolve, and to connect | 20 s each |
//! | silence in both directions | 10 min; 1 min once one side has ended |
//!
//! Nothing here trusts the place: a command may send anything to the port, and a compromised guest
//! may open any stream.

mod http;
mod relay;
mod socks;
mod target;

pub use target::{HostError, resolve_public};

use std::path::Path;
use std::time::Duration;

use hermes_guest::client::{Client, TunnelListener};
use hermes_guest::protocol::limit;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, BufReader};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout_at};

use crate::Error;
use crate::registry::{PlaceDir, discard};

/// The proxy's port on the loopback interface of every place that has one. Fixed, so the
/// environment of a session stays valid whichever process serves it. The network namespace is the
/// place's own, so the port is free.
pub const PORT: u16 = 13128;

const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// The variables that make programs use the proxy.
pub fn proxy_env() -> Vec<(String, String)> {
    // Not a `socks5:` URL, although the port speaks SOCKS too: some clients refuse to start with
    // one.
    let proxy = format!("http://127.0.0.1:{PORT}");
    let away = ["HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"];
    let here = ["NO_PROXY", "no_proxy"];
    let to_proxy = away.map(|name| (name.to_owned(), proxy.clone()));
    let to_itself = here.map(|name| (name.to_owned(), "localhost,127.0.0.1,::1".to_owned()));
    let node = ("NODE_USE_ENV_PROXY".to_owned(), "1".to_owned());
    to_proxy.into_iter().chain(to_itself).chain([node]).collect()
}

/// A proxy that serves a place. Dropping it closes every connection.
pub type ProxyTask = JoinSet<()>;

/// Serves the place of this client. Several processes may serve one place.
pub async fn attach(client: &Client) -> Result<ProxyTask, Error> {
    let listener = client.listen(PORT).await?;
    let mut task = ProxyTask::new();
    task.spawn(accept_connections(listener));
    Ok(task)
}

/// Serves a place for as long as a process runs in it, after the command that started it has
/// exited. Returns at once if another process does this already.
pub async fn serve_while_running(run: &Path, name: &str) -> Result<(), Error> {
    let dir = PlaceDir::named(run, name);
    let Some(turn) = dir.lock_proxy().await? else { return Ok(()) };
    let kept = serve_until_idle(&dir).await;
    discard(turn)?;
    kept
}

async fn serve_until_idle(dir: &PlaceDir) -> Result<(), Error> {
    let client = dir.client().await?;
    let _proxy = attach(&client).await?;
    while client.stats().await.is_ok_and(|stats| stats.running > 0) {
        tokio::select! {
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = client.wait_closed() => {}
        }
    }
    Ok(())
}

async fn accept_connections(mut listener: TunnelListener) {
    let mut served = JoinSet::new();
    while let Some(connection) = listener.connections.recv().await {
        while served.try_join_next().is_some() {}
        served.spawn(serve_connection(connection));
        if served.len() >= limit::MAX_LISTENER_CONNECTIONS {
            served.join_next().await;
        }
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
    // The client is gone, so the error cannot be reported.
    drop(served);
}
