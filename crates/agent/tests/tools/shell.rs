//! `terminal`, and what holds for every answer.

use std::time::Duration;

use hermes_agent::Tool;
use serde_json::{Value, json};

use crate::ground::Ground;

pub(crate) async fn the_exit_code_comes_first_and_the_state_stays(ground: &Ground) {
    let s = ground.hands().await;
    let done = s
        .call(Tool::Terminal, json!({"command": "mkdir d; cd d; export A=1; f() { echo f; }; exit 3"}))
        .await;
    let names: Vec<&str> = done.content.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(names, ["exit_code", "output", "error"]);
    assert_eq!((&done.content["exit_code"], done.succeeded), (&json!(3), false));
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

pub(crate) async fn a_directory_for_one_command_may_have_any_name_and_does_not_stick(ground: &Ground) {
    let s = ground.hands().await;
    let before = s.shell("pwd").await;
    let name = "ä (b) $c 'd\" e";
    s.shell("mkdir \"ä (b) \\$c 'd\\\" e\"").await;
    let there = s.told(Tool::Terminal, json!({"command": "pwd", "workdir": name})).await;
    assert_eq!(there["output"], format!("{before}/{name}"));
    assert_eq!(s.shell("pwd").await, before);
    let missing = s.call(Tool::Terminal, json!({"command": "pwd", "workdir": "/not/there"})).await.content;
    assert_eq!(missing["exit_code"], 126);
    assert!(missing["error"].as_str().unwrap().contains("nothing was run"), "{missing}");
}

pub(crate) async fn a_long_output_is_shown_by_its_ends_and_can_be_read_whole(ground: &Ground) {
    let s = ground.hands().await;
    let done = s.told(Tool::Terminal, json!({"command": "seq 1 40000"})).await;
    let output = done["output"].as_str().unwrap();
    assert!(output.starts_with("1\n2\n") && output.ends_with("\n39999\n40000"), "{output}");
    assert!(output.contains(" of 228894 bytes left out …]\n"), "{output}");
    assert!(output.len() < 51_000);
    for line in output.lines().filter(|line| !line.starts_with('[')) {
        assert!(line.parse::<u32>().is_ok(), "half a line: {line}");
    }
    assert_eq!(done["total_bytes"], 228_894);
    let rest = json!({"path": done["full_output"], "offset": 20_000, "limit": 2});
    assert_eq!(s.told(Tool::ReadFile, rest).await["content"], "20000|20000\n20001|20001");
}

pub(crate) async fn what_detaches_or_serves_is_run_and_advised_about(ground: &Ground) {
    let s = ground.hands().await;
    let detached =
        s.told(Tool::Terminal, json!({"command": "nohup sleep 60 >/dev/null 2>&1 & echo done"})).await;
    assert_eq!(detached["output"], "done");
    assert!(detached["hint"].as_str().unwrap().contains("process"), "{detached}");
    let id = detached["session_id"].clone();
    assert_eq!(s.told(Tool::Process, json!({"action": "kill", "session_id": id})).await["status"], "killed");
    let quiet =
        s.told(Tool::Terminal, json!({"command": "echo pip install uvicorn; true & true & wait"})).await;
    assert_eq!((quiet.get("hint"), &quiet["exit_code"]), (None, &json!(0)), "{quiet}");
}

pub(crate) async fn an_interrupt_ends_a_command_and_keeps_what_it_said(ground: &Ground) {
    let s = ground.hands().await;
    s.shell("true").await;
    let stop = s.stop.clone();
    let call = s.call(Tool::Terminal, json!({"command": "echo begun; touch there; sleep 60"}));
    let watch = async {
        // The end of the command depends on this, and on no clock.
        let other = ground.hands().await;
        while other.call(Tool::Terminal, json!({"command": "test -e there"})).await.content["exit_code"] != 0
        {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    };
    let (done, ()) = tokio::join!(call, watch);
    assert_eq!((&done.content["exit_code"], &done.content["output"]), (&json!(130), &json!("begun")));
    assert!(done.content["error"].as_str().unwrap().contains("interrupted"));
}

pub(crate) async fn a_place_that_was_made_anew_says_so(ground: &Ground) {
    let s = ground.hands().await;
    s.shell("export A=1").await;
    let places = hermes_exec::Places { run_dir: ground.folder.join("run"), kept_dirs: Vec::new() };
    let found = places.list().await.unwrap();
    assert_eq!(places.end_all(found).await.len(), 0);
    let next = s.told(Tool::Terminal, json!({"command": "echo \"[$A]\""})).await;
    assert_eq!(next["output"], "[]");
    assert!(next["note"].as_str().unwrap().contains("made anew"), "{next}");
    assert_eq!(s.told(Tool::Terminal, json!({"command": "true"})).await.get("note"), None);
}

pub(crate) async fn what_is_for_a_screen_is_left_out(ground: &Ground) {
    let s = ground.hands().await;
    assert_eq!(s.shell("printf '\\033[31mred\\033[0m \\033]0;t\\007x\\n'").await, "red x");
}

pub(crate) async fn an_answer_too_long_for_a_conversation_is_put_into_a_file(ground: &Ground) {
    let s = ground.hands().await;
    let line = "x".repeat(90);
    let command = format!("for i in $(seq 1 3000); do echo $i {line}; done");
    let started = s.told(Tool::Terminal, json!({"command": command, "background": true})).await;
    let id = started["session_id"].clone();
    assert_eq!(s.told(Tool::Process, json!({"action": "wait", "session_id": id})).await["status"], "exited");
    let log = s.told(Tool::Process, json!({"action": "log", "session_id": id, "limit": 5000})).await;
    assert_eq!((&log["total_lines"], &log["exit_code"]), (&json!(3000), &json!(0)), "{log}");
    assert!(log["preview"].as_str().unwrap().starts_with("1 xxx"), "{log}");
    assert!(log["size"].as_u64().unwrap() > 100_000 && log.to_string().len() < 5_000);
    assert_eq!(log.get("output"), None::<&Value>);
    let part = json!({"path": log["full_result"], "offset": 2999});
    let part = s.told(Tool::ReadFile, part).await;
    assert_eq!(part["content"], format!("2999|2999 {line}\n3000|3000 {line}"));
}
