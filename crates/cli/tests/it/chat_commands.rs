//! Commands of a chat in the terminal, which are the same as on chat platforms.

use hermes_testkit::ScriptStep;

use crate::chat_env::{ChatEnv, open_pipe, terminal_call};

/// Types a line and waits for a text and the next prompt.
macro_rules! enter {
    ($terminal:expr, $line:expr, $($text:expr),+) => {
        $terminal.type_keys(&format!("{}\r", $line));
        $($terminal.wait_for($text);)+
        $terminal.wait_for("> ");
    };
}

#[test]
fn conversations_are_named_listed_and_resumed() {
    let replies = ["One.", "Two.", "Three.", "Four."].map(ScriptStep::text);
    let env = ChatEnv::new(replies);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    enter!(terminal, "/title", "This conversation is empty.");
    enter!(terminal, "first words", "One.");
    enter!(terminal, "more words", "Two.");
    enter!(terminal, "/title The walk", "The walk");
    enter!(terminal, "/title", "The walk");
    enter!(terminal, "/new", "Started a new conversation in the same environment.");
    enter!(terminal, "other words", "Three.");
    enter!(terminal, "/sessions", "other words", "The walk");
    enter!(terminal, "/resume The walk", "Resumed ");
    enter!(terminal, "/undo 2", "Undone: first words");
    enter!(terminal, "/undo 0", "Usage: `/undo [COUNT]`");
    enter!(terminal, "from the start", "Four.");
    enter!(terminal, "/whoami", "cli, owner");
    enter!(terminal, "/status", "title        The walk", "queued       0");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    let requests = env.requests();
    let last = requests[3]["messages"].to_string();
    assert!(last.contains("from the start") && !last.contains("words"), "{last}");
    env.assert_no_violations();
}

#[test]
fn approvals_are_turned_off_and_on() {
    let steps = [
        terminal_call("c1", "chmod -R 777 ."),
        ScriptStep::text("Done."),
        terminal_call("c2", "chmod -R 777 ."),
        ScriptStep::text("Denied."),
    ];
    let env = ChatEnv::new(steps);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    enter!(terminal, "/yolo", "Approvals are off");
    enter!(terminal, "open it", "Done.");
    enter!(terminal, "/yolo", "Approvals are on again.");
    terminal.type_keys("open it again\r");
    terminal.wait_for("Run it?");
    terminal.type_keys("/deny no need\n");
    terminal.wait_for("denied");
    terminal.wait_for("Denied.");
    terminal.wait_for("> ");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    let messages = env.requests()[3]["messages"].to_string();
    assert!(messages.contains("no need"), "{messages}");
    env.assert_no_violations();
}

#[test]
fn a_background_task_reports_when_it_is_done() {
    let env = ChatEnv::new([
        terminal_call("c1", "cat pipe"),
        ScriptStep::text("Looked."),
        ScriptStep::text("Hello."),
    ]);
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("/background look around\r");
    terminal.wait_for("started in the background: look around");
    let writer = open_pipe(&pipe);
    terminal.wait_for("> ");
    enter!(terminal, "/status", "background   look around");
    drop(writer);
    terminal.wait_for("[look around]");
    terminal.wait_for("Looked.");
    terminal.wait_for("> ");
    enter!(terminal, "hello", "Hello.");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    let last = env.requests()[2]["messages"].to_string();
    assert!(!last.contains("look around"), "a background task has a separate conversation: {last}");
    env.assert_no_violations();
}

#[test]
fn a_background_task_asks_with_the_id_of_its_question() {
    let env = ChatEnv::new([terminal_call("c1", "chmod -R 777 ."), ScriptStep::text("Opened.")]);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("/bg open it\r");
    terminal.wait_for("started in the background");
    terminal.wait_for("/approve q_");
    terminal.wait_for("> ");
    enter!(terminal, "/approve", "allowed");
    terminal.wait_for("Opened.");
    terminal.wait_for("> ");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    env.assert_no_violations();
}

#[test]
fn a_background_task_is_stopped_with_its_chat() {
    let env = ChatEnv::new([terminal_call("c1", "cat pipe; touch ran")]);
    let pipe = env.create_pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("/bg wait\r");
    let writer = open_pipe(&pipe);
    terminal.wait_for("> ");
    terminal.type_keys("/quit\r");
    assert_eq!(terminal.wait_for_exit().code(), Some(0));
    drop(writer);
    assert!(!env.path("ran").exists());
}
