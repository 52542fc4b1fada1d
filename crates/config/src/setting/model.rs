//! Servers of models in the words of `config.yaml`.

use std::collections::BTreeMap;

use hermes_model::provider::{ModelChoice, ServerModelSettings, ServerSettings};
use hermes_types::Secret;
use serde_json::{Map, Value, json};

use super::{InvalidValue, Setting, SettingNote, entries, invalid, scalar, unfolded};
use crate::yaml::{Node, NodeKind};

/// The owner's own servers, by name.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Servers(pub BTreeMap<String, ServerSettings>);

/// The models that are asked when the first one fails, in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fallbacks(pub Vec<ModelChoice>);

/// A field that is text, if it is there.
fn text<T: Setting>(node: &Node, key: &str) -> Result<Option<String>, InvalidValue> {
    match node.get(key) {
        None | Some(Node { kind: NodeKind::Null, .. }) => Ok(None),
        Some(value) => match scalar(value) {
            Some(text) => Ok(Some(text.to_owned()).filter(|text| !text.trim().is_empty())),
            None => Err(InvalidValue { expected: format!("text for `{key}`"), ..invalid::<T>(value) }),
        },
    }
}

/// A field that is a number, if it is there.
fn number<T: Setting>(
    node: &Node,
    key: &str,
    notes: &mut Vec<SettingNote>,
) -> Result<Option<u64>, InvalidValue> {
    match node.get(key) {
        None | Some(Node { kind: NodeKind::Null, .. }) => Ok(None),
        Some(value) => match u64::read(value, notes) {
            Ok(0) | Err(_) => Err(InvalidValue {
                expected: format!("a whole number from 1 up for `{key}`"),
                ..invalid::<T>(value)
            }),
            Ok(number) => Ok(Some(number)),
        },
    }
}

/// A field nobody reads is told, so that a slip is found.
fn unread(node: &Node, known: &[&str], notes: &mut Vec<SettingNote>) {
    let NodeKind::Map(entries) = &node.kind else { return };
    for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        notes.push(SettingNote {
            at: entry.at,
            text: format!("`{}` is not used by this version; ignored", entry.key),
        });
    }
}

impl Setting for Servers {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let NodeKind::Map(entries) = &inner.as_ref().unwrap_or(node).kind else {
            return Err(invalid::<Self>(node));
        };
        let mut servers = BTreeMap::new();
        for entry in entries {
            servers.insert(entry.key.clone(), server(&entry.value, notes)?);
        }
        Ok(Self(servers))
    }

    fn show(&self) -> Value {
        self.0.iter().map(|(name, server)| (name.clone(), shown(server))).collect::<Map<_, _>>().into()
    }

    fn schema() -> Value {
        let example = json!({"lab": {"api": "http://10.0.0.7:8000/v1", "key_env": "LAB_KEY", "request_timeout_seconds": 600}});
        json!({"type": "object", "additionalProperties": {"type": "object"}, "examples": [example, {"near": {"api": "http://localhost:1234/v1"}}, {"far": {"key_env": "FAR_KEY"}}, {"all": {}}]})
    }

    fn expected() -> String {
        "a map from names to servers".into()
    }
}

const FIELDS: &[&str] = &[
    "api", "api_key", "base_url", "default_model", "key_env", "models", "name", "request_timeout_seconds",
    "stale_timeout_seconds", "transport",
];

fn server(node: &Node, notes: &mut Vec<SettingNote>) -> Result<ServerSettings, InvalidValue> {
    let NodeKind::Map(_) = &node.kind else { return Err(invalid::<Servers>(node)) };
    unread(node, FIELDS, notes);
    let mut models = BTreeMap::new();
    match node.get("models").map(|models| &models.kind) {
        Some(NodeKind::Map(entries)) => {
            for entry in entries {
                let one = &entry.value;
                let model = ServerModelSettings {
                    timeout_seconds: number::<Servers>(one, "timeout_seconds", notes)?,
                    stale_timeout_seconds: number::<Servers>(one, "stale_timeout_seconds", notes)?,
                    context_length: number::<Servers>(one, "context_length", notes)?,
                };
                models.insert(entry.key.clone(), model);
            }
        }
        // A bare list of names says nothing about them.
        Some(NodeKind::List(_) | NodeKind::Null) | None => {}
        Some(NodeKind::Scalar { .. }) => return Err(invalid::<Servers>(node)),
    }
    Ok(ServerSettings {
        base_url: text::<Servers>(node, "api")?.or(text::<Servers>(node, "base_url")?),
        api_key: text::<Servers>(node, "api_key")?.map(Secret::new),
        key_env: text::<Servers>(node, "key_env")?,
        transport: text::<Servers>(node, "transport")?,
        default_model: text::<Servers>(node, "default_model")?,
        request_timeout_seconds: number::<Servers>(node, "request_timeout_seconds", notes)?,
        stale_timeout_seconds: number::<Servers>(node, "stale_timeout_seconds", notes)?,
        models,
    })
}

/// Without what was not said.
fn filled(fields: Value) -> Value {
    match fields {
        Value::Object(mut map) => {
            map.retain(|_, value| !value.is_null());
            map.into()
        }
        other => other,
    }
}

fn shown(server: &ServerSettings) -> Value {
    let models: Map<String, Value> = server
        .models
        .iter()
        .map(|(name, model)| {
            let fields = json!({
                "timeout_seconds": model.timeout_seconds,
                "stale_timeout_seconds": model.stale_timeout_seconds,
                "context_length": model.context_length,
            });
            (name.clone(), filled(fields))
        })
        .collect();
    filled(json!({
        "api": server.base_url,
        "api_key": server.api_key.as_ref().map(ToString::to_string),
        "key_env": server.key_env,
        "transport": server.transport,
        "default_model": server.default_model,
        "request_timeout_seconds": server.request_timeout_seconds,
        "stale_timeout_seconds": server.stale_timeout_seconds,
        "models": (!models.is_empty()).then_some(models),
    }))
}

impl Setting for Fallbacks {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut list = Vec::new();
        for item in entries::<Self>(node)? {
            let NodeKind::Map(_) = &item.kind else { return Err(invalid::<Self>(&item)) };
            unread(&item, &["provider", "model", "base_url", "api_key", "key_env"], notes);
            let required = |key: &str| {
                let missing =
                    || InvalidValue { expected: format!("an entry with `{key}`"), ..invalid::<Self>(&item) };
                text::<Self>(&item, key)?.ok_or_else(missing)
            };
            list.push(ModelChoice {
                provider: required("provider")?,
                model: required("model")?,
                base_url: text::<Self>(&item, "base_url")?,
                api_key: text::<Self>(&item, "api_key")?.map(Secret::new),
                key_env: text::<Self>(&item, "key_env")?,
            });
        }
        Ok(Self(list))
    }

    fn show(&self) -> Value {
        let one = |entry: &ModelChoice| {
            filled(json!({
                "provider": entry.provider,
                "model": entry.model,
                "base_url": entry.base_url,
                "api_key": entry.api_key.as_ref().map(ToString::to_string),
                "key_env": entry.key_env,
            }))
        };
        self.0.iter().map(one).collect()
    }

    fn schema() -> Value {
        let example = json!([{"provider": "openrouter", "model": "qwen/qwen3-coder"}]);
        json!({"type": "array", "items": {"type": "object"}, "examples": [example, [{"provider": "anthropic", "model": "a"}], [{"provider": "x", "model": "b"}], [{"provider": "y", "model": "c"}]]})
    }

    fn expected() -> String {
        "a list of entries with `provider` and `model`".into()
    }
}
