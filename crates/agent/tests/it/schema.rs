//! Tool schemas, compared with those of the Python program.

use hermes_agent::{Effects, Tool};
use serde_json::{Value, json};

/// Names, types and defaults of the parameters; required ones are marked.
fn parameters(tool: Tool) -> Vec<String> {
    let spec = tool.spec().parameters;
    let required = spec["required"].as_array().cloned().unwrap_or_default();
    let properties = spec["properties"].as_object().unwrap();
    let one = |(name, about): (&String, &Value)| {
        let mark = if required.contains(&json!(name)) { "!" } else { "" };
        let default = about.get("default").map(|default| format!("={default}")).unwrap_or_default();
        format!("{name}{mark}:{}{default}", about["type"].as_str().unwrap())
    };
    properties.iter().map(one).collect()
}

#[test]
fn parameters_have_the_names_types_and_defaults_of_the_python_program() {
    let table: [(Tool, &[&str]); 7] = [
        (
            Tool::Terminal,
            &[
                "command!:string", "background:boolean=false", "timeout:integer", "workdir:string",
                "pty:boolean=false", "notify_on_complete:boolean=false", "watch_patterns:array",
            ],
        ),
        (
            Tool::Process,
            &[
                "action!:string", "session_id:string", "data:string", "timeout:integer", "offset:integer=0",
                "limit:integer=200",
            ],
        ),
        (Tool::ReadFile, &["path!:string", "offset:integer=1", "limit:integer=500"]),
        (Tool::WriteFile, &["path!:string", "content!:string"]),
        (
            Tool::Patch,
            &[
                "mode!:string=\"replace\"", "path:string", "old_string:string", "new_string:string",
                "replace_all:boolean=false", "patch:string",
            ],
        ),
        (
            Tool::SearchFiles,
            &[
                "pattern!:string", "target:string=\"content\"", "path:string=\".\"", "file_glob:string",
                "limit:integer=50", "offset:integer=0", "output_mode:string=\"content\"",
                "context:integer=0",
            ],
        ),
        (Tool::Clarify, &["question!:string", "choices:array"]),
    ];
    for (tool, expected) in table {
        assert_eq!(parameters(tool), expected, "{}", tool.name());
    }
    let actions = &Tool::Process.spec().parameters["properties"]["action"]["enum"];
    assert_eq!(*actions, json!(["list", "poll", "log", "wait", "kill", "write", "submit", "close"]));
}

#[test]
fn the_list_of_tools_is_short_enough_for_every_request() {
    let all: Vec<String> = Tool::ALL.iter().map(|tool| json!(tool.spec()).to_string()).collect();
    let length: usize = all.iter().map(String::len).sum();
    assert!(length < 12_000, "{length}");
}

#[test]
fn calls_without_common_effects_may_run_in_parallel() {
    let effects = |tool: Tool, arguments: Value| tool.effects(arguments.as_object().unwrap());
    let path = |path: &str| json!({"path": path});
    let (read, write) = (effects(Tool::ReadFile, path("a")), effects(Tool::WriteFile, path("a")));
    let searches = effects(Tool::SearchFiles, json!({"pattern": "x"}));
    let patches = effects(Tool::Patch, json!({"mode": "patch", "patch": "…"}));
    let fetches = effects(Tool::WebFetch, json!({"url": "http://x"}));
    let polls = effects(Tool::Process, json!({"action": "wait", "session_id": "1"}));
    let types = effects(Tool::Process, json!({"action": "write", "session_id": "1"}));
    let asks = effects(Tool::Clarify, json!({"question": "?"}));
    let runs = effects(Tool::Terminal, json!({"command": "x"}));
    let cases: [(&Effects, &Effects, bool); 12] = [
        (&read, &read, true),
        (&read, &write, false),
        (&write, &effects(Tool::WriteFile, path("b")), true),
        (&write, &write, false),
        (&searches, &read, true),
        (&searches, &write, false),
        (&patches, &read, false),
        (&fetches, &runs, true),
        (&polls, &runs, true),
        (&types, &runs, false),
        (&asks, &fetches, false),
        (&runs, &runs, false),
    ];
    for (one, other, parallel) in cases {
        assert_eq!(one.is_parallel_with(other), parallel, "{one:?} {other:?}");
    }
}
