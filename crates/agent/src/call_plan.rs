//! Plans the calls of one reply: checks them, and groups those that can run in parallel.

use hermes_types::{Call, CallArguments, ToolSpec};
use serde_json::{Map, Value};

use crate::{Effects, Tool};

const MAX_PARALLEL_CALLS: usize = 8;

/// A call that can run.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadyCall {
    pub(crate) call: Call,
    pub(crate) tool: Tool,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) effects: Effects,
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedCall {
    Ready(Box<ReadyCall>),
    /// It cannot run, for this reason.
    Invalid(Call, String),
}

impl PlannedCall {
    /// Repairs the name of a call and coerces its arguments to the schema of the tool.
    pub(crate) fn new(call: &Call, specs: &[ToolSpec]) -> Self {
        let invalid = |reason: String| Self::Invalid(call.clone(), reason);
        let known = || specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(name) = hermes_model::repair_tool_name(&call.name, specs) else {
            return invalid(format!("there is no tool {}; available: {}", call.name, known()));
        };
        let (Some(tool), Some(spec)) = (Tool::from_name(&name), specs.iter().find(|spec| spec.name == name))
        else {
            return invalid(format!("the tool {name} is no longer available; available: {}", known()));
        };
        match &call.arguments {
            CallArguments::Broken { why, .. } => invalid(format!(
                "the arguments could not be parsed, so nothing was done: {why}; call it again"
            )),
            CallArguments::Object(given) => {
                let arguments = hermes_model::coerce(given.clone(), &spec.parameters);
                let effects = tool.effects(&arguments);
                Self::Ready(Box::new(ReadyCall { call: call.clone(), tool, arguments, effects }))
            }
        }
    }

    pub(crate) fn call(&self) -> &Call {
        match self {
            Self::Ready(ready) => &ready.call,
            Self::Invalid(call, _) => call,
        }
    }

    fn is_parallel_with(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Ready(one), Self::Ready(other)) => one.effects.is_parallel_with(&other.effects),
            (Self::Invalid(..), _) | (_, Self::Invalid(..)) => true,
        }
    }
}

/// Splits calls, in their order, into groups whose calls can run in parallel.
pub(crate) fn group_calls(calls: Vec<PlannedCall>) -> Vec<Vec<PlannedCall>> {
    let mut groups: Vec<Vec<PlannedCall>> = Vec::new();
    for call in calls {
        match groups.last_mut() {
            Some(group)
                if group.len() < MAX_PARALLEL_CALLS
                    && group.iter().all(|other| other.is_parallel_with(&call)) =>
            {
                group.push(call);
            }
            _ => groups.push(vec![call]),
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use hermes_types::CallId;
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> Call {
        let arguments = CallArguments::Object(arguments.as_object().unwrap().clone());
        Call { id: CallId::new("c"), name: name.to_owned(), arguments, replay: None }
    }

    #[test]
    fn calls_that_may_interfere_run_one_after_the_other() {
        let specs: Vec<_> = Tool::ALL.iter().map(|tool| tool.spec()).collect();
        let calls = [("terminal", "a"), ("terminal", "b"), ("todo", "x"), ("terminal", "c")];
        let planned =
            calls.map(|(name, text)| PlannedCall::new(&call(name, json!({"command": text})), &specs));
        let sizes: Vec<_> = group_calls(planned.to_vec()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 1, 1, 1]);
    }

    #[test]
    fn a_call_is_repaired_or_rejected_with_a_reason() {
        let specs = [Tool::Terminal.spec()];
        let repaired = PlannedCall::new(&call("Terminal", json!({"command": "ls", "timeout": "5"})), &specs);
        let PlannedCall::Ready(ready) = repaired else { panic!("{repaired:?}") };
        assert_eq!((ready.tool, &ready.arguments["timeout"]), (Tool::Terminal, &json!(5)));
        let unknown = PlannedCall::new(&call("fly_to_the_moon", json!({})), &specs);
        assert!(matches!(unknown, PlannedCall::Invalid(_, reason) if reason.contains("available: terminal")));
        let broken = CallArguments::Broken { text: "{".to_owned(), why: "it is cut off".to_owned() };
        let broken = PlannedCall::new(&Call { arguments: broken, ..call("terminal", json!({})) }, &specs);
        assert!(matches!(broken, PlannedCall::Invalid(_, reason) if reason.contains("it is cut off")));
    }
}
