//! The websocket: sessions, events, and the protocol's rules.

use std::sync::Arc;
use std::time::Duration;

use flate2::{Compress, Compression, FlushCompress};
use futures_util::{SinkExt, StreamExt};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;

use super::state::World;
use super::{EventDetail, ServerState};

/// A command to a connection.
#[derive(Debug)]
pub(super) enum SocketCommand {
    Send(Value),
    Close(u16),
    /// Drop the connection without a close frame.
    Disconnect,
    /// Keep the connection, but never send again.
    GoSilent,
}

/// A client's session. It outlives its connections.
#[derive(Debug, Default)]
pub(super) struct FakeSession {
    pub(super) intents: u64,
    detail: EventDetail,
    /// All events; the first has number 1.
    log: Vec<Value>,
    connection: Option<UnboundedSender<SocketCommand>>,
}

impl FakeSession {
    pub(super) fn is_live(&self) -> bool {
        self.connection.as_ref().is_some_and(|connection| !connection.is_closed())
    }

    pub(super) fn command(&self, command: SocketCommand) {
        if let Some(connection) = &self.connection {
            connection.send(command).ok();
        }
    }

    fn send_event(&mut self, name: &str, data: &Value) {
        let data = match self.detail {
            EventDetail::Full => data,
            EventDetail::Minimal => &minimal_event(name, data),
        };
        let event = json!({"op": 0, "s": self.log.len() + 1, "t": name, "d": data});
        self.log.push(event.clone());
        self.command(SocketCommand::Send(event));
    }
}

pub(super) const GUILDS: u64 = 1;
pub(super) const GUILD_MEMBERS: u64 = 1 << 1;
const GUILD_PRESENCES: u64 = 1 << 8;
/// For guilds; direct messages have the same three intents further up.
pub(super) const MESSAGES: u64 = 1 << 9;
pub(super) const REACTIONS: u64 = 1 << 10;
pub(super) const TYPING: u64 = 1 << 11;
const DIRECT_SHIFT: u32 = 3;
const MESSAGE_CONTENT: u64 = 1 << 15;
const KNOWN_INTENTS: u64 = 0x331_FFFF;

impl World {
    /// Sends an event to all sessions with the intent. An intent of 0 means all sessions.
    pub(super) fn dispatch(&mut self, intent: u64, guild: Option<u64>, name: &str, data: &Value) {
        let intent = match guild {
            None if intent >= MESSAGES => intent << DIRECT_SHIFT,
            _ => intent,
        };
        let bot = self.bot.to_string();
        for session in self.sessions.values_mut() {
            if intent != 0 && session.intents & intent == 0 {
                continue;
            }
            let mut data = data.clone();
            if name.starts_with("MESSAGE_") && session.intents & MESSAGE_CONTENT == 0 && guild.is_some() {
                strip_content(&mut data, &bot);
            }
            session.send_event(name, &data);
        }
    }
}

/// The indispensable fields of an event, and an unknown one.
fn minimal_event(name: &str, data: &Value) -> Value {
    let some = |from: &Value, keys: &[&str]| -> Value {
        let there = |key: &&&str| !from[**key].is_null();
        keys.iter()
            .filter(there)
            .map(|key| ((*key).to_owned(), from[*key].clone()))
            .collect::<Map<_, _>>()
            .into()
    };
    let minimal_user = |user: &Value| some(user, &["id", "username", "bot"]);
    let mut event = match name {
        "READY" => some(data, &["user", "guilds", "session_id"]),
        "GUILD_CREATE" => some(data, &["id"]),
        "MESSAGE_CREATE" => some(data, &["id", "channel_id", "guild_id", "author", "content", "mentions"]),
        "INTERACTION_CREATE" => some(
            data,
            &["id", "type", "token", "channel_id", "guild_id", "member", "user", "data", "message"],
        ),
        _ => data.clone(),
    };
    if let Some(mentions) = event.get_mut("mentions").and_then(Value::as_array_mut) {
        mentions.iter_mut().for_each(|user| *user = minimal_user(user));
    }
    for key in ["author", "user"] {
        if let Some(user) = event.get_mut(key) {
            *user = minimal_user(user);
        }
    }
    if let Some(member) = event.get_mut("member") {
        *member = json!({"user": minimal_user(&member["user"])});
    }
    event["unknown_field"] = json!([null, {"of": 1}]);
    event
}

/// Removes the content of a message that is neither from the bot nor mentions it.
fn strip_content(message: &mut Value, bot: &str) {
    let mentions_bot =
        message["mentions"].as_array().is_some_and(|all| all.iter().any(|user| user["id"] == bot));
    if message.get("author").is_some() && message["author"]["id"] != bot && !mentions_bot {
        message["content"] = "".into();
        for key in ["attachments", "embeds", "components"] {
            message[key] = json!([]);
        }
    }
}

/// Why a connection ends.
enum SocketEnd {
    Close(u16, String),
    Disconnected,
}

struct ServerSocket {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    shared: Arc<ServerState>,
    zlib: Option<Compress>,
    session: Option<String>,
    commands: UnboundedSender<SocketCommand>,
    is_silent: bool,
    /// Heartbeats since the connection is silent.
    unanswered: u32,
    last_heartbeat: Instant,
    /// The sequence number of the last heartbeat.
    last_seq: u64,
}

/// Serves one websocket.
pub(super) async fn serve(
    socket: WebSocketStream<TokioIo<Upgraded>>,
    query: String,
    shared: Arc<ServerState>,
) {
    let (commands, orders) = mpsc::unbounded_channel();
    let param = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let zlib = (param("compress") == Some("zlib-stream")).then(|| Compress::new(Compression::fast(), true));
    let is_silent = shared.update(|world| world.injected.silent);
    let close_code = match (param("v"), param("encoding"), param("compress")) {
        (Some("10"), Some("json"), None | Some("zlib-stream")) => None,
        (Some("10"), ..) => Some(4002),
        _ => Some(4012),
    };
    let mut connection = ServerSocket {
        socket,
        shared,
        zlib,
        session: None,
        commands,
        is_silent,
        unanswered: 0,
        last_heartbeat: Instant::now(),
        last_seq: 0,
    };
    let end = match close_code {
        Some(code) => SocketEnd::Close(code, format!("a gateway address with `{query}`")),
        None => connection.run(orders).await,
    };
    connection.finish(end).await;
}

impl ServerSocket {
    async fn run(&mut self, mut orders: UnboundedReceiver<SocketCommand>) -> SocketEnd {
        let interval = self.shared.options.heartbeat_interval;
        let hello = json!({"op": 10, "s": null, "t": null, "d": {"heartbeat_interval": millis(interval)}});
        if self.send(&hello).await.is_err() {
            return SocketEnd::Disconnected;
        }
        loop {
            let deadline = self.last_heartbeat + interval.mul_f64(1.25);
            let late = async {
                if self.is_silent {
                    std::future::pending::<()>().await;
                }
                tokio::time::sleep_until(deadline).await;
            };
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(SocketCommand::Send(payload)) => if self.send(&payload).await.is_err() { return SocketEnd::Disconnected },
                    Some(SocketCommand::Close(code)) => return SocketEnd::Close(code, String::new()),
                    Some(SocketCommand::GoSilent) => self.is_silent = true,
                    Some(SocketCommand::Disconnect) | None => return SocketEnd::Disconnected,
                },
                frame = self.socket.next() => {
                    let text = match frame {
                        Some(Ok(Frame::Text(text))) => text,
                        Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => continue,
                        Some(Ok(Frame::Close(_)) | Err(_)) | None => return SocketEnd::Disconnected,
                        Some(Ok(_)) => return SocketEnd::Close(4002, "a binary frame".to_owned()),
                    };
                    if self.is_silent {
                        self.count_unanswered(&text);
                        continue;
                    }
                    if let Err(end) = self.handle_frame(&text).await {
                        return end;
                    }
                }
                () = late => return SocketEnd::Close(4009, "no heartbeat for 1.25 intervals".to_owned()),
            }
        }
    }

    async fn finish(mut self, end: SocketEnd) {
        if let SocketEnd::Close(code, why) = end {
            if !why.is_empty() {
                self.shared
                    .update(|world| world.record_violation(u64::from(code), format!("gateway: {why}")));
            }
            let reason = close_reason(code).into();
            self.socket.close(Some(CloseFrame { code: code.into(), reason })).await.ok();
            // The client sends its own close frame.
            let closed = async { while let Some(Ok(_)) = self.socket.next().await {} };
            tokio::time::timeout(Duration::from_secs(2), closed).await.ok();
        }
        // A new connection may own the session by now.
        self.shared.update(|world| {
            let session = self.session.and_then(|id| world.sessions.get_mut(&id));
            if let Some(session) = session.filter(|session| {
                session.connection.as_ref().is_some_and(|known| known.same_channel(&self.commands))
            }) {
                session.connection = None;
            }
        });
    }

    async fn send(&mut self, payload: &Value) -> Result<(), ()> {
        if self.is_silent {
            return Ok(());
        }
        let text = payload.to_string();
        let frame = match &mut self.zlib {
            None => Frame::text(text),
            Some(zlib) => Frame::binary(compress(zlib, text.as_bytes()).map_err(drop)?),
        };
        self.socket.send(frame).await.map_err(drop)
    }

    /// Counts the heartbeats that a silent connection does not answer.
    fn count_unanswered(&mut self, text: &str) {
        if serde_json::from_str::<Value>(text).is_ok_and(|payload| payload["op"] == 1) {
            self.unanswered += 1;
            self.shared.update(|world| {
                world.unanswered_heartbeats = world.unanswered_heartbeats.max(self.unanswered)
            });
        }
    }

    async fn handle_frame(&mut self, text: &str) -> Result<(), SocketEnd> {
        let close = |code: u16, why: &str| Err(SocketEnd::Close(code, why.to_owned()));
        let Ok(payload) = serde_json::from_str::<Value>(text) else {
            return close(4002, "a frame that is not JSON");
        };
        let data = &payload["d"];
        match (payload["op"].as_u64(), &self.session) {
            (Some(1), _) => self.heartbeat(data).await,
            (Some(2), None) => self.identify(data),
            (Some(6), None) => self.resume(data).await,
            (Some(2 | 6), Some(_)) => close(4005, "identified twice"),
            (Some(3 | 8), None) => close(4003, "sent data before it identified"),
            (Some(3), Some(_)) => Ok(()),
            (Some(8), Some(session)) => {
                let session = session.clone();
                self.shared.update(|world| send_members(world, &session, data))
            }
            (op, _) => close(4001, &format!("op {op:?}")),
        }
    }

    async fn heartbeat(&mut self, data: &Value) -> Result<(), SocketEnd> {
        let known = self.shared.update(|world| {
            let session = self.session.as_ref().and_then(|id| world.sessions.get(id));
            session.map(|session| session.log.len() as u64)
        });
        let given = match data {
            Value::Null => 0,
            other => other.as_u64().unwrap_or(u64::MAX),
        };
        // Before it identifies, a client that will resume sends the sequence number it has.
        if let Some(known) = known {
            if given > known || given < self.last_seq {
                return Err(SocketEnd::Close(
                    4007,
                    format!("a heartbeat with {data} after {}, {known} sent", self.last_seq),
                ));
            }
            self.last_seq = given;
        }
        self.last_heartbeat = Instant::now();
        self.send(&json!({"op": 11, "s": null, "t": null, "d": null}))
            .await
            .map_err(|()| SocketEnd::Disconnected)
    }

    fn identify(&mut self, data: &Value) -> Result<(), SocketEnd> {
        let privileged = self.shared.options.privileged_intents;
        let fields = [
            "token", "properties", "compress", "large_threshold", "shard", "presence", "intents",
            "capabilities",
        ];
        let close = |code: u16, why: String| Err(SocketEnd::Close(code, why));
        let unknown =
            data.as_object().and_then(|data| data.keys().find(|key| !fields.contains(&key.as_str())));
        if let Some(key) = unknown {
            return close(4002, format!("identify has `{key}`"));
        }
        let Some(intents) = data["intents"].as_u64().filter(|intents| intents & !KNOWN_INTENTS == 0) else {
            return close(4013, format!("identify with the intents {}", data["intents"]));
        };
        let missing = intents & (GUILD_MEMBERS | GUILD_PRESENCES | MESSAGE_CONTENT) & !privileged;
        for key in ["os", "browser", "device"] {
            if !data["properties"][key].is_string() {
                return close(4002, format!("identify without the property `{key}`"));
            }
        }
        if !self.shared.read(|world| is_bot_token(world, &data["token"])) {
            return close(4004, "identify with a wrong token".to_owned());
        }
        if missing != 0 {
            return close(4014, format!("identify with the intents {missing:#x}, which are not granted"));
        }
        let session = self.shared.update(|world| {
            world.identified += 1;
            let id = format!("{:032x}", world.next_id());
            let connection = Some(self.commands.clone());
            let mut session = FakeSession { intents, detail: self.shared.options.event_detail, log: Vec::new(), connection };
            let guilds = world.guilds.keys().map(|id| json!({"id": id.to_string(), "unavailable": true}));
            let mut ready = json!({
                "v": 10, "user": world.me_json(), "guilds": guilds.collect::<Vec<_>>(), "session_id": id,
                "resume_gateway_url": world.base.replacen("http", "ws", 1), "private_channels": [], "relationships": [],
                "application": {"id": world.bot.to_string(), "flags": 1 << 19},
            });
            if !data["shard"].is_null() {
                ready["shard"] = data["shard"].clone();
            }
            session.send_event("READY", &ready);
            if intents & GUILDS != 0 {
                world.guilds.values().for_each(|guild| session.send_event("GUILD_CREATE", &world.guild_create_json(guild)));
            }
            world.sessions.insert(id.clone(), session);
            id
        });
        self.session = Some(session);
        Ok(())
    }

    async fn resume(&mut self, data: &Value) -> Result<(), SocketEnd> {
        let close = |code: u16, why: String| Err(SocketEnd::Close(code, why));
        let Some((id, seq)) = data["session_id"].as_str().zip(data["seq"].as_u64()) else {
            return close(4002, format!("resume with {data}"));
        };
        let commands = self.commands.clone();
        let outcome = self.shared.update(|world| {
            if !is_bot_token(world, &data["token"]) {
                return Err(4004);
            }
            let Some(session) = world.sessions.get_mut(id) else {
                if !world.forgotten_sessions.contains(id) {
                    world.record_violation(4009, "gateway: resume of an unknown session".to_owned());
                }
                return Ok(false);
            };
            if seq > session.log.len() as u64 {
                return Err(4007);
            }
            session.command(SocketCommand::Disconnect);
            session.connection = Some(commands);
            let missed = usize::try_from(seq).unwrap_or_default();
            session
                .log
                .iter()
                .skip(missed)
                .for_each(|event| session.command(SocketCommand::Send(event.clone())));
            if session.detail == EventDetail::Full {
                session.send_event("RESUMED", &json!({"_trace": []}));
            }
            world.resumed += 1;
            Ok(true)
        });
        match outcome {
            Ok(true) => {
                self.session = Some(id.to_owned());
                self.last_seq = 0;
                Ok(())
            }
            Ok(false) => {
                let invalid = json!({"op": 9, "s": null, "t": null, "d": false});
                self.send(&invalid).await.map_err(|()| SocketEnd::Disconnected)
            }
            Err(code) => close(code, format!("resume with {data}")),
        }
    }
}

/// The gateway expects the token without a prefix.
fn is_bot_token(world: &World, token: &Value) -> bool {
    token.as_str() == Some(&world.token)
}

/// Answers a request for the members of a guild.
fn send_members(world: &mut World, session: &str, data: &Value) -> Result<(), SocketEnd> {
    let id = data["guild_id"].as_u64().or_else(|| data["guild_id"].as_str()?.parse().ok());
    let Some(guild) = id.and_then(|id| world.guilds.get(&id)) else {
        return Err(SocketEnd::Close(4001, format!("members of {}", data["guild_id"])));
    };
    let members: Vec<Value> = guild.members.keys().map(|user| world.member_json(guild.id, *user)).collect();
    let mut chunk = json!({
        "guild_id": guild.id.to_string(), "members": members, "chunk_index": 0, "chunk_count": 1, "not_found": [],
    });
    if !data["nonce"].is_null() {
        chunk["nonce"] = data["nonce"].clone();
    }
    if let Some(session) = world.sessions.get_mut(session) {
        session.send_event("GUILD_MEMBERS_CHUNK", &chunk);
    }
    Ok(())
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn close_reason(code: u16) -> &'static str {
    match code {
        4001 => "Unknown opcode.",
        4002 => "Error while decoding payload.",
        4003 => "Not authenticated.",
        4004 => "Authentication failed.",
        4005 => "Already authenticated.",
        4007 => "Invalid seq.",
        4008 => "Rate limited.",
        4009 => "FakeSession timed out.",
        4012 => "Invalid API version.",
        4013 => "Invalid intent(s).",
        4014 => "Disallowed intent(s).",
        _ => "Unknown error.",
    }
}

/// Compresses one message of the connection's zlib stream.
fn compress(zlib: &mut Compress, text: &[u8]) -> Result<Vec<u8>, flate2::CompressError> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let begin = zlib.total_in();
    loop {
        let done = usize::try_from(zlib.total_in() - begin).unwrap_or(usize::MAX);
        let left = text.get(done..).unwrap_or_default();
        zlib.compress_vec(left, &mut out, FlushCompress::Sync)?;
        let all = zlib.total_in() - begin == text.len() as u64;
        // Unused capacity shows that everything was written.
        if all && out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(text.len() + 64);
    }
}
