//! What Docker and Podman have in common: the Engine API on a Unix socket.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::cell::{Cell, Spec};
use super::dirs::{self, Dirs};
use super::http;
use super::images;
use super::report::Access;

const LIMIT: Duration = Duration::from_secs(10);

/// Pings the engine.
fn ping(socket: &Path) -> Result<()> {
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

/// Starts an engine if it does not answer, and imports the images.
///
/// A killed engine may have left storage that it can no longer use. The images can be imported
/// again, so the second attempt starts with empty storage.
pub(crate) fn up(dirs: &Dirs, name: &'static str, spec: &Spec, socket: &Path, storage: &Path) -> Result<()> {
    let cell = Cell::new(dirs, name);
    let attempt = || {
        if cell.ensure(spec, || probe(socket).map(drop))? {
            prune(socket)?;
        }
        images::import(dirs, name, socket)
    };
    let Err(error) = attempt() else { return Ok(()) };
    eprintln!("peers: {name}: {error:#}; once more with empty storage");
    cell.stop()?;
    for entry in fs::read_dir(storage)? {
        dirs::remove(&entry?.path())?;
    }
    attempt()
}

/// Removes leftovers of earlier tests, so that a new cell starts with only the images.
fn prune(socket: &Path) -> Result<()> {
    for what in ["containers", "networks", "volumes"] {
        http::request(socket, "POST", &format!("/{what}/prune"), None, Duration::from_secs(60))?;
    }
    Ok(())
}
