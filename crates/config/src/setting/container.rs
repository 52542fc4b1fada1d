//! Settings in the syntax of `docker run`.

use std::collections::BTreeMap;

use hermes_exec::backend::docker::run_args::RunArgs;
use hermes_exec::backend::docker::run_args::value::{Gpus, format_size, parse_size};
use serde_json::{Map, Value, json};

use super::{Accepted, InvalidValue, Setting, SettingNote, list_items, map_entries, scalar_setting};
use crate::yaml::Node;

/// Options of `docker run`, each with a known meaning.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ExtraArgs {
    /// As written.
    words: Vec<String>,
    pub parsed: RunArgs,
}

impl Setting for ExtraArgs {
    /// An unknown option or an invalid value is an error: the owner relies on it.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let words = Vec::<String>::read(node, notes)?;
        let parsed = RunArgs::parse(&words).map_err(|error| {
            let items = list_items::<Self>(node).unwrap_or_default();
            let at = items.get(error.item).map_or(node.at, |item| item.at);
            InvalidValue { at, expected: error.expected, found: error.found }
        })?;
        Ok(Self { words, parsed })
    }

    fn to_value(&self) -> Value {
        self.words.to_value()
    }

    fn accepted() -> Accepted {
        let mut schema = Vec::<String>::accepted().schema;
        let words = ["--cap-add=NET_RAW", "--ulimit=nofile=1024", "--add-host=db:10.0.0.1", "--read-only"];
        schema["examples"] = words.iter().map(|word| json!([word])).collect();
        Accepted::new("a list of options of `docker run`", schema)
    }
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteSize(pub u64);

scalar_setting! {
    ByteSize, "a size such as 512m",
    {"type": ["string", "integer"], "examples": ["64m", "512m", "1g", "2g"]},
    |text| parse_size(text).filter(|bytes| *bytes > 0).map(Self),
    |size| Value::from(format_size(size.0))
}

scalar_setting! {
    Gpus, "all, a number from 1 up, or device= and the ids between commas",
    {"type": ["string", "integer"], "examples": ["all", "device=0", "device=1", "device=0,1"]},
    |text| text.parse().ok(),
    |gpus| Value::from(gpus.to_string())
}

/// The in-memory directories of a container whose size can be set.
const TMPFS_DIRS: [&str; 6] = ["/tmp", "/var/tmp", "/run", "/workspace", "/root", "/home"];

/// Sizes in bytes of in-memory directories.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TmpfsMap(pub BTreeMap<String, u64>);

impl Setting for TmpfsMap {
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut sizes = BTreeMap::new();
        for entry in map_entries::<Self>(node)? {
            if !TMPFS_DIRS.contains(&entry.key.as_str()) {
                let found = format!("`{}`", entry.key.escape_debug());
                return Err(InvalidValue { at: entry.at, expected: Self::accepted().description, found });
            }
            sizes.insert(entry.key, ByteSize::read(&entry.value, notes)?.0);
        }
        Ok(Self(sizes))
    }

    fn to_value(&self) -> Value {
        let sizes = self.0.iter().map(|(path, bytes)| (path.clone(), ByteSize(*bytes).to_value()));
        sizes.collect::<Map<_, _>>().into()
    }

    fn accepted() -> Accepted {
        let size = ByteSize::accepted().schema;
        let paths: Map<_, _> = TMPFS_DIRS.iter().map(|path| ((*path).to_owned(), size.clone())).collect();
        let examples =
            json!([{"/tmp": "1g"}, {"/tmp": "2g"}, {"/run": "128m"}, {"/workspace": "20g", "/root": "2g"}]);
        Accepted::new(
            format!("a map from some of {} to sizes such as 512m", TMPFS_DIRS.join(", ")),
            json!({"type": "object", "properties": paths, "additionalProperties": false, "examples": examples}),
        )
    }
}
