//! What a model says, and what becomes of it.

use hermes_agent::{Conversation, StopReason, TurnControl, TurnEvent};
use hermes_testkit::{Answer, Said, Step};
use hermes_types::Usage;
use serde_json::{Value, json};

use crate::bed::Bed;

fn call(id: &str, command: &str) -> Said {
    Said::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments: json!({"command": command}) }
}

fn ends(says: impl IntoIterator<Item = Said>, finish: &str) -> Step {
    let says = says.into_iter().collect();
    Step::Answer(Answer { says, finish: Some(finish.to_owned()), ..Answer::default() })
}

fn text(words: &str) -> Said {
    Said::Text(words.to_owned())
}

#[tokio::test]
async fn an_answer_is_told_kept_and_counted() {
    let bed = Bed::new([Step::text("hello there")]).await;
    let mut conversation = bed.begin().await;
    let ended = bed.say(&mut conversation, "hi").await;
    assert_eq!(
        (ended.stop_reason, ended.text.as_str(), ended.model_calls),
        (StopReason::Answered, "hello there", 1)
    );
    assert_ne!(ended.usage, Usage::default());
    assert_eq!(bed.kept(&conversation).await, ["user: hi", "assistant: hello there"]);
    let told: String = bed
        .events
        .lock()
        .unwrap()
        .iter()
        .filter_map(|event| match event {
            TurnEvent::Text(text) => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(told, "hello there");
    let session = bed.store.session(conversation.id()).await.unwrap();
    assert_eq!(
        (session.api_calls, session.usage, session.title.as_deref()),
        (1, ended.usage, Some("a title"))
    );
    assert!(bed.store.turn(conversation.id()).await.unwrap().is_none());
    bed.leave().await;
}

#[tokio::test]
async fn calls_are_made_in_their_order_and_their_answers_are_kept_before_the_model_is_asked_again() {
    let five = (1..=5).map(|n| call(&format!("c{n}"), &format!("echo {n} >>log; wc -l <log")));
    let bed = Bed::new([Step::says([text("I count.")].into_iter().chain(five)), Step::text("done")]).await;
    let mut conversation = bed.begin().await;
    let ended = bed.say(&mut conversation, "count").await;
    assert_eq!(
        (ended.stop_reason, ended.text.as_str(), ended.model_calls),
        (StopReason::Answered, "done", 2)
    );
    let outputs: Vec<_> =
        bed.seen().iter().map(|seen| seen["output"].as_str().unwrap().trim().to_owned()).collect();
    assert_eq!(outputs, ["1", "2", "3", "4", "5"]);
    assert_eq!(bed.seen()[0]["exit_code"], 0);
    assert_eq!(
        bed.kept(&conversation).await,
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
    bed.leave().await;
}

#[tokio::test]
async fn a_call_that_was_cut_off_is_never_run_and_asked_for_once_more() {
    let cut = || {
        let call = Said::Call {
            id: "c1".to_owned(),
            name: "terminal".to_owned(),
            arguments: json!("{\"command\": \"touch ran; echo "),
        };
        ends([text("now"), call], "length")
    };
    let bed = Bed::new([cut(), Step::says([call("c2", "touch better")]), Step::text("ok")]).await;
    let mut conversation = bed.begin().await;
    assert_eq!(bed.say(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    assert!(!bed.work().join("ran").exists() && bed.work().join("better").exists());
    let second = &bed.model.received()[1].json["messages"];
    let last = second.as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(last.contains("cut off"), "{last}");
    // The hint was for that request alone.
    assert_eq!(bed.kept(&conversation).await.len(), 4);
    bed.leave().await;

    let bed = Bed::new([cut(), cut()]).await;
    let mut conversation = bed.begin().await;
    let ended = bed.say(&mut conversation, "go").await;
    assert_eq!((ended.stop_reason, ended.model_calls), (StopReason::Truncated, 2));
    assert!(!bed.work().join("ran").exists());
    assert_eq!(bed.store.session(conversation.id()).await.unwrap().api_calls, 2);
    bed.leave().await;
}

#[tokio::test]
async fn an_answer_that_was_cut_off_is_continued_and_kept_as_one() {
    let bed =
        Bed::new([ends([text("one, ")], "length"), ends([text("two, ")], "length"), Step::text("three")])
            .await;
    let mut conversation = bed.begin().await;
    let ended = bed.say(&mut conversation, "count").await;
    assert_eq!((ended.stop_reason, ended.text.as_str()), (StopReason::Answered, "one, two, three"));
    assert_eq!(bed.kept(&conversation).await, ["user: count", "assistant: one, two, three"]);
    bed.leave().await;
}

#[tokio::test]
async fn a_model_that_says_nothing_is_asked_again_and_not_for_ever() {
    let bed =
        Bed::new([Step::says([]), Step::text("sorry"), Step::says([]), Step::says([]), Step::says([])]).await;
    let mut conversation = bed.begin().await;
    assert_eq!(bed.say(&mut conversation, "a").await.stop_reason, StopReason::Answered);
    let ended = bed.say(&mut conversation, "b").await;
    assert_eq!((ended.stop_reason, ended.model_calls), (StopReason::EmptyReply, 3));
    bed.leave().await;
}

#[tokio::test]
async fn a_tool_that_is_not_there_is_told_and_ends_the_turn_the_third_time() {
    let wrong = |n: u32| Step::call(&format!("w{n}"), "fly_to_the_moon", json!({}));
    let bed = Bed::new([wrong(1), Step::text("sorry"), wrong(2), wrong(3), wrong(4)]).await;
    let mut conversation = bed.begin().await;
    assert_eq!(bed.say(&mut conversation, "a").await.stop_reason, StopReason::Answered);
    assert!(bed.seen()[0]["error"].as_str().unwrap().contains("there are: terminal"));
    assert_eq!(bed.say(&mut conversation, "b").await.stop_reason, StopReason::InvalidCalls);
    bed.leave().await;
}

#[tokio::test]
async fn when_the_budget_is_used_up_the_model_says_what_was_done() {
    let again = |n: u32| Step::says([call(&format!("c{n}"), &format!("echo {n}"))]);
    let mut bed = Bed::new([again(1), again(2), Step::text("I did two things")]).await;
    bed.budget = 2;
    let mut conversation = bed.begin().await;
    let ended = bed.say(&mut conversation, "go").await;
    assert_eq!((ended.stop_reason, ended.text.as_str()), (StopReason::BudgetExhausted, "I did two things"));
    assert!(bed.model.received()[2].json.get("tools").is_none());
    assert_eq!(bed.kept(&conversation).await.last().unwrap(), "assistant: I did two things");
    bed.leave().await;
}

#[tokio::test]
async fn a_model_that_goes_round_in_circles_hears_of_it() {
    let again = |n: u32| Step::says([call(&format!("c{n}"), "false")]);
    let bed = Bed::new([again(1), again(2), Step::text("I stop")]).await;
    let mut conversation = bed.begin().await;
    assert_eq!(bed.say(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    let seen = bed.seen();
    assert!(seen[0].get("warning").is_none());
    assert!(seen[1]["warning"].as_str().unwrap().contains("failed 2 times"), "{}", seen[1]);
    bed.leave().await;

    let mut bed = Bed::new((1..=5).map(again)).await;
    bed.guard.stop = true;
    let mut conversation = bed.begin().await;
    assert!(matches!(bed.say(&mut conversation, "go").await.stop_reason, StopReason::Loop(_)));
    bed.leave().await;
}

#[tokio::test]
async fn every_request_of_a_session_begins_with_the_same_bytes() {
    let mut steps = Vec::new();
    for n in 0..10 {
        steps.push(Step::says([call(&format!("c{n}"), &format!("echo {n}"))]));
        steps.push(Step::text(&format!("answer {n}")));
    }
    let bed = Bed::new(steps).await;
    let mut conversation = bed.begin().await;
    for n in 0..10 {
        if n == 5 {
            // As another process would go on.
            conversation =
                Conversation::resume(bed.hands(), bed.mind(), conversation.id().clone()).await.unwrap();
        }
        assert_eq!(
            bed.say(&mut conversation, &format!("question {n}")).await.stop_reason,
            StopReason::Answered
        );
    }
    let received = bed.model.received();
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
    bed.leave().await;
}

#[tokio::test]
async fn what_a_person_says_meanwhile_comes_with_the_next_result() {
    let bed =
        Bed::new([Step::says([call("c1", "echo 1")]), Step::text("ok"), Step::text("nothing to do")]).await;
    let mut conversation = bed.begin().await;
    let control = TurnControl::default();
    control.steer("and be quick");
    let ended = bed.say_with(&mut conversation, "go", &control).await;
    assert_eq!(bed.seen()[0]["user_says"], "and be quick");
    assert_eq!(ended.pending_steer, None);
    control.steer("too late");
    let ended = bed.say_with(&mut conversation, "again", &control).await;
    assert_eq!(ended.pending_steer.map(|untold| untold.text).as_deref(), Some("too late"));
    bed.leave().await;
}

#[tokio::test]
async fn what_was_said_last_can_be_taken_back() {
    let bed = Bed::new([Step::text("one"), Step::text("two"), Step::text("three")]).await;
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "a").await;
    bed.say(&mut conversation, "b").await;
    assert_eq!(conversation.undo().await.unwrap(), Some("b".into()));
    bed.say(&mut conversation, "c").await;
    assert_eq!(bed.kept(&conversation).await, ["user: a", "assistant: one", "user: c", "assistant: three"]);
    bed.leave().await;
}
