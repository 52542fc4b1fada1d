//! Questions, answers and grants.

use std::time::Duration;

use hermes_store::{
    AnswerResult, Error, GrantRow, NewMessage, NewQuestion, QuestionState, Store, WaitingCall,
};
use hermes_types::{Answer, CallId, Choice, GrantScope, Person, SessionKey};
use serde_json::json;

use crate::{Home, at, session, user};

fn question(id: &str) -> NewQuestion {
    NewQuestion {
        id: id.to_owned(),
        key: SessionKey::new("key"),
        waiting_call: None,
        stored: json!({"id": id, "job": {"work": {"shell": "rm -r x"}, "cwd": "/"}}),
        shown: json!({"parts": [{"text": "rm -r x", "dangerous": true}]}),
        approvers: vec![Person::new("cli"), Person::new("discord:7")],
        created: at(0),
        expires: at(300),
    }
}

fn answer(by: &str, seconds: u64, choice: Choice) -> Answer {
    Answer { by: Person::new(by), at: at(seconds), choice }
}

async fn state(store: &Store, id: &str) -> QuestionState {
    store.question(id).await.unwrap().unwrap().state
}

#[tokio::test]
async fn only_the_first_answer_of_an_approver_counts() {
    let home = Home::new();
    let store = home.store().await;
    store.save_question(question("q_a")).await.unwrap();
    assert!(matches!(store.save_question(question("q_a")).await, Err(Error::DuplicateQuestion(_))));
    let say = async |id: &str, answer: Answer| store.answer_question(id, answer).await.unwrap();
    assert_eq!(say("q_none", answer("cli", 1, Choice::Once)).await, AnswerResult::NoQuestion);
    assert_eq!(say("q_a", answer("mallory", 1, Choice::Once)).await, AnswerResult::NotApprover);
    let deny = answer("discord:7", 2, Choice::Deny { reason: Some("not now".to_owned()) });
    assert_eq!(say("q_a", deny.clone()).await, AnswerResult::Accepted);
    let decided = QuestionState::Answered(deny);
    assert_eq!(say("q_a", answer("cli", 3, Choice::Always)).await, AnswerResult::TooLate(decided.clone()));
    assert_eq!(store.withdraw_question("q_a", at(4)).await.unwrap(), Some(decided.clone()));
    assert_eq!(store.expire_question("q_a", at(400)).await.unwrap(), Some(decided.clone()));
    assert_eq!(state(&store, "q_a").await, decided);

    store.save_question(question("q_b")).await.unwrap();
    let late = answer("cli", 300, Choice::Once);
    assert_eq!(say("q_b", late).await, AnswerResult::TooLate(QuestionState::Expired));
    assert_eq!(state(&store, "q_b").await, QuestionState::Expired);
    store.save_question(question("q_c")).await.unwrap();
    assert_eq!(store.withdraw_question("q_c", at(1)).await.unwrap(), Some(QuestionState::Withdrawn));
    let late = answer("cli", 2, Choice::Once);
    assert_eq!(say("q_c", late).await, AnswerResult::TooLate(QuestionState::Withdrawn));
    assert_eq!(store.expire_question("q_zzz", at(1)).await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_is_used_once() {
    let home = Home::new();
    let store = home.store().await;
    store.save_question(question("q_a")).await.unwrap();
    assert!(!store.consume_answer("q_a", at(1)).await.unwrap(), "there is no answer yet");
    store.answer_question("q_a", answer("cli", 1, Choice::Once)).await.unwrap();
    assert!(!store.question("q_a").await.unwrap().unwrap().is_used);
    let other = home.store().await;
    let (here, there) = tokio::join!(store.consume_answer("q_a", at(2)), other.consume_answer("q_a", at(2)));
    assert_ne!(here.unwrap(), there.unwrap());
    assert!(store.question("q_a").await.unwrap().unwrap().is_used);
    assert!(!store.consume_answer("q_none", at(2)).await.unwrap());
}

#[tokio::test]
async fn open_questions_are_listed() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![NewMessage::new(user("x"), at(0))], vec![], at(0)).await.unwrap();
    let waiting_call = Some(WaitingCall { session: id.clone(), turn, call: CallId::new("c1") });
    store.save_question(NewQuestion { waiting_call, ..question("q_a") }).await.unwrap();
    store.save_question(NewQuestion { expires: at(10), ..question("q_b") }).await.unwrap();
    let open = async |seconds| -> Vec<String> {
        store.open_questions(at(seconds)).await.unwrap().into_iter().map(|question| question.id).collect()
    };
    assert_eq!(open(5).await, ["q_a", "q_b"]);
    assert_eq!(open(10).await, ["q_a"]);
    let of_session = store.session_questions(&id).await.unwrap();
    let [row] = of_session.as_slice() else { panic!("{of_session:?}") };
    assert_eq!((row.session.as_ref(), row.call.as_ref()), (Some(&id), Some(&CallId::new("c1"))));
    assert_eq!((&row.stored, &row.approvers), (&question("q_a").stored, &question("q_a").approvers));
    let named = async |text: &str| store.questions_by_prefix(text).await.unwrap().len();
    assert_eq!((named("q_").await, named("q_a").await, named("").await, named("%").await), (2, 1, 0, 0));
    store.close_turn(turn, "text", vec![], at(11)).await.unwrap();
    store.remove_session(&id).await.unwrap();
    assert_eq!(store.question("q_a").await.unwrap(), None, "the question is removed with its session");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_many_concurrent_answers_one_counts() {
    let home = Home::new();
    let store = home.store().await;
    let other = home.store().await;
    for round in 0..20 {
        let id = format!("q_{round}");
        store.save_question(question(&id)).await.unwrap();
        let tries = (0..8).map(|number| {
            let (store, id) = (if number % 2 == 0 { store.clone() } else { other.clone() }, id.clone());
            let choice = if number % 3 == 0 { Choice::Deny { reason: None } } else { Choice::Once };
            tokio::spawn(
                async move { store.answer_question(&id, answer("cli", number, choice)).await.unwrap() },
            )
        });
        let tries: Vec<_> = tries.collect();
        let mut counted = 0;
        for one in tries {
            counted += usize::from(one.await.unwrap() == AnswerResult::Accepted);
        }
        assert_eq!(counted, 1);
    }
}

#[tokio::test]
async fn an_answer_from_another_process_ends_the_wait() {
    let home = Home::new();
    let store = home.store().await;
    store.save_question(question("q_a")).await.unwrap();
    let waiting = tokio::spawn({
        let store = store.clone();
        async move { store.wait_for_decision("q_a").await.unwrap() }
    });
    let said = tokio::task::spawn_blocking({
        let mut peer = home.peer(&["answer", "q_a"]);
        move || peer.output().unwrap()
    });
    let said = said.await.unwrap();
    assert_eq!(String::from_utf8_lossy(&said.stdout), "Accepted\n", "{said:?}");
    let heard = tokio::time::timeout(Duration::from_secs(30), waiting).await.unwrap().unwrap();
    assert!(
        matches!(heard, Some(QuestionState::Answered(Answer { choice: Choice::Session, .. }))),
        "{heard:?}"
    );
    assert_eq!(store.wait_for_decision("q_none").await.unwrap(), None);
}

#[tokio::test]
async fn an_answer_in_this_process_ends_the_wait() {
    let home = Home::new();
    let store = home.store().await;
    store.save_question(question("q_a")).await.unwrap();
    let (heard, said) = tokio::join!(
        store.wait_for_decision("q_a"),
        store.answer_question("q_a", answer("cli", 1, Choice::Always))
    );
    assert_eq!(said.unwrap(), AnswerResult::Accepted);
    assert_eq!(heard.unwrap(), Some(QuestionState::Answered(answer("cli", 1, Choice::Always))));
}

#[tokio::test]
async fn grants_last_until_they_are_revoked() {
    let home = Home::new();
    let store = home.store().await;
    let grant = |id: &str, scope| GrantRow {
        id: id.to_owned(),
        scope,
        json: json!({"covers": {"text": id}}),
        given_by: Person::new("cli"),
        given_at: at(1),
    };
    let (here, there) = (SessionKey::new("here"), SessionKey::new("there"));
    let all = vec![
        grant("g_1", GrantScope::Always),
        grant("g_2", GrantScope::Session(here.clone())),
        grant("g_3", GrantScope::Session(there.clone())),
    ];
    store.save_grants(all.clone()).await.unwrap();
    store.save_grants(all).await.unwrap();
    let ids =
        |grants: Vec<hermes_store::GrantRow>| grants.into_iter().map(|grant| grant.id).collect::<Vec<_>>();
    assert_eq!(ids(store.grants(None).await.unwrap()), ["g_1", "g_2", "g_3"]);
    assert_eq!(ids(store.grants(Some(&here)).await.unwrap()), ["g_1", "g_2"]);
    let me = Person::new("cli");
    let revoked = store.revoke_grant("g_1", &me, at(2)).await.unwrap().unwrap();
    assert_eq!((revoked.id.as_str(), revoked.json), ("g_1", json!({"covers": {"text": "g_1"}})));
    assert_eq!(store.revoke_grant("g_1", &me, at(3)).await.unwrap(), None);
    store.revoke_session_grants(&here, &me, at(4)).await.unwrap();
    assert_eq!(ids(store.grants(None).await.unwrap()), ["g_3"]);
    // A revoked grant stays revoked, even if the same answer is processed again after a crash.
    store.save_grants(vec![grant("g_1", GrantScope::Always)]).await.unwrap();
    assert_eq!(ids(store.grants(None).await.unwrap()), ["g_3"]);
}

/// What a command that can write the database file can do.
fn forge(home: &Home, sql: &str) {
    rusqlite::Connection::open(home.file()).unwrap().execute_batch(sql).unwrap();
}

fn always(id: &str) -> GrantRow {
    GrantRow {
        id: id.to_owned(),
        scope: GrantScope::Always,
        json: json!({"covers": {"text": id}}),
        given_by: Person::new("cli"),
        given_at: at(1),
    }
}

async fn grant_ids(store: &Store) -> Vec<String> {
    store.grants(None).await.unwrap().into_iter().map(|grant| grant.id).collect()
}

#[tokio::test]
async fn a_grant_written_into_the_database_file_is_ignored() {
    let home = Home::new();
    let store = home.store().await;
    store.save_grants(vec![always("g_1"), always("g_2")]).await.unwrap();
    assert_eq!(store.invalid_approvals(at(2)).await.unwrap(), None);
    forge(
        &home,
        "INSERT INTO grants (id, json, given_by, given_at) VALUES ('g_new', '{}', 'cli', 1), ('g_bad', '{', 'cli', 1);
         INSERT INTO grants SELECT 'g_copy', key, json, given_by, given_at, NULL, NULL, code FROM grants WHERE id = 'g_1';
         UPDATE grants SET json = '{\"covers\": {}}' WHERE id = 'g_2'",
    );
    assert_eq!(grant_ids(&store).await, ["g_1"]);
    let mut invalid = store.invalid_approvals(at(2)).await.unwrap().unwrap();
    invalid.grants.sort();
    assert_eq!(
        (invalid.has_key, invalid.grants),
        (true, ["g_2", "g_bad", "g_copy", "g_new"].map(str::to_owned).into())
    );
    // The owner can remove one.
    assert!(store.revoke_grant("g_new", &Person::new("cli"), at(3)).await.unwrap().is_some());
    assert_eq!(store.invalid_approvals(at(3)).await.unwrap().unwrap().grants.len(), 3);
}

#[tokio::test]
async fn a_revoked_grant_does_not_come_back_with_an_old_copy_of_its_row() {
    let home = Home::new();
    let store = home.store().await;
    store.save_grants(vec![always("g_1"), always("g_2")]).await.unwrap();
    forge(&home, "CREATE TABLE copies AS SELECT * FROM grants");
    store.revoke_grant("g_1", &Person::new("cli"), at(2)).await.unwrap().unwrap();
    forge(&home, "DELETE FROM grants; INSERT INTO grants SELECT * FROM copies");
    assert_eq!(grant_ids(&store).await, ["g_2"]);
}

#[tokio::test]
async fn an_answer_written_into_the_database_file_is_ignored() {
    let home = Home::new();
    let store = home.store().await;
    for id in ["q_answer", "q_shown", "q_choice", "q_good"] {
        store.save_question(question(id)).await.unwrap();
    }
    for id in ["q_choice", "q_good"] {
        let said = store.answer_question(id, answer("cli", 1, Choice::Once)).await.unwrap();
        assert_eq!(said, AnswerResult::Accepted);
    }
    forge(
        &home,
        "UPDATE questions SET state = 'answered', decided = 1, decided_by = 'cli', choice = 'always' WHERE id = 'q_answer';
         UPDATE questions SET shown = '{\"parts\": []}' WHERE id = 'q_shown';
         UPDATE questions SET choice = 'always' WHERE id = 'q_choice'",
    );
    for id in ["q_answer", "q_shown", "q_choice"] {
        assert_eq!(store.question(id).await.unwrap(), None, "{id}");
        let said = store.answer_question(id, answer("cli", 2, Choice::Once)).await.unwrap();
        assert_eq!(said, AnswerResult::NoQuestion, "{id}");
        assert!(!store.consume_answer(id, at(2)).await.unwrap(), "{id}");
        assert_eq!(store.expire_question(id, at(2)).await.unwrap(), None, "{id}");
    }
    assert_eq!(store.questions_by_prefix("q_").await.unwrap().len(), 1);
    let invalid = store.invalid_approvals(at(2)).await.unwrap().unwrap();
    assert_eq!(invalid.questions, ["q_answer", "q_choice", "q_shown"].map(str::to_owned));
    assert!(store.consume_answer("q_good", at(2)).await.unwrap());
}

#[tokio::test]
async fn a_used_answer_does_not_come_back_with_an_old_copy_of_its_row() {
    let home = Home::new();
    let store = home.store().await;
    let id = session(&store).await;
    let turn = store.open_turn(&id, vec![NewMessage::new(user("x"), at(0))], vec![], at(0)).await.unwrap();
    for name in ["q_used", "q_unused"] {
        let waiting_call = Some(WaitingCall { session: id.clone(), turn, call: CallId::new("c1") });
        store.save_question(NewQuestion { waiting_call, ..question(name) }).await.unwrap();
        store.answer_question(name, answer("cli", 1, Choice::Once)).await.unwrap();
    }
    forge(&home, "CREATE TABLE copies AS SELECT * FROM questions");
    assert!(store.consume_answer("q_used", at(2)).await.unwrap());
    assert!(store.question("q_used").await.unwrap().unwrap().is_used);
    forge(&home, "DELETE FROM questions; INSERT INTO questions SELECT * FROM copies");
    assert!(!store.consume_answer("q_used", at(3)).await.unwrap());
    let listed = store.session_questions(&id).await.unwrap();
    let listed: Vec<_> = listed.iter().map(|question| (question.id.as_str(), question.is_used)).collect();
    assert_eq!(listed, [("q_unused", false)]);
    assert_eq!(store.invalid_approvals(at(3)).await.unwrap().unwrap().questions, ["q_used"]);
    assert!(store.consume_answer("q_unused", at(3)).await.unwrap());
}

#[tokio::test]
async fn a_lost_approval_key_invalidates_the_grants() {
    use std::os::unix::fs::PermissionsExt;
    let home = Home::new();
    let key = home.folder.path().join(hermes_store::KEY_FILE_NAME);
    let store = home.store().await;
    assert!(!key.exists());
    store.save_grants(vec![always("g_1")]).await.unwrap();
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o7777, 0o600);
    let kept = std::fs::read(&key).unwrap();
    std::fs::remove_file(&key).unwrap();
    assert_eq!(grant_ids(&store).await, [""; 0]);
    let invalid = store.invalid_approvals(at(2)).await.unwrap().unwrap();
    assert_eq!((invalid.has_key, invalid.grants), (false, vec!["g_1".to_owned()]));
    assert!(!key.exists());
    // A new key does not make the old grant valid.
    store.save_grants(vec![always("g_2")]).await.unwrap();
    assert_eq!(grant_ids(&store).await, ["g_2"]);
    std::fs::write(&key, kept).unwrap();
    assert_eq!(grant_ids(&store).await, ["g_1"]);
    std::fs::write(&key, "").unwrap();
    assert!(matches!(store.grants(None).await, Err(Error::InvalidKey { .. })));
}
