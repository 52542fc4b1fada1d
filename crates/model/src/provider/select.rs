//! Chooses the endpoint and the credentials for a model from plain settings.
//!
//! The configured provider comes first, then a configured address, then the first provider that has
//! a key. The key of a provider goes only to its own host; a server that no provider owns may get
//! `OPENAI_API_KEY`, as in Hermes Agent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use hermes_net::Url;
use hermes_types::Secret;
use serde::Serialize;
use serde_json::{Map, Value};

use super::{PROVIDERS, Provider, by_host, by_name, detect_api};
use crate::endpoint::{Api, ApiCredentials, Endpoint};
use crate::error::Error;

/// A server of the configuration's section `providers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServerSettings {
    #[serde(rename = "api")]
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    /// The variable that holds the key.
    pub key_env: Option<String>,
    /// The keyword of an [`Api`].
    pub transport: Option<String>,
    pub default_model: Option<String>,
    pub request_timeout_seconds: Option<u64>,
    pub stale_timeout_seconds: Option<u64>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub models: BTreeMap<String, ServerModelSettings>,
}

/// Settings for one model of a server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct ServerModelSettings {
    pub timeout_seconds: Option<u64>,
    pub stale_timeout_seconds: Option<u64>,
    pub context_length: Option<u64>,
}

/// A model as the configuration names it. An empty provider or model is unset.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelChoice {
    pub provider: String,
    pub model: String,
    /// Overrides the provider's address.
    pub base_url: Option<String>,
    /// Overrides the provider's key.
    pub api_key: Option<Secret>,
    /// The variable that holds the key.
    pub key_env: Option<String>,
}

/// The settings that all choices share.
pub struct ProviderSettings<'a> {
    pub servers: &'a BTreeMap<String, ServerSettings>,
    /// Looks up a variable that is set and not empty.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    /// The credentials file of Claude Code, if it has a valid token.
    pub claude_code: &'a dyn Fn() -> Option<PathBuf>,
    pub max_attempts: u32,
    /// The field `provider` of requests to OpenRouter.
    pub openrouter_routing: Map<String, Value>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SelectedEndpoint {
    pub endpoint: Endpoint,
    /// The variable or file that the key comes from, if there is a key.
    pub key_source: Option<String>,
}

/// The provider or server that a choice resolves to.
struct SelectionTarget<'a> {
    name: String,
    base_url: String,
    provider: Option<&'static Provider>,
    server: Option<&'a ServerSettings>,
}

impl<'a> ProviderSettings<'a> {
    pub fn select(&self, choice: &ModelChoice) -> Result<SelectedEndpoint, Error> {
        let server = self.servers.get(choice.provider.trim());
        let model = match choice.model.trim() {
            "" => server.and_then(|server| server.default_model.as_deref()).unwrap_or_default(),
            model => model,
        };
        if model.is_empty() {
            return Err(Error::NoModel);
        }
        let target = self.target(choice, server, model)?;
        let url = parse_base_url(&target)?;
        let mut endpoint = Endpoint::new(target.name.clone(), target.api(&url, model)?, url, model);
        let (credentials, key_source) = self.credentials(choice, &target, &endpoint).unzip();
        endpoint.credentials = credentials;
        endpoint.retries.max_attempts = self.max_attempts;
        if let Some(server) = target.server {
            server.apply_limits(&mut endpoint);
        }
        if endpoint.provider == "openrouter" && !self.openrouter_routing.is_empty() {
            endpoint.extra_fields.insert("provider".to_owned(), self.openrouter_routing.clone().into());
        }
        let needs_key = endpoint.credentials.is_none() && !endpoint.is_local();
        match target.provider.filter(|_| needs_key) {
            Some(provider) => Err(Error::NoKey { provider }),
            None => Ok(SelectedEndpoint { endpoint, key_source }),
        }
    }

    fn target(
        &self,
        choice: &ModelChoice,
        server: Option<&'a ServerSettings>,
        model: &str,
    ) -> Result<SelectionTarget<'a>, Error> {
        let chosen_url = choice.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let custom = |name: &str, base_url: &str| SelectionTarget {
            name: name.to_owned(),
            base_url: base_url.to_owned(),
            provider: None,
            server,
        };
        let known = |provider: &'static Provider| {
            let from_variable = (self.variable)(provider.base_url_variable);
            let base_url = chosen_url.or(from_variable.as_deref()).unwrap_or(provider.base_url);
            SelectionTarget { provider: Some(provider), ..custom(provider.id, base_url) }
        };
        let name = choice.provider.trim();
        if let Some(server) = server {
            return Ok(custom(name, chosen_url.or(server.base_url.as_deref()).unwrap_or_default()));
        }
        if let Some(provider) = by_name(name) {
            return Ok(known(provider));
        }
        let has_key =
            |provider: &&Provider| provider.key_variables.iter().any(|name| (self.variable)(name).is_some());
        match (name, chosen_url) {
            ("auto" | "" | "custom", Some(url)) => Ok(custom("custom", url)),
            ("custom", None) => Err(Error::NoBaseUrl),
            ("auto" | "", None) => {
                let from_variable = (self.variable)("OPENAI_BASE_URL").map(|url| custom("custom", &url));
                let target = from_variable.or_else(|| PROVIDERS.iter().find(has_key).map(known));
                target.ok_or_else(|| Error::NoProvider { model: model.to_owned() })
            }
            (other, _) => {
                let ids = PROVIDERS.iter().map(|provider| provider.id.to_owned());
                let known = ids.chain(self.servers.keys().cloned()).collect();
                Err(Error::UnknownProvider { name: other.to_owned(), known })
            }
        }
    }

    fn credentials(
        &self,
        choice: &ModelChoice,
        target: &SelectionTarget<'_>,
        endpoint: &Endpoint,
    ) -> Option<(ApiCredentials, String)> {
        let key = choice.api_key.as_ref().or_else(|| target.server?.api_key.as_ref());
        if let Some(key) = key.filter(|key| !key.expose().trim().is_empty()) {
            return Some((ApiCredentials::Key(key.clone()), "config.yaml".to_owned()));
        }
        let named = choice.key_env.as_deref().or_else(|| target.server?.key_env.as_deref());
        let host_owner = by_host(&endpoint.base_url);
        // An expired token must not take precedence over a key.
        if named.is_none()
            && host_owner.is_some_and(|provider| provider.id == "anthropic")
            && let Some(path) = (self.claude_code)()
        {
            let source = path.display().to_string();
            return Some((ApiCredentials::ClaudeCode(path), source));
        }
        let names = match (&named, host_owner.or(target.provider), target.server) {
            (Some(name), ..) => std::slice::from_ref(name),
            (None, Some(provider), _) => provider.key_variables,
            (None, None, Some(_)) => &[],
            (None, None, None) => &["OPENAI_API_KEY"],
        };
        let (key, name) = names.iter().find_map(|name| Some(((self.variable)(name)?, *name)))?;
        Some((ApiCredentials::Key(Secret::new(key)), name.to_owned()))
    }
}

impl SelectionTarget<'_> {
    fn api(&self, url: &Url, model: &str) -> Result<Api, Error> {
        let transport = self.server.and_then(|server| server.transport.as_deref());
        match (transport, self.provider) {
            (Some(transport), _) => transport.parse().map_err(|_unknown| Error::UnknownTransport {
                server: self.name.clone(),
                transport: transport.to_owned(),
            }),
            // Another address of a provider speaks the provider's protocol.
            (None, Some(provider)) if provider.base_url != self.base_url => Ok(provider.api),
            (None, _) => Ok(detect_api(url, model)),
        }
    }
}

impl ServerSettings {
    fn apply_limits(&self, endpoint: &mut Endpoint) {
        let model = self.models.get(&endpoint.model).copied().unwrap_or_default();
        if let Some(seconds) = model.timeout_seconds.or(self.request_timeout_seconds) {
            endpoint.timeouts.total = Duration::from_secs(seconds);
        }
        let idle = model.stale_timeout_seconds.or(self.stale_timeout_seconds);
        endpoint.timeouts.idle = idle.map(Duration::from_secs);
        endpoint.context_window = model.context_length;
    }
}

fn parse_base_url(target: &SelectionTarget<'_>) -> Result<Url, Error> {
    let url = target.base_url.trim().parse::<Url>().ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| Error::InvalidBaseUrl {
        provider: target.name.clone(),
        base_url: target.base_url.clone(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn select(choice: ModelChoice, variables: &[(&str, &str)]) -> Result<SelectedEndpoint, Error> {
        let variable = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        let settings = ProviderSettings {
            servers: &BTreeMap::new(),
            variable: &variable,
            claude_code: &|| None,
            max_attempts: 3,
            openrouter_routing: Map::new(),
        };
        settings.select(&choice)
    }

    fn choice(provider: &str, base_url: Option<&str>) -> ModelChoice {
        ModelChoice {
            provider: provider.to_owned(),
            model: "m".to_owned(),
            base_url: base_url.map(str::to_owned),
            ..ModelChoice::default()
        }
    }

    #[test]
    fn a_provider_is_chosen_by_name_address_or_key() {
        let keys = [("OPENROUTER_API_KEY", "r"), ("OPENAI_API_KEY", "o"), ("ANTHROPIC_API_KEY", "a")];
        let cases = [
            (choice("anthropic", None), "anthropic", "https://api.anthropic.com/", "ANTHROPIC_API_KEY"),
            (choice("auto", None), "openrouter", "https://openrouter.ai/api/v1", "OPENROUTER_API_KEY"),
            (choice("", Some("http://gpu:8000/v1")), "custom", "http://gpu:8000/v1", "OPENAI_API_KEY"),
            // The key of the host's owner, not that of the named provider.
            (
                choice("anthropic", Some("https://api.openai.com/v1")),
                "anthropic",
                "https://api.openai.com/v1",
                "OPENAI_API_KEY",
            ),
        ];
        for (choice, provider, url, key) in cases {
            let selected = select(choice, &keys).unwrap();
            assert_eq!(selected.endpoint.provider, provider);
            assert_eq!(selected.endpoint.base_url.as_str(), url);
            assert_eq!(selected.key_source.as_deref(), Some(key));
        }
    }

    #[test]
    fn missing_settings_are_named() {
        let no_provider = Error::NoProvider { model: "m".to_owned() };
        assert_eq!(select(ModelChoice::default(), &[]), Err(Error::NoModel));
        assert_eq!(select(choice("auto", None), &[]), Err(no_provider));
        assert_eq!(select(choice("custom", None), &[]), Err(Error::NoBaseUrl));
        for error in [
            select(choice("nosuch", None), &[]),
            select(choice("", Some("localhost:8000")), &[]),
            select(choice("anthropic", None), &[("OPENAI_API_KEY", "o")]),
        ] {
            assert!(!error.unwrap_err().hints().is_empty());
        }
    }
}
