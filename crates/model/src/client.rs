//! Retries, recoveries and fallbacks around single attempts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hermes_net::{EnvProxies, Url};
use hermes_types::Image;

use crate::attempt::{self, FailedAttempt};
use crate::context_window::ServerFacts;
use crate::endpoint::{Api, ApiCredentials, Endpoint, Retries};
use crate::error::{Error, FailureClass, RequestFailure};
use crate::reply::{Prompt, Reply, ReplyEvent};
use crate::reply_builder::{EventSink, TextEvents};
use crate::transport::Transport;
use crate::vision::{ImageLoader, ImageMode, ImageSelection, VisionState};
use crate::wire::{ModelRequest, ServerQuirks};

/// How often a lost connection is opened again without a delay.
const MAX_RECONNECTS: u32 = 2;
/// Servers and sessions that are remembered.
const MAX_REMEMBERED: usize = 256;
/// The smallest output limit that leaves space for a reply.
const MIN_OUTPUT_TOKENS: u64 = 256;

/// Talks to models. A process has one; clones share connections and the facts learned about
/// servers.
#[derive(Clone)]
pub struct Client {
    pub(crate) state: Arc<ClientState>,
}

pub(crate) struct ClientState {
    pub(crate) transport: Transport,
    load_image: ImageLoader,
    /// By protocol, server and model. When too many are known, all are forgotten.
    facts: Mutex<HashMap<(Api, Url, String), EndpointFacts>>,
    /// Sessions whose earlier reasoning a server rejected; it would reject it again.
    reasoning_rejected: Mutex<Vec<String>>,
}

/// The facts learned about a model at a server.
#[derive(Default)]
pub(crate) struct EndpointFacts {
    quirks: ServerQuirks,
    vision: VisionState,
    /// The answers of the server to our probes, once it gave any.
    pub(crate) server: Option<ServerFacts>,
}

impl ClientState {
    pub(crate) fn with_facts<T>(
        &self,
        endpoint: &Endpoint,
        access: impl FnOnce(&mut EndpointFacts) -> T,
    ) -> T {
        let key = (endpoint.api, endpoint.base_url.clone(), endpoint.model.clone());
        let mut known = self.facts.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= MAX_REMEMBERED && !known.contains_key(&key) {
            known.clear();
        }
        access(known.entry(key).or_default())
    }
}

impl Client {
    /// Creates a client that uses these proxies and this source of image bytes. It opens no
    /// connection yet.
    pub fn new(
        proxies: EnvProxies,
        load_image: impl Fn(&Image) -> Option<Vec<u8>> + Send + Sync + 'static,
    ) -> Self {
        Self {
            state: Arc::new(ClientState {
                transport: Transport::new(proxies),
                load_image: Arc::new(load_image),
                facts: Mutex::default(),
                reasoning_rejected: Mutex::default(),
            }),
        }
    }

    /// Asks the models of the chain in turn until one replies. Dropping the future closes the
    /// connection.
    pub async fn complete(
        &self,
        chain: &[Endpoint],
        prompt: &Prompt<'_>,
        events: &mut (dyn FnMut(ReplyEvent) + Send),
    ) -> Result<Reply, Error> {
        let mut rest = chain.iter().peekable();
        let Some(mut endpoint) = rest.next() else { return Err(Error::NoModel) };
        loop {
            // The same model again is no fallback.
            while rest
                .next_if(|next| next.model == endpoint.model && next.base_url == endpoint.base_url)
                .is_some()
            {}
            let (prepared, overflow) = self.prepare(endpoint, prompt).await;
            let call = EndpointCall::new(self, &prepared, prompt, rest.peek().is_none());
            let result = match overflow {
                Some(overflow) => Err(overflow),
                None => call.run(events).await,
            };
            let failure = match result {
                Ok(reply) => return Ok(reply),
                Err(failure) => failure,
            };
            tracing::warn!(
                provider = endpoint.provider,
                model = endpoint.model,
                class = ?failure.class,
                %failure,
                "model request failed"
            );
            let Some(next) = rest.next().filter(|_| failure.class.falls_back()) else {
                let (provider, model) = (endpoint.provider.clone(), endpoint.model.clone());
                return Err(Error::Failed { provider, model, failure: Box::new(failure) });
            };
            events(ReplyEvent::Fallback { from: display_name(endpoint), to: display_name(next) });
            endpoint = next;
        }
    }

    /// The known quirks of a server.
    fn quirks(&self, endpoint: &Endpoint, session: &str) -> ServerQuirks {
        let mut quirks = self.state.with_facts(endpoint, |facts| facts.quirks.clone());
        let rejected = self.state.reasoning_rejected.lock().unwrap_or_else(PoisonError::into_inner);
        quirks.drop_reasoning = rejected.iter().any(|known| known == session);
        quirks
    }

    fn remember_quirks(&self, endpoint: &Endpoint, session: &str, quirks: &ServerQuirks) {
        if quirks.drop_reasoning {
            let mut rejected = self.state.reasoning_rejected.lock().unwrap_or_else(PoisonError::into_inner);
            if rejected.len() >= MAX_REMEMBERED {
                rejected.remove(0);
            }
            rejected.push(session.to_owned());
        }
        let lasting = ServerQuirks { max_output: None, drop_reasoning: false, ..quirks.clone() };
        self.state.with_facts(endpoint, |facts| facts.quirks = lasting);
    }
}

/// One endpoint being asked, over all attempts.
struct EndpointCall<'a> {
    client: &'a Client,
    endpoint: &'a Endpoint,
    prompt: &'a Prompt<'a>,
    is_last: bool,
    quirks: ServerQuirks,
    images: ImageSelection<'a>,
    failures: u32,
    reconnects: u32,
    /// The reply of an attempt that lost its connection in a tool call, after its text was shown.
    partial: Option<Box<Reply>>,
}

impl<'a> EndpointCall<'a> {
    fn new(client: &'a Client, endpoint: &'a Endpoint, prompt: &'a Prompt<'a>, is_last: bool) -> Self {
        let state = &client.state;
        let images =
            state.with_facts(endpoint, |facts| ImageSelection::new(endpoint, prompt.messages, &facts.vision));
        Self {
            client,
            endpoint,
            prompt,
            is_last,
            quirks: client.quirks(endpoint, prompt.session),
            images,
            failures: 0,
            reconnects: 0,
            partial: None,
        }
    }

    /// Asks until there is a reply, or asking again would not help.
    async fn run(mut self, events: EventSink<'_>) -> Result<Reply, RequestFailure> {
        loop {
            let images = self.images.load(self.prompt.image_mode, &self.client.state.load_image).await;
            let request =
                ModelRequest { endpoint: self.endpoint, prompt: self.prompt, quirks: &self.quirks, images };
            let text_events = if self.partial.is_some() { TextEvents::Mute } else { TextEvents::Emit };
            match attempt::request_reply(&self.client.state.transport, request, text_events, events).await {
                Ok(reply) => {
                    self.client.state.with_facts(self.endpoint, |facts| facts.vision.record(&self.images));
                    return Ok(reply);
                }
                Err(FailedAttempt { failure, partial }) => {
                    self.partial = self.partial.or(partial);
                    if let Err(failure) = self.prepare_retry(failure, events).await {
                        return self.partial.map(|reply| *reply).ok_or(failure);
                    }
                }
            }
        }
    }

    /// Changes the request or waits, so that asking again may help. Fails if nothing helps.
    async fn prepare_retry(
        &mut self,
        mut failure: RequestFailure,
        events: EventSink<'_>,
    ) -> Result<(), RequestFailure> {
        let provider = &self.endpoint.provider;
        if let Some(quirks) = recover(self.endpoint, &self.quirks, &failure) {
            tracing::info!(provider, class = ?failure.class, %failure, "adapting the request to the server");
            self.client.remember_quirks(self.endpoint, self.prompt.session, &quirks);
            self.quirks = quirks;
            return Ok(());
        }
        let may_drop_images = self.prompt.image_mode == ImageMode::Auto;
        if may_drop_images && failure.may_be_about_images() && self.images.drop_some(failure.class) {
            tracing::info!(provider, %failure, "retrying with fewer images");
            return Ok(());
        }
        if failure.class == FailureClass::Dropped && self.reconnects < MAX_RECONNECTS {
            self.reconnects += 1;
            return Ok(());
        }
        if self.partial.is_some() {
            return Err(failure);
        }
        self.failures += 1;
        let may_retry = failure.class.is_transient() && self.failures < self.endpoint.retries.max_attempts;
        if may_retry && (self.is_last || !failure.class.falls_back_immediately()) {
            let delay = retry_delay(&self.endpoint.retries, &failure, self.failures);
            events(ReplyEvent::Retrying { reason: failure.message, delay, attempt: self.failures });
            tokio::time::sleep(delay).await;
            return Ok(());
        }
        // If there is no space for a reply, the conversation is too long.
        if failure.class == FailureClass::OutputCap {
            failure.class = FailureClass::ContextOverflow;
        }
        // A fallback model may accept the images.
        let is_final = self.is_last || !failure.class.falls_back();
        if may_drop_images && is_final && failure.may_pass_without_images() && self.images.drop_all() {
            tracing::info!(provider, %failure, "retrying without images");
            return Ok(());
        }
        Err(failure)
    }
}

fn display_name(endpoint: &Endpoint) -> String {
    format!("{} ({})", endpoint.model, endpoint.provider)
}

/// Quirks that avoid what the server rejected. Each can be added only once, so this ends.
fn recover(endpoint: &Endpoint, quirks: &ServerQuirks, failure: &RequestFailure) -> Option<ServerQuirks> {
    let mut better = quirks.clone();
    match failure.class {
        FailureClass::StreamUnsupported => better.no_streaming = true,
        FailureClass::Grammar => better.simplify_schemas = true,
        FailureClass::ReasoningRejected => better.drop_reasoning = true,
        FailureClass::ReasoningMissing => better.replay_all_reasoning = true,
        FailureClass::Auth => {
            let Some(ApiCredentials::ClaudeCode { key: Some(_), .. }) = endpoint.credentials else {
                return None;
            };
            better.token_rejected = true;
        }
        FailureClass::OutputCap if quirks.max_output.is_none() => {
            better.max_output = Some(failure.available_output.filter(|left| *left >= MIN_OUTPUT_TOKENS)?);
        }
        FailureClass::Parameter => {
            let field = failure.parameter.as_deref()?.split('.').next()?;
            if !OPTIONAL_FIELDS.contains(&field) {
                return None;
            }
            better.rejected_fields.insert(field.to_owned());
        }
        _ => return None,
    }
    (better != *quirks).then_some(better)
}

/// The fields that a request can omit, or has another name for.
const OPTIONAL_FIELDS: &[&str] = &[
    "include", "max_completion_tokens", "max_tokens", "options", "output_config", "parallel_tool_calls",
    "prompt_cache_key", "reasoning", "reasoning_effort", "shift", "stream_options", "think", "thinking",
    "usage", "verbosity",
];

/// The delay before the next attempt: as the provider asked, or doubled with each failure, plus up
/// to half of it at random so that clients do not retry in step.
fn retry_delay(retries: &Retries, failure: &RequestFailure, failures: u32) -> Duration {
    if let Some(asked) = failure.retry_after {
        return asked;
    }
    let (initial, max) = match failure.class {
        FailureClass::Malformed => (retries.initial_delay.mul_f32(2.5), retries.max_delay * 2),
        _ => (retries.initial_delay, retries.max_delay),
    };
    let delay = initial.saturating_mul(2_u32.saturating_pow(failures.saturating_sub(1))).min(max);
    let random = getrandom::u32().map_or(0.0, |number| f64::from(number) / f64::from(u32::MAX));
    delay + delay.mul_f64(random / 2.0)
}

#[cfg(test)]
mod tests {
    use hermes_types::{Digest, Image, ImageKind, Message};

    use super::*;

    #[test]
    fn delays_double_up_to_the_maximum_with_random_jitter() {
        let retries = Retries::default();
        let failure = RequestFailure::new(FailureClass::Server, "x");
        for (failures, seconds) in [(1, 2.0), (2, 4.0), (3, 8.0), (6, 60.0), (40, 60.0)] {
            let wait = retry_delay(&retries, &failure, failures).as_secs_f64();
            assert!((seconds..=seconds * 1.5).contains(&wait), "{failures}: {wait}");
        }
        let asked = RequestFailure { retry_after: Some(Duration::from_secs(7)), ..failure };
        assert_eq!(retry_delay(&retries, &asked, 1), Duration::from_secs(7));
    }

    #[test]
    fn each_recovery_is_tried_once() {
        let mut endpoint = Endpoint::new("x", Api::ChatCompletions, "http://h/v1".parse().unwrap(), "m");
        let key = Some(hermes_types::Secret::new("k"));
        endpoint.credentials = Some(ApiCredentials::ClaudeCode { path: "c".into(), key });
        let failure = |class| RequestFailure {
            available_output: Some(1000),
            parameter: Some("reasoning.effort".to_owned()),
            ..RequestFailure::new(class, "x")
        };
        let classes = [
            FailureClass::StreamUnsupported,
            FailureClass::Grammar,
            FailureClass::Auth,
            FailureClass::ReasoningMissing,
            FailureClass::ReasoningRejected,
            FailureClass::OutputCap,
            FailureClass::Parameter,
        ];
        for class in classes {
            let better = recover(&endpoint, &ServerQuirks::default(), &failure(class)).unwrap();
            assert_eq!(recover(&endpoint, &better, &failure(class)), None, "{class:?}");
        }
        assert_eq!(recover(&endpoint, &ServerQuirks::default(), &failure(FailureClass::Format)), None);
        let essential =
            RequestFailure { parameter: Some("messages".to_owned()), ..failure(FailureClass::Parameter) };
        assert_eq!(recover(&endpoint, &ServerQuirks::default(), &essential), None);
    }

    #[test]
    fn facts_about_images_learned_by_other_calls_are_kept() {
        let client = Client::new(EnvProxies::default(), |_| None);
        let endpoint = Endpoint::new("x", Api::ChatCompletions, "http://h/v1".parse().unwrap(), "m");
        let image = Image { sha256: Digest::new([1; 32]), kind: ImageKind::Gif, size: 1 };
        let messages = [Message::User { text: String::new(), images: vec![image] }];
        let state = &client.state;
        let select =
            || state.with_facts(&endpoint, |facts| ImageSelection::new(&endpoint, &messages, &facts.vision));
        let quirks = client.quirks(&endpoint, "one");
        let mut other = select();
        assert!(other.drop_some(FailureClass::Format));
        state.with_facts(&endpoint, |facts| facts.vision.record(&other));
        client.remember_quirks(&endpoint, "one", &ServerQuirks { no_streaming: true, ..quirks });
        assert!(client.quirks(&endpoint, "one").no_streaming);
        assert!(!select().drop_some(FailureClass::Format), "the image is sent again");
    }
}
