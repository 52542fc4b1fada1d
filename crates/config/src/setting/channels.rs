//! What is different in single channels of a chat platform.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{InvalidValue, Setting, SettingNote, invalid, unfolded};
use crate::yaml::{Node, NodeKind};

/// Channels by id, with what is different there.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ChannelMap(pub BTreeMap<String, ChannelRules>);

/// What is different in one of them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ChannelRules {
    /// Whether the bot must be mentioned.
    pub require_mention: Option<bool>,
    /// Whether an answer gets a thread of its own.
    pub auto_thread: Option<bool>,
    /// Whether the bot must be mentioned in threads it takes part in.
    pub thread_require_mention: Option<bool>,
}

impl Setting for ChannelMap {
    /// A word that is not known is an error: the owner counts on what it says.
    fn read(node: &Node, notes: &mut Vec<SettingNote>) -> Result<Self, InvalidValue> {
        let inner = unfolded(node);
        let NodeKind::Map(channels) = &inner.as_ref().unwrap_or(node).kind else {
            return Err(invalid::<Self>(node));
        };
        let mut map = BTreeMap::new();
        for channel in channels {
            let NodeKind::Map(entries) = &channel.value.kind else {
                return Err(invalid::<Self>(&channel.value));
            };
            let mut rules = ChannelRules::default();
            for entry in entries {
                let rule = match entry.key.as_str() {
                    "require_mention" => &mut rules.require_mention,
                    "auto_thread" => &mut rules.auto_thread,
                    "thread_require_mention" => &mut rules.thread_require_mention,
                    other => {
                        return Err(InvalidValue {
                            found: format!("`{other}`"),
                            at: entry.at,
                            ..invalid::<Self>(node)
                        });
                    }
                };
                *rule = Some(bool::read(&entry.value, notes)?);
            }
            map.insert(channel.key.clone(), rules);
        }
        Ok(Self(map))
    }

    fn show(&self) -> Value {
        let rules = |rules: &ChannelRules| {
            let all = [
                ("require_mention", rules.require_mention),
                ("auto_thread", rules.auto_thread),
                ("thread_require_mention", rules.thread_require_mention),
            ];
            let set = all.into_iter().filter_map(|(word, rule)| Some((word.to_owned(), Value::from(rule?))));
            Value::from(set.collect::<Map<_, _>>())
        };
        self.0.iter().map(|(id, set)| (id.clone(), rules(set))).collect::<Map<_, _>>().into()
    }

    fn schema() -> Value {
        let rule = json!({"type": "boolean"});
        let rules = json!({"require_mention": rule, "auto_thread": rule, "thread_require_mention": rule});
        let channel = json!({"type": "object", "properties": rules, "additionalProperties": false});
        let example = |rule: &str, is: bool| json!({"123456789012345678": {rule: is}});
        let examples = [
            example("require_mention", false),
            example("require_mention", true),
            example("auto_thread", false),
            example("thread_require_mention", true),
        ];
        json!({"type": "object", "additionalProperties": channel, "examples": examples})
    }

    fn expected() -> String {
        "a map from channels to `require_mention`, `auto_thread`, `thread_require_mention`".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<ChannelMap, InvalidValue> {
        ChannelMap::read(&Node::from_text(text), &mut Vec::new())
    }

    #[test]
    fn each_channel_has_rules_of_its_own() {
        let text = r#"{"100": {"require_mention": false, "auto_thread": true}, "200": {}}"#;
        let map = read(text).unwrap();
        let first = ChannelRules {
            require_mention: Some(false),
            auto_thread: Some(true),
            thread_require_mention: None,
        };
        let expected =
            [("100".to_owned(), first), ("200".to_owned(), ChannelRules::default())].into_iter().collect();
        assert_eq!(map, ChannelMap(expected));
        let shown = json!({"100": {"require_mention": false, "auto_thread": true}, "200": {}});
        assert_eq!(map.show(), shown);
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for text in
            ["[]", "word", r#"{"1": true}"#, r#"{"1": {"mention": true}}"#, r#"{"1": {"auto_thread": 5}}"#]
        {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
