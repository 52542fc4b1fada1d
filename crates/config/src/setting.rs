//! The types a setting can have, and how each is read from YAML or from the text of a variable.

mod channels;
mod container;
mod model;

use std::collections::BTreeMap;

use hermes_policy::ApprovalMode;
use hermes_policy::secret_env;
use hermes_policy::user_rule::CommandPattern;
use hermes_types::{BackendName, EnvName, Network, Secret, Volume};
use serde_json::{Map, Value, json};

use super::define::Visibility;
use super::yaml::{self, Node, NodeKind, Position, Style};
pub use channels::{ChannelMap, ChannelRules};
pub use container::{ByteSize, ExtraArgs, TmpfsMap};
pub use model::{Fallbacks, Servers};

/// A type that a key of the configuration can have.
pub trait Setting: Sized {
    /// Whether values of this type may be shown.
    const VISIBILITY: Visibility = Visibility::Public;

    /// Reads a value. What can be dropped without changing the rest is reported in `notes` and dropped.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue>;

    /// The value as it is shown.
    fn show(&self) -> Value;

    /// What is accepted, as a JSON Schema.
    fn schema() -> Value;

    /// What is accepted, in words.
    fn expected() -> String;
}

/// A value that is not what its key wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidValue {
    /// Where the value stands.
    pub at: Position,
    /// What was expected.
    pub expected: String,
    /// What was found.
    pub found: String,
}

/// Something that was dropped from a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingNote {
    /// Where it stands.
    pub at: Position,
    /// What and why.
    pub text: String,
}

fn invalid<T: Setting>(node: &Node) -> InvalidValue {
    let found = match &node.kind {
        NodeKind::Scalar { text, .. } if text.chars().count() <= 60 => format!("`{}`", text.escape_debug()),
        _ => node.describe().to_owned(),
    };
    InvalidValue { at: node.at, expected: T::expected(), found }
}

fn scalar(node: &Node) -> Option<&str> {
    match &node.kind {
        NodeKind::Scalar { text, .. } => Some(text),
        _ => None,
    }
}

/// A variable carries a list or a map as JSON text; in a file it is the value itself.
fn unfolded(node: &Node) -> Option<Node> {
    match &node.kind {
        NodeKind::Scalar { text, style: Style::Plain } if text.trim_start().starts_with(['[', '{']) => {
            yaml::parse(text.trim()).ok()
        }
        _ => None,
    }
}

impl Setting for bool {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let text = scalar(node).ok_or_else(|| invalid::<Self>(node))?;
        match text.trim().to_ascii_lowercase().as_str() {
            "true" | "yes" | "on" | "1" => Ok(true),
            "false" | "no" | "off" | "0" => Ok(false),
            _ => Err(invalid::<Self>(node)),
        }
    }

    fn show(&self) -> Value {
        Value::Bool(*self)
    }

    fn schema() -> Value {
        json!({"type": "boolean"})
    }

    fn expected() -> String {
        "true or false".into()
    }
}

impl Setting for u64 {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let number = scalar(node).and_then(|text| text.trim().parse::<i64>().ok());
        number.and_then(|number| number.try_into().ok()).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        Value::from(*self)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0})
    }

    fn expected() -> String {
        "a whole number from 0 up".into()
    }
}

/// An hour of the day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Hour(pub u32);

impl Setting for Hour {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let number = scalar(node).and_then(|text| text.trim().parse().ok());
        number.filter(|&hour: &u32| hour < 24).map(Self).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        Value::from(self.0)
    }

    fn schema() -> Value {
        json!({"type": "integer", "minimum": 0, "maximum": 23, "examples": [0, 4, 12, 23]})
    }

    fn expected() -> String {
        "an hour, 0 to 23".into()
    }
}

impl Setting for f64 {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let number = scalar(node).and_then(|text| text.trim().parse::<f64>().ok());
        number.filter(|n| n.is_finite() && *n >= 0.0).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        if self.fract() == 0.0 && *self < 1e15 {
            format!("{self:.0}").parse::<u64>().map_or(Value::from(*self), Value::from)
        } else {
            Value::from(*self)
        }
    }

    fn schema() -> Value {
        json!({"type": "number", "minimum": 0})
    }

    fn expected() -> String {
        "a number from 0 up".into()
    }
}

impl Setting for String {
    /// Numbers are text as they were written (ids of channels are). A bare `true` is more likely a slip.
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        match &node.kind {
            NodeKind::Scalar { text, style: Style::Plain }
                if node.at.line > 0 && yaml::plain_meaning(text).is_boolean() =>
            {
                Err(invalid::<Self>(node))
            }
            NodeKind::Scalar { text, .. } => Ok(text.clone()),
            _ => Err(invalid::<Self>(node)),
        }
    }

    fn show(&self) -> Value {
        Value::String(self.clone())
    }

    fn schema() -> Value {
        json!({"type": "string"})
    }

    fn expected() -> String {
        "text".into()
    }
}

impl Setting for Secret {
    const VISIBILITY: Visibility = Visibility::Secret;

    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        // The value itself must not end up in a message.
        String::read(node, notes)
            .map(Self::new)
            .map_err(|wrong| InvalidValue { found: node.describe().to_owned(), ..wrong })
    }

    fn show(&self) -> Value {
        Value::String(self.to_string())
    }

    fn schema() -> Value {
        json!({"type": "string", "writeOnly": true})
    }

    fn expected() -> String {
        "text".into()
    }
}

impl<T: Setting> Setting for Option<T> {
    const VISIBILITY: Visibility = T::VISIBILITY;

    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        T::read(node, notes).map(Some)
    }

    fn show(&self) -> Value {
        self.as_ref().map_or(Value::Null, T::show)
    }

    fn schema() -> Value {
        T::schema()
    }

    fn expected() -> String {
        T::expected()
    }
}

impl Setting for BackendName {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        scalar(node).and_then(|text| text.parse().ok()).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        Value::from(self.as_str())
    }

    fn schema() -> Value {
        let words: Vec<&str> = Self::ALL.iter().map(|name| name.as_str()).chain(["apptainer"]).collect();
        json!({"type": "string", "enum": words})
    }

    fn expected() -> String {
        format!("one of {}", Self::ALL.map(Self::as_str).join(", "))
    }
}

/// Makes an enum of the words a setting accepts.
macro_rules! choice {
    ($(#[doc = $doc:literal])+ $name:ident { $($(#[doc = $item_doc:literal])* $item:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        $(#[doc = $doc])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[doc = $item_doc])* $item),+ }

        choice!(for $name { $($item = $word $(| $alias)*),+ });
    };
    (for $name:ident { $($item:ident = $word:literal $(| $alias:literal)*),+ }) => {
        impl $crate::setting::Setting for $name {
            fn read(
                node: &$crate::yaml::Node,
                _: &mut Vec<$crate::setting::SettingNote>,
            ) -> Result<Self, $crate::setting::InvalidValue> {
                match $crate::setting::keyword(node).as_deref() {
                    $(Some($word $(| $alias)*) => Ok(Self::$item),)+
                    _ => Err($crate::setting::invalid_keyword::<Self>(node)),
                }
            }

            fn show(&self) -> serde_json::Value {
                serde_json::Value::from(match self { $(Self::$item => $word),+ })
            }

            fn schema() -> serde_json::Value {
                serde_json::json!({"enum": [$($word),+]})
            }

            fn expected() -> String {
                format!("one of {}", [$($word),+].join(", "))
            }
        }
    };
}
pub(crate) use choice;

pub(crate) fn keyword(node: &Node) -> Option<String> {
    scalar(node).map(|text| text.trim().to_ascii_lowercase())
}

pub(crate) fn invalid_keyword<T: Setting>(node: &Node) -> InvalidValue {
    invalid::<T>(node)
}

/// `smart` of the Python program asks a model first. This version does not: it asks a person, as `manual` does.
impl Setting for ApprovalMode {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        match keyword(node).as_deref() {
            Some("manual") => Ok(Self::Manual),
            Some("off" | "false" | "no") => Ok(Self::Off),
            Some("smart") => {
                let text = "`smart` is not supported by this version; `manual` is used instead".to_owned();
                notes.push(SettingNote { at: node.at, text });
                Ok(Self::Manual)
            }
            _ => Err(invalid::<Self>(node)),
        }
    }

    fn show(&self) -> Value {
        Value::from(match self {
            Self::Off => "off",
            Self::Manual => "manual",
        })
    }

    fn schema() -> Value {
        json!({"enum": ["manual", "off"]})
    }

    fn expected() -> String {
        "one of manual, off".into()
    }
}

choice!(for Network { Full = "full", None = "none", Proxy = "proxy" });

impl Setting for Vec<String> {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        entries::<Self>(node)?
            .into_iter()
            .map(|item| {
                String::read(&item, notes).map_err(|_| InvalidValue { at: item.at, ..invalid::<Self>(&item) })
            })
            .collect()
    }

    fn show(&self) -> Value {
        json!(self)
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string"}})
    }

    fn expected() -> String {
        "a list of texts".into()
    }
}

fn entries<T: Setting>(node: &Node) -> Result<Vec<Node>, InvalidValue> {
    match unfolded(node).map(|inner| inner.kind).as_ref().unwrap_or(&node.kind) {
        NodeKind::List(items) => Ok(items.clone()),
        _ => Err(invalid::<T>(node)),
    }
}

impl Setting for Vec<EnvName> {
    /// Names are trimmed and kept once each; an entry that cannot be a name is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut names = Vec::new();
        for (index, item) in entries::<Self>(node)?.iter().enumerate() {
            match scalar(item).map(str::parse::<EnvName>) {
                Some(Ok(name)) if names.contains(&name) => {}
                Some(Ok(name)) => names.push(name),
                Some(Err(bad)) => {
                    notes.push(SettingNote { at: item.at, text: format!("entry {index}: {bad}; ignored") })
                }
                None => notes.push(SettingNote {
                    at: item.at,
                    text: format!("entry {index}: {} is not a variable name; ignored", item.describe()),
                }),
            }
        }
        Ok(names)
    }

    fn show(&self) -> Value {
        self.iter().map(EnvName::as_str).collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string", "pattern": r"^\s*[A-Za-z_][A-Za-z0-9_]*\s*$"}})
    }

    fn expected() -> String {
        "a list of variable names".into()
    }
}

/// Variables that every command may see. What hermes itself lives on is not let through in bulk.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Passthrough(pub Vec<EnvName>);

impl Setting for Passthrough {
    /// A name that is withheld is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut names = Vec::<EnvName>::read(node, notes)?;
        let items = entries::<Self>(node)?;
        let at = |name: &EnvName| {
            let same = |item: &&Node| scalar(item).is_some_and(|text| text.trim() == name.as_str());
            items.iter().find(same).map_or(node.at, |item| item.at)
        };
        names.retain(|name| {
            let family = secret_env::secret_family(name.as_str());
            notes.extend(family.map(|family| SettingNote {
                at: at(name),
                text: format!(
                    "`{name}` is {}, which is not let through in bulk; ignored",
                    family.description
                ),
            }));
            family.is_none()
        });
        Ok(Self(names))
    }

    fn show(&self) -> Value {
        self.0.show()
    }

    fn schema() -> Value {
        Vec::<EnvName>::schema()
    }

    fn expected() -> String {
        Vec::<EnvName>::expected()
    }
}

impl Setting for Vec<Volume> {
    /// An entry that is no mount, or mounts over another one, is dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut volumes: Self = Vec::new();
        for (index, item) in entries::<Self>(node)?.iter().enumerate() {
            let mut drop = |why: String| {
                let shown = scalar(item).map_or_else(|| item.describe().into(), |text| format!("`{text}`"));
                notes.push(SettingNote {
                    at: item.at,
                    text: format!("entry {index} ({shown}): {why}; ignored"),
                });
            };
            match scalar(item).map(Volume::parse) {
                Some(Ok(volume)) if volumes.iter().any(|known| known.target == volume.target) => {
                    drop(format!("`{}` is mounted by an earlier entry", volume.target));
                }
                Some(Ok(volume)) => volumes.push(volume),
                Some(Err(bad)) => drop(bad.to_string()),
                None => drop("not text".into()),
            }
        }
        Ok(volumes)
    }

    fn show(&self) -> Value {
        self.iter().map(|volume| Value::from(volume.to_string())).collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string", "pattern": "^[^:]+:/[^:]+(:[^:]*)?$"}})
    }

    fn expected() -> String {
        "a list of `source:target[:options]`".into()
    }
}

impl Setting for Vec<CommandPattern> {
    /// A rule that cannot be read is an error: the owner counts on it.
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        entries::<Self>(node)?
            .iter()
            .map(|item| scalar(item).and_then(|text| text.parse().ok()).ok_or_else(|| invalid::<Self>(item)))
            .collect()
    }

    fn show(&self) -> Value {
        self.iter().map(|pattern| Value::from(pattern.to_string())).collect()
    }

    fn schema() -> Value {
        json!({"type": "array", "items": {"type": "string", "examples": ["git push --force *"]}})
    }

    fn expected() -> String {
        "a list of commands such as `git push --force *`".into()
    }
}

/// Variables with literal values, in the order of their names.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EnvMap(pub BTreeMap<EnvName, String>);

impl Setting for EnvMap {
    /// Numbers and booleans become the text they were written as; other values are dropped with a note.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let NodeKind::Map(entries) = &inner.as_ref().unwrap_or(node).kind else {
            return Err(invalid::<Self>(node));
        };
        let mut map = BTreeMap::new();
        for entry in entries {
            match (entry.key.parse::<EnvName>(), scalar(&entry.value)) {
                (Ok(name), Some(text)) => {
                    map.insert(name, text.to_owned());
                }
                (Ok(name), None) => notes.push(SettingNote {
                    at: entry.value.at,
                    text: format!("`{name}`: {} is not text; ignored", entry.value.describe()),
                }),
                (Err(bad), _) => notes.push(SettingNote { at: entry.at, text: format!("{bad}; ignored") }),
            }
        }
        Ok(Self(map))
    }

    fn show(&self) -> Value {
        self.0
            .iter()
            .map(|(name, text)| (name.to_string(), Value::from(text.as_str())))
            .collect::<Map<_, _>>()
            .into()
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
    }

    fn expected() -> String {
        "a map from variable names to texts".into()
    }
}

/// Texts by name, in file order.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TextMap(pub Vec<(String, String)>);

impl Setting for TextMap {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let NodeKind::Map(entries) = &inner.as_ref().unwrap_or(node).kind else {
            return Err(invalid::<Self>(node));
        };
        let pair = |entry: &yaml::MapEntry| match scalar(&entry.value) {
            Some(text) => Ok((entry.key.clone(), text.to_owned())),
            None => Err(invalid::<Self>(&entry.value)),
        };
        entries.iter().map(pair).collect::<Result<_, _>>().map(Self)
    }

    fn show(&self) -> Value {
        self.0
            .iter()
            .map(|(name, text)| (name.clone(), Value::from(text.as_str())))
            .collect::<Map<_, _>>()
            .into()
    }

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}})
    }

    fn expected() -> String {
        "a map from names to texts".into()
    }
}

/// Words between commas, or a YAML list of them.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CommaList(pub Vec<String>);

impl Setting for CommaList {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let words: Vec<String> = match &inner.as_ref().unwrap_or(node).kind {
            NodeKind::Scalar { text, .. } => text.split(',').map(str::to_owned).collect(),
            NodeKind::List(items) => items
                .iter()
                .map(|item| scalar(item).map(str::to_owned).ok_or_else(|| invalid::<Self>(item)))
                .collect::<Result<_, _>>()?,
            _ => return Err(invalid::<Self>(node)),
        };
        let trimmed = words.iter().map(|word| word.trim()).filter(|word| !word.is_empty());
        Ok(Self(trimmed.map(str::to_owned).collect()))
    }

    fn show(&self) -> Value {
        Value::String(self.0.join(","))
    }

    fn schema() -> Value {
        json!({"anyOf": [{"type": ["string", "integer"]}, {"type": "array", "items": {"type": ["string", "integer"]}}]})
    }

    fn expected() -> String {
        "words between commas, or a list".into()
    }
}
