//! `hermes approvals`: pending questions answered from the command line.

use hermes_policy::{Gate, Moment, StoredQuestion, Verdict};
use hermes_store::{GrantRow, NewQuestion, QuestionState};
use hermes_types::{
    Answer, Attendance, BackendName, Choice, Egress, EntryPoint, GrantScope, Job, Origin, Person, Place,
    PlaceId, Reach, SessionKey, Timestamp,
};
use serde_json::{Value, json};

use crate::Home;
use crate::sessions::with_store;

fn now() -> Timestamp {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    Timestamp::from_seconds(since.as_secs())
}

fn origin(approvers: &[&str]) -> Origin {
    let people: Vec<Person> = approvers.iter().map(|name| Person::new(*name)).collect();
    Origin {
        person: people[0].clone(),
        entry_point: EntryPoint::Cli,
        session: SessionKey::new("work"),
        attendance: Attendance::Attended(people),
        place: Place {
            id: PlaceId::new("p"),
            backend: BackendName::Local,
            reach: Reach::Host,
            egress: Egress::ALL,
            home: "/home/ada".to_owned(),
            hermes_home: "/home/ada/.hermes".to_owned(),
        },
    }
}

fn judge(gate: &Gate, command: &str, approvers: &[&str], seed: u8) -> Verdict {
    let moment = Moment { now: now(), seed: [seed; 16] };
    gate.judge(Job::shell(command, "/work"), &origin(approvers), moment)
}

/// Stores the question of the gate about a command and returns its id.
fn store_question(home: &Home, command: &str, approvers: &[&str], seed: u8) -> String {
    let Verdict::Ask(question) = judge(&Gate::default(), command, approvers, seed) else {
        panic!("{command}")
    };
    let question_row = NewQuestion {
        id: question.id().as_str().to_owned(),
        key: SessionKey::new("work"),
        waiting_call: None,
        stored: json!(question.to_stored()),
        shown: json!(question.text()),
        approvers: question.approvers().to_vec(),
        created: now(),
        expires: question.expires(),
    };
    with_store(home, async |store| store.save_question(question_row).await.unwrap());
    question.id().as_str().to_owned()
}

fn state(home: &Home, id: &str) -> QuestionState {
    with_store(home, async |store| store.question(id).await.unwrap().unwrap().state)
}

#[test]
fn without_questions_nothing_can_be_answered() {
    let home = Home::new();
    assert_eq!(home.run(&["--json", "approvals", "ls"]).json(), json!({"questions": []}));
    assert_eq!(home.run(&["--json", "approvals", "grants"]).json(), json!({"grants": []}));
    for args in [["approve", "q_x"], ["deny", "q_x"], ["revoke", "g_x"]] {
        let run = home.run(&[&["approvals"][..], &args].concat());
        assert_eq!(run.code, Some(1), "{run:?}");
        let noun = if args[0] == "revoke" { "grant" } else { "question" };
        assert!(run.err.contains(&format!("no {noun} `{}`", args[1])), "{run:?}");
    }
    assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "listing creates no files");
}

#[test]
fn a_session_approval_reaches_the_waiting_process_and_becomes_a_grant() {
    let home = Home::new();
    let id = store_question(&home, "git push --force", &["cli"], 1);
    let listed = home.run(&["--json", "approvals", "ls"]).json();
    assert_eq!(listed["questions"][0]["id"], json!(id));
    assert_eq!(listed["questions"][0]["text"], json!("»git push --force«"));
    let status = home.run(&["--json", "status"]).json();
    assert_eq!(status["questions"][0]["id"], json!(id));
    assert!(home.run(&["status"]).out.contains(&format!("  {id}  for ")));
    let text = home.run(&["approvals", "ls"]);
    assert!(text.out.starts_with(&id) && text.out.contains("  »git push --force«"), "{text:?}");

    let state = with_store(&home, async |store| {
        let waiting = store.clone();
        let name = id.clone();
        let waiting = tokio::spawn(async move { waiting.wait_for_decision(&name).await.unwrap().unwrap() });
        let mut command = home.command(&["approvals", "approve", "--session", &id]);
        let run =
            tokio::task::spawn_blocking(move || crate::Run::of(command.output().unwrap())).await.unwrap();
        assert_eq!(
            (run.code, run.out.as_str()),
            (Some(0), "approved in this session:\n  »git push --force«\n")
        );
        waiting.await.unwrap()
    });
    let QuestionState::Answered(answer) = state else { panic!("{state:?}") };
    assert_eq!((answer.by.as_str(), &answer.choice), ("cli", &Choice::Session));

    // The waiting process reopens the question, answers it, and gets a permit.
    let stored = with_store(&home, async |store| store.question(&id).await.unwrap().unwrap().stored);
    let stored: StoredQuestion = serde_json::from_value(stored).unwrap();
    let moment = Moment { now: now(), seed: [9; 16] };
    let Verdict::Ask(question) = Gate::default().reopen(stored, &origin(&["cli"]), moment) else { panic!() };
    let answer =
        hermes_types::Answer { by: answer.by.clone(), at: answer.at, choice: hermes_types::Choice::Session };
    let permit = question.answer(answer).unwrap();
    let grants = permit.grants().iter().map(|grant| GrantRow {
        id: grant.id.as_str().to_owned(),
        scope: GrantScope::Session(SessionKey::new("work")),
        json: json!(grant),
        given_by: grant.given_by.clone(),
        given_at: grant.given_at,
    });
    let grants: Vec<_> = grants.collect();
    with_store(&home, async |store| store.save_grants(grants).await.unwrap());

    let listed = home.run(&["--json", "approvals", "grants"]).json();
    let grant = &listed["grants"][0];
    assert_eq!(
        (&grant["command"], &grant["scope"], &grant["session_key"]),
        (&json!("git push --force (in /work, on local)"), &json!("session"), &json!("work"))
    );
    let known: Vec<Value> = with_store(&home, async |store| {
        let grants = store.grants(Some(&SessionKey::new("work"))).await.unwrap();
        grants.into_iter().map(|grant| grant.json).collect()
    });
    let known = known.into_iter().map(|json| serde_json::from_value(json).unwrap()).collect();
    let gate = Gate { grants: hermes_policy::Grants::new(known), ..Gate::default() };
    assert!(matches!(judge(&gate, "git push --force", &["cli"], 2), Verdict::Allow(_)));

    let table = home.run(&["approvals", "grants"]).out;
    assert!(table.contains("git push --force (in /work, on local)"), "{table}");
    let id = grant["id"].as_str().unwrap();
    let run = home.run(&["approvals", "revoke", &id.chars().take(9).collect::<String>()]);
    assert_eq!(run.out, "revoked: git push --force (in /work, on local)\n", "{run:?}");
    assert_eq!(home.run(&["approvals", "revoke", id]).code, Some(1));
    assert_eq!(home.run(&["--json", "approvals", "grants"]).json(), json!({"grants": []}));
}

#[test]
fn a_question_is_answered_once_and_only_by_its_approvers() {
    let home = Home::new();
    let (mine, theirs) = (
        store_question(&home, "git push --force", &["cli"], 1),
        store_question(&home, "git reset --hard", &["discord:7"], 2),
    );
    let run = home.run(&["approvals", "approve", &theirs]);
    assert_eq!(run.code, Some(4), "{run:?}");
    assert!(run.err.contains("only discord:7 can answer"), "{run:?}");
    assert_eq!(state(&home, &theirs), QuestionState::Open);
    let run = home.run(&["--json", "approvals", "deny", &mine, "--reason", "not on Friday"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert_eq!(run.json()["answer"]["reason"], json!("not on Friday"));
    let run = home.run(&["approvals", "approve", "--always", &mine]);
    assert_eq!(run.code, Some(1), "{run:?}");
    assert!(run.err.contains("was already denied by cli"), "{run:?}");
    let QuestionState::Answered(Answer { choice, .. }) = state(&home, &mine) else { panic!() };
    assert_eq!(choice, Choice::Deny { reason: Some("not on Friday".to_owned()) });
    let both = home.run(&["approvals", "approve", "--session", "--always", &mine]);
    assert_eq!(both.code, Some(2), "{both:?}");
}

#[test]
fn an_id_prefix_selects_the_only_pending_question() {
    let home = Home::new();
    // Equal first seed bytes give their ids a common prefix.
    let first = store_question(&home, "git push --force", &["cli"], 0b0110_0000);
    let second = store_question(&home, "git reset --hard", &["cli"], 0b0110_0001);
    let common: String =
        first.chars().zip(second.chars()).take_while(|(a, b)| a == b).map(|(a, _)| a).collect();
    assert!(common.len() > 2, "{first} {second}");
    let run = home.run(&["approvals", "approve", &common]);
    assert_eq!(run.code, Some(2), "{run:?}");
    assert!(run.err.contains("matches 2 questions"), "{run:?}");
    assert_eq!(home.run(&["approvals", "approve", &first]).code, Some(0));
    assert_eq!(home.run(&["approvals", "deny", &common]).code, Some(0));
    assert!(matches!(
        state(&home, &second),
        QuestionState::Answered(Answer { choice: Choice::Deny { .. }, .. })
    ));
    assert_eq!(home.run(&["approvals", "approve", ""]).code, Some(1));
}
