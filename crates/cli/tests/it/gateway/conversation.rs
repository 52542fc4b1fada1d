//! Conversations: threads, queueing, steering, notices.

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ReplyItem, ScriptStep};

use crate::gateway::env::{GatewayEnv, eventually, steering_env};

#[tokio::test]
async fn a_mention_opens_a_thread_in_which_no_mention_is_needed_even_after_a_restart() {
    let mut env = GatewayEnv::echo().await.open().await;
    env.server.send_text(env.ann, env.channel, "not for the bot");
    let message = env.mention(env.ann, env.channel, "what is new?");
    let thread = env.reply_chat(message).await;
    assert_eq!(env.wait_for_replies(thread, 1).await, ["echo: [ann] what is new?"]);
    env.server.send_text(env.bob, thread, "tell me too");
    assert_eq!(env.wait_for_replies(thread, 2).await[1], "echo: [bob] tell me too");
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    env.start().await;
    env.server.send_text(env.ann, thread, "still there?");
    assert_eq!(env.wait_for_replies(thread, 3).await[2], "echo: [ann] still there?");
    assert!(env.replies(env.channel).is_empty());
    let name = env.server.read(|world| world.channels[&thread].name.clone());
    assert_eq!(name, "what is new?");
    env.close().await;
}

#[tokio::test]
async fn a_thread_whose_id_differs_from_its_message_is_one_conversation() {
    let env = GatewayEnv::echo().await.open().await;
    env.server.use_separate_thread_ids();
    let message = env.mention(env.ann, env.channel, "what is new?");
    let thread = env.reply_chat(message).await;
    assert_ne!(thread, message);
    env.wait_for_replies(thread, 1).await;
    env.server.send_text(env.ann, thread, "and then?");
    assert_eq!(env.wait_for_replies(thread, 2).await, ["echo: [ann] what is new?", "echo: [ann] and then?"]);
    let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(prompt.contains("what is new?") && prompt.contains("and then?"), "{prompt}");
    env.close().await;
}

#[tokio::test]
async fn messages_during_a_turn_are_queued_and_answered_to_their_author() {
    let slow = ScriptStep::Reply(hermes_testkit::model::ScriptedReply {
        items: vec![ReplyItem::Text("first".to_owned())],
        delivery: hermes_testkit::model::BodyDelivery { pause_ms: 400, ..Default::default() },
        ..Default::default()
    });
    let script = ModelScript {
        steps: vec![slow],
        always: Some(ScriptStep::Echo(String::new())),
        ..ModelScript::default()
    };
    let env = GatewayEnv::with(script, "discord:\n  allow_all_users: true\n").await.open().await;
    let message = env.mention(env.ann, env.channel, "begin");
    let thread = env.reply_chat(message).await;
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.server.send_text(env.bob, thread, "from bob");
    env.server.send_text(env.ann, thread, "from ann");
    let said = env.wait_for_replies(thread, 3).await;
    assert_eq!(said, ["first", "[bob] from bob", "[ann] from ann"]);
    env.close().await;
}

#[tokio::test]
async fn one_home_and_one_bot_have_one_gateway() {
    let env = GatewayEnv::echo().await.open().await;
    let second = env.run(&["gateway", "run"]);
    assert_eq!(second.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&second.stderr).contains("already serves this home"));
    let other = tempfile::tempdir().unwrap();
    let elsewhere = env.command(&["gateway", "run"]).env("HERMES_HOME", other.path()).output().unwrap();
    assert_eq!(elsewhere.status.code(), Some(5));
    assert!(String::from_utf8_lossy(&elsewhere.stderr).contains("served by another gateway"));
    let status = env.run(&["gateway", "status", "--json"]);
    let facts: serde_json::Value = serde_json::from_slice(&status.stdout).unwrap();
    assert_eq!(
        [&facts["running"], &facts["platforms"]["discord"]["state"]],
        [&serde_json::json!(true), &serde_json::json!("up")]
    );
    env.close().await;
}

#[tokio::test]
async fn without_a_thread_the_reply_goes_to_the_channel_and_says_why() {
    let env = GatewayEnv::echo().await.open().await;
    env.server.forbid_threads();
    env.server.expect_violation(50_013);
    env.mention(env.ann, env.channel, "hello");
    let said = env.wait_for_replies(env.channel, 1).await;
    assert!(said[0].contains("hello") && said[0].contains("could not open a thread"), "{said:?}");
    env.close().await;
}

#[tokio::test]
async fn a_reply_finished_during_shutdown_is_delivered() {
    let slow = ScriptStep::Reply(hermes_testkit::model::ScriptedReply {
        items: vec![ReplyItem::Text("at last".to_owned())],
        delivery: hermes_testkit::model::BodyDelivery { pause_ms: 300, ..Default::default() },
        ..Default::default()
    });
    let mut env = GatewayEnv::new([slow]).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hello");
    eventually("the model is asked", || env.model_requests().len() == 1);
    assert_eq!(env.stop(), Some(0), "{}", env.log());
    assert_eq!(env.replies(dm), ["at last"]);
    env.close().await;
}

#[tokio::test]
async fn the_end_of_a_background_process_is_reported() {
    let start = ReplyItem::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: serde_json::json!({ "command": "sleep 1; echo ready", "background": true, "notify_on_complete": true }),
    };
    let env = GatewayEnv::new([
        ScriptStep::reply([start]),
        ScriptStep::text("started"),
        ScriptStep::text("it is ready"),
    ])
    .await
    .open()
    .await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "start it");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["started", "it is ready"]);
    let last = env.model_requests().pop().unwrap();
    let said = last["messages"].as_array().unwrap().last().unwrap()["content"].as_str().unwrap().to_owned();
    assert!(said.contains("[IMPORTANT: Background process") && said.contains("ready"), "{said}");
    env.close().await;
}

#[tokio::test]
async fn a_steer_is_answered_in_the_turn_or_after_it() {
    let (env, dm) = steering_env().await;
    env.server.send_text(env.ann, dm, "and more");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["first", "echo: and more"]);
    env.close().await;
}

#[tokio::test]
async fn earlier_conversations_can_be_resumed_by_their_users() {
    let env = GatewayEnv::echo().await.open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    let say = |text: &str| env.server.send_text(env.ann, ann, text);
    say("the first one");
    env.wait_for_replies(ann, 1).await;
    say("/title Apples");
    say("/new");
    say("the second one");
    assert_eq!(env.wait_for_replies(ann, 4).await[3], "echo: the second one");
    say("/sessions");
    let listed = env.wait_for_replies(ann, 5).await[4].clone();
    assert!(listed.contains("Apples") && listed.contains("the second one"), "{listed}");
    env.server.send_text(env.bob, bob, "/resume Apples");
    assert!(!env.wait_for_replies(bob, 1).await[0].contains("Resumed"), "{:?}", env.replies(bob));
    say("/resume Apples");
    assert!(env.wait_for_replies(ann, 6).await[5].contains("Resumed"), "{:?}", env.replies(ann));
    say("again");
    env.wait_for_replies(ann, 7).await;
    let last = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(last.contains("the first one") && !last.contains("the second one"), "{last}");
    env.close().await;
}
