//! The context window of a model. The configuration comes first, then the server, then the
//! published size for the model's name; otherwise it is unknown, and nothing is guessed.
//!
//! | server | source |
//! |---|---|
//! | vLLM and similar | `/models`: `max_model_len`, `context_length`, `context_window` |
//! | llama.cpp | `/props`: `default_generation_settings.n_ctx` |
//! | LM Studio | `/api/v1/models`: the context of the loaded model |
//! | Ollama | `/api/ps` for a loaded model, else `/api/show`; each request asks for this window |
//! | OpenRouter | `/models`: `context_length` |
//! | Anthropic | `/v1/models/MODEL`: `max_input_tokens` |

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::attempt;
use crate::client::Client;
use crate::endpoint::{Api, Endpoint};

/// For all probes together.
const PROBE_TIMEOUT: Duration = Duration::from_secs(3);
/// OpenRouter's list of models has several megabytes.
const MAX_PROBE_BYTES: usize = 32 << 20;
const MIN_WINDOW_TOKENS: u64 = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ContextWindow {
    /// None if the size is unknown.
    pub tokens: Option<u64>,
    pub source: WindowSource,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    Config,
    Server,
    /// The published size for models of this name.
    Name,
    Unknown,
}

impl Client {
    /// The window of a model. Asks its server once, for at most a few seconds.
    pub async fn context_window(&self, endpoint: &Endpoint) -> ContextWindow {
        if let Some(known) = self.state.with_facts(endpoint, |facts| facts.window) {
            return known;
        }
        let probed = timeout(PROBE_TIMEOUT, self.probe_window(endpoint)).await.unwrap_or_default();
        let sources = [
            (endpoint.context_window, WindowSource::Config),
            (probed, WindowSource::Server),
            (window_by_name(&endpoint.model), WindowSource::Name),
        ];
        let known = sources.into_iter().find(|(tokens, _)| tokens.is_some());
        let (tokens, source) = known.unwrap_or((None, WindowSource::Unknown));
        let window = ContextWindow { tokens, source };
        // A server that did not respond may do so later.
        if matches!(window.source, WindowSource::Config | WindowSource::Server) {
            self.state.with_facts(endpoint, |facts| facts.window = Some(window));
        }
        window
    }

    /// Asks the server. A local server may be of any kind, so all questions are asked at once.
    async fn probe_window(&self, endpoint: &Endpoint) -> Option<u64> {
        let (list, one) = match endpoint.api {
            Api::AnthropicMessages => ("/v1/models", format!("/v1/models/{}", endpoint.model)),
            Api::ChatCompletions | Api::Responses => ("/models", format!("/models/{}", endpoint.model)),
        };
        let list = self.probe_json(endpoint, endpoint.url(list), None);
        let one = async {
            let info = self.probe_json(endpoint, endpoint.url(&one), None).await?;
            info.get("max_input_tokens").and_then(Value::as_u64)
        };
        if !endpoint.is_local() {
            return match endpoint.api {
                Api::AnthropicMessages => one.await,
                Api::ChatCompletions | Api::Responses => window_from_list(&list.await?, &endpoint.model),
            };
        }
        let named = json!({"model": endpoint.model});
        let (list, one, props, studio, show, loaded) = tokio::join!(
            list,
            one,
            self.probe_json(endpoint, endpoint.root_url("/props"), None),
            self.probe_json(endpoint, endpoint.root_url("/api/v1/models"), None),
            self.probe_json(endpoint, endpoint.root_url("/api/show"), Some(&named)),
            self.probe_json(endpoint, endpoint.root_url("/api/ps"), None),
        );
        if let Some(show) = show.filter(|show| show.get("model_info").is_some()) {
            return self.window_from_ollama(endpoint, &show, loaded.as_ref());
        }
        let from_props = props.as_ref().and_then(|props| {
            let own = props.pointer("/default_generation_settings/n_ctx").or_else(|| props.get("n_ctx"));
            own.and_then(Value::as_u64)
        });
        let from_studio = studio.as_ref().and_then(|studio| window_from_lm_studio(studio, &endpoint.model));
        let from_list = list.as_ref().and_then(|list| window_from_list(list, &endpoint.model));
        from_props.or(from_studio).or(from_list).or(one).filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
    }

    /// Ollama loads a model with a window of a few thousand tokens unless a request asks for more,
    /// and silently truncates longer prompts. So each request asks for it, and the window of a
    /// loaded model counts for more than the possible one.
    fn window_from_ollama(&self, endpoint: &Endpoint, show: &Value, loaded: Option<&Value>) -> Option<u64> {
        let parameters = show.get("parameters").and_then(Value::as_str).unwrap_or_default();
        let mut values = parameters.lines().filter_map(|line| line.trim().strip_prefix("num_ctx"));
        let from_modelfile = values.find_map(|rest| rest.trim().parse::<u64>().ok());
        let info = show.get("model_info").and_then(Value::as_object);
        let mut lengths = info.into_iter().flatten().filter(|(key, _)| key.ends_with(".context_length"));
        let trained = lengths.next().and_then(|(_, value)| value.as_u64());
        let options = endpoint.extra_fields.get("options");
        let asked = options.and_then(|options| options.get("num_ctx")?.as_u64());
        let chosen = asked.or(from_modelfile).or(trained);
        let chosen = chosen.map(|tokens| tokens.min(endpoint.context_window.unwrap_or(tokens)));
        if asked.is_none() {
            self.state.with_facts(endpoint, |facts| facts.quirks.num_ctx = chosen);
        }
        let running = loaded.and_then(|loaded| {
            let models = loaded.get("models").and_then(Value::as_array)?;
            let is_own =
                |one: &&Value| ["name", "model"].iter().any(|key| one[*key] == endpoint.model.as_str());
            models.iter().find(is_own)?.get("context_length")?.as_u64()
        });
        running.or(chosen).filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
    }

    /// Requests a document; every failure gives none.
    async fn probe_json(
        &self,
        endpoint: &Endpoint,
        url: hermes_net::Url,
        body: Option<&Value>,
    ) -> Option<Value> {
        let headers = attempt::headers(endpoint).await.ok()?;
        let client = self.state.transport.client(&url).ok()?;
        let request = match body {
            Some(body) => client.post(url).body(body.to_string()),
            None => client.get(url),
        };
        let response = request.headers(headers).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_str(&attempt::read_text(response, MAX_PROBE_BYTES).await.ok()?).ok()
    }
}

/// Reads the list of models that OpenAI-compatible servers have.
fn window_from_list(list: &Value, model: &str) -> Option<u64> {
    let models = list.get("data").and_then(Value::as_array)?;
    let own = models.iter().find(|one| one["id"] == model);
    // A server with only one model serves it under any name.
    let own = own.or_else(|| models.first().filter(|_| models.len() == 1))?;
    let keys = ["/max_model_len", "/context_length", "/context_window", "/max_context_length", "/meta/n_ctx"];
    keys.iter().find_map(|path| own.pointer(path)?.as_u64()).filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
}

/// Reads LM Studio's own list of models.
fn window_from_lm_studio(list: &Value, model: &str) -> Option<u64> {
    let models = list.get("models").or_else(|| list.get("data")).and_then(Value::as_array)?;
    let own = models.iter().find(|one| ["key", "id"].iter().any(|key| one[*key] == model))?;
    let loaded =
        own.pointer("/loaded_instances/0/config/context_length").or_else(|| own.get("loaded_context_length"));
    loaded.or_else(|| own.get("max_context_length")).and_then(Value::as_u64)
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
        assert_eq!(window_from_lm_studio(&studio, "m"), Some(4096));
    }

    #[test]
    fn model_names_match_with_and_without_a_vendor() {
        assert_eq!(window_by_name("anthropic/claude-sonnet-4-5"), Some(200_000));
        assert_eq!(window_by_name("gpt-5-mini"), Some(400_000));
        assert_eq!(window_by_name("llama3"), None);
    }
}
