//! Replies of a model and their handling.

use std::time::Duration;

use hermes_agent::{Conversation, LoopGuardConfig, LoopLimits, StopReason, TurnEvent};
use hermes_testkit::model::BodyDelivery;
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedReply};
use hermes_types::Usage;
use serde_json::{Value, json};

use crate::chat::{ChatEnv, turn_control};

fn call(id: &str, command: &str) -> ReplyItem {
    ReplyItem::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments: json!({"command": command}) }
}

fn reply(items: impl IntoIterator<Item = ReplyItem>, finish: &str) -> ScriptStep {
    let items = items.into_iter().collect();
    ScriptStep::Reply(ScriptedReply { items, finish: Some(finish.to_owned()), ..ScriptedReply::default() })
}

fn text(text: &str) -> ReplyItem {
    ReplyItem::Text(text.to_owned())
}

#[tokio::test]
async fn a_reply_is_reported_stored_and_counted() {
    let env = ChatEnv::new([ScriptStep::text("hello there")]).await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "hi").await;
    assert_eq!(
        (result.stop_reason, result.text.as_str(), result.model_calls),
        (StopReason::Answered, "hello there", 1)
    );
    assert_ne!(result.usage, Usage::default());
    assert_eq!(env.stored(&conversation).await, ["user: hi", "assistant: hello there"]);
    let reported: String = env
        .events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            TurnEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(reported, "hello there");
    let session = env.store.session(conversation.id()).await.unwrap();
    assert_eq!(
        (session.api_calls, session.usage, session.title.as_deref()),
        (1, result.usage, Some("a title"))
    );
    assert!(env.store.current_turn(conversation.id()).await.unwrap().is_none());
    env.finish().await;
}

#[tokio::test]
async fn calls_run_in_order_and_their_results_are_stored_before_the_next_request() {
    let five = (1..=5).map(|n| call(&format!("c{n}"), &format!("echo {n} >>log; wc -l <log")));
    let env = ChatEnv::new([
        ScriptStep::reply([text("I count.")].into_iter().chain(five)),
        ScriptStep::text("done"),
    ])
    .await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "count").await;
    assert_eq!(
        (result.stop_reason, result.text.as_str(), result.model_calls),
        (StopReason::Answered, "done", 2)
    );
    let outputs: Vec<_> =
        env.seen().iter().map(|seen| seen["output"].as_str().unwrap().trim().to_owned()).collect();
    assert_eq!(outputs, ["1", "2", "3", "4", "5"]);
    assert_eq!(env.seen()[0]["exit_code"], 0);
    assert_eq!(
        env.stored(&conversation).await,
        [
            "user: count",
            "assistant: I count. [c1] [c2] [c3] [c4] [c5]",
            "tool: [c1]",
            "tool: [c2]",
            "tool: [c3]",
            "tool: [c4]",
            "tool: [c5]",
            "assistant: done",
        ]
    );
    env.finish().await;
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_not_run_and_requested_again() {
    let cut = || {
        let call = ReplyItem::Call {
            id: "c1".to_owned(),
            name: "terminal".to_owned(),
            arguments: json!("{\"command\": \"touch ran; echo "),
        };
        reply([text("now"), call], "length")
    };
    let env =
        ChatEnv::new([cut(), ScriptStep::reply([call("c2", "touch better")]), ScriptStep::text("ok")]).await;
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    assert!(!env.work().join("ran").exists() && env.work().join("better").exists());
    let second = &env.model.received()[1].json["messages"];
    let last = second.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(last.contains("cut off"), "{last}");
    // The hint is in that request only.
    assert_eq!(env.stored(&conversation).await.len(), 4);
    env.finish().await;

    let env = ChatEnv::new([cut(), cut(), cut(), cut()]).await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!((result.stop_reason, result.model_calls), (StopReason::Truncated, 4));
    assert!(!env.work().join("ran").exists());
    assert_eq!(env.store.session(conversation.id()).await.unwrap().api_calls, 4);
    let limits: Vec<_> =
        env.model.received().iter().map(|request| request.json["max_tokens"].as_u64()).collect();
    assert_eq!(limits, [None, Some(8192), Some(16_384), Some(32_768)]);
    env.finish().await;
}

#[tokio::test]
async fn a_reply_that_was_cut_off_is_continued_and_stored_as_one() {
    let env = ChatEnv::new([
        reply([text("one, ")], "length"),
        reply([text("two, ")], "length"),
        ScriptStep::text("three"),
    ])
    .await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "count").await;
    assert_eq!((result.stop_reason, result.text.as_str()), (StopReason::Answered, "one, two, three"));
    assert_eq!(env.stored(&conversation).await, ["user: count", "assistant: one, two, three"]);
    env.finish().await;
}

#[tokio::test]
async fn an_empty_reply_is_requested_again_a_limited_number_of_times() {
    let env = ChatEnv::new([
        ScriptStep::reply([]),
        ScriptStep::text("sorry"),
        ScriptStep::reply([]),
        ScriptStep::reply([]),
        ScriptStep::reply([]),
    ])
    .await;
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "a").await.stop_reason, StopReason::Answered);
    let result = env.run(&mut conversation, "b").await;
    assert_eq!((result.stop_reason, result.model_calls), (StopReason::EmptyReply, 3));
    env.finish().await;
}

#[tokio::test]
async fn an_unknown_tool_is_reported_and_ends_the_turn_the_third_time() {
    let wrong = |n: u32| ScriptStep::call(&format!("w{n}"), "fly_to_the_moon", json!({}));
    let env = ChatEnv::new([wrong(1), ScriptStep::text("sorry"), wrong(2), wrong(3), wrong(4)]).await;
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "a").await.stop_reason, StopReason::Answered);
    assert!(env.seen()[0]["error"].as_str().unwrap().contains("available: terminal"));
    assert_eq!(env.run(&mut conversation, "b").await.stop_reason, StopReason::InvalidCalls);
    env.finish().await;
}

#[tokio::test]
async fn at_the_request_limit_the_model_writes_a_summary() {
    let again = |n: u32| ScriptStep::reply([call(&format!("c{n}"), &format!("echo {n}"))]);
    let mut env = ChatEnv::new([again(1), again(2), ScriptStep::text("I did two things")]).await;
    env.max_model_calls = 2;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!((result.stop_reason, result.text.as_str()), (StopReason::BudgetExhausted, "I did two things"));
    assert!(env.model.received()[2].json.get("tools").is_none());
    assert_eq!(env.stored(&conversation).await.last().unwrap(), "assistant: I did two things");
    env.finish().await;
}

#[tokio::test]
async fn repeated_failures_cause_a_warning() {
    let again = |n: u32| ScriptStep::reply([call(&format!("c{n}"), "false")]);
    let env = ChatEnv::new([again(1), again(2), ScriptStep::text("I stop")]).await;
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    let seen = env.seen();
    assert!(seen[0].get("warning").is_none());
    assert!(seen[1]["warning"].as_str().unwrap().contains("failed 2 times"), "{}", seen[1]);
    env.finish().await;
}

#[tokio::test]
async fn every_request_of_a_session_begins_with_the_same_bytes() {
    let mut steps = Vec::new();
    for n in 0..10 {
        steps.push(ScriptStep::reply([call(&format!("c{n}"), &format!("echo {n}"))]));
        steps.push(ScriptStep::text(&format!("answer {n}")));
    }
    let env = ChatEnv::new(steps).await;
    let mut conversation = env.create().await;
    for n in 0..10 {
        if n == 5 {
            // Another process would continue like this.
            conversation = Conversation::resume(env.context(), env.model_config(), conversation.id().clone())
                .await
                .unwrap();
        }
        assert_eq!(
            env.run(&mut conversation, &format!("question {n}")).await.stop_reason,
            StopReason::Answered
        );
    }
    let received = env.model.received();
    let text = |value: &Value| serde_json::to_string(value).unwrap();
    let mut before: Option<Vec<String>> = None;
    for request in &received {
        assert_eq!(text(&request.json["tools"]), text(&received[0].json["tools"]));
        let messages: Vec<_> = request.json["messages"].as_array().unwrap().iter().map(text).collect();
        if let Some(before) = before {
            assert_eq!(messages[..before.len()], before[..]);
        }
        before = Some(messages);
    }
    env.finish().await;
}

#[tokio::test]
async fn a_steer_comes_with_the_next_result() {
    let env = ChatEnv::new([
        ScriptStep::reply([call("c1", "echo 1")]),
        ScriptStep::text("ok"),
        ScriptStep::text("nothing to do"),
    ])
    .await;
    let mut conversation = env.create().await;
    let control = turn_control();
    control.steer("and be quick".to_owned(), None);
    let result = env.run_with(&mut conversation, "go", &control).await;
    assert_eq!(env.seen()[0]["user_says"], "and be quick");
    assert_eq!(result.pending_steer, None);
    control.steer("too late".to_owned(), None);
    let result = env.run_with(&mut conversation, "again", &control).await;
    assert_eq!(result.pending_steer.map(|steer| steer.text).as_deref(), Some("too late"));
    env.finish().await;
}

#[tokio::test]
async fn the_last_message_can_be_undone() {
    let env =
        ChatEnv::new([ScriptStep::text("one"), ScriptStep::text("two"), ScriptStep::text("three")]).await;
    let mut conversation = env.create().await;
    env.run(&mut conversation, "a").await;
    env.run(&mut conversation, "b").await;
    assert_eq!(conversation.undo().await.unwrap(), Some("b".into()));
    env.run(&mut conversation, "c").await;
    assert_eq!(env.stored(&conversation).await, ["user: a", "assistant: one", "user: c", "assistant: three"]);
    env.finish().await;
}

#[tokio::test]
async fn a_raised_output_limit_ends_with_the_reply_that_needed_it() {
    let env = ChatEnv::new([
        reply([text("one, ")], "length"),
        ScriptStep::reply([call("c1", "echo 1")]),
        ScriptStep::text("done"),
    ])
    .await;
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    let limits: Vec<_> =
        env.model.received().iter().map(|request| request.json["max_tokens"].as_u64()).collect();
    assert_eq!(limits, [None, Some(8192), None]);
    env.finish().await;
}

#[tokio::test]
async fn a_stream_that_breaks_is_not_called_an_output_limit() {
    let long = "word ".repeat(400);
    let delivery = BodyDelivery { cut: Some(9000), ..BodyDelivery::default() };
    let broken = || ScriptStep::Reply(ScriptedReply { items: vec![text(&long)], finish: None, delivery });
    let env = ChatEnv::new([broken(), broken(), broken(), broken()]).await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!(result.stop_reason, StopReason::Disconnected);
    assert!(env.model.received().iter().all(|request| request.json["max_tokens"].is_null()));
    env.finish().await;
}

#[tokio::test]
async fn reasoning_that_fills_the_output_limit_ends_the_turn_with_advice() {
    let env = ChatEnv::new([reply([ReplyItem::Reasoning("hm".to_owned())], "length")]).await;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!((result.stop_reason.clone(), result.model_calls), (StopReason::ReasoningExhausted, 1));
    assert!(result.stop_reason.user_message().unwrap().contains("agent.reasoning_effort"));
    env.finish().await;
}

#[tokio::test]
async fn scripts_are_free_only_as_often_as_the_limit_of_requests() {
    let script =
        |n: u32| ScriptStep::call(&format!("c{n}"), "execute_code", json!({"code": format!("x = {n}")}));
    let mut env = ChatEnv::new((0..4).map(script).chain([ScriptStep::text("summary")])).await;
    env.max_model_calls = 2;
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!((result.stop_reason, result.model_calls), (StopReason::BudgetExhausted, 5));
    env.finish().await;
}

#[tokio::test]
async fn a_turn_without_activity_ends() {
    let mut env = ChatEnv::new([
        ScriptStep::reply([call("c1", "sleep 0.4; echo slept")]),
        ScriptStep::Silence,
        ScriptStep::text("later"),
    ])
    .await;
    env.idle_timeout = Some(Duration::from_millis(200));
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    // A running tool is activity: it has a limit of its own.
    assert_eq!(
        (result.stop_reason.clone(), result.model_calls),
        (StopReason::TimedOut(Duration::from_millis(200)), 2)
    );
    assert!(env.seen()[0]["output"].as_str().unwrap().contains("slept"));
    assert!(result.stop_reason.user_message().unwrap().contains("agent.gateway_timeout"));
    assert_eq!(env.run(&mut conversation, "again").await.text, "later");
    env.finish().await;
}

#[tokio::test]
async fn a_loop_of_failing_calls_ends_the_turn_if_the_owner_wants_that() {
    let again = |n: u32| ScriptStep::reply([call(&format!("c{n}"), "false")]);
    let mut env = ChatEnv::new([again(1), again(2), again(3)]).await;
    let stop_after = Some(LoopLimits { same_failure: 3, tool_failure: 8, same_result: 5 });
    env.loop_guard = LoopGuardConfig { stop_after, ..LoopGuardConfig::default() };
    let mut conversation = env.create().await;
    let result = env.run(&mut conversation, "go").await;
    assert_eq!((result.stop_reason, result.model_calls), (StopReason::Loop, 3));
    env.finish().await;
}

#[tokio::test]
async fn a_refusal_without_a_reason_is_a_whole_sentence() {
    let env = ChatEnv::new([reply([], "content_filter")]).await;
    let mut conversation = env.create().await;
    let message = env.run(&mut conversation, "go").await.stop_reason.user_message().unwrap();
    assert!(message.contains("gave no reason"), "{message}");
    env.finish().await;
}
