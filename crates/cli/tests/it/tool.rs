//! `hermes tool`: the tools of the agent, called as a model would call them.

use std::fs::File;
use std::io::{Read, Write};
use std::process::Stdio;

use rustix::pty::{OpenptFlags, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::Run;
use crate::env::CommandEnv;

fn with(config: &str) -> CommandEnv {
    CommandEnv::new("tool", config)
}

impl CommandEnv {
    fn call(&self, name: &str, arguments: &Value, rest: &[&str]) -> Run {
        self.run(&[&["call", name, &arguments.to_string()], rest].concat())
    }
}

#[test]
fn tools_are_listed_as_the_model_sees_them() {
    let env = with("");
    let listed = env.run(&["ls", "--json"]).json();
    let names: Vec<&str> =
        listed["tools"].as_array().unwrap().iter().map(|tool| tool["name"].as_str().unwrap()).collect();
    for name in [
        "terminal", "process", "read_file", "write_file", "patch", "search_files", "web_fetch", "todo",
        "clarify",
    ] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert!(listed["tools"][0]["parameters"]["properties"]["command"].is_object());
    let text = env.run(&["ls"]);
    assert!(text.out.lines().any(|line| line.starts_with("read_file ")), "{text:?}");
    assert!(!env.home.path().join("hermes.db").exists(), "listing creates no database");
}

#[test]
fn a_tool_runs_in_the_environment_of_the_session() {
    for backend in ["local", "sandbox"] {
        let env = with("");
        let place = ["--session", "s", "--backend", backend];
        let written = env.call("write_file", &json!({"path": "d/f", "content": "one\ntwo\n"}), &place);
        assert_eq!((written.code, &written.json()["bytes_written"]), (Some(0), &json!(8)), "{written:?}");
        let moved = env.call("terminal", &json!({"command": "cd d; export A=1"}), &place);
        assert_eq!(moved.code, Some(0), "{moved:?}");
        let read = env.call("read_file", &json!({"path": "f"}), &place);
        assert_eq!(read.json()["content"], "1|one\n2|two", "{read:?}");
        let shown = env.call("terminal", &json!({"command": "echo $A; cat f"}), &place);
        assert_eq!(shown.json()["output"], "1\none\ntwo");
        assert_eq!(env.path().join("d/f").exists(), backend == "local");
        let failed = env.call("terminal", &json!({"command": "exit 3"}), &place);
        assert_eq!((failed.code, &failed.json()["exit_code"]), (Some(1), &json!(3)));
    }
}

#[test]
fn arguments_are_text_or_standard_input() {
    let env = with("");
    let mut command = env.command(&["call", "terminal", "-", "--session", ""]);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"command\": \"echo hi\"}").unwrap();
    let done = Run::of(child.wait_with_output().unwrap());
    assert_eq!(done.json()["output"], "hi", "{done:?}");
    for (args, said) in [
        (&["call", "terminal", "nonsense"][..], "not JSON"),
        (&["call", "terminal", "[1]"], "not a JSON object"),
        (&["call", "read_fil", "{}"], "read_file"),
        (&["call", "dance", "{}"], "tool ls"),
    ] {
        let done = env.run(args);
        assert_eq!(done.code, Some(2), "{done:?}");
        assert!(done.err.contains(said), "{done:?}");
    }
    let wrong = env.call("read_file", &json!({}), &[]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.json()["error"].as_str().unwrap().contains("path"), "{wrong:?}");
}

#[test]
fn without_a_terminal_questions_are_denied_unless_approved_by_flag() {
    let env = with("");
    std::fs::write(env.path().join("victim"), "x").unwrap();
    let command = json!({"command": "chmod 777 victim && echo done"});
    let refused = env.call("terminal", &command, &[]);
    assert_eq!((refused.code, &refused.json()["status"]), (Some(4), &json!("blocked")), "{refused:?}");
    assert!(refused.err.contains('!'), "{refused:?}");
    let allowed = env.call("terminal", &command, &["--yes"]);
    assert_eq!((allowed.code, &allowed.json()["output"]), (Some(0), &json!("done")), "{allowed:?}");
    assert_eq!(allowed.json()["approval"], "approved by cli");
    let floor = env.call("terminal", &json!({"command": "rm -rf /"}), &["--yes"]);
    assert_eq!(floor.code, Some(4), "{floor:?}");
    let own = env.call("read_file", &json!({"path": env.home.path().join(".env")}), &[]);
    assert_eq!(own.code, Some(4), "{own:?}");
    let unanswered = env.call("clarify", &json!({"question": "which?"}), &[]);
    assert_eq!(unanswered.code, Some(1), "{unanswered:?}");
}

#[test]
fn secrets_of_the_owner_are_redacted_for_the_model() {
    let command = json!({"command": "echo value-of-the-key | rev | rev; echo forwarded-value"});
    let dotenv = "OPENAI_API_KEY=value-of-the-key\nMY_PLAIN=forwarded-value\n";
    let env = with("terminal:\n  docker_forward_env: [MY_PLAIN]\n");
    env.home.write(".env", dotenv);
    assert_eq!(env.call("terminal", &command, &[]).json()["output"], "[redacted]\n[redacted]");
    let open = with("security:\n  redact_secrets: false\n");
    open.home.write(".env", dotenv);
    assert_eq!(open.call("terminal", &command, &[]).json()["output"], "value-of-the-key\nforwarded-value");
}

#[test]
fn a_background_process_persists_between_calls() {
    let env = with("");
    let started = env.call(
        "terminal",
        &json!({"command": "echo up; sleep 60", "background": true}),
        &["--session", "s"],
    );
    let id = started.json()["session_id"].clone();
    let of =
        |action: &str| env.call("process", &json!({"action": action, "session_id": id}), &["--session", "s"]);
    assert_eq!(of("poll").json()["status"], "running");
    assert_eq!(of("kill").json()["status"], "killed");
    let other = env.call("process", &json!({"action": "poll", "session_id": id}), &["--session", "other"]);
    assert_eq!(
        (other.code, &other.json()["status"]),
        (Some(1), &json!("not_found")),
        "another session's is not found"
    );
}

/// Calls a tool in a terminal with typed input and returns the result and the terminal output.
fn call_in_terminal(env: &CommandEnv, name: &str, arguments: &Value, typed: &str) -> (Run, String) {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    unlockpt(&master).unwrap();
    let terminal = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let slave = || File::options().read(true).write(true).open(&terminal).unwrap();
    let mut master = File::from(master);
    let mut command = env.command(&["call", name, &arguments.to_string()]);
    let child = command.stdin(slave()).stderr(slave()).stdout(Stdio::piped()).spawn().unwrap();
    // The terminal closes when the last program that has it open ends.
    drop(command);
    let (mut shown, mut piece) = (Vec::new(), [0; 1024]);
    // Input typed before a question is not its answer.
    while !["[N]o: ", " > "].iter().any(|end| shown.ends_with(end.as_bytes())) {
        let count = master.read(&mut piece).unwrap();
        shown.extend_from_slice(piece.get(..count).unwrap());
    }
    master.write_all(typed.as_bytes()).unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    // Reading a closed terminal is an error.
    drop(master.read_to_end(&mut shown));
    (run, String::from_utf8(shown).unwrap())
}

#[test]
fn a_terminal_asks_and_only_a_clear_yes_approves() {
    let env = with("");
    std::fs::write(env.path().join("victim"), "x").unwrap();
    let command = json!({"command": "chmod 777 victim && echo done"});
    let (yes, shown) = call_in_terminal(&env, "terminal", &command, "y\n");
    assert_eq!((yes.code, &yes.json()["output"]), (Some(0), &json!("done")), "{shown}");
    assert!(shown.contains("chmod 777 victim") && shown.contains("[N]o"), "{shown}");
    for no in ["\n", "n\n", "yep\n", "\u{4}"] {
        let (refused, shown) = call_in_terminal(&env, "terminal", &command, no);
        assert_eq!(refused.code, Some(4), "{no:?} {shown}");
    }
    let question = json!({"question": "which one?", "choices": ["red", "blue"]});
    for (typed, answer) in [("2\n", "blue"), ("green\n", "green"), ("9\n", "9")] {
        let (result, shown) = call_in_terminal(&env, "clarify", &question, typed);
        assert_eq!(result.json()["user_response"], answer, "{shown}");
        assert!(shown.contains("which one?") && shown.contains("blue"), "{shown}");
    }
    assert_eq!(call_in_terminal(&env, "clarify", &question, "\n").0.code, Some(1));
}
