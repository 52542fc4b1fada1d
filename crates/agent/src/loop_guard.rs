//! Notices when a model goes round in circles.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

/// After how many repeats something is said, and after how many the turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopGuardConfig {
    /// Whether the model is warned.
    pub warn: bool,
    /// Whether the turn ends when it goes on.
    pub stop: bool,
    /// When it is warned.
    pub warn_after: RepeatLimits,
    /// When the turn ends.
    pub stop_after: RepeatLimits,
}

/// How often each kind of repeat may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatLimits {
    /// The same call that failed before.
    pub same_failure: u32,
    /// Any call of a tool that failed before, without one that worked in between.
    pub tool_failure: u32,
    /// The same call with the same result.
    pub same_result: u32,
}

impl Default for LoopGuardConfig {
    fn default() -> Self {
        Self {
            warn: true,
            stop: false,
            warn_after: RepeatLimits { same_failure: 2, tool_failure: 3, same_result: 2 },
            stop_after: RepeatLimits { same_failure: 5, tool_failure: 8, same_result: 5 },
        }
    }
}

/// What was called in one turn, and how it went.
#[derive(Debug, Default)]
pub(crate) struct LoopGuard {
    failed_calls: HashMap<u64, u32>,
    failed_tools: HashMap<String, u32>,
    results: HashMap<u64, u32>,
}

/// What is to be done about a repeat.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoopAction {
    Continue,
    /// The model hears this.
    Warn(String),
    /// The turn ends.
    Stop(String),
}

impl LoopGuard {
    /// Notes how a call went.
    pub(crate) fn record_call(
        &mut self,
        rules: &LoopGuardConfig,
        tool: &str,
        arguments: &Map<String, Value>,
        answer: &Value,
        worked: bool,
    ) -> LoopAction {
        let call = hash(&(tool, canonical_json(arguments)));
        if worked {
            self.failed_calls.remove(&call);
            self.failed_tools.remove(tool);
            let result = hash(&(call, answer.to_string()));
            let times = increment(&mut self.results, result);
            return action_for(
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
            (increment(&mut self.failed_calls, call), increment(&mut self.failed_tools, tool.to_owned()));
        let said = action_for(
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
            LoopAction::Continue => action_for(
                rules,
                any,
                |repeats| repeats.tool_failure,
                || format!("{tool} has failed {any} times in a row; find out why before you go on"),
            ),
            said => said,
        }
    }
}

fn action_for(
    rules: &LoopGuardConfig,
    times: u32,
    which: impl Fn(&RepeatLimits) -> u32,
    text: impl FnOnce() -> String,
) -> LoopAction {
    if rules.stop && times >= which(&rules.stop_after) {
        LoopAction::Stop(text())
    } else if rules.warn && times >= which(&rules.warn_after) {
        LoopAction::Warn(text())
    } else {
        LoopAction::Continue
    }
}

fn increment<K: Eq + Hash>(counts: &mut HashMap<K, u32>, key: K) -> u32 {
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
fn canonical_json(arguments: &Map<String, Value>) -> String {
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
        let mut guard = LoopGuard::default();
        let rules = LoopGuardConfig::default();
        let mut fail = |arguments: &Map<String, Value>| {
            guard.record_call(&rules, "terminal", arguments, &json!({"error": "x"}), false)
        };
        assert_eq!(fail(&arguments("a")), LoopAction::Continue);
        assert!(matches!(fail(&turned), LoopAction::Warn(text) if text.contains("this very call")));
        assert!(matches!(fail(&arguments("b")), LoopAction::Warn(text) if text.contains("in a row")));
        for _ in 0..10 {
            assert!(matches!(fail(&arguments("a")), LoopAction::Warn(_)));
        }
        assert_eq!(
            guard.record_call(&rules, "terminal", &arguments("c"), &json!({}), true),
            LoopAction::Continue
        );
        assert_eq!(
            guard.record_call(&rules, "terminal", &arguments("d"), &json!({}), false),
            LoopAction::Continue
        );
        let strict = LoopGuardConfig { stop: true, ..rules };
        let mut guard = LoopGuard::default();
        let ends = (1..10).find(|_| {
            matches!(guard.record_call(&strict, "t", &arguments("a"), &json!({}), false), LoopAction::Stop(_))
        });
        assert_eq!(ends, Some(5));
    }

    #[test]
    fn looking_again_is_fine_when_something_else_is_seen() {
        let mut guard = LoopGuard::default();
        let rules = LoopGuardConfig::default();
        let none = Map::new();
        for number in 0..10 {
            let seen = guard.record_call(&rules, "read_file", &none, &json!({"content": number}), true);
            assert_eq!(seen, LoopAction::Continue);
        }
        assert!(matches!(
            guard.record_call(&rules, "read_file", &none, &json!({"content": 3}), true),
            LoopAction::Warn(_)
        ));
    }
}
