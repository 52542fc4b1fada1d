//! What Docker and Podman have in common: the Engine API on a Unix socket.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::http;
use super::report::Access;

const LIMIT: Duration = Duration::from_secs(10);

/// Asks the engine for a sign of life.
pub(crate) fn ping(socket: &Path) -> Result<()> {
    let answer = http::request(socket, "GET", "/_ping", None, LIMIT)?;
    if answer.trim_ascii() != b"OK" {
        bail!("ping answered {:?}", String::from_utf8_lossy(&answer));
    }
    Ok(())
}

/// Pings the engine and tells how to use it.
pub(crate) fn probe(socket: &Path) -> Result<Access> {
    ping(socket)?;
    let answer = http::request(socket, "GET", "/version", None, LIMIT)?;
    let document: Value = serde_json::from_slice(&answer)?;
    let version = document.get("Version").and_then(Value::as_str).context("no version")?;
    Ok(Access::Engine { socket: socket.to_owned(), version: version.to_owned() })
}

/// Removes stopped containers, so that a fresh engine does not carry an earlier run's along.
pub(crate) fn prune(socket: &Path) -> Result<()> {
    http::request(socket, "POST", "/containers/prune", None, Duration::from_secs(60)).map(drop)
}
