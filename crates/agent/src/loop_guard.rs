//! Detects a model that repeats the same calls without progress.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::ToolResult;

/// When the model is warned, and when the turn ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopGuardConfig {
    pub warn: bool,
    pub stop: bool,
    pub warn_after: RepeatLimits,
    pub stop_after: RepeatLimits,
}

/// How often each kind of repetition may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RepeatLimits {
    /// The same call fails.
    pub same_failure: u32,
    /// Calls of the same tool fail, with no success between them.
    pub tool_failure: u32,
    /// The same call succeeds with the same result.
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

/// The calls of one turn and their outcomes.
#[derive(Debug, Default)]
pub(crate) struct LoopGuard {
    failed_calls: HashMap<u64, u32>,
    failed_tools: HashMap<String, u32>,
    results: HashMap<u64, u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoopAction {
    Continue,
    /// Shown to the model.
    Warn(String),
    Stop(String),
}

impl LoopGuard {
    pub(crate) fn record_call(
        &mut self,
        config: &LoopGuardConfig,
        tool: &str,
        arguments: &Map<String, Value>,
        result: &ToolResult,
    ) -> LoopAction {
        let call = hash(&(tool, canonical_json(arguments)));
        if result.succeeded {
            self.failed_calls.remove(&call);
            self.failed_tools.remove(tool);
            let times = increment(&mut self.results, hash(&(call, result.content.to_string())));
            let text = format!(
                "the same call gave the same result {times} times; use what you have, or do something else"
            );
            return config.action(times, |limits| limits.same_result, text);
        }
        let same = increment(&mut self.failed_calls, call);
        let any = increment(&mut self.failed_tools, tool.to_owned());
        let text = format!(
            "this very call has failed {same} times; change something about it, or do something else"
        );
        let action = config.action(same, |limits| limits.same_failure, text);
        if action != LoopAction::Continue {
            return action;
        }
        let text = format!("{tool} has failed {any} times in a row; find out why before you go on");
        config.action(any, |limits| limits.tool_failure, text)
    }
}

impl LoopGuardConfig {
    fn action(&self, times: u32, limit: fn(&RepeatLimits) -> u32, text: String) -> LoopAction {
        if self.stop && times >= limit(&self.stop_after) {
            LoopAction::Stop(text)
        } else if self.warn && times >= limit(&self.warn_after) {
            LoopAction::Warn(text)
        } else {
            LoopAction::Continue
        }
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

/// The arguments with sorted names, so that equal calls have equal text.
fn canonical_json(arguments: &Map<String, Value>) -> String {
    let mut value = Value::Object(arguments.clone());
    value.sort_all_objects();
    value.to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(command: &str) -> Map<String, Value> {
        json!({"command": command, "timeout": 1}).as_object().unwrap().clone()
    }

    #[test]
    fn repeats_cause_a_warning_and_end_the_turn_only_if_configured() {
        let (failure, success) = (ToolResult::error("x"), ToolResult::success(json!({})));
        let reordered = json!({"timeout": 1, "command": "a"}).as_object().unwrap().clone();
        let mut guard = LoopGuard::default();
        let config = LoopGuardConfig::default();
        let mut fail =
            |arguments: &Map<String, Value>| guard.record_call(&config, "terminal", arguments, &failure);
        assert_eq!(fail(&arguments("a")), LoopAction::Continue);
        assert!(matches!(fail(&reordered), LoopAction::Warn(text) if text.contains("this very call")));
        assert!(matches!(fail(&arguments("b")), LoopAction::Warn(text) if text.contains("in a row")));
        for _ in 0..10 {
            assert!(matches!(fail(&arguments("a")), LoopAction::Warn(_)));
        }
        for (command, result) in [("c", &success), ("d", &failure)] {
            let action = guard.record_call(&config, "terminal", &arguments(command), result);
            assert_eq!(action, LoopAction::Continue);
        }
        let strict = LoopGuardConfig { stop: true, ..config };
        let mut guard = LoopGuard::default();
        let end = (1..10).find(|_| {
            matches!(guard.record_call(&strict, "t", &arguments("a"), &failure), LoopAction::Stop(_))
        });
        assert_eq!(end, Some(5));
    }

    #[test]
    fn the_same_call_may_repeat_while_its_result_changes() {
        let mut guard = LoopGuard::default();
        let config = LoopGuardConfig::default();
        let mut read = |number: u32| {
            let result = ToolResult::success(json!({"content": number}));
            guard.record_call(&config, "read_file", &Map::new(), &result)
        };
        for number in 0..10 {
            assert_eq!(read(number), LoopAction::Continue);
        }
        assert!(matches!(read(3), LoopAction::Warn(_)));
    }
}
