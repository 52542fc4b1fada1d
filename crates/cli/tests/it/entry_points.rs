//! Every entry point uses the same gate: a dangerous command asks once and runs once, only after an
//! approval.

use std::time::{Duration, Instant};

use hermes_testkit::ScriptStep;
use serde_json::json;

use crate::chat_env::{ChatEnv, DANGER, Terminal, terminal_call};

/// A way to run a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A message typed in a chat.
    Chat,
    /// A one-shot chat, `-q`.
    Query,
    /// A one-shot chat whose command runs in the background.
    Background,
    /// A script of `execute_code` that calls a tool.
    Code,
    /// A `!command` typed in a chat.
    Bang,
    /// `hermes exec`.
    Exec,
    /// `hermes tool call`.
    Tool,
}

const ALL_ENTRIES: [Entry; 7] =
    [Entry::Chat, Entry::Query, Entry::Background, Entry::Code, Entry::Bang, Entry::Exec, Entry::Tool];
/// Entry points with turns of a model, which can be resumed.
const TURN_ENTRIES: [Entry; 3] = [Entry::Chat, Entry::Query, Entry::Background];

impl Entry {
    /// Creates an environment whose model, if the entry point has one, calls the dangerous command.
    fn env(self) -> ChatEnv {
        let arguments = json!({"command": DANGER, "background": true});
        let env = match self {
            Self::Chat | Self::Query => {
                ChatEnv::new([terminal_call("c1", DANGER), ScriptStep::text("That was it.")])
            }
            Self::Background => ChatEnv::new([
                ScriptStep::call("c1", "terminal", arguments),
                ScriptStep::text("That was it."),
            ]),
            Self::Code => {
                let code =
                    format!("from hermes_tools import terminal\nprint(terminal(command={DANGER:?}))\n");
                ChatEnv::new([
                    ScriptStep::call("c1", "execute_code", json!({"code": code})),
                    ScriptStep::text("That was it."),
                ])
            }
            Self::Bang | Self::Exec | Self::Tool => ChatEnv::new([]),
        };
        env.create_private_file();
        env
    }

    /// Starts the program and waits for the question.
    fn start(self, env: &ChatEnv) -> Terminal {
        let call = json!({"command": DANGER}).to_string();
        let mut terminal = match self {
            Self::Chat | Self::Bang => env.open_terminal("xterm", &["chat"]),
            Self::Query | Self::Background | Self::Code => {
                env.open_terminal("xterm", &["chat", "-q", "clean up"])
            }
            Self::Exec => env.open_terminal("xterm", &["exec", "--", DANGER]),
            Self::Tool => env.open_terminal("xterm", &["tool", "call", "terminal", &call]),
        };
        match self {
            Self::Chat => {
                terminal.wait_for("> ");
                terminal.type_keys("clean up\r");
            }
            Self::Bang => {
                terminal.wait_for("> ");
                terminal.type_keys(&format!("!{DANGER}\r"));
            }
            Self::Query | Self::Background | Self::Code | Self::Exec | Self::Tool => {}
        }
        terminal.wait_for("Run it?");
        assert!(is_untouched(env), "{self:?}: it ran before it asked");
        terminal
    }

    /// Waits until the program ends and returns its output.
    fn finish(self, mut terminal: Terminal) -> String {
        match self {
            Self::Chat => {
                terminal.wait_for("That was it.");
                terminal.wait_for("> ");
                terminal.type_keys("\u{4}");
            }
            Self::Bang => {
                terminal.wait_for("> ");
                terminal.type_keys("\u{4}");
            }
            Self::Query | Self::Background | Self::Code | Self::Exec | Self::Tool => {}
        }
        terminal.wait_for_exit();
        terminal.output()
    }
}

fn is_untouched(env: &ChatEnv) -> bool {
    env.read("log").is_empty() && env.is_private()
}

/// Asserts that the command ran exactly once.
fn assert_ran_once(entry: Entry, env: &ChatEnv) {
    let deadline = Instant::now() + Duration::from_secs(60);
    // hermes does not wait for a background command.
    while env.read("log").is_empty() {
        assert!(Instant::now() < deadline, "{entry:?}: it did not run");
    }
    assert_eq!(env.read("log"), "ran\n", "{entry:?}");
    assert!(!env.is_private(), "{entry:?}");
}

#[test]
fn a_denial_is_one_question_and_nothing_runs() {
    for entry in ALL_ENTRIES {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.type_keys("n\n");
        let seen = entry.finish(terminal);
        assert!(is_untouched(&env), "{entry:?}");
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        assert_eq!(env.questions(), [""; 0], "{entry:?}");
        env.assert_no_violations();
    }
}

#[test]
fn an_approval_is_one_question_and_one_run() {
    for entry in ALL_ENTRIES {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.type_keys("y\n");
        let seen = entry.finish(terminal);
        assert_ran_once(entry, &env);
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        assert_eq!(env.questions(), [""; 0], "{entry:?}");
        env.assert_no_violations();
    }
}

#[test]
fn an_approval_elsewhere_ends_the_question_here() {
    for entry in ALL_ENTRIES {
        let env = entry.env();
        let terminal = entry.start(&env);
        let id = env.wait_for_question();
        let approved = env.run(&["approvals", "approve", &id]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        assert!(approved.out.contains("private"), "{approved:?}");
        let seen = entry.finish(terminal);
        assert_ran_once(entry, &env);
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        env.assert_no_violations();
    }
}

#[test]
fn a_question_approved_after_a_kill_runs_the_command_once() {
    for entry in TURN_ENTRIES {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.wait_for_question();
        assert_eq!(env.run(&["approvals", "approve", &id]).code, Some(0));
        assert!(is_untouched(&env), "{entry:?}: it ran without approval");
        // The terminal is closed, but the answer is stored.
        let resumed = env.run(&["chat", "--resume", "last"]);
        assert_eq!(
            (resumed.code, resumed.out.as_str()),
            (Some(0), "That was it.\n"),
            "{entry:?}: {resumed:?}"
        );
        assert_ran_once(entry, &env);
        let again = env.run(&["chat", "--resume", "last"]);
        assert_eq!(again.code, Some(2), "{entry:?}: {again:?}");
        assert_ran_once(entry, &env);
        env.assert_no_violations();
    }
}

#[test]
fn a_question_denied_after_a_kill_runs_nothing() {
    for entry in TURN_ENTRIES {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.wait_for_question();
        assert_eq!(env.run(&["approvals", "deny", &id, "--reason", "keep it"]).code, Some(0));
        let resumed = env.run(&["chat", "--resume", "last"]);
        assert_eq!(resumed.code, Some(0), "{entry:?}: {resumed:?}");
        assert!(is_untouched(&env), "{entry:?}");
        assert!(env.last_message().contains("keep it"), "{entry:?}: {}", env.last_message());
        env.assert_no_violations();
    }
}

#[test]
fn an_unanswered_question_is_asked_again_after_a_kill() {
    for entry in TURN_ENTRIES {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.wait_for_question();
        let mut terminal = env.open_terminal("xterm", &["chat", "--resume", "last"]);
        terminal.wait_for("Run it?");
        assert_eq!(env.wait_for_question(), id, "{entry:?}");
        terminal.type_keys("y\n");
        terminal.wait_for("That was it.");
        terminal.wait_for("> ");
        terminal.type_keys("\u{4}");
        terminal.wait_for_exit();
        assert_ran_once(entry, &env);
        env.assert_no_violations();
    }
}

#[test]
fn a_script_killed_during_a_question_does_not_run_again() {
    let env = Entry::Code.env();
    let mut terminal = Entry::Code.start(&env);
    terminal.child.kill().unwrap();
    terminal.child.wait().unwrap();
    // Running the script again would repeat its earlier effects, so the approval is not used.
    assert_eq!(env.run(&["approvals", "approve", &env.wait_for_question()]).code, Some(0));
    let resumed = env.run(&["chat", "--resume", "last"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "That was it.\n"), "{resumed:?}");
    assert!(is_untouched(&env));
    assert!(env.last_message().contains("it may have run"), "{}", env.last_message());
    env.assert_no_violations();
}

#[test]
fn a_kill_during_a_question_outside_a_turn_runs_nothing() {
    for entry in [Entry::Bang, Entry::Exec, Entry::Tool] {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        assert!(is_untouched(&env), "{entry:?}");
    }
}

#[test]
fn a_session_approval_is_not_asked_for_again() {
    let env = ChatEnv::new([
        terminal_call("c1", DANGER),
        ScriptStep::text("Once."),
        terminal_call("c2", DANGER),
        ScriptStep::text("Twice."),
    ]);
    env.create_private_file();
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("clean up\r");
    terminal.wait_for("session and always will allow: chmod -R 777");
    terminal.wait_for("Run it?");
    terminal.type_keys("s\n");
    terminal.wait_for("Once.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    terminal.wait_for_exit();
    assert!(!env.is_private());
    env.create_private_file();
    // The approval also holds in another process.
    let again = env.run(&["chat", "--resume", "last", "-q", "again"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "Twice.\n"), "{again:?}");
    assert_eq!(env.read("log"), "ran\nran\n");
    env.assert_no_violations();
}

#[test]
fn an_always_grant_holds_at_every_entry_point_until_it_is_revoked() {
    for entry in [Entry::Exec, Entry::Tool] {
        let env = entry.env();
        let mut terminal = entry.start(&env);
        terminal.type_keys("a\n");
        entry.finish(terminal);
        assert_ran_once(entry, &env);
        // Without a terminal, commands that need approval are refused.
        let call = json!({"command": DANGER}).to_string();
        let entries: [&[&str]; 2] = [&["exec", "--", DANGER], &["tool", "call", "terminal", &call]];
        for args in entries {
            env.create_private_file();
            let granted = env.run(args);
            assert_eq!(granted.code, Some(0), "{entry:?}: {granted:?}");
            assert!(!env.is_private(), "{entry:?}: {granted:?}");
        }
        let grants = env.run(&["approvals", "grants", "--json"]).json();
        let id = grants["grants"][0]["id"].as_str().unwrap();
        assert_eq!(env.run(&["approvals", "revoke", id]).code, Some(0));
        for args in entries {
            env.create_private_file();
            let refused = env.run(args);
            assert_eq!(refused.code, Some(4), "{entry:?}: {refused:?}");
            assert!(env.is_private(), "{entry:?}: {refused:?}");
        }
    }
}

#[test]
fn a_grant_revoked_during_a_chat_is_asked_for_again() {
    let steps =
        ["Once.", "Twice.", "Thrice."].map(|text| [terminal_call(text, DANGER), ScriptStep::text(text)]);
    let env = ChatEnv::new(steps.concat());
    env.create_private_file();
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait_for("> ");
    terminal.type_keys("clean up\r");
    terminal.wait_for("Run it?");
    terminal.type_keys("a\n");
    terminal.wait_for("Once.");
    terminal.wait_for("> ");
    terminal.type_keys("again\r");
    terminal.wait_for("Twice.");
    terminal.wait_for("> ");
    assert_eq!(terminal.output().matches("Run it?").count(), 1, "{}", terminal.output());
    assert_eq!(env.read("log"), "ran\nran\n");
    let grants = env.run(&["approvals", "grants", "--json"]).json();
    assert_eq!(env.run(&["approvals", "revoke", grants["grants"][0]["id"].as_str().unwrap()]).code, Some(0));
    terminal.type_keys("again\r");
    terminal.wait_for("Run it?");
    terminal.type_keys("n\n");
    terminal.wait_for("Thrice.");
    terminal.wait_for("> ");
    terminal.type_keys("\u{4}");
    terminal.wait_for_exit();
    assert_eq!(env.read("log"), "ran\nran\n");
    env.assert_no_violations();
}

#[test]
fn an_interrupt_withdraws_the_question_of_a_command() {
    let env = Entry::Exec.env();
    let mut terminal = Entry::Exec.start(&env);
    terminal.type_keys("\u{3}");
    assert_eq!(terminal.wait_for_exit().code(), Some(130), "{}", terminal.output());
    assert!(is_untouched(&env));
    assert_eq!(env.questions(), [""; 0]);
}

#[test]
fn a_denial_elsewhere_shows_its_reason() {
    let env = Entry::Exec.env();
    let mut terminal = Entry::Exec.start(&env);
    let denied = env.run(&["approvals", "deny", &env.wait_for_question(), "--reason", "keep it"]);
    assert_eq!(denied.code, Some(0), "{denied:?}");
    terminal.wait_for(": denied by you: keep it");
    assert_eq!(terminal.wait_for_exit().code(), Some(4));
    assert!(is_untouched(&env));
}
