//! Migration of an older file to the current layout. Only `config migrate` does this, never a
//! start.
//!
//! Each step changes the file as the migration of the Python program to that version does, except
//! that defaults are not written.

use serde_json::{Value, json};

use super::change::path_steps;
use super::edit::{self, EditError, PathStep};
use super::keys::{self, CONFIG_VERSION};
use super::{dotenv, yaml};

/// The migrated files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationResult {
    /// The text of `config.yaml`.
    pub config: String,
    /// The text of `.env`.
    pub dotenv: String,
    /// One line per change.
    pub changes: Vec<String>,
    /// The values of `config`.
    root: Value,
}

type Migration = fn(&mut MigrationResult) -> Result<(), EditError>;

/// The steps, by the version that introduced them.
const MIGRATIONS: &[(u64, Migration)] = &[
    (4, tool_progress),
    (5, timezone),
    (9, |draft| draft.drop_variable("ANTHROPIC_TOKEN")),
    (12, custom_providers),
    (13, |draft| {
        draft.drop_variable("LLM_MODEL")?;
        draft.drop_variable("OPENAI_MODEL")
    }),
    (14, speech_model),
    (16, tool_progress_overrides),
    (17, compression_summary),
    (25, |draft| draft.replace_default("model_catalog.ttl_hours", &[json!(24)], json!(1))),
    (29, write_mode),
    (32, |draft| draft.replace_default("agent.verify_on_stop", &[json!(true), json!("auto")], json!(false))),
    (33, async_children),
];

/// Applies all steps after version `from`, which is 0 for a file without a version.
pub fn migrate(config: &str, dotenv: &str, from: u64) -> Result<MigrationResult, EditError> {
    let root = yaml::parse(config).map_err(EditError::Unreadable)?.to_json();
    let mut draft =
        MigrationResult { config: config.to_owned(), dotenv: dotenv.to_owned(), changes: Vec::new(), root };
    for (version, apply) in MIGRATIONS {
        if from < *version {
            apply(&mut draft)?;
        }
    }
    for key in keys::all() {
        for alias in key.aliases {
            draft.rename(alias, key.path)?;
        }
    }
    if from != CONFIG_VERSION {
        draft.set("_config_version", json!(CONFIG_VERSION))?;
    }
    Ok(draft)
}

impl MigrationResult {
    fn get(&self, path: &str) -> Option<&Value> {
        path.split('.').try_fold(&self.root, |at, part| at.get(part)).filter(|value| !value.is_null())
    }

    fn text_of(&self, path: &str) -> Option<String> {
        self.get(path).map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    fn set(&mut self, path: &str, value: Value) -> Result<(), EditError> {
        self.set_at(&path_steps(path), value)
    }

    fn set_at(&mut self, path: &[PathStep], value: Value) -> Result<(), EditError> {
        let config = edit::set(&self.config, path, &value)?;
        self.replace_config(config, format!("set {}", edit::dotted_path(path)))
    }

    fn unset(&mut self, path: &str) -> Result<(), EditError> {
        let config = edit::unset(&self.config, &path_steps(path))?;
        self.replace_config(config, format!("removed {path}"))
    }

    fn replace_config(&mut self, config: String, change: String) -> Result<(), EditError> {
        self.root = yaml::parse(&config).map_err(EditError::Unreadable)?.to_json();
        self.config = config;
        self.changes.push(change);
        Ok(())
    }

    /// Replaces a former default that older versions wrote to the file.
    fn replace_default(&mut self, path: &str, former: &[Value], new: Value) -> Result<(), EditError> {
        let is_former = self.get(path).is_some_and(|value| former.contains(value));
        if is_former { self.set(path, new) } else { Ok(()) }
    }

    /// Renames a key to its current name. If both exist, the older one has no effect and is
    /// removed.
    fn rename(&mut self, from: &str, to: &str) -> Result<(), EditError> {
        if self.get(from).is_none() {
            return Ok(());
        }
        if self.get(to).is_some() {
            return self.unset(from);
        }
        let name = to.rsplit('.').next().unwrap_or(to);
        let config = edit::rename(&self.config, &path_steps(from), name)?;
        self.replace_config(config, format!("renamed {from} to {to}"))
    }

    fn variable(&self, name: &str) -> Option<String> {
        dotenv::DotEnv::parse(&self.dotenv).get(name).map(|entry| entry.value.trim().to_owned())
    }

    fn drop_variable(&mut self, name: &str) -> Result<(), EditError> {
        if self.variable(name).is_some() {
            self.dotenv = dotenv::unset(&self.dotenv, name);
            self.changes.push(format!("removed {name} from .env"));
        }
        Ok(())
    }
}

fn tool_progress(draft: &mut MigrationResult) -> Result<(), EditError> {
    if draft.get("display.tool_progress").is_some() {
        return Ok(());
    }
    let variable = |name: &str| draft.variable(name).unwrap_or_default().to_lowercase();
    let mode = variable("HERMES_TOOL_PROGRESS_MODE");
    match (variable("HERMES_TOOL_PROGRESS").as_str(), mode.as_str()) {
        ("false" | "0" | "no", _) => draft.set("display.tool_progress", json!("off")),
        (_, "new" | "all" | "verbose") => draft.set("display.tool_progress", json!(mode)),
        _ => Ok(()),
    }
}

fn timezone(draft: &mut MigrationResult) -> Result<(), EditError> {
    match draft.variable("HERMES_TIMEZONE") {
        Some(zone) if !zone.is_empty() && draft.get("timezone").is_none() => {
            draft.set("timezone", json!(zone))
        }
        _ => Ok(()),
    }
}

/// Fields of a provider that keep their names.
const PROVIDER_FIELDS: [&str; 11] = [
    "name", "api_key", "key_env", "models", "context_length", "rate_limit_delay", "discover_models",
    "extra_body", "extra_headers", "ssl_ca_cert", "ssl_verify",
];

/// The list `custom_providers` becomes the map `providers`, keyed by a short form of each name.
fn custom_providers(draft: &mut MigrationResult) -> Result<(), EditError> {
    let Some(Value::Array(entries)) = draft.get("custom_providers").cloned() else { return Ok(()) };
    let mut moved = false;
    for (index, entry) in entries.iter().enumerate() {
        let field = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.is_empty());
        let Some(url) = field("base_url").or_else(|| field("url")).or_else(|| field("api")) else { continue };
        let name = field("name").unwrap_or_default();
        let mut key = short_name(if name.is_empty() { host(url) } else { name });
        let taken = |key: &str| draft.get("providers").and_then(|map| map.get(key)).is_some();
        if taken(&key) {
            key = (index..).map(|n| format!("{key}-{n}")).find(|key| !taken(key)).unwrap_or(key);
        }
        let mut provider = serde_json::Map::from_iter([("api".to_owned(), json!(url))]);
        let same = PROVIDER_FIELDS.iter().map(|name| (*name, *name));
        for (old, new) in same.chain([("model", "default_model"), ("api_mode", "transport")]) {
            let is_unset = |value: &Value| match value {
                Value::Null => true,
                Value::String(text) => {
                    text.is_empty()
                        || old == "api_key" && ["no-key", "no-key-required"].contains(&text.as_str())
                }
                _ => false,
            };
            if let Some(value) = entry.get(old).filter(|value| !is_unset(value)) {
                provider.insert(new.to_owned(), value.clone());
            }
        }
        draft.set_at(&[PathStep::Key("providers".into()), PathStep::Key(key)], Value::Object(provider))?;
        moved = true;
    }
    if moved { draft.unset("custom_providers") } else { Ok(()) }
}

fn short_name(name: &str) -> String {
    let lower = name.trim().to_lowercase().replace(' ', "-").replace(['(', ')'], "");
    let parts: Vec<&str> = lower.split('-').filter(|part| !part.is_empty()).collect();
    if parts.is_empty() { "endpoint".to_owned() } else { parts.join("-") }
}

fn host(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split(['/', ':', '?']).next().unwrap_or(rest)
}

const WHISPER_MODELS: &[&str] = &[
    "tiny.en", "tiny", "base.en", "base", "small.en", "small", "medium.en", "medium", "large-v1", "large-v2",
    "large-v3", "large", "distil-large-v2", "distil-medium.en", "distil-small.en", "distil-large-v3",
    "distil-large-v3.5", "large-v3-turbo", "turbo",
];

/// Moves `stt.model` to its provider. The name of a cloud model means nothing to a local provider.
fn speech_model(draft: &mut MigrationResult) -> Result<(), EditError> {
    let Some(model) = draft.text_of("stt.model") else { return Ok(()) };
    let provider = draft.text_of("stt.provider").unwrap_or_else(|| "local".to_owned());
    let local = provider == "local" || provider == "local_command";
    let path = format!("stt.{}.model", if local { "local" } else { provider.as_str() });
    if draft.get(&path).is_none() && (!local || WHISPER_MODELS.contains(&model.as_str())) {
        draft.set(&path, json!(model))?;
    }
    draft.unset("stt.model")
}

fn tool_progress_overrides(draft: &mut MigrationResult) -> Result<(), EditError> {
    let Some(Value::Object(overrides)) = draft.get("display.tool_progress_overrides").cloned() else {
        return Ok(());
    };
    for (platform, mode) in overrides {
        let path = format!("display.platforms.{platform}.tool_progress");
        if draft.get(&path).is_none() {
            draft.set(&path, mode)?;
        }
    }
    draft.unset("display.tool_progress_overrides")
}

fn compression_summary(draft: &mut MigrationResult) -> Result<(), EditError> {
    for field in ["model", "provider", "base_url"] {
        let old = format!("compression.summary_{field}");
        let new = format!("auxiliary.compression.{field}");
        let Some(value) = draft.text_of(&old).map(|value| value.trim().to_owned()) else { continue };
        let present = draft.text_of(&new).filter(|value| !value.is_empty() && value != "auto");
        if !value.is_empty() && value != "auto" && present.is_none() {
            draft.set(&new, json!(value))?;
        }
        draft.unset(&old)?;
    }
    Ok(())
}

fn write_mode(draft: &mut MigrationResult) -> Result<(), EditError> {
    for section in ["memory", "skills"] {
        let old = format!("{section}.write_mode");
        if let Some(mode) = draft.text_of(&old) {
            let approve = mode.trim().eq_ignore_ascii_case("approve");
            draft.set(&format!("{section}.write_approval"), json!(approve))?;
            draft.unset(&old)?;
        }
    }
    Ok(())
}

/// Merges two limits into the higher one.
fn async_children(draft: &mut MigrationResult) -> Result<(), EditError> {
    let old = "delegation.max_async_children";
    let new = "delegation.max_concurrent_children";
    let Some(limit) = draft.get(old).map(|value| value.as_u64().unwrap_or_default()) else { return Ok(()) };
    if limit > draft.get(new).and_then(Value::as_u64).unwrap_or(3) {
        draft.set(new, json!(limit))?;
    }
    draft.unset(old)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str, from: u64) -> Value {
        let migrated = migrate(text, "", from).unwrap();
        yaml::parse(&migrated.config).unwrap().to_json()
    }

    #[test]
    fn each_step_moves_its_values_and_preserves_comments() {
        let text = "# mine\n_config_version: 8\nterminal:\n  env_type: docker # why\ncustom_providers:\n  - name: My Box (home)\n    \
                    base_url: http://127.0.0.1:1/v1\n    model: m1\n    api_key: no-key\n  - url: http://b.example/v1\nstt:\n  \
                    provider: openai\n  model: whisper-1\ndisplay:\n  tool_progress_overrides:\n    telegram: 'new'\n\
                    compression:\n  summary_model: small\n  summary_provider: auto\n  enabled: true\n\
                    model_catalog:\n  ttl_hours: 24\nmemory:\n  write_mode: approve\nagent: {verify_on_stop: auto}\n\
                    delegation:\n  max_async_children: 8\n  max_iterations: 9\n";
        let migrated = migrate(text, "LLM_MODEL=x\nKEEP=1\n", 8).unwrap();
        assert_eq!(
            yaml::parse(&migrated.config).unwrap().to_json(),
            json!({
                "_config_version": 33,
                "terminal": {"backend": "docker"},
                "stt": {"provider": "openai", "openai": {"model": "whisper-1"}},
                "display": {"platforms": {"telegram": {"tool_progress": "new"}}},
                "compression": {"enabled": true},
                "model_catalog": {"ttl_hours": 1},
                "memory": {"write_approval": true},
                "agent": {"verify_on_stop": false},
                "delegation": {"max_concurrent_children": 8, "max_iterations": 9},
                "providers": {
                    "my-box-home": {"api": "http://127.0.0.1:1/v1", "name": "My Box (home)", "default_model": "m1"},
                    "b.example": {"api": "http://b.example/v1"},
                },
                "auxiliary": {"compression": {"model": "small"}},
            })
        );
        assert_eq!(edit::comments(&migrated.config).unwrap(), ["# mine", "# why"]);
        assert_eq!(migrated.dotenv, "KEEP=1\n");
    }

    #[test]
    fn steps_before_the_version_of_the_file_are_skipped() {
        let text = "_config_version: 28\nstt:\n  model: whisper-1\n";
        assert_eq!(config(text, 28), json!({"_config_version": 33, "stt": {"model": "whisper-1"}}));
    }

    #[test]
    fn a_current_file_is_unchanged() {
        let text = "_config_version: 33\nmodel_catalog: {ttl_hours: 24}\n";
        assert_eq!(migrate(text, "LLM_MODEL=x\n", 33).unwrap().config, text);
    }
}
