//! Detects a model that repeats the same calls without progress.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::{Tool, ToolResult};

/// When the guard warns the model, and when it ends the turn; none for never.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopGuardConfig {
    pub warn_after: Option<LoopLimits>,
    pub stop_after: Option<LoopLimits>,
}

/// How often calls may repeat.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LoopLimits {
    /// Failures of the same call.
    pub same_failure: u32,
    /// Failures of the same tool, with no success between them.
    pub tool_failure: u32,
    /// Equal results of the same call.
    pub same_result: u32,
}

impl Default for LoopGuardConfig {
    fn default() -> Self {
        let warn_after = Some(LoopLimits { same_failure: 2, tool_failure: 3, same_result: 2 });
        Self { warn_after, stop_after: None }
    }
}

/// What follows from a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum LoopAction {
    /// The model gets this warning with the result.
    Warn(String),
    /// The turn ends.
    Stop,
}

/// The calls of one turn and their outcomes.
#[derive(Debug, Default)]
pub(crate) struct LoopGuard {
    config: LoopGuardConfig,
    failed_calls: HashMap<u64, u32>,
    failed_tools: HashMap<&'static str, u32>,
    results: HashMap<u64, u32>,
}

impl LoopGuard {
    pub(crate) fn new(config: LoopGuardConfig) -> Self {
        Self { config, ..Self::default() }
    }

    /// Records a call and returns what follows from it, if anything.
    pub(crate) fn record_call(
        &mut self,
        tool: Tool,
        arguments: &Map<String, Value>,
        result: &ToolResult,
    ) -> Option<LoopAction> {
        let name = tool.name();
        let mut sorted = Value::Object(arguments.clone());
        sorted.sort_all_objects();
        let call = hash(&(name, sorted.to_string()));
        let LoopGuardConfig { warn_after, stop_after } = self.config;
        if result.succeeded {
            self.failed_calls.remove(&call);
            self.failed_tools.remove(name);
            let times = increment(&mut self.results, hash(&(call, result.content.to_string())));
            // A command may be repeated until something else changes.
            let is_read_only = matches!(tool, Tool::ReadFile | Tool::SearchFiles | Tool::WebFetch);
            if is_read_only && stop_after.is_some_and(|limits| times >= limits.same_result) {
                return Some(LoopAction::Stop);
            }
            return warn_after.filter(|limits| times >= limits.same_result).map(|_| {
                LoopAction::Warn(format!(
                    "the same call gave the same result {times} times; use what you have, or do something else"
                ))
            });
        }
        let same = increment(&mut self.failed_calls, call);
        let any = increment(&mut self.failed_tools, name);
        if stop_after.is_some_and(|limits| same >= limits.same_failure || any >= limits.tool_failure) {
            return Some(LoopAction::Stop);
        }
        let limits = warn_after?;
        if same >= limits.same_failure {
            Some(LoopAction::Warn(format!(
                "this very call has failed {same} times; change something about it, or do something else"
            )))
        } else if any >= limits.tool_failure {
            let warning = format!("{name} has failed {any} times in a row; find out why before you go on");
            Some(LoopAction::Warn(warning))
        } else {
            None
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn arguments(command: &str) -> Map<String, Value> {
        json!({"command": command, "timeout": 1}).as_object().unwrap().clone()
    }

    fn warning(action: Option<LoopAction>) -> String {
        match action {
            Some(LoopAction::Warn(text)) => text,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn repeated_calls_cause_a_warning() {
        let (failure, success) = (ToolResult::error("x"), ToolResult::success(json!({})));
        let reordered = json!({"timeout": 1, "command": "a"}).as_object().unwrap().clone();
        let mut guard = LoopGuard::default();
        let mut fail =
            |arguments: &Map<String, Value>| guard.record_call(Tool::Terminal, arguments, &failure);
        assert_eq!(fail(&arguments("a")), None);
        assert!(warning(fail(&reordered)).contains("this very call"));
        assert!(warning(fail(&arguments("b"))).contains("in a row"));
        for _ in 0..10 {
            warning(fail(&arguments("a")));
        }
        for (command, result) in [("c", &success), ("d", &failure)] {
            assert_eq!(guard.record_call(Tool::Terminal, &arguments(command), result), None);
        }
    }

    #[test]
    fn the_same_call_may_repeat_while_its_result_changes() {
        let mut guard = LoopGuard::default();
        let mut read = |number: u32| {
            let result = ToolResult::success(json!({"content": number}));
            guard.record_call(Tool::ReadFile, &Map::new(), &result)
        };
        for number in 0..10 {
            assert_eq!(read(number), None);
        }
        warning(read(3));
    }

    #[test]
    fn a_loop_ends_the_turn_if_the_owner_wants_that() {
        let stop_after = Some(LoopLimits { same_failure: 3, tool_failure: 5, same_result: 3 });
        let guard = || LoopGuard::new(LoopGuardConfig { warn_after: None, stop_after });
        let (failure, success) = (ToolResult::error("x"), ToolResult::success(json!({})));
        let count = |guard: &mut LoopGuard, tool, command: &dyn Fn(u32) -> String, result| {
            let stops = |at: &u32| {
                guard.record_call(tool, &arguments(&command(*at)), result) == Some(LoopAction::Stop)
            };
            (1..20).find(stops)
        };
        let same = |_| "a".to_owned();
        let other = |at: u32| at.to_string();
        assert_eq!(count(&mut guard(), Tool::Terminal, &same, &failure), Some(3));
        assert_eq!(count(&mut guard(), Tool::Terminal, &other, &failure), Some(5));
        assert_eq!(count(&mut guard(), Tool::ReadFile, &same, &success), Some(3));
        assert_eq!(count(&mut guard(), Tool::Terminal, &same, &success), None);
    }
}
