//! `hermes chat`: the whole program and a scripted model.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ReplyItem, ScriptStep};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::room::{DANGER, Room, meet, runs, says_run, signal};
use crate::{Home, Run};

#[test]
fn one_question_is_answered_on_stdout_and_nothing_else_is_there() {
    let room = Room::new([ScriptStep::text("It is\n**four**.")]);
    let done = room.run(&["chat", "-q", "two and two?"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "It is\n**four**.\n", ""));
    let request = &room.requests()[0];
    assert_eq!(request["messages"][1], json!({"role": "user", "content": "two and two?"}));
    assert_eq!(request["model"], "scripted");
    room.is_content();
}

#[test]
fn a_pipe_is_one_message_and_the_bare_command_is_a_chat() {
    let room = Room::new([ScriptStep::text("Yes."), ScriptStep::text("Again.")]);
    let done = room.fed(&["chat"], "line one\nline two\n");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Yes.\n"), "{done:?}");
    let done = room.fed(&[], "more");
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Again.\n"), "{done:?}");
    let said = room.requests()[0]["messages"][1]["content"].clone();
    assert_eq!(said, "line one\nline two\n");
    let nothing = room.fed(&[], " \n");
    assert_eq!((nothing.code, nothing.out.as_str()), (Some(2), ""));
    assert!(nothing.err.contains("no message"), "{nothing:?}");
    room.is_content();
}

#[test]
fn options_of_a_chat_need_no_word_before_them() {
    let room = Room::new([ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")]);
    for (args, answer) in [(["-q", "first"], "One.\n"), (["-z", "second"], "Two.\n")] {
        let done = room.run(&args);
        assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), answer, ""));
    }
    let done = room.run(&["-c", "-m", "other", "-q", "third"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Three.\n"), "{done:?}");
    let last = &room.requests()[2];
    assert_eq!((&last["model"], &last["messages"][1]["content"]), (&json!("other"), &json!("second")));
    let mixed = room.run(&["-q", "fourth", "status"]);
    assert_eq!((mixed.code, mixed.out.as_str()), (Some(2), ""));
    assert!(mixed.err.contains("`hermes chat -q TEXT`"), "{mixed:?}");
    room.is_content();
}

#[test]
fn pictures_are_shown_with_a_question_and_what_is_none_is_refused() {
    let room =
        Room::new([ScriptStep::text("A cat."), ScriptStep::text("Two cats."), ScriptStep::text("Still.")]);
    let (png, gif) = (b"\x89PNG\r\n\x1a\nand more", b"GIF89a");
    let [cat, dog] = ["cat", "dog.txt"].map(|name| room.path(name));
    fs::write(&cat, png).unwrap();
    fs::write(&dog, gif).unwrap();
    let [cat, dog] = [&cat, &dog].map(|path| path.to_str().unwrap());
    let done = room.run(&["chat", "-q", "what is it?", "--image", cat, "--backend", "local"]);
    assert_eq!((done.code, done.out.as_str(), done.err.as_str()), (Some(0), "A cat.\n", ""));
    let done = room.run(&["--image", cat, "--image", dog, "-q", ""]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Two cats.\n"), "{done:?}");
    let done = room.run(&["-c", "-q", "and now?"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Still.\n"), "{done:?}");
    let shown = room
        .model
        .received()
        .into_iter()
        .map(|request| request.images().into_iter().map(|picture| picture.bytes).collect::<Vec<_>>());
    let both = vec![png.to_vec(), gif.to_vec()];
    assert_eq!(shown.collect::<Vec<_>>(), [vec![png.to_vec()], both.clone(), both]);
    let said = &room.requests()[0]["messages"][1]["content"][0]["text"];
    assert_eq!(*said, format!("what is it?\n\n[file cat: {} bytes, image/png, at {cat}]", png.len()));
    fs::write(room.path("text.png"), "text").unwrap();
    for (name, why) in [("none.png", "No such file"), ("text.png", "not a PNG, JPEG, GIF or WebP image")] {
        let path = room.path(name);
        let refused = room.run(&["-q", "look", "--image", path.to_str().unwrap()]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(2), ""), "{refused:?}");
        assert!(refused.err.contains(name) && refused.err.contains(why), "{refused:?}");
    }
    let exported = room.run(&["sessions", "export", "last"]);
    let exported: Value = serde_json::from_str(&exported.out).unwrap();
    let images = &exported["messages"][0]["images"];
    assert_eq!((&images[1]["kind"], &images[1]["size"]), (&json!("gif"), &json!(6)), "{exported}");
    room.is_content();
}

#[test]
fn a_home_that_a_chat_makes_is_its_owners_alone() {
    let room = Room::new([ScriptStep::text("Hello.")]);
    let fresh = room.path("fresh");
    let config = room.home.read("config.yaml").unwrap();
    let url = config.lines().find_map(|line| line.trim().strip_prefix("base_url: ")).unwrap();
    let mut command = room.command(&["--home", fresh.to_str().unwrap(), "-q", "hello"]);
    command.env("HERMES_INFERENCE_MODEL", "scripted").env("HERMES_MODEL_BASE_URL", url);
    let done = Run::of(command.output().unwrap());
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Hello.\n"), "{done:?}");
    assert_eq!(fs::metadata(fresh).unwrap().permissions().mode() & 0o777, 0o700);
    room.is_content();
}

#[test]
fn a_turn_with_a_tool_is_one_document() {
    let says = [ReplyItem::Text("I look.".to_owned()), says_run("c1", "echo hello; exit 3")];
    let room = Room::new([ScriptStep::reply(says), ScriptStep::text("It said hello.")]);
    let done = room.run(&["chat", "--json", "-q", "look"]);
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
    let told: Value = serde_json::from_str(&room.last_told()).unwrap();
    assert_eq!([&told["exit_code"], &told["output"]], [&json!(3), &json!("hello")]);
    let kept = room.run(&["sessions", "show", id, "--json"]).json();
    assert_eq!(kept["messages"].as_array().unwrap().len(), 4);
    assert_eq!([&kept["title"], &kept["end_reason"]], [&json!("look"), &json!("quit")]);
    room.is_content();
}

#[test]
fn what_is_said_and_done_on_the_way_is_told_beside_the_answer() {
    let says = [ReplyItem::Text("I look.".to_owned()), says_run("c1", "echo hello")];
    let room = Room::new([ScriptStep::reply(says), ScriptStep::text("Done.")]);
    let done = room.run(&["chat", "-q", "look"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "Done.\n"), "{done:?}");
    let lines: Vec<&str> = done.err.lines().collect();
    assert_eq!(lines[0], "I look.");
    assert!(
        lines[1].starts_with("  ✓ terminal  echo hello  ") && lines[1].ends_with("s  hello"),
        "{lines:?}"
    );
    assert_eq!(lines.len(), 2);
    room.is_content();
}

#[test]
fn five_calls_of_one_answer_are_all_answered_in_their_order() {
    let calls =
        (1..6).map(|number| says_run(&format!("c{number}"), &format!("echo {number} >> log; echo {number}")));
    let room = Room::new([ScriptStep::reply(calls), ScriptStep::text("All done.")]);
    let done = room.run(&["chat", "-q", "count"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All done.\n"), "{done:?}");
    assert_eq!(room.read("log"), "1\n2\n3\n4\n5\n");
    let messages = room.requests()[1]["messages"].as_array().unwrap().clone();
    let answered: Vec<_> = messages.iter().filter(|message| message["role"] == "tool").collect();
    let ids: Vec<_> = answered.iter().map(|message| message["tool_call_id"].as_str().unwrap()).collect();
    assert_eq!(ids, ["c1", "c2", "c3", "c4", "c5"]);
    room.is_content();
}

#[test]
fn without_a_terminal_what_is_dangerous_is_not_run_and_yes_says_yes() {
    let script = [runs("c1", DANGER), ScriptStep::text("I may not.")];
    let room = Room::new([script.clone(), script].concat());
    room.private();
    let refused = room.run(&["chat", "-q", "clean up"]);
    assert_eq!((refused.code, refused.out.as_str()), (Some(0), "I may not.\n"), "{refused:?}");
    assert!(room.is_private());
    assert!(room.last_told().contains("not allowed"), "{}", room.last_told());
    assert_eq!(room.questions(), [""; 0]);
    let allowed = room.run(&["chat", "--yes", "-q", "clean up"]);
    assert_eq!(allowed.code, Some(0), "{allowed:?}");
    assert!(!room.is_private());
    room.is_content();
}

#[test]
fn a_conversation_goes_on_where_it_was_left() {
    let room =
        Room::new([ScriptStep::text("Hello Ada."), ScriptStep::text("Ada."), ScriptStep::text("Still Ada.")]);
    let first = room.run(&["chat", "--json", "-q", "I am Ada"]).json();
    let second = room.run(&["chat", "--json", "--resume", "last", "-q", "who am I?"]).json();
    assert_eq!(first["session"], second["session"]);
    let beginning: String = first["session"].as_str().unwrap().chars().take(17).collect();
    let third = room.run(&["chat", "--json", "--resume", &beginning, "-q", "and now?"]).json();
    assert_eq!(third["text"], "Still Ada.");
    let words: Vec<_> = room.requests()[2]["messages"].as_array().unwrap()[1..]
        .iter()
        .map(|message| message["content"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(words, ["I am Ada", "Hello Ada.", "who am I?", "Ada.", "and now?"]);
    let unknown = room.run(&["chat", "--resume", "nobody", "-q", "x"]);
    assert_eq!(unknown.code, Some(1), "{unknown:?}");
    let idle = room.run(&["chat", "--resume", "last"]);
    assert_eq!(idle.code, Some(2), "{idle:?}");
    assert!(idle.err.contains("no interrupted turn"), "{idle:?}");
    room.is_content();
}

#[test]
fn a_conversation_goes_on_in_its_own_directory() {
    let room = Room::new([
        runs("c1", "pwd > one"),
        ScriptStep::text("Here."),
        runs("c2", "pwd > two"),
        ScriptStep::text("Here too."),
    ]);
    assert_eq!(room.run(&["chat", "-q", "where?"]).code, Some(0));
    let mut elsewhere = room.command(&["chat", "--resume", "last", "-q", "and now?"]);
    let done = crate::Run::of(elsewhere.current_dir(room.home.path()).output().unwrap());
    assert_eq!(done.out, "Here too.\n", "{done:?}");
    assert_eq!(room.read("two"), room.read("one"));
    assert_eq!(room.read("one").trim(), room.path("").display().to_string().trim_end_matches('/'));
    room.is_content();
}

#[test]
fn in_ten_turns_no_byte_changes_before_the_first_message() {
    let answers = (0..10).flat_map(|turn| [runs(&format!("c{turn}"), "echo x"), ScriptStep::text("ok")]);
    let room = Room::new(answers);
    for turn in 0..10 {
        let resume: &[&str] = if turn == 0 { &[] } else { &["--resume", "last"] };
        let done = room.run(&[&["chat", "-q", "go"], resume].concat());
        assert_eq!(done.code, Some(0), "{done:?}");
    }
    let received = room.model.received();
    assert_eq!(received.len(), 20);
    let front = |body: &[u8]| {
        // Everything but the messages behind the system prompt, to the byte.
        let text = String::from_utf8(body.to_vec()).unwrap();
        let (before, rest) = text.split_once(r#"{"role":"user""#).unwrap_or_else(|| panic!("{text}"));
        let tools = rest.split_once(r#""tools":["#).map(|(_, tools)| tools.to_owned());
        (before.to_owned(), tools)
    };
    let first = front(&received[0].body);
    assert!(first.0.contains(r#""tools":["#) || first.1.is_some(), "the tools are nowhere: {first:?}");
    for request in &received {
        assert_eq!(front(&request.body), first);
    }
    room.is_content();
}

#[test]
fn a_killed_turn_is_carried_on_and_nothing_runs_twice() {
    let room = Room::new([
        runs("c1", "echo one >> log"),
        runs("c2", "echo two >> log; cat pipe"),
        runs("c3", "echo three >> log"),
        ScriptStep::text("All three."),
    ]);
    let pipe = room.pipe("pipe");
    let mut child =
        room.command(&["chat", "-q", "count"]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let held = meet(&pipe);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(held);
    assert_eq!(room.read("log"), "one\ntwo\n");
    let done = room.run(&["chat", "--resume", "last"]);
    assert_eq!((done.code, done.out.as_str()), (Some(0), "All three.\n"), "{done:?}");
    assert!(done.err.contains("resuming the interrupted turn"), "{done:?}");
    assert_eq!(room.read("log"), "one\ntwo\nthree\n");
    let told = room.requests()[2]["messages"].to_string();
    assert!(told.contains("it may have run"), "{told}");
    room.is_content();
}

#[test]
fn an_interrupt_ends_the_turn_and_everything_it_started() {
    let room = Room::new([runs("c1", "sh -c 'cat pipe' & wait")]);
    let pipe = room.pipe("pipe");
    let mut command = room.command(&["chat", "--json", "-q", "wait"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut held = meet(&pipe);
    signal(&child, Signal::INT);
    let done = crate::Run::of(child.wait_with_output().unwrap());
    assert_eq!(done.code, Some(130), "{done:?}");
    assert_eq!(done.json()["exit"], "interrupted");
    // Whoever read the pipe is gone.
    assert_eq!(held.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    let idle = room.run(&["chat", "--resume", "last"]);
    assert_eq!(idle.code, Some(2), "an interrupted turn has ended: {idle:?}");
    room.is_content();
}

#[test]
fn without_a_model_it_says_what_to_do() {
    let home = Home::new();
    let done = home.run(&["chat", "-q", "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{done:?}");
    assert_eq!(done.err.lines().filter(|line| line.contains('→')).count(), 3, "{done:?}");
    assert!(done.err.contains("hermes config set model.default"), "{done:?}");
    let json = home.run(&["chat", "--json", "-q", "hello"]).json();
    assert_eq!(json["error"]["kind"], "configuration");
}

#[test]
fn a_model_that_fails_has_an_exit_code_of_its_own() {
    let wrong = json!({"error": {"message": "no such key", "type": "invalid_request_error", "code": "invalid_api_key"}});
    let room = Room::new([ScriptStep::error(401, wrong)]);
    let done = room.run(&["chat", "-q", "hello"]);
    assert_eq!((done.code, done.out.as_str()), (Some(3), ""), "{done:?}");
    assert!(done.err.contains("no such key"), "{done:?}");
    let busy = ModelScript {
        always: Some(ScriptStep::error(503, json!({"error": {"message": "busy"}}))),
        ..ModelScript::default()
    };
    let room = Room::with(busy, "agent:\n  api_max_retries: 1\n");
    let done = room.run(&["chat", "--json", "-q", "hello"]);
    assert_eq!((done.code, &done.json()["exit"]), (Some(5), &json!("failed")), "{done:?}");
}

#[test]
fn at_a_terminal_one_message_follows_the_other() {
    let room = Room::new([
        ScriptStep::text("Hello there."),
        runs("c1", "echo from the tool"),
        ScriptStep::text("Seen."),
    ]);
    let mut terminal = room.sit("xterm", &[]);
    terminal.wait("> ");
    terminal.keys("first\r");
    terminal.wait("Hello there.");
    terminal.wait("> ");
    terminal.keys("second\r");
    terminal.wait("✓");
    terminal.wait("Seen.");
    terminal.wait("> ");
    terminal.keys("!echo $((6 * 7)); exit 9\r");
    terminal.wait("42");
    terminal.wait("exit code 9");
    terminal.wait("> ");
    terminal.keys("/usage\r");
    terminal.wait("3 API calls");
    terminal.wait("> ");
    terminal.keys("/nwe\r");
    terminal.wait("Did you mean /new?");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    terminal.wait("hermes chat --resume ");
    assert_eq!(terminal.end().code(), Some(0));
    let history = room.home.read("chat_history").unwrap();
    assert!(history.starts_with("first\nsecond\n!echo"), "{history}");
    let mode = std::fs::metadata(room.home.path().join("chat_history")).unwrap();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode.permissions()) & 0o777, 0o600);
    // The model was not told of the command.
    assert!(!room.requests()[2].to_string().contains("6 * 7"));
    room.is_content();
}

#[test]
fn on_a_dumb_terminal_nothing_moves_the_cursor() {
    let room = Room::new([runs("c1", "echo hi"), ScriptStep::text("Plain\u{1b}[31m words.")]);
    let mut terminal = room.sit("dumb", &["chat"]);
    terminal.wait("> ");
    terminal.keys("over two \\\nlines\n");
    terminal.wait("Plain[31m words.");
    terminal.wait("> ");
    terminal.keys("\u{3}");
    terminal.wait("press Ctrl-C again to quit");
    terminal.keys("\u{3}");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(!terminal.all().contains('\u{1b}'), "{:?}", terminal.all());
    assert_eq!(room.requests()[0]["messages"][1]["content"], "over two \nlines");
    room.is_content();
}

#[test]
fn ctrl_c_ends_the_answer_and_not_the_chat() {
    let room = Room::new([runs("c1", "cat pipe"), ScriptStep::text("Here I am.")]);
    let pipe = room.pipe("pipe");
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("wait\r");
    let mut held = meet(&pipe);
    terminal.keys("\u{3}");
    terminal.wait("interrupted");
    assert_eq!(held.write(b"x").unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    terminal.wait("> ");
    terminal.keys("still there?\r");
    terminal.wait("Here I am.");
    terminal.wait("> ");
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    room.is_content();
}

#[test]
fn what_is_typed_meanwhile_is_obeyed_or_said_next() {
    let room = Room::new([runs("c1", "cat pipe"), ScriptStep::text("First."), ScriptStep::text("Second.")]);
    let pipe = room.pipe("pipe");
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("begin\r");
    let mut held = meet(&pipe);
    terminal.keys("and then this\n");
    terminal.wait("queued: and then this");
    terminal.keys("/steer look left\n");
    terminal.wait("the model gets it");
    held.write_all(b"done").unwrap();
    drop(held);
    terminal.wait("First.");
    terminal.wait("Second.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(room.requests()[1]["messages"].to_string().contains("look left"));
    assert_eq!(room.last_told(), "and then this");
    room.is_content();
}

/// Starts a command whose end is told; it ends with the pipe.
fn begins_background() -> ScriptStep {
    let command = json!({"command": "cat pipe; echo over", "background": true, "notify_on_complete": true});
    ScriptStep::call("c1", "terminal", command)
}

#[test]
fn the_end_of_a_background_process_begins_a_turn() {
    for term in ["xterm", "dumb"] {
        let room =
            Room::new([begins_background(), ScriptStep::text("It runs."), ScriptStep::text("I heard it.")]);
        let pipe = room.pipe("pipe");
        let mut terminal = room.sit(term, &["chat"]);
        terminal.wait("> ");
        terminal.keys("begin\r");
        terminal.wait("It runs.");
        terminal.wait("> ");
        drop(meet(&pipe));
        terminal.wait("> [IMPORTANT: Background process proc_");
        terminal.wait("I heard it.");
        terminal.wait("> ");
        terminal.keys("\u{4}");
        assert_eq!(terminal.end().code(), Some(0));
        let told = room.last_told();
        assert!(told.contains("has ended with exit code 0.") && told.ends_with("Output:\nover]"), "{told}");
        room.is_content();
    }
}

#[test]
fn whoever_is_typing_is_not_interrupted_by_a_background_process() {
    let answers = ["It runs.", "To the line.", "I heard it."].map(ScriptStep::text);
    let room = Room::new([begins_background()].into_iter().chain(answers));
    let pipe = room.pipe("pipe");
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("begin\r");
    terminal.wait("It runs.");
    terminal.wait("> ");
    terminal.keys("half a");
    terminal.wait("half a");
    drop(meet(&pipe));
    terminal.wait("(sent after your message)");
    terminal.wait("half a");
    terminal.keys(" line\r");
    terminal.wait("To the line.");
    terminal.wait("I heard it.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(room.last_told().starts_with("[IMPORTANT: "), "{}", room.last_told());
    assert!(room.requests()[2]["messages"].to_string().contains("half a line"));
    room.is_content();
}

#[test]
fn what_is_typed_before_the_prompt_is_there_is_not_lost() {
    let room = Room::new([ScriptStep::text("Two.")]);
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.keys("early bird\n");
    terminal.wait("Two.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    assert_eq!(terminal.end().code(), Some(0));
    assert_eq!(room.last_told(), "early bird");
    room.is_content();
}

#[test]
fn a_question_of_the_model_is_answered_by_number_or_in_words() {
    let asks = |id: &str| {
        let choices = json!({"question": "Which color?", "choices": ["red", "blue"]});
        ScriptStep::call(id, "clarify", choices)
    };
    let room = Room::new([asks("c1"), asks("c2"), ScriptStep::text("Nice.")]);
    let mut terminal = room.sit("xterm", &["chat", "-q", "paint"]);
    terminal.wait("Which color?");
    terminal.wait("2  blue");
    terminal.wait("number or text >");
    terminal.keys("2\n");
    terminal.wait("Which color?");
    terminal.wait("number or text >");
    terminal.keys("green, rather\n");
    terminal.wait("Nice.");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(room.requests()[1]["messages"].to_string().contains("blue\\\""), "{}", room.requests()[1]);
    assert!(room.last_told().contains("green, rather"));
    room.is_content();
}

#[test]
fn what_is_typed_beside_a_single_question_is_left_for_whoever_comes_next() {
    let room = Room::new([runs("c1", "cat pipe"), ScriptStep::text("Done.")]);
    let pipe = room.pipe("pipe");
    let mut terminal = room.sit("dumb", &["chat", "-q", "wait"]);
    let mut held = meet(&pipe);
    terminal.keys("next\n");
    held.write_all(b"x").unwrap();
    drop(held);
    terminal.wait("Done.");
    assert_eq!(terminal.end().code(), Some(0));
    assert!(!terminal.all().contains("queued"), "{}", terminal.all());
    assert_eq!(terminal.unread(), "next\n");
}

#[test]
fn whoever_is_told_to_end_leaves_the_terminal_as_it_was() {
    let room = Room::new([ScriptStep::text("Hello.")]);
    let mut terminal = room.sit("xterm", &["chat"]);
    let before = terminal.modes();
    terminal.wait("> ");
    terminal.keys("hi\r");
    terminal.wait("Hello.");
    terminal.wait("> ");
    assert_ne!(terminal.modes(), before, "no line is edited");
    signal(&terminal.child, Signal::TERM);
    terminal.wait("hermes chat --resume ");
    assert_eq!(terminal.end().code(), Some(0));
    assert_eq!(terminal.modes(), before);
    room.is_content();
}

#[test]
fn a_model_is_changed_and_words_are_taken_back() {
    let room = Room::new([ScriptStep::text("One."), ScriptStep::text("Two."), ScriptStep::text("Three.")]);
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("hello\r");
    terminal.wait("One.");
    terminal.wait("> ");
    terminal.keys("/retry\r");
    terminal.wait("Two.");
    terminal.wait("> ");
    terminal.keys("/model other\r");
    terminal.wait("other (custom)");
    terminal.wait("> ");
    terminal.keys("/undo\r");
    terminal.wait("Undone: hello");
    terminal.wait("> ");
    terminal.keys("/new\r");
    terminal.wait("new conversation in");
    terminal.wait("> ");
    terminal.keys("again\r");
    terminal.wait("Three.");
    terminal.wait("> ");
    terminal.keys("/exit\r");
    assert_eq!(terminal.end().code(), Some(0));
    let requests = room.requests();
    let told: Vec<_> = requests.iter().map(|request| request["messages"].as_array().unwrap().len()).collect();
    assert_eq!(told, [2, 2, 2]);
    assert_eq!([&requests[1]["model"], &requests[2]["model"]], ["scripted", "other"]);
    room.is_content();
}

#[test]
fn a_first_start_without_a_model_still_runs_commands() {
    let room = Room::new([]);
    room.home.write("config.yaml", "");
    let mut terminal = room.sit("xterm", &[]);
    terminal.wait("no model is configured");
    terminal.wait("> ");
    terminal.keys("hello\r");
    terminal.wait("no model is configured");
    terminal.keys("!echo it $((40 + 2)) works\r");
    terminal.wait("it 42 works");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    assert_eq!(terminal.end().code(), Some(0));
}
