//! The chain of model endpoints. [`hermes_model::provider`] chooses the servers.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hermes_agent::{ApprovalReviewer, LoopGuardConfig, LoopLimits, ModelConfig};
use hermes_exec::Audience;
use hermes_model::provider::{ModelChoice, ProviderSettings, ServerSettings};
use hermes_model::{Client, Effort, Endpoint, EnvProxies, Url, claude_code};
use hermes_policy::ApprovalMode;
use hermes_policy::redact::Redactor;
use hermes_store::ImageStore;
use hermes_types::Secret;
use serde_json::{Map, Value, json};

use super::local;
use crate::ConfigContext;
use crate::failure::{Failure, FailureKind};
use crate::keys::Config;

/// The models in the order in which they are tried.
#[derive(Debug, Clone, PartialEq)]
pub struct Models {
    pub chain: Vec<Endpoint>,
    pub effort: Option<Effort>,
    pub max_output: Option<u32>,
    /// The source of the key of the first model, if it has a key.
    pub key_source: Option<String>,
}

/// The client for all requests of this process.
pub fn client(context: &ConfigContext) -> Client {
    let first = |names: &[&str]| names.iter().find_map(|name| context.variable(name)?.parse::<Url>().ok());
    let proxy = EnvProxies {
        // A CGI server sets HTTP_PROXY from a header of the request, so only lower case counts.
        http: first(&["http_proxy", "ALL_PROXY", "all_proxy"]),
        https: first(&["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"]),
        exceptions: ["NO_PROXY", "no_proxy"]
            .iter()
            .find_map(|name| context.variable(name))
            .unwrap_or_default()
            .to_owned(),
    };
    let images = ImageStore::new(context.home.path());
    Client::new(proxy, move |image| images.load(image))
}

/// The models of the configuration. `chosen`, from the command line, replaces the first one.
pub fn models(context: &ConfigContext, config: &Config, chosen: Option<&str>) -> Result<Models, Failure> {
    with_providers(context, config, |providers| main_models(config, providers, chosen))
}

fn with_providers<T>(
    context: &ConfigContext,
    config: &Config,
    use_providers: impl FnOnce(&ProviderSettings<'_>) -> T,
) -> T {
    let variable = |name: &str| context.loaded.layers.non_blank_variable(name);
    let claude_code = || {
        let path = Path::new(&local::owner_home(context)).join(".claude/.credentials.json");
        std::fs::read_to_string(&path).is_ok_and(|text| claude_code::has_token(&text)).then_some(path)
    };
    let servers = servers(config);
    use_providers(&ProviderSettings {
        servers: &servers,
        variable: &variable,
        claude_code: &claude_code,
        max_attempts: u32::try_from(config.agent.api_max_retries).unwrap_or(u32::MAX),
        openrouter_routing: routing(config),
    })
}

/// The servers of both sections; `providers` counts first.
fn servers(config: &Config) -> BTreeMap<String, ServerSettings> {
    let mut servers = config.general.providers.clone();
    for server in &config.general.custom_providers {
        let name = server.name.clone().unwrap_or_default();
        let is_known = servers.keys().any(|known| known.trim().eq_ignore_ascii_case(name.trim()));
        if !is_known {
            servers.insert(name, server.clone());
        }
    }
    servers
}

fn main_models(
    config: &Config,
    providers: &ProviderSettings<'_>,
    chosen: Option<&str>,
) -> Result<Models, Failure> {
    let settings = &config.model;
    let choice = ModelChoice {
        provider: settings.provider.clone(),
        model: chosen.unwrap_or(&settings.default).to_owned(),
        base_url: Some(settings.base_url.clone()),
        api_key: settings.api_key.clone(),
        key_env: settings.key_env.clone(),
        api_mode: settings.api_mode,
    };
    let selected = providers.select(&choice).map_err(|error| model_failure(&error))?;
    let (mut first, key_source) = (selected.endpoint, selected.key_source);
    let headers = settings.default_headers.iter().map(|(name, value)| (name.clone(), Secret::new(value)));
    first.headers.extend(headers);
    first.context_window = nonzero(settings.context_length).or(first.context_window);
    first.ollama_num_ctx = nonzero(settings.ollama_num_ctx);
    let mut chain = vec![first];
    for choice in config.general.fallback_providers.iter().chain(&config.general.fallback_model) {
        match providers.select(choice) {
            Ok(selected) => chain.push(selected.endpoint),
            Err(error) => tracing::warn!(%error, "skipping a fallback model"),
        }
    }
    let max_output = nonzero(settings.max_tokens).map(|tokens| u32::try_from(tokens).unwrap_or(u32::MAX));
    Ok(Models { chain, effort: config.agent.reasoning_effort, max_output, key_source })
}

/// A limit; 0 means that there is none, as in the Python program.
fn nonzero(limit: Option<u64>) -> Option<u64> {
    limit.filter(|limit| *limit > 0)
}

/// The model that is asked before a person, if the mode is `smart` and a model is configured.
pub fn approval_reviewer(
    context: &ConfigContext,
    config: &Config,
    redactor: Redactor,
) -> Option<ApprovalReviewer> {
    if config.approvals.mode != ApprovalMode::Smart {
        return None;
    }
    let mut endpoints = match review_models(context, config) {
        Ok(endpoints) => endpoints,
        Err(failure) => {
            context.warn(&format!(
                "approvals.mode is smart, but no model can review commands: {}",
                failure.message
            ));
            return None;
        }
    };
    let timeout = Duration::from_secs(config.auxiliary_approval.timeout);
    for endpoint in &mut endpoints {
        endpoint.timeouts.total = endpoint.timeouts.total.min(timeout);
    }
    let home = context.home.path().to_owned();
    Some(ApprovalReviewer { client: client(context), endpoints, timeout, redactor, home })
}

/// The chain of `auxiliary.approval`, which without a provider or server is that of the main model.
fn review_models(context: &ConfigContext, config: &Config) -> Result<Vec<Endpoint>, Failure> {
    let settings = &config.auxiliary_approval;
    let model = Some(settings.model.trim()).filter(|model| !model.is_empty());
    let is_main =
        matches!(settings.provider.trim(), "" | "auto" | "main") && settings.base_url.trim().is_empty();
    if is_main {
        return Ok(models(context, config, model)?.chain);
    }
    let choice = ModelChoice {
        provider: settings.provider.clone(),
        model: model.unwrap_or(&config.model.default).to_owned(),
        base_url: Some(settings.base_url.clone()),
        api_key: settings.api_key.clone(),
        key_env: None,
        api_mode: None,
    };
    let selected = with_providers(context, config, |providers| providers.select(&choice));
    Ok(vec![selected.map_err(|error| model_failure(&error))?.endpoint])
}

/// The failure of a model request, with hints.
pub fn model_failure(error: &hermes_model::Error) -> Failure {
    let kind = match error.class() {
        None | Some(hermes_model::FailureClass::Auth | hermes_model::FailureClass::ModelNotFound) => {
            FailureKind::Configuration
        }
        Some(_) => FailureKind::Unavailable,
    };
    Failure { kind, message: error.to_string(), hints: error.hints() }
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
        fields.insert("require_parameters".to_owned(), true.into());
    }
    fields
}

/// The configuration of the models of a session. Only turns in chats have a limit for inactivity: at the
/// terminal, the owner sees that nothing happens.
pub fn model_config(
    context: &ConfigContext,
    config: &Config,
    client: Client,
    chosen: Option<&str>,
    audience: Audience,
) -> Result<ModelConfig, Failure> {
    let models = models(context, config, chosen)?;
    Ok(ModelConfig {
        client,
        endpoints: models.chain,
        max_output: models.max_output,
        effort: models.effort,
        image_mode: config.agent.image_input_mode,
        max_model_calls: u32::try_from(config.agent.max_turns).unwrap_or(u32::MAX),
        idle_timeout: match audience {
            Audience::Others => nonzero(Some(config.agent.gateway_timeout)).map(Duration::from_secs),
            Audience::Owner => None,
        },
        loop_guard: loop_guard(config),
    })
}

fn loop_guard(config: &Config) -> LoopGuardConfig {
    let count = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let (switches, warn, stop) = (&config.loop_guardrails, &config.loop_warn_after, &config.loop_stop_after);
    let warn_after = LoopLimits {
        same_failure: count(warn.exact_failure),
        tool_failure: count(warn.same_tool_failure),
        same_result: count(warn.idempotent_no_progress),
    };
    let stop_after = LoopLimits {
        same_failure: count(stop.exact_failure),
        tool_failure: count(stop.same_tool_failure),
        same_result: count(stop.idempotent_no_progress),
    };
    LoopGuardConfig {
        warn_after: switches.warnings_enabled.then_some(warn_after),
        stop_after: switches.hard_stop_enabled.then_some(stop_after),
    }
}
