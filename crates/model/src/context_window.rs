//! The context window of a model. The configuration comes first, then the server, then the
//! published size for the model's name; otherwise it is unknown, and nothing is guessed.
//!
//! | server | source |
//! |---|---|
//! | vLLM and similar | `/models`: `max_model_len`, `context_length`, `context_window` |
//! | llama.cpp | `/props`: `default_generation_settings.n_ctx` |
//! | LM Studio | `/api/v1/models`: the context of the loaded model |
//! | Ollama | `/api/ps` for a loaded model, else the configuration and `/api/show` |
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

impl Client {
    /// The window of a model in tokens, if it is known. Asks its server, for at most a few seconds.
    pub async fn context_window(&self, endpoint: &Endpoint) -> Option<u64> {
        if endpoint.context_window.is_some() {
            return endpoint.context_window;
        }
        let probed = timeout(PROBE_TIMEOUT, self.probe_window(endpoint)).await.unwrap_or_default();
        probed.or_else(|| window_by_name(&endpoint.model))
    }

    /// Asks the server. A local server may be of any kind, so all questions are asked at once.
    async fn probe_window(&self, endpoint: &Endpoint) -> Option<u64> {
        let get = |url| self.probe_json(endpoint, url, None);
        let is_messages = endpoint.api == Api::AnthropicMessages;
        let list_path = if is_messages { "/v1/models" } else { "/models" };
        let list = get(endpoint.url(list_path));
        let one = get(endpoint.url(&format!("{list_path}/{}", endpoint.model)));
        if !endpoint.is_local() && is_messages {
            return one.await["max_input_tokens"].as_u64();
        } else if !endpoint.is_local() {
            return window_from_list(&list.await, &endpoint.model);
        }
        let named = json!({"model": endpoint.model});
        let (list, one, props, studio, show, loaded) = tokio::join!(
            list,
            one,
            get(endpoint.root_url("/props")),
            get(endpoint.root_url("/api/v1/models")),
            self.probe_json(endpoint, endpoint.root_url("/api/show"), Some(&named)),
            get(endpoint.root_url("/api/ps")),
        );
        if show.get("model_info").is_some() {
            return window_from_ollama(endpoint, &show, &loaded);
        }
        let props = [&props["default_generation_settings"]["n_ctx"], &props["n_ctx"]];
        let from_props = props.into_iter().find_map(Value::as_u64);
        let from_lists =
            [&studio, &list].into_iter().find_map(|list| window_from_list(list, &endpoint.model));
        let tokens = from_props.or(from_lists).or(one["max_input_tokens"].as_u64());
        tokens.filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
    }

    /// Requests a document; every failure gives null.
    async fn probe_json(&self, endpoint: &Endpoint, url: hermes_net::Url, body: Option<&Value>) -> Value {
        let document = async {
            let headers = attempt::headers(endpoint).await.ok()?;
            let client = self.state.transport.client(&url).ok()?;
            let request = match body {
                Some(body) => client.post(url).body(body.to_string()),
                None => client.get(url),
            };
            let response = request.headers(headers).send().await.ok()?.error_for_status().ok()?;
            serde_json::from_str(&attempt::read_text(response, MAX_PROBE_BYTES).await.ok()?).ok()
        };
        document.await.unwrap_or_default()
    }
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

/// Ollama loads a model with a window of a few thousand tokens unless a request asks for more, and
/// silently truncates longer prompts. So the window of a loaded model counts for more than the
/// possible one.
fn window_from_ollama(endpoint: &Endpoint, show: &Value, loaded: &Value) -> Option<u64> {
    let mut models = loaded["models"].as_array().into_iter().flatten();
    let running = models.find(|one| one["name"] == endpoint.model || one["model"] == endpoint.model);
    let running = running.and_then(|running| running["context_length"].as_u64());
    let asked = || endpoint.extra_fields.get("options")?["num_ctx"].as_u64();
    let parameters = show["parameters"].as_str().unwrap_or_default();
    let mut values = parameters.lines().filter_map(|line| line.trim().strip_prefix("num_ctx"));
    let from_modelfile = || values.find_map(|rest| rest.trim().parse::<u64>().ok());
    let mut info = show["model_info"].as_object().into_iter().flatten();
    let trained = || info.find(|(key, _)| key.ends_with(".context_length"))?.1.as_u64();
    let window = running.or_else(asked).or_else(from_modelfile).or_else(trained);
    window.filter(|tokens| *tokens > MIN_WINDOW_TOKENS)
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
