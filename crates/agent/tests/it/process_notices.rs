//! Notices about background processes, and results that are too long.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use hermes_agent::{Conversation, StopReason, ToolContext};
use hermes_testkit::ScriptStep;
use serde_json::{Value, json};

use crate::chat::{ChatEnv, turn_control};

const NOTICE_TIMEOUT: Duration = Duration::from_secs(60);

fn background(id: &str, command: &str, more: Value) -> ScriptStep {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    ScriptStep::call(id, "terminal", arguments)
}

fn foreground(id: &str, command: &str) -> ScriptStep {
    ScriptStep::call(id, "terminal", json!({"command": command}))
}

/// Waits until no background process runs.
async fn wait_for_all(context: &ToolContext) {
    let processes = context.open_place(&|_| {}).await.unwrap().processes().await.unwrap();
    for view in processes.list().await.unwrap() {
        let view = processes.wait(view.process, NOTICE_TIMEOUT).await.unwrap();
        assert!(view.exit.is_some(), "{view:?}");
    }
}

async fn next_notice(context: &ToolContext) -> String {
    tokio::time::timeout(NOTICE_TIMEOUT, context.next_process_event()).await.unwrap()
}

/// A notice would have arrived before the result of the wait.
async fn assert_no_notice(context: &ToolContext) {
    wait_for_all(context).await;
    assert_eq!(context.next_process_event().now_or_never(), None);
}

fn release(env: &ChatEnv) {
    std::fs::write(env.work().join("go"), "").unwrap();
}

/// A command that waits for [`release`].
fn waiting_for_release(then: &str) -> String {
    format!("until [ -e go ]; do sleep 0.02; done; {then}")
}

#[tokio::test]
async fn an_end_is_delivered_once_to_a_waiting_caller() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let steps = [
        background(
            "c1",
            &waiting_for_release(&format!("echo all {secret} done; exit 3")),
            json!({"notify_on_complete": true}),
        ),
        ScriptStep::text("It runs."),
        ScriptStep::text("I heard."),
    ];
    let env = ChatEnv::new(steps).await;
    let mut conversation = env.create().await;
    assert!(!conversation.tool_context().has_subscriptions());
    env.run(&mut conversation, "go").await;
    let context = conversation.tool_context().clone();
    assert!(context.has_subscriptions());
    release(&env);
    let text = next_notice(&context).await;
    let id = env.seen()[0]["session_id"].as_str().unwrap().to_owned();
    assert!(
        text.starts_with(&format!(
            "[IMPORTANT: Background process {id} has ended with exit code 3.\nCommand: until "
        )),
        "{text}"
    );
    assert!(
        text.contains("\nOutput:\nall ") && text.ends_with(" done]") && !text.contains(&secret),
        "{text}"
    );
    assert!(!context.has_subscriptions());
    assert_no_notice(&context).await;
    assert_eq!(env.run(&mut conversation, &text).await.text, "I heard.");
    assert_eq!(env.stored(&conversation).await[4], format!("user: {text}"));
    env.finish().await;
}

#[tokio::test]
async fn during_a_turn_a_notice_comes_with_the_next_result() {
    let env = ChatEnv::new([
        background("c1", &waiting_for_release("echo done"), json!({"notify_on_complete": true})),
        ScriptStep::text("It runs."),
        foreground("c2", "echo two"),
        foreground("c3", "echo three"),
        ScriptStep::text("I heard."),
    ])
    .await;
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    release(&env);
    wait_for_all(conversation.tool_context()).await;
    assert_eq!(env.run(&mut conversation, "and?").await.stop_reason, StopReason::Answered);
    let seen = env.seen();
    let notices: Vec<_> = seen.iter().filter_map(|result| result["notice"].as_str()).collect();
    assert_eq!(notices.len(), 1, "{seen:?}");
    assert!(
        notices[0].contains("has ended with exit code 0") && notices[0].ends_with("Output:\ndone]"),
        "{notices:?}"
    );
    assert!(seen[0].get("notice").is_none(), "{seen:?}");
    assert_no_notice(conversation.tool_context()).await;
    env.stored(&conversation).await;
    env.finish().await;
}

#[tokio::test]
async fn an_end_that_the_model_has_seen_is_not_reported() {
    let env = ChatEnv::new([
        background("c1", "true", json!({"notify_on_complete": true})),
        // A unique prefix of an id is enough.
        ScriptStep::call("c2", "process", json!({"action": "wait", "session_id": "proc_"})),
        ScriptStep::text("It ended."),
    ])
    .await;
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    assert_eq!(env.seen()[1]["status"], "exited");
    assert!(env.seen()[1].get("notice").is_none(), "{:?}", env.seen());
    assert_no_notice(conversation.tool_context()).await;
    env.finish().await;
}

#[tokio::test]
async fn watched_lines_are_reported_and_the_end_is_not() {
    let command = waiting_for_release("echo starting; echo ready one; echo ready two");
    let env = ChatEnv::new([
        background("c1", &command, json!({"watch_patterns": ["ready"]})),
        ScriptStep::text("It runs."),
    ])
    .await;
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    release(&env);
    let text = next_notice(conversation.tool_context()).await;
    assert!(
        text.contains(" has a line with a watched word.\n") && text.ends_with("\nLine:\nready one]"),
        "{text}"
    );
    assert_no_notice(conversation.tool_context()).await;
    env.finish().await;
}

#[tokio::test]
async fn after_a_restart_only_new_notices_are_delivered() {
    let notify = json!({"notify_on_complete": true});
    let env = ChatEnv::new([
        background("c1", "echo first", notify.clone()),
        ScriptStep::text("It runs."),
        ScriptStep::text("I heard of the first."),
        background("c2", &waiting_for_release("echo second"), notify),
        ScriptStep::text("It runs too."),
        foreground("c3", "echo three"),
        ScriptStep::text("Well."),
    ])
    .await;
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    let text = next_notice(conversation.tool_context()).await;
    env.run(&mut conversation, &text).await;
    env.run(&mut conversation, "another").await;
    let id = conversation.id().clone();
    drop(conversation);
    let mut conversation = Conversation::resume(env.context(), env.model_config(), id).await.unwrap();
    release(&env);
    // Notices arrive only after a tool has opened the environment.
    env.run(&mut conversation, "what is there?").await;
    let seen = env.seen();
    let text = match seen[2]["notice"].as_str() {
        Some(text) => text.to_owned(),
        None => next_notice(conversation.tool_context()).await,
    };
    assert!(text.ends_with("Output:\nsecond]") && !text.contains("first"), "{text}");
    assert_no_notice(conversation.tool_context()).await;
    env.finish().await;
}

#[tokio::test]
async fn the_longest_results_of_a_batch_are_spilled_to_files() {
    let sizes = [49_000, 30_000, 45_000, 40_000, 44_000];
    let calls = sizes.iter().zip(1..).map(|(size, n)| hermes_testkit::ReplyItem::Call {
        id: format!("c{n}"),
        name: "terminal".to_owned(),
        arguments: json!({"command": format!("head -c {size} /dev/zero | tr '\\0' {n}")}),
    });
    let env =
        ChatEnv::new([ScriptStep::reply(calls), ScriptStep::text("Long."), ScriptStep::text("Still long.")])
            .await;
    let mut conversation = env.create().await;
    // A steer stays in a spilled result, however long it is.
    let (control, text) = (turn_control(), "quick! ".repeat(100));
    control.steer(text.clone(), None);
    env.run_with(&mut conversation, "look", &control).await;
    let seen = env.seen();
    let lengths: Vec<_> = seen.iter().map(|result| result["output"].as_str().map(str::len)).collect();
    assert_eq!(lengths, [None, Some(30_000), Some(45_000), Some(40_000), Some(44_000)]);
    assert_eq!([&seen[0]["size"], &seen[0]["exit_code"]], [&json!(49_000), &json!(0)]);
    assert_eq!(seen[0]["user_says"], text);
    assert!(seen[0]["hint"].as_str().unwrap().contains("too long"), "{}", seen[0]);
    let path = seen[0]["full_result"].as_str().unwrap().replacen('~', &env.home().display().to_string(), 1);
    assert_eq!(std::fs::read_to_string(Path::new(&path)).unwrap(), "1".repeat(49_000));
    // The stored results are those that the model saw.
    env.stored(&conversation).await;
    env.run(&mut conversation, "again").await;
    assert_eq!(env.seen(), seen);
    env.finish().await;
}
