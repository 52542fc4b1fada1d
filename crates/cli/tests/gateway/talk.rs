//! Who is answered, where, and how often.

use hermes_testkit::model::Script;
use hermes_testkit::{Said, Step};

use crate::hall::{Hall, steered, until};

#[tokio::test]
async fn a_call_by_name_opens_a_thread_where_nobody_has_to_call_again_also_after_a_restart() {
    let mut hall = Hall::echo().await.open().await;
    hall.server.say(hall.ann, hall.channel, "not for the bot");
    let message = hall.call(hall.ann, hall.channel, "what is new?");
    let thread = hall.answered_in(message).await;
    assert_eq!(hall.said(thread, 1).await, ["echo: [ann] what is new?"]);
    hall.server.say(hall.bob, thread, "tell me too");
    assert_eq!(hall.said(thread, 2).await[1], "echo: [bob] tell me too");
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    hall.start().await;
    hall.server.say(hall.ann, thread, "still there?");
    assert_eq!(hall.said(thread, 3).await[2], "echo: [ann] still there?");
    assert!(hall.heard(hall.channel).is_empty());
    let name = hall.server.look(|world| world.channels[&thread].name.clone());
    assert_eq!(name, "what is new?");
    hall.close().await;
}

#[tokio::test]
async fn a_thread_with_an_id_of_its_own_is_one_conversation_too() {
    let hall = Hall::echo().await.open().await;
    hall.server.number_threads();
    let message = hall.call(hall.ann, hall.channel, "what is new?");
    let thread = hall.answered_in(message).await;
    assert_ne!(thread, message);
    hall.said(thread, 1).await;
    hall.server.say(hall.ann, thread, "and then?");
    assert_eq!(hall.said(thread, 2).await, ["echo: [ann] what is new?", "echo: [ann] and then?"]);
    let told = hall.told().pop().unwrap()["messages"].to_string();
    assert!(told.contains("what is new?") && told.contains("and then?"), "{told}");
    hall.close().await;
}

#[tokio::test]
async fn what_is_said_during_work_waits_and_is_answered_to_whoever_said_it() {
    let slow = Step::Answer(hermes_testkit::model::Answer {
        says: vec![Said::Text("first".to_owned())],
        delivery: hermes_testkit::model::Delivery { pause_ms: 400, ..Default::default() },
        ..Default::default()
    });
    let script = Script { steps: vec![slow], always: Some(Step::Echo(String::new())), ..Script::default() };
    let hall = Hall::with(script, "discord:\n  allow_all_users: true\n").await.open().await;
    let message = hall.call(hall.ann, hall.channel, "begin");
    let thread = hall.answered_in(message).await;
    until("the model is asked", || hall.told().len() == 1);
    hall.server.say(hall.bob, thread, "from bob");
    hall.server.say(hall.ann, thread, "from ann");
    let said = hall.said(thread, 3).await;
    assert_eq!(said, ["first", "[bob] from bob", "[ann] from ann"]);
    hall.close().await;
}

#[tokio::test]
async fn one_home_and_one_bot_have_one_gateway() {
    let hall = Hall::echo().await.open().await;
    let second = hall.run(&["gateway", "run"]);
    assert_eq!(second.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already serves this home"));
    let other = tempfile::tempdir().unwrap();
    let elsewhere = hall.command(&["gateway", "run"]).env("HERMES_HOME", other.path()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("served by another gateway"));
    let status = hall.run(&["gateway", "status", "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        [&facts["running"], &facts["platforms"]["discord"]["state"]],
        [&serde_json::json!(true), &serde_json::json!("up")]
    );
    hall.close().await;
}

#[tokio::test]
async fn where_no_thread_can_be_opened_the_answer_is_given_in_the_channel_and_says_why() {
    let hall = Hall::echo().await.open().await;
    hall.server.forbid_threads();
    hall.server.expect(50_013);
    hall.call(hall.ann, hall.channel, "hello");
    let said = hall.said(hall.channel, 1).await;
    assert!(said[0].contains("hello") && said[0].contains("no thread could be opened"), "{said:?}");
    hall.close().await;
}

#[tokio::test]
async fn what_is_answered_while_the_gateway_ends_is_delivered() {
    let slow = Step::Answer(hermes_testkit::model::Answer {
        says: vec![Said::Text("at last".to_owned())],
        delivery: hermes_testkit::model::Delivery { pause_ms: 300, ..Default::default() },
        ..Default::default()
    });
    let mut hall = Hall::new([slow]).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "hello");
    until("the model is asked", || hall.told().len() == 1);
    assert_eq!(hall.stop(), Some(0), "{}", hall.log());
    assert_eq!(hall.heard(dm), ["at last"]);
    hall.close().await;
}

#[tokio::test]
async fn a_process_that_ends_in_the_background_is_told_by_itself() {
    let start = Said::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: serde_json::json!({ "command": "sleep 1; echo ready", "background": true, "notify_on_complete": true }),
    };
    let hall =
        Hall::new([Step::says([start]), Step::text("started"), Step::text("it is ready")]).await.open().await;
    let dm = hall.server.dm(hall.ann);
    hall.server.say(hall.ann, dm, "start it");
    assert_eq!(hall.said(dm, 2).await, ["started", "it is ready"]);
    let last = hall.told().pop().unwrap();
    let said = last["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(said.contains("[IMPORTANT: Background process") && said.contains("ready"), "{said}");
    hall.close().await;
}

#[tokio::test]
async fn what_is_told_to_a_model_at_work_is_answered_with_it_or_after_it() {
    let (hall, dm) = steered().await;
    hall.server.say(hall.ann, dm, "and more");
    assert_eq!(hall.said(dm, 2).await, ["first", "echo: and more"]);
    hall.close().await;
}

#[tokio::test]
async fn earlier_conversations_can_be_gone_on_with_by_those_who_had_them() {
    let hall = Hall::echo().await.open().await;
    let (ann, bob) = (hall.server.dm(hall.ann), hall.server.dm(hall.bob));
    let say = |text: &str| hall.server.say(hall.ann, ann, text);
    say("the first one");
    hall.said(ann, 1).await;
    say("/title Apples");
    say("/new");
    say("the second one");
    assert_eq!(hall.said(ann, 4).await[3], "echo: the second one");
    say("/sessions");
    let listed = hall.said(ann, 5).await[4].clone();
    assert!(listed.contains("Apples") && listed.contains("the second one"), "{listed}");
    hall.server.say(hall.bob, bob, "/resume Apples");
    assert!(!hall.said(bob, 1).await[0].contains("going on"), "{:?}", hall.heard(bob));
    say("/resume Apples");
    assert!(hall.said(ann, 6).await[5].contains("going on with"), "{:?}", hall.heard(ann));
    say("again");
    hall.said(ann, 7).await;
    let last = hall.told().pop().unwrap()["messages"].to_string();
    assert!(last.contains("the first one") && !last.contains("the second one"), "{last}");
    hall.close().await;
}
