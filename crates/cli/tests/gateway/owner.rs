//! What whoever runs a gateway sees of it, and how it is ended.

use std::fs;

use hermes_testkit::discord::Trouble;
use hermes_testkit::{Said, Step, peers};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::hall::{Hall, runs, until};

#[tokio::test]
async fn commands_of_chats_run_in_containers_where_that_is_chosen() {
    let Some(docker) = peers::access("docker") else { return };
    let socket = docker["socket"].as_str().unwrap();
    let steps = [runs("c1", "hostname"), Step::text("done")];
    let hall = Hall::new(steps).await.tell("DOCKER_HOST", format!("unix://{socket}"));
    hall.configure("gateway.terminal_backend", "docker");
    hall.configure("gateway.sandbox_image", "localhost/hermes-test:bash");
    let status: Value = serde_json::from_slice(&hall.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["backends"]["docker"]["engine"]["image"], "localhost/hermes-test:bash", "{status}");
    let hall = hall.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "where are you?");
    assert_eq!(hall.said(dm, 1).await, ["done"]);
    let listed: Value = serde_json::from_slice(&hall.run(&["sandbox", "ls", "--json"]).stdout).unwrap();
    let backends: Vec<&Value> =
        listed["places"].as_array().unwrap().iter().map(|place| &place["backend"]).collect();
    assert_eq!(backends, ["docker"], "{}", hall.log());
    hall.close().await;
}

#[tokio::test]
async fn where_no_command_can_run_the_start_is_refused_with_what_else_there_is() {
    let hall = Hall::echo().await.tell("DOCKER_HOST", "unix:///nowhere/docker.sock");
    hall.configure("gateway.terminal_backend", "docker");
    let refused = hall.run(&["gateway", "run"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    let offered: Vec<bool> = ["sandbox", "docker", "local"]
        .map(|word| said.contains(&format!("`hermes config set gateway.terminal_backend {word}`")))
        .into();
    assert_eq!(offered, [true, false, true], "{said}");
    hall.close().await;
}

#[tokio::test]
async fn the_owner_sees_when_it_is_up_and_why_it_is_not() {
    let mut hall = Hall::echo().await.open().await;
    until("it says that it is up", || hall.log().contains("discord is up"));
    let status = hall.run(&["gateway", "status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("discord  up for "), "{status:?}");
    hall.server.stall();
    hall.server.cut();
    until("it says why it is down", || hall.log().contains("discord is down: "));
    hall.server.recover();
    until("it is up again", || hall.log().matches("discord is up").count() == 2);
    assert_eq!(hall.stop(), Some(0));
    // What is seen is kept as well.
    let kept = fs::read_to_string(hall.path("home/logs/agent.log")).unwrap();
    assert!(kept.contains("discord is down: "), "{kept}");
    hall.close().await;
}

#[tokio::test]
async fn status_and_doctor_know_of_chats_and_of_what_keeps_them() {
    let mut hall = Hall::echo().await;
    let find = |hall: &Hall, check: &str| {
        let found = hall.run(&["doctor", "--json"]);
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap().iter();
        let of_it: Vec<Value> = findings.filter(|finding| finding["check"] == check).cloned().collect();
        of_it.into_iter().map(|finding| finding["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // Where chats run is looked at, though nobody chose it.
    assert_eq!(
        (find(&hall, "sandbox"), find(&hall, "gateway")),
        (vec!["ok".to_owned()], vec!["warning".to_owned()])
    );
    hall.start().await;
    until("it is up", || hall.state() == "up");
    assert_eq!(
        (find(&hall, "gateway"), hall.run(&["status"]).status.code()),
        (vec!["ok".to_owned()], Some(0))
    );
    hall.server.stall();
    hall.server.cut();
    until("it is down", || hall.state() == "down");
    assert_eq!(
        (find(&hall, "gateway"), hall.run(&["status"]).status.code()),
        (vec!["broken".to_owned()], Some(5))
    );
    hall.server.recover();
    hall.close().await;
}

#[tokio::test]
async fn a_wrong_token_is_told_once_with_its_remedy() {
    let hall = Hall::echo().await.tell("DISCORD_BOT_TOKEN", "wrong");
    hall.server.expect(4004);
    let ended = hall.run(&["gateway", "run"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(5), "{said}");
    let last: Vec<&str> = said.lines().rev().take(2).collect();
    assert_eq!(last[1], "error: discord: Discord does not take the bot's token");
    assert!(last[0].contains("hermes config set discord.bot_token -"), "{said}");
    assert_eq!(said.matches("error: ").count() + said.matches("warning: ").count(), 1, "{said}");
    hall.close().await;
}

#[tokio::test]
async fn a_gateway_without_a_model_says_so_when_it_starts() {
    let hall = Hall::echo().await;
    assert!(hall.run(&["config", "unset", "model.default"]).status.success());
    let hall = hall.open().await;
    let log = hall.log();
    assert!(log.contains("chats cannot be answered yet: no model is configured"), "{log}");
    assert!(log.contains("`hermes config set model.default NAME`"), "{log}");
    hall.close().await;
}

#[tokio::test]
async fn whoever_wants_it_to_end_twice_does_not_wait() {
    let mut hall = Hall::then_echo([runs("c1", "sleep 1000")]).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "work");
    until("it works", || {
        let listed: Value = serde_json::from_slice(&hall.run(&["process", "ls", "--json"]).stdout).unwrap();
        listed["processes"].as_array().is_some_and(|processes| !processes.is_empty())
    });
    kill_process(hall.pid(), Signal::INT).unwrap();
    until("it says what it waits for", || hall.log().contains("what is under way is finished first"));
    assert_eq!(hall.stop(), Some(0));
    assert!(hall.log().contains("ended at once"), "{}", hall.log());
    // What was under way is gone on with.
    hall.start().await;
    assert_eq!(hall.said(dm, 1).await, ["echo: work"]);
    hall.close().await;
}

#[tokio::test]
async fn chats_that_are_gone_are_no_trouble_at_every_start() {
    let mut hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    hall.said(dm, 1).await;
    hall.kill();
    hall.server.forget_sessions();
    hall.server.trouble("GET /channels/*/messages", u32::MAX, Trouble::Fail(404));
    hall.start().await;
    let kept = || fs::read_to_string(hall.path("home/logs/agent.log")).unwrap_or_default();
    until("it was looked at", || kept().contains("a chat on Discord can no longer be read"));
    assert!(!hall.log().contains(" WARN "), "{}", hall.log());
    hall.server.clear_troubles();
    hall.close().await;
}

#[tokio::test]
async fn a_letter_shows_that_its_answer_cannot_be_delivered() {
    let hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble("POST /channels/*/messages", 1, Trouble::Fail(403));
    let signs = |message| {
        hall.server.look(|world| {
            let signs = &world.messages[&message].reactions;
            signs.iter().map(|(emoji, _)| emoji.clone()).collect::<Vec<_>>()
        })
    };
    let lost = hall.server.say(hall.ann, dm, "hello");
    until("it is shown", || signs(lost) == ["❌"]);
    until("the owner is told", || hall.log().contains("a message cannot be delivered"));
    let answered = hall.server.say(hall.ann, dm, "again");
    hall.said(dm, 1).await;
    until("it is shown", || signs(answered) == ["✅"]);
    assert_eq!(signs(lost), ["❌"]);
    hall.close().await;
}

#[tokio::test]
async fn conversations_are_found_by_their_platform() {
    let hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    hall.said(dm, 1).await;
    for (source, count) in [("discord", 1), ("cli", 0)] {
        let listed = hall.run(&["sessions", "ls", "--source", source, "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(count), "{listed}");
    }
    hall.close().await;
}

/// How many places and how many conversations there are.
fn left(hall: &Hall) -> (usize, usize) {
    let count = |command: &str, what: &str| {
        let shown: Value = serde_json::from_slice(&hall.run(&[command, "ls", "--json"]).stdout).unwrap();
        shown[what].as_array().unwrap().len()
    };
    (count("sandbox", "places"), count("sessions", "sessions"))
}

#[tokio::test]
async fn a_conversation_of_long_ago_is_removed_with_its_place() {
    let asleep = json!({ "command": "sleep 600", "background": true });
    let asleep = Said::Call { id: "c2".to_owned(), name: "terminal".to_owned(), arguments: asleep };
    let steps =
        [runs("c1", "echo mine >~/note"), Step::text("kept"), Step::says([asleep]), Step::text("so be it")];
    let mut hall = Hall::new(steps).await.tell("HERMES_SESSIONS_AUTO_PRUNE", true).open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    hall.say(hall.ann, ann, "note it");
    hall.said(ann, 1).await;
    hall.say(hall.bob, bob, "sleep");
    hall.said(bob, 1).await;
    assert_eq!(left(&hall), (2, 2));
    hall.stop();
    let database = rusqlite::Connection::open(hall.path("home").join(hermes_store::FILE_NAME)).unwrap();
    let aged = "UPDATE sessions SET started = started - 91 * 86400, touched = touched - 91 * 86400";
    assert_eq!(database.execute(aged, []).unwrap(), 2);
    drop(database);
    hall.start().await;
    // What runs is not ended because nobody talks.
    until("one is gone", || left(&hall) == (1, 1));
    until("it is told", || hall.log().contains("conversations of long ago are removed"));
    assert_eq!(left(&hall), (1, 1));
    hall.close().await;
}
