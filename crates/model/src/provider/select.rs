//! Chooses the endpoint and the credentials for a model from plain settings.
//!
//! The configured provider comes first, then a configured address, then the first provider that has
//! a key. Endpoints are those of Hermes Agent 0.19 for the same settings. The key of a provider goes
//! only to its own host; the key of another vendor is found by the name of its host.

use std::collections::BTreeMap;
use std::path::PathBuf;

use hermes_net::Url;
use hermes_types::Secret;
use serde::Serialize;
use serde_json::{Map, Value};

use super::aliases::{OWN_SERVERS, UNSUPPORTED};
use super::server::find_server;
use super::{PROVIDERS, Provider, ServerSettings, by_host, by_name, detect_api};
use crate::endpoint::{Api, ApiCredentials, Endpoint};
use crate::error::Error;

const GOOGLE_HOST: &str = "generativelanguage.googleapis.com";
/// The address of Kimi's coding plan.
const KIMI_CODING_URL: &str = "https://api.kimi.com/coding";
/// Providers whose protocol no setting changes.
const FIXED_PROTOCOLS: &[&str] = &["anthropic", "kimi-coding", "opencode-go", "opencode-zen", "xai"];

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
    /// The protocol of the server; none to detect it.
    pub api_mode: Option<Api>,
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
        let server = find_server(self.servers, &choice.provider)?;
        let model = match choice.model.trim() {
            "" => server.and_then(|(_, server)| server.default_model.as_deref()).unwrap_or_default(),
            model => model,
        };
        if model.is_empty() {
            return Err(Error::NoModel);
        }
        let target = self.target(choice, server, model)?;
        let url = parse_base_url(&target)?;
        let model = target.model_id(model);
        let mut endpoint = Endpoint::new(target.name.clone(), target.api(choice, &url, &model)?, url, model);
        let (credentials, key_source) = self.credentials(choice, &target, &endpoint).unzip();
        endpoint.credentials = credentials;
        endpoint.retries.max_attempts = self.max_attempts;
        // A provider may have an entry with nothing but limits.
        if let Some(server) = target.server.or_else(|| self.servers.get(&target.name)) {
            server.apply_limits(&mut endpoint);
        }
        if let Some(server) = target.server {
            endpoint.headers.extend(server.extra_headers.iter().cloned());
            endpoint.extra_fields.extend(server.extra_body.clone());
            endpoint.max_output = server.max_output_tokens.and_then(|tokens| u32::try_from(tokens).ok());
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
        server: Option<(&str, &'a ServerSettings)>,
        model: &str,
    ) -> Result<SelectionTarget<'a>, Error> {
        let chosen_url = choice.base_url.as_deref().map(str::trim).filter(|url| !url.is_empty());
        let custom = |name: &str, base_url: &str| SelectionTarget {
            name: name.to_owned(),
            base_url: base_url.to_owned(),
            provider: None,
            server: None,
        };
        let known = |provider: &'static Provider| {
            let chosen_url = chosen_url.filter(|url| is_address_of(provider, url));
            let from_variable = (self.variable)(provider.base_url_variable);
            let base_url = chosen_url.or(from_variable.as_deref());
            let own = self.default_url(provider);
            SelectionTarget { provider: Some(provider), ..custom(provider.id, base_url.unwrap_or(own)) }
        };
        if let Some((name, server)) = server {
            let base_url = server.base_url.as_deref().unwrap_or_default();
            return Ok(SelectionTarget { server: Some(server), ..custom(name, base_url) });
        }
        let name = choice.provider.trim().to_lowercase();
        if let Some(provider) = by_name(&name) {
            return Ok(known(provider));
        }
        let has_key =
            |provider: &&Provider| provider.key_variables.iter().any(|name| (self.variable)(name).is_some());
        match (name.as_str(), chosen_url) {
            ("auto" | "", Some(url)) => Ok(custom("custom", url)),
            (own, url) if OWN_SERVERS.contains(&own) => {
                let from_variable = (self.variable)("CUSTOM_BASE_URL");
                let url = url.or(from_variable.as_deref());
                url.map(|url| custom(own, url)).ok_or_else(|| Error::NoBaseUrl { provider: name.clone() })
            }
            ("auto" | "", None) => {
                let from_variable = (self.variable)("OPENAI_BASE_URL").map(|url| custom("custom", &url));
                let target = from_variable.or_else(|| PROVIDERS.iter().find(has_key).map(known));
                target.ok_or_else(|| Error::NoProvider { model: model.to_owned() })
            }
            (other, _) if UNSUPPORTED.contains(&other) => Err(Error::UnsupportedProvider { name }),
            (other, _) => {
                let ids = PROVIDERS.iter().map(|provider| provider.id.to_owned());
                let known = ids.chain(self.servers.keys().cloned()).collect();
                Err(Error::UnknownProvider { name: other.to_owned(), known })
            }
        }
    }

    /// Keys of Kimi's coding plan belong to another address.
    fn default_url(&self, provider: &Provider) -> &'static str {
        let keys = provider.key_variables.iter().find_map(|name| (self.variable)(name));
        match keys {
            Some(key) if provider.id == "kimi-coding" && key.trim().starts_with("sk-kimi-") => {
                KIMI_CODING_URL
            }
            _ => provider.base_url,
        }
    }

    fn credentials(
        &self,
        choice: &ModelChoice,
        target: &SelectionTarget<'_>,
        endpoint: &Endpoint,
    ) -> Option<(ApiCredentials, String)> {
        let named = choice.key_env.as_deref().or_else(|| target.server?.key_env.as_deref());
        let from_variable = |name: &str| Some((Secret::new((self.variable)(name)?), name.to_owned()));
        let inline = |key: Option<&Secret>| {
            let key = key.filter(|key| !key.expose().trim().is_empty())?;
            Some((key.clone(), "config.yaml".to_owned()))
        };
        let variable = || named.and_then(from_variable);
        let configured = match target.server {
            // The key of the entry, not that of `model`.
            Some(server) => variable().or_else(|| inline(server.api_key.as_ref())),
            None => inline(choice.api_key.as_ref()).or_else(variable),
        };
        if let Some((key, source)) = configured {
            return Some((ApiCredentials::Key(key), source));
        }
        // Plans of one vendor share a host, but not their keys.
        let is_own_host = |provider: &&Provider| {
            let own = provider.base_url.parse::<Url>();
            own.is_ok_and(|own| own.host_str() == endpoint.base_url.host_str())
        };
        let host_owner = target.provider.filter(is_own_host).or_else(|| by_host(&endpoint.base_url));
        let is_openai_server = || {
            let url = (self.variable)("OPENAI_BASE_URL").and_then(|url| url.trim().parse::<Url>().ok());
            url.as_ref() == Some(&endpoint.base_url)
        };
        let names: Vec<String> = match (named, host_owner.or(target.provider)) {
            (Some(_), _) => Vec::new(),
            (None, Some(provider)) => provider.key_variables.iter().map(|name| (*name).to_owned()).collect(),
            (None, None) if is_openai_server() => vec!["OPENAI_API_KEY".to_owned()],
            (None, None) => vendor_variable(endpoint).into_iter().collect(),
        };
        let key = names.iter().find_map(|name| from_variable(name));
        // Hermes Agent prefers the token of Claude Code. Anthropic refuses it from other programs, so
        // here it counts only if it is asked for by name or there is no key. An expired token never
        // counts.
        let is_asked_for = choice.provider.trim().eq_ignore_ascii_case("claude-code");
        if named.is_none()
            && host_owner.is_some_and(|provider| provider.id == "anthropic")
            && (is_asked_for || key.is_none())
            && let Some(path) = (self.claude_code)()
        {
            let source = path.display().to_string();
            let key = key.map(|(key, _)| key);
            return Some((ApiCredentials::ClaudeCode { path, key }, source));
        }
        let (key, name) = key?;
        Some((ApiCredentials::Key(key), name))
    }
}

impl SelectionTarget<'_> {
    fn api(&self, choice: &ModelChoice, url: &Url, model: &str) -> Result<Api, Error> {
        let transport = self.server.and_then(|server| server.transport.as_deref());
        if let Some(transport) = transport {
            return transport.trim().to_lowercase().parse().map_err(|_unknown| Error::UnknownTransport {
                server: self.name.clone(),
                transport: transport.to_owned(),
            });
        }
        let detected = match self.provider {
            // Another address of a provider speaks the provider's protocol.
            Some(provider) if by_host(url).is_none() && detect_api(url, model) == Api::ChatCompletions => {
                provider.api
            }
            _ => detect_api(url, model),
        };
        let is_auto = matches!(choice.provider.trim().to_lowercase().as_str(), "" | "auto");
        Ok(match (choice.api_mode, self.provider) {
            _ if self.name == "ollama" => Api::OllamaChat,
            // These have one protocol, or one for each model.
            (_, Some(provider)) if FIXED_PROTOCOLS.contains(&provider.id) => detected,
            // A leftover of another provider: no other server has this protocol.
            (Some(Api::Responses), None) if !is_auto => detected,
            (Some(configured), _) if self.server.is_none() => configured,
            _ => detected,
        })
    }

    /// The id that the provider itself gives to a model.
    fn model_id(&self, model: &str) -> String {
        match self.provider {
            Some(provider) if provider.id == "anthropic" => {
                let model = model.strip_prefix("anthropic/").unwrap_or(model);
                if model.starts_with("claude-") { model.replace('.', "-") } else { model.to_owned() }
            }
            _ => model.to_owned(),
        }
    }
}

/// Whether a provider can have this address. The address of another provider is a leftover of an
/// earlier choice, and OpenRouter's is set by a variable only.
fn is_address_of(provider: &Provider, url: &str) -> bool {
    let owner = url.parse().ok().as_ref().and_then(by_host);
    let is_own = match provider.id {
        "openrouter" => owner.is_some_and(|owner| owner.id == provider.id),
        "anthropic" => owner.is_none_or(|owner| owner.api == provider.api),
        _ => true,
    };
    if !is_own {
        tracing::warn!(
            provider = provider.id,
            url,
            "ignoring model.base_url: it belongs to another provider"
        );
    }
    is_own
}

/// The variable with the key of a server's vendor, as `GROQ_API_KEY` for `api.groq.com`. Only the
/// registered name of the host counts, so a host that merely contains a vendor's name gets no key.
fn vendor_variable(endpoint: &Endpoint) -> Option<String> {
    if endpoint.is_hosted_by("openai.azure.com") {
        return Some("OPENAI_API_KEY".to_owned());
    }
    let mut labels = endpoint.base_url.host_str()?.rsplit('.');
    let (top, vendor) = (labels.next()?, labels.next()?);
    let is_name = |label: &str| label.starts_with(|c: char| c.is_ascii_alphabetic());
    let vendor = vendor.replace('-', "_").to_uppercase();
    (is_name(top) && is_name(&vendor)).then(|| format!("{vendor}_API_KEY"))
}

fn parse_base_url(target: &SelectionTarget<'_>) -> Result<Url, Error> {
    let url = target.base_url.trim().parse::<Url>().ok();
    let url = url.filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.map(compatible_url).ok_or_else(|| Error::InvalidBaseUrl {
        provider: target.name.clone(),
        base_url: target.base_url.clone(),
    })
}

/// Google's own protocol has the same address as its compatible one, up to the last part.
fn compatible_url(mut url: Url) -> Url {
    let path = url.path().trim_end_matches('/').to_owned();
    if url.host_str() == Some(GOOGLE_HOST) && !path.ends_with("/openai") {
        url.set_path(&format!("{}/openai", if path.is_empty() { "/v1beta" } else { &path }));
    }
    url
}

#[cfg(test)]
mod tests;
