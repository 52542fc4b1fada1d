//! Renders values as YAML text.

use serde_json::{Map, Value};

use crate::yaml::{self, Node, NodeKind, ScalarStyle};

/// Whether a scalar is inside brackets, where commas and colons end it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ScalarContext {
    Block,
    Flow,
}

pub(super) fn style_of(node: &Node) -> ScalarStyle {
    match node.kind {
        NodeKind::Scalar { style: ScalarStyle::SingleQuoted, .. } => ScalarStyle::SingleQuoted,
        NodeKind::Scalar { style: ScalarStyle::DoubleQuoted, .. } => ScalarStyle::DoubleQuoted,
        _ => ScalarStyle::Plain,
    }
}

pub(super) fn is_nested(value: &Value) -> bool {
    value.is_array() || value.is_object()
}

pub(super) fn is_empty(value: &Value) -> bool {
    value.as_array().is_some_and(Vec::is_empty) || value.as_object().is_some_and(Map::is_empty)
}

/// A value on one line.
pub(super) fn flow(value: &Value, style: ScalarStyle) -> String {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.to_string(),
        Value::String(text) => scalar(text, style, ScalarContext::Block),
        Value::Array(items) => format!("[{}]", items.iter().map(flow_inner).collect::<Vec<_>>().join(", ")),
        Value::Object(map) => {
            let pair = |(key, value): (&String, &Value)| {
                format!("{}: {}", scalar(key, ScalarStyle::Plain, ScalarContext::Flow), flow_inner(value))
            };
            format!("{{{}}}", map.iter().map(pair).collect::<Vec<_>>().join(", "))
        }
    }
}

fn flow_inner(value: &Value) -> String {
    match value {
        Value::String(text) => scalar(text, ScalarStyle::Plain, ScalarContext::Flow),
        value => flow(value, ScalarStyle::Plain),
    }
}

/// A map or list as indented lines.
pub(super) fn block(value: &Value, indent: usize, nl: &str) -> String {
    let mut lines = String::new();
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                let key = scalar(key, ScalarStyle::Plain, ScalarContext::Block);
                if is_nested(value) && !is_empty(value) {
                    lines.push_str(&format!("{:indent$}{key}:{nl}{}", "", block(value, indent + 2, nl)));
                } else {
                    lines.push_str(&format!("{:indent$}{key}: {}{nl}", "", flow(value, ScalarStyle::Plain)));
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                lines.push_str(&format!("{:indent$}- {}{nl}", "", flow(item, ScalarStyle::Plain)));
            }
        }
        value => lines.push_str(&format!("{:indent$}{}{nl}", "", flow(value, ScalarStyle::Plain))),
    }
    lines
}

/// Renders a text as a scalar: in the requested quotes if they can hold it, and without quotes only
/// if it cannot be mistaken for another type.
pub(super) fn scalar(text: &str, style: ScalarStyle, context: ScalarContext) -> String {
    let one_line = text.chars().all(|c| !needs_escape(c));
    match style {
        ScalarStyle::SingleQuoted if one_line => format!("'{}'", text.replace('\'', "''")),
        ScalarStyle::Plain if is_plain(text, context) => text.to_owned(),
        _ => {
            let mut quoted = String::from("\"");
            for c in text.chars() {
                match c {
                    '"' => quoted.push_str("\\\""),
                    '\\' => quoted.push_str("\\\\"),
                    '\n' => quoted.push_str("\\n"),
                    '\t' => quoted.push_str("\\t"),
                    c if needs_escape(c) => quoted.push_str(&format!("\\U{:08X}", u32::from(c))),
                    c => quoted.push(c),
                }
            }
            quoted.push('"');
            quoted
        }
    }
}

fn needs_escape(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

fn is_plain(text: &str, context: ScalarContext) -> bool {
    let starts_plain = text.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '_' | '/'));
    let is_allowed = |c: char| {
        c.is_ascii_alphanumeric()
            || matches!(c, '_' | '.' | '/' | '@' | '+' | '=' | '-')
            || context != ScalarContext::Flow && matches!(c, ':' | ' ')
    };
    let is_ambiguous = text.contains(": ") || text.ends_with([':', ' ']) || text.contains("  ");
    starts_plain && text.chars().all(is_allowed) && !is_ambiguous && yaml::plain_meaning(text).is_string()
}
