//! What background processes tell, and who hears it.

use std::path::Path;
use std::time::Duration;

use futures_util::FutureExt;
use hermes_agent::{Conversation, StopReason, ToolContext, TurnControl};
use hermes_testkit::Step;
use serde_json::{Value, json};

use crate::bed::Bed;

/// How long something may take before a test gives up.
const PATIENCE: Duration = Duration::from_secs(60);

fn background(id: &str, command: &str, more: Value) -> Step {
    let mut arguments = json!({"command": command, "background": true});
    arguments.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    Step::call(id, "terminal", arguments)
}

fn foreground(id: &str, command: &str) -> Step {
    Step::call(id, "terminal", json!({"command": command}))
}

/// Waits until nothing runs in the background.
async fn all_ended(hands: &ToolContext) {
    let processes = hands.open_place(&|_| {}).await.unwrap().processes().await.unwrap();
    for view in processes.list().await.unwrap() {
        let view = processes.wait(view.process, PATIENCE).await.unwrap();
        assert!(view.ended.is_some(), "{view:?}");
    }
}

async fn noticed(hands: &ToolContext) -> String {
    tokio::time::timeout(PATIENCE, hands.next_process_event()).await.unwrap()
}

/// Nothing comes any more. Whatever there is was sent before the answer to a question.
async fn hears_nothing(hands: &ToolContext) {
    all_ended(hands).await;
    assert_eq!(hands.next_process_event().now_or_never(), None);
}

fn let_go(bed: &Bed) {
    std::fs::write(bed.work().join("go"), "").unwrap();
}

/// A command that waits for [`let_go`].
fn waits(then: &str) -> String {
    format!("until [ -e go ]; do sleep 0.02; done; {then}")
}

#[tokio::test]
async fn an_end_is_told_once_to_whoever_waits() {
    let secret = format!("ghp_{}", "a1B2".repeat(9));
    let steps = [
        background(
            "c1",
            &waits(&format!("echo all {secret} done; exit 3")),
            json!({"notify_on_complete": true}),
        ),
        Step::text("It runs."),
        Step::text("I heard."),
    ];
    let bed = Bed::new(steps).await;
    let mut conversation = bed.begin().await;
    assert!(!conversation.tool_context().has_subscriptions());
    bed.say(&mut conversation, "go").await;
    let hands = conversation.tool_context().clone();
    assert!(hands.has_subscriptions());
    let_go(&bed);
    let text = noticed(&hands).await;
    let id = bed.seen()[0]["session_id"].as_str().unwrap().to_owned();
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
    assert!(!hands.has_subscriptions());
    hears_nothing(&hands).await;
    assert_eq!(bed.say(&mut conversation, &text).await.text, "I heard.");
    assert_eq!(bed.kept(&conversation).await[4], format!("user: {text}"));
    bed.leave().await;
}

#[tokio::test]
async fn in_a_turn_it_comes_with_the_next_result() {
    let bed = Bed::new([
        background("c1", &waits("echo done"), json!({"notify_on_complete": true})),
        Step::text("It runs."),
        foreground("c2", "echo two"),
        foreground("c3", "echo three"),
        Step::text("I heard."),
    ])
    .await;
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    let_go(&bed);
    all_ended(conversation.tool_context()).await;
    assert_eq!(bed.say(&mut conversation, "and?").await.stop_reason, StopReason::Answered);
    let seen = bed.seen();
    let told: Vec<_> = seen.iter().filter_map(|answer| answer["notice"].as_str()).collect();
    assert_eq!(told.len(), 1, "{seen:?}");
    assert!(
        told[0].contains("has ended with exit code 0") && told[0].ends_with("Output:\ndone]"),
        "{told:?}"
    );
    assert!(seen[0].get("notice").is_none(), "{seen:?}");
    hears_nothing(conversation.tool_context()).await;
    bed.kept(&conversation).await;
    bed.leave().await;
}

#[tokio::test]
async fn an_end_that_the_model_has_seen_is_not_told() {
    let bed = Bed::new([
        background("c1", "true", json!({"notify_on_complete": true})),
        // The beginning of an id is enough where only one has it.
        Step::call("c2", "process", json!({"action": "wait", "session_id": "proc_"})),
        Step::text("It ended."),
    ])
    .await;
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    assert_eq!(bed.seen()[1]["status"], "exited");
    assert!(bed.seen()[1].get("notice").is_none(), "{:?}", bed.seen());
    hears_nothing(conversation.tool_context()).await;
    bed.leave().await;
}

#[tokio::test]
async fn lines_with_a_watched_word_are_told_and_the_end_is_not() {
    let command = waits("echo starting; echo ready one; echo ready two");
    let bed =
        Bed::new([background("c1", &command, json!({"watch_patterns": ["ready"]})), Step::text("It runs.")])
            .await;
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    let_go(&bed);
    let text = noticed(conversation.tool_context()).await;
    assert!(
        text.contains(" has a line with a watched word.\n") && text.ends_with("\nLine:\nready one]"),
        "{text}"
    );
    hears_nothing(conversation.tool_context()).await;
    bed.leave().await;
}

#[tokio::test]
async fn after_a_restart_what_was_told_is_not_told_again_and_the_rest_is() {
    let notify = json!({"notify_on_complete": true});
    let bed = Bed::new([
        background("c1", "echo first", notify.clone()),
        Step::text("It runs."),
        Step::text("I heard of the first."),
        background("c2", &waits("echo second"), notify),
        Step::text("It runs too."),
        foreground("c3", "echo three"),
        Step::text("Well."),
    ])
    .await;
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    let text = noticed(conversation.tool_context()).await;
    bed.say(&mut conversation, &text).await;
    bed.say(&mut conversation, "another").await;
    let id = conversation.id().clone();
    drop(conversation);
    let mut conversation = Conversation::resume(bed.hands(), bed.mind(), id).await.unwrap();
    let_go(&bed);
    // Until a tool needs the place, nobody listens.
    bed.say(&mut conversation, "what is there?").await;
    let seen = bed.seen();
    let text = match seen[2]["notice"].as_str() {
        Some(text) => text.to_owned(),
        None => noticed(conversation.tool_context()).await,
    };
    assert!(text.ends_with("Output:\nsecond]") && !text.contains("first"), "{text}");
    hears_nothing(conversation.tool_context()).await;
    bed.leave().await;
}

#[tokio::test]
async fn results_that_are_too_long_together_are_put_into_files_the_longest_first() {
    let sizes = [49_000, 30_000, 45_000, 40_000, 44_000];
    let calls = sizes.iter().zip(1..).map(|(size, n)| hermes_testkit::Said::Call {
        id: format!("c{n}"),
        name: "terminal".to_owned(),
        arguments: json!({"command": format!("head -c {size} /dev/zero | tr '\\0' {n}")}),
    });
    let bed = Bed::new([Step::says(calls), Step::text("Long."), Step::text("Still long.")]).await;
    let mut conversation = bed.begin().await;
    // What a person says beside a result stays, however long it is.
    let (control, words) = (TurnControl::default(), "quick! ".repeat(100));
    control.steer(words.as_str());
    bed.say_with(&mut conversation, "look", &control).await;
    let seen = bed.seen();
    let lengths: Vec<_> = seen.iter().map(|answer| answer["output"].as_str().map(str::len)).collect();
    assert_eq!(lengths, [None, Some(30_000), Some(45_000), Some(40_000), Some(44_000)]);
    assert_eq!([&seen[0]["size"], &seen[0]["exit_code"]], [&json!(49_000), &json!(0)]);
    assert_eq!(seen[0]["user_says"], words);
    assert!(seen[0]["hint"].as_str().unwrap().contains("too long"), "{}", seen[0]);
    let path = seen[0]["full_result"].as_str().unwrap().replacen('~', &bed.work().display().to_string(), 1);
    assert_eq!(std::fs::read_to_string(Path::new(&path)).unwrap(), "1".repeat(49_000));
    // What was kept is what the model saw, and stays so.
    bed.kept(&conversation).await;
    bed.say(&mut conversation, "again").await;
    assert_eq!(bed.seen(), seen);
    bed.leave().await;
}
