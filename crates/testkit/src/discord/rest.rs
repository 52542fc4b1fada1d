//! The HTTP API: who may call, how often, and which route does what.

mod commands;
mod draft;
mod interactions;
mod messages;
mod threads;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::{HeaderMap, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::injected::{DelayedRequest, InjectedFault};
use super::request::{Call, Outcome, Refusal, multipart, refuse, snowflake, unquoted};
use super::state::{DownloadBehavior, FakeAttachment, RequestRecord, World};
use super::{ServerState, gateway};

type Body = BoxBody<Bytes, io::Error>;

/// The longest request that is taken.
const LONGEST: usize = 32 << 20;

/// Answers one request; an error breaks the connection.
pub(super) async fn respond(
    request: hyper::Request<Incoming>,
    shared: Arc<ServerState>,
) -> io::Result<Response<Body>> {
    if shared.read(|world| world.injected.stalled) {
        shared.update(|world| world.pending_requests += 1);
        let _hanging = Hanging(&shared);
        let mut changes = shared.changed.subscribe();
        while shared.read(|world| world.injected.stalled) {
            changes.changed().await.ok();
        }
        return Err(io::Error::other("stalled by the test"));
    }
    let path = request.uri().path().to_owned();
    if let Some(key) = request.headers().get("sec-websocket-key").cloned() {
        return Ok(upgrade(request, key.as_bytes(), shared));
    }
    if let Some(file) = path.strip_prefix("/attachments/") {
        return Ok(download(file, &shared));
    }
    let method = request.method().as_str().to_owned();
    let query = request.uri().query().unwrap_or_default().to_owned();
    let headers = request.headers().clone();
    let read = Limited::new(request.into_body(), LONGEST).collect().await;
    let body = read.map(|body| body.to_bytes()).map_err(io::Error::other)?;
    let Some(path) = path.strip_prefix("/api/v10/") else {
        shared.update(|world| world.record_violation(404, format!("{method} {path}: not below /api/v10")));
        return Ok(answer(404, &[], &refuse(404).body));
    };
    let line = format!("{method} /{path}");
    let trouble = shared.update(|world| world.injected.next(&line));
    let log = |status: u16, body: &Value| {
        let request = RequestRecord { line: line.clone(), query: query.clone(), body: body.clone(), status };
        shared.update(|world| world.requests.push(request));
    };
    let broken = || io::Error::other("broken by the test");
    let steps: Vec<String> = path.split('/').map(unquoted).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    // An interaction's own token is in the path, and no limit counts it.
    let open = matches!(steps.first(), Some(&("interactions" | "webhooks")));
    let early = || format!("{line}: came again before it should");
    if !open && shared.read(|world| world.buckets.is_held(&method, &steps)) {
        shared.update(|world| world.record_violation(429, early()));
    }
    let (json, files) = match taken(&headers, &body) {
        Ok(taken) => taken,
        Err(refusal) => {
            log(refusal.status, &Value::Null);
            return Ok(refused(&refusal, &line, &[], &shared));
        }
    };
    match trouble {
        Some(InjectedFault::RateLimit { retry_after, global }) => {
            log(429, &json);
            shared.update(|world| world.buckets.hold(&method, &steps, retry_after, global));
            return Ok(too_many(retry_after, global, Vec::new()));
        }
        Some(InjectedFault::Fail(status)) => {
            log(status, &json);
            return Ok(answer(
                status,
                &[],
                &json!({"message": format!("{status}: Server Error"), "code": 0}),
            ));
        }
        Some(InjectedFault::Disconnect) => {
            log(0, &json);
            return Err(broken());
        }
        Some(InjectedFault::Delay) => {
            log(0, &json);
            let late = DelayedRequest { method, path: path.to_owned(), body: json };
            shared.update(|world| world.injected.delayed.push(late));
            return Err(broken());
        }
        Some(InjectedFault::LoseResponse) | None => {}
    }
    let call = Call { method: &method, path: steps, query: &query, body: json, files };
    let mut extra = Vec::new();
    if !open {
        let verdict = shared.update(|world| {
            let verdict = world.buckets.count(&method, &call.path);
            if verdict.impatient {
                world.record_violation(429, early());
            }
            verdict
        });
        if let Some(wait) = verdict.wait {
            log(429, &call.body);
            return Ok(too_many(wait, false, verdict.headers));
        }
        extra = verdict.headers;
    }
    let told = headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let outcome = shared.update(|world| {
        if !open && told != format!("Bot {}", world.token) {
            return Err(refuse(401));
        }
        route(world, &call)
    });
    let status = match &outcome {
        Ok((status, _)) => *status,
        Err(refusal) => refusal.status,
    };
    if trouble == Some(InjectedFault::LoseResponse) {
        log(0, &call.body);
        return Err(broken());
    }
    log(status, &call.body);
    Ok(match outcome {
        Ok((status, body)) => answer(status, &extra, &body),
        Err(refusal) => refused(&refusal, &line, &extra, &shared),
    })
}

/// Does what was asked for by requests that were on their way, oldest first.
pub(super) fn arrive_late(world: &mut World) {
    for DelayedRequest { method, path, body } in std::mem::take(&mut world.injected.delayed) {
        let path = path.split('/').collect();
        let call = Call { method: &method, path, query: "", body, files: Vec::new() };
        // Nobody hears what came of it.
        drop(route(world, &call));
    }
}

/// A request that is not answered. It ends with its connection, or when the server recovers.
struct Hanging<'a>(&'a ServerState);

impl Drop for Hanging<'_> {
    fn drop(&mut self) {
        self.0.update(|world| world.abandoned_requests += u32::from(world.injected.stalled));
    }
}

/// The JSON and the files of a body.
fn taken(headers: &HeaderMap, body: &[u8]) -> Result<(Value, Vec<super::request::Upload>), Refusal> {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if let Some(boundary) = kind.strip_prefix("multipart/form-data; boundary=") {
        return multipart(body, boundary.trim_matches('"')).ok_or_else(|| refuse(50_109));
    }
    if body.is_empty() {
        return Ok((Value::Null, Vec::new()));
    }
    if !kind.starts_with("application/json") {
        return Err(refuse(50_109));
    }
    let json = serde_json::from_slice(body).map_err(|_| refuse(50_109))?;
    Ok((json, Vec::new()))
}

/// Finds what a call wants and does it.
fn route(world: &mut World, call: &Call<'_>) -> Outcome {
    match (call.method, call.path.as_slice()) {
        ("GET", ["gateway"]) => Ok((200, json!({"url": world.base.replacen("http", "ws", 1)}))),
        ("GET", ["gateway", "bot"]) => {
            let limit =
                json!({"total": 1000, "remaining": 999, "reset_after": 86_400_000, "max_concurrency": 1});
            let url = world.base.replacen("http", "ws", 1);
            Ok((200, json!({"url": url, "shards": 1, "session_start_limit": limit})))
        }
        ("GET", ["users", "@me"]) => Ok((200, world.me_json())),
        ("GET", ["users", user]) => {
            let id = snowflake(user)?;
            world.users.get(&id).ok_or_else(|| refuse(10_013))?;
            Ok((200, world.user_json(id)))
        }
        ("POST", ["users", "@me", "channels"]) => threads::open_dm(world, call),
        ("GET", ["applications" | "oauth2", ..]) if is_application(&call.path) => {
            Ok((200, application(world)))
        }
        ("GET", ["guilds", guild]) => {
            let guild = world.guilds.get(&snowflake(guild)?).ok_or_else(|| refuse(10_004))?;
            Ok((200, world.guild_json(guild)))
        }
        ("GET", ["guilds", guild, "threads", "active"]) => threads::active(world, guild),
        ("GET", ["guilds", guild, "members", user]) => {
            let (guild, user) = (snowflake(guild)?, snowflake(user)?);
            let there = world.guilds.get(&guild).ok_or_else(|| refuse(10_004))?.members.contains_key(&user);
            if there { Ok((200, world.member_json(guild, user))) } else { Err(refuse(10_013)) }
        }
        (_, ["channels", ..]) => threads::route(world, call),
        (_, ["applications", application, ..]) => commands::route(world, call, application),
        (_, ["interactions" | "webhooks", ..]) => interactions::route(world, call),
        _ => Err(refuse(404)),
    }
}

fn is_application(path: &[&str]) -> bool {
    matches!(path, ["applications", "@me"] | ["oauth2", "applications", "@me"])
}

fn application(world: &World) -> Value {
    let bot = world.bot.to_string();
    let owner = world.guilds.values().next().map_or(world.bot, |guild| guild.owner);
    json!({
        "id": bot, "name": world.users.get(&world.bot).map(|user| user.name.as_str()), "icon": null, "description": "",
        "bot_public": true, "bot_require_code_grant": false, "bot": world.user_json(world.bot), "verify_key": "00",
        "owner": world.user_json(owner), "team": null, "flags": 1 << 19, "rpc_origins": [], "redirect_uris": [],
        "tags": [], "approximate_guild_count": world.guilds.len(), "summary": "",
    })
}

fn refused(
    refusal: &Refusal,
    line: &str,
    extra: &[(&'static str, String)],
    shared: &ServerState,
) -> Response<Body> {
    if refusal.fault {
        shared.update(|world| world.record_violation(refusal.code, format!("{line}: {}", refusal.body)));
    }
    answer(refusal.status, extra, &refusal.body)
}

fn too_many(retry_after: f64, global: bool, mut extra: Vec<(&'static str, String)>) -> Response<Body> {
    extra.push(("retry-after", format!("{retry_after:.0}", retry_after = retry_after.ceil())));
    extra.push(("x-ratelimit-scope", if global { "global" } else { "user" }.to_owned()));
    if global {
        extra.push(("x-ratelimit-global", "true".to_owned()));
    }
    let body =
        json!({"message": "You are being rate limited.", "retry_after": retry_after, "global": global});
    answer(429, &extra, &body)
}

fn answer(status: u16, extra: &[(&'static str, String)], body: &Value) -> Response<Body> {
    // Clients tell Discord's own refusals from those of whatever is before it by this header.
    let mut response = Response::builder().status(status).header("via", "1.1 google");
    for (name, value) in extra {
        response = response.header(*name, value);
    }
    let text = if body.is_null() { String::new() } else { body.to_string() };
    if !body.is_null() {
        response = response.header("content-type", "application/json");
    }
    let body = Full::new(Bytes::from(text)).map_err(|never| match never {}).boxed();
    response.body(body).unwrap_or_default()
}

fn upgrade(mut request: hyper::Request<Incoming>, key: &[u8], shared: Arc<ServerState>) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let accept = derive_accept_key(key);
    let upgraded = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let socket = WebSocketStream::from_raw_socket(TokioIo::new(upgraded), Role::Server, None).await;
        gateway::serve(socket, query, shared).await;
    });
    let response =
        Response::builder().status(101).header("upgrade", "websocket").header("connection", "Upgrade");
    response.header("sec-websocket-accept", accept).body(Body::default()).unwrap_or_default()
}

/// A file of a message: `channel/id/name`.
fn download(path: &str, shared: &ServerState) -> Response<Body> {
    let id: u64 = path.split('/').nth(1).and_then(|id| id.parse().ok()).unwrap_or_default();
    let found = |world: &World| -> Option<FakeAttachment> {
        world.messages.values().flat_map(|message| &message.attachments).find(|file| file.id == id).cloned()
    };
    let Some(file) = shared.read(found) else {
        shared.update(|world| {
            world.record_violation(404, format!("GET /attachments/{path}: there is no such file"))
        });
        return answer(404, &[], &Value::Null);
    };
    shared.update(|world| world.downloads.push(id));
    let kind = file.content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    let response = Response::builder().status(200).header("content-type", kind);
    let bytes = Bytes::from(file.bytes);
    let body = match file.download {
        DownloadBehavior::Immediate => Full::new(bytes).map_err(|never| match never {}).boxed(),
        manner => BoxBody::new(StreamBody::new(trickle(bytes, manner))),
    };
    response.body(body).unwrap_or_default()
}

/// A file in pieces, or without an end, or without a beginning, or broken off.
fn trickle(
    bytes: Bytes,
    manner: DownloadBehavior,
) -> impl futures_util::Stream<Item = io::Result<Frame<Bytes>>> {
    stream::unfold(bytes, move |mut left| async move {
        match manner {
            DownloadBehavior::Stalled => std::future::pending().await,
            DownloadBehavior::Endless => {
                tokio::task::yield_now().await;
                let piece = if left.is_empty() { Bytes::from_static(&[0; 4096]) } else { left.clone() };
                Some((Ok(Frame::data(piece)), left))
            }
            DownloadBehavior::Slow(size, pause) if !left.is_empty() => {
                tokio::time::sleep(Duration::from_millis(pause)).await;
                let piece = left.split_to(size.max(1).min(left.len()));
                Some((Ok(Frame::data(piece)), left))
            }
            DownloadBehavior::Truncated(size) if !left.is_empty() => {
                Some((Ok(Frame::data(left.split_to(size.min(left.len())))), Bytes::new()))
            }
            DownloadBehavior::Truncated(_) => Some((Err(io::Error::other("broken by the test")), left)),
            DownloadBehavior::Slow(..) | DownloadBehavior::Immediate => None,
        }
    })
}
