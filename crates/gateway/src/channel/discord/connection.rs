//! Keeps the gateway connection: identify, resume, reconnect.

use std::sync::Arc;
use std::time::Duration;

use hermes_net::ConnectError;
use hermes_types::lock;
use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use twilight_model::gateway::payload::incoming::Hello;
use twilight_model::gateway::{CloseCode, Intents, OpCode};
use twilight_model::id::marker::ChannelMarker;

use super::channels::GuildCreate;
use super::inbound::{self, DispatchEvent, parse_payload};
use super::payload::{InteractionPayload, MessagePayload, ReadyPayload, WithId};
use super::socket::{self, GatewaySocket};
use super::{Bookmark, BotIdentity, Discord, rest};
use crate::channel::{ChannelHealth, ChannelSink, FatalError};

const INTENTS: Intents = Intents::GUILDS
    .union(Intents::GUILD_MESSAGES)
    .union(Intents::DIRECT_MESSAGES)
    .union(Intents::MESSAGE_CONTENT);
const DEFAULT_GATEWAY_URL: &str = "wss://gateway.discord.gg";
const EVENT_QUEUE_CAPACITY: usize = 1000;
const HELLO_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Discord allows one identify per five seconds.
const IDENTIFY_INTERVAL: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
struct GatewayPayload<'a> {
    op: u8,
    t: Option<String>,
    s: Option<u64>,
    #[serde(borrow)]
    d: Option<&'a RawValue>,
}

pub(super) enum ConnectionEnd {
    Stopped,
    /// Retrying cannot help.
    Fatal(FatalError),
    Lost(String),
    /// The server asked to reconnect.
    Reconnect,
    /// The session cannot be resumed.
    InvalidSession,
}

/// Stays connected until `stop` is cancelled.
pub(super) async fn run(
    account: Arc<Discord>,
    sink: ChannelSink,
    stop: CancellationToken,
) -> Result<(), FatalError> {
    let hint = "Install the ca-certificates package, or set SSL_CERT_FILE.";
    account
        .rest
        .connector
        .load_certificates()
        .map_err(|error| FatalError { reason: error.to_string(), hint: hint.to_owned() })?;
    sink.health.send_replace(ChannelHealth::Connecting);
    let (sender, events) = mpsc::channel(EVENT_QUEUE_CAPACITY);
    let connection = GatewayConnection {
        account: &account,
        sink: &sink,
        events: sender,
        stop,
        failures: 0,
        read_timeout: HELLO_TIMEOUT,
        session: account.bookmark.clone(),
        identified_at: None,
    };
    tokio::select! {
        end = connection.run() => end,
        () = inbound::run_dispatcher(&account, &sink, events) => Ok(()),
    }
}

/// Keeps the gateway connection and reconnects it.
struct GatewayConnection<'a> {
    account: &'a Arc<Discord>,
    sink: &'a ChannelSink,
    events: mpsc::Sender<(DispatchEvent, Option<Bookmark>)>,
    stop: CancellationToken,
    failures: u32,
    read_timeout: Duration,
    /// The session, if it can be resumed.
    session: Option<Bookmark>,
    identified_at: Option<Instant>,
}

impl GatewayConnection<'_> {
    async fn run(mut self) -> Result<(), FatalError> {
        loop {
            let (health, wait) = match self.connect().await {
                ConnectionEnd::Stopped => return Ok(()),
                ConnectionEnd::Fatal(error) => {
                    self.sink.health.send_replace(ChannelHealth::Down { reason: error.reason.clone() });
                    return Err(error);
                }
                ConnectionEnd::Lost(reason) => (ChannelHealth::Down { reason }, self.next_backoff()),
                ConnectionEnd::Reconnect => (ChannelHealth::Connecting, self.next_backoff()),
                ConnectionEnd::InvalidSession => {
                    self.session = None;
                    // Discord asks for a pause of one to five seconds.
                    let wait = Duration::from_secs(1).mul_f64(1.0 + 4.0 * fastrand::f64());
                    (ChannelHealth::Connecting, wait)
                }
            };
            self.sink.health.send_replace(health);
            if !self.sleep(wait).await {
                return Ok(());
            }
        }
    }

    /// Connects and reads events until the connection ends.
    async fn connect(&mut self) -> ConnectionEnd {
        let settings = &self.account.settings;
        if self.session.is_none()
            && let Some(last) = self.identified_at
            && !self.sleep((last + IDENTIFY_INTERVAL).saturating_duration_since(Instant::now())).await
        {
            return ConnectionEnd::Stopped;
        }
        let start = settings.gateway_url.as_deref().unwrap_or(DEFAULT_GATEWAY_URL);
        let url = self.session.as_ref().and_then(|session| session.url.as_deref());
        // Never send the token unencrypted if the configured URL is encrypted.
        let url = url.filter(|url| socket::is_encrypted(url) || !socket::is_encrypted(start));
        let stop = self.stop.clone();
        let connected = tokio::select! {
            biased;
            () = stop.cancelled() => return ConnectionEnd::Stopped,
            connected = GatewaySocket::connect(url.unwrap_or(start), &self.account.rest.connector) => connected,
        };
        let mut socket = match connected {
            Ok(socket) => socket,
            Err(error) => {
                // The session can be resumed at the default URL too.
                if let Some(session) = &mut self.session {
                    session.url = None;
                }
                let reason = hermes_net::explain_with_remedy(&*error);
                return ConnectionEnd::Lost(rest::describe_failure(&self.account.rest.connector, &reason));
            }
        };
        let end = self.read_events(&mut socket).await;
        match end {
            // The peer closed it or is gone.
            ConnectionEnd::Lost(_) | ConnectionEnd::Fatal(_) => drop(socket),
            ConnectionEnd::Stopped => socket.close().await,
            // Closing it must not delay the reconnect.
            ConnectionEnd::Reconnect | ConnectionEnd::InvalidSession => drop(tokio::spawn(socket.close())),
        }
        end
    }

    async fn read_events(&mut self, socket: &mut GatewaySocket) -> ConnectionEnd {
        self.read_timeout = HELLO_TIMEOUT;
        loop {
            let stop = self.stop.clone();
            let next = tokio::select! {
                biased;
                () = stop.cancelled() => return ConnectionEnd::Stopped,
                next = tokio::time::timeout(self.read_timeout, socket.next_event()) => next,
            };
            let text = match next {
                Ok(Ok(text)) => text,
                Ok(Err(end)) => return end,
                Err(_) => return ConnectionEnd::Lost("no response from Discord".to_owned()),
            };
            if let Some(end) = self.on_payload(socket, &text).await {
                return end;
            }
        }
    }

    /// Handles a payload. Returns how the connection ends, if it does.
    async fn on_payload(&mut self, socket: &mut GatewaySocket, text: &str) -> Option<ConnectionEnd> {
        let envelope = parse_payload::<GatewayPayload<'_>>("an event", text)?;
        let body = envelope.d.map(RawValue::get).unwrap_or("null");
        let sent = match OpCode::from(envelope.op)? {
            OpCode::Hello => {
                let hello = parse_payload::<Hello>("a greeting", body)?;
                let every = Duration::from_millis(hello.heartbeat_interval);
                // Missing heartbeat acknowledgments are noticed earlier; this catches a stuck
                // connection.
                self.read_timeout = every.saturating_mul(2).saturating_add(Duration::from_secs(1));
                socket.start_heartbeat(every);
                self.identify_or_resume(socket).await
            }
            OpCode::Heartbeat => socket.send_heartbeat().await,
            OpCode::Reconnect => return Some(ConnectionEnd::Reconnect),
            OpCode::InvalidSession if body == "true" => return Some(ConnectionEnd::Reconnect),
            OpCode::InvalidSession => return Some(ConnectionEnd::InvalidSession),
            OpCode::Dispatch => return self.on_dispatch_payload(socket, envelope, body).await,
            _ => return None,
        };
        sent.err().map(|error| ConnectionEnd::Lost(error.to_string()))
    }

    async fn on_dispatch_payload(
        &mut self,
        socket: &mut GatewaySocket,
        envelope: GatewayPayload<'_>,
        body: &str,
    ) -> Option<ConnectionEnd> {
        socket.sequence = envelope.s.or(socket.sequence);
        let event = self.on_dispatch(&envelope.t?, body);
        if let (Some(session), Some(sequence)) = (&mut self.session, envelope.s) {
            session.sequence = sequence;
        }
        let event = event?;
        tokio::select! {
            () = self.stop.cancelled() => Some(ConnectionEnd::Stopped),
            sent = self.events.send((event, self.session.clone())) => {
                sent.err().map(|_| ConnectionEnd::Stopped)
            }
        }
    }

    /// Starts or resumes a session.
    async fn identify_or_resume(&mut self, socket: &mut GatewaySocket) -> Result<(), ConnectError> {
        let token = rest::strip_token_prefix(self.account.settings.token.expose());
        let greeting = match &self.session {
            Some(session) => {
                socket.sequence = Some(session.sequence);
                let seq = session.sequence;
                json!({"op": OpCode::Resume as u8, "d": {"token": token, "session_id": session.session, "seq": seq}})
            }
            None => {
                self.identified_at = Some(Instant::now());
                let properties = json!({"os": std::env::consts::OS, "browser": "hermes", "device": "hermes"});
                let intents = INTENTS.bits();
                json!({"op": OpCode::Identify as u8, "d": {"token": token, "intents": intents, "properties": properties}})
            }
        };
        socket.send_json(&greeting).await
    }

    fn on_dispatch(&mut self, name: &str, body: &str) -> Option<DispatchEvent> {
        let account = self.account;
        // Any event means that the session was resumed, even without RESUMED.
        if name != "READY" && *self.sink.health.borrow() != ChannelHealth::Up {
            self.report_up();
        }
        match name {
            "READY" => {
                let ready: ReadyPayload = parse_payload("a greeting", body)?;
                let user = ready.user.id.to_string();
                // Identical for all but the oldest bots.
                let application =
                    ready.application.map_or_else(|| user.clone(), |named| named.id.to_string());
                let me = BotIdentity { user, application };
                *lock(&account.identity) = Some(me.clone());
                let (session, url) = (ready.session_id, ready.resume_gateway_url);
                self.session = Some(Bookmark { session, url, sequence: 0, confirmed: 0, identity: me });
                self.report_up();
                return Some(DispatchEvent::SessionStarted(
                    ready.guilds.into_iter().map(|guild| guild.id).collect(),
                ));
            }
            "GUILD_CREATE" => {
                let contents: GuildCreate = parse_payload("a server", body)?;
                let event = DispatchEvent::GuildAvailable(
                    contents.id,
                    contents.last_messages(),
                    contents.thread_parents(),
                );
                account.cache_channels(contents.into_channels());
                return Some(event);
            }
            "THREAD_LIST_SYNC" => {
                let contents: GuildCreate = parse_payload("a server", body)?;
                account.cache_channels(contents.into_channels());
            }
            "CHANNEL_CREATE" | "CHANNEL_UPDATE" | "THREAD_CREATE" | "THREAD_UPDATE" => {
                account.cache_channels([parse_payload("a channel", body)?]);
            }
            "CHANNEL_DELETE" | "THREAD_DELETE" => {
                let deleted: WithId<ChannelMarker> = parse_payload("a channel", body)?;
                lock(&account.channels).pop(&deleted.id);
            }
            "MESSAGE_CREATE" => {
                let message: Box<MessagePayload> = parse_payload("a message", body)?;
                if account.identity().is_some_and(|me| message.is_by(&me.user)) {
                    if let Some(nonce) = &message.nonce {
                        account.record_sent(nonce, &message.id.to_string());
                    }
                    return None;
                }
                return Some(DispatchEvent::MessageCreated(message));
            }
            "INTERACTION_CREATE" => {
                let call: InteractionPayload = parse_payload("a command", body)?;
                tokio::spawn(inbound::on_interaction(Arc::clone(account), self.sink.inbound.clone(), call));
            }
            _ => {}
        }
        None
    }

    fn report_up(&mut self) {
        self.failures = 0;
        self.sink.health.send_replace(ChannelHealth::Up);
    }

    /// The wait before the next attempt.
    fn next_backoff(&mut self) -> Duration {
        let wait = backoff_delay(self.failures, fastrand::f64());
        self.failures = self.failures.saturating_add(1);
        wait
    }

    /// Returns false on shutdown.
    async fn sleep(&self, wait: Duration) -> bool {
        tokio::select! {
            biased;
            () = self.stop.cancelled() => false,
            () = tokio::time::sleep(wait) => true,
        }
    }
}

/// Exponential backoff with jitter; the first retry is immediate.
fn backoff_delay(failures: u32, chance: f64) -> Duration {
    match failures {
        0 => Duration::ZERO,
        _ => Duration::from_secs(1 << failures.min(10)).min(MAX_BACKOFF).mul_f64(0.5 + chance / 2.0),
    }
}

/// How a connection ends that Discord closed.
pub(super) fn closed_end(code: u16, reason: &str) -> ConnectionEnd {
    let (reason, remedy) = match CloseCode::try_from(code) {
        Ok(CloseCode::AuthenticationFailed) => (
            "Discord rejected the bot token",
            "Copy the token from the Bot page of the developer portal and run `hermes config set discord.bot_token -`.",
        ),
        Ok(CloseCode::DisallowedIntents) => (
            "the Message Content Intent is not enabled",
            "Enable the Message Content Intent on the Bot page of the developer portal.",
        ),
        Ok(CloseCode::ShardingRequired) => {
            ("the bot is in too many servers for one connection", "Remove it from some servers.")
        }
        Ok(CloseCode::InvalidShard | CloseCode::InvalidApiVersion | CloseCode::InvalidIntents) => {
            ("Discord no longer supports this version of Hermes", "Update hermes.")
        }
        _ => {
            let details = format!("{code} {reason}");
            return ConnectionEnd::Lost(format!("Discord closed the connection ({})", details.trim_end()));
        }
    };
    ConnectionEnd::Fatal(FatalError { reason: reason.to_owned(), hint: remedy.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backoff_grows_with_jitter() {
        assert_eq!(backoff_delay(0, 0.9), Duration::ZERO);
        assert_eq!(
            (backoff_delay(1, 0.0), backoff_delay(1, 1.0)),
            (Duration::from_secs(1), Duration::from_secs(2))
        );
        assert_eq!(
            (backoff_delay(3, 0.0), backoff_delay(3, 1.0)),
            (Duration::from_secs(4), Duration::from_secs(8))
        );
        assert_eq!(backoff_delay(u32::MAX, 1.0), MAX_BACKOFF);
    }

    #[test]
    fn only_permanent_close_codes_are_fatal() {
        for code in [1000, 1006, 4000, 4001, 4007, 4008, 4009, 4999] {
            assert!(matches!(closed_end(code, ""), ConnectionEnd::Lost(_)), "{code}");
        }
        for code in [4004, 4010, 4011, 4012, 4013, 4014] {
            let ConnectionEnd::Fatal(error) = closed_end(code, "") else { panic!("{code}") };
            assert!(!error.hint.is_empty(), "{code}");
        }
    }
}
