//! `hermes chat` with a scripted model.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ReplyItem, ScriptStep};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::chat_env::{ChatEnv, DANGER, command_call, open_pipe, send_signal, terminal_call};
use crate::{Home, Run};

#[test]
fn a_query_prints_only_the_answer_on_stdout() {
    let env = ChatEnv::new([ScriptStep::text("It is\n**four**.")]);
    let done = env.run(&["chat", "-q", "two and two?"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "It is\n**four**.\n", ""));
    let request = &env.requests()[0];
    assert_eq!(request["messages"][1], json!({"role": "user", "content": "two and two?"}));
    assert_eq!(request["model"], "scripted");
    env.assert_no_violations();
}

#[test]
fn piped_input_is_one_message_and_no_command_means_chat() {
    let env = ChatEnv::new([ScriptStep::text("Yes."), ScriptStep::text("Again.")]);
    let done = env.run_with_input(&["chat"], "line one\nline two\n");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Yes.\n"), "{done:?}");
    let done = env.run_with_input(&[], "more");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Again.\n"), "{done:?}");
    let said = env.requests()[0]["messages"][1]["content"].clone();
    assert_eq!(said, "line one\nline two\n");
    let nothing = env.run_with_input(&[], " \n");
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(2), ""));
    assert!(nothing.err.contains("no message"), "{nothing:?}");
    env.assert_no_violations();
}

#[test]
fn chat_options_work_without_the_subcommand() {
    let env = ChatEnv::new([ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")]);
    for (args, answer) in [(["-q", "first"], "One.\n"), (["-z", "second"], "Two.\n")] {
        let done = env.run(&args);
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), answer, ""));
    }
    let done = env.run(&["-c", "-m", "other", "-q", "third"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Three.\n"), "{done:?}");
    let last = &env.requests()[2];
    assert_eq!((&last["model"], &last["messages"][1]["content"]), (&json!("other"), &json!("second")));
    let mixed = env.run(&["-q", "fourth", "status"]);
    assert_eq!((mixed.code, mixed.out.as_str()), (Some(2), ""));
    assert!(mixed.err.contains("`hermes chat -q TEXT`"), "{mixed:?}");
    env.assert_no_violations();
}

#[test]
fn images_are_sent_with_a_query_and_other_files_are_refused() {
    let env =
        ChatEnv::new([ScriptStep::text("A cat."), ScriptStep::text("Two cats."), ScriptStep::text("Still.")]);
    let (png, gif) = (b"\x89PNG\r\n\x1a\nand more", b"GIF89a");
    let [cat, dog] = ["cat", "dog.txt"].map(|name| env.path(name));
    fs::write(&cat, png).unwrap();
    fs::write(&dog, gif).unwrap();
    let [cat, dog] = [&cat, &dog].map(|path| path.to_str().unwrap());
    let done = env.run(&["chat", "-q", "what is it?", "--image", cat, "--backend", "local"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "A cat.\n", ""));
    let done = env.run(&["--image", cat, "--image", dog, "-q", ""]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Two cats.\n"), "{done:?}");
    let done = env.run(&["-c", "-q", "and now?"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Still.\n"), "{done:?}");
    let images = env
        .model
        .received()
        .into_iter()
        .map(|request| request.images().into_iter().map(|image| image.bytes).collect::<Vec<_>>());
    let both = vec![png.to_vec(), gif.to_vec()];
    assert_eq!(images.collect::<Vec<_>>(), [vec![png.to_vec()], both.clone(), both]);
    let said = &env.requests()[0]["messages"][1]["content"][0]["text"];
    assert_eq!(*said, format!("what is it?\n\n[file cat: {} bytes, image/png, at {cat}]", png.len()));
    fs::write(env.path("text.png"), "text").unwrap();
    for (name, reason) in [("none.png", "No such file"), ("text.png", "not a PNG, JPEG, GIF or WebP image")] {
        let path = env.path(name);
        let refused = env.run(&["-q", "look", "--image", path.to_str().unwrap()]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{refused:?}");
        assert!(refused.err.contains(name) && refused.err.contains(reason), "{refused:?}");
    }
    let exported = env.run(&["sessions", "export", "last"]);
    let exported: Value = serde_json::from_str(&exported.out).unwrap();
    let images = &exported["messages"][0]["images"];
    assert_eq!((&images[1]["kind"], &images[1]["size"]), (&json!("gif"), &json!(6)), "{exported}");
    env.assert_no_violations();
}

#[test]
fn a_home_created_by_a_chat_is_private() {
    let env = ChatEnv::new([ScriptStep::text("Hello.")]);
    let fresh = env.path("fresh");
    let config = env.home.read("config.yaml").unwrap();
    let url = config.lines().find_map(|line| line.trim().strip_prefix("base_url: ")).unwrap();
    let mut command = env.command(&["--home", fresh.to_str().unwrap(), "-q", "hello"]);
    command.env("HERMES_INFERENCE_MODEL", "scripted").env("HERMES_MODEL_BASE_URL", url);
    let done = Run::of(command.output().unwrap());
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Hello.\n"), "{done:?}");
    assert_eq!(fs::metadata(fresh).unwrap().permissions().mode() & 0o777, 0o700);
    env.assert_no_violations();
}

#[test]
fn a_turn_with_a_tool_is_one_document() {
    let items = [ReplyItem::Text("I look.".to_owned()), command_call("c1", "echo hello; exit 3")];
    let env = ChatEnv::new([ScriptStep::reply(items), ScriptStep::text("It said hello.")]);
    let done = env.run(&["chat", "--json", "-q", "look"]);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
    let document = done.json();
    let id = document["session"].as_str().unwrap();
    let facts = |name: &str| document[name].clone();
    assert_eq!(
        [facts("text"), facts("exit"), facts("reason")],
        [json!("It said hello."), json!("answered"), Value::Null]
    );
    assert_eq!(
        [facts("model"), facts("provider"), facts("calls")],
        [json!("scripted"), json!("custom"), json!(2)]
    );
    assert!(document["usage"]["output"].as_u64().unwrap() > 0, "{document}");
    assert_eq!(document["tools"].as_array().unwrap().len(), 1);
    assert_eq!(
        [&document["tools"][0]["tool"], &document["tools"][0]["worked"]],
        [&json!("terminal"), &json!(false)]
    );
    let message: Value = serde_json::from_str(&env.last_message()).unwrap();
    assert_eq!([&message["exit_code"], &message["output"]], [&json!(3), &json!("hello")]);
    let session = env.run(&["sessions", "show", id, "--json"]).json();
    assert_eq!(session["messages"].as_array().unwrap().len(), 4);
    assert_eq!([&session["title"], &session["end_reason"]], [&json!("look"), &json!("quit")]);
    env.assert_no_violations();
}

#[test]
fn intermediate_steps_go_to_stderr() {
    let items = [ReplyItem::Text("I look.".to_owned()), command_call("c1", "echo hello")];
    let env = ChatEnv::new([ScriptStep::reply(items), ScriptStep::text("Done.")]);
    let done = env.run(&["chat", "-q", "look"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Done.\n"), "{done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines[0], "I look.");
    assert!(
        lines[1].starts_with("  ✓ terminal  echo hello  ") && lines[1].ends_with("s  hello"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2);
    env.assert_no_violations();
}

#[test]
fn five_calls_of_one_reply_get_results_in_order() {
    let calls = (1..6)
        .map(|number| command_call(&format!("c{number}"), &format!("echo {number} >> log; echo {number}")));
    let env = ChatEnv::new([ScriptStep::reply(calls), ScriptStep::text("All done.")]);
    let done = env.run(&["chat", "-q", "count"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All done.\n"), "{done:?}");
    assert_eq!(env.read("log"), "1\n2\n3\n4\n5\n");
    let messages = env.requests()[1]["messages"].as_array().unwrap().clone();
    let results: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    let ids: Vec<_> = results.iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4", "c5"]);
    env.assert_no_violations();
}

#[test]
fn without_a_terminal_dangerous_commands_run_only_with_yes() {
    let script = [terminal_call("c1", DANGER), ScriptStep::text("I may not.")];
    let env = ChatEnv::new([script.clone(), script].concat());
    env.create_private_file();
    let refused = env.run(&["chat", "-q", "clean up"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(0), "I may not.\n"), "{refused:?}");
    assert!(env.is_private());
    assert!(env.last_message().contains("not allowed"), "{}", env.last_message());
    assert_eq!(env.questions(), [""; 0]);
    let allowed = env.run(&["chat", "--yes", "-q", "clean up"]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(!env.is_private());
    env.assert_no_violations();
}

#[test]
fn a_conversation_can_be_resumed() {
    let env = ChatEnv::new([
        ScriptStep::text("Hello Ada."),
        ScriptStep::text("Ada."),
        ScriptStep::text("Still Ada."),
    ]);
    let first = env.run(&["chat", "--json", "-q", "I am Ada"]).json();
    let second = env.run(&["chat", "--json", "--resume", "last", "-q", "who am I?"]).json();
    assert_eq!(first["session"], second["session"]);
    let prefix: String = first["session"].as_str().unwrap().chars().take(17).collect();
    let third = env.run(&["chat", "--json", "--resume", &prefix, "-q", "and now?"]).json();
    assert_eq!(third["text"], "Still Ada.");
    let words: Vec<_> = env.requests()[2]["messages"].as_array().unwrap()[1..]
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(words, ["I am Ada", "Hello Ada.", "who am I?", "Ada.", "and now?"]);
    let unknown = env.run(&["chat", "--resume", "unknown", "-q", "x"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    let idle = env.run(&["chat", "--resume", "last"]);
    assert_eq!(idle.code, Some(2), "{idle:?}");
    assert!(idle.err.contains("no interrupted turn"), "{idle:?}");
    env.assert_no_violations();
}

#[test]
fn a_conversation_resumes_in_its_own_directory() {
    let env = ChatEnv::new([
        terminal_call("c1", "pwd > one"),
        ScriptStep::text("Here."),
        terminal_call("c2", "pwd > two"),
        ScriptStep::text("Here too."),
    ]);
    assert_eq!(env.run(&["chat", "-q", "where?"]).code, Some(0));
    let mut elsewhere = env.command(&["chat", "--resume", "last", "-q", "and now?"]);
    let done = crate::Run::of(elsewhere.current_dir(env.home.path()).output().unwrap());
    assert_eq!(done.out, "Here too.\n", "{done:?}");
    assert_eq!(env.read("two"), env.read("one"));
    assert_eq!(env.read("one").trim(), env.path("").display().to_string().trim_end_matches('/'));
    env.assert_no_violations();
}

#[test]
fn the_request_prefix_is_identical_across_ten_turns() {
    let answers =
        (0..10).flat_map(|turn| [terminal_call(&format!("c{turn}"), "echo x"), ScriptStep::text("ok")]);
    let env = ChatEnv::new(answers);
    for turn in 0..10 {
        let resume: &[&str] = if turn == 0 { &[] } else { &["--resume", "last"] };
        let done = env.run(&[&["chat", "-q", "go"], resume].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let received = env.model.received();
    assert_eq!(received.len(), 20);
    let prefix_of = |body: &[u8]| {
        // Everything except the messages after the system prompt, byte for byte.
        let text = String::from_utf8(body.to_vec()).unwrap();
        let (before, rest) = text.split_once(r#"{"role":"user""#).unwrap_or_else(|| panic!("{text}"));
        let tools = rest.split_once(r#""tools":["#).map(|(_, tools)| tools.to_owned());
        (before.to_owned(), tools)
    };
    let first = prefix_of(&received[0].body);
    assert!(first.0.contains(r#""tools":["#) || first.1.is_some(), "no tools in the request: {first:?}");
    for request in &received {
        assert_eq!(prefix_of(&request.body), first);
    }
    env.assert_no_violations();
}

#[test]
fn a_killed_turn_is_resumed_and_nothing_runs_twice() {
    let env = ChatEnv::new([
        terminal_call("c1", "echo one >> log"),
        terminal_call("c2", "echo two >> log; cat pipe"),
        terminal_call("c3", "echo three >> log"),
        ScriptStep::text("All three."),
    ]);
    let pipe = env.create_pipe("pipe");
    let mut child =
        env.command(&["chat", "-q", "count"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let writer = open_pipe(&pipe);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(writer);
    assert_eq!(env.read("log"), "one\ntwo\n");
    let done = env.run(&["chat", "--resume", "last"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All three.\n"), "{done:?}");
    assert!(done.err.contains("resuming the interrupted turn"), "{done:?}");
    assert_eq!(env.read("log"), "one\ntwo\nthree\n");
    let message = env.requests()[2]["messages"].to_string();
    assert!(message.contains("it may have run"), "{message}");
    env.assert_no_violations();
}

#[test]
fn an_interrupt_ends_the_turn_and_everything_it_started() {
    let env = ChatEnv::new([terminal_call("c1", "sh -c 'cat pipe' & wait")]);
    let pipe = env.create_pipe("pipe");
    let mut command = env.command(&["chat", "--json", "-q", "wait"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut writer = open_pipe(&pipe);
    send_signal(&child, Signal::INT);
    let done = crate::Run::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(130), "{done:?}");
    assert_eq!(done.json()["exit"], "interrupted");
    // The reader of the pipe has ended.
    assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    let idle = env.run(&["chat", "--resume", "last"]);
    assert_eq!(idle.code, Some(2), "an interrupted turn has ended: {idle:?}");
    env.assert_no_violations();
}

#[test]
fn without_a_model_a_hint_is_printed() {
    let home = Home::new();
    let done = home.run(&["chat", "-q", "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{done:?}");
    assert_eq!(done.err.lines().filter(|line| line.contains('→')).count(), 3, "{done:?}");
    assert!(done.err.contains("hermes config set model.default"), "{done:?}");
    let json = home.run(&["chat", "--json", "-q", "hello"]).json();
    assert_eq!(json["error"]["kind"], "configuration");
}

#[test]
fn a_failing_model_has_its_own_exit_code() {
    let wrong = json!({"error": {"message": "no such key", "type": "invalid_request_error", "code": "invalid_api_key"}});
    let env = ChatEnv::new([ScriptStep::error(401, wrong)]);
    let done = env.run(&["chat", "-q", "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{done:?}");
    assert!(done.err.contains("no such key"), "{done:?}");
    let busy = ModelScript {
        always: Some(ScriptStep::error(503, json!({"error": {"message": "busy"}}))),
        ..ModelScript::default()
    };
    let env = ChatEnv::with(busy, "agent:\n  api_max_retries: 1\n");
    let done = env.run(&["chat", "--json", "-q", "hello"]);
    assert_eq!((done.code, &done.json()["exit"]), (Some(5), &json!("failed")), "{done:?}");
}

#[test]
fn a_terminal_chat_accepts_one_message_after_another() {
    let env = ChatEnv::new([
        ScriptStep::text("Hello there."),
        terminal_call("c1", "echo from the tool"),
        ScriptStep::text("Seen."),
    ]);
    let mut terminal = env.open_terminal("xterm", &[]);
    terminal.wait_for("> ");
    terminal.type_keys("first\r");
    terminal.wait_for("Hello there.");
    terminal.wait_for("> ");
    terminal.type_keys("second\r");
    terminal.wait_for("✓");
    terminal.wait_for("Seen.");
    terminal.wait_for("> ");
    terminal.type_keys("!echo $((6 * 7)); exit 9\r");
    terminal.wait_for("42");
    terminal.wait_for("exit code 9");
    terminal.wait_for("> ");
    terminal.type_keys("/usage\r");
    terminal.wait_for("3 API calls");
    terminal.wait_for("> ");
    terminal.type_keys("/nwe\r");
    terminal.wait_for("Did you mean /new?");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    terminal.wait_for("hermes chat --resume ");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    let history = env.home.read("chat_history").unwrap();
    assert!(history.starts_with("first\nsecond\n!echo"), "{history}");
    let mode = std::fs::metadata(env.home.path().join("chat_history")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
    // The model does not see the `!` command.
    assert!(!env.requests()[2].to_string().contains("6 * 7"));
    env.assert_no_violations();
}

#[test]
fn on_a_dumb_terminal_nothing_moves_the_cursor() {
    let env = ChatEnv::new([terminal_call("c1", "echo hi"), ScriptStep::text("Plain\u{1b}[31m words.")]);
    let mut terminal = env.open_terminal("dumb", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("over two \\\nlines\n");
    terminal.wait_for("Plain[31m words.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{3}");
    terminal.wait_for("press Ctrl-C again to quit");
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert!(!terminal.output().contains('\u{1b}'), "{:?}", terminal.output());
    assert_eq!(env.requests()[0]["messages"][1]["content"], "over two \nlines");
    env.assert_no_violations();
}

#[test]
fn ctrl_c_interrupts_the_turn_and_not_the_chat() {
    let env = ChatEnv::new([terminal_call("c1", "cat pipe"), ScriptStep::text("Here I am.")]);
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("wait\r");
    let mut writer = open_pipe(&pipe);
    terminal.type_keys("\u{3}");
    terminal.wait_for("interrupted");
    assert_eq!(writer.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    terminal.wait_for("> ");
    terminal.type_keys("still there?\r");
    terminal.wait_for("Here I am.");
    terminal.wait_for("> ");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    env.assert_no_violations();
}

#[test]
fn input_typed_during_a_turn_is_a_command_or_the_next_message() {
    let env = ChatEnv::new([
        terminal_call("c1", "cat pipe"),
        ScriptStep::text("First."),
        ScriptStep::text("Second."),
    ]);
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("begin\r");
    let mut writer = open_pipe(&pipe);
    terminal.type_keys("and then this\n");
    terminal.wait_for("queued: and then this");
    terminal.type_keys("/steer look left\n");
    terminal.wait_for("the model gets it");
    writer.write_all(b"done").unwrap();
    drop(writer);
    terminal.wait_for("First.");
    terminal.wait_for("Second.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert!(env.requests()[1]["messages"].to_string().contains("look left"));
    assert_eq!(env.last_message(), "and then this");
    env.assert_no_violations();
}

#[test]
fn a_message_interrupts_the_turn_if_that_is_configured() {
    let env = ChatEnv::new([terminal_call("c1", "cat pipe"), ScriptStep::text("Second.")]);
    let pipe = env.create_pipe("pipe");
    let mode = ("HERMES_GATEWAY_BUSY_INPUT_MODE", "interrupt");
    let mut terminal = env.open_terminal_with("xterm", &["chat"], mode);
    terminal.wait_for("> ");
    terminal.type_keys("begin\r");
    let mut held = open_pipe(&pipe);
    terminal.type_keys("this instead\n");
    terminal.wait_for("interrupted");
    terminal.wait_for("Second.");
    terminal.wait_for("> ");
    assert_eq!(held.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert_eq!(env.last_message(), "this instead");
    env.assert_no_violations();
}

/// Starts a background process with a completion notice; it ends when the pipe is closed.
fn start_background_call() -> ScriptStep {
    let command = json!({"command": "cat pipe; echo over", "background": true, "notify_on_complete": true});
    ScriptStep::call("c1", "terminal", command)
}

#[test]
fn the_end_of_a_background_process_starts_a_turn() {
    for term in ["xterm", "dumb"] {
        let env = ChatEnv::new([
            start_background_call(),
            ScriptStep::text("It runs."),
            ScriptStep::text("I heard it."),
        ]);
        let pipe = env.create_pipe("pipe");
        let mut terminal = env.open_terminal(term, &["chat"]);
        terminal.wait_for("> ");
        terminal.type_keys("begin\r");
        terminal.wait_for("It runs.");
        terminal.wait_for("> ");
        drop(open_pipe(&pipe));
        terminal.wait_for("> [IMPORTANT: Background process proc_");
        terminal.wait_for("I heard it.");
        terminal.wait_for("> ");
        terminal.type_keys("\u{4}");
        assert_eq!(terminal.wait_for_exit().code(), Some(0));
        let message = env.last_message();
        assert!(
            message.contains("has ended with exit code 0.") && message.ends_with("Output:\nover]"),
            "{message}"
        );
        env.assert_no_violations();
    }
}

#[test]
fn a_background_process_does_not_interrupt_typing() {
    let answers = ["It runs.", "To the line.", "I heard it."].map(ScriptStep::text);
    let env = ChatEnv::new([start_background_call()].into_iter().chain(answers));
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("begin\r");
    terminal.wait_for("It runs.");
    terminal.wait_for("> ");
    terminal.type_keys("half a");
    terminal.wait_for("half a");
    drop(open_pipe(&pipe));
    terminal.wait_for("(sent after your message)");
    terminal.wait_for("half a");
    terminal.type_keys(" line\r");
    terminal.wait_for("To the line.");
    terminal.wait_for("I heard it.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert!(env.last_message().starts_with("[IMPORTANT: "), "{}", env.last_message());
    assert!(env.requests()[2]["messages"].to_string().contains("half a line"));
    env.assert_no_violations();
}

#[test]
fn input_typed_before_the_prompt_is_kept() {
    let env = ChatEnv::new([ScriptStep::text("Two.")]);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.type_keys("early bird\n");
    terminal.wait_for("Two.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert_eq!(env.last_message(), "early bird");
    env.assert_no_violations();
}

#[test]
fn a_question_of_the_model_is_answered_by_number_or_in_words() {
    let asks = |id: &str| {
        let choices = json!({"question": "Which color?", "choices": ["red", "blue"]});
        ScriptStep::call(id, "clarify", choices)
    };
    let env = ChatEnv::new([asks("c1"), asks("c2"), ScriptStep::text("Nice.")]);
    let mut terminal = env.open_terminal("xterm", &["chat", "-q", "paint"]);
    terminal.wait_for("Which color?");
    terminal.wait_for("2  blue");
    terminal.wait_for("number or text >");
    terminal.type_keys("2\n");
    terminal.wait_for("Which color?");
    terminal.wait_for("number or text >");
    terminal.type_keys("green, rather\n");
    terminal.wait_for("Nice.");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert!(env.requests()[1]["messages"].to_string().contains("blue\\\""), "{}", env.requests()[1]);
    assert!(env.last_message().contains("green, rather"));
    env.assert_no_violations();
}

#[test]
fn input_typed_during_a_single_query_is_left_for_the_next_program() {
    let env = ChatEnv::new([terminal_call("c1", "cat pipe"), ScriptStep::text("Done.")]);
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("dumb", &["chat", "-q", "wait"]);
    let mut writer = open_pipe(&pipe);
    terminal.type_keys("next\n");
    writer.write_all(b"x").unwrap();
    drop(writer);
    terminal.wait_for("Done.");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert!(!terminal.output().contains("queued"), "{}", terminal.output());
    assert_eq!(terminal.unread(), "next\n");
}

#[test]
fn a_terminated_chat_restores_the_terminal() {
    let env = ChatEnv::new([ScriptStep::text("Hello.")]);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    let before = terminal.modes();
    terminal.wait_for("> ");
    terminal.type_keys("hi\r");
    terminal.wait_for("Hello.");
    terminal.wait_for("> ");
    assert_ne!(terminal.modes(), before, "line editing is off");
    send_signal(&terminal.child, Signal::TERM);
    terminal.wait_for("hermes chat --resume ");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    assert_eq!(terminal.modes(), before);
    env.assert_no_violations();
}

#[test]
fn a_model_can_be_changed_and_messages_undone() {
    let env = ChatEnv::new([ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")]);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("hello\r");
    terminal.wait_for("One.");
    terminal.wait_for("> ");
    terminal.type_keys("/retry\r");
    terminal.wait_for("Two.");
    terminal.wait_for("> ");
    terminal.type_keys("/model other\r");
    terminal.wait_for("other (custom)");
    terminal.wait_for("> ");
    terminal.type_keys("/undo\r");
    terminal.wait_for("Undone: hello");
    terminal.wait_for("> ");
    terminal.type_keys("/new\r");
    terminal.wait_for("new conversation in");
    terminal.wait_for("> ");
    terminal.type_keys("again\r");
    terminal.wait_for("Three.");
    terminal.wait_for("> ");
    terminal.type_keys("/exit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    let requests = env.requests();
    let message_counts: Vec<_> =
        requests.iter().map(|request| request["messages"].as_array().unwrap().len()).collect();
    assert_eq!(message_counts, [2, 2, 2]);
    assert_eq!([&requests[1]["model"], &requests[2]["model"]], ["scripted", "other"]);
    env.assert_no_violations();
}

#[test]
fn a_first_start_without_a_model_still_runs_commands() {
    let env = ChatEnv::new([]);
    env.home.write("config.yaml", "");
    let mut terminal = env.open_terminal("xterm", &[]);
    terminal.wait_for("no model is configured");
    terminal.wait_for("> ");
    terminal.type_keys("hello\r");
    terminal.wait_for("no model is configured");
    terminal.type_keys("!echo it $((40 + 2)) works\r");
    terminal.wait_for("it 42 works");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
}
