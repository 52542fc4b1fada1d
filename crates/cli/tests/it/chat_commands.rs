//! Commands of a chat at the terminal: the same as in chats.

use hermes_testkit::ScriptStep;

use crate::chat_env::{ChatEnv, open_pipe, runs};

/// Types a line and waits for a text and the next prompt.
macro_rules! enter {
    ($terminal:expr, $line:expr, $($text:expr),+) => {
        $terminal.keys(&format!("{}\r", $line));
        $($terminal.wait($text);)+
        $terminal.wait("> ");
    };
}

#[test]
fn conversations_are_named_listed_and_resumed() {
    let replies = ["One.", "Two.", "Three.", "Four."].map(ScriptStep::text);
    let env = ChatEnv::new(replies);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
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
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    let requests = env.requests();
    let last = requests[3]["messages"].to_string();
    assert!(last.contains("from the start") && !last.contains("words"), "{last}");
    env.assert_no_violations();
}

#[test]
fn approvals_are_turned_off_and_on() {
    let steps = [
        runs("c1", "chmod -R 777 ."),
        ScriptStep::text("Done."),
        runs("c2", "chmod -R 777 ."),
        ScriptStep::text("Denied."),
    ];
    let env = ChatEnv::new(steps);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    enter!(terminal, "/yolo", "Approvals are off");
    enter!(terminal, "open it", "Done.");
    enter!(terminal, "/yolo", "Approvals are on again.");
    terminal.keys("open it again\r");
    terminal.wait("Run it?");
    terminal.keys("/deny no need\n");
    terminal.wait("denied");
    terminal.wait("Denied.");
    terminal.wait("> ");
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    let messages = env.requests()[3]["messages"].to_string();
    assert!(messages.contains("no need"), "{messages}");
    env.assert_no_violations();
}

#[test]
fn a_background_task_reports_when_it_is_done() {
    let env = ChatEnv::new([runs("c1", "cat pipe"), ScriptStep::text("Looked."), ScriptStep::text("Hello.")]);
    let pipe = env.pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("/background look around\r");
    terminal.wait("started in the background: look around");
    let held = open_pipe(&pipe);
    terminal.wait("> ");
    enter!(terminal, "/status", "background   look around");
    drop(held);
    terminal.wait("[look around]");
    terminal.wait("Looked.");
    terminal.wait("> ");
    enter!(terminal, "hello", "Hello.");
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    let last = env.requests()[2]["messages"].to_string();
    assert!(!last.contains("look around"), "a background task has a conversation of its own: {last}");
    env.assert_no_violations();
}

#[test]
fn a_background_task_asks_with_the_id_of_its_question() {
    let env = ChatEnv::new([runs("c1", "chmod -R 777 ."), ScriptStep::text("Opened.")]);
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("/bg open it\r");
    terminal.wait("started in the background");
    terminal.wait("/approve q_");
    terminal.wait("> ");
    enter!(terminal, "/approve", "allowed");
    terminal.wait("Opened.");
    terminal.wait("> ");
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    env.assert_no_violations();
}

#[test]
fn a_background_task_is_stopped_with_its_chat() {
    let env = ChatEnv::new([runs("c1", "cat pipe; touch ran")]);
    let pipe = env.pipe("pipe");
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("/bg wait\r");
    let held = open_pipe(&pipe);
    terminal.wait("> ");
    terminal.keys("/quit\r");
    assert_eq!(terminal.end().code(), Some(0));
    drop(held);
    assert!(!env.path("ran").exists());
}
