//! Settings of single channels of a chat platform.

use std::collections::BTreeMap;

use hermes_gateway::discord::ChannelOverride;
use serde_json::{Map, Value, json};

use super::{Accepted, InvalidValue, Setting, SettingNote, invalid, map_entries};
use crate::yaml::{Node, NodeKind};

/// Overrides by channel id.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelMap(pub BTreeMap<String, ChannelOverride>);

const RULES: [&str; 3] = ["require_mention", "auto_thread", "thread_require_mention"];

fn rule<'o>(channel: &'o mut ChannelOverride, name: &str) -> Option<&'o mut Option<bool>> {
    match name {
        "require_mention" => Some(&mut channel.require_mention),
        "auto_thread" => Some(&mut channel.auto_thread),
        "thread_require_mention" => Some(&mut channel.thread_require_mention),
        _ => None,
    }
}

impl Setting for ChannelMap {
    /// An unknown rule is an error: the owner relies on it.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let mut map = BTreeMap::new();
        for channel in map_entries::<Self>(node)? {
            let NodeKind::Map(entries) = &channel.value.kind else {
                return Err(invalid::<Self>(&channel.value));
            };
            let mut rules = ChannelOverride::default();
            for entry in entries {
                let unknown = || InvalidValue {
                    found: format!("`{}`", entry.key),
                    at: entry.at,
                    ..invalid::<Self>(node)
                };
                *rule(&mut rules, &entry.key).ok_or_else(unknown)? = Some(bool::read(&entry.value, notes)?);
            }
            map.insert(channel.key, rules);
        }
        Ok(Self(map))
    }

    fn to_value(&self) -> Value {
        let rules = |mut channel: ChannelOverride| {
            let set = RULES.iter().filter_map(|name| {
                let value = (*rule(&mut channel, name)?)?;
                Some(((*name).to_owned(), Value::from(value)))
            });
            Value::from(set.collect::<Map<_, _>>())
        };
        self.0.iter().map(|(id, channel)| (id.clone(), rules(*channel))).collect::<Map<_, _>>().into()
    }

    fn accepted() -> Accepted {
        let rules: Map<_, _> =
            RULES.iter().map(|name| ((*name).to_owned(), json!({"type": "boolean"}))).collect();
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
        assert_eq!(map, ChannelMap(expected));
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
