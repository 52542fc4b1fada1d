//! Model servers as `config.yaml` describes them.

use std::collections::BTreeMap;

use hermes_model::provider::{ModelChoice, ServerModelSettings, ServerSettings};
use hermes_types::Secret;
use serde_json::{Value, json};

use super::{
    Accepted, InvalidValue, Setting, SettingNote, invalid, list_items, map_entries, scalar, without_nulls,
};
use crate::yaml::{Node, NodeKind};

/// The owner's own servers, by name.
pub type Servers = BTreeMap<String, ServerSettings>;

/// The models to try, in order, when the first one fails.
pub type Fallbacks = Vec<ModelChoice>;

/// The field `key`, unless it is missing or null.
fn field<'n>(node: &'n Node, key: &str) -> Option<&'n Node> {
    node.get(key).filter(|value| value.kind != NodeKind::Null)
}

/// A text field; blank text counts as missing.
fn text(node: &Node, key: &str) -> Result<Option<String>, InvalidValue> {
    let Some(value) = field(node, key) else { return Ok(None) };
    let text = scalar(value).ok_or_else(|| InvalidValue::new(value, format!("text for `{key}`")))?;
    Ok(Some(text.to_owned()).filter(|text| !text.trim().is_empty()))
}

/// A number field.
fn number(node: &Node, key: &str) -> Result<Option<u64>, InvalidValue> {
    let Some(value) = field(node, key) else { return Ok(None) };
    match u64::read(value, &mut Vec::new()) {
        Ok(number @ 1..) => Ok(Some(number)),
        _ => Err(InvalidValue::new(value, format!("a whole number from 1 up for `{key}`"))),
    }
}

/// Notes fields that are not read, because they may be misspelled.
fn note_unknown_fields(node: &Node, known: &[&str], notes: &mut Vec<SettingNote>) {
    let NodeKind::Map(entries) = &node.kind else { return };
    for entry in entries.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
        let reason = format!("`{}` is not used by this version", entry.key);
        notes.push(SettingNote::ignored(entry.at, reason));
    }
}

impl Setting for Servers {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let entries = map_entries::<Self>(node)?.into_iter();
        entries.map(|entry| Ok((entry.key, read_server(&entry.value, notes)?))).collect()
    }

    fn to_value(&self) -> Value {
        without_nulls(json!(self))
    }

    fn accepted() -> Accepted {
        let lab =
            json!({"api": "http://10.0.0.7:8000/v1", "key_env": "LAB_KEY", "request_timeout_seconds": 600});
        let examples = json!([
            {"lab": lab}, {"near": {"api": "http://localhost:1234/v1"}}, {"far": {"key_env": "FAR_KEY"}}, {"all": {}},
        ]);
        Accepted::new(
            "a map from names to servers",
            json!({"type": "object", "additionalProperties": {"type": "object"}, "examples": examples}),
        )
    }
}

const SERVER_FIELDS: &[&str] = &[
    "api", "api_key", "base_url", "default_model", "key_env", "models", "name", "request_timeout_seconds",
    "stale_timeout_seconds", "transport",
];

fn read_server(node: &Node, notes: &mut Vec<SettingNote>) -> Result<ServerSettings, InvalidValue> {
    let NodeKind::Map(_) = &node.kind else { return Err(invalid::<Servers>(node)) };
    note_unknown_fields(node, SERVER_FIELDS, notes);
    let mut models = BTreeMap::new();
    match node.get("models").map(|models| &models.kind) {
        Some(NodeKind::Map(entries)) => {
            for entry in entries {
                let model = ServerModelSettings {
                    timeout_seconds: number(&entry.value, "timeout_seconds")?,
                    stale_timeout_seconds: number(&entry.value, "stale_timeout_seconds")?,
                    context_length: number(&entry.value, "context_length")?,
                };
                models.insert(entry.key.clone(), model);
            }
        }
        // A bare list of names has no settings.
        Some(NodeKind::List(_) | NodeKind::Null) | None => {}
        Some(NodeKind::Scalar { .. }) => return Err(invalid::<Servers>(node)),
    }
    Ok(ServerSettings {
        base_url: text(node, "api")?.or(text(node, "base_url")?),
        api_key: text(node, "api_key")?.map(Secret::new),
        key_env: text(node, "key_env")?,
        transport: text(node, "transport")?,
        default_model: text(node, "default_model")?,
        request_timeout_seconds: number(node, "request_timeout_seconds")?,
        stale_timeout_seconds: number(node, "stale_timeout_seconds")?,
        models,
    })
}

impl Setting for Fallbacks {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut list = Vec::new();
        for item in list_items::<Self>(node)? {
            let NodeKind::Map(_) = &item.kind else { return Err(invalid::<Self>(&item)) };
            note_unknown_fields(&item, &["provider", "model", "base_url", "api_key", "key_env"], notes);
            let required = |key: &str| {
                let missing = || InvalidValue::new(&item, format!("an entry with `{key}`"));
                text(&item, key)?.ok_or_else(missing)
            };
            list.push(ModelChoice {
                provider: required("provider")?,
                model: required("model")?,
                base_url: text(&item, "base_url")?,
                api_key: text(&item, "api_key")?.map(Secret::new),
                key_env: text(&item, "key_env")?,
            });
        }
        Ok(list)
    }

    fn to_value(&self) -> Value {
        without_nulls(json!(self))
    }

    fn accepted() -> Accepted {
        let examples = json!([
            [{"provider": "openrouter", "model": "qwen/qwen3-coder"}], [{"provider": "anthropic", "model": "a"}],
            [{"provider": "x", "model": "b"}], [{"provider": "y", "model": "c"}],
        ]);
        Accepted::new(
            "a list of entries with `provider` and `model`",
            json!({"type": "array", "items": {"type": "object"}, "examples": examples}),
        )
    }
}
