//! Questions of the gate in the middle of a turn.

use hermes_agent::StopReason;
use hermes_policy::Choice;
use hermes_store::{Answer, Answering, Choice as Kept, QuestionState};
use hermes_testkit::Step;
use hermes_types::Person;
use serde_json::json;

use crate::bed::{Bed, now};

/// What has to be asked about.
const DANGEROUS: &str = "chmod -R 777 . && echo ran >>log";

fn dangerous(id: &str) -> Step {
    Step::call(id, "terminal", json!({"command": DANGEROUS}))
}

/// What ran, in a line each time.
fn log(bed: &Bed) -> String {
    std::fs::read_to_string(bed.work().join("log")).unwrap_or_default()
}

/// A bed whose model asks for something dangerous, and then answers.
async fn bed(again: bool) -> Bed {
    let mut steps = vec![dangerous("c1"), Step::text("ok")];
    if again {
        steps.extend([dangerous("c2"), Step::text("ok")]);
    }
    Bed::new(steps).await
}

#[tokio::test]
async fn a_no_is_told_and_nothing_ran() {
    let bed = bed(false).await;
    *bed.people.choice.lock().unwrap() = Some(Choice::Deny(Some("not that one".to_owned())));
    let mut conversation = bed.begin().await;
    assert_eq!(bed.say(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    assert_eq!(log(&bed), "");
    let seen = bed.seen();
    assert_eq!(seen[0]["status"], "blocked");
    assert!(seen[0]["error"].as_str().unwrap().contains("not that one"), "{}", seen[0]);
    let questions = bed.store.questions_of(conversation.id()).await.unwrap();
    assert!(matches!(&questions[..], [one] if matches!(one.state, QuestionState::Answered(_))));
    bed.leave().await;
}

#[tokio::test]
async fn a_yes_for_the_session_is_kept_and_not_asked_again() {
    let bed = bed(true).await;
    *bed.people.choice.lock().unwrap() = Some(Choice::Session);
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    assert_eq!(log(&bed), "ran\n");
    bed.say(&mut conversation, "again").await;
    assert_eq!(log(&bed), "ran\nran\n");
    assert_eq!(bed.people.asked.lock().unwrap().len(), 1);
    assert_eq!(bed.store.grants().await.unwrap().len(), 1);
    bed.leave().await;
}

#[tokio::test]
async fn a_yes_that_was_taken_back_is_asked_for_again() {
    let bed = bed(true).await;
    *bed.people.choice.lock().unwrap() = Some(Choice::Always);
    let mut conversation = bed.begin().await;
    bed.say(&mut conversation, "go").await;
    for grant in bed.store.grants().await.unwrap() {
        bed.store.revoke(&grant.id, &Person::new("cli"), now()).await.unwrap();
    }
    *bed.people.choice.lock().unwrap() = Some(Choice::Deny(None));
    bed.say(&mut conversation, "again").await;
    assert_eq!(log(&bed), "ran\n");
    assert_eq!(bed.people.asked.lock().unwrap().len(), 2);
    bed.leave().await;
}

#[tokio::test]
async fn an_answer_that_comes_from_elsewhere_counts() {
    let bed = bed(false).await;
    let mut conversation = bed.begin().await;
    let answer = async {
        bed.people.heard.notified().await;
        let open = bed.store.open_questions(now()).await.unwrap();
        let answer = Answer { by: Person::new("cli"), at: now(), choice: Kept::Once };
        assert_eq!(bed.store.answer(&open[0].id, answer).await.unwrap(), Answering::Counts);
    };
    let (ended, ()) = tokio::join!(bed.say(&mut conversation, "go"), answer);
    assert_eq!(ended.stop_reason, StopReason::Answered);
    assert_eq!(log(&bed), "ran\n");
    assert!(bed.store.questions_of(conversation.id()).await.unwrap()[0].is_used);
    bed.leave().await;
}
