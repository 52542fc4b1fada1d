//! Questions of the gate during a turn.

use hermes_agent::StopReason;
use hermes_store::{AnswerResult, QuestionState};
use hermes_testkit::ScriptStep;
use hermes_types::{Answer, Choice, Person, Timestamp};
use serde_json::json;

use crate::chat::ChatEnv;

/// A command that needs approval.
const DANGEROUS: &str = "chmod -R 777 . && echo ran >>log";

fn dangerous(id: &str) -> ScriptStep {
    ScriptStep::call(id, "terminal", json!({"command": DANGEROUS}))
}

/// One line for each run of the command.
fn log(env: &ChatEnv) -> String {
    std::fs::read_to_string(env.work().join("log")).unwrap_or_default()
}

/// A model that calls the dangerous command once or twice.
async fn dangerous_chat(again: bool) -> ChatEnv {
    let mut steps = vec![dangerous("c1"), ScriptStep::text("ok")];
    if again {
        steps.extend([dangerous("c2"), ScriptStep::text("ok")]);
    }
    ChatEnv::new(steps).await
}

#[tokio::test]
async fn a_denied_command_does_not_run_and_the_model_sees_why() {
    let env = dangerous_chat(false).await;
    env.approver.answer_with(Choice::Deny { reason: Some("not that one".to_owned()) });
    let mut conversation = env.create().await;
    assert_eq!(env.run(&mut conversation, "go").await.stop_reason, StopReason::Answered);
    assert_eq!(log(&env), "");
    let seen = env.seen();
    assert_eq!(seen[0]["status"], "blocked");
    assert!(seen[0]["error"].as_str().unwrap().contains("not that one"), "{}", seen[0]);
    let questions = env.store.session_questions(conversation.id()).await.unwrap();
    assert!(matches!(&questions[..], [one] if matches!(one.state, QuestionState::Answered(_))));
    env.finish().await;
}

#[tokio::test]
async fn an_approval_for_the_session_is_stored_and_not_asked_again() {
    let env = dangerous_chat(true).await;
    env.approver.answer_with(Choice::Session);
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    assert_eq!(log(&env), "ran\n");
    env.run(&mut conversation, "again").await;
    assert_eq!(log(&env), "ran\nran\n");
    assert_eq!(env.approver.question_ids().len(), 1);
    assert_eq!(env.store.grants(None).await.unwrap().len(), 1);
    env.finish().await;
}

#[tokio::test]
async fn a_revoked_grant_is_asked_for_again() {
    let env = dangerous_chat(true).await;
    env.approver.answer_with(Choice::Always);
    let mut conversation = env.create().await;
    env.run(&mut conversation, "go").await;
    for grant in env.store.grants(None).await.unwrap() {
        env.store.revoke_grant(&grant.id, &Person::new("cli"), Timestamp::now()).await.unwrap();
    }
    env.approver.answer_with(Choice::Deny { reason: None });
    env.run(&mut conversation, "again").await;
    assert_eq!(log(&env), "ran\n");
    assert_eq!(env.approver.question_ids().len(), 2);
    env.finish().await;
}

#[tokio::test]
async fn an_answer_from_another_process_counts() {
    let env = dangerous_chat(false).await;
    let mut conversation = env.create().await;
    let answer = async {
        env.approver.asked.notified().await;
        let open = env.store.open_questions(Timestamp::now()).await.unwrap();
        let answer = Answer { by: Person::new("cli"), at: Timestamp::now(), choice: Choice::Once };
        assert_eq!(env.store.answer_question(&open[0].id, answer).await.unwrap(), AnswerResult::Accepted);
    };
    let (result, ()) = tokio::join!(env.run(&mut conversation, "go"), answer);
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert_eq!(log(&env), "ran\n");
    assert!(env.store.session_questions(conversation.id()).await.unwrap()[0].is_used);
    env.finish().await;
}
