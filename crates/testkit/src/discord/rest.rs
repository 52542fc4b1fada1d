//! The HTTP API: authentication, rate limits and routing.

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
use super::request::{
    ApiCall, ApiResult, FakeApiError, api_error, parse_multipart, percent_decode, snowflake,
};
use super::state::{DownloadBehavior, FakeAttachment, RequestRecord, World};
use super::{ServerState, gateway};

type Body = BoxBody<Bytes, io::Error>;

const MAX_REQUEST_BYTES: usize = 32 << 20;

/// Responds to one request; an error drops the connection.
pub(super) async fn respond(
    request: hyper::Request<Incoming>,
    shared: Arc<ServerState>,
) -> io::Result<Response<Body>> {
    if shared.read(|world| world.injected.stalled) {
        shared.update(|world| world.pending_requests += 1);
        let _pending = PendingRequest(&shared);
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
    let read = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await;
    let body = read.map(|body| body.to_bytes()).map_err(io::Error::other)?;
    let Some(path) = path.strip_prefix("/api/v10/") else {
        shared.update(|world| world.record_violation(404, format!("{method} {path}: not below /api/v10")));
        return Ok(respond_json(404, &[], &api_error(404).body));
    };
    let line = format!("{method} /{path}");
    let fault = shared.update(|world| world.injected.take_next(&line));
    let log = |status: u16, body: &Value| {
        let request = RequestRecord { line: line.clone(), query: query.clone(), body: body.clone(), status };
        shared.update(|world| world.requests.push(request));
    };
    let dropped = || io::Error::other("dropped by the test");
    let steps: Vec<String> = path.split('/').map(percent_decode).collect();
    let steps: Vec<&str> = steps.iter().map(String::as_str).collect();
    // Interactions are authorized by the token in the path and have no rate limit.
    let is_interaction = matches!(steps.first(), Some(&("interactions" | "webhooks")));
    let too_early = || format!("{line}: retried too early");
    if !is_interaction && shared.read(|world| world.rate_limiter.is_blocked(&method, &steps)) {
        shared.update(|world| world.record_violation(429, too_early()));
    }
    let (json, files) = match parse_body(&headers, &body) {
        Ok(parsed) => parsed,
        Err(error) => {
            log(error.status, &Value::Null);
            return Ok(error_response(&error, &line, &[], &shared));
        }
    };
    match fault {
        Some(InjectedFault::RateLimit { retry_after, global }) => {
            log(429, &json);
            shared.update(|world| world.rate_limiter.block(&method, &steps, retry_after, global));
            return Ok(too_many(retry_after, global, Vec::new()));
        }
        Some(InjectedFault::Fail(status)) => {
            log(status, &json);
            return Ok(respond_json(
                status,
                &[],
                &json!({"message": format!("{status}: Server Error"), "code": 0}),
            ));
        }
        Some(InjectedFault::Disconnect) => {
            log(0, &json);
            return Err(dropped());
        }
        Some(InjectedFault::Delay) => {
            log(0, &json);
            let late = DelayedRequest { method, path: path.to_owned(), body: json };
            shared.update(|world| world.injected.delayed.push(late));
            return Err(dropped());
        }
        Some(InjectedFault::LoseResponse) | None => {}
    }
    let call = ApiCall { method: &method, path: steps, query: &query, body: json, files };
    let mut extra = Vec::new();
    if !is_interaction {
        let decision = shared.update(|world| {
            let decision = world.rate_limiter.record(&method, &call.path);
            if decision.is_violation {
                world.record_violation(429, too_early());
            }
            decision
        });
        if let Some(retry_after) = decision.retry_after {
            log(429, &call.body);
            return Ok(too_many(retry_after, false, decision.headers));
        }
        extra = decision.headers;
    }
    let authorization =
        headers.get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
    let result = shared.update(|world| {
        if !is_interaction && authorization != format!("Bot {}", world.token) {
            return Err(api_error(401));
        }
        route(world, &call)
    });
    let status = match &result {
        Ok((status, _)) => *status,
        Err(error) => error.status,
    };
    if fault == Some(InjectedFault::LoseResponse) {
        log(0, &call.body);
        return Err(dropped());
    }
    log(status, &call.body);
    Ok(match result {
        Ok((status, body)) => respond_json(status, &extra, &body),
        Err(error) => error_response(&error, &line, &extra, &shared),
    })
}

/// Performs delayed requests, oldest first.
pub(super) fn deliver_delayed(world: &mut World) {
    for DelayedRequest { method, path, body } in std::mem::take(&mut world.injected.delayed) {
        let path = path.split('/').collect();
        let call = ApiCall { method: &method, path, query: "", body, files: Vec::new() };
        // The client is gone, so the result does not matter.
        drop(route(world, &call));
    }
}

/// A request without a response. It ends with its connection, or when the server recovers.
struct PendingRequest<'a>(&'a ServerState);

impl Drop for PendingRequest<'_> {
    fn drop(&mut self) {
        self.0.update(|world| world.abandoned_requests += u32::from(world.injected.stalled));
    }
}

/// The JSON and the files of a body.
fn parse_body(
    headers: &HeaderMap,
    body: &[u8],
) -> Result<(Value, Vec<super::request::UploadedFile>), FakeApiError> {
    let kind = headers.get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    if let Some(boundary) = kind.strip_prefix("multipart/form-data; boundary=") {
        return parse_multipart(body, boundary.trim_matches('"')).ok_or_else(|| api_error(50_109));
    }
    if body.is_empty() {
        return Ok((Value::Null, Vec::new()));
    }
    if !kind.starts_with("application/json") {
        return Err(api_error(50_109));
    }
    let json = serde_json::from_slice(body).map_err(|_| api_error(50_109))?;
    Ok((json, Vec::new()))
}

fn route(world: &mut World, call: &ApiCall<'_>) -> ApiResult {
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
            world.users.get(&id).ok_or_else(|| api_error(10_013))?;
            Ok((200, world.user_json(id)))
        }
        ("POST", ["users", "@me", "channels"]) => threads::open_dm(world, call),
        ("GET", ["applications" | "oauth2", ..]) if is_application(&call.path) => {
            Ok((200, application(world)))
        }
        ("GET", ["guilds", guild]) => {
            let guild = world.guilds.get(&snowflake(guild)?).ok_or_else(|| api_error(10_004))?;
            Ok((200, world.guild_json(guild)))
        }
        ("GET", ["guilds", guild, "threads", "active"]) => threads::active(world, guild),
        ("GET", ["guilds", guild, "members", user]) => {
            let (guild, user) = (snowflake(guild)?, snowflake(user)?);
            let there =
                world.guilds.get(&guild).ok_or_else(|| api_error(10_004))?.members.contains_key(&user);
            if there { Ok((200, world.member_json(guild, user))) } else { Err(api_error(10_013)) }
        }
        (_, ["channels", ..]) => threads::route(world, call),
        (_, ["applications", application, ..]) => commands::route(world, call, application),
        (_, ["interactions" | "webhooks", ..]) => interactions::route(world, call),
        _ => Err(api_error(404)),
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

fn error_response(
    error: &FakeApiError,
    line: &str,
    extra: &[(&'static str, String)],
    shared: &ServerState,
) -> Response<Body> {
    if error.is_violation {
        shared.update(|world| world.record_violation(error.code, format!("{line}: {}", error.body)));
    }
    respond_json(error.status, extra, &error.body)
}

fn too_many(retry_after: f64, global: bool, mut extra: Vec<(&'static str, String)>) -> Response<Body> {
    extra.push(("retry-after", format!("{retry_after:.0}", retry_after = retry_after.ceil())));
    extra.push(("x-ratelimit-scope", if global { "global" } else { "user" }.to_owned()));
    if global {
        extra.push(("x-ratelimit-global", "true".to_owned()));
    }
    let body =
        json!({"message": "You are being rate limited.", "retry_after": retry_after, "global": global});
    respond_json(429, &extra, &body)
}

fn respond_json(status: u16, extra: &[(&'static str, String)], body: &Value) -> Response<Body> {
    // By this header clients recognize responses of Discord itself.
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

/// Sends an attachment, at `channel/id/name`.
fn download(path: &str, shared: &ServerState) -> Response<Body> {
    let id: u64 = path.split('/').nth(1).and_then(|id| id.parse().ok()).unwrap_or_default();
    let found = |world: &World| -> Option<FakeAttachment> {
        world.messages.values().flat_map(|message| &message.attachments).find(|file| file.id == id).cloned()
    };
    let Some(file) = shared.read(found) else {
        shared.update(|world| world.record_violation(404, format!("GET /attachments/{path}: no such file")));
        return respond_json(404, &[], &Value::Null);
    };
    shared.update(|world| world.downloads.push(id));
    let kind = file.content_type.unwrap_or_else(|| "application/octet-stream".to_owned());
    let response = Response::builder().status(200).header("content-type", kind);
    let bytes = Bytes::from(file.bytes);
    let body = match file.download {
        DownloadBehavior::Immediate => Full::new(bytes).map_err(|never| match never {}).boxed(),
        behavior => BoxBody::new(StreamBody::new(download_stream(bytes, behavior))),
    };
    response.body(body).unwrap_or_default()
}

/// The body of a slow, endless, stalled or truncated download.
fn download_stream(
    bytes: Bytes,
    behavior: DownloadBehavior,
) -> impl futures_util::Stream<Item = io::Result<Frame<Bytes>>> {
    stream::unfold(bytes, move |mut left| async move {
        match behavior {
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
            DownloadBehavior::Truncated(_) => Some((Err(io::Error::other("dropped by the test")), left)),
            DownloadBehavior::Slow(..) | DownloadBehavior::Immediate => None,
        }
    })
}
