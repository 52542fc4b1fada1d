//! The owner's own servers.

use std::collections::BTreeMap;
use std::time::Duration;

use hermes_types::Secret;
use serde::Serialize;
use serde_json::{Map, Value};

use super::Provider;
use crate::endpoint::Endpoint;
use crate::error::Error;

/// An entry of the configuration's sections `providers` and `custom_providers`.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ServerSettings {
    /// Another name for `model.provider`.
    pub name: Option<String>,
    #[serde(rename = "api")]
    pub base_url: Option<String>,
    pub api_key: Option<Secret>,
    /// The variable that holds the key; it counts for more than `api_key`.
    pub key_env: Option<String>,
    /// The keyword of an [`crate::Api`].
    pub transport: Option<String>,
    pub default_model: Option<String>,
    /// False hides the entry.
    pub enabled: Option<bool>,
    pub request_timeout_seconds: Option<u64>,
    pub stale_timeout_seconds: Option<u64>,
    pub context_length: Option<u64>,
    /// The longest answer in tokens, if `model.max_tokens` sets none.
    pub max_output_tokens: Option<u64>,
    /// HTTP headers, which may hold credentials.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extra_headers: Vec<(String, Secret)>,
    /// Fields of every request.
    #[serde(skip_serializing_if = "Map::is_empty")]
    pub extra_body: Map<String, Value>,
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

impl ServerSettings {
    pub(super) fn apply_limits(&self, endpoint: &mut Endpoint) {
        let model = self.models.get(&endpoint.model).copied().unwrap_or_default();
        if let Some(seconds) = model.timeout_seconds.or(self.request_timeout_seconds) {
            endpoint.timeouts.total = Duration::from_secs(seconds);
        }
        let idle = model.stale_timeout_seconds.or(self.stale_timeout_seconds);
        endpoint.timeouts.idle = idle.map(Duration::from_secs);
        endpoint.context_window = model.context_length.or(self.context_length);
    }
}

/// A name as names are compared: `My Lab` is `my-lab`.
pub(super) fn normalize_name(name: &str) -> String {
    name.trim().to_lowercase().replace(' ', "-")
}

/// Finds the server with this name, with or without `custom:` before it. A provider's own name stands
/// for the provider, but its aliases do not hide a server.
pub(super) fn find_server<'a>(
    servers: &'a BTreeMap<String, ServerSettings>,
    requested: &str,
) -> Result<Option<(&'a str, &'a ServerSettings)>, Error> {
    let requested = normalize_name(requested);
    let name = requested.strip_prefix("custom:").unwrap_or(&requested);
    let is_named = |(key, server): &(&String, &ServerSettings)| {
        normalize_name(key) == name
            || server.name.as_deref().is_some_and(|other| normalize_name(other) == name)
    };
    let Some((key, server)) = servers.iter().find(is_named) else { return Ok(None) };
    if server.enabled == Some(false) {
        return Err(Error::ProviderDisabled { name: key.clone() });
    }
    let is_provider = name == requested && Provider::with_id(name).is_some();
    // An entry without an address only has settings for something else.
    Ok(Some((key.as_str(), server)).filter(|_| !is_provider && server.base_url.is_some()))
}
