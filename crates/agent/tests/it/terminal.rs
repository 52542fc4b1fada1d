//! The `terminal` tool, and the rules for the results of all tools.

use hermes_agent::Tool;
use serde_json::{Value, json};

use crate::fixture::{Fixture, eventually};

pub(crate) async fn the_exit_code_comes_first_and_the_shell_keeps_its_state(fixture: &Fixture) {
    let s = fixture.session().await;
    let result = s
        .call(Tool::Terminal, json!({"command": "mkdir d; cd d; export A=1; f() { echo f; }; exit 3"}))
        .await;
    let names: Vec<&str> = result.content.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["exit_code", "output", "error"]);
    assert_eq!((&result.content["exit_code"], result.succeeded), (&json!(3), false));
    assert!(s.shell("pwd; echo $A; f").await.ends_with("/d\n1\nf"));
    let benign = s.call(Tool::Terminal, json!({"command": "echo a | grep b"})).await.content;
    assert_eq!(benign["exit_code_meaning"], "nothing matched (no error)");
    let late = s.call(Tool::Terminal, json!({"command": "echo begun; sleep 60", "timeout": 1})).await.content;
    assert_eq!((&late["exit_code"], &late["output"]), (&json!(124), &json!("begun")));
    assert!(late["error"].as_str().unwrap().contains("1 seconds"), "{late}");
    assert!(
        s.error(Tool::Terminal, json!({"command": "true", "timeout": 601})).await.contains("background=true")
    );
    assert!(s.error(Tool::Terminal, json!({"command": " "})).await.contains("empty"));
    assert!(s.error(Tool::Terminal, json!({"command": 5})).await.contains("arguments"));
}

pub(crate) async fn a_workdir_may_have_any_name_and_holds_for_one_command(fixture: &Fixture) {
    let s = fixture.session().await;
    let before = s.shell("pwd").await;
    let name = "ä (b) $c 'd\" e";
    s.shell("mkdir \"ä (b) \\$c 'd\\\" e\"").await;
    let there = s.succeed(Tool::Terminal, json!({"command": "pwd", "workdir": name})).await;
    assert_eq!(there["output"], format!("{before}/{name}"));
    assert_eq!(s.shell("pwd").await, before);
    let missing = s.call(Tool::Terminal, json!({"command": "pwd", "workdir": "/not/there"})).await.content;
    assert_eq!(missing["exit_code"], 126);
    assert!(missing["error"].as_str().unwrap().contains("nothing was run"), "{missing}");
}

pub(crate) async fn a_long_output_is_shortened_and_can_be_read_whole(fixture: &Fixture) {
    let s = fixture.session().await;
    let result = s.succeed(Tool::Terminal, json!({"command": "seq 1 40000"})).await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("1\n2\n") && output.ends_with("\n39999\n40000"), "{output}");
    assert!(output.contains(" of 228894 bytes left out …]\n"), "{output}");
    assert!(output.len() < 51_000);
    for line in output.lines().filter(|line| !line.starts_with('[')) {
        assert!(line.parse::<u32>().is_ok(), "partial line: {line}");
    }
    assert_eq!(result["total_bytes"], 228_894);
    let rest = json!({"path": result["full_output"], "offset": 20_000, "limit": 2});
    assert_eq!(s.succeed(Tool::ReadFile, rest).await["content"], "20000|20000\n20001|20001");
}

pub(crate) async fn a_detached_command_runs_and_gets_a_hint(fixture: &Fixture) {
    let s = fixture.session().await;
    let detached =
        s.succeed(Tool::Terminal, json!({"command": "nohup sleep 60 >/dev/null 2>&1 & echo done"})).await;
    assert_eq!(detached["output"], "done");
    assert!(detached["hint"].as_str().unwrap().contains("process"), "{detached}");
    let id = detached["session_id"].clone();
    assert_eq!(
        s.succeed(Tool::Process, json!({"action": "kill", "session_id": id})).await["status"],
        "killed"
    );
    let quiet =
        s.succeed(Tool::Terminal, json!({"command": "echo pip install uvicorn; true & true & wait"})).await;
    assert_eq!((quiet.get("hint"), &quiet["exit_code"]), (None, &json!(0)), "{quiet}");
}

pub(crate) async fn an_interrupt_ends_a_command_and_keeps_its_output(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("true").await;
    let stop = s.stop.clone();
    let call = s.call(Tool::Terminal, json!({"command": "echo begun; touch there; sleep 60"}));
    let watch = async {
        let other = fixture.session().await;
        let check = json!({"command": "test -e there"});
        let exists = async || other.call(Tool::Terminal, check.clone()).await.content["exit_code"] == 0;
        eventually("the command has started", exists).await;
        stop.cancel();
    };
    let (result, ()) = tokio::join!(call, watch);
    assert_eq!((&result.content["exit_code"], &result.content["output"]), (&json!(130), &json!("begun")));
    assert!(result.content["error"].as_str().unwrap().contains("interrupted"));
}

pub(crate) async fn a_recreated_environment_is_reported(fixture: &Fixture) {
    let s = fixture.session().await;
    s.shell("export A=1").await;
    let places = hermes_exec::Places { run_dir: fixture.folder.join("run"), kept_dirs: Vec::new() };
    let found = places.list().await.unwrap();
    assert_eq!(places.end_all(found).await.len(), 0);
    let next = s.succeed(Tool::Terminal, json!({"command": "echo \"[$A]\""})).await;
    assert_eq!(next["output"], "[]");
    assert!(next["note"].as_str().unwrap().contains("recreated"), "{next}");
    assert_eq!(s.succeed(Tool::Terminal, json!({"command": "true"})).await.get("note"), None);
}

pub(crate) async fn escape_sequences_are_removed(fixture: &Fixture) {
    let s = fixture.session().await;
    assert_eq!(s.shell("printf '\\033[31mred\\033[0m \\033]0;t\\007x\\n'").await, "red x");
}

pub(crate) async fn a_result_too_long_for_a_conversation_is_spilled_to_a_file(fixture: &Fixture) {
    let s = fixture.session().await;
    let line = "x".repeat(90);
    let command = format!("for i in $(seq 1 3000); do echo $i {line}; done");
    let started = s.succeed(Tool::Terminal, json!({"command": command, "background": true})).await;
    let id = started["session_id"].clone();
    assert_eq!(
        s.succeed(Tool::Process, json!({"action": "wait", "session_id": id})).await["status"],
        "exited"
    );
    let log = s.succeed(Tool::Process, json!({"action": "log", "session_id": id, "limit": 5000})).await;
    assert_eq!((&log["total_lines"], &log["exit_code"]), (&json!(3000), &json!(0)), "{log}");
    assert!(log["preview"].as_str().unwrap().starts_with("1 xxx"), "{log}");
    assert!(log["size"].as_u64().unwrap() > 100_000 && log.to_string().len() < 5_000);
    assert_eq!(log.get("output"), None::<&Value>);
    let part = json!({"path": log["full_result"], "offset": 2999});
    let part = s.succeed(Tool::ReadFile, part).await;
    assert_eq!(part["content"], format!("2999|2999 {line}\n3000|3000 {line}"));
}
