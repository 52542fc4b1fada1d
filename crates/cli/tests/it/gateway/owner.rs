//! Status, logs, startup and shutdown of the gateway.

use std::fs;

use hermes_testkit::discord::InjectedFault;
use hermes_testkit::{ReplyItem, ScriptStep, peers};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::gateway::env::{GatewayEnv, eventually, terminal_call};

#[tokio::test]
async fn commands_of_chats_run_in_containers_if_configured() {
    let Some(docker) = peers::access("docker") else { return };
    let socket = docker["socket"].as_str().unwrap();
    let steps = [terminal_call("c1", "hostname"), ScriptStep::text("done")];
    let env = GatewayEnv::new(steps).await.set_env("DOCKER_HOST", format!("unix://{socket}"));
    env.configure("gateway.terminal_backend", "docker");
    env.configure("gateway.sandbox_image", "localhost/hermes-test:bash");
    let status: Value = serde_json::from_slice(&env.run(&["status", "--json"]).stdout).unwrap();
    assert_eq!(status["backends"]["docker"]["engine"]["image"], "localhost/hermes-test:bash", "{status}");
    let env = env.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "where are you?");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["done"]);
    let listed: Value = serde_json::from_slice(&env.run(&["sandbox", "ls", "--json"]).stdout).unwrap();
    let backends: Vec<&Value> =
        listed["places"].as_array().unwrap().iter().map(|place| &place["backend"]).collect();
    assert_eq!(backends, ["docker"], "{}", env.log());
    env.close().await;
}

#[tokio::test]
async fn an_unusable_backend_is_refused_at_startup_with_alternatives() {
    let env = GatewayEnv::echo().await.set_env("DOCKER_HOST", "unix:///nowhere/docker.sock");
    env.configure("gateway.terminal_backend", "docker");
    let refused = env.run(&["gateway", "run"]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(5), "{said}");
    let offered: Vec<bool> = ["sandbox", "docker", "local"]
        .map(|word| said.contains(&format!("`hermes config set gateway.terminal_backend {word}`")))
        .into();
    assert_eq!(offered, [true, false, true], "{said}");
    env.close().await;
}

#[tokio::test]
async fn status_shows_whether_the_channel_is_up_and_why_not() {
    let mut env = GatewayEnv::echo().await.open().await;
    eventually("the log shows the channel up", || env.log().contains("discord is up"));
    let status = env.run(&["gateway", "status"]);
    assert!(String::from_utf8_lossy(&status.stdout).contains("discord  up for "), "{status:?}");
    env.server.stall();
    env.server.drop_connections();
    eventually("the log shows why the channel is down", || env.log().contains("discord is down: "));
    env.server.recover();
    eventually("the log shows the channel up again", || env.log().matches("discord is up").count() == 2);
    assert_eq!(env.stop(), Some(0));
    // The log file contains the event too.
    let agent_log = fs::read_to_string(env.path("home/logs/agent.log")).unwrap();
    assert!(agent_log.contains("discord is down: "), "{agent_log}");
    env.close().await;
}

#[tokio::test]
async fn status_and_doctor_report_the_gateway_and_its_problems() {
    let mut env = GatewayEnv::echo().await;
    let find = |env: &GatewayEnv, check: &str| {
        let found = env.run(&["doctor", "--json"]);
        let found: Value = serde_json::from_slice(&found.stdout).unwrap();
        let findings = found["findings"].as_array().unwrap().iter();
        let of_check: Vec<Value> = findings.filter(|finding| finding["check"] == check).cloned().collect();
        of_check.into_iter().map(|finding| finding["state"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    // The default backend of chats is checked.
    assert_eq!(
        (find(&env, "sandbox"), find(&env, "gateway")),
        (vec!["ok".to_owned()], vec!["warning".to_owned()])
    );
    env.start().await;
    eventually("the channel is up", || env.state() == "up");
    assert_eq!((find(&env, "gateway"), env.run(&["status"]).status.code()), (vec!["ok".to_owned()], Some(0)));
    env.server.stall();
    env.server.drop_connections();
    eventually("the channel is down", || env.state() == "down");
    assert_eq!(
        (find(&env, "gateway"), env.run(&["status"]).status.code()),
        (vec!["broken".to_owned()], Some(5))
    );
    env.server.recover();
    env.close().await;
}

#[tokio::test]
async fn a_wrong_token_is_reported_once_with_a_hint() {
    let env = GatewayEnv::echo().await.set_env("DISCORD_BOT_TOKEN", "wrong");
    env.server.expect_violation(4004);
    let ended = env.run(&["gateway", "run"]);
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(5), "{said}");
    let last: Vec<&str> = said.lines().rev().take(2).collect();
    assert_eq!(last[1], "error: discord: Discord rejected the bot token");
    assert!(last[0].contains("hermes config set discord.bot_token -"), "{said}");
    assert_eq!(said.matches("error: ").count() + said.matches("warning: ").count(), 1, "{said}");
    env.close().await;
}

#[tokio::test]
async fn a_missing_model_is_reported_at_startup() {
    let env = GatewayEnv::echo().await;
    assert!(env.run(&["config", "unset", "model.default"]).status.success());
    let env = env.open().await;
    let log = env.log();
    assert!(log.contains("chats cannot be answered yet: no model is configured"), "{log}");
    assert!(log.contains("`hermes config set model.default NAME`"), "{log}");
    env.close().await;
}

#[tokio::test]
async fn a_second_signal_stops_without_waiting() {
    let mut env = GatewayEnv::then_echo([terminal_call("c1", "sleep 1000")]).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "work");
    eventually("the turn runs", || {
        let listed: Value = serde_json::from_slice(&env.run(&["process", "ls", "--json"]).stdout).unwrap();
        listed["processes"].as_array().is_some_and(|processes| !processes.is_empty())
    });
    kill_process(env.pid(), Signal::INT).unwrap();
    eventually("the log shows what it waits for", || env.log().contains("stopping after running replies"));
    assert_eq!(env.stop(), Some(0));
    assert!(env.log().contains("stopped at once"), "{}", env.log());
    // The turn is resumed.
    env.start().await;
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: work"]);
    env.close().await;
}

#[tokio::test]
async fn startup_tolerates_deleted_chats() {
    let mut env = GatewayEnv::echo().await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hello");
    env.wait_for_replies(dm, 1).await;
    env.kill();
    env.server.forget_sessions();
    env.server.inject("GET /channels/*/messages", u32::MAX, InjectedFault::Fail(404));
    env.start().await;
    let agent_log = || fs::read_to_string(env.path("home/logs/agent.log")).unwrap_or_default();
    eventually("the deleted chat is logged", || agent_log().contains("chat is no longer readable"));
    assert!(!env.log().contains(" WARN "), "{}", env.log());
    env.server.clear_injected();
    env.close().await;
}

#[tokio::test]
async fn an_undeliverable_reply_is_shown_as_a_reaction() {
    let env = GatewayEnv::echo().await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.inject("POST /channels/*/messages", 1, InjectedFault::Fail(403));
    let reactions = |message| {
        env.server.read(|world| {
            let given = world.messages[&message].reactions.iter();
            given.map(|(emoji, _)| emoji.clone()).collect::<Vec<_>>()
        })
    };
    let lost = env.server.send_text(env.ann, dm, "hello");
    eventually("the reaction is shown", || reactions(lost) == ["❌"]);
    eventually("the owner is informed", || env.log().contains("delivery failed"));
    let answered = env.server.send_text(env.ann, dm, "again");
    env.wait_for_replies(dm, 1).await;
    eventually("the reaction is shown", || reactions(answered) == ["✅"]);
    assert_eq!(reactions(lost), ["❌"]);
    env.close().await;
}

#[tokio::test]
async fn conversations_are_found_by_their_platform() {
    let env = GatewayEnv::echo().await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hello");
    env.wait_for_replies(dm, 1).await;
    for (source, count) in [("discord", 1), ("cli", 0)] {
        let listed = env.run(&["sessions", "ls", "--source", source, "--json"]);
        let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
        assert_eq!(listed["sessions"].as_array().map(Vec::len), Some(count), "{listed}");
    }
    env.close().await;
}

/// The numbers of environments and conversations.
fn remaining_counts(env: &GatewayEnv) -> (usize, usize) {
    let count = |command: &str, list: &str| {
        let shown: Value = serde_json::from_slice(&env.run(&[command, "ls", "--json"]).stdout).unwrap();
        shown[list].as_array().unwrap().len()
    };
    (count("sandbox", "places"), count("sessions", "sessions"))
}

#[tokio::test]
async fn an_old_conversation_is_pruned_with_its_environment() {
    let arguments = json!({ "command": "sleep 600", "background": true });
    let sleep_call = ReplyItem::Call { id: "c2".to_owned(), name: "terminal".to_owned(), arguments };
    let steps = [
        terminal_call("c1", "echo mine >~/note"),
        ScriptStep::text("saved"),
        ScriptStep::reply([sleep_call]),
        ScriptStep::text("so be it"),
    ];
    let mut env = GatewayEnv::new(steps).await.set_env("HERMES_SESSIONS_AUTO_PRUNE", true).open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.send(env.ann, ann, "note it");
    env.wait_for_replies(ann, 1).await;
    env.send(env.bob, bob, "sleep");
    env.wait_for_replies(bob, 1).await;
    assert_eq!(remaining_counts(&env), (2, 2));
    env.stop();
    let database = rusqlite::Connection::open(env.path("home").join(hermes_store::FILE_NAME)).unwrap();
    let aged = "UPDATE sessions SET started = started - 91 * 86400, touched = touched - 91 * 86400";
    assert_eq!(database.execute(aged, []).unwrap(), 2);
    drop(database);
    env.start().await;
    // A running process is not stopped by the reset.
    eventually("one conversation is removed", || remaining_counts(&env) == (1, 1));
    eventually("the removal is logged", || env.log().contains("old conversations removed"));
    assert_eq!(remaining_counts(&env), (1, 1));
    env.close().await;
}
