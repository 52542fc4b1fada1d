//! Turns whose process was killed. Dropping the conversation loses the same state as a kill, and
//! another conversation resumes from the store.

use hermes_agent::{Conversation, StopReason, TurnEvent, TurnResult};
use hermes_store::SessionId;
use hermes_testkit::{ReplyItem, ScriptStep};
use hermes_types::{Answer, Choice, Person, Timestamp};
use serde_json::json;

use crate::chat::{ChatEnv, turn_control};
use crate::fixture::eventually;

fn call(id: &str, command: &str) -> ReplyItem {
    ReplyItem::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments: json!({"command": command}) }
}

/// Starts a turn and drops it at some point.
async fn run_and_drop(env: &ChatEnv, when: impl AsyncFn()) -> SessionId {
    let mut conversation = env.create().await;
    let id = conversation.id().clone();
    let control = turn_control();
    let observer = |_event: TurnEvent| {};
    tokio::select! {
        biased;
        result = conversation.run_turn("go", &control, &observer) => panic!("{result:?}"),
        () = when() => {}
    }
    id
}

async fn resume(env: &ChatEnv, id: SessionId) -> (Conversation, TurnResult) {
    let mut conversation = Conversation::resume(env.context(), env.model_config(), id).await.unwrap();
    let observer = |event| env.events.lock().unwrap().push(event);
    let result = conversation.resume_turn(&turn_control(), &observer).await.unwrap().unwrap();
    assert!(conversation.resume_turn(&turn_control(), &observer).await.unwrap().is_none());
    (conversation, result)
}

#[tokio::test]
async fn a_running_call_is_not_repeated_and_a_pending_one_is_run() {
    let env = ChatEnv::new([
        ScriptStep::reply([
            call("c1", "echo 1 >>log"),
            call("c2", "echo 2 >>log; touch begun; sleep 60"),
            call("c3", "echo 3 >>log"),
        ]),
        ScriptStep::text("well"),
    ])
    .await;
    let begun = env.work().join("begun");
    let id =
        run_and_drop(&env, async || eventually("the second call runs", async || begun.exists()).await).await;
    let (conversation, result) = resume(&env, id).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(env.work().join("log")).unwrap(), "1\n2\n3\n");
    let seen = env.seen();
    assert_eq!(seen[0]["exit_code"], 0);
    assert!(seen[1]["error"].as_str().unwrap().contains("may have run"), "{}", seen[1]);
    assert_eq!(seen[2]["exit_code"], 0);
    assert_eq!(env.stored(&conversation).await.len(), 6);
    env.finish().await;
}

#[tokio::test]
async fn a_request_without_a_reply_is_repeated() {
    let env = ChatEnv::new([
        ScriptStep::reply([call("c1", "echo 1 >>log")]),
        ScriptStep::Silence,
        ScriptStep::text("well"),
    ])
    .await;
    let id = run_and_drop(&env, async || {
        eventually("the model is asked again", async || env.model.received().len() >= 2).await;
    })
    .await;
    let (conversation, result) = resume(&env, id).await;
    assert_eq!(result.text, "well");
    assert_eq!(std::fs::read_to_string(env.work().join("log")).unwrap(), "1\n");
    assert_eq!(
        env.stored(&conversation).await,
        ["user: go", "assistant:  [c1]", "tool: [c1]", "assistant: well"]
    );
    env.finish().await;
}

/// A session with an unanswered question.
async fn with_open_question() -> (ChatEnv, SessionId) {
    let command = "echo ran >>log; chmod -R 777 .";
    let env = ChatEnv::new([ScriptStep::reply([call("c1", command)]), ScriptStep::text("well")]).await;
    let id = run_and_drop(&env, async || env.approver.asked.notified().await).await;
    assert!(!env.work().join("log").exists());
    (env, id)
}

#[tokio::test]
async fn an_answered_question_runs_its_command_once() {
    let (env, id) = with_open_question().await;
    let open = env.store.open_questions(Timestamp::now()).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: Timestamp::now(), choice: Choice::Once };
    env.store.answer_question(&open[0].id, answer).await.unwrap();
    let (_conversation, result) = resume(&env, id).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(env.work().join("log")).unwrap(), "ran\n");
    assert_eq!(env.approver.question_ids().len(), 1);
    env.finish().await;
}

#[tokio::test]
async fn an_open_question_is_asked_again_with_the_same_id() {
    let (env, id) = with_open_question().await;
    env.approver.answer_with(hermes_types::Choice::Once);
    let (_conversation, result) = resume(&env, id).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert_eq!(std::fs::read_to_string(env.work().join("log")).unwrap(), "ran\n");
    let asked = env.approver.question_ids();
    assert!(asked.len() == 2 && asked[0] == asked[1], "{asked:?}");
    env.finish().await;
}

#[tokio::test]
async fn a_used_answer_does_not_run_its_command_again() {
    let (env, id) = with_open_question().await;
    let open = env.store.open_questions(Timestamp::now()).await.unwrap();
    let answer = Answer { by: Person::new("cli"), at: Timestamp::now(), choice: Choice::Once };
    env.store.answer_question(&open[0].id, answer).await.unwrap();
    assert!(env.store.consume_answer(&open[0].id, Timestamp::now()).await.unwrap());
    assert!(!env.store.consume_answer(&open[0].id, Timestamp::now()).await.unwrap());
    let (_conversation, result) = resume(&env, id).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert!(!env.work().join("log").exists());
    assert!(env.seen()[0]["error"].as_str().unwrap().contains("may have run"));
    env.finish().await;
}

#[tokio::test]
async fn a_script_with_an_open_question_is_not_run_again() {
    let code = "open('log', 'a').write('x')\nfrom hermes_tools import terminal\nterminal('r' + 'm -rf .git')";
    let script = ReplyItem::Call {
        id: "c1".to_owned(),
        name: "execute_code".to_owned(),
        arguments: json!({"code": code}),
    };
    let env = ChatEnv::new([ScriptStep::reply([script]), ScriptStep::text("well")]).await;
    std::fs::create_dir(env.work().join(".git")).unwrap();
    let id = run_and_drop(&env, async || env.approver.asked.notified().await).await;
    let (conversation, result) = resume(&env, id).await;
    assert_eq!(result.stop_reason, StopReason::Answered);
    assert!(format!("{:?}", conversation.history()).contains("it may have run, in part or not at all"));
    assert_eq!(std::fs::read_to_string(env.work().join("log")).unwrap(), "x");
    assert!(env.work().join(".git").exists() && env.approver.question_ids().len() == 1);
    env.finish().await;
}
