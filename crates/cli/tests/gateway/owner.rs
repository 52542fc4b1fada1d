//! What whoever runs a gateway sees of it, and how it is ended.

use std::fs;

use hermes_testkit::{Step, peers};
use rustix::process::{Signal, kill_process};
use serde_json::Value;

use crate::hall::{Hall, runs, until};

#[tokio::test]
async fn commands_of_chats_run_in_containers_where_that_is_chosen() {
    let Some(docker) = peers::access("docker") else { return };
    let socket = docker["socket"].as_str().unwrap();
    let steps = [runs("c1", "hostname"), Step::text("done")];
    let hall = Hall::new(steps).await.tell("DOCKER_HOST", format!("unix://{socket}"));
    hall.configure("gateway.terminal_backend", "docker");
    hall.configure("gateway.sandbox_image", "localhost/hermes-test:bash");
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
