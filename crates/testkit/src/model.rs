//! A language model that says what a test wants, by three protocols.

mod anthropic;
mod chat;
mod image;
mod responses;
mod script;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::server_task::Aside;

pub use image::SentImage;
pub use script::{BodyDelivery, ModelScript, ReplyItem, ScriptStep, ScriptedReply};

/// The longest request that is taken.
const MAX_REQUEST_BYTES: usize = 64 << 20;

/// A model on a port of this machine. It ends when it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    state: Arc<ModelState>,
    _aside: Aside,
}

/// A request as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    /// The method and the path.
    pub line: String,
    /// The headers, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body to the byte.
    pub body: Vec<u8>,
    /// The body as JSON; null if it is none.
    pub json: Value,
}

impl ReceivedRequest {
    /// The first header of this name.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// The pictures in it.
    pub fn images(&self) -> Vec<SentImage> {
        image::all(&self.json)
    }
}

#[derive(Debug)]
struct ModelState {
    script: ModelScript,
    steps: Mutex<VecDeque<ScriptStep>>,
    received: Mutex<Vec<ReceivedRequest>>,
    failures: Mutex<Vec<String>>,
}

impl ScriptedModel {
    /// Starts a model that answers its first request by the first step, and so on.
    pub fn start(steps: impl IntoIterator<Item = ScriptStep>) -> io::Result<Self> {
        Self::start_script(ModelScript { steps: steps.into_iter().collect(), ..ModelScript::default() })
    }

    /// Starts a model with a whole script.
    pub fn start_script(script: ModelScript) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(script.listen.as_deref().unwrap_or("127.0.0.1:0"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(ModelState {
            steps: Mutex::new(script.steps.iter().cloned().collect()),
            script,
            received: Mutex::default(),
            failures: Mutex::default(),
        });
        let served = Arc::clone(&state);
        let aside = Aside::begin("scripted-model", move || serve(listener, served))?;
        Ok(Self { address, state, _aside: aside })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base of its address for Chat Completions and Responses.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base of its address for Messages.
    pub fn anthropic_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// All requests so far.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        locked(&self.state.received).clone()
    }

    /// What was wrong with requests, and what was asked beyond the script. A test ends by looking here.
    pub fn failures(&self) -> Vec<String> {
        locked(&self.state.failures).clone()
    }

    /// How many steps were not asked for.
    pub fn steps_left(&self) -> usize {
        locked(&self.state.steps).len()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn serve(listener: std::net::TcpListener, state: Arc<ModelState>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        stream.set_nodelay(true).ok();
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let answer = service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(respond(request, &state).await) }
            });
            // A connection that ends badly is often what the script wanted.
            http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await.ok();
        });
    }
}

type Body = BoxBody<Bytes, io::Error>;

/// The protocols.
#[derive(Debug, Clone, Copy)]
enum Protocol {
    Chat,
    Anthropic,
    Responses,
}

async fn respond(request: Request<Incoming>, state: &ModelState) -> Response<Body> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let headers = request.headers().clone();
    let read = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await;
    let body = read.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let json: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let received = ReceivedRequest { line: line.clone(), headers: flat(&headers), body, json: json.clone() };
    if !state.script.discard_requests {
        locked(&state.received).push(received.clone());
    }
    let wire = match line.as_str() {
        "POST /v1/chat/completions" => Protocol::Chat,
        "POST /v1/messages" => Protocol::Anthropic,
        "POST /v1/responses" => Protocol::Responses,
        _ => return answer_other_route(&line, state),
    };
    if let Err((status, why)) = check(wire, &received, state) {
        locked(&state.failures).push(format!("{line}: {why}"));
        return whole(status, &[], error_body(wire, status, &why).to_string());
    }
    let step = locked(&state.steps).pop_front().or_else(|| state.script.always.clone());
    let Some(step) = step else {
        locked(&state.failures).push(format!("{line}: the script has ended"));
        return whole(500, &[], error_body(wire, 500, "the script has ended").to_string());
    };
    let streamed = json["stream"] == true;
    let model = json["model"].as_str().unwrap_or_default();
    let spoken = |answer: &ScriptedReply| {
        let (kind, text) = match (wire, streamed) {
            (Protocol::Chat, true) => (EVENTS, chat::stream(answer, model)),
            (Protocol::Chat, false) => (JSON, chat::whole(answer, model).to_string()),
            (Protocol::Anthropic, true) => (EVENTS, anthropic::stream(answer, model)),
            (Protocol::Anthropic, false) => (JSON, anthropic::whole(answer, model).to_string()),
            (Protocol::Responses, true) => (EVENTS, responses::stream(answer, model)),
            (Protocol::Responses, false) => (JSON, responses::whole(answer, model).to_string()),
        };
        delivered(200, &[("content-type".to_owned(), kind.to_owned())], text, answer.delivery)
    };
    match step {
        ScriptStep::Reply(answer) => spoken(&answer),
        ScriptStep::Echo(before) => {
            spoken(&ScriptedReply::text(format!("{before}{}", script::last_user_text(&json))))
        }
        ScriptStep::Raw { status, headers, body, delivery } => delivered(status, &headers, body, delivery),
        ScriptStep::Error { status, headers, body } => {
            let mut headers = headers;
            headers.push(("content-type".to_owned(), JSON.to_owned()));
            delivered(status, &headers, body.to_string(), BodyDelivery::default())
        }
        ScriptStep::Silence => {
            std::future::pending::<()>().await;
            whole(500, &[], String::new())
        }
    }
}

const EVENTS: &str = "text/event-stream; charset=utf-8";
const JSON: &str = "application/json";

fn flat(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// What is not the model itself: lists of models, and what local servers tell about themselves.
fn answer_other_route(line: &str, state: &ModelState) -> Response<Body> {
    match state.script.routes.get(line) {
        Some(answer) => whole(200, &[("content-type".to_owned(), JSON.to_owned())], answer.to_string()),
        None => {
            // Who only looks around may look everywhere.
            if line.starts_with("POST") && !line.starts_with("POST /api/") {
                locked(&state.failures).push(format!("{line}: there is no such path"));
            }
            whole(404, &[], json!({"error": {"message": "Not Found"}}).to_string())
        }
    }
}

/// What the vendor would refuse.
fn check(wire: Protocol, received: &ReceivedRequest, state: &ModelState) -> Result<(), (u16, String)> {
    let bad = |why: String| (400, why);
    if received.header("content-type").is_none_or(|kind| !kind.starts_with(JSON)) {
        return Err(bad("the content type is not application/json".to_owned()));
    }
    if let Some(key) = &state.script.key {
        let bearer = received.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let given = match wire {
            Protocol::Anthropic => received.header("x-api-key").or(bearer),
            Protocol::Chat | Protocol::Responses => bearer,
        };
        if given != Some(key.as_str()) {
            return Err((401, "the key is not the right one".to_owned()));
        }
    }
    if !received.json.is_object() {
        return Err(bad("the body is not a JSON object".to_owned()));
    }
    let checked = match wire {
        Protocol::Chat => chat::check(&received.json),
        Protocol::Anthropic if received.header("anthropic-version").is_none() => {
            Err("anthropic-version: header is required".to_owned())
        }
        Protocol::Anthropic => anthropic::check(&received.json),
        Protocol::Responses => responses::check(&received.json),
    };
    checked.map_err(bad)
}

fn error_body(wire: Protocol, status: u16, why: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        400 => "invalid_request_error",
        _ => "api_error",
    };
    match wire {
        Protocol::Anthropic => json!({"type": "error", "error": {"type": kind, "message": why}}),
        Protocol::Chat | Protocol::Responses => {
            json!({"error": {"message": why, "type": kind, "param": null, "code": null}})
        }
    }
}

fn whole(status: u16, headers: &[(String, String)], body: String) -> Response<Body> {
    delivered(status, headers, body, BodyDelivery::default())
}

fn delivered(
    status: u16,
    headers: &[(String, String)],
    body: String,
    delivery: BodyDelivery,
) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = match delivery.is_plain() {
        true => Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed(),
        false => BoxBody::new(StreamBody::new(pieces(body, delivery))),
    };
    // A script with an impossible status or header gets what it deserves.
    response.body(body).unwrap_or_default()
}

/// The body in pieces, with pauses, up to where it breaks or falls silent.
fn pieces(
    body: String,
    delivery: BodyDelivery,
) -> impl futures_util::Stream<Item = io::Result<Frame<Bytes>>> {
    let until = delivery.cut.or(delivery.silent).unwrap_or(body.len()).min(body.len());
    let sent = Bytes::from(body).slice(..until);
    let size = delivery.chunk.unwrap_or(sent.len()).max(1);
    stream::unfold((sent, delivery), move |(mut left, delivery)| async move {
        if left.is_empty() {
            if delivery.silent.is_some() {
                std::future::pending::<()>().await;
            }
            // Whoever waits gives hyper the time to send what it has.
            tokio::task::yield_now().await;
            let cut = delivery.cut.map(|_| Err(io::Error::other("cut by the script")));
            return cut.map(|error| (error, (left, BodyDelivery { cut: None, ..delivery })));
        }
        match delivery.pause_ms {
            0 => tokio::task::yield_now().await,
            pause => tokio::time::sleep(Duration::from_millis(pause)).await,
        }
        let piece = left.split_to(size.min(left.len()));
        Some((Ok(Frame::data(piece)), (left, delivery)))
    })
}
