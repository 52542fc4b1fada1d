//! Turns that the user interrupts.

use hermes_agent::{StopReason, TurnEvent};
use hermes_testkit::model::BodyDelivery;
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedReply};
use serde_json::json;

use crate::chat::{ChatEnv, turn_control};
use crate::fixture::eventually;

/// Sends a text and then stalls.
fn stalling(text: &str, bytes: usize) -> ScriptStep {
    let delivery = BodyDelivery { silent: Some(bytes), ..BodyDelivery::default() };
    ScriptStep::Reply(ScriptedReply { items: vec![ReplyItem::Text(text.to_owned())], finish: None, delivery })
}

/// Stops the turn at the first matching event.
async fn run_until(
    env: &ChatEnv,
    is_time: impl Fn(&TurnEvent) -> bool + Send + Sync,
) -> (hermes_agent::Conversation, StopReason) {
    let mut conversation = env.create().await;
    let control = turn_control();
    let observer = |event: TurnEvent| {
        if is_time(&event) {
            control.stop.cancel();
        }
        env.events.lock().unwrap().push(event);
    };
    let result = conversation.run_turn("go", &control, &observer).await.unwrap();
    (conversation, result.stop_reason)
}

#[tokio::test]
async fn an_interrupted_reply_is_stored() {
    let long = "word ".repeat(200);
    let env = ChatEnv::new([stalling(&long, 3_000), ScriptStep::text("well")]).await;
    let (mut conversation, reason) = run_until(&env, |event| matches!(event, TurnEvent::Text(_))).await;
    assert_eq!(reason, StopReason::Interrupted);
    let stored = env.stored(&conversation).await;
    assert!(stored.len() == 2 && stored[1].starts_with("assistant: word"), "{stored:?}");
    // The session accepts another turn.
    assert_eq!(env.run(&mut conversation, "again").await.stop_reason, StopReason::Answered);
    env.finish().await;
}

#[tokio::test]
async fn a_silent_model_is_interrupted() {
    let env = ChatEnv::new([ScriptStep::Silence]).await;
    let mut conversation = env.create().await;
    let control = turn_control();
    let stop = control.stop.clone();
    let observer = |_event: TurnEvent| {};
    let (result, ()) = tokio::join!(conversation.run_turn("go", &control, &observer), async {
        eventually("the model is asked", async || !env.model.received().is_empty()).await;
        stop.cancel();
    });
    assert_eq!(result.unwrap().stop_reason, StopReason::Interrupted);
    assert_eq!(env.stored(&conversation).await, ["user: go"]);
    env.finish().await;
}

#[tokio::test]
async fn running_commands_are_ended_and_the_others_do_not_start() {
    let call = |id: &str, command: &str| ReplyItem::Call {
        id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({"command": command}),
    };
    let first = "echo begun; sleep 1234.5 & setsid sleep 1234.5 & wait";
    let env = ChatEnv::new([
        ScriptStep::reply([call("c1", first), call("c2", "touch second")]),
        ScriptStep::reply([call("c3", "pgrep -fc '^sleep 1234[.]5' || true")]),
        ScriptStep::text("well"),
    ])
    .await;
    let (mut conversation, reason) =
        run_until(&env, |event| matches!(event, TurnEvent::ToolStarted { .. })).await;
    assert_eq!(reason, StopReason::Interrupted);
    assert_eq!(
        env.stored(&conversation).await,
        ["user: go", "assistant:  [c1] [c2]", "tool: [c1]", "tool: [c2]"]
    );
    assert!(!env.work().join("second").exists());
    assert_eq!(env.run(&mut conversation, "what is left?").await.stop_reason, StopReason::Answered);
    let seen = env.seen();
    assert!(seen[0].to_string().contains("interrupted"), "{}", seen[0]);
    assert!(seen[1]["error"].as_str().unwrap().contains("before it began"), "{}", seen[1]);
    assert_eq!(seen[2]["output"], "0");
    env.finish().await;
}
