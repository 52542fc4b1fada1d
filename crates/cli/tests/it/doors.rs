//! Every way in meets the same gate: what is dangerous is asked about once, and run only after a yes, and then once.

use std::time::{Duration, Instant};

use hermes_testkit::ScriptStep;
use serde_json::json;

use crate::room::{DANGER, Room, Terminal, runs};

/// A way to have something run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Door {
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
const ALL: [Door; 7] =
    [Door::Chat, Door::Query, Door::Background, Door::Code, Door::Bang, Door::Exec, Door::Tool];
/// Those behind which a model works, in turns that can be carried on.
const TURNS: [Door; 3] = [Door::Chat, Door::Query, Door::Background];

impl Door {
    /// A room whose model wants the dangerous thing, if there is a model behind the door.
    fn room(self) -> Room {
        let arguments = json!({"command": DANGER, "background": true});
        let room = match self {
            Self::Chat | Self::Query => Room::new([runs("c1", DANGER), ScriptStep::text("That was it.")]),
            Self::Background => {
                Room::new([ScriptStep::call("c1", "terminal", arguments), ScriptStep::text("That was it.")])
            }
            Self::Code => {
                let code =
                    format!("from hermes_tools import terminal\nprint(terminal(command={DANGER:?}))\n");
                Room::new([
                    ScriptStep::call("c1", "execute_code", json!({"code": code})),
                    ScriptStep::text("That was it."),
                ])
            }
            Self::Bang | Self::Exec | Self::Tool => Room::new([]),
        };
        room.private();
        room
    }

    /// Goes in, up to the question.
    fn open(self, room: &Room) -> Terminal {
        let call = json!({"command": DANGER}).to_string();
        let mut terminal = match self {
            Self::Chat | Self::Bang => room.sit("xterm", &["chat"]),
            Self::Query | Self::Background | Self::Code => room.sit("xterm", &["chat", "-q", "clean up"]),
            Self::Exec => room.sit("xterm", &["exec", "--", DANGER]),
            Self::Tool => room.sit("xterm", &["tool", "call", "terminal", &call]),
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
        assert!(is_untouched(room), "{self:?}: it ran before anybody was asked");
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

fn is_untouched(room: &Room) -> bool {
    room.read("log").is_empty() && room.is_private()
}

/// It was run, exactly once.
fn ran_once(door: Door, room: &Room) {
    let until = Instant::now() + Duration::from_secs(60);
    // What runs in the background is not waited for.
    while room.read("log").is_empty() {
        assert!(Instant::now() < until, "{door:?}: it did not run");
    }
    assert_eq!(room.read("log"), "ran\n", "{door:?}");
    assert!(!room.is_private(), "{door:?}");
}

#[test]
fn a_no_is_one_question_and_nothing_is_run() {
    for door in ALL {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.keys("n\n");
        let seen = door.close(terminal);
        assert!(is_untouched(&room), "{door:?}");
        assert_eq!(seen.matches("Run it?").count(), 1, "{door:?}: {seen}");
        assert_eq!(room.questions(), [""; 0], "{door:?}");
        room.is_content();
    }
}

#[test]
fn a_yes_is_one_question_and_it_is_run_once() {
    for door in ALL {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.keys("y\n");
        let seen = door.close(terminal);
        ran_once(door, &room);
        assert_eq!(seen.matches("Run it?").count(), 1, "{door:?}: {seen}");
        assert_eq!(room.questions(), [""; 0], "{door:?}");
        room.is_content();
    }
}

#[test]
fn a_yes_given_elsewhere_ends_the_question_here() {
    for door in ALL {
        let room = door.room();
        let terminal = door.open(&room);
        let id = room.question();
        let approved = room.run(&["approvals", "approve", &id]);
        assert_eq!(approved.code, Some(0), "{approved:?}");
        assert!(approved.out.contains("private"), "{approved:?}");
        let seen = door.close(terminal);
        ran_once(door, &room);
        assert_eq!(seen.matches("Run it?").count(), 1, "{door:?}: {seen}");
        room.is_content();
    }
}

#[test]
fn killed_while_it_asks_and_answered_meanwhile_it_is_run_once() {
    for door in TURNS {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = room.question();
        assert_eq!(room.run(&["approvals", "approve", &id]).code, Some(0));
        assert!(is_untouched(&room), "{door:?}: it ran with nobody there");
        // Nobody is at the terminal any more, but the answer is there.
        let resumed = room.run(&["chat", "--resume", "last"]);
        assert_eq!(
            (resumed.code, resumed.out.as_str()),
            (Some(0), "That was it.\n"),
            "{door:?}: {resumed:?}"
        );
        ran_once(door, &room);
        let again = room.run(&["chat", "--resume", "last"]);
        assert_eq!(again.code, Some(2), "{door:?}: {again:?}");
        ran_once(door, &room);
        room.is_content();
    }
}

#[test]
fn killed_while_it_asks_and_denied_meanwhile_nothing_is_run() {
    for door in TURNS {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = room.question();
        assert_eq!(room.run(&["approvals", "deny", &id, "--reason", "keep it"]).code, Some(0));
        let resumed = room.run(&["chat", "--resume", "last"]);
        assert_eq!(resumed.code, Some(0), "{door:?}: {resumed:?}");
        assert!(is_untouched(&room), "{door:?}");
        assert!(room.last_told().contains("keep it"), "{door:?}: {}", room.last_told());
        room.is_content();
    }
}

#[test]
fn killed_while_it_asks_it_asks_the_same_again() {
    for door in TURNS {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        let id = room.question();
        let mut terminal = room.sit("xterm", &["chat", "--resume", "last"]);
        terminal.wait("Run it?");
        assert_eq!(room.question(), id, "{door:?}");
        terminal.keys("y\n");
        terminal.wait("That was it.");
        terminal.wait("> ");
        terminal.keys("\u{4}");
        terminal.end();
        ran_once(door, &room);
        room.is_content();
    }
}

#[test]
fn a_program_that_was_killed_while_it_asked_is_not_run_again() {
    let room = Door::Code.room();
    let mut terminal = Door::Code.open(&room);
    terminal.child.kill().unwrap();
    terminal.child.wait().unwrap();
    // What it had done before it asked would be done twice, so that the yes is for nothing.
    assert_eq!(room.run(&["approvals", "approve", &room.question()]).code, Some(0));
    let resumed = room.run(&["chat", "--resume", "last"]);
    assert_eq!((resumed.code, resumed.out.as_str()), (Some(0), "That was it.\n"), "{resumed:?}");
    assert!(is_untouched(&room));
    assert!(room.last_told().contains("it may have run"), "{}", room.last_told());
    room.is_content();
}

#[test]
fn killed_where_no_turn_can_go_on_nothing_is_run() {
    for door in [Door::Bang, Door::Exec, Door::Tool] {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.child.kill().unwrap();
        terminal.child.wait().unwrap();
        assert!(is_untouched(&room), "{door:?}");
    }
}

#[test]
fn a_yes_for_the_session_is_not_asked_for_again() {
    let room = Room::new([
        runs("c1", DANGER),
        ScriptStep::text("Once."),
        runs("c2", DANGER),
        ScriptStep::text("Twice."),
    ]);
    room.private();
    let mut terminal = room.sit("xterm", &["chat"]);
    terminal.wait("> ");
    terminal.keys("clean up\r");
    terminal.wait("session and always will allow: chmod -R 777");
    terminal.wait("Run it?");
    terminal.keys("s\n");
    terminal.wait("Once.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    terminal.end();
    assert!(!room.is_private());
    room.private();
    // Also in another process.
    let again = room.run(&["chat", "--resume", "last", "-q", "again"]);
    assert_eq!((again.code, again.out.as_str()), (Some(0), "Twice.\n"), "{again:?}");
    assert_eq!(room.read("log"), "ran\nran\n");
    room.is_content();
}

#[test]
fn a_yes_for_always_holds_at_every_door_until_it_is_taken_back() {
    for door in [Door::Exec, Door::Tool] {
        let room = door.room();
        let mut terminal = door.open(&room);
        terminal.keys("a\n");
        door.close(terminal);
        ran_once(door, &room);
        // Nobody is at a terminal here: what has to be asked about is refused.
        let call = json!({"command": DANGER}).to_string();
        let doors: [&[&str]; 2] = [&["exec", "--", DANGER], &["tool", "call", "terminal", &call]];
        for args in doors {
            room.private();
            let granted = room.run(args);
            assert_eq!(granted.code, Some(0), "{door:?}: {granted:?}");
            assert!(!room.is_private(), "{door:?}: {granted:?}");
        }
        let grants = room.run(&["approvals", "grants", "--json"]).json();
        let id = grants["grants"][0]["id"].as_str().unwrap();
        assert_eq!(room.run(&["approvals", "revoke", id]).code, Some(0));
        for args in doors {
            room.private();
            let refused = room.run(args);
            assert_eq!(refused.code, Some(4), "{door:?}: {refused:?}");
            assert!(room.is_private(), "{door:?}: {refused:?}");
        }
    }
}

#[test]
fn what_is_taken_back_while_a_chat_goes_on_is_asked_about_again() {
    let steps = ["Once.", "Twice.", "Thrice."].map(|said| [runs(said, DANGER), ScriptStep::text(said)]);
    let room = Room::new(steps.concat());
    room.private();
    let mut terminal = room.sit("xterm", &["chat"]);
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
    assert_eq!(room.read("log"), "ran\nran\n");
    let grants = room.run(&["approvals", "grants", "--json"]).json();
    assert_eq!(room.run(&["approvals", "revoke", grants["grants"][0]["id"].as_str().unwrap()]).code, Some(0));
    terminal.keys("again\r");
    terminal.wait("Run it?");
    terminal.keys("n\n");
    terminal.wait("Thrice.");
    terminal.wait("> ");
    terminal.keys("\u{4}");
    terminal.end();
    assert_eq!(room.read("log"), "ran\nran\n");
    room.is_content();
}

#[test]
fn an_interrupt_takes_the_question_of_a_command_back() {
    let room = Door::Exec.room();
    let mut terminal = Door::Exec.open(&room);
    terminal.keys("\u{3}");
    assert_eq!(terminal.end().code(), Some(130), "{}", terminal.all());
    assert!(is_untouched(&room));
    assert_eq!(room.questions(), [""; 0]);
}

#[test]
fn a_no_given_elsewhere_says_why() {
    let room = Door::Exec.room();
    let mut terminal = Door::Exec.open(&room);
    let denied = room.run(&["approvals", "deny", &room.question(), "--reason", "keep it"]);
    assert_eq!(denied.code, Some(0), "{denied:?}");
    terminal.wait(": you said no: keep it");
    assert_eq!(terminal.end().code(), Some(4));
    assert!(is_untouched(&room));
}
