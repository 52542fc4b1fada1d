//! One HTTP request over a Unix socket.
//!
//! The command-line client of an engine may be missing or have another version than the daemon, so
//! requests go to the socket directly. They use HTTP/1.0, so that the response is not chunked and
//! ends with the connection.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};

/// The body of a request.
pub(crate) struct Body<'a> {
    /// Its media type.
    pub(crate) kind: &'static str,
    /// The number of bytes.
    pub(crate) length: u64,
    /// The bytes.
    pub(crate) bytes: &'a mut dyn Read,
}

/// Sends one request and returns the body of a 2xx response. `limit` bounds each wait for the peer.
pub(crate) fn request(
    socket: &Path,
    method: &str,
    target: &str,
    body: Option<Body<'_>>,
    limit: Duration,
) -> Result<Vec<u8>> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("cannot connect to {}", socket.display()))?;
    stream.set_read_timeout(Some(limit))?;
    stream.set_write_timeout(Some(limit))?;
    write!(stream, "{method} {target} HTTP/1.0\r\nHost: localhost\r\n")?;
    match body {
        None => write!(stream, "Content-Length: 0\r\n\r\n")?,
        Some(Body { kind, length, bytes }) => {
            write!(stream, "Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n")?;
            std::io::copy(bytes, &mut stream)?;
        }
    }
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).with_context(|| format!("{method} {target}: no complete answer"))?;
    let (status, body) = split(&answer).with_context(|| format!("{method} {target}: not an HTTP answer"))?;
    if !(200..300).contains(&status) {
        bail!("{method} {target}: status {status}: {}", String::from_utf8_lossy(body).trim());
    }
    Ok(body.to_vec())
}

fn split(answer: &[u8]) -> Option<(u16, &[u8])> {
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let (head, body) = answer.split_at_checked(end)?;
    let status = std::str::from_utf8(head).ok()?.split_whitespace().nth(1)?.parse().ok()?;
    Some((status, body.get(4..)?))
}
