//! Detects a model that repeats the same calls without progress.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value};

use crate::ToolResult;

/// The model is warned when the same call has failed this often,
const MAX_SAME_FAILURES: u32 = 2;
/// calls of the same tool have failed this often, with no success between them,
const MAX_TOOL_FAILURES: u32 = 3;
/// or the same call has given the same result this often.
const MAX_SAME_RESULTS: u32 = 2;

/// The calls of one turn and their outcomes.
#[derive(Debug, Default)]
pub(crate) struct LoopGuard {
    failed_calls: HashMap<u64, u32>,
    failed_tools: HashMap<String, u32>,
    results: HashMap<u64, u32>,
}

impl LoopGuard {
    /// Records a call and returns the warning for the model, if any.
    pub(crate) fn record_call(
        &mut self,
        tool: &str,
        arguments: &Map<String, Value>,
        result: &ToolResult,
    ) -> Option<String> {
        let mut sorted = Value::Object(arguments.clone());
        sorted.sort_all_objects();
        let call = hash(&(tool, sorted.to_string()));
        if result.succeeded {
            self.failed_calls.remove(&call);
            self.failed_tools.remove(tool);
            let times = increment(&mut self.results, hash(&(call, result.content.to_string())));
            return (times >= MAX_SAME_RESULTS).then(|| {
                format!(
                    "the same call gave the same result {times} times; use what you have, or do something else"
                )
            });
        }
        let same = increment(&mut self.failed_calls, call);
        let any = increment(&mut self.failed_tools, tool.to_owned());
        if same >= MAX_SAME_FAILURES {
            Some(format!(
                "this very call has failed {same} times; change something about it, or do something else"
            ))
        } else if any >= MAX_TOOL_FAILURES {
            Some(format!("{tool} has failed {any} times in a row; find out why before you go on"))
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

    #[test]
    fn repeated_calls_cause_a_warning() {
        let (failure, success) = (ToolResult::error("x"), ToolResult::success(json!({})));
        let reordered = json!({"timeout": 1, "command": "a"}).as_object().unwrap().clone();
        let mut guard = LoopGuard::default();
        let mut fail = |arguments: &Map<String, Value>| guard.record_call("terminal", arguments, &failure);
        assert_eq!(fail(&arguments("a")), None);
        assert!(fail(&reordered).unwrap().contains("this very call"));
        assert!(fail(&arguments("b")).unwrap().contains("in a row"));
        for _ in 0..10 {
            assert!(fail(&arguments("a")).is_some());
        }
        for (command, result) in [("c", &success), ("d", &failure)] {
            assert_eq!(guard.record_call("terminal", &arguments(command), result), None);
        }
    }

    #[test]
    fn the_same_call_may_repeat_while_its_result_changes() {
        let mut guard = LoopGuard::default();
        let mut read = |number: u32| {
            let result = ToolResult::success(json!({"content": number}));
            guard.record_call("read_file", &Map::new(), &result)
        };
        for number in 0..10 {
            assert_eq!(read(number), None);
        }
        assert!(read(3).is_some());
    }
}
