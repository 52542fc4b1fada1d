//! The websocket: sessions, their events, and the rules of the conversation.

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

/// What a connection is told to do.
#[derive(Debug)]
pub(super) enum Out {
    /// Send this.
    Say(Value),
    /// Close with this code.
    Close(u16),
    /// Break without a word.
    Cut,
    /// Stay, but never speak again.
    Die,
}

/// A client's session, which outlives its connections.
#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) intents: u64,
    telling: EventDetail,
    /// Every event, the first with number 1.
    log: Vec<Value>,
    out: Option<UnboundedSender<Out>>,
}

impl Session {
    pub(super) fn is_live(&self) -> bool {
        self.out.as_ref().is_some_and(|out| !out.is_closed())
    }

    pub(super) fn tell(&self, out: Out) {
        if let Some(connection) = &self.out {
            connection.send(out).ok();
        }
    }

    fn event(&mut self, name: &str, data: &Value) {
        let data = match self.telling {
            EventDetail::Full => data,
            EventDetail::Minimal => &least(name, data),
        };
        let event = json!({"op": 0, "s": self.log.len() + 1, "t": name, "d": data});
        self.log.push(event.clone());
        self.tell(Out::Say(event));
    }
}

pub(super) const GUILDS: u64 = 1;
pub(super) const GUILD_MEMBERS: u64 = 1 << 1;
const GUILD_PRESENCES: u64 = 1 << 8;
/// Of a guild; for direct talks the same three bits further up.
pub(super) const MESSAGES: u64 = 1 << 9;
pub(super) const REACTIONS: u64 = 1 << 10;
pub(super) const TYPING: u64 = 1 << 11;
const DIRECT: u32 = 3;
const MESSAGE_CONTENT: u64 = 1 << 15;
/// All bits that mean something.
const KNOWN: u64 = 0x331_FFFF;

impl World {
    /// Tells all sessions that want to know. An intent of 0 is for everyone.
    pub(super) fn dispatch(&mut self, intent: u64, guild: Option<u64>, name: &str, data: &Value) {
        let intent = match guild {
            None if intent >= MESSAGES => intent << DIRECT,
            _ => intent,
        };
        let bot = self.bot.to_string();
        for session in self.sessions.values_mut() {
            if intent != 0 && session.intents & intent == 0 {
                continue;
            }
            let mut data = data.clone();
            if name.starts_with("MESSAGE_") && session.intents & MESSAGE_CONTENT == 0 && guild.is_some() {
                hide(&mut data, &bot);
            }
            session.event(name, &data);
        }
    }
}

/// The parts of an event that nothing could be done without, and one that is new.
fn least(name: &str, data: &Value) -> Value {
    let some = |from: &Value, keys: &[&str]| -> Value {
        let there = |key: &&&str| !from[**key].is_null();
        keys.iter()
            .filter(there)
            .map(|key| ((*key).to_owned(), from[*key].clone()))
            .collect::<Map<_, _>>()
            .into()
    };
    let one = |user: &Value| some(user, &["id", "username", "bot"]);
    let mut told = match name {
        "READY" => some(data, &["user", "guilds", "session_id"]),
        "GUILD_CREATE" => some(data, &["id"]),
        "MESSAGE_CREATE" => some(data, &["id", "channel_id", "guild_id", "author", "content", "mentions"]),
        "INTERACTION_CREATE" => some(
            data,
            &["id", "type", "token", "channel_id", "guild_id", "member", "user", "data", "message"],
        ),
        _ => data.clone(),
    };
    if let Some(mentions) = told.get_mut("mentions").and_then(Value::as_array_mut) {
        mentions.iter_mut().for_each(|user| *user = one(user));
    }
    for key in ["author", "user"] {
        if let Some(user) = told.get_mut(key) {
            *user = one(user);
        }
    }
    if let Some(member) = told.get_mut("member") {
        *member = json!({"user": one(&member["user"])});
    }
    told["unheard_of"] = json!([null, {"of": 1}]);
    told
}

/// Empties a message that is not from or to the bot.
fn hide(message: &mut Value, bot: &str) {
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
enum End {
    Close(u16, String),
    Cut,
}

struct Connection {
    socket: WebSocketStream<TokioIo<Upgraded>>,
    shared: Arc<ServerState>,
    zlib: Option<Compress>,
    session: Option<String>,
    own: UnboundedSender<Out>,
    dead: bool,
    /// The heartbeats since it fell silent.
    unheard: u32,
    beat: Instant,
    /// The sequence of the last heartbeat.
    seen: u64,
}

/// Serves one websocket.
pub(super) async fn serve(
    socket: WebSocketStream<TokioIo<Upgraded>>,
    query: String,
    shared: Arc<ServerState>,
) {
    let (own, orders) = mpsc::unbounded_channel();
    let param = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let zlib = (param("compress") == Some("zlib-stream")).then(|| Compress::new(Compression::fast(), true));
    let dead = shared.update(|world| world.injected.silent);
    let wrong = match (param("v"), param("encoding"), param("compress")) {
        (Some("10"), Some("json"), None | Some("zlib-stream")) => None,
        (Some("10"), ..) => Some(4002),
        _ => Some(4012),
    };
    let mut connection = Connection {
        socket,
        shared,
        zlib,
        session: None,
        own,
        dead,
        unheard: 0,
        beat: Instant::now(),
        seen: 0,
    };
    let end = match wrong {
        Some(code) => End::Close(code, format!("a gateway address with `{query}`")),
        None => connection.run(orders).await,
    };
    connection.finish(end).await;
}

impl Connection {
    async fn run(&mut self, mut orders: UnboundedReceiver<Out>) -> End {
        let interval = self.shared.options.heartbeat_interval;
        let hello = json!({"op": 10, "s": null, "t": null, "d": {"heartbeat_interval": ms(interval)}});
        if self.say(&hello).await.is_err() {
            return End::Cut;
        }
        loop {
            let deadline = self.beat + interval.mul_f64(1.25);
            let late = async {
                match self.dead {
                    true => std::future::pending().await,
                    false => tokio::time::sleep_until(deadline).await,
                }
            };
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Out::Say(payload)) => if self.say(&payload).await.is_err() { return End::Cut },
                    Some(Out::Close(code)) => return End::Close(code, String::new()),
                    Some(Out::Die) => self.dead = true,
                    Some(Out::Cut) | None => return End::Cut,
                },
                frame = self.socket.next() => {
                    let text = match frame {
                        Some(Ok(Frame::Text(text))) => text,
                        Some(Ok(Frame::Ping(_) | Frame::Pong(_))) => continue,
                        Some(Ok(Frame::Close(_)) | Err(_)) | None => return End::Cut,
                        Some(Ok(_)) => return End::Close(4002, "a binary frame".to_owned()),
                    };
                    if self.dead {
                        self.ignore(&text);
                        continue;
                    }
                    if let Err(end) = self.hear(&text).await {
                        return end;
                    }
                }
                () = late => return End::Close(4009, "no heartbeat for 1.25 intervals".to_owned()),
            }
        }
    }

    async fn finish(mut self, end: End) {
        if let End::Close(code, why) = end {
            if !why.is_empty() {
                self.shared
                    .update(|world| world.record_violation(u64::from(code), format!("gateway: {why}")));
            }
            let reason = reason(code).into();
            self.socket.close(Some(CloseFrame { code: code.into(), reason })).await.ok();
            // The client answers with its own frame; nobody waits long for it.
            let answered = async { while let Some(Ok(_)) = self.socket.next().await {} };
            tokio::time::timeout(Duration::from_secs(2), answered).await.ok();
        }
        // A new connection may have the session by now.
        self.shared.update(|world| {
            let session = self.session.and_then(|id| world.sessions.get_mut(&id));
            if let Some(session) =
                session.filter(|session| session.out.as_ref().is_some_and(|out| out.same_channel(&self.own)))
            {
                session.out = None;
            }
        });
    }

    async fn say(&mut self, payload: &Value) -> Result<(), ()> {
        if self.dead {
            return Ok(());
        }
        let text = payload.to_string();
        let frame = match &mut self.zlib {
            None => Frame::text(text),
            Some(zlib) => Frame::binary(squeezed(zlib, text.as_bytes()).map_err(drop)?),
        };
        self.socket.send(frame).await.map_err(drop)
    }

    /// Counts what a silent connection does not answer.
    fn ignore(&mut self, text: &str) {
        if serde_json::from_str::<Value>(text).is_ok_and(|payload| payload["op"] == 1) {
            self.unheard += 1;
            self.shared
                .update(|world| world.unanswered_heartbeats = world.unanswered_heartbeats.max(self.unheard));
        }
    }

    async fn hear(&mut self, text: &str) -> Result<(), End> {
        let close = |code: u16, why: &str| Err(End::Close(code, why.to_owned()));
        let Ok(payload) = serde_json::from_str::<Value>(text) else {
            return close(4002, "a frame that is no JSON");
        };
        let data = &payload["d"];
        match (payload["op"].as_u64(), &self.session) {
            (Some(1), _) => self.heartbeat(data).await,
            (Some(2), None) => self.identify(data),
            (Some(6), None) => self.resume(data).await,
            (Some(2 | 6), Some(_)) => close(4005, "identified twice"),
            (Some(3 | 8), None) => close(4003, "spoke before it identified"),
            (Some(3), Some(_)) => Ok(()),
            (Some(8), Some(session)) => {
                let session = session.clone();
                self.shared.update(|world| members(world, &session, data))
            }
            (op, _) => close(4001, &format!("op {op:?}")),
        }
    }

    async fn heartbeat(&mut self, data: &Value) -> Result<(), End> {
        let known = self.shared.update(|world| {
            let session = self.session.as_ref().and_then(|id| world.sessions.get(id));
            session.map(|session| session.log.len() as u64)
        });
        let given = match data {
            Value::Null => 0,
            other => other.as_u64().unwrap_or(u64::MAX),
        };
        // Before it identifies, a client that will resume tells what it has.
        if let Some(known) = known {
            if given > known || given < self.seen {
                return Err(End::Close(
                    4007,
                    format!("a heartbeat with {data} after {}, {known} sent", self.seen),
                ));
            }
            self.seen = given;
        }
        self.beat = Instant::now();
        self.say(&json!({"op": 11, "s": null, "t": null, "d": null})).await.map_err(|()| End::Cut)
    }

    fn identify(&mut self, data: &Value) -> Result<(), End> {
        let privileged = self.shared.options.privileged_intents;
        let fields = [
            "token", "properties", "compress", "large_threshold", "shard", "presence", "intents",
            "capabilities",
        ];
        let close = |code: u16, why: String| Err(End::Close(code, why));
        let unknown =
            data.as_object().and_then(|data| data.keys().find(|key| !fields.contains(&key.as_str())));
        if let Some(key) = unknown {
            return close(4002, format!("identify has `{key}`"));
        }
        let Some(intents) = data["intents"].as_u64().filter(|intents| intents & !KNOWN == 0) else {
            return close(4013, format!("identify with the intents {}", data["intents"]));
        };
        let refused = intents & (GUILD_MEMBERS | GUILD_PRESENCES | MESSAGE_CONTENT) & !privileged;
        for key in ["os", "browser", "device"] {
            if !data["properties"][key].is_string() {
                return close(4002, format!("identify without the property `{key}`"));
            }
        }
        if !self.shared.read(|world| is_right(world, &data["token"])) {
            return close(4004, "identify with a wrong token".to_owned());
        }
        if refused != 0 {
            return close(4014, format!("identify with the intents {refused:#x}, which are not granted"));
        }
        let session = self.shared.update(|world| {
            world.identified += 1;
            let id = format!("{:032x}", world.next_id());
            let out = Some(self.own.clone());
            let mut session = Session { intents, telling: self.shared.options.event_detail, log: Vec::new(), out };
            let guilds = world.guilds.keys().map(|id| json!({"id": id.to_string(), "unavailable": true}));
            let mut ready = json!({
                "v": 10, "user": world.me_json(), "guilds": guilds.collect::<Vec<_>>(), "session_id": id,
                "resume_gateway_url": world.base.replacen("http", "ws", 1), "private_channels": [], "relationships": [],
                "application": {"id": world.bot.to_string(), "flags": 1 << 19},
            });
            if !data["shard"].is_null() {
                ready["shard"] = data["shard"].clone();
            }
            session.event("READY", &ready);
            if intents & GUILDS != 0 {
                world.guilds.values().for_each(|guild| session.event("GUILD_CREATE", &world.guild_create_json(guild)));
            }
            world.sessions.insert(id.clone(), session);
            id
        });
        self.session = Some(session);
        Ok(())
    }

    async fn resume(&mut self, data: &Value) -> Result<(), End> {
        let close = |code: u16, why: String| Err(End::Close(code, why));
        let Some((id, seq)) = data["session_id"].as_str().zip(data["seq"].as_u64()) else {
            return close(4002, format!("resume with {data}"));
        };
        let own = self.own.clone();
        let outcome = self.shared.update(|world| {
            if !is_right(world, &data["token"]) {
                return Err(4004);
            }
            let Some(session) = world.sessions.get_mut(id) else {
                if !world.forgotten_sessions.contains(id) {
                    world.record_violation(4009, "gateway: resume of a session that never was".to_owned());
                }
                return Ok(false);
            };
            if seq > session.log.len() as u64 {
                return Err(4007);
            }
            session.tell(Out::Cut);
            session.out = Some(own);
            let missed = usize::try_from(seq).unwrap_or_default();
            session.log.iter().skip(missed).for_each(|event| session.tell(Out::Say(event.clone())));
            if session.telling == EventDetail::Full {
                session.event("RESUMED", &json!({"_trace": []}));
            }
            world.resumed += 1;
            Ok(true)
        });
        match outcome {
            Ok(true) => {
                self.session = Some(id.to_owned());
                self.seen = 0;
                Ok(())
            }
            Ok(false) => {
                let invalid = json!({"op": 9, "s": null, "t": null, "d": false});
                self.say(&invalid).await.map_err(|()| End::Cut)
            }
            Err(code) => close(code, format!("resume with {data}")),
        }
    }
}

/// Whether it is the bot's token. Here it stands alone.
fn is_right(world: &World, token: &Value) -> bool {
    token.as_str() == Some(&world.token)
}

/// Answers the request for the members of a guild.
fn members(world: &mut World, session: &str, data: &Value) -> Result<(), End> {
    let id = data["guild_id"].as_u64().or_else(|| data["guild_id"].as_str()?.parse().ok());
    let Some(guild) = id.and_then(|id| world.guilds.get(&id)) else {
        return Err(End::Close(4001, format!("members of {}", data["guild_id"])));
    };
    let members: Vec<Value> = guild.members.keys().map(|user| world.member_json(guild.id, *user)).collect();
    let mut chunk = json!({
        "guild_id": guild.id.to_string(), "members": members, "chunk_index": 0, "chunk_count": 1, "not_found": [],
    });
    if !data["nonce"].is_null() {
        chunk["nonce"] = data["nonce"].clone();
    }
    if let Some(session) = world.sessions.get_mut(session) {
        session.event("GUILD_MEMBERS_CHUNK", &chunk);
    }
    Ok(())
}

fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

fn reason(code: u16) -> &'static str {
    match code {
        4001 => "Unknown opcode.",
        4002 => "Error while decoding payload.",
        4003 => "Not authenticated.",
        4004 => "Authentication failed.",
        4005 => "Already authenticated.",
        4007 => "Invalid seq.",
        4008 => "Rate limited.",
        4009 => "Session timed out.",
        4012 => "Invalid API version.",
        4013 => "Invalid intent(s).",
        4014 => "Disallowed intent(s).",
        _ => "Unknown error.",
    }
}

/// One piece of a stream that is one whole for the connection.
fn squeezed(zlib: &mut Compress, text: &[u8]) -> Result<Vec<u8>, flate2::CompressError> {
    let mut out = Vec::with_capacity(text.len() + 64);
    let begin = zlib.total_in();
    loop {
        let done = usize::try_from(zlib.total_in() - begin).unwrap_or(usize::MAX);
        let left = text.get(done..).unwrap_or_default();
        zlib.compress_vec(left, &mut out, FlushCompress::Sync)?;
        let all = zlib.total_in() - begin == text.len() as u64;
        // Room that was not needed shows that nothing is held back.
        if all && out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(text.len() + 64);
    }
}
