//! The calls of one answer, as many at once as do not notice each other.

use hermes_types::{Arguments, Call, ToolSpec};
use serde_json::{Map, Value};

use crate::{Effects, Tool};

/// A call that can be made.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ReadyCall {
    pub(crate) call: Call,
    pub(crate) tool: Tool,
    pub(crate) arguments: Map<String, Value>,
    pub(crate) effects: Effects,
}

/// A call and what can be done about it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PlannedCall {
    /// It can be made.
    Ready(Box<ReadyCall>),
    /// It cannot, and the model hears why.
    Invalid(Call, String),
}

impl PlannedCall {
    /// Reads a call: the name is mended, and the arguments become what the tool expects.
    pub(crate) fn new(call: &Call, specs: &[ToolSpec]) -> Self {
        let wrong = |why: String| Self::Invalid(call.clone(), why);
        let known = || specs.iter().map(|spec| spec.name.as_str()).collect::<Vec<_>>().join(", ");
        let Some(name) = hermes_model::repair_name(&call.name, specs) else {
            return wrong(format!("there is no tool {}; there are: {}", call.name, known()));
        };
        let (Some(tool), Some(spec)) = (Tool::from_name(&name), specs.iter().find(|spec| spec.name == name))
        else {
            return wrong(format!("the tool {name} is not there any more; there are: {}", known()));
        };
        match &call.arguments {
            Arguments::Broken { why, .. } => {
                wrong(format!("the arguments could not be read, so nothing was done: {why}; call it again"))
            }
            Arguments::Object(given) => {
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

/// Parts calls into groups, one after the other, so that all of a group can be made at once. The order stays.
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

/// The most calls that are under way at once.
const MAX_PARALLEL_CALLS: usize = 8;

#[cfg(test)]
mod tests {
    use hermes_types::CallId;
    use serde_json::json;

    use super::*;

    fn call(name: &str, arguments: Value) -> Call {
        let arguments = Arguments::Object(arguments.as_object().unwrap().clone());
        Call { id: CallId::new("c"), name: name.to_owned(), arguments }
    }

    #[test]
    fn what_may_notice_each_other_is_done_in_turn() {
        let specs: Vec<_> = Tool::ALL.into_iter().map(Tool::spec).collect();
        let calls = [("terminal", "a"), ("terminal", "b"), ("todo", "x"), ("terminal", "c")];
        let wanted =
            calls.map(|(name, text)| PlannedCall::new(&call(name, json!({"command": text})), &specs));
        let sizes: Vec<_> = group_calls(wanted.to_vec()).iter().map(Vec::len).collect();
        assert_eq!(sizes, [1, 1, 1, 1]);
    }

    #[test]
    fn a_call_is_mended_or_told_what_is_wrong_with_it() {
        let specs = [Tool::Terminal.spec()];
        let mended = PlannedCall::new(&call("Terminal", json!({"command": "ls", "timeout": "5"})), &specs);
        let PlannedCall::Ready(ready) = mended else { panic!("{mended:?}") };
        assert_eq!((ready.tool, &ready.arguments["timeout"]), (Tool::Terminal, &json!(5)));
        let unknown = PlannedCall::new(&call("fly_to_the_moon", json!({})), &specs);
        assert!(matches!(unknown, PlannedCall::Invalid(_, why) if why.contains("there are: terminal")));
        let broken = Arguments::Broken { text: "{".to_owned(), why: "it is cut off".to_owned() };
        let broken = PlannedCall::new(&Call { arguments: broken, ..call("terminal", json!({})) }, &specs);
        assert!(matches!(broken, PlannedCall::Invalid(_, why) if why.contains("it is cut off")));
    }
}
