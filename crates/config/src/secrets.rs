//! The secrets that the configuration holds, for redaction.

use hermes_types::Secret;

use crate::LoadedConfig;
use crate::define::Visibility;
use crate::keys;
use crate::layers::lookup;
use crate::yaml::NodeKind;

/// Every secret the configuration holds; `None` when the owner switched redaction off.
pub fn secrets(loaded: &LoadedConfig) -> Option<Vec<Secret>> {
    if loaded.config.as_ref().is_some_and(|config| !config.security.redact_secrets) {
        return None;
    }
    let secret_name = |name: &str| {
        let known = keys::find(name).is_some_and(|key| key.visibility == Visibility::Secret);
        known
            || ["KEY", "TOKEN", "SECRET", "PASSWORD"]
                .iter()
                .any(|end| name.to_ascii_uppercase().ends_with(end))
    };
    let dotenv = loaded.layers.dotenv.entries.iter().map(|entry| (entry.name.as_str(), entry.value.as_str()));
    let process = loaded.layers.process.iter().map(|(name, value)| (name.as_str(), value.as_str()));
    let mut secrets: Vec<Secret> = dotenv
        .chain(process)
        .filter(|(name, _)| secret_name(name))
        .map(|(_, value)| Secret::new(value))
        .collect();
    if let Some(config) = &loaded.config {
        let kept = [&config.discord.bot_token, &config.discord.proxy, &config.model.api_key];
        let servers = config.general.providers.0.values().map(|server| &server.api_key);
        let fallbacks = config.general.fallback_providers.0.iter().map(|entry| &entry.api_key);
        secrets.extend(kept.into_iter().chain(servers).chain(fallbacks).flatten().cloned());
    }
    // The key is not used by this version, but a file written for the Python program may hold the password.
    if let Some(NodeKind::Scalar { text, .. }) =
        lookup(&loaded.layers.file, "terminal.sudo_password").map(|node| &node.kind)
    {
        secrets.push(Secret::new(text.as_str()));
    }
    Some(secrets)
}
