//! Generates the Python module `hermes_tools`: the tools of a session as functions.

use serde_json::Value;

use crate::Tool;

pub(super) const MODULE_NAME: &str = "hermes_tools";

/// The part that is the same in every session.
const MODULE_HEADER: &str = include_str!("hermes_tools.py");

/// Tools that a script can call, and the order of their first parameters. `execute_code` is not among
/// them.
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

/// Parameters that a script cannot use: its processes end with it, and no notice can reach it.
const EXCLUDED_PARAMETERS: [&str; 4] = ["background", "pty", "notify_on_complete", "watch_patterns"];

/// A tool that a script can call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ScriptFunction {
    pub(super) tool: Tool,
    parameters: Vec<(String, ParameterKind)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ParameterKind {
    Required,
    Optional,
}

impl ScriptFunction {
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
        let mut kind = ParameterKind::Required;
        let parameters = first.clone().chain(rest).map(|name| {
            // Python allows only optional parameters after an optional one.
            if !required.contains(&name) {
                kind = ParameterKind::Optional;
            }
            (name.to_owned(), kind)
        });
        Self { tool, parameters: parameters.collect() }
    }

    fn write_python(&self, module: &mut String) {
        let name = self.tool.name();
        let signature: Vec<String> = self
            .parameters
            .iter()
            .map(|(name, kind)| match kind {
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

/// The functions for a session with these tools.
pub(super) fn script_functions(tools: &[Tool]) -> Vec<ScriptFunction> {
    let functions = FUNCTIONS.iter().filter_map(|(name, first)| Some((Tool::from_name(name)?, *first)));
    functions
        .filter(|(tool, _)| tools.contains(tool))
        .map(|(tool, first)| ScriptFunction::for_tool(tool, first))
        .collect()
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
        let all: Vec<&str> =
            FUNCTIONS.iter().map(|(name, _)| *name).filter(|name| Tool::from_name(name).is_some()).collect();
        assert_eq!(names(&Tool::ALL), all);
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
        for (name, first) in FUNCTIONS {
            let Some(tool) = Tool::from_name(name) else { continue };
            let function = ScriptFunction::for_tool(tool, first);
            assert!(first.iter().all(|name| function.has_parameter(name)), "{name}: {function:?}");
        }
    }
}
