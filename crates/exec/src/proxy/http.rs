//! HTTP/1: `CONNECT`, and requests with an absolute URL.
//!
//! Each forwarded request uses its own connection to the server, and both sides must close
//! it, so no two requests can be confused. The request is written from its parsed form, never
//! copied.

mod body;
mod request;

use std::io;
use std::sync::Arc;

use tokio::io::{
    AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader,
};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};

use super::relay::{self, ActivityTimer};
use super::target::{self, HostError};
use request::{ForwardRequest, ProxyRequest, RequestError, RequestKind};

const MAX_HEAD_BYTES: usize = 64 * 1024;

pub(super) async fn serve<S>(mut client: BufReader<S>, deadline: Instant) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = if client.buffer().first().is_some_and(u8::is_ascii_alphabetic) {
        match timeout_at(deadline, read_head(&mut client)).await {
            Ok(head) => head?.ok_or(RequestError::TooLong).and_then(|head| ProxyRequest::parse(&head)),
            Err(_elapsed) => Err(RequestError::TimedOut),
        }
    } else {
        // Only HTTP has an empty line to wait for.
        Err(RequestError::InvalidRequestLine)
    };
    let request = match request {
        Ok(request) => request,
        Err(error) => {
            let text = error.to_string();
            return send_error(&mut client, error.status(), &text, None, &text).await;
        }
    };
    let server = match target::connect(&request.host, request.port).await {
        Ok(server) => server,
        Err(error) => return send_host_error(&mut client, &request.host, &error).await,
    };
    match request.kind {
        RequestKind::Connect => {
            client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
            client.flush().await?;
            relay::copy_both_ways(client, server).await
        }
        RequestKind::Forward(plain) => forward(client, server, plain).await,
    }
}

async fn send_host_error<S>(client: &mut S, host: &str, error: &HostError) -> io::Result<()>
where
    S: AsyncWrite + Unpin,
{
    // The client wrote the host, but it may be shown in a terminal.
    let host: String = host.chars().take(255).flat_map(char::escape_debug).collect();
    let refused = error.refusal_reason();
    if let Some(refusal) = refused {
        let reason = format!("Refused by hermes: {refusal}");
        let text = format!("{host} {error}; terminal.network: proxy reaches public hosts only");
        return send_error(client, 403, &reason, refused, &text).await;
    }
    let (status, reason) = match error {
        HostError::TimedOut => (504, "Gateway timeout"),
        HostError::Resolve(_) => (502, "Cannot resolve host"),
        _ => (502, "Cannot connect"),
    };
    send_error(client, status, reason, None, &format!("{host} {error}")).await
}

/// Sends an error response. Many clients show the reason phrase but not the body.
async fn send_error<S: AsyncWrite + Unpin>(
    client: &mut S,
    status: u16,
    reason: &str,
    refused: Option<&str>,
    text: &str,
) -> io::Result<()> {
    let refused = refused.map(|kind| format!("X-Hermes-Refused: {kind}\r\n")).unwrap_or_default();
    let text = format!("hermes: {text}\n");
    let whole = format!(
        "HTTP/1.1 {status} {reason}\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n{refused}Connection: close\r\n\r\n{text}",
        text.len()
    );
    client.write_all(whole.as_bytes()).await?;
    client.shutdown().await
}

/// Reads up to and including the first empty line; `None` if the head is too long.
async fn read_head<R: AsyncBufRead + Unpin>(reader: &mut R) -> io::Result<Option<Vec<u8>>> {
    let mut head = Vec::new();
    loop {
        let from = head.len();
        let mut limited = (&mut *reader).take((MAX_HEAD_BYTES - from) as u64);
        limited.read_until(b'\n', &mut head).await?;
        match head.get(from..) {
            Some(b"\n" | b"\r\n") => return Ok(Some(head)),
            Some([.., b'\n']) => {}
            _ if head.len() >= MAX_HEAD_BYTES => return Ok(None),
            _ => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Forwards one request and its response.
async fn forward<S>(client: BufReader<S>, server: TcpStream, plain: ForwardRequest) -> io::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let timer = Arc::new(ActivityTimer::new());
    let (from_client, mut to_client) = tokio::io::split(client);
    let mut from_client = BufReader::with_capacity(relay::BUFFER_BYTES, from_client);
    let (from_server, to_server) = server.into_split();
    let from_server = relay::watch_reads(from_server, &timer);
    let mut from_server = BufReader::with_capacity(relay::BUFFER_BYTES, from_server);
    let mut to_server = relay::watch_writes(to_server, &timer);
    let send = async {
        to_server.write_all(&plain.head()).await?;
        body::copy(plain.body, &mut from_client, &mut to_server).await?;
        // Further bytes do not belong to this request; only end of file matters.
        if from_client.fill_buf().await?.is_empty() {
            timer.mark_half_open();
        }
        Ok(())
    };
    let upload = async {
        match send.await {
            // The client broke off; the server must not take a part of the request for the whole.
            Err(error) if body::is_client_error(&error) => error,
            // A server may respond without reading the whole request.
            _ => std::future::pending().await,
        }
    };
    let download = async {
        forward_response_head(&mut from_server, &mut to_client).await?;
        tokio::io::copy_buf(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::select! {
        done = download => done,
        error = upload => Err(error),
        () = timer.wait_for_timeout() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// Forwards the response heads, provisional ones first, without hop-by-hop headers.
async fn forward_response_head<R, W>(server: &mut R, client: &mut W) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    loop {
        let head = match read_head(server).await {
            Ok(Some(head)) if head.starts_with(b"HTTP/1.") => head,
            _ => {
                let reason = "No response from the server";
                return send_error(client, 502, reason, None, "the server sent no response").await;
            }
        };
        let provisional = head.get(8..10) == Some(b" 1") && head.get(8..12) != Some(b" 101");
        let mut lines = head.split_inclusive(|byte| *byte == b'\n').filter(|line| line.trim_ascii() != b"");
        let mut shown = lines.next().unwrap_or_default().to_vec();
        for line in lines {
            let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
            if !request::is_hop_by_hop(name.trim_ascii()) {
                shown.extend_from_slice(line);
            }
        }
        if !provisional {
            shown.extend_from_slice(b"Connection: close\r\n");
        }
        shown.extend_from_slice(b"\r\n");
        client.write_all(&shown).await?;
        client.flush().await?;
        if !provisional {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests;
