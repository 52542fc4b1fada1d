//! Killed at each step of the way of a message.

use hermes_testkit::Step;
use hermes_testkit::discord::Trouble;
use hermes_testkit::model::Script;

use crate::hall::{Hall, runs, until};

const OPEN: &str = "discord:\n  allow_all_users: true\n";

/// Says something more and finds exactly these answers.
async fn ends_with(hall: Hall, dm: u64, answers: &[&str]) {
    hall.server.say(hall.ann, dm, "and now?");
    let said = hall.said(dm, answers.len() + 1).await;
    let expected: Vec<&str> = answers.iter().copied().chain(["echo: and now?"]).collect();
    assert_eq!(said, expected);
    hall.close().await;
}

#[tokio::test]
async fn during_the_call_of_the_model() {
    let script = Script {
        steps: vec![Step::Silence],
        always: Some(Step::Echo("echo: ".to_owned())),
        ..Script::default()
    };
    let mut hall = Hall::with(script, OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    until("the model is asked", || hall.told().len() == 1);
    hall.kill();
    hall.start().await;
    ends_with(hall, dm, &["echo: hello"]).await;
}

#[tokio::test]
async fn during_a_command_that_is_told_to_the_model_and_not_run_again() {
    let script = Script {
        steps: vec![
            runs("c1", "echo once >>~/log; sleep 600"),
            runs("c2", "wc -l <~/log"),
            Step::text("done"),
        ],
        always: Some(Step::Echo("echo: ".to_owned())),
        ..Script::default()
    };
    let mut hall = Hall::with(script, OPEN).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "do it");
    until("the command runs", || {
        let listed = hall.run(&["sandbox", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["places"].as_array().is_some_and(|places| !places.is_empty())
    });
    std::thread::sleep(std::time::Duration::from_millis(500));
    hall.kill();
    hall.start().await;
    assert_eq!(hall.said(dm, 1).await, ["done"]);
    let told = hall.told();
    let last = told.last().unwrap()["messages"].as_array().unwrap();
    let results: Vec<&str> =
        last.iter().filter(|one| one["role"] == "tool").filter_map(|one| one["content"].as_str()).collect();
    assert!(results[0].contains("it may have run"), "{results:?}");
    assert!(results[1].contains("\"output\":\"1\""), "{results:?}");
    ends_with(hall, dm, &["done"]).await;
}

#[tokio::test]
async fn when_it_was_sent_and_nobody_said_so() {
    let mut hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 1).await, ["echo: hello"]);
    hall.kill();
    hall.start().await;
    ends_with(hall, dm, &["echo: hello"]).await;
}

#[tokio::test]
async fn when_it_could_not_be_sent_for_a_while() {
    let mut hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.trouble("POST /channels/*/messages", 2, Trouble::Fail(502));
    hall.server.say(hall.ann, dm, "hello");
    until("it was tried", || {
        hall.server.look(|world| world.requests.iter().any(|request| request.status == 502))
    });
    hall.kill();
    hall.start().await;
    ends_with(hall, dm, &["echo: hello"]).await;
}

#[tokio::test]
async fn a_silent_socket_is_noticed_shown_and_heals() {
    let hall = Hall::echo().await.open().await;
    let dm = hall.server.dm(hall.ann);
    let state = || {
        let status = hall.run(&["gateway", "status", "--json"]);
        let facts: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
        facts["platforms"]["discord"]["state"].as_str().unwrap_or_default().to_owned()
    };
    until("it is up", || state() == "up");
    hall.server.silence();
    until("it is down", || state() != "up");
    hall.server.recover();
    hall.server.say(hall.ann, dm, "hello");
    assert_eq!(hall.said(dm, 1).await, ["echo: hello"]);
    until("it is up again", || state() == "up");
    hall.close().await;
}
