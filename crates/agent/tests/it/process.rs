//! The `process` tool.

use hermes_agent::Tool;
use hermes_types::Secret;
use serde_json::{Value, json};

use crate::env::{TestEnv, TestSession};
use crate::fixture::{Fixture, eventually};

async fn start_background(s: &TestSession, arguments: Value) -> String {
    let mut all = json!({"background": true});
    all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    let started = s.succeed(Tool::Terminal, all).await;
    assert_eq!((&started["exit_code"], &started["error"]), (&json!(0), &Value::Null));
    started["session_id"].as_str().unwrap().to_owned()
}

async fn process_action(s: &TestSession, action: &str, id: &str) -> Value {
    s.succeed(Tool::Process, json!({"action": action, "session_id": id})).await
}

/// Polls until the output contains a text.
async fn wait_for_output(s: &TestSession, id: &str, text: &str) -> Value {
    let contains =
        async || process_action(s, "poll", id).await["output_preview"].as_str().unwrap().contains(text);
    eventually(text, contains).await;
    process_action(s, "poll", id).await
}

pub(crate) async fn a_background_command_can_be_followed_to_its_end(fixture: &Fixture) {
    let mut env = TestEnv::clone(fixture);
    env.secrets = vec![Secret::new("hunter2-hunter2")];
    let s = env.session().await;
    s.shell("mkdir -p d; cd d; export A=inherited").await;
    let command = "echo $'\\e[1mhunter2-hunter2\\e[0m' $A; pwd; while ! test -e go; do sleep 0.01; done; seq 1 300; exit 4";
    let id = start_background(&s, json!({"command": command})).await;
    // The output is available at once, without secrets.
    let polled = wait_for_output(&s, &id, "inherited").await;
    assert!(polled["output_preview"].as_str().unwrap().starts_with("[redacted] inherited\n"), "{polled}");
    assert_eq!((&polled["status"], polled.get("exit_code")), (&json!("running"), None));
    let listed = s.succeed(Tool::Process, json!({"action": "list"})).await;
    let one = &listed["processes"][0];
    assert_eq!((&one["session_id"], &one["status"]), (&json!(id), &json!("running")), "{listed}");
    assert!(one["cwd"].as_str().unwrap().ends_with("/d"), "{one}");
    s.shell("touch go").await;
    let waited = process_action(&s, "wait", &id).await;
    assert_eq!((&waited["status"], &waited["exit_code"]), (&json!("exited"), &json!(4)), "{waited}");
    assert!(waited["output"].as_str().unwrap().ends_with("\n300\n"), "{waited}");
    let last = s.succeed(Tool::Process, json!({"action": "log", "session_id": id, "limit": 2})).await;
    assert_eq!((&last["output"], &last["total_lines"]), (&json!("299\n300"), &json!(302)), "{last}");
    let first = json!({"action": "log", "session_id": id, "offset": 3, "limit": 2});
    assert_eq!(s.succeed(Tool::Process, first).await["output"], "1\n2");
    let polled = process_action(&s, "poll", &id).await;
    assert_eq!((&polled["status"], &polled["completion_reason"]), (&json!("exited"), &json!("exited")));
    assert_eq!(process_action(&s, "kill", &id).await["status"], "already_exited");
    let late = json!({"action": "write", "session_id": id, "data": "x"});
    assert!(s.error(Tool::Process, late).await.contains("ended"));
}

pub(crate) async fn a_kill_ends_everything_that_a_command_started(fixture: &Fixture) {
    let s = fixture.session().await;
    let id = start_background(&s, json!({"command": "(setsid sleep 4711 &); sleep 4711 & echo ready; wait"}))
        .await;
    wait_for_output(&s, &id, "ready").await;
    let killed = process_action(&s, "kill", &id).await;
    assert_eq!(killed["status"], "killed", "{killed}");
    assert_eq!(s.shell("ps -eo args 2>/dev/null | grep -c '^sleep 4711' || true").await, "0");
    let polled = process_action(&s, "poll", &id).await;
    assert_eq!(
        (&polled["status"], &polled["completion_reason"]),
        (&json!("exited"), &json!("killed")),
        "{polled}"
    );
}

pub(crate) async fn input_is_written_with_and_without_a_terminal(fixture: &Fixture) {
    let s = fixture.session().await;
    let id = start_background(&s, json!({"command": "tty; cat; echo end"})).await;
    let type_in = |action: &str, data: &str| json!({"action": action, "session_id": id, "data": data});
    assert_eq!(s.succeed(Tool::Process, type_in("write", "a")).await["bytes_written"], 1);
    assert_eq!(s.succeed(Tool::Process, type_in("submit", "b")).await["bytes_written"], 2);
    process_action(&s, "close", &id).await;
    assert_eq!(process_action(&s, "wait", &id).await["output"], "not a tty\nab\nend\n");
    let id =
        start_background(&s, json!({"command": "tty; stty size; read x; echo got $x", "pty": true})).await;
    wait_for_output(&s, &id, "30 120").await;
    s.succeed(Tool::Process, json!({"action": "submit", "session_id": id, "data": "word"})).await;
    let result = process_action(&s, "wait", &id).await;
    let output = result["output"].as_str().unwrap();
    assert!(output.starts_with("/dev/pts/") && output.contains("got word"), "{output}");
    let no_input = s.succeed(Tool::Terminal, json!({"command": "cat; tty; true", "pty": true})).await;
    assert_eq!(no_input["output"], "not a tty");
    assert!(no_input["pty_note"].as_str().unwrap().contains("background"), "{no_input}");
}

pub(crate) async fn a_command_that_cannot_start_is_no_background_process(fixture: &Fixture) {
    let s = fixture.session().await;
    let wrong = json!({"command": "true", "background": true, "workdir": "/not/there"});
    let result = s.call(Tool::Terminal, wrong).await;
    assert_eq!((&result.content["exit_code"], result.succeeded), (&json!(126), false), "{}", result.content);
    assert_eq!(s.succeed(Tool::Process, json!({"action": "list"})).await["processes"], json!([]));
}

pub(crate) async fn a_process_is_found_by_id_prefix_or_pid_only(fixture: &Fixture) {
    let s = fixture.session().await;
    let id = start_background(&s, json!({"command": "sleep 60"})).await;
    let polled = process_action(&s, "poll", &id).await;
    let by_number = s.succeed(Tool::Process, json!({"action": "poll", "session_id": polled["pid"]})).await;
    assert_eq!(by_number["session_id"], json!(id));
    let beginning: String = id.chars().take(id.len() - 2).collect();
    assert_eq!(process_action(&s, "poll", &beginning).await["session_id"], json!(id));
    let result = s.call(Tool::Process, json!({"action": "kill", "session_id": "proc_00000000_1_1"})).await;
    assert_eq!((&result.content["status"], result.succeeded), (&json!("not_found"), false));
    assert_eq!(
        s.call(Tool::Process, json!({"action": "kill", "session_id": 1})).await.content["status"],
        "not_found"
    );
    assert!(s.error(Tool::Process, json!({"action": "poll"})).await.contains("session_id"));
    assert!(s.error(Tool::Process, json!({"action": "dance"})).await.contains("arguments"));
    assert_eq!(process_action(&s, "kill", &id).await["status"], "killed");
}

pub(crate) async fn a_wait_ends_with_the_turn(fixture: &Fixture) {
    let s = fixture.session().await;
    let id = start_background(&s, json!({"command": "echo begun; sleep 60"})).await;
    wait_for_output(&s, &id, "begun").await;
    let short = json!({"action": "wait", "session_id": id, "timeout": 1});
    assert_eq!(s.succeed(Tool::Process, short).await["status"], "timeout");
    s.stop.cancel();
    assert_eq!(process_action(&s, "wait", &id).await["status"], "interrupted");
    assert_eq!(process_action(&s, "kill", &id).await["status"], "killed");
}
