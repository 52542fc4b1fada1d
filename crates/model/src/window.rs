//! How long a conversation a model can take. The owner knows best, then the server, then what is published about a name; else
//! nobody knows, and nothing is made up.
//!
//! | server | where it says so |
//! |---|---|
//! | vLLM and alike | `/models`: `max_model_len`, `context_length`, `context_window` |
//! | llama.cpp | `/props`: `default_generation_settings.n_ctx` |
//! | LM Studio | `/api/v1/models`: the context of the loaded model |
//! | Ollama | `/api/ps` for a model that is loaded, else `/api/show`; it is asked for with each request |
//! | OpenRouter | `/models`: `context_length` |
//! | Anthropic | `/v1/models/MODEL`: `max_input_tokens` |

use std::sync::PoisonError;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use crate::attempt;
use crate::client::{Client, key};
use crate::endpoint::{Api, Endpoint};

/// How long all probes together may take.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest answer to a probe; the list of OpenRouter has some megabytes.
const LONGEST: usize = 32 << 20;
/// A window is more than this.
const LEAST: u64 = 256;
/// Remembered windows.
const MOST: usize = 256;

/// A model's window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    /// In tokens, if anybody knows.
    pub tokens: Option<u64>,
    /// Who said so.
    pub source: WindowSource,
}

/// Who knows a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WindowSource {
    /// The owner.
    Config,
    /// The server.
    Server,
    /// What is published about models of this name.
    Name,
    /// Nobody.
    Unknown,
}

impl Client {
    /// The window of a model. Servers are asked once, all at the same time, and for no longer than some seconds.
    pub async fn window(&self, endpoint: &Endpoint) -> Window {
        let known =
            self.shared.windows.lock().unwrap_or_else(PoisonError::into_inner).get(&key(endpoint)).copied();
        if let Some(known) = known {
            return known;
        }
        let told = timeout(PATIENCE, self.probe(endpoint)).await.unwrap_or_default();
        let window = match (endpoint.window, told, by_name(&endpoint.model)) {
            (Some(tokens), ..) => Window { tokens: Some(tokens), source: WindowSource::Config },
            (None, Some(tokens), _) => Window { tokens: Some(tokens), source: WindowSource::Server },
            (None, None, Some(tokens)) => Window { tokens: Some(tokens), source: WindowSource::Name },
            (None, None, None) => Window { tokens: None, source: WindowSource::Unknown },
        };
        // Who did not answer may do so later.
        if matches!(window.source, WindowSource::Config | WindowSource::Server) {
            let mut windows = self.shared.windows.lock().unwrap_or_else(PoisonError::into_inner);
            if windows.len() >= MOST {
                windows.clear();
            }
            windows.insert(key(endpoint), window);
        }
        window
    }

    /// What the server says. A server that only one question suits gets only that.
    async fn probe(&self, endpoint: &Endpoint) -> Option<u64> {
        let (list, one) = match endpoint.api {
            Api::AnthropicMessages => ("/v1/models", format!("/v1/models/{}", endpoint.model)),
            Api::ChatCompletions | Api::Responses => ("/models", format!("/models/{}", endpoint.model)),
        };
        let list = self.look(endpoint, endpoint.url(list), None);
        let one = async {
            let info = self.look(endpoint, endpoint.url(&one), None).await?;
            info.get("max_input_tokens").and_then(Value::as_u64)
        };
        if !endpoint.is_local() {
            return match endpoint.api {
                Api::AnthropicMessages => one.await,
                Api::ChatCompletions | Api::Responses => of_list(&list.await?, &endpoint.model),
            };
        }
        let named = json!({"model": endpoint.model});
        let (list, one, props, studio, show, loaded) = tokio::join!(
            list,
            one,
            self.look(endpoint, endpoint.beside("/props"), None),
            self.look(endpoint, endpoint.beside("/api/v1/models"), None),
            self.look(endpoint, endpoint.beside("/api/show"), Some(&named)),
            self.look(endpoint, endpoint.beside("/api/ps"), None),
        );
        if let Some(show) = show.filter(|show| show.get("model_info").is_some()) {
            return self.ollama(endpoint, &show, loaded.as_ref());
        }
        let of_props = props.as_ref().and_then(|props| {
            let own = props.pointer("/default_generation_settings/n_ctx").or_else(|| props.get("n_ctx"));
            own.and_then(Value::as_u64)
        });
        let of_studio = studio.as_ref().and_then(|studio| of_studio(studio, &endpoint.model));
        let of_list = list.as_ref().and_then(|list| of_list(list, &endpoint.model));
        of_props.or(of_studio).or(of_list).or(one).filter(|tokens| *tokens > LEAST)
    }

    /// Ollama loads a model with a window of a few thousand tokens unless it is told otherwise, and cuts silently what is
    /// longer. So it is told, and what is loaded counts for more than what could be.
    fn ollama(&self, endpoint: &Endpoint, show: &Value, loaded: Option<&Value>) -> Option<u64> {
        let parameters = show.get("parameters").and_then(Value::as_str).unwrap_or_default();
        let mut words = parameters.lines().filter_map(|line| line.trim().strip_prefix("num_ctx"));
        let in_file = words.find_map(|rest| rest.trim().parse::<u64>().ok());
        let info = show.get("model_info").and_then(Value::as_object);
        let trained = info.and_then(|info| {
            info.iter()
                .find(|(key, _)| key.ends_with(".context_length"))
                .and_then(|(_, value)| value.as_u64())
        });
        let asked =
            endpoint.extra.get("options").and_then(|options| options.get("num_ctx")).and_then(Value::as_u64);
        let chosen =
            asked.or(in_file).or(trained).map(|tokens| tokens.min(endpoint.window.unwrap_or(tokens)));
        if asked.is_none() {
            self.remember(endpoint, |manner| manner.num_ctx = chosen);
        }
        let running = loaded.and_then(|loaded| {
            let models = loaded.get("models").and_then(Value::as_array)?;
            let own = models
                .iter()
                .find(|one| ["name", "model"].iter().any(|key| one[*key] == endpoint.model.as_str()))?;
            own.get("context_length").and_then(Value::as_u64)
        });
        running.or(chosen).filter(|tokens| *tokens > LEAST)
    }

    /// Asks one question; every failure is no answer.
    async fn look(&self, endpoint: &Endpoint, url: reqwest::Url, body: Option<&Value>) -> Option<Value> {
        let headers = attempt::headers(endpoint).await.ok()?;
        let client = self.shared.transport.client(&url).ok()?;
        let request = match body {
            Some(body) => client.post(url).body(body.to_string()),
            None => client.get(url),
        };
        let response = request.headers(headers).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        serde_json::from_str(&attempt::body(response, LONGEST).await.ok()?).ok()
    }
}

/// From a list of models.
fn of_list(list: &Value, model: &str) -> Option<u64> {
    let models = list.get("data").and_then(Value::as_array)?;
    let own = models.iter().find(|one| one["id"] == model);
    // A server with one model serves it under any name.
    let own = own.or_else(|| models.first().filter(|_| models.len() == 1))?;
    let keys = ["/max_model_len", "/context_length", "/context_window", "/max_context_length", "/meta/n_ctx"];
    keys.iter().find_map(|path| own.pointer(path)?.as_u64()).filter(|tokens| *tokens > LEAST)
}

/// From LM Studio's own list.
fn of_studio(list: &Value, model: &str) -> Option<u64> {
    let models = list.get("models").or_else(|| list.get("data")).and_then(Value::as_array)?;
    let own = models.iter().find(|one| ["key", "id"].iter().any(|key| one[*key] == model))?;
    let loaded =
        own.pointer("/loaded_instances/0/config/context_length").or_else(|| own.get("loaded_context_length"));
    loaded.or_else(|| own.get("max_context_length")).and_then(Value::as_u64)
}

/// What vendors publish about their families; the first that fits.
fn by_name(model: &str) -> Option<u64> {
    let name = model.rsplit('/').next().unwrap_or(model).to_lowercase();
    FAMILIES.iter().find(|(family, _)| name.starts_with(family)).map(|(_, tokens)| *tokens)
}

/// Only families whose window is the same wherever they are served.
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
    fn lists_of_all_kinds_are_read() {
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
            assert_eq!(of_list(&list, "m"), expected, "{list}");
        }
        let studio = json!({"models": [{"key": "m", "loaded_instances": [{"config": {"context_length": 4096}}], "max_context_length": 131072}]});
        assert_eq!(of_studio(&studio, "m"), Some(4096));
    }

    #[test]
    fn names_are_known_with_and_without_their_vendor() {
        assert_eq!(by_name("anthropic/claude-sonnet-4-5"), Some(200_000));
        assert_eq!(by_name("gpt-5-mini"), Some(400_000));
        assert_eq!(by_name("llama3"), None);
    }
}
