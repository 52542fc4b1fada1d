//! The secrets of the configuration, for redaction.

use hermes_types::Secret;

use crate::LoadedConfig;
use crate::define::Visibility;
use crate::keys;
use crate::layers::lookup;
use crate::yaml::NodeKind;

/// All secrets of the configuration; `None` if redaction is disabled.
pub fn secrets(loaded: &LoadedConfig) -> Option<Vec<Secret>> {
    if loaded.config.as_ref().is_some_and(|config| !config.security.redact_secrets) {
        return None;
    }
    let is_secret = |name: &str| {
        keys::find(name).is_some_and(|key| key.visibility == Visibility::Secret)
            || ["KEY", "TOKEN", "SECRET", "PASSWORD"]
                .iter()
                .any(|end| name.to_ascii_uppercase().ends_with(end))
    };
    let dotenv = loaded.layers.dotenv.entries.iter().map(|entry| (&entry.name, &entry.value));
    let mut secrets: Vec<Secret> = dotenv
        .chain(&loaded.layers.process)
        .filter(|(name, _)| is_secret(name))
        .map(|(_, value)| Secret::new(value.as_str()))
        .collect();
    if let Some(config) = &loaded.config {
        let single = [
            &config.discord.bot_token, &config.discord.proxy, &config.model.api_key,
            &config.auxiliary_approval.api_key,
        ];
        let general = &config.general;
        let servers = general.providers.values().chain(&general.custom_providers);
        let headers = servers.clone().flat_map(|server| server.extra_headers.iter().map(|(_, value)| value));
        let fallbacks = general.fallback_providers.iter().chain(&general.fallback_model);
        let keys = servers.map(|server| &server.api_key).chain(fallbacks.map(|entry| &entry.api_key));
        secrets.extend(single.into_iter().chain(keys).flatten().cloned());
        secrets.extend(headers.cloned());
        secrets.extend(config.model.default_headers.iter().map(|(_, value)| Secret::new(value.as_str())));
    }
    // This version does not use the key, but a file written for the Python program may hold the
    // password.
    if let Some(NodeKind::Scalar { text, .. }) =
        lookup(&loaded.layers.file, "terminal.sudo_password").map(|node| &node.kind)
    {
        secrets.push(Secret::new(text.as_str()));
    }
    Some(secrets)
}
