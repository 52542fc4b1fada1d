//! Settings of single channels of a chat platform.

use std::collections::BTreeMap;

use hermes_gateway::discord::ChannelOverride;
use serde_json::{Value, json};

use super::{Accepted, InvalidValue, Setting, SettingNote, invalid, map_entries, without_nulls};
use crate::yaml::{MapEntry, Node, NodeKind};

/// Overrides by channel id.
pub type ChannelMap = BTreeMap<String, ChannelOverride>;

impl Setting for ChannelMap {
    /// An unknown rule is an error: the owner relies on it.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut map = Self::new();
        for channel in map_entries::<Self>(node)? {
            let NodeKind::Map(entries) = &channel.value.kind else {
                return Err(invalid::<Self>(&channel.value));
            };
            let mut rules = ChannelOverride::default();
            for MapEntry { key, at, value, .. } in entries {
                let rule = match key.as_str() {
                    "require_mention" => &mut rules.require_mention,
                    "auto_thread" => &mut rules.auto_thread,
                    "thread_require_mention" => &mut rules.thread_require_mention,
                    _ => {
                        let found = format!("`{key}`");
                        return Err(InvalidValue { found, at: *at, ..invalid::<Self>(node) });
                    }
                };
                *rule = Some(bool::read(value, notes)?);
            }
            map.insert(channel.key, rules);
        }
        Ok(map)
    }

    fn to_value(&self) -> Value {
        without_nulls(json!(self))
    }

    fn accepted() -> Accepted {
        let rule = bool::accepted().schema;
        let rules = json!({"require_mention": rule, "auto_thread": rule, "thread_require_mention": rule});
        let channel = json!({"type": "object", "properties": rules, "additionalProperties": false});
        let example = |rule: &str, value: bool| json!({"123456789012345678": {rule: value}});
        let examples = [
            example("require_mention", false),
            example("require_mention", true),
            example("auto_thread", false),
            example("thread_require_mention", true),
        ];
        Accepted::new(
            "a map from channels to `require_mention`, `auto_thread`, `thread_require_mention`",
            json!({"type": "object", "additionalProperties": channel, "examples": examples}),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ChannelMap, InvalidValue> {
        ChannelMap::read(&Node::from_text(text), &mut Vec::new())
    }

    #[test]
    fn each_channel_has_its_own_rules() {
        let text = r#"{"100": {"require_mention": false, "auto_thread": true}, "200": {}}"#;
        let map = read(text).unwrap();
        let first = ChannelOverride {
            require_mention: Some(false),
            auto_thread: Some(true),
            thread_require_mention: None,
        };
        let expected =
            [("100".to_owned(), first), ("200".to_owned(), ChannelOverride::default())].into_iter().collect();
        assert_eq!(map, expected);
        let value = json!({"100": {"require_mention": false, "auto_thread": true}, "200": {}});
        assert_eq!(map.to_value(), value);
    }

    #[test]
    fn unknown_rules_and_values_are_invalid() {
        for text in
            ["[]", "word", r#"{"1": true}"#, r#"{"1": {"mention": true}}"#, r#"{"1": {"auto_thread": 5}}"#]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
