//! One connection to the gateway, and what keeps it alive.

use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use http::Uri;
use reqwest::Url;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_websockets::{ClientBuilder, CloseCode, Limits, Message, WebSocketStream};

use super::road::{Road, SLOW, Stream, Unreached};
use hermes_agent::http::tls;

/// The version of the API.
const VERSION: &str = "10";
/// The longest a connection takes.
const CONNECTS: Duration = Duration::from_secs(15);
/// The longest something takes to be said.
const SAYS: Duration = Duration::from_secs(10);
/// The longest a connection takes to close.
const FAREWELL: Duration = Duration::from_secs(2);
/// The largest thing that is said at once.
const LARGEST: usize = 64 * 1024 * 1024;
/// A close after which a session can be gone on with.
const PAUSE: u16 = 4000;

/// A connection.
pub(super) struct Socket {
    stream: WebSocketStream<Box<dyn Stream>>,
    /// When the gateway is told that we are there.
    beat: Option<Interval>,
    /// Whether anything was heard since it was told.
    heard: bool,
    /// The last thing that was told, by its number.
    pub(super) sequence: Option<u64>,
}

/// What comes of listening.
#[derive(Debug)]
pub(super) enum Heard {
    Text(String),
    /// The gateway closed the connection.
    Closed {
        code: u16,
        reason: String,
    },
    /// It is gone.
    Gone(String),
}

impl Socket {
    /// Connects to a gateway.
    pub(super) async fn connect(base: &str, road: &Road) -> Result<Self, Unreached> {
        let connected = tokio::time::timeout(CONNECTS, Self::reach(base, road)).await;
        connected.unwrap_or_else(|_| Err(SLOW.into()))
    }

    async fn reach(base: &str, road: &Road) -> Result<Self, Unreached> {
        let url = address(base)?;
        let host = url.host_str().unwrap_or_default();
        let (scheme, usual) = if url.scheme() == "wss" { ("https", 443) } else { ("http", 80) };
        let server: Uri = format!("{scheme}://{host}:{}/", url.port().unwrap_or(usual)).parse()?;
        let stream = road.connect(&server).await?;
        let uri: Uri = url.as_str().parse()?;
        let builder = ClientBuilder::from_uri(uri).limits(Limits::default().max_payload_len(Some(LARGEST)));
        let (stream, _) = builder.connect_on(stream).await?;
        Ok(Self { stream, beat: None, heard: true, sequence: None })
    }

    /// Tells the gateway from now on that we are there, as often as it wants.
    pub(super) fn keep_alive(&mut self, every: Duration) {
        // All bots of the world were connected anew when the gateway was.
        let first = Instant::now() + every.mul_f64(fastrand::f64());
        let mut beat = interval_at(first, every.max(Duration::from_millis(1)));
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.beat = Some(beat);
        self.heard = true;
    }

    /// Listens, and meanwhile keeps the connection alive.
    pub(super) async fn next(&mut self) -> Heard {
        loop {
            let message = tokio::select! {
                biased;
                () = tick(self.beat.as_mut()) => {
                    if !std::mem::replace(&mut self.heard, false) {
                        return Heard::Gone("Discord fell silent".to_owned());
                    }
                    if let Err(why) = self.tell_alive().await {
                        return Heard::Gone(why);
                    }
                    continue;
                }
                message = self.stream.next() => message,
            };
            let message = match message {
                Some(Ok(message)) => message,
                Some(Err(error)) => {
                    return Heard::Gone(format!("the connection was lost: {}", tls::why(&error)));
                }
                None => return Heard::Gone("the connection was lost".to_owned()),
            };
            self.heard = true;
            if let Some((code, reason)) = message.as_close() {
                return Heard::Closed { code: code.into(), reason: reason.to_owned() };
            }
            if message.is_text() || message.is_binary() {
                match std::str::from_utf8(message.as_payload()) {
                    Ok(text) => return Heard::Text(text.to_owned()),
                    Err(_) => tracing::warn!("Discord said something that cannot be read"),
                }
            }
        }
    }

    /// Tells the gateway that we are there.
    pub(super) async fn tell_alive(&mut self) -> Result<(), String> {
        self.say(&json!({"op": 1, "d": self.sequence})).await
    }

    pub(super) async fn say(&mut self, what: &Value) -> Result<(), String> {
        let said = tokio::time::timeout(SAYS, self.stream.send(Message::text(what.to_string()))).await;
        match said {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(format!("the connection was lost: {}", tls::why(&error))),
            Err(_) => Err("Discord does not listen".to_owned()),
        }
    }

    /// Leaves in a way that lets whoever comes next hear what was said meanwhile.
    pub(super) async fn leave(mut self) {
        let left = async {
            let code = CloseCode::try_from(PAUSE).ok();
            if self.stream.send(Message::close(code, "")).await.is_ok() {
                while let Some(Ok(_)) = self.stream.next().await {}
            }
        };
        // Whoever does not answer is left without a word.
        tokio::time::timeout(FAREWELL, left).await.ok();
    }
}

async fn tick(beat: Option<&mut Interval>) {
    match beat {
        Some(beat) => drop(beat.tick().await),
        None => std::future::pending().await,
    }
}

/// Whether what is said to a gateway at this address is secret.
pub(super) fn is_secret(base: &str) -> bool {
    address(base).is_ok_and(|url| url.scheme() == "wss")
}

/// The address of a gateway, with the words that it wants in it.
fn address(base: &str) -> Result<Url, String> {
    let mut url = Url::parse(base.trim()).map_err(|error| format!("its address is wrong: {error}"))?;
    if !matches!(url.scheme(), "ws" | "wss") || !url.has_host() {
        return Err("its address is wrong: it begins with wss:// or ws://".to_owned());
    }
    let is_ours = |name: &str| matches!(name, "v" | "encoding" | "compress");
    let others: Vec<(String, String)> = url
        .query_pairs()
        .filter(|(name, _)| !is_ours(name))
        .map(|(a, b)| (a.into_owned(), b.into_owned()))
        .collect();
    url.query_pairs_mut()
        .clear()
        .append_pair("v", VERSION)
        .append_pair("encoding", "json")
        .extend_pairs(others);
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_of_an_address_stays_as_it_is() {
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
            assert_eq!(address(base).ok().as_ref().map(Url::as_str), expected, "{base}");
        }
    }
}
