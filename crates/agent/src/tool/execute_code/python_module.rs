//! The Python module `hermes_tools`: the tools of a session, as functions.

use serde_json::Value;

use crate::Tool;

/// What the module is called.
pub(super) const MODULE_NAME: &str = "hermes_tools";

/// What is the same in every session.
const MODULE_HEADER: &str = include_str!("hermes_tools.py");

/// The tools that a script can have, and the order of their first parameters. None of them leads back here.
const FUNCTIONS: [(&str, &[&str]); 6] = [
    ("terminal", &["command", "timeout", "workdir"]),
    ("read_file", &["path", "offset", "limit"]),
    ("write_file", &["path", "content"]),
    ("patch", &["path", "old_string", "new_string", "replace_all", "mode", "patch"]),
    (
        "search_files",
        &["pattern", "target", "path", "file_glob", "limit", "offset", "output_mode", "context"],
    ),
    ("web_fetch", &["url"]),
];

/// Parameters that a script cannot use: what it starts ends with it, and it has no turn to be told in.
const EXCLUDED_PARAMETERS: [&str; 4] = ["background", "pty", "notify_on_complete", "watch_patterns"];

/// A tool that a script can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptFunction {
    pub(super) tool: Tool,
    /// In the order of the Python function, and whether the call must have them.
    parameters: Vec<(String, ParameterKind)>,
}

/// Whether a function cannot be called without a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Required,
    Optional,
}

impl ScriptFunction {
    /// Whether it has a parameter of this name.
    pub(super) fn has_parameter(&self, parameter: &str) -> bool {
        self.parameters.iter().any(|(name, _)| name == parameter)
    }

    fn for_tool(tool: Tool, first: &[&str]) -> Self {
        let schema = tool.spec().parameters;
        let properties = schema.get("properties").and_then(Value::as_object);
        let known: Vec<&str> =
            properties.into_iter().flatten().map(|(name, _)| name.as_str()).filter(is_available).collect();
        let first = first.iter().copied().filter(|name| known.contains(name));
        let rest = known.iter().copied().filter(|name| !first.clone().any(|other| other == *name));
        let required: Vec<&str> = schema
            .get("required")
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut needed = ParameterKind::Required;
        let parameters = first.clone().chain(rest).map(|name| {
            // What follows an optional parameter can only be optional too.
            if !required.contains(&name) {
                needed = ParameterKind::Optional;
            }
            (name.to_owned(), needed)
        });
        Self { tool, parameters: parameters.collect() }
    }

    /// Its Python.
    fn write_python(&self, module: &mut String) {
        let name = self.tool.name();
        let signature: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, needed)| match needed {
                ParameterKind::Required => name.clone(),
                ParameterKind::Optional => format!("{name}=None"),
            })
            .collect();
        let passed: Vec<String> = self.parameters.iter().map(|(name, _)| format!("{name}={name}")).collect();
        let signature = signature.join(", ");
        let passed = passed.join(", ");
        module.push_str(&format!("\n\ndef {name}({signature}):\n    return _call(\"{name}\", {passed})\n"));
    }
}

fn is_available(name: &&str) -> bool {
    !EXCLUDED_PARAMETERS.contains(name)
}

/// What a script of a session with these tools can call. Without any of them that is nothing.
pub(super) fn script_functions(tools: &[Tool]) -> Vec<ScriptFunction> {
    let wanted = FUNCTIONS.iter().filter_map(|(name, first)| Some((Tool::from_name(name)?, *first)));
    wanted
        .filter(|(tool, _)| tools.contains(tool))
        .map(|(tool, first)| ScriptFunction::for_tool(tool, first))
        .collect()
}

/// The text of the module.
pub(super) fn module_source(functions: &[ScriptFunction]) -> String {
    let mut module = MODULE_HEADER.to_owned();
    functions.iter().for_each(|function| function.write_python(&mut module));
    module
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_has_the_tools_of_its_session_and_of_the_list_and_no_others() {
        let names = |tools: &[Tool]| {
            script_functions(tools).iter().map(|function| function.tool.name()).collect::<Vec<_>>()
        };
        assert_eq!(names(&[]), Vec::<&str>::new());
        assert_eq!(names(&[Tool::Todo, Tool::ExecuteCode]), Vec::<&str>::new());
        assert_eq!(names(&[Tool::Todo, Tool::Terminal]), ["terminal"]);
        let all: Vec<&str> =
            FUNCTIONS.iter().map(|(name, _)| *name).filter(|name| Tool::from_name(name).is_some()).collect();
        assert_eq!(names(&Tool::ALL), all);
    }

    #[test]
    fn a_function_has_the_parameters_of_its_tool_but_for_those_that_outlive_a_call() {
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
        for (name, first) in FUNCTIONS {
            let Some(tool) = Tool::from_name(name) else { continue };
            let function = ScriptFunction::for_tool(tool, first);
            assert!(first.iter().all(|name| function.has_parameter(name)), "{name}: {function:?}");
        }
    }
}
