//! Turns whose process was killed. What only a process can lose is lost here too: the conversation is dropped where it
//! stands, and another one goes on from what was kept.

use std::time::Duration;

use hermes_agent::{Conversation, StopReason, TurnControl, TurnEvent, TurnResult};
use hermes_store::{Answer, Choice, SessionId};
use hermes_testkit::{Said, Step};
use hermes_types::Person;
use serde_json::json;

use crate::bed::{Bed, now};

fn call(id: &str, command: &str) -> Said {
    Said::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments: json!({"command": command}) }
}

/// Begins a turn and drops it when this comes true.
async fn killed(bed: &Bed, when: impl AsyncFn()) -> SessionId {
    let mut conversation = bed.begin().await;
    let id = conversation.id().clone();
    let control = TurnControl::default();
    let watch = |_event: TurnEvent| {};
    tokio::select! {
        biased;
        ended = conversation.run_turn("go", &control, &watch) => panic!("{ended:?}"),
        () = when() => {}
    }
    id
}

async fn carried_on(bed: &Bed, id: SessionId) -> (Conversation, TurnResult) {
    let mut conversation = Conversation::resume(bed.hands(), bed.mind(), id).await.unwrap();
    let watch = |event| bed.events.lock().unwrap().push(event);
    let ended = conversation.resume_turn(&TurnControl::default(), &watch).await.unwrap().unwrap();
    assert!(conversation.resume_turn(&TurnControl::default(), &watch).await.unwrap().is_none());
    (conversation, ended)
}

#[tokio::test]
async fn what_was_under_way_is_not_run_again_and_what_had_not_begun_is_run() {
    let bed = Bed::new([
        Step::says([
            call("c1", "echo 1 >>log"),
            call("c2", "echo 2 >>log; touch begun; sleep 60"),
            call("c3", "echo 3 >>log"),
        ]),
        Step::text("well"),
    ])
    .await;
    let begun = bed.work().join("begun");
    let id = killed(&bed, async || {
        while !begun.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let (conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(bed.work().join("log")).unwrap(), "1\n2\n3\n");
    let seen = bed.seen();
    assert_eq!(seen[0]["exit_code"], 0);
    assert!(seen[1]["error"].as_str().unwrap().contains("may have run"), "{}", seen[1]);
    assert_eq!(seen[2]["exit_code"], 0);
    assert_eq!(bed.kept(&conversation).await.len(), 6);
    bed.leave().await;
}

#[tokio::test]
async fn a_model_that_had_not_answered_is_asked_again() {
    let bed = Bed::new([Step::says([call("c1", "echo 1 >>log")]), Step::Silence, Step::text("well")]).await;
    let id = killed(&bed, async || {
        while bed.model.received().len() < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    let (conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.text, "well");
    assert_eq!(std::fs::read_to_string(bed.work().join("log")).unwrap(), "1\n");
    assert_eq!(
        bed.kept(&conversation).await,
        ["user: go", "assistant:  [c1]", "tool: [c1]", "assistant: well"]
    );
    bed.leave().await;
}

/// A bed whose model wants something dangerous, and the session in which nobody has answered yet.
async fn with_open_question() -> (Bed, SessionId) {
    let command = "echo ran >>log; chmod -R 777 .";
    let bed = Bed::new([Step::says([call("c1", command)]), Step::text("well")]).await;
    let id = killed(&bed, async || bed.people.heard.notified().await).await;
    assert!(!bed.work().join("log").exists());
    (bed, id)
}

#[tokio::test]
async fn a_question_that_was_answered_meanwhile_lets_its_command_run_once() {
    let (bed, id) = with_open_question().await;
    let open = bed.store.open_questions(now()).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: now(), choice: Choice::Once };
    bed.store.answer(&open[0].id, answer).await.unwrap();
    let (_conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(bed.work().join("log")).unwrap(), "ran\n");
    assert_eq!(bed.people.asked.lock().unwrap().len(), 1);
    bed.leave().await;
}

#[tokio::test]
async fn a_question_that_is_still_open_is_put_again_under_its_own_name() {
    let (bed, id) = with_open_question().await;
    *bed.people.choice.lock().unwrap() = Some(hermes_policy::Choice::Once);
    let (_conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(bed.work().join("log")).unwrap(), "ran\n");
    let asked = bed.people.asked.lock().unwrap().clone();
    assert!(asked.len() == 2 && asked[0] == asked[1], "{asked:?}");
    bed.leave().await;
}

#[tokio::test]
async fn an_answer_that_was_acted_upon_does_not_run_its_command_again() {
    let (bed, id) = with_open_question().await;
    let open = bed.store.open_questions(now()).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: now(), choice: Choice::Once };
    bed.store.answer(&open[0].id, answer).await.unwrap();
    assert!(bed.store.use_answer(&open[0].id, now()).await.unwrap());
    assert!(!bed.store.use_answer(&open[0].id, now()).await.unwrap());
    let (_conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert!(!bed.work().join("log").exists());
    assert!(bed.seen()[0]["error"].as_str().unwrap().contains("may have run"));
    bed.leave().await;
}

#[tokio::test]
async fn a_script_in_which_somebody_was_asked_is_not_run_again() {
    let code = "open('log', 'a').write('x')\nfrom hermes_tools import terminal\nterminal('r' + 'm -rf .git')";
    let script =
        Said::Call { id: "c1".to_owned(), name: "execute_code".to_owned(), arguments: json!({"code": code}) };
    let bed = Bed::new([Step::says([script]), Step::text("well")]).await;
    std::fs::create_dir(bed.work().join(".git")).unwrap();
    let id = killed(&bed, async || bed.people.heard.notified().await).await;
    let (conversation, ended) = carried_on(&bed, id).await;
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert!(format!("{:?}", conversation.history()).contains("it may have run, in part or not at all"));
    assert_eq!(std::fs::read_to_string(bed.work().join("log")).unwrap(), "x");
    assert!(bed.work().join(".git").exists() && bed.people.asked.lock().unwrap().len() == 1);
    bed.leave().await;
}
