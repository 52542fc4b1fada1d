//! Generates the Python module `hermes_tools`: the tools of a session as functions.

use serde_json::Value;

use crate::Tool;

pub(super) const MODULE_NAME: &str = "hermes_tools";

/// The part that is the same in every session.
const MODULE_HEADER: &str = include_str!("hermes_tools.py");

/// Tools that a script can call, and the order of their first parameters. `execute_code` is not
/// among them.
const FUNCTIONS: [(Tool, &[&str]); 6] = [
    (Tool::Terminal, &["command", "timeout", "workdir"]),
    (Tool::ReadFile, &["path", "offset", "limit"]),
    (Tool::WriteFile, &["path", "content"]),
    (Tool::Patch, &["path", "old_string", "new_string", "replace_all", "mode", "patch"]),
    (
        Tool::SearchFiles,
        &["pattern", "target", "path", "file_glob", "limit", "offset", "output_mode", "context"],
    ),
    (Tool::WebFetch, &["url"]),
];

/// Parameters that a script cannot use: its processes end with it, and no notice can reach it.
const EXCLUDED_PARAMETERS: [&str; 4] = ["background", "pty", "notify_on_complete", "watch_patterns"];

/// A tool that a script can call.
#[derive(Debug)]
pub(super) struct ScriptFunction {
    pub(super) tool: Tool,
    pub(super) schema: Value,
    parameters: Vec<String>,
    /// How many of the parameters are required.
    required: usize,
}

impl ScriptFunction {
    pub(super) fn has_parameter(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|name| name == parameter)
    }

    fn new(tool: Tool, first: &[&str]) -> Self {
        let schema = tool.spec().parameters;
        let properties = schema.get("properties").and_then(Value::as_object);
        let is_available = |name: &&str| !EXCLUDED_PARAMETERS.contains(name);
        let known: Vec<&str> =
            properties.into_iter().flatten().map(|(name, _)| name.as_str()).filter(is_available).collect();
        let listed = first.iter().filter(|name| known.contains(name));
        let rest = known.iter().filter(|name| !first.contains(name));
        let parameters: Vec<String> = listed.chain(rest).map(|name| (*name).to_owned()).collect();
        let required = schema.get("required").and_then(Value::as_array);
        let is_required =
            |name: &&String| required.is_some_and(|all| all.iter().any(|other| *other == **name));
        // Python allows only optional parameters after an optional one.
        let required = parameters.iter().take_while(is_required).count();
        Self { tool, parameters, required, schema }
    }

    fn write_python(&self, module: &mut String) {
        let name = self.tool.name();
        let default = |number| if number < self.required { "" } else { "=None" };
        let parameters = self.parameters.iter().enumerate();
        let signature: Vec<_> =
            parameters.map(|(number, name)| format!("{name}{}", default(number))).collect();
        let passed: Vec<String> = self.parameters.iter().map(|name| format!("{name}={name}")).collect();
        let signature = signature.join(", ");
        let passed = passed.join(", ");
        module.push_str(&format!("\n\ndef {name}({signature}):\n    return _call(\"{name}\", {passed})\n"));
    }
}

/// The functions for a session with these tools.
pub(super) fn script_functions(tools: &[Tool]) -> Vec<ScriptFunction> {
    let functions = FUNCTIONS.iter().filter(|(tool, _)| tools.contains(tool));
    functions.map(|(tool, first)| ScriptFunction::new(*tool, first)).collect()
}

pub(super) fn module_source(functions: &[ScriptFunction]) -> String {
    let mut module = MODULE_HEADER.to_owned();
    functions.iter().for_each(|function| function.write_python(&mut module));
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_can_call_only_listed_tools_of_its_session() {
        let names = |tools: &[Tool]| {
            script_functions(tools).iter().map(|function| function.tool.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), Vec::<&str>::new());
        assert_eq!(names(&[Tool::Todo, Tool::ExecuteCode]), Vec::<&str>::new());
        assert_eq!(names(&[Tool::Todo, Tool::Terminal]), ["terminal"]);
        assert_eq!(names(Tool::ALL), FUNCTIONS.map(|(tool, _)| tool.name()));
    }

    #[test]
    fn a_function_has_the_parameters_of_its_tool_except_excluded_ones() {
        let [terminal] = script_functions(&[Tool::Terminal]).try_into().unwrap();
        let mut text = String::new();
        terminal.write_python(&mut text);
        let expected = "\n\ndef terminal(command, timeout=None, workdir=None):\n    \
            return _call(\"terminal\", command=command, timeout=timeout, workdir=workdir)\n";
        assert_eq!(text, expected);
        assert!(
            terminal.has_parameter("workdir")
                && EXCLUDED_PARAMETERS.iter().all(|name| !terminal.has_parameter(name))
        );
        for (tool, first) in FUNCTIONS {
            let function = ScriptFunction::new(tool, first);
            assert!(first.iter().all(|name| function.has_parameter(name)), "{function:?}");
        }
    }
}
