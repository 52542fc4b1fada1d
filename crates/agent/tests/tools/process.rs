//! `process`.

use std::time::Duration;

use hermes_agent::Tool;
use hermes_types::Secret;
use serde_json::{Value, json};

use crate::bed::{Bed, Session};
use crate::ground::Ground;

async fn start(s: &Session, arguments: Value) -> String {
    let mut all = json!({"background": true});
    all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
    let started = s.told(Tool::Terminal, all).await;
    assert_eq!((&started["exit_code"], &started["error"]), (&json!(0), &Value::Null));
    started["session_id"].as_str().unwrap().to_owned()
}

async fn act(s: &Session, action: &str, id: &str) -> Value {
    s.told(Tool::Process, json!({"action": action, "session_id": id})).await
}

/// Polls until the output has this in it.
async fn until(s: &Session, id: &str, wanted: &str) -> Value {
    loop {
        let polled = act(s, "poll", id).await;
        if polled["output_preview"].as_str().unwrap().contains(wanted) {
            return polled;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn a_background_command_can_be_followed_to_its_end(ground: &Ground) {
    let mut ground = Bed::clone(ground);
    ground.secrets = vec![Secret::new("hunter2-hunter2")];
    let s = ground.hands().await;
    s.shell("mkdir -p d; cd d; export A=inherited").await;
    let command = "echo $'\\e[1mhunter2-hunter2\\e[0m' $A; pwd; while ! test -e go; do sleep 0.01; done; seq 1 300; exit 4";
    let id = start(&s, json!({"command": command})).await;
    // What it says is there at once, with its secrets taken out.
    let polled = until(&s, &id, "inherited").await;
    assert!(polled["output_preview"].as_str().unwrap().starts_with("[redacted] inherited\n"), "{polled}");
    assert_eq!((&polled["status"], polled.get("exit_code")), (&json!("running"), None));
    let listed = s.told(Tool::Process, json!({"action": "list"})).await;
    let one = &listed["processes"][0];
    assert_eq!((&one["session_id"], &one["status"]), (&json!(id), &json!("running")), "{listed}");
    assert!(one["cwd"].as_str().unwrap().ends_with("/d"), "{one}");
    s.shell("touch go").await;
    let waited = act(&s, "wait", &id).await;
    assert_eq!((&waited["status"], &waited["exit_code"]), (&json!("exited"), &json!(4)), "{waited}");
    assert!(waited["output"].as_str().unwrap().ends_with("\n300\n"), "{waited}");
    let last = s.told(Tool::Process, json!({"action": "log", "session_id": id, "limit": 2})).await;
    assert_eq!((&last["output"], &last["total_lines"]), (&json!("299\n300"), &json!(302)), "{last}");
    let first = json!({"action": "log", "session_id": id, "offset": 3, "limit": 2});
    assert_eq!(s.told(Tool::Process, first).await["output"], "1\n2");
    let polled = act(&s, "poll", &id).await;
    assert_eq!((&polled["status"], &polled["completion_reason"]), (&json!("exited"), &json!("exited")));
    assert_eq!(act(&s, "kill", &id).await["status"], "already_exited");
    let late = json!({"action": "write", "session_id": id, "data": "x"});
    assert!(s.error(Tool::Process, late).await.contains("ended"));
}

pub(crate) async fn what_is_killed_is_gone_with_all_it_started(ground: &Ground) {
    let s = ground.hands().await;
    let id = start(&s, json!({"command": "(setsid sleep 4711 &); sleep 4711 & echo ready; wait"})).await;
    until(&s, &id, "ready").await;
    let killed = act(&s, "kill", &id).await;
    assert_eq!(killed["status"], "killed", "{killed}");
    assert_eq!(s.shell("ps -eo args 2>/dev/null | grep -c '^sleep 4711' || true").await, "0");
    let polled = act(&s, "poll", &id).await;
    assert_eq!(
        (&polled["status"], &polled["completion_reason"]),
        (&json!("exited"), &json!("killed")),
        "{polled}"
    );
}

pub(crate) async fn input_is_written_with_and_without_a_terminal(ground: &Ground) {
    let s = ground.hands().await;
    let id = start(&s, json!({"command": "tty; cat; echo end"})).await;
    let type_in = |action: &str, data: &str| json!({"action": action, "session_id": id, "data": data});
    assert_eq!(s.told(Tool::Process, type_in("write", "a")).await["bytes_written"], 1);
    assert_eq!(s.told(Tool::Process, type_in("submit", "b")).await["bytes_written"], 2);
    act(&s, "close", &id).await;
    assert_eq!(act(&s, "wait", &id).await["output"], "not a tty\nab\nend\n");
    let id = start(&s, json!({"command": "tty; stty size; read x; echo got $x", "pty": true})).await;
    until(&s, &id, "30 120").await;
    s.told(Tool::Process, json!({"action": "submit", "session_id": id, "data": "word"})).await;
    let done = act(&s, "wait", &id).await;
    let output = done["output"].as_str().unwrap();
    assert!(output.starts_with("/dev/pts/") && output.contains("got word"), "{output}");
    let no_input = s.told(Tool::Terminal, json!({"command": "cat; tty; true", "pty": true})).await;
    assert_eq!(no_input["output"], "not a tty");
    assert!(no_input["pty_note"].as_str().unwrap().contains("background"), "{no_input}");
}

pub(crate) async fn a_command_that_cannot_start_is_no_background_process(ground: &Ground) {
    let s = ground.hands().await;
    let wrong = json!({"command": "true", "background": true, "workdir": "/not/there"});
    let done = s.call(Tool::Terminal, wrong).await;
    assert_eq!((&done.content["exit_code"], done.succeeded), (&json!(126), false), "{}", done.content);
    assert_eq!(s.told(Tool::Process, json!({"action": "list"})).await["processes"], json!([]));
}

pub(crate) async fn only_what_was_asked_for_is_found(ground: &Ground) {
    let s = ground.hands().await;
    let id = start(&s, json!({"command": "sleep 60"})).await;
    let polled = act(&s, "poll", &id).await;
    let by_number = s.told(Tool::Process, json!({"action": "poll", "session_id": polled["pid"]})).await;
    assert_eq!(by_number["session_id"], json!(id));
    let beginning: String = id.chars().take(id.len() - 2).collect();
    assert_eq!(act(&s, "poll", &beginning).await["session_id"], json!(id));
    let done = s.call(Tool::Process, json!({"action": "kill", "session_id": "proc_00000000_1_1"})).await;
    assert_eq!((&done.content["status"], done.succeeded), (&json!("not_found"), false));
    assert_eq!(
        s.call(Tool::Process, json!({"action": "kill", "session_id": 1})).await.content["status"],
        "not_found"
    );
    assert!(s.error(Tool::Process, json!({"action": "poll"})).await.contains("session_id"));
    assert!(s.error(Tool::Process, json!({"action": "dance"})).await.contains("arguments"));
    assert_eq!(act(&s, "kill", &id).await["status"], "killed");
}

pub(crate) async fn a_wait_ends_with_the_turn(ground: &Ground) {
    let s = ground.hands().await;
    let id = start(&s, json!({"command": "echo begun; sleep 60"})).await;
    until(&s, &id, "begun").await;
    let short = json!({"action": "wait", "session_id": id, "timeout": 1});
    assert_eq!(s.told(Tool::Process, short).await["status"], "timeout");
    s.stop.cancel();
    assert_eq!(act(&s, "wait", &id).await["status"], "interrupted");
    assert_eq!(act(&s, "kill", &id).await["status"], "killed");
}
