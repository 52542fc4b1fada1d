//! Requests to the HTTP API, and what their answers mean.
//!
//! A message that may have been sent, one that was surely not, and one that will never be are three different things; so a
//! refusal is never asked again here, and a limit that lasts longer than a moment is told instead of waited for.

use std::path::PathBuf;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use hermes_agent::http::tls;
use hermes_types::Secret;
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Method, Response, Url, redirect};
use rustls::ClientConfig;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::fs::File;

use super::limits::{Limits, Notice, Route};
use super::road::{Road, SLOW, barred};
use super::settings::Settings;
use crate::channel::Undelivered;

/// Where Discord's own API is.
const DISCORD: &str = "https://discord.com/api/v10";
/// The longest a request waits for a limit before that is told.
const WAITS: Duration = Duration::from_secs(5);
/// The longest a connection takes.
const CONNECTS: Duration = Duration::from_secs(10);
/// The longest an answer takes.
const ANSWERS: Duration = Duration::from_secs(20);
/// The longest an answer to files takes.
const UPLOADS: Duration = Duration::from_secs(180);
/// How small things are tried.
const BRIEF: Patience = Patience { tries: 3, longest: WAITS };
/// How things are tried that letters depend on.
const PATIENT: Patience = Patience { tries: 7, longest: Duration::from_secs(60) };
/// The largest answer.
const LARGEST: usize = 16 * 1024 * 1024;
/// How long a message waits for a token that is right again.
const NEW_TOKEN: Duration = Duration::from_secs(300);

/// What files are said to be: Discord looks at their names.
const BYTES: &str = "application/octet-stream";

/// The HTTP API.
#[derive(Debug)]
pub(super) struct Rest {
    base: String,
    token: Secret,
    pub(super) road: Road,
    client: OnceLock<Result<Client, String>>,
    limits: Mutex<Limits>,
}

/// A request.
#[derive(Debug, Clone)]
pub(super) struct Call {
    method: Method,
    path: String,
    query: String,
    body: Option<Value>,
    files: Vec<(String, PathBuf)>,
    signed: bool,
}

/// Why a request did not do what it should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    /// It was not taken now.
    Later { after: Option<Duration>, why: String },
    /// It may have been taken.
    Unknown(String),
    /// It was refused; the code is the platform's own.
    Refused { status: u16, code: u64, why: String },
    /// It could not even be sent.
    Wrong(String),
}

/// What the platform says about a refusal.
#[derive(Debug, Default, Deserialize)]
struct Refusal {
    #[serde(default)]
    message: String,
    #[serde(default)]
    code: u64,
    retry_after: Option<f64>,
    #[serde(default)]
    global: bool,
}

impl Call {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        Self { method, path, query: String::new(), body: None, files: Vec::new(), signed: true }
    }

    pub(super) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path)
    }

    pub(super) fn post(path: impl Into<String>, body: Value) -> Self {
        Self { body: Some(body), ..Self::new(Method::POST, path) }
    }

    pub(super) fn with_body(self, body: Value) -> Self {
        Self { body: Some(body), ..self }
    }

    pub(super) fn with_query(self, query: String) -> Self {
        Self { query, ..self }
    }

    pub(super) fn with_files(self, files: Vec<(String, PathBuf)>) -> Self {
        Self { files, ..self }
    }

    /// Without the token: the address itself proves the right to it.
    pub(super) fn unsigned(self) -> Self {
        Self { signed: false, ..self }
    }
}

impl Rest {
    pub(super) fn new(settings: &Settings) -> Self {
        let base = settings.api_base.as_deref().unwrap_or(DISCORD).trim_end_matches('/').to_owned();
        let (token, road) = (settings.token.clone(), Road::new(settings));
        Self { base, token, road, client: OnceLock::new(), limits: Mutex::default() }
    }

    /// Whether an address is one of the server that the API is at.
    pub(super) fn is_at(&self, url: &Url) -> bool {
        Url::parse(&self.base).is_ok_and(|base| base.origin() == url.origin())
    }

    /// The client that everything goes through.
    pub(super) fn client(&self) -> Result<&Client, String> {
        self.client.get_or_init(|| build(&self.road)).as_ref().map_err(Clone::clone)
    }

    /// Why a request has no answer, without its address, for the owner.
    fn broken(&self, error: reqwest::Error) -> String {
        self.why(error, tls::why_and_remedy)
    }

    /// The same for a model, which is not to change whom this machine trusts.
    pub(super) fn broken_plainly(&self, error: reqwest::Error) -> String {
        self.why(error, tls::why)
    }

    fn why(&self, error: reqwest::Error, why: fn(&(dyn std::error::Error + 'static)) -> String) -> String {
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => self.road.unreached(SLOW),
            (true, false) => self.road.unreached(&why(&error.without_url())),
            (false, _) => why(&error.without_url()),
        }
    }

    /// Makes a request and reads its answer.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Fault> {
        let body = self.send(call).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let why = format!("Discord's answer cannot be read: {error}");
            if call.method == Method::GET { Fault::Wrong(why) } else { Fault::Unknown(why) }
        })
    }

    /// Makes a request whose answer says nothing.
    pub(super) async fn tell(&self, call: &Call) -> Result<(), Fault> {
        self.send(call).await.map(drop)
    }

    /// As [`Self::tell`], but waits and tries again some times. Only for what does no harm when it is done twice.
    pub(super) async fn insist(&self, call: &Call) -> Result<(), Fault> {
        again(BRIEF, || self.tell(call)).await
    }

    /// As [`Self::ask`], but waits and tries again for longer. Only for what changes nothing.
    pub(super) async fn ask_patiently<T: DeserializeOwned>(&self, call: &Call) -> Result<T, Fault> {
        let ask = || async {
            self.ask(call).await.map_err(|fault| match fault {
                Fault::Unknown(why) => Fault::Later { after: None, why },
                other => other,
            })
        };
        again(PATIENT, ask).await
    }

    async fn send(&self, call: &Call) -> Result<Vec<u8>, Fault> {
        let route = Route::new(call.method.as_str(), &call.path);
        self.pass(&route).await?;
        let request = self.request(call).await?;
        let mut response = request.send().await.map_err(|error| self.unsent(error))?;
        let status = response.status();
        let headers = notice(response.headers());
        let body = self.read(&mut response).await;
        if status.is_success() {
            self.learn(&route, &headers);
            return body;
        }
        let refusal: Refusal =
            body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        let precise = refusal.retry_after.and_then(|after| Duration::try_from_secs_f64(after).ok());
        let after = precise.or(headers.retry_after);
        let is_limit = status.as_u16() == 429;
        let notice = Notice {
            retry_after: is_limit.then(|| after.unwrap_or(Duration::from_secs(1))),
            global: headers.global || refusal.global,
            ..headers
        };
        self.learn(&route, &notice);
        Err(fault(status.as_u16(), refusal, notice.retry_after))
    }

    /// Reads an answer. Where the answer is lost, what was asked for may be done.
    async fn read(&self, response: &mut Response) -> Result<Vec<u8>, Fault> {
        let mut body = Vec::new();
        let lost = |error| Fault::Unknown(self.broken(error));
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > LARGEST {
                return Err(Fault::Unknown("Discord's answer is too large".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    /// What it means that a request has no answer.
    fn unsent(&self, error: reqwest::Error) -> Fault {
        if error.is_builder() {
            return Fault::Wrong(self.broken(error));
        }
        if error.is_connect() {
            return Fault::Later { after: None, why: self.broken(error) };
        }
        if error.is_timeout() {
            return Fault::Unknown("Discord did not answer in time".to_owned());
        }
        Fault::Unknown(format!("the connection to Discord broke: {}", self.broken(error)))
    }

    fn learn(&self, route: &Route, notice: &Notice) {
        self.limits.lock().unwrap_or_else(PoisonError::into_inner).learn(route, notice, Instant::now());
    }

    /// Waits until the platform takes a request, or tells that this would take too long.
    async fn pass(&self, route: &Route) -> Result<(), Fault> {
        let give_up = Instant::now() + WAITS;
        loop {
            let now = Instant::now();
            let answer = self.limits.lock().unwrap_or_else(PoisonError::into_inner).admit(route, now);
            match answer {
                Ok(()) => return Ok(()),
                Err(wait) if now + wait > give_up => {
                    let why = "Discord takes no more of this for now".to_owned();
                    return Err(Fault::Later { after: Some(wait), why });
                }
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    async fn request(&self, call: &Call) -> Result<reqwest::RequestBuilder, Fault> {
        let wrong = |error: String| Fault::Wrong(error);
        let mut url = Url::parse(&format!("{}/{}", self.base, call.path))
            .map_err(|error| wrong(format!("the address of the API is wrong: {error}")))?;
        url.set_query(Some(call.query.as_str()).filter(|query| !query.is_empty()));
        let mut request = self.client().map_err(wrong)?.request(call.method.clone(), url);
        if call.signed {
            request = request.header(AUTHORIZATION, format!("Bot {}", bare(self.token.expose())));
        }
        let json = call.body.as_ref().map(Value::to_string);
        if call.files.is_empty() {
            request = request.timeout(ANSWERS);
            return Ok(match json {
                Some(json) => request.header(CONTENT_TYPE, "application/json").body(json),
                None if call.method == Method::GET => request,
                None => request.body(Vec::new()),
            });
        }
        let mut form = Form::new();
        if let Some(json) = json {
            let part = Part::text(json).mime_str("application/json");
            form = form.part("payload_json", part.map_err(|error| wrong(error.to_string()))?);
        }
        for (number, (name, path)) in call.files.iter().enumerate() {
            let unread = |error: std::io::Error| wrong(format!("{name} cannot be read: {error}"));
            let file = File::open(path).await.map_err(unread)?;
            let length = file.metadata().await.map_err(unread)?.len();
            // The name that counts is in the body; here not every client and server agree about other letters.
            let plain: String = name.chars().map(|char| if char.is_ascii() { char } else { '_' }).collect();
            let part = Part::stream_with_length(file, length).file_name(plain).mime_str(BYTES);
            form = form.part(format!("files[{number}]"), part.map_err(|error| wrong(error.to_string()))?);
        }
        Ok(request.timeout(UPLOADS).multipart(form))
    }
}

impl From<Fault> for Undelivered {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Later { after, why } => Self::Later { after, why },
            Fault::Unknown(why) => Self::Unknown(why),
            Fault::Refused { why, .. } | Fault::Wrong(why) => Self::Never(why),
        }
    }
}

impl Fault {
    /// What happened, for the log.
    pub(super) fn why(&self) -> &str {
        match self {
            Self::Later { why, .. } | Self::Unknown(why) | Self::Refused { why, .. } | Self::Wrong(why) => {
                why
            }
        }
    }

    /// The platform's own code for it.
    pub(super) fn code(&self) -> Option<u64> {
        match self {
            Self::Refused { code, .. } => Some(*code),
            Self::Later { .. } | Self::Unknown(_) | Self::Wrong(_) => None,
        }
    }
}

/// How long something is tried.
#[derive(Debug, Clone, Copy)]
struct Patience {
    tries: u32,
    /// The longest between two tries.
    longest: Duration,
}

async fn again<T, F: Future<Output = Result<T, Fault>>>(
    patience: Patience,
    attempt: impl Fn() -> F,
) -> Result<T, Fault> {
    let mut wait = Duration::from_millis(500);
    for _ in 1..patience.tries {
        let after = match attempt().await {
            Err(Fault::Later { after, .. }) if after.is_none_or(|after| after <= patience.longest) => after,
            done => return done,
        };
        tokio::time::sleep(after.unwrap_or(wait)).await;
        wait = (wait * 2).min(patience.longest);
    }
    attempt().await
}

/// The token without the word that people copy with it.
pub(super) fn bare(token: &str) -> &str {
    let token = token.trim();
    token.strip_prefix("Bot ").unwrap_or(token).trim()
}

fn build(road: &Road) -> Result<Client, String> {
    let client = Client::builder()
        .tls_backend_preconfigured(ClientConfig::clone(&*road.tls()?))
        .redirect(redirect::Policy::none())
        .connect_timeout(CONNECTS)
        .user_agent(concat!("DiscordBot (hermes, ", env!("CARGO_PKG_VERSION"), ")"))
        .no_proxy();
    let client = match &road.proxy {
        Some(proxy) => client.proxy(proxy.for_requests()?),
        None => client,
    };
    client.build().map_err(|error| error.to_string())
}

/// What an answer means that is not a success.
fn fault(status: u16, refusal: Refusal, after: Option<Duration>) -> Fault {
    let Refusal { message, code, .. } = refusal;
    match status {
        429 => Fault::Later { after, why: "Discord takes no more of this for now".to_owned() },
        500.. => Fault::Later { after, why: format!("Discord has trouble of its own (status {status})") },
        407 => Fault::Later { after, why: barred(tls::LOCKED) },
        401 => {
            Fault::Later { after: Some(NEW_TOKEN), why: "Discord does not take the bot's token".to_owned() }
        }
        _ => {
            let why = match (code, status) {
                (10_003, _) => "the channel is gone",
                (10_008, _) => "the message is gone",
                (40_067, _) => "the forum takes only posts with a tag, and the bot gives none",
                (50_001, _) => "the bot cannot see this channel",
                (50_007, _) => "this person takes no direct messages from the bot",
                (50_013, _) => "the bot lacks a permission in this channel",
                (_, 413) => "the files are larger than Discord takes",
                (_, 403) => "Discord does not allow it",
                (_, 404) => "it is not there",
                _ => "Discord refuses it",
            };
            Fault::Refused {
                status,
                code,
                why: format!("{why} (Discord: {message}, {code}, status {status})"),
            }
        }
    }
}

fn notice(headers: &HeaderMap) -> Notice {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = |name: &str| {
        let seconds = text(name)?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    Notice {
        bucket: text("x-ratelimit-bucket").map(str::to_owned),
        remaining: text("x-ratelimit-remaining").and_then(|count| count.parse().ok()),
        reset_after: seconds("x-ratelimit-reset-after"),
        retry_after: seconds(RETRY_AFTER.as_str()),
        global: text("x-ratelimit-global").is_some_and(|word| word == "true")
            || text("x-ratelimit-scope").is_some_and(|word| word == "global"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_told_apart() {
        let refusal =
            |code, message: &str| Refusal { code, message: message.to_owned(), ..Refusal::default() };
        let kind = |status, code| match Undelivered::from(fault(status, refusal(code, "words"), None)) {
            Undelivered::Later { .. } => "later",
            Undelivered::Unknown(_) => "unknown",
            Undelivered::Never(_) => "never",
        };
        let cases = [
            (400, 50_035, "never"),
            (401, 0, "later"),
            (403, 50_013, "never"),
            (404, 10_003, "never"),
            (413, 40_005, "never"),
            (429, 0, "later"),
            (500, 0, "later"),
            (502, 0, "later"),
            (503, 0, "later"),
        ];
        for (status, code, expected) in cases {
            assert_eq!(kind(status, code), expected, "{status} {code}");
        }
        let Fault::Refused { why, .. } = fault(403, refusal(50_013, "Missing Permissions"), None) else {
            panic!("not refused")
        };
        assert_eq!(
            why,
            "the bot lacks a permission in this channel (Discord: Missing Permissions, 50013, status 403)"
        );
    }

    #[test]
    fn a_token_may_come_with_its_word() {
        for token in ["abc", "Bot abc", " Bot abc\n"] {
            assert_eq!(bare(token), "abc");
        }
    }
}
