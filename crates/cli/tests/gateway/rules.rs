//! When conversations end, what is done beside them, and who may change how hermes works.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_store::{FILE_NAME, NewSession, Prompt, SessionId, Step as Kept, Store};
use hermes_testkit::Said;
use hermes_testkit::Step;
use hermes_testkit::discord::{Id, Trouble};
use hermes_testkit::model::{Answer, Delivery, Script};
use hermes_types::{Message, Part, Person, SessionKey, Timestamp};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, runs, until};

const OPEN: &str = "discord:\n  allow_all_users: true\n";

fn echo(steps: Vec<Step>) -> Script {
    Script { steps, always: Some(Step::Echo("echo: ".to_owned())), ..Script::default() }
}

fn ago(hours: u64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Timestamp::from_seconds(now - hours * 3_600)
}

fn key(dm: Id) -> SessionKey {
    SessionKey::new(format!("agent:main:discord:dm:{dm}"))
}

/// A conversation in which something was last said so long ago.
async fn old_conversation(hall: &Hall, dm: Id, hours: u64) -> SessionId {
    let store = Store::open(hall.path("home").join(FILE_NAME)).await.unwrap();
    let new = NewSession {
        key: key(dm),
        source: "discord".to_owned(),
        person: Person::new(format!("discord:{}", hall.ann)),
        model: "scripted".to_owned(),
        provider: "custom".to_owned(),
        prompt: Prompt { text: "You are here.".to_owned(), tools: "[]".to_owned() },
        cwd: None,
        parent: None,
    };
    let id = store.create(new, ago(hours)).await.unwrap();
    let words = Part::Text { text: "as you wish".to_owned() };
    for message in [Message::user("of old"), Message::Assistant { parts: vec![words] }] {
        store.append(&id, Kept::one(message, ago(hours))).await.unwrap();
    }
    store.close().await;
    id
}

async fn end_of(hall: &Hall, id: &SessionId) -> Option<String> {
    let store = Store::open(hall.path("home").join(FILE_NAME)).await.unwrap();
    let reason = store.session(id).await.unwrap().end_reason;
    store.close().await;
    reason
}

#[tokio::test]
async fn a_conversation_that_nobody_went_on_with_is_over_and_the_chat_is_told() {
    let cases = [
        ("idle", 26, Some("(a new conversation: the last one was idle for 26 hours)")),
        ("idle", 23, None),
        ("daily", 26, Some("(a new conversation: one begins every day at 04:00)")),
        ("both", 26, Some("(a new conversation: the last one was idle for 26 hours)")),
        ("none", 1_000, None),
    ];
    for (mode, hours, note) in cases {
        let hall = Hall::echo().await.tell("SESSION_RESET_MODE", mode);
        let dm = hall.server.dm(hall.ann);
        let old = old_conversation(&hall, dm, hours).await;
        let hall = hall.open().await;
        hall.server.say(hall.ann, dm, "hello");
        let said = hall.said(dm, 1).await;
        let expected = note.map_or("echo: hello".to_owned(), |note| format!("echo: hello\n\n{note}"));
        assert_eq!(said, [expected], "{mode}");
        let told = hall.told().pop().unwrap()["messages"].to_string();
        assert_eq!(told.contains("of old"), note.is_none(), "{mode}: {told}");
        hall.server.say(hall.ann, dm, "again");
        assert_eq!(hall.said(dm, 2).await[1], "echo: again", "{mode}");
        let reason = note.map(|note| if note.contains("idle") { "idle" } else { "daily" });
        assert_eq!(end_of(&hall, &old).await.as_deref(), reason, "{mode}");
        hall.close().await;
    }
}

#[tokio::test]
async fn a_conversation_whose_process_still_runs_is_not_over() {
    let hall = Hall::echo().await.tell("SESSION_RESET_MODE", "idle");
    let dm = hall.server.dm(hall.ann);
    let old = old_conversation(&hall, dm, 26).await;
    let key = key(dm);
    let started = hall.run(&[
        "exec",
        "--backend",
        "sandbox",
        "--session",
        key.as_str(),
        "--background",
        "--",
        "sleep 600",
    ]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let hall = hall.open().await;
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 1).await, ["echo: hello"]);
    assert!(hall.told().pop().unwrap()["messages"].to_string().contains("of old"));
    assert_eq!(end_of(&hall, &old).await, None);
    let ended = hall.run(&["sandbox", "rm", "--force", key.as_str()]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    hall.close().await;
}

fn slow(text: &str, pause_ms: u64) -> Step {
    let delivery = Delivery { pause_ms, ..Delivery::default() };
    Step::Answer(Answer { says: vec![Said::Text(text.to_owned())], delivery, ..Answer::default() })
}

/// How many places there are.
fn places(hall: &Hall) -> usize {
    let listed = hall.run(&["sandbox", "ls", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["places"].as_array().unwrap().len()
}

#[tokio::test]
async fn a_conversation_that_is_removed_takes_its_place_along_and_the_chat_goes_on() {
    let hall =
        Hall::then_echo([runs("c1", "echo kept >file; cat file"), Step::text("done")]).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "the first words");
    assert_eq!(hall.said(dm, 1).await, ["done"]);
    assert_eq!(places(&hall), 1);
    let removed = hall.run(&["sessions", "rm", "last"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert_eq!(places(&hall), 0);
    hall.server.say(hall.ann, dm, "more words");
    assert_eq!(hall.said(dm, 2).await[1], "echo: more words");
    let told = hall.told().pop().unwrap()["messages"].to_string();
    assert!(!told.contains("first"), "{told}");
    hall.close().await;
}

#[tokio::test]
async fn what_is_done_beside_a_conversation_is_answered_in_the_chat_and_leaves_nothing() {
    let steps = vec![runs("c1", "echo mine >~/file; ls ~"), Step::text("it is done")];
    let hall = Hall::with(echo(steps), OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "/background look at\nthe logs");
    let said = hall.said(dm, 2).await;
    assert_eq!(said, ["[look at]\nbegun; the answer comes here", "[look at]\nit is done"]);
    until("its place is removed", || places(&hall) == 0);
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 3).await[2], "echo: hello");
    let last = hall.told().pop().unwrap()["messages"].to_string();
    assert!(!last.contains("the logs"), "the conversation knows nothing of it: {last}");
    hall.close().await;
}

#[tokio::test]
async fn the_conversation_goes_on_meanwhile_and_stop_all_ends_everything() {
    let steps = vec![Step::Silence, Step::Silence];
    let hall = Hall::with(echo(steps), OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "/bg /new is no command here");
    hall.said(dm, 1).await;
    until("the model is asked", || hall.told().len() == 1);
    hall.server.say(hall.ann, dm, "/btw another one");
    hall.said(dm, 2).await;
    until("the model is asked again", || hall.told().len() == 2);
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 3).await[2], "echo: hello");
    hall.server.say(hall.ann, dm, "/status");
    let status = hall.said(dm, 4).await[3].clone();
    assert!(status.contains("beside   /new is no command here\nbeside   another one"), "{status}");
    hall.server.say(hall.ann, dm, "/stop");
    assert_eq!(hall.said(dm, 5).await[4], "nothing is under way");
    hall.server.say(hall.ann, dm, "/stop all");
    let mut said = hall.said(dm, 8).await.split_off(5);
    said.sort();
    assert_eq!(said, ["[/new is no command here]\ninterrupted", "[another one]\ninterrupted", "stopped"]);
    until("nothing is listed", || {
        hall.server.say(hall.ann, dm, "/status");
        let count = hall.heard(dm).len();
        until("the status is told", || hall.heard(dm).len() > count);
        !hall.heard(dm).pop().unwrap().contains("beside")
    });
    hall.close().await;
}

#[tokio::test]
async fn what_was_begun_beside_a_conversation_is_answered_once_after_a_crash() {
    let mut hall = Hall::with(echo(vec![Step::Silence]), OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "/background count");
    hall.said(dm, 1).await;
    until("the model is asked", || hall.told().len() == 1);
    hall.kill();
    hall.start().await;
    assert_eq!(hall.said(dm, 2).await[1], "[count]\necho: count");
    hall.server.say(hall.ann, dm, "and now?");
    let said = hall.said(dm, 3).await;
    assert_eq!(said, ["[count]\nbegun; the answer comes here", "[count]\necho: count", "echo: and now?"]);
    hall.close().await;
}

#[tokio::test]
async fn a_question_of_what_is_done_beside_a_conversation_is_answered_in_the_chat() {
    let steps = vec![runs("c1", "chmod -R 777 ~/private && echo done"), Step::text("it is open")];
    let hall = Hall::with(Script { steps, ..Script::default() }, LOCAL).await.open().await;
    fs::create_dir(hall.path("owner/private")).unwrap();
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "/bg open it");
    assert!(hall.said(dm, 2).await[1].contains("May this run?"), "{:?}", hall.heard(dm));
    hall.server.say(hall.ann, dm, "/approve");
    until("it has run", || hall.heard(dm).iter().any(|said| said == "[open it]\nit is open"));
    hall.close().await;
}

#[tokio::test]
async fn what_runs_on_beside_a_conversation_is_told_before_its_place_ends() {
    let start = Said::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "sleep 1; echo ready", "background": true, "notify_on_complete": true }),
    };
    let steps = [Step::says([start]), Step::text("started"), Step::text("it is ready")];
    let hall = Hall::new(steps).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "/bg start it");
    let said = hall.said(dm, 3).await.split_off(1);
    assert_eq!(said, ["[start it]\nstarted", "[start it]\nit is ready"]);
    until("its place is removed", || places(&hall) == 0);
    hall.close().await;
}

#[tokio::test]
async fn no_more_than_eight_things_are_done_beside_a_conversation() {
    let hall = Hall::with(echo(vec![Step::Silence; 8]), OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    for number in 0..9 {
        hall.server.say(hall.ann, dm, &format!("/bg task {number}"));
    }
    let said = hall.said(dm, 9).await;
    assert_eq!(said.iter().filter(|said| said.contains("begun")).count(), 8, "{said:?}");
    assert!(said[8].contains("8 things are under way already"), "{said:?}");
    hall.server.say(hall.ann, dm, "/stop all");
    hall.said(dm, 18).await;
    hall.close().await;
}

#[tokio::test]
async fn an_admin_can_start_hermes_anew_and_is_told_when_it_is_back() {
    let steps = vec![runs("c1", "true"), Step::text("ran"), slow("at last", 300)];
    let hall = Hall::with(echo(steps), OPEN).await.with_admin().open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.server.say(hall.ann, ann, "make a place");
    hall.said(ann, 1).await;
    hall.server.say(hall.bob, bob, "/restart");
    assert!(hall.said(bob, 1).await[0].contains("for those who look after me"), "{:?}", hall.heard(bob));
    hall.server.say(hall.bob, bob, "work");
    until("the model is asked", || hall.told().len() == 3);
    let before = hall.server.look(|world| world.identified + world.resumed);
    let message = hall.server.say(hall.ann, ann, "/restart");
    let said = hall.said(ann, 3).await.split_off(1);
    assert_eq!(said, ["starting anew, as soon as what is under way has ended", "back again"]);
    assert_eq!(hall.said(bob, 2).await[1], "at last", "what was under way has ended before");
    hall.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
    hall.server.replay(message);
    hall.server.say(hall.ann, ann, "hello");
    assert_eq!(hall.said(ann, 4).await[3], "echo: hello");
    // By a signal, without a chat. It is the same process all the time.
    let before = hall.server.look(|world| world.identified + world.resumed);
    kill_process(hall.pid(), Signal::USR1).unwrap();
    hall.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
    hall.server.say(hall.ann, ann, "still there?");
    assert_eq!(hall.said(ann, 5).await[4], "echo: still there?");
    // What was started before all that leaves no trace when it ends.
    let removed = hall.run(&["sandbox", "rm", "--force", key(ann).as_str()]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let pid = hall.pid().as_raw_nonzero();
    until("no child is left", || {
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().trim().is_empty()
    });
    assert!(!hall.path("home/gateway_restart.json").exists());
    hall.close().await;
}

const LOCAL: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";

#[tokio::test]
async fn an_admin_can_choose_the_model_for_everybody_and_others_cannot() {
    let hall = Hall::echo().await.with_admin().open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.server.say(hall.bob, bob, "/model other --global");
    hall.said(bob, 1).await;
    hall.server.say(hall.ann, ann, "/model another --global");
    assert!(hall.said(ann, 1).await[0].contains("another"), "{:?}", hall.heard(ann));
    hall.server.say(hall.bob, bob, "hello");
    hall.said(bob, 2).await;
    assert_eq!(hall.told().pop().unwrap()["model"], "another");
    let config = fs::read_to_string(hall.path("home/config.yaml")).unwrap();
    assert!(config.contains("default: another"), "{config}");
    hall.close().await;
}

#[tokio::test]
async fn an_admin_can_have_no_questions_asked_until_the_conversation_ends() {
    let danger = "chmod -R 777 ~/private && echo done";
    let steps = vec![
        runs("c1", danger),
        Step::text("unasked"),
        runs("c2", "rm -rf /"),
        Step::text("never"),
        runs("c3", danger),
        Step::text("denied"),
    ];
    let hall = Hall::with(Script { steps, ..Script::default() }, LOCAL).await.with_admin().open().await;
    fs::create_dir(hall.path("owner/private")).unwrap();
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.server.say(hall.bob, bob, "/yolo");
    assert!(hall.said(bob, 1).await[0].contains("for those who look after me"), "{:?}", hall.heard(bob));
    let say = |text: &str| hall.server.say(hall.ann, ann, text);
    say("/yolo");
    assert!(hall.said(ann, 1).await[0].contains("nobody is asked"), "{:?}", hall.heard(ann));
    say("open it");
    assert_eq!(hall.said(ann, 2).await[1], "unasked");
    say("/status");
    assert!(hall.said(ann, 3).await[2].contains("because of /yolo"), "{:?}", hall.heard(ann));
    say("remove all");
    assert_eq!(hall.said(ann, 4).await[3], "never");
    let told = hall.told().pop().unwrap();
    let result = told["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(result.contains("never allowed"), "{result}");
    say("/new");
    hall.said(ann, 5).await;
    say("open it");
    assert!(hall.said(ann, 6).await[5].contains("May this run?"), "{:?}", hall.heard(ann));
    say("/deny");
    until("the model has said something", || hall.heard(ann).iter().any(|said| said == "denied"));
    let audit = fs::read_to_string(hall.path("home/logs/audit.jsonl")).unwrap();
    let noted = |what: &str| -> Vec<Value> {
        let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["what"] == what).collect()
    };
    let ran = noted("call");
    assert_eq!((&ran[0]["about"]["what"], &ran[0]["about"]["backend"]), (&json!(danger), &json!("local")));
    assert!(ran[0]["about"]["place"].as_str().unwrap().starts_with("hermes-"), "{audit}");
    let waived = noted("yolo");
    assert_eq!(waived.len(), 1, "{audit}");
    assert_eq!(waived[0]["about"]["person"], json!(format!("discord:{}", hall.ann)));
    hall.close().await;
}

#[tokio::test]
async fn whoever_says_too_much_is_told_once_and_sees_what_was_not_read() {
    let hall = Hall::echo().await.tell("GATEWAY_MESSAGE_BURST", 2).tell("GATEWAY_MESSAGES_PER_MINUTE", 1);
    let hall = hall.open().await;
    let dm = hall.server.dm(hall.ann);
    let messages: Vec<Id> =
        (0..6).map(|number| hall.server.say(hall.ann, dm, &format!("message {number}"))).collect();
    let unread = &messages[2..];
    until("each shows that it was not read", || {
        let failed = |world: &hermes_testkit::discord::World| {
            let marked = |id: &&Id| world.messages[*id].reactions.iter().any(|(sign, _)| sign == "❌");
            unread.iter().filter(marked).count()
        };
        hall.server.look(failed) == unread.len()
    });
    let mut said = hall.said(dm, 3).await;
    said.sort();
    assert_eq!(said[..2], ["echo: message 0", "echo: message 1"]);
    assert!(said[2].contains("neither this nor what follows is read"), "{said:?}");
    hall.server.say(hall.bob, hall.server.dm(hall.bob), "hello");
    assert_eq!(hall.said(hall.server.dm(hall.bob), 1).await, ["echo: hello"]);
    assert_eq!(hall.heard(dm).len(), 3);
    hall.close().await;
}

#[tokio::test]
async fn whoever_says_too_much_can_still_end_what_is_under_way() {
    let hall = Hall::with(echo(vec![Step::Silence]), OPEN).await;
    let hall = hall.tell("GATEWAY_MESSAGE_BURST", 1).tell("GATEWAY_MESSAGES_PER_MINUTE", 1).open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "think");
    until("the model is asked", || hall.told().len() == 1);
    hall.server.say(hall.ann, dm, "and more");
    assert!(hall.said(dm, 1).await[0].contains("that is too much at once"), "{:?}", hall.heard(dm));
    hall.server.say(hall.ann, dm, "/stop");
    let mut said = hall.said(dm, 3).await.split_off(1);
    said.sort();
    assert_eq!(said, ["interrupted", "stopped"]);
    hall.close().await;
}

#[tokio::test]
async fn what_is_said_after_a_command_comes_after_it_however_slow_the_command_is_heard() {
    let hall = Hall::with(echo(Vec::new()), OPEN).await.open().await;
    hall.wait("the commands are there", |server| {
        server.look(|world| (world.commands.len() == 18).then_some(()))
    })
    .await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "the old");
    hall.said(dm, 1).await;
    let slow = Trouble::RateLimit { retry_after: 1.0, global: false };
    hall.server.trouble("POST /interactions/*/*/callback", 1, slow);
    let begun = hall.server.invoke(hall.ann, dm, "new", json!([]));
    let said = async {
        hall.wait("somebody is being told", |server| {
            server.look(|world| {
                let is_callback = |line: &str| line.starts_with("POST /interactions/");
                world.requests.iter().any(|request| is_callback(&request.line)).then_some(())
            })
        })
        .await;
        hall.server.say(hall.ann, dm, "the new");
    };
    let (begun, ()) = tokio::join!(begun, said);
    begun.unwrap();
    hall.saw(dm, "the answer", |seen| seen.text == "echo: the new").await;
    let told = hall.told().pop().unwrap()["messages"].to_string();
    assert!(!told.contains("the old"), "{told}");
    hall.close().await;
}
