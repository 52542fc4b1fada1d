//! Turns that somebody ends.

use std::time::Duration;

use hermes_agent::{StopReason, TurnControl, TurnEvent};
use hermes_testkit::model::Delivery;
use hermes_testkit::{Answer, Said, Step};
use serde_json::json;

use crate::bed::Bed;

/// Says this and then nothing more, without an end.
fn stalls(words: &str, bytes: usize) -> Step {
    let delivery = Delivery { silent: Some(bytes), ..Delivery::default() };
    Step::Answer(Answer { says: vec![Said::Text(words.to_owned())], finish: None, delivery })
}

/// Ends the turn as soon as this happens.
async fn say_until(
    bed: &Bed,
    is_time: impl Fn(&TurnEvent) -> bool + Send + Sync,
) -> (hermes_agent::Conversation, StopReason) {
    let mut conversation = bed.begin().await;
    let control = TurnControl::default();
    let watch = |event: TurnEvent| {
        if is_time(&event) {
            control.stop.cancel();
        }
        bed.events.lock().unwrap().push(event);
    };
    let ended = conversation.run_turn("go", &control, &watch).await.unwrap();
    (conversation, ended.stop_reason)
}

#[tokio::test]
async fn a_model_is_interrupted_and_what_it_said_is_kept() {
    let long = "word ".repeat(200);
    let bed = Bed::new([stalls(&long, 3_000), Step::text("well")]).await;
    let (mut conversation, exit) = say_until(&bed, |event| matches!(event, TurnEvent::Text(_))).await;
    assert_eq!(exit, StopReason::Interrupted);
    let kept = bed.kept(&conversation).await;
    assert!(kept.len() == 2 && kept[1].starts_with("assistant: word"), "{kept:?}");
    // The session is not stuck.
    assert_eq!(bed.say(&mut conversation, "again").await.stop_reason, StopReason::Answered);
    bed.leave().await;
}

#[tokio::test]
async fn a_model_that_says_nothing_at_all_is_interrupted() {
    let bed = Bed::new([Step::Silence]).await;
    let mut conversation = bed.begin().await;
    let control = TurnControl::default();
    let stop = control.stop.clone();
    let watch = |_event: TurnEvent| {};
    let (ended, ()) = tokio::join!(conversation.run_turn("go", &control, &watch), async {
        while bed.model.received().is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        stop.cancel();
    });
    assert_eq!(ended.unwrap().stop_reason, StopReason::Interrupted);
    assert_eq!(bed.kept(&conversation).await, ["user: go"]);
    bed.leave().await;
}

#[tokio::test]
async fn commands_are_interrupted_with_all_they_started_and_the_rest_does_not_begin() {
    let call = |id: &str, command: &str| Said::Call {
        id: id.to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({"command": command}),
    };
    let first = "echo begun; sleep 1234.5 & setsid sleep 1234.5 & wait";
    let bed = Bed::new([
        Step::says([call("c1", first), call("c2", "touch second")]),
        Step::says([call("c3", "pgrep -fc '^sleep 1234[.]5' || true")]),
        Step::text("well"),
    ])
    .await;
    let (mut conversation, exit) =
        say_until(&bed, |event| matches!(event, TurnEvent::ToolStarted { .. })).await;
    assert_eq!(exit, StopReason::Interrupted);
    assert_eq!(
        bed.kept(&conversation).await,
        ["user: go", "assistant:  [c1] [c2]", "tool: [c1]", "tool: [c2]"]
    );
    assert!(!bed.work().join("second").exists());
    assert_eq!(bed.say(&mut conversation, "what is left?").await.stop_reason, StopReason::Answered);
    let seen = bed.seen();
    assert!(seen[0].to_string().contains("interrupted"), "{}", seen[0]);
    assert!(seen[1]["error"].as_str().unwrap().contains("before it began"), "{}", seen[1]);
    assert_eq!(seen[2]["output"], "0");
    bed.leave().await;
}
