//! Client for the HTTP API.
//!
//! A message that may have been sent, one that was certainly not sent and one that never can be are
//! three different errors. So a rejected request is not repeated here, and a long rate limit is
//! returned instead of waited for.

use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use hermes_net::{Connector, explain_with_remedy};
use hermes_types::{Secret, lock};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use reqwest::multipart::{Form, Part};
use reqwest::{Client, Method, Response, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::fs::File;

use super::rate_limits::{LimitHeaders, RateLimits, Route};
use super::settings::DiscordSettings;
use crate::channel::{AttachmentFile, SendError};

const DEFAULT_API_BASE: &str = "https://discord.com/api/v10";
/// Longer waits for a rate limit are returned as an error.
const MAX_LIMIT_WAIT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
pub(super) const TIMED_OUT: &str = "timed out";
const UPLOAD_TIMEOUT: Duration = Duration::from_secs(180);
/// Attempts and the longest wait for requests that do not matter much.
const BRIEF_RETRY: (u32, Duration) = (3, MAX_LIMIT_WAIT);
/// The same for requests that inbound messages depend on.
const LONG_RETRY: (u32, Duration) = (7, Duration::from_secs(60));
const MAX_RESPONSE_BYTES: usize = 16 * 1024 * 1024;
/// How long a message waits for a working token.
const BAD_TOKEN_RETRY_AFTER: Duration = Duration::from_secs(300);

/// Discord goes by the file name.
const UPLOAD_MEDIA_TYPE: &str = "application/octet-stream";

pub(super) struct RestClient {
    base: String,
    token: Secret,
    pub(super) connector: Connector,
    client: OnceLock<Result<Client, hermes_net::Error>>,
    limits: Mutex<RateLimits>,
}

#[derive(Debug, Clone)]
pub(super) struct ApiRequest {
    method: Method,
    path: String,
    body: Option<Value>,
    files: Vec<AttachmentFile>,
    signed: bool,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    /// Not accepted now; retry later.
    #[error("{reason}")]
    Retry { after: Option<Duration>, reason: String },
    /// It may have been processed.
    #[error("{0}")]
    Unknown(String),
    /// Rejected, with Discord's error code.
    #[error("{reason}")]
    Rejected { code: u64, reason: String },
    #[error("{0}")]
    Invalid(String),
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    message: String,
    code: u64,
    retry_after: Option<f64>,
    global: bool,
}

impl ApiRequest {
    pub(super) fn new(method: Method, path: impl Into<String>) -> Self {
        let path = path.into();
        Self { method, path, body: None, files: Vec::new(), signed: true }
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

    pub(super) fn with_files(self, files: Vec<AttachmentFile>) -> Self {
        Self { files, ..self }
    }

    /// Without the token: the URL itself is the credential.
    pub(super) fn unsigned(self) -> Self {
        Self { signed: false, ..self }
    }
}

impl RestClient {
    pub(super) fn new(settings: &DiscordSettings) -> Self {
        let base = settings.api_base.as_deref().unwrap_or(DEFAULT_API_BASE).trim_end_matches('/').to_owned();
        let connector = Connector::new(settings.proxy.clone(), settings.root_certificates.clone());
        let token = settings.token.clone();
        Self { base, token, connector, client: OnceLock::new(), limits: Mutex::default() }
    }

    pub(super) fn is_same_origin(&self, url: &Url) -> bool {
        Url::parse(&self.base).is_ok_and(|base| base.origin() == url.origin())
    }

    pub(super) fn client(&self) -> Result<&Client, ApiError> {
        let client = self.client.get_or_init(|| build_client(&self.connector)).as_ref();
        client.map_err(|error| ApiError::Invalid(error.to_string()))
    }

    /// Describes a failed request without its URL.
    pub(super) fn describe_error(
        &self,
        error: reqwest::Error,
        explain: fn(&(dyn std::error::Error + 'static)) -> String,
    ) -> String {
        match (error.is_connect(), error.is_timeout()) {
            (true, true) => describe_failure(&self.connector, TIMED_OUT),
            (true, false) => describe_failure(&self.connector, &explain(&error.without_url())),
            (false, _) => explain(&error.without_url()),
        }
    }

    /// Makes a request and parses the response.
    pub(super) async fn fetch<T: DeserializeOwned>(&self, call: &ApiRequest) -> Result<T, ApiError> {
        let body = self.send(call).await?;
        serde_json::from_slice(&body).map_err(|error| {
            let reason = format!("cannot parse Discord's response: {error}");
            if call.method == Method::GET { ApiError::Invalid(reason) } else { ApiError::Unknown(reason) }
        })
    }

    /// Makes a request and ignores the response body.
    pub(super) async fn execute(&self, call: &ApiRequest) -> Result<(), ApiError> {
        self.send(call).await.map(drop)
    }

    /// As [`Self::execute`], with a few retries. Only for idempotent requests.
    pub(super) async fn execute_with_retry(&self, call: &ApiRequest) -> Result<(), ApiError> {
        retry(BRIEF_RETRY, || self.execute(call)).await
    }

    /// As [`Self::fetch`], with long retries. Only for reads.
    pub(super) async fn fetch_with_retry<T: DeserializeOwned>(
        &self,
        call: &ApiRequest,
    ) -> Result<T, ApiError> {
        let ask = || async {
            self.fetch(call).await.map_err(|error| match error {
                ApiError::Unknown(reason) => ApiError::Retry { after: None, reason },
                other => other,
            })
        };
        retry(LONG_RETRY, ask).await
    }

    async fn send(&self, call: &ApiRequest) -> Result<Vec<u8>, ApiError> {
        let route = Route::new(call.method.as_str(), &call.path);
        self.wait_for_limit(&route).await?;
        let request = self.request(call).await?;
        let mut response = request.send().await.map_err(|error| self.classify_send_error(error))?;
        let status = response.status();
        let headers = parse_limit_headers(response.headers());
        let body = self.read_body(&mut response).await;
        if status.is_success() {
            lock(&self.limits).update(&route, &headers, Instant::now());
            return body;
        }
        let refusal: ErrorBody =
            body.ok().and_then(|body| serde_json::from_slice(&body).ok()).unwrap_or_default();
        let precise = refusal.retry_after.and_then(|after| Duration::try_from_secs_f64(after).ok());
        let after = precise.or(headers.retry_after);
        let is_limit = status.as_u16() == 429;
        let notice = LimitHeaders {
            retry_after: is_limit.then(|| after.unwrap_or(Duration::from_secs(1))),
            global: headers.global || refusal.global,
            ..headers
        };
        lock(&self.limits).update(&route, &notice, Instant::now());
        Err(classify_status(status.as_u16(), refusal, notice.retry_after))
    }

    /// Reads the body. If it is lost, the request may still have been processed.
    async fn read_body(&self, response: &mut Response) -> Result<Vec<u8>, ApiError> {
        let mut body = Vec::new();
        let lost = |error| ApiError::Unknown(self.describe_error(error, explain_with_remedy));
        while let Some(chunk) = response.chunk().await.map_err(lost)? {
            if body.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(ApiError::Unknown("Discord's response is too large".to_owned()));
            }
            body.extend_from_slice(&chunk);
        }
        Ok(body)
    }

    fn classify_send_error(&self, error: reqwest::Error) -> ApiError {
        let kind = (error.is_builder(), error.is_connect(), error.is_timeout());
        let reason = self.describe_error(error, explain_with_remedy);
        match kind {
            (true, ..) => ApiError::Invalid(reason),
            (_, true, _) => ApiError::Retry { after: None, reason },
            (.., true) => ApiError::Unknown("Discord did not respond in time".to_owned()),
            _ => ApiError::Unknown(format!("connection to Discord lost: {reason}")),
        }
    }

    /// Waits until the rate limit allows the request, if that is soon.
    async fn wait_for_limit(&self, route: &Route) -> Result<(), ApiError> {
        let give_up = Instant::now() + MAX_LIMIT_WAIT;
        loop {
            let now = Instant::now();
            let answer = lock(&self.limits).reserve(route, now);
            match answer {
                Ok(()) => return Ok(()),
                Err(wait) if now + wait > give_up => {
                    let reason = "rate limited by Discord".to_owned();
                    return Err(ApiError::Retry { after: Some(wait), reason });
                }
                Err(wait) => tokio::time::sleep(wait).await,
            }
        }
    }

    async fn request(&self, call: &ApiRequest) -> Result<reqwest::RequestBuilder, ApiError> {
        let url = Url::parse(&format!("{}/{}", self.base, call.path))
            .map_err(|error| ApiError::Invalid(format!("invalid API URL: {error}")))?;
        let mut request = self.client()?.request(call.method.clone(), url);
        if call.signed {
            request =
                request.header(AUTHORIZATION, format!("Bot {}", strip_token_prefix(self.token.expose())));
        }
        let json = call.body.as_ref().map(Value::to_string);
        if call.files.is_empty() {
            request = request.timeout(REQUEST_TIMEOUT);
            return Ok(match json {
                Some(json) => request.header(CONTENT_TYPE, "application/json").body(json),
                None if call.method == Method::GET => request,
                None => request.body(Vec::new()),
            });
        }
        let mut form = Form::new();
        if let Some(json) = json {
            let part = Part::text(json).mime_str("application/json");
            form = form.part("payload_json", part.map_err(|error| ApiError::Invalid(error.to_string()))?);
        }
        for (number, AttachmentFile { name, path }) in call.files.iter().enumerate() {
            let unread = |error: std::io::Error| ApiError::Invalid(format!("cannot read {name}: {error}"));
            let file = File::open(path).await.map_err(unread)?;
            let length = file.metadata().await.map_err(unread)?.len();
            // The JSON body has the real name; here clients and servers disagree on non-ASCII.
            let plain: String = name.chars().map(|char| if char.is_ascii() { char } else { '_' }).collect();
            let part = Part::stream_with_length(file, length).file_name(plain).mime_str(UPLOAD_MEDIA_TYPE);
            form = form.part(
                format!("files[{number}]"),
                part.map_err(|error| ApiError::Invalid(error.to_string()))?,
            );
        }
        Ok(request.timeout(UPLOAD_TIMEOUT).multipart(form))
    }
}

impl From<ApiError> for SendError {
    fn from(error: ApiError) -> Self {
        match error {
            ApiError::Retry { after, reason } => Self::Retry { after, reason },
            ApiError::Unknown(reason) => Self::Unknown(reason),
            ApiError::Rejected { reason, .. } | ApiError::Invalid(reason) => Self::Permanent(reason),
        }
    }
}

impl ApiError {
    /// Discord's error code.
    pub(super) fn code(&self) -> Option<u64> {
        match self {
            Self::Rejected { code, .. } => Some(*code),
            Self::Retry { .. } | Self::Unknown(_) | Self::Invalid(_) => None,
        }
    }
}

async fn retry<T, F: Future<Output = Result<T, ApiError>>>(
    (attempts, max_wait): (u32, Duration),
    attempt: impl Fn() -> F,
) -> Result<T, ApiError> {
    let mut wait = Duration::from_millis(500);
    for _ in 1..attempts {
        let after = match attempt().await {
            Err(ApiError::Retry { after, .. }) if after.is_none_or(|after| after <= max_wait) => after,
            done => return done,
        };
        tokio::time::sleep(after.unwrap_or(wait)).await;
        wait = (wait * 2).min(max_wait);
    }
    attempt().await
}

/// The token without the `Bot ` prefix that people copy with it.
pub(super) fn strip_token_prefix(token: &str) -> &str {
    let token = token.trim();
    token.strip_prefix("Bot ").unwrap_or(token).trim()
}

/// Names the proxy, which may be the reason.
pub(super) fn describe_failure(connector: &Connector, reason: &str) -> String {
    match connector.has_proxy() {
        true => describe_proxy_failure(reason),
        false => format!("cannot reach Discord: {reason}"),
    }
}

fn describe_proxy_failure(reason: &str) -> String {
    format!("cannot reach Discord through `discord.proxy`: {reason}")
}

fn build_client(connector: &Connector) -> Result<Client, hermes_net::Error> {
    let builder = connector.client_builder()?.connect_timeout(CONNECT_TIMEOUT).user_agent(concat!(
        "DiscordBot (hermes, ",
        env!("CARGO_PKG_VERSION"),
        ")"
    ));
    hermes_net::build(builder)
}

/// The error for an unsuccessful status.
fn classify_status(status: u16, refusal: ErrorBody, after: Option<Duration>) -> ApiError {
    let ErrorBody { message, code, .. } = refusal;
    match status {
        429 => ApiError::Retry { after, reason: "rate limited by Discord".to_owned() },
        500.. => ApiError::Retry { after, reason: format!("Discord server error (status {status})") },
        407 => ApiError::Retry { after, reason: describe_proxy_failure(hermes_net::PROXY_AUTH_REQUIRED) },
        401 => {
            let reason = "Discord rejected the bot token".to_owned();
            ApiError::Retry { after: Some(BAD_TOKEN_RETRY_AFTER), reason }
        }
        _ => {
            let reason = match (code, status) {
                (10_003, _) => "the channel no longer exists",
                (10_008, _) => "the message no longer exists",
                (40_067, _) => "the forum requires a tag, and the bot sets none",
                (50_001, _) => "the bot cannot see this channel",
                (50_007, _) => "this user does not accept direct messages from the bot",
                (50_013, _) => "the bot lacks a permission in this channel",
                (_, 413) => "the files are larger than Discord allows",
                (_, 403) => "forbidden",
                (_, 404) => "not found",
                _ => "rejected",
            };
            let reason = format!("{reason} (Discord: {message}, {code}, status {status})");
            ApiError::Rejected { code, reason }
        }
    }
}

fn parse_limit_headers(headers: &HeaderMap) -> LimitHeaders {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    let seconds = |name: &str| {
        let seconds = text(name)?.parse().ok()?;
        Duration::try_from_secs_f64(seconds).ok()
    };
    LimitHeaders {
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
    fn rejections_are_classified() {
        let refusal =
            |code, message: &str| ErrorBody { code, message: message.to_owned(), ..ErrorBody::default() };
        let kind = |status, code| match SendError::from(classify_status(status, refusal(code, "words"), None))
        {
            SendError::Retry { .. } => "later",
            SendError::Unknown(_) => "unknown",
            SendError::Permanent(_) => "never",
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
        let ApiError::Rejected { reason, .. } =
            classify_status(403, refusal(50_013, "Missing Permissions"), None)
        else {
            panic!("not refused")
        };
        assert_eq!(
            reason,
            "the bot lacks a permission in this channel (Discord: Missing Permissions, 50013, status 403)"
        );
    }

    #[test]
    fn a_token_may_have_its_prefix() {
        for token in ["abc", "Bot abc", " Bot abc\n"] {
            assert_eq!(strip_token_prefix(token), "abc");
        }
    }
}
