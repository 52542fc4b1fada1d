//! Settings in the words of `docker run`.

use std::collections::BTreeMap;

use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::backend::docker::run_args::value::{Gpus, format_size, parse_size};
use serde_json::{Map, Value, json};

use super::{InvalidValue, Setting, SettingNote, entries, invalid, scalar, unfolded};
use crate::yaml::{Node, NodeKind};

/// Options of `docker run`, each with a known meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExtraArgs {
    /// As they were written.
    words: Vec<String>,
    /// What they mean.
    pub meaning: RunArgs,
}

impl Setting for ExtraArgs {
    /// An option that is unknown, or has a wrong value, is an error: the owner counts on it.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let words = Vec::<String>::read(node, notes)?;
        let meaning = RunArgs::parse(&words).map_err(|bad| {
            let items = entries::<Self>(node).unwrap_or_default();
            let at = items.get(bad.item).map_or(node.at, |item| item.at);
            InvalidValue { at, expected: bad.expected, found: bad.found }
        })?;
        Ok(Self { words, meaning })
    }

    fn show(&self) -> Value {
        self.words.show()
    }

    fn schema() -> Value {
        let mut schema = Vec::<String>::schema();
        let words = ["--cap-add=NET_RAW", "--ulimit=nofile=1024", "--add-host=db:10.0.0.1", "--read-only"];
        schema["examples"] = words.iter().map(|word| json!([word])).collect();
        schema
    }

    fn expected() -> String {
        "a list of options of `docker run`".into()
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

impl Setting for ByteSize {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let bytes = scalar(node).and_then(parse_size).filter(|bytes| *bytes > 0);
        bytes.map(Self).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        Value::from(format_size(self.0))
    }

    fn schema() -> Value {
        json!({"type": ["string", "integer"], "examples": ["64m", "512m", "1g", "2g"]})
    }

    fn expected() -> String {
        "a size such as 512m".into()
    }
}

impl Setting for Gpus {
    fn read(node: &Node, _: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        scalar(node).and_then(|text| text.parse().ok()).ok_or_else(|| invalid::<Self>(node))
    }

    fn show(&self) -> Value {
        Value::from(self.to_string())
    }

    fn schema() -> Value {
        json!({"type": ["string", "integer"], "examples": ["all", "device=0", "device=1", "device=0,1"]})
    }

    fn expected() -> String {
        "all, a number from 1 up, or device= and the ids between commas".into()
    }
}

/// The directories of a container that are in memory and whose size can be chosen.
const IN_MEMORY: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/workspace", "/root", "/home"];

/// Sizes of directories that are in memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TmpfsMap(pub BTreeMap<String, u64>);

impl Setting for TmpfsMap {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let NodeKind::Map(entries) = &inner.as_ref().unwrap_or(node).kind else {
            return Err(invalid::<Self>(node));
        };
        let mut sizes = BTreeMap::new();
        for entry in entries {
            if !IN_MEMORY.contains(&entry.key.as_str()) {
                let found = format!("`{}`", entry.key.escape_debug());
                return Err(InvalidValue { at: entry.at, expected: Self::expected(), found });
            }
            sizes.insert(entry.key.clone(), ByteSize::read(&entry.value, notes)?.0);
        }
        Ok(Self(sizes))
    }

    fn show(&self) -> Value {
        let shown = self.0.iter().map(|(path, bytes)| (path.clone(), ByteSize(*bytes).show()));
        shown.collect::<Map<_, _>>().into()
    }

    fn schema() -> Value {
        let paths: Map<_, _> =
            IN_MEMORY.iter().map(|path| ((*path).to_owned(), ByteSize::schema())).collect();
        let examples =
            json!([{"/tmp": "1g"}, {"/tmp": "2g"}, {"/run": "128m"}, {"/workspace": "20g", "/root": "2g"}]);
        json!({"type": "object", "properties": paths, "additionalProperties": false, "examples": examples})
    }

    fn expected() -> String {
        format!("a map from some of {} to sizes such as 512m", IN_MEMORY.join(", "))
    }
}
