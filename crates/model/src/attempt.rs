//! One request and what comes of it.

use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Response;
use reqwest::header::{
    AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, LOCATION, RETRY_AFTER,
};
use serde_json::Value;
use tokio::time::{Instant, timeout};

use crate::album::Pictures;
use crate::claude_code;
use crate::draft::{Draft, Listener};
use crate::endpoint::{Api, Credentials, Endpoint};
use crate::error::{self, Class, Fault};
use crate::json;
use crate::reply::{Event, Finish, Prompt, Reply};
use crate::stream::{self, Broken};
use crate::transport::{self, Transport};
use crate::wire::{Decoder, Flow, Manner, Request};

/// The most of an error's body that is read, and how long that may take.
const ERROR_BODY: usize = 256 << 10;
const ERROR_PATIENCE: Duration = Duration::from_secs(10);
/// How long we wait for the end of a stream whose answer has ended: its connection can be used again.
const GOODBYE: Duration = Duration::from_millis(20);
/// How long we wait for the usage behind an answer that has ended.
const AFTERMATH: Duration = Duration::from_secs(5);

/// A failed attempt.
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    /// What had come, if words of it were shown.
    pub(crate) partial: Option<Box<Partial>>,
}

pub(crate) struct Partial {
    pub(crate) reply: Reply,
    /// A call was arriving when it broke.
    pub(crate) open_call: bool,
}

impl From<Fault> for Failed {
    fn from(fault: Fault) -> Self {
        Self { fault, partial: None }
    }
}

/// The clock of an attempt.
#[derive(Clone, Copy)]
struct Patience {
    deadline: Instant,
    silence: Duration,
}

impl Patience {
    fn next(&self) -> Duration {
        self.silence.min(self.deadline.saturating_duration_since(Instant::now()))
    }

    fn over(&self) -> Fault {
        let seconds = self.silence.as_secs_f32();
        let why = match Instant::now() >= self.deadline {
            true => "the answer took too long".to_owned(),
            false => format!("nothing came for {seconds} s"),
        };
        Fault::new(Class::Timeout, why)
    }
}

pub(crate) async fn attempt(
    transport: &Transport,
    endpoint: &Endpoint,
    prompt: &Prompt<'_>,
    manner: &Manner,
    pictures: Pictures<'_>,
    muted: bool,
    listener: Listener<'_>,
) -> Result<Reply, Failed> {
    let request = Request { endpoint, prompt, manner, pictures: &pictures };
    let url = endpoint.url(request.path());
    let patience = Patience {
        deadline: Instant::now() + endpoint.timeouts.total,
        silence: endpoint.timeouts.silence(endpoint, prompt.size(), !manner.whole),
    };
    let headers = headers(endpoint).await?;
    let sending = transport.client(&url)?.post(url).headers(headers).body(request.body()).send();
    drop(pictures);
    let response = timeout(patience.next(), sending).await.map_err(|_| patience.over())?;
    let response = response.map_err(transport::fault)?;
    if !response.status().is_success() {
        return Err(refusal(response).await.into());
    }
    let spoken = Decoder::spoken(endpoint.api);
    let mut draft = Draft::new(endpoint, prompt, spoken, muted, listener);
    let mut decoder = Decoder::new(endpoint.api);
    // A server may ignore the wish for a stream.
    let kind = response.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_whole = kind.contains("json") && !kind.contains("event-stream") || manner.whole;
    let read = match is_whole {
        true => whole(response, patience, &mut decoder, &mut draft).await,
        false => {
            let bytes = response.bytes_stream().map(|piece| piece.map_err(transport::fault));
            streamed(Box::pin(bytes), patience, &mut decoder, &mut draft).await
        }
    };
    concluded(read, decoder, draft, endpoint)
}

/// What came of reading.
fn concluded(
    read: Result<(), Fault>,
    mut decoder: Decoder,
    mut draft: Draft<'_>,
    endpoint: &Endpoint,
) -> Result<Reply, Failed> {
    let finish = decoder.end(&mut draft);
    let fault = match (read, finish) {
        (Ok(()), Some(finish)) => return Ok(draft.seal(endpoint, finish)),
        // What the provider said to be finished is finished, whatever happened to the connection afterwards.
        (Err(Fault { class: Class::Dropped | Class::Timeout, .. }), Some(finish)) => {
            return Ok(draft.seal(endpoint, finish));
        }
        (Ok(()), None) if draft.is_empty() => {
            Fault::malformed("the answer was empty, and did not say that it had ended")
        }
        (Ok(()), None) => Fault::new(Class::Dropped, "the stream ended in the middle of the answer"),
        (Err(fault), _) => fault,
    };
    let partial = draft.has_shown().then(|| {
        let open_call = draft.has_open_call();
        let reply = draft.seal(endpoint, Finish::Dropped(fault.message.clone()));
        Box::new(Partial { reply, open_call })
    });
    Err(Failed { fault, partial })
}

/// Reads a stream that was recorded: what [`crate::Client::complete`] would make of it in one attempt. For tests and the fuzzer.
pub async fn recorded(
    endpoint: &Endpoint,
    prompt: &Prompt<'_>,
    pieces: Vec<Bytes>,
    event: &mut (dyn FnMut(Event) + Send),
) -> Result<Reply, Fault> {
    let mut draft = Draft::new(endpoint, prompt, Decoder::spoken(endpoint.api), false, event);
    let mut decoder = Decoder::new(endpoint.api);
    let patience =
        Patience { deadline: Instant::now() + endpoint.timeouts.total, silence: endpoint.timeouts.total };
    let bytes = futures_util::stream::iter(pieces.into_iter().map(Ok));
    let read = streamed(bytes, patience, &mut decoder, &mut draft).await;
    match concluded(read, decoder, draft, endpoint) {
        Ok(reply) => Ok(reply),
        Err(Failed { partial: Some(partial), .. }) => Ok(partial.reply),
        Err(Failed { fault, .. }) => Err(fault),
    }
}

/// Everything that is sent along with a request.
pub(crate) async fn headers(endpoint: &Endpoint) -> Result<HeaderMap, Fault> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    if endpoint.api == Api::AnthropicMessages {
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
    }
    let secret = |text: &str| {
        let mut value = HeaderValue::from_str(text).map_err(|_| {
            Fault::new(
                Class::Auth,
                format!("the key for {} has characters that no key has", endpoint.provider),
            )
        })?;
        value.set_sensitive(true);
        Ok::<_, Fault>(value)
    };
    match &endpoint.credentials {
        Credentials::None => {}
        Credentials::Key(key) => {
            let key = key.expose().trim();
            let is_token = key.starts_with(claude_code::TOKEN);
            let is_messages = endpoint.api == Api::AnthropicMessages;
            if is_messages && !is_token {
                headers.insert("x-api-key", secret(key)?);
            }
            // Others who speak this protocol look in either place.
            if !is_messages || is_token || !endpoint.is_at("anthropic.com") {
                headers.insert(AUTHORIZATION, secret(&format!("Bearer {key}"))?);
            }
            if is_messages && is_token {
                headers.insert("anthropic-beta", HeaderValue::from_static(claude_code::BETA));
            }
        }
        Credentials::ClaudeCode(path) => {
            let token = claude_code::token(path).await?;
            headers.insert(AUTHORIZATION, secret(&format!("Bearer {}", token.expose()))?);
            headers.insert("anthropic-beta", HeaderValue::from_static(claude_code::BETA));
        }
    }
    for (name, value) in &endpoint.headers {
        let wrong = || Fault::new(Class::Format, format!("{name} is not an HTTP header that can be sent"));
        let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
        headers.insert(name, HeaderValue::from_str(value.expose()).map_err(|_| wrong())?);
    }
    Ok(headers)
}

async fn refusal(response: Response) -> Fault {
    let status = response.status().as_u16();
    let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    if let (300..=399, Some(to)) = (status, header(LOCATION)) {
        return Fault::new(
            Class::Format,
            format!("the server sends us to {to}, and we do not follow: correct the address"),
        );
    }
    let retry_after = header(RETRY_AFTER);
    let body = timeout(ERROR_PATIENCE, body(response, ERROR_BODY)).await;
    let text = body.ok().and_then(Result::ok).unwrap_or_default();
    error::of_response(status, retry_after.as_deref(), &text)
}

/// The text of a body, which must not be longer than this.
pub(crate) async fn body(response: Response, most: usize) -> Result<String, Fault> {
    let mut bytes = Vec::new();
    let mut stream = response.bytes_stream();
    while let Some(piece) = stream.next().await {
        bytes.extend_from_slice(&piece.map_err(transport::fault)?);
        if bytes.len() > most {
            return Err(Fault::malformed(format!("an answer of more than {} KiB", most >> 10)));
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

async fn whole(
    response: Response,
    patience: Patience,
    decoder: &mut Decoder,
    draft: &mut Draft<'_>,
) -> Result<(), Fault> {
    let text =
        timeout(patience.next(), body(response, stream::MOST)).await.map_err(|_| patience.over())??;
    let value: Value =
        json::parse(&text).map_err(|error| Fault::malformed(format!("the answer is not JSON: {error}")))?;
    decoder.whole(draft, &value)
}

async fn streamed(
    bytes: impl Stream<Item = Result<Bytes, Fault>> + Send + Unpin + 'static,
    mut patience: Patience,
    decoder: &mut Decoder,
    draft: &mut Draft<'_>,
) -> Result<(), Fault> {
    let (mut events, heard) = stream::events(bytes);
    let mut known = 0;
    loop {
        let event = match timeout(patience.next(), events.next()).await {
            Ok(event) => event,
            // Keep-alives are no events, but a server that sends them is not silent.
            Err(_) if heard.bytes() > known && Instant::now() < patience.deadline => {
                known = heard.bytes();
                continue;
            }
            Err(_) => return Err(patience.over()),
        };
        let data = match event {
            None => return Ok(()),
            Some(Ok(data)) => data,
            Some(Err(broken @ Broken::Lost(_))) => {
                return Err(Fault::new(Class::Dropped, broken.to_string()));
            }
            Some(Err(broken)) => return Err(Fault::malformed(broken.to_string())),
        };
        known = heard.bytes();
        match decoder.event(draft, &data)? {
            Flow::More if draft.finish.is_some() => patience.silence = patience.silence.min(AFTERMATH),
            Flow::More => {}
            Flow::Done => {
                // Whatever still comes is of no interest, and if nothing does, neither is that.
                while let Ok(Some(Ok(_))) = timeout(GOODBYE, events.next()).await {}
                return Ok(());
            }
        }
    }
}
