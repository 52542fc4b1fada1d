//! Notices when a model goes round in circles.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

/// After how many repeats something is said, and after how many the turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GuardRules {
    /// Whether the model is warned.
    pub warns: bool,
    /// Whether the turn ends when it goes on.
    pub stops: bool,
    /// When it is warned.
    pub warn_after: Repeats,
    /// When the turn ends.
    pub stop_after: Repeats,
}

/// How often each kind of repeat may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeats {
    /// The same call that failed before.
    pub same_failure: u32,
    /// Any call of a tool that failed before, without one that worked in between.
    pub tool_failure: u32,
    /// The same call with the same result.
    pub same_result: u32,
}

impl Default for GuardRules {
    fn default() -> Self {
        Self {
            warns: true,
            stops: false,
            warn_after: Repeats { same_failure: 2, tool_failure: 3, same_result: 2 },
            stop_after: Repeats { same_failure: 5, tool_failure: 8, same_result: 5 },
        }
    }
}

/// What was called in one turn, and how it went.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    failed_calls: HashMap<u64, u32>,
    failed_tools: HashMap<String, u32>,
    results: HashMap<u64, u32>,
}

/// What is to be done about a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Remark {
    Nothing,
    /// The model hears this.
    Warn(String),
    /// The turn ends.
    Stop(String),
}

impl Guard {
    /// Notes how a call went.
    pub(crate) fn note(
        &mut self,
        rules: &GuardRules,
        tool: &str,
        arguments: &Map<String, Value>,
        answer: &Value,
        worked: bool,
    ) -> Remark {
        let call = hash(&(tool, stable(arguments)));
        if worked {
            self.failed_calls.remove(&call);
            self.failed_tools.remove(tool);
            let result = hash(&(call, answer.to_string()));
            let times = count(&mut self.results, result);
            return remark(
                rules,
                times,
                |repeats| repeats.same_result,
                || {
                    format!(
                        "the same call gave the same result {times} times; use what you have, or do something else"
                    )
                },
            );
        }
        let (same, any) =
            (count(&mut self.failed_calls, call), count(&mut self.failed_tools, tool.to_owned()));
        let said = remark(
            rules,
            same,
            |repeats| repeats.same_failure,
            || {
                format!(
                    "this very call has failed {same} times; change something about it, or do something else"
                )
            },
        );
        match said {
            Remark::Nothing => remark(
                rules,
                any,
                |repeats| repeats.tool_failure,
                || format!("{tool} has failed {any} times in a row; find out why before you go on"),
            ),
            said => said,
        }
    }
}

fn remark(
    rules: &GuardRules,
    times: u32,
    which: impl Fn(&Repeats) -> u32,
    text: impl FnOnce() -> String,
) -> Remark {
    if rules.stops && times >= which(&rules.stop_after) {
        Remark::Stop(text())
    } else if rules.warns && times >= which(&rules.warn_after) {
        Remark::Warn(text())
    } else {
        Remark::Nothing
    }
}

fn count<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) -> u32 {
    let count = counts.entry(key).or_insert(0);
    *count += 1;
    *count
}

fn hash(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// The arguments with their names in order, so that the same call is the same text.
fn stable(arguments: &Map<String, Value>) -> String {
    let mut value = Value::Object(arguments.clone());
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn repeats_are_remarked_upon_and_end_the_turn_only_if_wanted() {
        let arguments = |text: &str| json!({"command": text, "timeout": 1}).as_object().unwrap().clone();
        let turned = json!({"timeout": 1, "command": "a"}).as_object().unwrap().clone();
        let mut guard = Guard::default();
        let rules = GuardRules::default();
        let mut fail = |arguments: &Map<String, Value>| {
            guard.note(&rules, "terminal", arguments, &json!({"error": "x"}), false)
        };
        assert_eq!(fail(&arguments("a")), Remark::Nothing);
        assert!(matches!(fail(&turned), Remark::Warn(text) if text.contains("this very call")));
        assert!(matches!(fail(&arguments("b")), Remark::Warn(text) if text.contains("in a row")));
        for _ in 0..10 {
            assert!(matches!(fail(&arguments("a")), Remark::Warn(_)));
        }
        assert_eq!(guard.note(&rules, "terminal", &arguments("c"), &json!({}), true), Remark::Nothing);
        assert_eq!(guard.note(&rules, "terminal", &arguments("d"), &json!({}), false), Remark::Nothing);
        let strict = GuardRules { stops: true, ..rules };
        let mut guard = Guard::default();
        let ends = (1..10).find(|_| {
            matches!(guard.note(&strict, "t", &arguments("a"), &json!({}), false), Remark::Stop(_))
        });
        assert_eq!(ends, Some(5));
    }

    #[test]
    fn looking_again_is_fine_when_something_else_is_seen() {
        let mut guard = Guard::default();
        let rules = GuardRules::default();
        let none = Map::new();
        for number in 0..10 {
            let seen = guard.note(&rules, "read_file", &none, &json!({"content": number}), true);
            assert_eq!(seen, Remark::Nothing);
        }
        assert!(matches!(
            guard.note(&rules, "read_file", &none, &json!({"content": 3}), true),
            Remark::Warn(_)
        ));
    }
}
