//! Model servers as `config.yaml` describes them.

use std::collections::BTreeMap;

use hermes_model::Api;
use hermes_model::provider::{ModelChoice, ServerModelSettings, ServerSettings};
use hermes_types::Secret;
use serde_json::{Map, Value, json};

use super::{
    Accepted, InvalidValue, Setting, SettingNote, TextMap, invalid, list_items, map_entries, parse_json_text,
    scalar, without_nulls,
};
use crate::yaml::{self, Node, NodeKind, ScalarStyle};

/// The owner's own servers, by name.
pub type Servers = BTreeMap<String, ServerSettings>;

/// The owner's own servers, as a list.
pub type ServerList = Vec<ServerSettings>;

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

/// A number field; 0 counts as missing.
fn number(node: &Node, key: &str) -> Result<Option<u64>, InvalidValue> {
    let Some(value) = field(node, key) else { return Ok(None) };
    match u64::read(value, &mut Vec::new()) {
        Ok(number) => Ok(Some(number).filter(|number| *number > 0)),
        Err(_) => Err(InvalidValue::new(value, format!("a whole number from 0 up for `{key}`"))),
    }
}

/// The first of these fields that has text.
fn first_text(node: &Node, keys: &[&str]) -> Result<Option<String>, InvalidValue> {
    for key in keys {
        if let Some(text) = text(node, key)? {
            return Ok(Some(text));
        }
    }
    Ok(None)
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

impl Setting for ServerList {
    /// An entry without a name or an address is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut list = Vec::new();
        for item in list_items::<Self>(node)? {
            let entry = match &item.kind {
                NodeKind::Map(_) => read_server(&item, notes)?,
                _ => ServerSettings::default(),
            };
            match (&entry.name, &entry.base_url) {
                (Some(_), Some(_)) => list.push(entry),
                _ => notes.push(SettingNote::ignored(item.at, "an entry without `name` or `base_url`")),
            }
        }
        Ok(list)
    }

    fn to_value(&self) -> Value {
        without_nulls(json!(self))
    }

    fn accepted() -> Accepted {
        let examples = json!([
            [{"name": "lab", "api": "http://10.0.0.7:8000/v1", "key_env": "LAB_KEY"}],
            [{"name": "near", "api": "http://localhost:1234/v1"}], [{"name": "far", "api": "https://far.example/v1"}],
        ]);
        Accepted::new(
            "a list of entries with `name` and `base_url`",
            json!({"type": "array", "items": {"type": "object"}, "examples": examples}),
        )
    }
}

const SERVER_FIELDS: &[&str] = &[
    "api", "api_key", "api_mode", "base_url", "context_length", "default_model", "enabled", "extra_body",
    "extra_headers", "key_env", "max_output_tokens", "max_tokens", "model", "models", "name",
    "request_timeout_seconds", "stale_timeout_seconds", "transport", "url",
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
    let enabled = field(node, "enabled").map(|value| {
        let invalid = |_| InvalidValue::new(value, "true or false for `enabled`".to_owned());
        bool::read(value, &mut Vec::new()).map_err(invalid)
    });
    let headers = field(node, "extra_headers").map(|value| TextMap::read(value, notes)).transpose()?;
    Ok(ServerSettings {
        name: text(node, "name")?,
        base_url: first_text(node, &["api", "url", "base_url"])?,
        api_key: text(node, "api_key")?.map(Secret::new),
        key_env: text(node, "key_env")?,
        transport: first_text(node, &["api_mode", "transport"])?,
        default_model: first_text(node, &["default_model", "model"])?,
        enabled: enabled.transpose()?,
        context_length: number(node, "context_length")?,
        max_output_tokens: number(node, "max_output_tokens")?.or(number(node, "max_tokens")?),
        extra_headers: headers
            .into_iter()
            .flatten()
            .map(|(name, value)| (name, Secret::new(value)))
            .collect(),
        extra_body: field(node, "extra_body").map(read_object).transpose()?.unwrap_or_default(),
        request_timeout_seconds: number(node, "request_timeout_seconds")?,
        stale_timeout_seconds: number(node, "stale_timeout_seconds")?,
        models,
    })
}

/// A value of any shape, as JSON has it.
fn read_value(node: &Node) -> Value {
    match &node.kind {
        NodeKind::Null => Value::Null,
        NodeKind::Scalar { text, style: ScalarStyle::Plain } => yaml::plain_meaning(text),
        NodeKind::Scalar { text, .. } => Value::from(text.as_str()),
        NodeKind::List(items) => items.iter().map(read_value).collect(),
        NodeKind::Map(entries) => {
            entries.iter().map(|entry| (entry.key.clone(), read_value(&entry.value))).collect()
        }
    }
}

fn read_object(node: &Node) -> Result<Map<String, Value>, InvalidValue> {
    match read_value(node) {
        Value::Object(fields) => Ok(fields),
        _ => Err(InvalidValue::new(node, "a map for `extra_body`".to_owned())),
    }
}

const FALLBACK_FIELDS: &[&str] =
    &["api_key", "api_key_env", "api_mode", "base_url", "key_env", "model", "provider"];

impl Setting for Fallbacks {
    /// One entry needs no list. An entry without provider or model is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let items = match parse_json_text(node) {
            one @ Node { kind: NodeKind::Map(_), .. } => vec![one],
            _ => list_items::<Self>(node)?,
        };
        let mut list = Vec::new();
        for item in items {
            let (provider, model) = match &item.kind {
                NodeKind::Map(_) => (text(&item, "provider")?, text(&item, "model")?),
                _ => (None, None),
            };
            let (Some(provider), Some(model)) = (provider, model) else {
                notes.push(SettingNote::ignored(item.at, "an entry without `provider` or `model`"));
                continue;
            };
            note_unknown_fields(&item, FALLBACK_FIELDS, notes);
            list.push(ModelChoice {
                provider,
                model,
                base_url: text(&item, "base_url")?,
                api_key: text(&item, "api_key")?.map(Secret::new),
                key_env: first_text(&item, &["key_env", "api_key_env"])?,
                api_mode: field(&item, "api_mode").map(|value| Api::read(value, notes)).transpose()?,
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

#[cfg(test)]
mod tests {
    use hermes_model::Effort;

    use super::*;

    fn read<T: Setting>(text: &str) -> (Result<T, InvalidValue>, usize) {
        let mut notes = Vec::new();
        let value = T::read(&yaml::parse(text).unwrap(), &mut notes);
        (value, notes.len())
    }

    #[test]
    fn servers_are_read_as_the_python_program_writes_them() {
        let (servers, notes) = read::<Servers>(
            "lab:\n  url: http://a/v1\n  api_mode: anthropic_messages\n  request_timeout_seconds: 0\n  enabled: false\n  \
             max_output_tokens: 9\n  extra_body: {temperature: 0.2, name: x}\n  extra_headers: {X-A: b}\n",
        );
        let lab = servers.unwrap().remove("lab").unwrap();
        assert_eq!(notes, 0);
        assert_eq!(lab.base_url.as_deref(), Some("http://a/v1"));
        assert_eq!(lab.transport.as_deref(), Some("anthropic_messages"));
        assert_eq!(lab.request_timeout_seconds, None);
        assert_eq!((lab.enabled, lab.max_output_tokens), (Some(false), Some(9)));
        assert_eq!(Value::from(lab.extra_body), json!({"temperature": 0.2, "name": "x"}));
        assert_eq!(lab.extra_headers, [("X-A".to_owned(), Secret::new("b"))]);
        let (list, notes) = read::<ServerList>(
            "- {name: Lab, base_url: 'http://a/v1', api_key: k, model: m}\n- {name: nothing}\n- text\n",
        );
        let list = list.unwrap();
        assert_eq!((list.len(), notes, list[0].default_model.as_deref()), (1, 2, Some("m")));
        let servers = read::<Servers>("lab: {base_url: c, url: b, api: a}").0.unwrap();
        assert_eq!(servers["lab"].base_url.as_deref(), Some("a"));
    }

    #[test]
    fn fallbacks_that_name_no_model_are_left_out() {
        let text = "- text\n- {provider: x}\n- {provider: a, model: m, api_key_env: K}\n";
        let (list, notes) = read::<Fallbacks>(text);
        let list = list.unwrap();
        assert_eq!((list.len(), notes, list[0].key_env.as_deref()), (1, 2, Some("K")));
        let (one, notes) = read::<Fallbacks>("{provider: a, model: m}");
        assert_eq!((one.unwrap().len(), notes), (1, 0));
    }

    #[test]
    fn every_effort_of_the_python_program_is_accepted() {
        for (text, expected) in [
            ("max", Some(Effort::Max)),
            ("ultra", Some(Effort::Ultra)),
            ("false", Some(Effort::None)),
            ("off", Some(Effort::None)),
            ("disabled", Some(Effort::None)),
            ("\"\"", None),
        ] {
            assert_eq!(read::<Option<Effort>>(text).0.unwrap(), expected, "{text}");
        }
    }
}
