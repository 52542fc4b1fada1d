//! Turns the settings of models into a chain of endpoints. The settings and keys are read here;
//! [`hermes_model::provider`] chooses the servers.

use std::path::{Path, PathBuf};

use hermes_agent::{LoopGuardConfig, ModelConfig};
use hermes_model::provider::{ModelChoice, ProviderSettings};
use hermes_model::{Album, Client, Effort, Endpoint, EnvProxies, Sight, Url, claude_code};
use hermes_types::Secret;
use serde_json::{Map, Value, json};

use super::local;
use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::keys::{self, Config};

/// The models to be asked, in their order, and how.
#[derive(Debug, Clone, PartialEq)]
pub struct Models {
    pub chain: Vec<Endpoint>,
    pub effort: Option<Effort>,
    pub max_output: Option<u32>,
    /// Where the key of the first one is from; none if it has none.
    pub key_from: Option<String>,
}

/// The client for all requests of this process.
pub fn client(context: &ConfigContext) -> Client {
    let first = |names: &[&str]| names.iter().find_map(|name| context.variable(name)?.parse::<Url>().ok());
    let proxy = EnvProxies {
        // A program that serves web pages gets this one from strangers, in capitals.
        http: first(&["http_proxy", "ALL_PROXY", "all_proxy"]),
        https: first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
        exceptions: ["NO_PROXY", "no_proxy"]
            .iter()
            .find_map(|name| context.variable(name))
            .unwrap_or_default()
            .to_owned(),
    };
    Client::new(proxy)
}

/// The models of the configuration. `chosen` is what the command line says, which goes before everything.
pub fn models(context: &ConfigContext, config: &Config, chosen: Option<&str>) -> Result<Models, Failure> {
    let settings = &config.model;
    let choice = ModelChoice {
        provider: settings.provider.clone(),
        model: chosen.unwrap_or(&settings.default).to_owned(),
        base_url: Some(settings.base_url.clone()),
        api_key: settings.api_key.clone(),
        key_env: None,
    };
    let variable = |name: &str| context.loaded.layers.filled(name);
    let claude_code = || claude_code_file(context);
    let providers = ProviderSettings {
        servers: &config.general.providers.0,
        variable: &variable,
        claude_code: &claude_code,
        max_attempts: u32::try_from(config.agent.api_max_retries).unwrap_or(u32::MAX),
        openrouter_routing: routing(config),
    };
    let selected = providers.select(&choice).map_err(|error| fault(&error))?;
    let (mut first, key_from) = (selected.endpoint, selected.key_source);
    let headers = settings.default_headers.0.iter().map(|(name, value)| (name.clone(), Secret::new(value)));
    first.headers.extend(headers);
    first.context_window = settings.context_length.or(first.context_window);
    if let Some(num_ctx) = settings.ollama_num_ctx {
        first.extra_fields.insert("options".to_owned(), json!({"num_ctx": num_ctx}));
    }
    let mut chain = vec![first];
    for choice in &config.general.fallback_providers.0 {
        match providers.select(choice) {
            Ok(selected) => chain.push(selected.endpoint),
            Err(error) => tracing::warn!(%error, "skipping a fallback model"),
        }
    }
    let effort = match config.agent.reasoning_effort {
        keys::Effort::Auto => None,
        keys::Effort::None => Some(Effort::None),
        keys::Effort::Minimal => Some(Effort::Minimal),
        keys::Effort::Low => Some(Effort::Low),
        keys::Effort::Medium => Some(Effort::Medium),
        keys::Effort::High => Some(Effort::High),
        keys::Effort::Xhigh => Some(Effort::Xhigh),
    };
    let max_output = settings.max_tokens.map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    Ok(Models { chain, effort, max_output, key_from })
}

/// Something about a model did not work.
pub fn fault(error: &hermes_model::Error) -> Failure {
    let kind = match error.class() {
        None | Some(hermes_model::FailureClass::Auth | hermes_model::FailureClass::ModelNotFound) => {
            FailureKind::Configuration
        }
        Some(_) => FailureKind::Unavailable,
    };
    let failure = Failure::new(kind, error.to_string());
    error.hints().into_iter().fold(failure, Failure::hint)
}

/// The credentials file of Claude Code, if it has a valid token.
fn claude_code_file(context: &ConfigContext) -> Option<PathBuf> {
    let path = Path::new(&local::owner_home(context)).join(".claude").join(".credentials.json");
    std::fs::read_to_string(&path).is_ok_and(|text| claude_code::has_token(&text)).non_blank_variable(path)
}

/// The field `provider` of requests to OpenRouter.
fn routing(config: &Config) -> Map<String, Value> {
    let routing = &config.provider_routing;
    let mut fields = Map::new();
    for (name, list) in [("only", &routing.only), ("ignore", &routing.ignore), ("order", &routing.order)] {
        if !list.is_empty() {
            fields.insert(name.to_owned(), json!(list));
        }
    }
    for (name, word) in [("sort", &routing.sort), ("data_collection", &routing.data_collection)] {
        if let Some(word) = word {
            fields.insert(name.to_owned(), json!(word));
        }
    }
    if routing.require_parameters {
        fields.insert("require_parameters".to_owned(), true.into(), None)
            }
            ("custom", None, None) => {
                return Err(Failure::new(
                    FailureKind::Configuration,
                    "model.provider is custom, but there is no address",
                )
                .hint(
                    "`hermes config set model.base_url http://localhost:8000/v1` says where the server is",
                ));
            }
            ("auto" | "", None, None) => match (self.variable("OPENAI_BASE_URL"), self.keyed()) {
                (Some(base), _) => ("custom".to_owned(), base, None),
                (None, Some(known)) => (known.id.to_owned(), self.address(wish, known), Some(known)),
                (None, None) => return Err(no_provider(model)),
            },
            (other, None, None) => return Err(unknown_provider(other, servers.keys())),
        };
        let url = address(&base_url, &name)?;
        let api = match own.and_then(|server| server.transport.as_deref()) {
            Some(word) => Api::from_word(word).ok_or_else(|| {
                Failure::new(
                    FailureKind::Configuration,
                    format!("providers.{name}.transport: `{word}` is not known"),
                )
                .hint("it is chat_completions, anthropic_messages or codex_responses")
            })?,
            None => match known.filter(|known| known.base_url != base_url) {
                // Another address of a provider speaks as the provider does.
                Some(known) => known.api,
                None => provider::api(&name, &url, model),
            },
        };
        let mut endpoint = Endpoint::new(name, api, url, model);
        let (credentials, key_from) = self.credentials(wish, own, known, &endpoint);
        endpoint.credentials = credentials;
        endpoint.retries.attempts = u32::try_from(self.config.agent.api_max_retries).unwrap_or(u32::MAX);
        if let Some(server) = own {
            limits(&mut endpoint, server);
        }
        if endpoint.provider == "openrouter" {
            let routing = self.routing();
            if !routing.is_empty() {
                endpoint.extra.insert("provider".to_owned(), routing.into());
            }
        }
        let is_open = matches!(endpoint.credentials, Credentials::None);
        match known.filter(|_| is_open && !endpoint.is_local()) {
            Some(known) => Err(no_key(known)),
            None => Ok((endpoint, key_from)),
        }
    }

    /// The first provider there is a key for.
    fn keyed(&self) -> Option<&'static Provider> {
        let has_key = |known: &&Provider| known.keys.iter().any(|name| self.variable(name).is_some());
        provider::ALL.iter().find(has_key)
    }

    fn address(&self, wish: &Wish<'_>, known: &Provider) -> String {
        let variable = || known.base_url_variable.and_then(|name| self.variable(name));
        match wish.base_url {
            "" => variable().unwrap_or_else(|| known.base_url.to_owned()),
            said => said.to_owned(),
        }
    }

    fn credentials(
        &self,
        wish: &Wish<'_>,
        own: Option<&Server>,
        known: Option<&Provider>,
        endpoint: &Endpoint,
    ) -> (Credentials, Option<String>) {
        let said = wish.api_key.or_else(|| own.and_then(|server| server.api_key.as_ref()));
        if let Some(key) = said.filter(|key| !key.expose().trim().is_empty()) {
            return (Credentials::Key(key.clone()), Some("config.yaml".to_owned()));
        }
        let named = wish.key_env.or_else(|| own.and_then(|server| server.key_env.as_deref()));
        let host = provider::at(&endpoint.base_url);
        if named.is_none() && host.is_some_and(|host| host.id == "anthropic") {
            let path = Path::new(&local::owner_home(self.context)).join(".claude").join(".credentials.json");
            // One that has ended must not stand before a key.
            if std::fs::read_to_string(&path).is_ok_and(|text| claude_code::has_token(&text)) {
                let from = path.display().to_string();
                return (Credentials::ClaudeCode(path), Some(from));
            }
        }
        let names: Vec<&str> = match (named, host.or(known), own) {
            (Some(name), ..) => vec![name],
            (None, Some(provider), _) => provider.keys.to_vec(),
            (None, None, Some(_)) => Vec::new(),
            (None, None, None) => vec!["OPENAI_API_KEY"],
        };
        let found = names.iter().find_map(|name| Some((self.variable(name)?, (*name).to_owned())));
        match found {
            Some((key, name)) => (Credentials::Key(Secret::new(key)), Some(name)),
            None => (Credentials::None, None),
        }
    }

    fn routing(&self) -> Map<String, Value> {
        let routing = &self.config.provider_routing;
        let mut fields = Map::new();
        for (name, list) in [("only", &routing.only), ("ignore", &routing.ignore), ("order", &routing.order)]
        {
            if !list.is_empty() {
                fields.insert(name.to_owned(), json!(list));
            }
        }
        for (name, word) in [("sort", &routing.sort), ("data_collection", &routing.data_collection)] {
            if let Some(word) = word {
                fields.insert(name.to_owned(), json!(word));
            }
        }
        if routing.require_parameters {
            fields.insert("require_parameters".to_owned(), true.into());
        }
        fields
    }
}

fn limits(endpoint: &mut Endpoint, server: &Server) {
    let model = server.models.get(&endpoint.model).copied().unwrap_or_default();
    if let Some(seconds) = model.timeout_seconds.or(server.request_timeout_seconds) {
        endpoint.timeouts.total = Duration::from_secs(seconds);
    }
    let silence = model.stale_timeout_seconds.or(server.stale_timeout_seconds);
    endpoint.timeouts.silence = silence.map(Duration::from_secs);
    endpoint.window = model.context_length;
}

fn address(text: &str, name: &str) -> Result<Url, Failure> {
    let url = text
        .trim()
        .parse::<Url>()
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| {
        Failure::new(FailureKind::Configuration, format!("the address of {name}, `{text}`, is not one"))
            .hint("it begins with http:// or https://, such as http://localhost:8000/v1")
    })
}

fn no_model() -> Failure {
    Failure::new(FailureKind::Configuration, "no model is configured")
        .hint("`hermes config set model.default NAME` says which one")
        .hint("`hermes config set OPENROUTER_API_KEY -` stores the key of a provider, which may be any other")
        .hint(
            "`hermes config set model.base_url http://localhost:11434/v1` uses a server of your own instead",
        )
}

fn no_provider(model: &str) -> Failure {
    Failure::new(
        FailureKind::Configuration,
        format!("nobody is known who serves {model}: there is no key and no address"),
    )
    .hint("`hermes config set OPENROUTER_API_KEY -` stores the key of a provider, which may be any other")
    .hint("`hermes config set model.base_url http://localhost:11434/v1` uses a server of your own instead")
}

fn no_key(known: &Provider) -> Failure {
    let name = known.keys.first().copied().unwrap_or_default();
    Failure::new(FailureKind::Configuration, format!("there is no key for {}", known.id))
        .hint(format!("`hermes config set {name} -` stores it in the secrets file"))
}
    Failure::new(FailureKind::Configuration, format!("`{name}` is no provider this version knows"))
        .hint(format!("it knows {}", names.join(", ")))
        .hint("`providers:` in config.yaml adds servers of your own")
}

/// Who answers.
pub fn mind(
    context: &ConfigContext,
    config: &Config,
    client: Client,
    chosen: Option<&str>,
) -> Result<ModelConfig, Failure> {
    let models = models(context, config, chosen)?;
    let album = Album::new(context.home.path());
    Ok(ModelConfig {
        client,
        endpoints: models.chain,
        max_output: models.max_output,
        effort: models.effort,
        image_mode: match config.agent.image_input_mode {
            keys::ImageInput::Auto => Sight::Auto(album),
            keys::ImageInput::Native => Sight::Native(album),
            keys::ImageInput::Text => Sight::Text,
        },
        max_model_calls: u32::try_from(config.agent.max_turns).unwrap_or(u32::MAX),
        loop_guard: LoopGuardConfig::default(),
    })
}
