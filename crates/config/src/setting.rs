//! The types of settings, and how each is read from YAML or from the text of a variable.

mod channels;
mod container;
mod model;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use hermes_policy::ApprovalMode;
use hermes_policy::secret_env;
use hermes_policy::text_pattern::TextPattern;
use hermes_policy::user_rule::CommandPattern;
use hermes_types::{BackendName, EnvName, Guard, Network, Secret, Volume};
use serde_json::{Map, Value, json};

use super::define::Visibility;
use super::yaml::{self, MapEntry, Node, NodeKind, Position, ScalarStyle};
pub use channels::ChannelMap;
pub use container::{ByteSize, ExtraArgs, TmpfsMap};
pub use model::{Fallbacks, ServerList, Servers};

/// A type that a key of the configuration can have.
pub trait Setting: Sized {
    const VISIBILITY: Visibility = Visibility::Public;

    /// Reads a value. Parts that can be dropped without changing the rest are dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue>;

    /// The value as it is displayed.
    fn to_value(&self) -> Value;

    fn accepted() -> Accepted;
}

/// The values that a setting accepts.
#[derive(Debug)]
pub struct Accepted {
    /// Completes the sentence "expected …".
    pub description: String,
    /// A JSON Schema.
    pub schema: Value,
}

impl Accepted {
    fn new(description: impl Into<String>, schema: Value) -> Self {
        Self { description: description.into(), schema }
    }

    pub(crate) fn keywords(words: &[&str]) -> Self {
        Self::new(format!("one of {}", words.join(", ")), json!({"enum": words}))
    }
}

/// A value that its key does not accept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    pub at: Position,
    pub expected: String,
    pub found: String,
}

impl InvalidValue {
    pub(crate) fn new(node: &Node, expected: String) -> Self {
        let found = match scalar(node) {
            Some(text) if text.chars().count() <= 60 => format!("`{}`", text.escape_debug()),
            _ => node.describe().to_owned(),
        };
        Self { at: node.at, expected, found }
    }
}

/// A part of a value that was dropped, with the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingNote {
    pub at: Position,
    pub text: String,
}

impl SettingNote {
    fn ignored(at: Position, reason: impl fmt::Display) -> Self {
        Self { at, text: format!("{reason}; ignored") }
    }
}

pub(crate) fn invalid<T: Setting>(node: &Node) -> InvalidValue {
    InvalidValue::new(node, T::accepted().description)
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

fn parse_scalar<T: Setting, V>(
    node: &Node,
    parse: impl FnOnce(&str) -> Option<V>,
) -> Result<V, InvalidValue> {
    scalar(node).and_then(parse).ok_or_else(|| invalid::<T>(node))
}

/// The value itself. A variable holds a list or a map as JSON text.
fn parse_json_text(node: &Node) -> Node {
    match &node.kind {
        NodeKind::Scalar { text, style: ScalarStyle::Plain } if text.trim_start().starts_with(['[', '{']) => {
            yaml::parse(text.trim()).unwrap_or_else(|_| node.clone())
        }
        _ => node.clone(),
    }
}

fn list_items<T: Setting>(node: &Node) -> Result<Vec<Node>, InvalidValue> {
    match parse_json_text(node).kind {
        NodeKind::List(items) => Ok(items),
        _ => Err(invalid::<T>(node)),
    }
}

fn map_entries<T: Setting>(node: &Node) -> Result<Vec<MapEntry>, InvalidValue> {
    match parse_json_text(node).kind {
        NodeKind::Map(entries) => Ok(entries),
        _ => Err(invalid::<T>(node)),
    }
}

/// Implements [`Setting`] for a type whose values are one scalar.
macro_rules! scalar_setting {
    ($type:ty, $description:literal, $schema:tt, $parse:expr, $to_value:expr) => {
        impl $crate::setting::Setting for $type {
            fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
                let parse: fn(&str) -> Option<Self> = $parse;
                $crate::setting::parse_scalar::<Self, _>(node, parse)
            }

            fn to_value(&self) -> Value {
                let to_value: fn(&Self) -> Value = $to_value;
                to_value(self)
            }

            fn accepted() -> Accepted {
                Accepted::new($description, json!($schema))
            }
        }
    };
}
use scalar_setting;

scalar_setting! {
    bool, "true or false", {"type": "boolean"},
    |text| match text.trim().to_ascii_lowercase().as_str() {
        "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" => Some(false),
        _ => None,
    },
    |value| Value::Bool(*value)
}

scalar_setting! {
    u64, "a whole number from 0 up", {"type": "integer", "minimum": 0},
    |text| text.trim().parse::<i64>().ok()?.try_into().ok(),
    |number| Value::from(*number)
}

/// An hour of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hour(pub u32);

scalar_setting! {
    Hour, "an hour, 0 to 23",
    {"type": "integer", "minimum": 0, "maximum": 23, "examples": [0, 4, 12, 23]},
    |text| text.trim().parse().ok().filter(|hour| *hour < 24).map(Self),
    |hour| Value::from(hour.0)
}

scalar_setting! {
    f64, "a number from 0 up", {"type": "number", "minimum": 0},
    |text| text.trim().parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0),
    // A whole number is displayed without a point.
    |number| number.to_string().parse().map_or(Value::Null, Value::Number)
}

impl Setting for String {
    /// Numbers are text as written, such as channel ids. A bare `true` in a file is probably a
    /// mistake.
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        match &node.kind {
            NodeKind::Scalar { text, style: ScalarStyle::Plain }
                if node.at.line > 0 && yaml::plain_meaning(text).is_boolean() =>
            {
                Err(invalid::<Self>(node))
            }
            NodeKind::Scalar { text, .. } => Ok(text.clone()),
            _ => Err(invalid::<Self>(node)),
        }
    }

    fn to_value(&self) -> Value {
        Value::String(self.clone())
    }

    fn accepted() -> Accepted {
        Accepted::new("text", json!({"type": "string"}))
    }
}

impl Setting for Secret {
    const VISIBILITY: Visibility = Visibility::Secret;

    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        // The value must not appear in a message.
        String::read(node, notes)
            .map(Self::new)
            .map_err(|invalid| InvalidValue { found: node.describe().to_owned(), ..invalid })
    }

    fn to_value(&self) -> Value {
        Value::String(self.to_string())
    }

    fn accepted() -> Accepted {
        Accepted::new("text", json!({"type": "string", "writeOnly": true}))
    }
}

impl<T: Setting> Setting for Option<T> {
    const VISIBILITY: Visibility = T::VISIBILITY;

    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        T::read(node, notes).map(Some)
    }

    fn to_value(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::to_value)
    }

    fn accepted() -> Accepted {
        T::accepted()
    }
}

impl Setting for BackendName {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        parse_scalar::<Self, _>(node, |text| text.parse().ok())
    }

    fn to_value(&self) -> Value {
        Value::from(self.as_str())
    }

    fn accepted() -> Accepted {
        let names: Vec<&str> = Self::ALL.iter().map(|name| name.as_str()).collect();
        let words = [names.as_slice(), &["apptainer"]].concat();
        Accepted::new(format!("one of {}", names.join(", ")), json!({"type": "string", "enum": words}))
    }
}

/// Implements [`Setting`] for a type whose values are keywords, and optionally defines the enum.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $item_doc:literal])* $item:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[doc = $item_doc])* $item),+ }

        choice!(for $name { $($name::$item => $word $(| $alias)*),+ });
    };
    (for $name:ty { $($value:expr => $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        impl $crate::setting::Setting for $name {
            fn read(
                node: &$crate::yaml::Node,
                _: &mut Vec<$crate::setting::SettingNote>,
            ) -> Result<Self, $crate::setting::InvalidValue> {
                match $crate::setting::keyword(node).as_deref() {
                    $(Some($word $(| $alias)*) => Ok($value),)+
                    _ => Err($crate::setting::invalid::<Self>(node)),
                }
            }

            fn to_value(&self) -> serde_json::Value {
                let words = [$(($value, $word)),+];
                let found = words.iter().find(|(value, _)| value == self);
                found.map_or(serde_json::Value::Null, |(_, word)| serde_json::Value::from(*word))
            }

            fn accepted() -> $crate::setting::Accepted {
                $crate::setting::Accepted::keywords(&[$($word),+])
            }
        }
    };
}
pub(crate) use choice;

pub(crate) fn keyword(node: &Node) -> Option<String> {
    scalar(node).map(|text| text.trim().to_ascii_lowercase())
}

choice!(for ApprovalMode {
    Self::Manual => "manual",
    Self::Smart => "smart",
    Self::Off => "off" | "false" | "no",
});
choice!(for Guard { Self::Off => "off", Self::Protect => "protect", Self::Project => "project" });
choice!(for Network { Self::Full => "full", Self::None => "none", Self::Proxy => "proxy" });

impl Setting for Vec<String> {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let items = list_items::<Self>(node)?;
        items.iter().map(|item| String::read(item, notes).map_err(|_| invalid::<Self>(item))).collect()
    }

    fn to_value(&self) -> Value {
        json!(self)
    }

    fn accepted() -> Accepted {
        Accepted::new("a list of texts", json!({"type": "array", "items": {"type": "string"}}))
    }
}

/// Reads variable names, each once. An entry that is not a name, or that `rejection` gives a reason
/// against, is dropped with a note.
fn read_names(
    node: &Node,
    notes: &mut Vec<SettingNote>,
    rejection: impl Fn(&EnvName) -> Option<String>,
) -> Result<Vec<EnvName>, InvalidValue> {
    let mut names = Vec::new();
    for (index, item) in list_items::<Vec<EnvName>>(node)?.iter().enumerate() {
        let name = match scalar(item).map(str::parse::<EnvName>) {
            Some(Ok(name)) => rejection(&name).map_or(Ok(name), Err),
            Some(Err(error)) => Err(format!("entry {index}: {error}")),
            None => Err(format!("entry {index}: {} is not a variable name", item.describe())),
        };
        match name {
            Ok(name) if names.contains(&name) => {}
            Ok(name) => names.push(name),
            Err(reason) => notes.push(SettingNote::ignored(item.at, reason)),
        }
    }
    Ok(names)
}

impl Setting for Vec<EnvName> {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        read_names(node, notes, |_| None)
    }

    fn to_value(&self) -> Value {
        self.iter().map(EnvName::as_str).collect()
    }

    fn accepted() -> Accepted {
        let name = json!({"type": "string", "pattern": r"^\s*[A-Za-z_][A-Za-z0-9_]*\s*$"});
        Accepted::new("a list of variable names", json!({"type": "array", "items": name}))
    }
}

/// Variables that every command can read. Secrets of Hermes itself are refused.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passthrough(pub Vec<EnvName>);

impl Setting for Passthrough {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let rejection = |name: &EnvName| {
            let family = secret_env::secret_family(name.as_str())?;
            Some(format!("`{name}` is {} and cannot be passed to every command", family.description))
        };
        read_names(node, notes, rejection).map(Self)
    }

    fn to_value(&self) -> Value {
        self.0.to_value()
    }

    fn accepted() -> Accepted {
        Vec::<EnvName>::accepted()
    }
}

impl Setting for Vec<Volume> {
    /// An entry that is not a mount, or whose target is already mounted, is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut volumes: Self = Vec::new();
        for (index, item) in list_items::<Self>(node)?.iter().enumerate() {
            let reason = match scalar(item).map(Volume::parse) {
                Some(Ok(volume)) if volumes.iter().any(|known| known.target == volume.target) => {
                    format!("`{}` is mounted by an earlier entry", volume.target)
                }
                Some(Ok(volume)) => {
                    volumes.push(volume);
                    continue;
                }
                Some(Err(error)) => error.to_string(),
                None => "not text".to_owned(),
            };
            let entry = scalar(item).map_or_else(|| item.describe().into(), |text| format!("`{text}`"));
            notes.push(SettingNote::ignored(item.at, format!("entry {index} ({entry}): {reason}")));
        }
        Ok(volumes)
    }

    fn to_value(&self) -> Value {
        self.iter().map(|volume| Value::from(volume.to_string())).collect()
    }

    fn accepted() -> Accepted {
        let volume = json!({"type": "string", "pattern": "^[^:]+:/[^:]+(:[^:]*)?$"});
        Accepted::new("a list of `source:target[:options]`", json!({"type": "array", "items": volume}))
    }
}

/// A pattern that matches commands.
trait Pattern: FromStr + fmt::Display {
    const PLURAL: &str;
    const EXAMPLE: &str;
}

impl Pattern for CommandPattern {
    const PLURAL: &str = "commands";
    const EXAMPLE: &str = "git push --force *";
}

impl Pattern for TextPattern {
    const PLURAL: &str = "texts";
    const EXAMPLE: &str = "*git push*--force*";
}

impl<P: Pattern> Setting for Vec<P> {
    /// An invalid pattern is an error: the owner relies on it.
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let items = list_items::<Self>(node)?;
        items.iter().map(|item| parse_scalar::<Self, _>(item, |text| text.parse().ok())).collect()
    }

    fn to_value(&self) -> Value {
        self.iter().map(|pattern| Value::from(pattern.to_string())).collect()
    }

    fn accepted() -> Accepted {
        let pattern = json!({"type": "string", "examples": [P::EXAMPLE]});
        let description = format!("a list of {} such as `{}`", P::PLURAL, P::EXAMPLE);
        Accepted::new(description, json!({"type": "array", "items": pattern}))
    }
}

/// A value without the fields that are null, at any depth.
fn without_nulls(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let fields = map.into_iter().filter(|(_, value)| !value.is_null());
            fields.map(|(name, value)| (name, without_nulls(value))).collect()
        }
        Value::Array(items) => items.into_iter().map(without_nulls).collect(),
        other => other,
    }
}

/// The schema of a map from names to texts.
fn text_map_schema() -> Value {
    json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
}

/// Variables with literal values, sorted by name.
pub type EnvMap = BTreeMap<EnvName, String>;

impl Setting for EnvMap {
    /// Numbers and booleans are text as written; other values are dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut map = Self::new();
        for MapEntry { key, at, value, .. } in map_entries::<Self>(node)? {
            match (key.parse::<EnvName>(), scalar(&value)) {
                (Ok(name), Some(text)) => {
                    map.insert(name, text.to_owned());
                }
                (Ok(name), None) => {
                    let reason = format!("`{name}`: {} is not text", value.describe());
                    notes.push(SettingNote::ignored(value.at, reason));
                }
                (Err(error), _) => notes.push(SettingNote::ignored(at, error)),
            }
        }
        Ok(map)
    }

    fn to_value(&self) -> Value {
        json!(self.iter().map(|(name, text)| (name.as_str(), text)).collect::<BTreeMap<_, _>>())
    }

    fn accepted() -> Accepted {
        Accepted::new("a map from variable names to texts", text_map_schema())
    }
}

/// Texts by name, in file order.
pub type TextMap = Vec<(String, String)>;

impl Setting for TextMap {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let text = |entry: MapEntry| {
            parse_scalar::<Self, _>(&entry.value, |text| Some((entry.key.clone(), text.to_owned())))
        };
        map_entries::<Self>(node)?.into_iter().map(text).collect()
    }

    fn to_value(&self) -> Value {
        let entries = self.iter().map(|(name, text)| (name.clone(), Value::from(text.as_str())));
        entries.collect::<Map<_, _>>().into()
    }

    fn accepted() -> Accepted {
        Accepted::new("a map from names to texts", text_map_schema())
    }
}

/// Words separated by commas, or a YAML list of words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommaList(pub Vec<String>);

impl Setting for CommaList {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let words: Vec<String> = match parse_json_text(node).kind {
            NodeKind::Scalar { text, .. } => text.split(',').map(str::to_owned).collect(),
            NodeKind::List(items) => items
                .iter()
                .map(|item| parse_scalar::<Self, _>(item, |text| Some(text.to_owned())))
                .collect::<Result<_, _>>()?,
            _ => return Err(invalid::<Self>(node)),
        };
        let trimmed = words.iter().map(|word| word.trim()).filter(|word| !word.is_empty());
        Ok(Self(trimmed.map(str::to_owned).collect()))
    }

    fn to_value(&self) -> Value {
        Value::String(self.0.join(","))
    }

    fn accepted() -> Accepted {
        let word = json!({"type": ["string", "integer"]});
        let schema = json!({"anyOf": [word, {"type": "array", "items": word}]});
        Accepted::new("words between commas, or a list", schema)
    }
}
