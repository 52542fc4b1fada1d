//! Every way in meets the same gate: what is dangerous is asked about once, and run only after a
//! yes, and then once.

use std::time::{Duration, Instant};

use hermes_testkit::ScriptStep;
use serde_json::json;

use crate::chat_env::{ChatEnv, DANGER, Terminal, runs};

/// A way to have something run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Entry {
    /// A message typed in a chat.
    Chat,
    /// A single question.
    Query,
    /// The same, with a command for the background.
    Background,
    /// A program that calls a tool.
    Code,
    /// A command that the person types in a chat.
    Bang,
    /// `hermes exec`.
    Exec,
    /// `hermes tool call`.
    Tool,
}

/// All of them.
const ALL: [Entry; 7] =
    [Entry::Chat, Entry::Query, Entry::Background, Entry::Code, Entry::Bang, Entry::Exec, Entry::Tool];
/// Those behind which a model works, in turns that can be carried on.
const TURNS: [Entry; 3] = [Entry::Chat, Entry::Query, Entry::Background];

impl Entry {
    /// A room whose model wants the dangerous thing, if there is a model behind the door.
    fn env(self) -> ChatEnv {
        let arguments = json!({"command": DANGER, "background": true});
        let env = match self {
            Self::Chat | Self::Query => ChatEnv::new([runs("c1", DANGER), ScriptStep::text("That was it.")]),
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
        env.private();
        env
    }

    /// Goes in, up to the question.
    fn open(self, env: &ChatEnv) -> Terminal {
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
                terminal.wait("> ");
                terminal.keys("clean up\r");
            }
            Self::Bang => {
                terminal.wait("> ");
                terminal.keys(&format!("!{DANGER}\r"));
            }
            Self::Query | Self::Background | Self::Code | Self::Exec | Self::Tool => {}
        }
        terminal.wait("Run it?");
        assert!(is_untouched(env), "{self:?}: it ran before anybody was asked");
        terminal
    }

    /// Waits for the end of it, and goes.
    fn close(self, mut terminal: Terminal) -> String {
        match self {
            Self::Chat => {
                terminal.wait("That was it.");
                terminal.wait("> ");
                terminal.keys("\u{4}");
            }
            Self::Bang => {
                terminal.wait("> ");
                terminal.keys("\u{4}");
            }
            Self::Query | Self::Background | Self::Code | Self::Exec | Self::Tool => {}
        }
        terminal.end();
        terminal.all()
    }
}

fn is_untouched(env: &ChatEnv) -> bool {
    env.read("log").is_empty() && env.is_private()
}

/// It was run, exactly once.
fn ran_once(entry: Entry, env: &ChatEnv) {
    let eventually = Instant::now() + Duration::from_secs(60);
    // What runs in the background is not waited for.
    while env.read("log").is_empty() {
        assert!(Instant::now() < eventually, "{entry:?}: it did not run");
    }
    assert_eq!(env.read("log"), "ran\n", "{entry:?}");
    assert!(!env.is_private(), "{entry:?}");
}

#[test]
fn a_denial_is_one_question_and_nothing_runs() {
    for entry in ALL {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.keys("n\n");
        let seen = entry.close(terminal);
        assert!(is_untouched(&env), "{entry:?}");
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        assert_eq!(env.questions(), [""; 0], "{entry:?}");
        env.assert_no_violations();
    }
}

#[test]
fn an_approval_is_one_question_and_one_run() {
    for entry in ALL {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.keys("y\n");
        let seen = entry.close(terminal);
        ran_once(entry, &env);
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        assert_eq!(env.questions(), [""; 0], "{entry:?}");
        env.assert_no_violations();
    }
}

#[test]
fn an_approval_elsewhere_ends_the_question_here() {
    for entry in ALL {
        let env = entry.env();
        let terminal = entry.open(&env);
        let id = env.question();
        let approved = env.run(&["approvals", "approve", &id]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        assert!(approved.out.contains("private"), "{approved:?}");
        let seen = entry.close(terminal);
        ran_once(entry, &env);
        assert_eq!(seen.matches("Run it?").count(), 1, "{entry:?}: {seen}");
        env.assert_no_violations();
    }
}

#[test]
fn killed_while_it_asks_and_answered_meanwhile_it_is_run_once() {
    for entry in TURNS {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.question();
        assert_eq!(env.run(&["approvals", "approve", &id]).code, Some(0));
        assert!(is_untouched(&env), "{entry:?}: it ran without approval");
        // The terminal is closed, but the answer is stored.
        let resumed = env.run(&["chat", "--resume", "last"]);
        assert_eq!(
            (resumed.code, resumed.out.as_str()),
            (Some(0), "That was it.\n"),
            "{entry:?}: {resumed:?}"
        );
        ran_once(entry, &env);
        let again = env.run(&["chat", "--resume", "last"]);
        assert_eq!(again.code, Some(2), "{entry:?}: {again:?}");
        ran_once(entry, &env);
        env.assert_no_violations();
    }
}

#[test]
fn killed_while_it_asks_and_denied_meanwhile_nothing_is_run() {
    for entry in TURNS {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.question();
        assert_eq!(env.run(&["approvals", "deny", &id, "--reason", "keep it"]).code, Some(0));
        let resumed = env.run(&["chat", "--resume", "last"]);
        assert_eq!(resumed.code, Some(0), "{entry:?}: {resumed:?}");
        assert!(is_untouched(&env), "{entry:?}");
        assert!(env.last_message().contains("keep it"), "{entry:?}: {}", env.last_message());
        env.assert_no_violations();
    }
}

#[test]
fn killed_while_it_asks_it_asks_the_same_again() {
    for entry in TURNS {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = env.question();
        let mut terminal = env.open_terminal("xterm", &["chat", "--resume", "last"]);
        terminal.wait("Run it?");
        assert_eq!(env.question(), id, "{entry:?}");
        terminal.keys("y\n");
        terminal.wait("That was it.");
        terminal.wait("> ");
        terminal.keys("\u{4}");
        terminal.end();
        ran_once(entry, &env);
        env.assert_no_violations();
    }
}

#[test]
fn a_script_killed_during_a_question_does_not_run_again() {
    let env = Entry::Code.env();
    let mut terminal = Entry::Code.open(&env);
    terminal.child.kill().unwrap();
    terminal.child.wait().unwrap();
    // What it had done before it asked would be done twice, so that the yes is for nothing.
    assert_eq!(env.run(&["approvals", "approve", &env.question()]).code, Some(0));
    let resumed = env.run(&["chat", "--resume", "last"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "That was it.\n"), "{resumed:?}");
    assert!(is_untouched(&env));
    assert!(env.last_message().contains("it may have run"), "{}", env.last_message());
    env.assert_no_violations();
}

#[test]
fn killed_where_no_turn_can_go_on_nothing_is_run() {
    for entry in [Entry::Bang, Entry::Exec, Entry::Tool] {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        assert!(is_untouched(&env), "{entry:?}");
    }
}

#[test]
fn a_session_approval_is_not_asked_for_again() {
    let env = ChatEnv::new([
        runs("c1", DANGER),
        ScriptStep::text("Once."),
        runs("c2", DANGER),
        ScriptStep::text("Twice."),
    ]);
    env.private();
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("clean up\r");
    terminal.wait("session and always will allow: chmod -R 777");
    terminal.wait("Run it?");
    terminal.keys("s\n");
    terminal.wait("Once.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    terminal.end();
    assert!(!env.is_private());
    env.private();
    // Also in another process.
    let again = env.run(&["chat", "--resume", "last", "-q", "again"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "Twice.\n"), "{again:?}");
    assert_eq!(env.read("log"), "ran\nran\n");
    env.assert_no_violations();
}

#[test]
fn an_always_grant_holds_at_every_entry_point_until_it_is_revoked() {
    for entry in [Entry::Exec, Entry::Tool] {
        let env = entry.env();
        let mut terminal = entry.open(&env);
        terminal.keys("a\n");
        entry.close(terminal);
        ran_once(entry, &env);
        // Without a terminal, commands that need approval are refused.
        let call = json!({"command": DANGER}).to_string();
        let entries: [&[&str]; 2] = [&["exec", "--", DANGER], &["tool", "call", "terminal", &call]];
        for args in entries {
            env.private();
            let granted = env.run(args);
            assert_eq!(granted.code, Some(0), "{entry:?}: {granted:?}");
            assert!(!env.is_private(), "{entry:?}: {granted:?}");
        }
        let grants = env.run(&["approvals", "grants", "--json"]).json();
        let id = grants["grants"][0]["id"].as_str().unwrap();
        assert_eq!(env.run(&["approvals", "revoke", id]).code, Some(0));
        for args in entries {
            env.private();
            let refused = env.run(args);
            assert_eq!(refused.code, Some(4), "{entry:?}: {refused:?}");
            assert!(env.is_private(), "{entry:?}: {refused:?}");
        }
    }
}

#[test]
fn a_grant_revoked_during_a_chat_is_asked_for_again() {
    let steps = ["Once.", "Twice.", "Thrice."].map(|said| [runs(said, DANGER), ScriptStep::text(said)]);
    let env = ChatEnv::new(steps.concat());
    env.private();
    let mut terminal = env.open_terminal("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("clean up\r");
    terminal.wait("Run it?");
    terminal.keys("a\n");
    terminal.wait("Once.");
    terminal.wait("> ");
    terminal.keys("again\r");
    terminal.wait("Twice.");
    terminal.wait("> ");
    assert_eq!(terminal.all().matches("Run it?").count(), 1, "{}", terminal.all());
    assert_eq!(env.read("log"), "ran\nran\n");
    let grants = env.run(&["approvals", "grants", "--json"]).json();
    assert_eq!(env.run(&["approvals", "revoke", grants["grants"][0]["id"].as_str().unwrap()]).code, Some(0));
    terminal.keys("again\r");
    terminal.wait("Run it?");
    terminal.keys("n\n");
    terminal.wait("Thrice.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    terminal.end();
    assert_eq!(env.read("log"), "ran\nran\n");
    env.assert_no_violations();
}

#[test]
fn an_interrupt_withdraws_the_question_of_a_command() {
    let env = Entry::Exec.env();
    let mut terminal = Entry::Exec.open(&env);
    terminal.keys("\u{3}");
    assert_eq!(terminal.end().code(), Some(130), "{}", terminal.all());
    assert!(is_untouched(&env));
    assert_eq!(env.questions(), [""; 0]);
}

#[test]
fn a_denial_elsewhere_shows_its_reason() {
    let env = Entry::Exec.env();
    let mut terminal = Entry::Exec.open(&env);
    let denied = env.run(&["approvals", "deny", &env.question(), "--reason", "keep it"]);
    assert_eq!(denied.code, Some(0), "{denied:?}");
    terminal.wait(": denied by you: keep it");
    assert_eq!(terminal.end().code(), Some(4));
    assert!(is_untouched(&env));
}
