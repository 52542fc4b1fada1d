//! The context window of a model. The configuration comes first, then the server, then the
//! published size for the model's name; otherwise it is unknown, and nothing is guessed.
//!
//! | server | source |
//! |---|---|
//! | vLLM and similar | `/models`: `max_model_len`, `context_length`, `context_window` |
//! | llama.cpp | `/props`: `default_generation_settings.n_ctx` |
//! | LM Studio | `/api/v1/models`: the context of the loaded model |
//! | Ollama | `/api/show`: the Modelfile, else the size that the model was trained for |
//! | OpenRouter | `/models`: `context_length` |
//! | Anthropic | `/v1/models/MODEL`: `max_input_tokens` |
//!
//! A server of the owner is asked once, before its first request: Ollama needs another protocol to
//! respect the window, and some servers cut a prompt that does not fit. Hosted providers refuse such
//! a prompt, so only `doctor` asks them.

use std::borrow::Cow;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::attempt;
use crate::client::Client;
use crate::endpoint::{Api, Endpoint};
use crate::error::{FailureClass, RequestFailure};
use crate::reply::Prompt;
use crate::transport;
use crate::wire::ServerQuirks;

/// For all probes together.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// OpenRouter's list of models has several megabytes.
const MAX_PROBE_BYTES: usize = 32 << 20;
const MIN_WINDOW_TOKENS: u64 = 256;
/// The first version of Ollama that can refuse a prompt instead of cutting it.
const OLLAMA_WITH_TRUNCATE: (u32, u32, u32) = (0, 12, 6);

/// What a server answered to our probes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ServerFacts {
    kind: ServerKind,
    /// In tokens, without the configuration.
    window: Option<u64>,
    /// The tokens that the model was trained for: Ollama never uses a larger window.
    max_window: Option<u64>,
}

/// Kinds of servers, by what they do with a prompt that is too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ServerKind {
    /// Refuses it if asked to.
    Ollama,
    /// Cuts it.
    OldOllama,
    /// Cuts it, depending on its settings.
    LmStudio,
    /// Refuses it.
    Other,
}

impl ServerKind {
    const fn is_ollama(self) -> bool {
        matches!(self, Self::Ollama | Self::OldOllama)
    }

    const fn may_cut_prompts(self) -> bool {
        matches!(self, Self::OldOllama | Self::LmStudio)
    }
}

impl ServerFacts {
    /// The window that requests to this endpoint have.
    fn window(&self, endpoint: &Endpoint) -> Option<u64> {
        let requested = endpoint.ollama_num_ctx.filter(|_| self.kind.is_ollama());
        let window = requested.or(endpoint.context_window).or(self.window)?;
        Some(self.max_window.map_or(window, |max| window.min(max)))
    }
}

impl Client {
    /// The window of a model in tokens, if it is known. Asks its server, for at most a few seconds
    /// and only until it answers.
    pub async fn context_window(&self, endpoint: &Endpoint) -> Option<u64> {
        if endpoint.context_window.is_some() && !is_own_server(endpoint) {
            return endpoint.context_window;
        }
        let facts = self.server_facts(endpoint).await.ok();
        let window = facts.map_or(endpoint.context_window, |facts| facts.window(endpoint));
        window.or_else(|| window_by_name(&endpoint.model))
    }

    /// The endpoint as the server needs it, and the failure if the server is not trusted or would cut
    /// the prompt.
    pub(crate) async fn prepare<'e>(
        &self,
        endpoint: &'e Endpoint,
        prompt: &Prompt<'_>,
    ) -> (Cow<'e, Endpoint>, Option<RequestFailure>) {
        if !is_own_server(endpoint) {
            return (Cow::Borrowed(endpoint), None);
        }
        let facts = match self.server_facts(endpoint).await {
            Ok(facts) => facts,
            Err(failure) => {
                let untrusted = Some(failure).filter(|failure| failure.class == FailureClass::Untrusted);
                return (Cow::Borrowed(endpoint), untrusted);
            }
        };
        let window = facts.window(endpoint);
        let overflow = match window {
            Some(window) if facts.kind.may_cut_prompts() => overflow(prompt, window),
            _ => None,
        };
        let mut prepared = Cow::Borrowed(endpoint);
        if facts.kind.is_ollama() && matches!(endpoint.api, Api::ChatCompletions | Api::OllamaChat) {
            let prepared = prepared.to_mut();
            prepared.api = Api::OllamaChat;
            prepared.context_window = window;
        }
        (prepared, overflow)
    }

    /// Asks the server, unless it has answered before.
    async fn server_facts(&self, endpoint: &Endpoint) -> Result<ServerFacts, RequestFailure> {
        if let Some(known) = self.state.with_facts(endpoint, |facts| facts.server) {
            return Ok(known);
        }
        // A server that does not answer is asked again with the next request.
        let no_answer = |_elapsed| RequestFailure::new(FailureClass::Timeout, "the server does not answer");
        let probed = timeout(PROBE_TIMEOUT, self.probe_server(endpoint)).await.map_err(no_answer)??;
        self.state.with_facts(endpoint, |facts| facts.server = Some(probed));
        Ok(probed)
    }

    /// Asks the server. One of the owner may be of any kind, so all other questions are asked at
    /// once when it has answered the first.
    async fn probe_server(&self, endpoint: &Endpoint) -> Result<ServerFacts, RequestFailure> {
        let get = |url| self.probe_json(endpoint, url, None);
        let is_messages = endpoint.api == Api::AnthropicMessages;
        let list_path = if is_messages { "/v1/models" } else { "/models" };
        let list_url = if endpoint.api == Api::OllamaChat {
            endpoint.root_url("/v1/models")
        } else {
            endpoint.url(list_path)
        };
        let list = get(list_url);
        let one = get(endpoint.url(&format!("{list_path}/{}", endpoint.model)));
        let other = |window| ServerFacts { kind: ServerKind::Other, window, max_window: None };
        if !is_own_server(endpoint) {
            return Ok(other(match is_messages {
                true => one.await?["max_input_tokens"].as_u64(),
                false => window_from_list(&list.await?, &endpoint.model),
            }));
        }
        let list = list.await?;
        let named = json!({"model": endpoint.model});
        let (one, props, studio, show, version) = tokio::try_join!(
            one,
            get(endpoint.root_url("/props")),
            get(endpoint.root_url("/api/v1/models")),
            self.probe_json(endpoint, endpoint.root_url("/api/show"), Some(&named)),
            get(endpoint.root_url("/api/version")),
        )?;
        if show.get("model_info").is_some() {
            let is_new = version["version"].as_str().and_then(parse_version) >= Some(OLLAMA_WITH_TRUNCATE);
            let kind = if is_new { ServerKind::Ollama } else { ServerKind::OldOllama };
            let max_window = trained_window(&show);
            return Ok(ServerFacts { kind, window: modelfile_window(&show).or(max_window), max_window });
        }
        let from_studio = window_from_list(&studio, &endpoint.model);
        let props = [&props["default_generation_settings"]["n_ctx"], &props["n_ctx"]];
        let tokens = props.into_iter().find_map(Value::as_u64).or(from_studio);
        let tokens = tokens.or_else(|| window_from_list(&list, &endpoint.model));
        let tokens = tokens.or(one["max_input_tokens"].as_u64());
        let kind = if from_studio.is_some() { ServerKind::LmStudio } else { ServerKind::Other };
        Ok(ServerFacts { kind, ..other(tokens.filter(|tokens| *tokens > MIN_WINDOW_TOKENS)) })
    }

    /// Requests a document: null if the server answers with anything else.
    async fn probe_json(
        &self,
        endpoint: &Endpoint,
        url: hermes_net::Url,
        body: Option<&Value>,
    ) -> Result<Value, RequestFailure> {
        let headers = attempt::headers(endpoint, &ServerQuirks::default()).await?;
        let client = self.state.transport.client(&url)?;
        let request = match body {
            Some(body) => client.post(url).body(body.to_string()),
            None => client.get(url),
        };
        let response = request.headers(headers).send().await.map_err(transport::failure)?;
        let Ok(response) = response.error_for_status() else { return Ok(Value::Null) };
        let text = attempt::read_text(response, MAX_PROBE_BYTES).await?;
        Ok(serde_json::from_str(&text).unwrap_or_default())
    }
}

/// Whether the server may need the checks that hosted providers do not.
fn is_own_server(endpoint: &Endpoint) -> bool {
    endpoint.is_local() || endpoint.api == Api::OllamaChat
}

/// The failure for a prompt that does not fit. Its tokens are only estimated, so a quarter is added.
fn overflow(prompt: &Prompt<'_>, window: u64) -> Option<RequestFailure> {
    let tokens = u64::try_from(prompt.estimated_tokens()).unwrap_or(u64::MAX);
    let needed = tokens.saturating_add(tokens / 4);
    (needed > window).then(|| {
        let message = format!(
            "the conversation needs about {needed} tokens, and the server would cut it to its context window of \
             {window} tokens"
        );
        RequestFailure::new(FailureClass::ContextOverflow, message)
    })
}

/// Three numbers, as in `0.12.6-rc1`.
fn parse_version(text: &str) -> Option<(u32, u32, u32)> {
    let mut numbers = text.split(['.', '-', '+']).map(str::parse::<u32>);
    let mut next = || numbers.next()?.ok();
    Some((next()?, next()?, next()?))
}

/// Reads a list of models: that of OpenAI-compatible servers, or LM Studio's own.
fn window_from_list(list: &Value, model: &str) -> Option<u64> {
    let models = list.get("data").or_else(|| list.get("models"))?.as_array()?;
    let own = models.iter().find(|one| one["id"] == model || one["key"] == model);
    // A server with only one model serves it under any name.
    let own = own.or_else(|| models.first().filter(|_| models.len() == 1))?;
    let keys = [
        "/loaded_instances/0/config/context_length",
        "/loaded_context_length",
        "/max_model_len",
        "/context_length",
        "/context_window",
        "/max_context_length",
        "/meta/n_ctx",
    ];
    keys.iter().find_map(|path| own.pointer(path)?.as_u64()).filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
}

/// The window of an Ollama model's own settings.
fn modelfile_window(show: &Value) -> Option<u64> {
    let parameters = show["parameters"].as_str().unwrap_or_default();
    let mut values = parameters.lines().filter_map(|line| line.trim().strip_prefix("num_ctx"));
    values.find_map(|rest| rest.trim().parse().ok()).filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
}

fn trained_window(show: &Value) -> Option<u64> {
    let mut info = show["model_info"].as_object().into_iter().flatten();
    let tokens = info.find(|(key, _)| key.ends_with(".context_length"))?.1.as_u64();
    tokens.filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
}

fn window_by_name(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    FAMILIES.iter().find(|(family, _)| name.starts_with(family)).map(|(_, tokens)| *tokens)
}

/// The published windows of model families that have the same window at every provider; the first
/// match counts.
const FAMILIES: &[(&str, u64)] = &[
    ("claude-3", 200_000),
    ("claude-haiku-4-5", 200_000),
    ("claude-sonnet-4-5", 200_000),
    ("claude-opus-4-5", 200_000),
    ("gpt-4o", 128_000),
    ("gpt-4.1", 1_047_576),
    ("o1", 200_000),
    ("o3", 200_000),
    ("o4-mini", 200_000),
    ("gpt-5-chat", 128_000),
    ("gpt-5", 400_000),
    ("gemini-2", 1_048_576),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_kinds_of_model_lists_are_read() {
        let cases = [
            (json!({"data": [{"id": "m", "max_model_len": 8192}]}), Some(8192)),
            (json!({"data": [{"id": "other", "max_model_len": 8192}]}), Some(8192)),
            (
                json!({"data": [{"id": "x", "context_length": 1}, {"id": "m", "context_length": 131072}]}),
                Some(131_072),
            ),
            (
                json!({"data": [{"id": "x", "context_length": 4096}, {"id": "y", "context_length": 4096}]}),
                None,
            ),
            (json!({"data": [{"id": "m"}]}), None),
            (json!({"data": 7}), None),
        ];
        for (list, expected) in cases {
            assert_eq!(window_from_list(&list, "m"), expected, "{list}");
        }
        let studio = json!({"models": [{"key": "m", "loaded_instances": [{"config": {"context_length": 4096}}], "max_context_length": 131072}]});
        assert_eq!(window_from_list(&studio, "m"), Some(4096));
    }

    #[test]
    fn model_names_match_with_and_without_a_vendor() {
        assert_eq!(window_by_name("anthropic/claude-sonnet-4-5"), Some(200_000));
        assert_eq!(window_by_name("gpt-5-mini"), Some(400_000));
        assert_eq!(window_by_name("llama3"), None);
    }
}
