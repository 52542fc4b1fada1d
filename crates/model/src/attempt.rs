//! One HTTP request to a model, and the reply it leads to.

use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Response;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use tokio::time::{Instant, timeout};

use crate::claude_code;
use crate::endpoint::{Api, ApiCredentials, Endpoint};
use crate::error::{self, FailureClass, RequestFailure};
use crate::json;
use crate::reply::{Finish, Prompt, Reply, ReplyEvent};
use crate::reply_builder::{EventSink, ReplyBuilder, TextEvents};
use crate::stream::{self, Framing};
use crate::transport::{self, Transport};
use crate::wire::{self, Decoder, ModelRequest, ServerQuirks};

const RETRY_AFTER_MS: HeaderName = HeaderName::from_static("retry-after-ms");
const MAX_ERROR_BODY_BYTES: usize = 256 << 10;
const ERROR_BODY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long to read on after the end of a reply, so that the connection can be reused.
const DRAIN_TIMEOUT: Duration = Duration::from_millis(20);
/// How long to wait for the usage that follows a finished reply.
const USAGE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct FailedAttempt {
    pub(crate) failure: RequestFailure,
    /// The reply up to the failure, if text of it was shown and a tool call is incomplete.
    pub(crate) partial: Option<Box<Reply>>,
}

impl From<RequestFailure> for FailedAttempt {
    fn from(failure: RequestFailure) -> Self {
        Self { failure, partial: None }
    }
}

#[derive(Clone, Copy)]
struct ReadTimeouts {
    deadline: Instant,
    /// The longest time without any byte.
    idle: Duration,
}

impl ReadTimeouts {
    fn next(&self) -> Duration {
        self.idle.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    fn failure(&self) -> RequestFailure {
        let message = if Instant::now() >= self.deadline {
            "the reply took too long".to_owned()
        } else {
            format!("no data received for {} s", self.idle.as_secs_f32())
        };
        RequestFailure::new(FailureClass::Timeout, message)
    }
}

/// Sends the request and reads the reply.
pub(crate) async fn request_reply(
    transport: &Transport,
    request: ModelRequest<'_>,
    text_events: TextEvents,
    events: EventSink<'_>,
) -> Result<Reply, FailedAttempt> {
    let ModelRequest { endpoint, prompt, quirks, .. } = request;
    let url = endpoint.url(request.path());
    let timeouts = ReadTimeouts {
        deadline: Instant::now() + endpoint.timeouts.total,
        idle: endpoint.idle_limit(prompt.estimated_tokens(), !quirks.no_streaming),
    };
    let headers = headers(endpoint, quirks).await?;
    let response = transport.client(&url)?.post(url).headers(headers).body(request.body()).send();
    drop(request);
    let response = timeout(timeouts.next(), response).await.map_err(|_| timeouts.failure())?;
    let response = response.map_err(transport::failure)?;
    if !response.status().is_success() {
        return Err(read_refusal(response).await.into());
    }
    let mut builder = ReplyBuilder::new(endpoint, prompt, text_events, events);
    let mut decoder = wire::decoder(endpoint.api);
    // A server may ignore that a stream was asked for.
    let content_type = response.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_json = content_type.is_some_and(|kind| {
        kind.contains("json") && !kind.contains("event-stream") && !kind.contains("ndjson")
    });
    let read = if is_json || quirks.no_streaming {
        read_body(response, timeouts, &mut *decoder, &mut builder).await
    } else {
        let bytes = response.bytes_stream().map(|chunk| chunk.map_err(transport::failure));
        read_stream(Box::pin(bytes), framing(endpoint.api), timeouts, &mut *decoder, &mut builder).await
    };
    conclude(read, decoder, builder)
}

fn framing(api: Api) -> Framing {
    match api {
        Api::ChatCompletions | Api::AnthropicMessages | Api::Responses => Framing::ServerSentEvents,
        Api::OllamaChat => Framing::Lines,
    }
}

fn conclude(
    read: Result<(), RequestFailure>,
    mut decoder: Box<dyn Decoder>,
    mut builder: ReplyBuilder<'_>,
) -> Result<Reply, FailedAttempt> {
    decoder.finish(&mut builder);
    let failure = match (read, builder.finish.clone()) {
        // A reply that the provider called finished is finished, even if the connection breaks
        // after it.
        (
            Ok(()) | Err(RequestFailure { class: FailureClass::Dropped | FailureClass::Timeout, .. }),
            Some(finish),
        ) => return Ok(builder.finish(finish)),
        (Ok(()), None) if builder.is_empty() => {
            RequestFailure::malformed("the reply is empty and has no finish reason")
        }
        (Ok(()), None) => {
            RequestFailure::new(FailureClass::Dropped, "the stream ended in the middle of the reply")
        }
        (Err(failure), _) => failure,
    };
    if !builder.has_shown_text {
        return Err(failure.into());
    }
    let has_open_call = builder.has_open_call();
    let partial = builder.finish(Finish::Dropped(failure.message.clone()));
    // Text that was shown is kept, and the caller asks the model to continue. Asking for the whole
    // reply again, without showing the text twice, is worth it only if a call is incomplete.
    if has_open_call {
        return Err(FailedAttempt { failure, partial: Some(Box::new(partial)) });
    }
    Ok(partial)
}

/// Decodes a recorded stream as [`crate::Client::complete`] does in one attempt. For tests and the
/// fuzzer.
pub async fn decode_recording(
    endpoint: &Endpoint,
    prompt: &Prompt<'_>,
    chunks: Vec<Bytes>,
    events: &mut (dyn FnMut(ReplyEvent) + Send),
) -> Result<Reply, RequestFailure> {
    let mut builder = ReplyBuilder::new(endpoint, prompt, TextEvents::Emit, events);
    let mut decoder = wire::decoder(endpoint.api);
    let total = endpoint.timeouts.total;
    let timeouts = ReadTimeouts { deadline: Instant::now() + total, idle: total };
    let bytes = futures_util::stream::iter(chunks.into_iter().map(Ok));
    let read = read_stream(bytes, framing(endpoint.api), timeouts, &mut *decoder, &mut builder).await;
    conclude(read, decoder, builder)
        .or_else(|failed| failed.partial.map(|reply| *reply).ok_or(failed.failure))
}

/// The headers of a request, credentials included.
pub(crate) async fn headers(endpoint: &Endpoint, quirks: &ServerQuirks) -> Result<HeaderMap, RequestFailure> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if endpoint.api == Api::AnthropicMessages {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    let secret = |text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            let message =
                format!("the API key for {} has characters that are not allowed", endpoint.provider);
            RequestFailure::new(FailureClass::Auth, message)
        })?;
        value.set_sensitive(true);
        Ok::<_, RequestFailure>(value)
    };
    if let Some(credentials) = &endpoint.credentials {
        let (token, is_claude_code) = match credentials {
            ApiCredentials::Key(key) => (key.clone(), false),
            ApiCredentials::ClaudeCode { key: Some(key), .. } if quirks.token_rejected => {
                (key.clone(), false)
            }
            ApiCredentials::ClaudeCode { path, .. } => (claude_code::read_token(path).await?, true),
        };
        let token = token.expose().trim();
        let is_messages = endpoint.api == Api::AnthropicMessages;
        let is_oauth = is_claude_code || (is_messages && token.starts_with(claude_code::TOKEN_PREFIX));
        if is_oauth {
            headers.insert("anthropic-beta", HeaderValue::from_static(claude_code::OAUTH_BETA));
        } else if is_messages {
            headers.insert("x-api-key", secret(token)?);
        }
        // Other servers that speak this protocol accept either header.
        if is_oauth || !is_messages || !endpoint.is_hosted_by("anthropic.com") {
            headers.insert(AUTHORIZATION, secret(&format!("Bearer {token}"))?);
        }
    }
    for (name, value) in &endpoint.headers {
        let invalid = || RequestFailure::new(FailureClass::Format, format!("invalid HTTP header: {name}"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
        headers.insert(name, HeaderValue::from_str(value.expose()).map_err(|_| invalid())?);
    }
    Ok(headers)
}

async fn read_refusal(response: Response) -> RequestFailure {
    let status = response.status().as_u16();
    let header = |name: HeaderName| {
        response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned)
    };
    if let (300..=399, Some(location)) = (status, header(LOCATION)) {
        let message = format!("cannot follow a redirect to {location}; correct base_url");
        return RequestFailure::new(FailureClass::Format, message);
    }
    let (retry_after, retry_after_ms) = (header(RETRY_AFTER), header(RETRY_AFTER_MS));
    let body = timeout(ERROR_BODY_TIMEOUT, read_text(response, MAX_ERROR_BODY_BYTES)).await;
    let text = body.ok().and_then(Result::ok).unwrap_or_default();
    let headers = error::RetryHeaders {
        retry_after: retry_after.as_deref(),
        retry_after_ms: retry_after_ms.as_deref(),
    };
    error::from_response(status, headers, &text)
}

/// Reads a body of at most `max_bytes` as text.
pub(crate) async fn read_text(response: Response, max_bytes: usize) -> Result<String, RequestFailure> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(chunk) = stream.next().await {
        bytes.extend_from_slice(&chunk.map_err(transport::failure)?);
        if bytes.len() > max_bytes {
            let message = format!("the response is larger than {} KiB", max_bytes >> 10);
            return Err(RequestFailure::malformed(message));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn read_body(
    response: Response,
    timeouts: ReadTimeouts,
    decoder: &mut dyn Decoder,
    builder: &mut ReplyBuilder<'_>,
) -> Result<(), RequestFailure> {
    let text = timeout(timeouts.next(), read_text(response, stream::MAX_REPLY_BYTES)).await;
    let text = text.map_err(|_| timeouts.failure())??;
    let value = json::parse(&text)
        .map_err(|error| RequestFailure::malformed(format!("the response is not JSON: {error}")))?;
    builder.has_ended = true;
    decoder.decode_body(builder, &value)
}

async fn read_stream(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
    framing: Framing,
    mut timeouts: ReadTimeouts,
    decoder: &mut dyn Decoder,
    builder: &mut ReplyBuilder<'_>,
) -> Result<(), RequestFailure> {
    let (mut events, received) = stream::events(bytes, framing);
    let mut known_bytes = 0;
    loop {
        let event = match timeout(timeouts.next(), events.next()).await {
            Ok(event) => event,
            // Keep-alives are not events, but a server that sends them is alive.
            Err(_)
                if received.load(Ordering::Relaxed) > known_bytes && Instant::now() < timeouts.deadline =>
            {
                known_bytes = received.load(Ordering::Relaxed);
                continue;
            }
            Err(_) => return Err(timeouts.failure()),
        };
        let Some(data) = event.transpose()? else { return Ok(()) };
        known_bytes = received.load(Ordering::Relaxed);
        if data.trim() == "[DONE]" {
            builder.has_ended = true;
        } else if let Ok(event) = json::parse(&data) {
            // Data that is not JSON is ignored; a reply without any readable data fails at its end.
            decoder.decode_event(builder, &event)?;
        }
        if builder.has_ended {
            while let Ok(Some(Ok(_))) = timeout(DRAIN_TIMEOUT, events.next()).await {}
            return Ok(());
        }
        if builder.finish.is_some() {
            timeouts.idle = timeouts.idle.min(USAGE_TIMEOUT);
        }
    }
}
