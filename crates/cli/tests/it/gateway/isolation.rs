//! Isolation of chats from each other.

use hermes_testkit::ScriptStep;
use serde_json::Value;

use crate::gateway::env::{GatewayEnv, terminal_call};

/// Runs one command in each of two chats and returns the output of the second.
async fn output_in_second_chat(first: &str, second: &str) -> String {
    let steps = [
        terminal_call("c1", first),
        ScriptStep::text("one"),
        terminal_call("c2", second),
        ScriptStep::text("two"),
    ];
    let env = GatewayEnv::new(steps).await.open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.ann, ann, "do it");
    assert_eq!(env.wait_for_replies(ann, 1).await, ["one"]);
    env.server.send_text(env.bob, bob, "do it");
    assert_eq!(env.wait_for_replies(bob, 1).await, ["two"]);
    let last = env.model_requests().pop().unwrap();
    let result = last["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(!last.to_string().contains("ann's"), "{last}");
    env.close().await;
    let result: Value = serde_json::from_str(&result).unwrap();
    result["output"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn files_of_one_chat_are_not_in_another() {
    let shown = output_in_second_chat(
        "echo ann\\'s >secret; echo ann\\'s >~/secret; echo ann\\'s >/tmp/secret; ls ~ /tmp .",
        "ls -a ~ /tmp .",
    )
    .await;
    assert!(!shown.contains("secret"), "{shown}");
}

#[tokio::test]
async fn variables_of_one_chat_are_not_in_another() {
    let shown = output_in_second_chat("export SECRET=42; declare -p SECRET", "declare -p SECRET; env").await;
    assert!(!shown.contains("42"), "{shown}");
}

#[tokio::test]
async fn processes_of_one_chat_are_not_in_another() {
    let shown = output_in_second_chat(
        "(exec -a ann-at-work sleep 600) >/dev/null 2>&1 & echo started",
        "cat /proc/[0-9]*/cmdline | tr '\\0' ' '",
    )
    .await;
    assert!(!shown.contains("ann-at-work"), "{shown}");
}

#[tokio::test]
async fn only_the_shared_directory_is_shared() {
    let steps = [
        terminal_call("c1", "echo ours >/shared/note; echo mine >~/secret; ls ~"),
        ScriptStep::text("one"),
        terminal_call("c2", "cat /shared/note; ls -a ~ .; echo more >>/shared/note"),
        ScriptStep::text("two"),
    ];
    let env = GatewayEnv::new(steps).await.set_env("GATEWAY_SHARED_HOME", true).open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.ann, ann, "do it");
    assert_eq!(env.wait_for_replies(ann, 1).await, ["one"]);
    env.server.send_text(env.bob, bob, "do it");
    assert_eq!(env.wait_for_replies(bob, 1).await, ["two"]);
    let last = env.model_requests().pop().unwrap()["messages"].clone();
    let shown = last.as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(shown.contains("ours") && !shown.contains("secret"), "{shown}");
    assert!(
        last[0]["content"].to_string().contains("`/shared` is a directory that all chats share"),
        "{last}"
    );
    let note = std::fs::read_to_string(env.path("home/shared/note")).unwrap();
    assert_eq!(note, "ours\nmore\n");
    env.close().await;
}

#[tokio::test]
async fn an_environment_that_cannot_mount_the_shared_directory_is_refused_at_startup() {
    let env = GatewayEnv::new([])
        .await
        .set_env("GATEWAY_SHARED_HOME", true)
        .set_env("GATEWAY_TERMINAL_BACKEND", "local");
    let run = env.run(&["gateway", "run"]);
    assert_eq!(run.status.code(), Some(3));
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    assert!(said.contains("gateway.shared_home: environments of the local backend"), "{said}");
    assert!(said.contains("gateway.terminal_backend sandbox"), "{said}");
}

#[tokio::test]
async fn memory_of_one_chat_is_not_in_another() {
    let shown = output_in_second_chat(
        "echo ann\\'s >/dev/shm/secret; ipcmk -M 4096",
        "ls /dev/shm; tail -n +2 /proc/sysvipc/shm | wc -l",
    )
    .await;
    assert_eq!(shown.trim(), "0");
}

#[tokio::test]
async fn sessions_of_one_chat_are_not_in_another() {
    let env = GatewayEnv::echo().await.open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.ann, ann, "ann's plan");
    env.wait_for_replies(ann, 1).await;
    env.server.send_text(env.ann, ann, "/status");
    let status = env.wait_for_replies(ann, 2).await.remove(1);
    let id = status.lines().find_map(|line| line.strip_prefix("id ")).unwrap().trim().to_owned();
    for words in ["/sessions".to_owned(), format!("/resume {id}"), "/resume ann's plan".to_owned()] {
        env.server.send_text(env.bob, bob, &words);
    }
    let said = env.wait_for_replies(bob, 3).await;
    let none = |name: &str| format!("no session matches `{name}`");
    assert_eq!(said, ["No conversations yet.".to_owned(), none(&id), none("ann's plan")]);
    env.server.send_text(env.bob, bob, "hello");
    assert_eq!(env.wait_for_replies(bob, 4).await[3], "echo: hello");
    let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(!prompt.contains("plan"), "{prompt}");
    env.close().await;
}
