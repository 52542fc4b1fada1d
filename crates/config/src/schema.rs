//! The reference page and the JSON Schema, generated from the definitions of the keys.

use serde_json::{Value, json};

use super::define::{ConfigKey, Visibility};
use super::keys;

/// The JSON Schema of `config.yaml`.
pub fn json_schema() -> Value {
    let mut root = json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "config.yaml of hermes",
        "type": "object",
        "properties": { "_config_version": {"type": "integer", "minimum": 0} },
    });
    for key in keys::all() {
        let mut at = &mut root;
        let mut parts = key.path.split('.').peekable();
        while let Some(part) = parts.next() {
            at = &mut at["properties"][part];
            if parts.peek().is_some() && at.is_null() {
                *at = json!({"type": "object", "properties": {}});
            }
        }
        *at = property(key);
    }
    // `model: name` is short for `model.default`.
    let model = root["properties"]["model"].take();
    root["properties"]["model"] = json!({"anyOf": [{"type": "string"}, model]});
    root
}

fn property(key: &ConfigKey) -> Value {
    let mut property = json!({"description": sentence(key)});
    if let (Value::Object(property), Value::Object(schema)) = (&mut property, key.accepted().schema) {
        property.extend(schema);
    }
    let default = (key.default)();
    if !default.is_null() {
        property["default"] = default;
    }
    property
}

/// The reference page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration\n\n\
         Generated from the definitions in `crates/config/src/keys.rs`; change them there, then run `cargo xtask docs`.\n\n\
         For every key, the first of these that has a value counts: command-line flag, process environment, \
         `.env` in the home, `config.yaml` in the home, default. `hermes config explain KEY` shows the source of the value \
         and the values that it hides. Lists and maps in variables are JSON text. `${NAME}` in a text of `config.yaml` is \
         replaced by that variable. Secrets belong in `.env`; `hermes config set` writes them there.\n",
    );
    let mut section = None;
    for key in keys::all() {
        let name = key.path.rsplit_once('.').map_or("", |(section, _)| section);
        if section != Some(name) {
            section = Some(name);
            let title = if name.is_empty() { "Without a section" } else { name };
            page.push_str(&format!(
                "\n## {title}\n\n| key | variable | type | default | meaning |\n|---|---|---|---|---|\n"
            ));
        }
        let default = (key.default)();
        let default = match (&default, key.visibility) {
            (_, Visibility::Secret) => "secret".to_owned(),
            (Value::Null, _) => String::new(),
            (Value::String(text), _) if text.is_empty() => "empty".to_owned(),
            (Value::String(text), _) => format!("`{text}`"),
            (value, _) => format!("`{value}`"),
        };
        let older: String = key.aliases.iter().map(|alias| format!(" Older name: `{alias}`.")).collect();
        page.push_str(&format!(
            "| `{}` | `{}` | {} | {default} | {}{older} |\n",
            key.path,
            key.variable,
            key.accepted().description,
            sentence(key)
        ));
    }
    page
}

/// The key's documentation on one line.
pub fn sentence(key: &ConfigKey) -> String {
    key.doc.split_whitespace().collect::<Vec<_>>().join(" ")
}
