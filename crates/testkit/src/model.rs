//! A scripted language model that speaks four protocols.

mod anthropic;
mod chat;
mod image;
mod ollama;
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

use crate::server_task::ServerTask;
use ollama::PromptFit;

pub use image::SentImage;
pub use ollama::OllamaServer;
pub use script::{BodyDelivery, ModelScript, ReplyItem, ScriptStep, ScriptedReply};

const MAX_REQUEST_BYTES: usize = 64 << 20;

/// A model on a local port. It stops when it is dropped.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    state: Arc<ModelState>,
    _task: ServerTask,
}

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct ReceivedRequest {
    /// Method and path.
    pub line: String,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// The body, or null if it is not JSON.
    pub json: Value,
}

impl ReceivedRequest {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    pub fn images(&self) -> Vec<SentImage> {
        image::find_all(&self.json)
    }
}

#[derive(Debug)]
struct ModelState {
    script: ModelScript,
    steps: Mutex<VecDeque<ScriptStep>>,
    received: Mutex<Vec<ReceivedRequest>>,
    probes: Mutex<Vec<String>>,
    cut_prompts: Mutex<u32>,
    failures: Mutex<Vec<String>>,
}

impl ScriptedModel {
    /// Starts a model that responds to each request with the next step.
    pub fn start(steps: impl IntoIterator<Item = ScriptStep>) -> io::Result<Self> {
        Self::start_script(ModelScript { steps: steps.into_iter().collect(), ..ModelScript::default() })
    }

    pub fn start_script(script: ModelScript) -> io::Result<Self> {
        let listener = std::net::TcpListener::bind(script.listen.as_deref().unwrap_or("127.0.0.1:0"))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let state = Arc::new(ModelState {
            steps: Mutex::new(script.steps.iter().cloned().collect()),
            script,
            received: Mutex::default(),
            probes: Mutex::default(),
            cut_prompts: Mutex::default(),
            failures: Mutex::default(),
        });
        let served = Arc::clone(&state);
        let task = ServerTask::spawn("scripted-model", move || serve(listener, served))?;
        Ok(Self { address, state, _task: task })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for Chat Completions and Responses.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The base URL for Messages.
    pub fn anthropic_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests to the model.
    pub fn received(&self) -> Vec<ReceivedRequest> {
        locked(&self.state.received).clone()
    }

    /// The methods and paths of requests to other routes.
    pub fn probes(&self) -> Vec<String> {
        locked(&self.state.probes).clone()
    }

    /// How many prompts the server cut without saying so.
    pub fn cut_prompts(&self) -> u32 {
        *locked(&self.state.cut_prompts)
    }

    /// Invalid requests, and requests after the end of the script. Every test ends with checking
    /// them.
    pub fn failures(&self) -> Vec<String> {
        locked(&self.state.failures).clone()
    }

    /// The number of unused steps.
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
        // Tasks that have ended would fill the memory.
        while connections.try_join_next().is_some() {}
        let state = Arc::clone(&state);
        connections.spawn(async move {
            let reply = service_fn(move |request| {
                let state = Arc::clone(&state);
                async move { Ok::<_, Infallible>(respond(request, &state).await) }
            });
            // A connection often breaks because the script wants it.
            http1::Builder::new().serve_connection(TokioIo::new(stream), reply).await.ok();
        });
    }
}

type Body = BoxBody<Bytes, io::Error>;

#[derive(Debug, Clone, Copy)]
enum Protocol {
    Chat,
    Anthropic,
    Responses,
    Ollama,
}

async fn respond(request: Request<Incoming>, state: &ModelState) -> Response<Body> {
    let line = format!("{} {}", request.method(), request.uri().path());
    let headers = request.headers().clone();
    let read = Limited::new(request.into_body(), MAX_REQUEST_BYTES).collect().await;
    let body = read.map(|body| body.to_bytes().to_vec()).unwrap_or_default();
    let json: Value = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let received =
        ReceivedRequest { line: line.clone(), headers: header_list(&headers), body, json: json.clone() };
    let protocol = match line.as_str() {
        "POST /v1/chat/completions" => Protocol::Chat,
        "POST /v1/messages" => Protocol::Anthropic,
        "POST /v1/responses" => Protocol::Responses,
        "POST /api/chat" if state.script.ollama.is_some() => Protocol::Ollama,
        _ => return answer_other_route(&line, &json, state),
    };
    if !state.script.discard_requests {
        locked(&state.received).push(received.clone());
    }
    if let Err((status, why)) = check(protocol, &received, state) {
        locked(&state.failures).push(format!("{line}: {why}"));
        return respond_whole(status, &[], error_body(protocol, status, &why).to_string());
    }
    let step = locked(&state.steps).pop_front().or_else(|| state.script.always.clone());
    let Some(step) = step else {
        locked(&state.failures).push(format!("{line}: the script has ended"));
        return respond_whole(500, &[], error_body(protocol, 500, "the script has ended").to_string());
    };
    let streamed =
        json["stream"] == true || (matches!(protocol, Protocol::Ollama) && json["stream"] != false);
    let model = json["model"].as_str().unwrap_or_default();
    let encode = |reply: &ScriptedReply| {
        let (kind, text) = match (protocol, streamed) {
            (Protocol::Chat, true) => (EVENTS, chat::stream(reply, model, &state.script)),
            (Protocol::Chat, false) => (JSON, chat::whole(reply, model, &state.script).to_string()),
            (Protocol::Anthropic, true) => (EVENTS, anthropic::stream(reply, model)),
            (Protocol::Anthropic, false) => (JSON, anthropic::whole(reply, model).to_string()),
            (Protocol::Responses, true) => (EVENTS, responses::stream(reply, model)),
            (Protocol::Responses, false) => (JSON, responses::whole(reply, model).to_string()),
            (Protocol::Ollama, true) => (LINES, ollama::stream(reply, model)),
            (Protocol::Ollama, false) => (JSON, ollama::whole(reply, model).to_string()),
        };
        respond_with(200, &[("content-type".to_owned(), kind.to_owned())], text, reply.delivery)
    };
    match step {
        ScriptStep::Reply(reply) => encode(&reply),
        ScriptStep::Echo(before) => {
            encode(&ScriptedReply::text(format!("{before}{}", script::last_user_text(&json))))
        }
        ScriptStep::Raw { status, headers, body, delivery } => respond_with(status, &headers, body, delivery),
        ScriptStep::Error { status, headers, body } => {
            let mut headers = headers;
            headers.push(("content-type".to_owned(), JSON.to_owned()));
            respond_with(status, &headers, body.to_string(), BodyDelivery::default())
        }
        ScriptStep::Silence => {
            std::future::pending::<()>().await;
            respond_whole(500, &[], String::new())
        }
    }
}

const EVENTS: &str = "text/event-stream; charset=utf-8";
const LINES: &str = "application/x-ndjson";
const JSON: &str = "application/json";

fn header_list(headers: &HeaderMap) -> Vec<(String, String)> {
    let text = |value: &hyper::header::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    headers.iter().map(|(name, value)| (name.as_str().to_owned(), text(value))).collect()
}

/// Responds to other routes: lists of models and the information of local servers.
fn answer_other_route(line: &str, body: &Value, state: &ModelState) -> Response<Body> {
    if !state.script.discard_requests {
        locked(&state.probes).push(line.to_owned());
    }
    let model = body["model"].as_str().unwrap_or_default();
    let from_ollama = state.script.ollama.as_ref().and_then(|server| server.answer(line, model));
    match state.script.routes.get(line).cloned().or(from_ollama) {
        Some(reply) => respond_whole(200, &[("content-type".to_owned(), JSON.to_owned())], reply.to_string()),
        None => {
            // Clients may probe any route.
            if line.starts_with("POST") && !line.starts_with("POST /api/") {
                locked(&state.failures).push(format!("{line}: no such route"));
            }
            respond_whole(404, &[], json!({"error": {"message": "Not Found"}}).to_string())
        }
    }
}

/// Rejects what the vendor would reject.
fn check(protocol: Protocol, received: &ReceivedRequest, state: &ModelState) -> Result<(), (u16, String)> {
    let bad = |why: String| (400, why);
    if received.header("content-type").is_none_or(|kind| !kind.starts_with(JSON)) {
        return Err(bad("the content type is not application/json".to_owned()));
    }
    if let Some(key) = &state.script.key {
        let bearer = received.header("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let given = match protocol {
            Protocol::Anthropic => received.header("x-api-key").or(bearer),
            Protocol::Chat | Protocol::Responses | Protocol::Ollama => bearer,
        };
        if given != Some(key.as_str()) {
            return Err((401, "invalid API key".to_owned()));
        }
    }
    if !received.json.is_object() {
        return Err(bad("the body is not a JSON object".to_owned()));
    }
    let checked = match protocol {
        Protocol::Chat => chat::check(&received.json, &state.script),
        Protocol::Ollama => match &state.script.ollama {
            Some(server) => server.check(&received.json),
            None => Ok(()),
        },
        Protocol::Anthropic if received.header("anthropic-version").is_none() => {
            Err("anthropic-version: header is required".to_owned())
        }
        Protocol::Anthropic => anthropic::check(&received.json, state.script.max_output),
        Protocol::Responses => responses::check(&received.json),
    };
    checked.map_err(bad)?;
    let Some(server) = &state.script.ollama else { return Ok(()) };
    let fit = match protocol {
        Protocol::Ollama => server.fit_native(&received.json).map_err(bad)?,
        Protocol::Chat | Protocol::Anthropic | Protocol::Responses => server.fit_compatible(&received.json),
    };
    if fit == PromptFit::Cut {
        *locked(&state.cut_prompts) += 1;
    }
    Ok(())
}

fn error_body(protocol: Protocol, status: u16, why: &str) -> Value {
    let kind = match status {
        401 => "authentication_error",
        400 => "invalid_request_error",
        _ => "api_error",
    };
    match protocol {
        Protocol::Anthropic => json!({"type": "error", "error": {"type": kind, "message": why}}),
        Protocol::Ollama => json!({"error": why}),
        Protocol::Chat | Protocol::Responses => {
            json!({"error": {"message": why, "type": kind, "param": null, "code": null}})
        }
    }
}

fn respond_whole(status: u16, headers: &[(String, String)], body: String) -> Response<Body> {
    respond_with(status, headers, body, BodyDelivery::default())
}

fn respond_with(
    status: u16,
    headers: &[(String, String)],
    body: String,
    delivery: BodyDelivery,
) -> Response<Body> {
    let mut response = Response::builder().status(status);
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let body = if delivery.is_plain() {
        Full::new(Bytes::from(body)).map_err(|never| match never {}).boxed()
    } else {
        BoxBody::new(StreamBody::new(chunks(body, delivery)))
    };
    // A script with an invalid status or header gets an empty response.
    response.body(body).unwrap_or_default()
}

/// The body in chunks, with pauses, up to where it breaks or goes silent.
fn chunks(
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
            // Gives hyper the time to send its buffer.
            tokio::task::yield_now().await;
            let cut = delivery.cut.map(|_| Err(io::Error::other("cut by the script")));
            return cut.map(|error| (error, (left, BodyDelivery { cut: None, ..delivery })));
        }
        match delivery.pause_ms {
            0 => tokio::task::yield_now().await,
            pause => tokio::time::sleep(Duration::from_millis(pause)).await,
        }
        let chunk = left.split_to(size.min(left.len()));
        Some((Ok(Frame::data(chunk)), (left, delivery)))
    })
}
