//! One WebSocket connection to the gateway, with heartbeats.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use hermes_net::{ConnectError, Connector, NetStream};
use http::Uri;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_websockets::{ClientBuilder, CloseCode, Limits, Message, WebSocketStream};

use super::connection::{ConnectionEnd, closed_end};
use super::rest::TIMED_OUT;

const API_VERSION: &str = "10";
const CONNECT_TIMEOUT: Duration = Duration::from_secs(15);
const SEND_TIMEOUT: Duration = Duration::from_secs(10);
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_FRAME_BYTES: usize = 64 * 1024 * 1024;
/// Close code after which the session can still be resumed.
const RESUMABLE_CLOSE_CODE: u16 = 4000;

pub(super) struct GatewaySocket {
    stream: WebSocketStream<Box<dyn NetStream>>,
    heartbeat: Option<Interval>,
    /// Whether anything was received since the last heartbeat.
    has_received: bool,
    /// Sequence number of the last event.
    pub(super) sequence: Option<u64>,
}

impl GatewaySocket {
    pub(super) async fn connect(base: &str, connector: &Connector) -> Result<Self, ConnectError> {
        let connected = tokio::time::timeout(CONNECT_TIMEOUT, Self::open(base, connector)).await;
        connected.unwrap_or_else(|_| Err(TIMED_OUT.into()))
    }

    async fn open(base: &str, connector: &Connector) -> Result<Self, ConnectError> {
        let url = gateway_url(base)?;
        let host = url.host_str().unwrap_or_default();
        let (scheme, usual) = if url.scheme() == "wss" { ("https", 443) } else { ("http", 80) };
        let server: Uri = format!("{scheme}://{host}:{}/", url.port().unwrap_or(usual)).parse()?;
        let stream = connector.connect(&server).await?;
        let uri: Uri = url.as_str().parse()?;
        let builder =
            ClientBuilder::from_uri(uri).limits(Limits::default().max_payload_len(Some(MAX_FRAME_BYTES)));
        let (stream, _) = builder.connect_on(stream).await?;
        Ok(Self { stream, heartbeat: None, has_received: true, sequence: None })
    }

    /// Starts sending heartbeats.
    pub(super) fn start_heartbeat(&mut self, every: Duration) {
        // Jitter: after an outage all clients reconnect at once.
        let first = Instant::now() + every.mul_f64(fastrand::f64());
        let mut beat = interval_at(first, every.max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.heartbeat = Some(beat);
        self.has_received = true;
    }

    /// Waits for the next event and sends heartbeats.
    pub(super) async fn next_event(&mut self) -> Result<String, ConnectionEnd> {
        loop {
            let message = tokio::select! {
                biased;
                () = next_tick(self.heartbeat.as_mut()) => {
                    if !std::mem::replace(&mut self.has_received, false) {
                        return Err(ConnectionEnd::Lost("no response from Discord".to_owned()));
                    }
                    if let Err(error) = self.send_heartbeat().await {
                        return Err(ConnectionEnd::Lost(error.to_string()));
                    }
                    continue;
                }
                message = self.stream.next() => message,
            };
            let message = match message {
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    let reason = format!("connection lost: {}", hermes_net::explain(&error));
                    return Err(ConnectionEnd::Lost(reason));
                }
                None => return Err(ConnectionEnd::Lost("connection lost".to_owned())),
            };
            self.has_received = true;
            if let Some((code, reason)) = message.as_close() {
                return Err(closed_end(code.into(), reason));
            }
            if message.is_text() || message.is_binary() {
                match std::str::from_utf8(message.as_payload()) {
                    Ok(text) => return Ok(text.to_owned()),
                    Err(_) => tracing::warn!("received a frame that is not UTF-8"),
                }
            }
        }
    }

    pub(super) async fn send_heartbeat(&mut self) -> Result<(), ConnectError> {
        self.send_json(&json!({"op": 1, "d": self.sequence})).await
    }

    pub(super) async fn send_json(&mut self, what: &Value) -> Result<(), ConnectError> {
        let received =
            tokio::time::timeout(SEND_TIMEOUT, self.stream.send(Message::text(what.to_string()))).await;
        match received {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("connection lost: {}", hermes_net::explain(&error)).into()),
            Err(_) => Err("sending to Discord timed out".into()),
        }
    }

    /// Closes the connection so that the session can be resumed.
    pub(super) async fn close(mut self) {
        let left = async {
            let code = CloseCode::try_from(RESUMABLE_CLOSE_CODE).ok();
            if self.stream.send(Message::close(code, "")).await.is_ok() {
                while let Some(Ok(_)) = self.stream.next().await {}
            }
        };
        // Do not wait for an unresponsive server.
        tokio::time::timeout(CLOSE_TIMEOUT, left).await.ok();
    }
}

async fn next_tick(beat: Option<&mut Interval>) {
    match beat {
        Some(beat) => drop(beat.tick().await),
        None => std::future::pending().await,
    }
}

pub(super) fn is_encrypted(base: &str) -> bool {
    gateway_url(base).is_ok_and(|url| url.scheme() == "wss")
}

/// The gateway URL with its query parameters.
fn gateway_url(base: &str) -> Result<Url, ConnectError> {
    let mut url = Url::parse(base.trim()).map_err(|error| format!("invalid gateway URL: {error}"))?;
    if !matches!(url.scheme(), "ws" | "wss") || !url.has_host() {
        return Err("invalid gateway URL: it must start with wss:// or ws://".into());
    }
    let is_ours = |name: &str| matches!(name, "v" | "encoding" | "compress");
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !is_ours(name))
        .map(|(a, b)| (a.into_owned(), b.into_owned()))
        .collect();
    url.query_pairs_mut()
        .clear()
        .append_pair("v", API_VERSION)
        .append_pair("encoding", "json")
        .extend_pairs(others);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_a_gateway_url_is_kept() {
        let cases = [
            ("wss://gateway.discord.gg", Some("wss://gateway.discord.gg/?v=10&encoding=json")),
            ("wss://gateway.discord.gg/", Some("wss://gateway.discord.gg/?v=10&encoding=json")),
            ("ws://127.0.0.1:9/gateway", Some("ws://127.0.0.1:9/gateway?v=10&encoding=json")),
            ("ws://127.0.0.1:9/ws/", Some("ws://127.0.0.1:9/ws/?v=10&encoding=json")),
            ("ws://h/?v=9&key=a&compress=zlib-stream", Some("ws://h/?v=10&encoding=json&key=a")),
            ("http://h", None),
            ("gateway.discord.gg", None),
            ("", None),
        ];
        for (base, expected) in cases {
            assert_eq!(gateway_url(base).ok().as_ref().map(Url::as_str), expected, "{base}");
        }
    }
}
