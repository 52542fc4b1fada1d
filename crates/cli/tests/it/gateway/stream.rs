//! Streaming and status lines.

use std::time::{Duration, Instant};

use hermes_gateway::Capabilities;
use hermes_testkit::discord::{InjectedFault, Snowflake};
use hermes_testkit::model::{BodyDelivery, ModelScript, ScriptedReply};
use hermes_testkit::{ReplyItem, ScriptStep};
use serde_json::json;

use crate::gateway::env::{GatewayEnv, eventually, terminal_call};

const STREAMING: &str = "discord:\n  allow_all_users: true\nstreaming:\n  enabled: true\n";
const NOT_STREAMING: &str = "discord:\n  allow_all_users: true\n";
/// Discord's minimum time between edits.
const MIN_EDIT_INTERVAL: Duration = Duration::from_millis(1200);

/// Text that takes some seconds to stream.
fn slow_reply(words: &str) -> ScriptStep {
    reply(words, BodyDelivery { chunk: Some(words.len().max(200)), pause_ms: 100, ..BodyDelivery::default() })
}

/// Text whose stream stalling_reply in the middle.
fn stalling_reply(words: &str) -> ScriptStep {
    reply(words, BodyDelivery { silent: Some(4_000), ..BodyDelivery::default() })
}

fn reply(words: &str, delivery: BodyDelivery) -> ScriptStep {
    ScriptStep::Reply(ScriptedReply {
        items: vec![ReplyItem::Text(words.to_owned())],
        delivery,
        ..ScriptedReply::default()
    })
}

/// A sentence of many words.
fn sentence() -> String {
    (0..80).map(|number| format!("word{number} ")).collect::<String>().trim().to_owned()
}

async fn env(steps: Vec<ScriptStep>, config: &str) -> GatewayEnv {
    let script =
        ModelScript { steps, always: Some(ScriptStep::Echo("echo: ".to_owned())), ..ModelScript::default() };
    GatewayEnv::with(script, config).await.open().await
}

/// Waits for a message of the bot that is a prefix of a text.
async fn wait_for_draft(env: &GatewayEnv, chat: Snowflake, text: &str) -> Snowflake {
    let seen = env.server.wait_for(|world| {
        let said = world.bot_messages_in(chat).into_iter();
        let mut drafts =
            said.filter(|said| text.starts_with(&said.content) && said.content.len() < text.len());
        drafts.next().map(|draft| draft.id)
    });
    match seen.await {
        Ok(draft) => draft,
        Err(error) => panic!("{error}: {:?}\n{}", env.replies(chat), env.log()),
    }
}

/// Asserts that the bot's messages in a chat become exactly these.
fn assert_replies(env: &GatewayEnv, chat: Snowflake, expected: &[&str]) {
    let began = Instant::now();
    while env.replies(chat) != expected {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}\n{}", env.replies(chat), env.log());
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Sends one more message and asserts that there are only these replies and the one to it.
async fn assert_final_replies(env: GatewayEnv, chat: Snowflake, expected: &[&str]) {
    assert_replies(&env, chat, expected);
    env.server.send_text(env.ann, chat, "and now?");
    let all: Vec<&str> = expected.iter().copied().chain(["echo: and now?"]).collect();
    assert_replies(&env, chat, &all);
    env.close().await;
}

/// The number of edit requests.
fn edit_count(env: &GatewayEnv) -> usize {
    env.server
        .read(|world| world.requests.iter().filter(|request| request.line.starts_with("PATCH /ch")).count())
}

#[tokio::test]
async fn text_streams_at_the_platforms_edit_rate() {
    let text = sentence();
    let env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    let question = env.server.send_text(env.ann, dm, "tell me");
    let began = Instant::now();
    let message = wait_for_draft(&env, dm, &text).await;
    assert_replies(&env, dm, &[&text]);
    // The last edit is not delayed.
    let max_edits = usize::try_from(began.elapsed().as_millis() / MIN_EDIT_INTERVAL.as_millis()).unwrap() + 1;
    assert!((1..=max_edits).contains(&edit_count(&env)), "{} of {max_edits}", edit_count(&env));
    let (drafts, reply_to) = env.server.read(|world| {
        let message = &world.messages[&message];
        (message.edits.clone(), message.reference)
    });
    assert!(drafts.iter().all(|draft| text.starts_with(draft)), "{drafts:?}");
    assert_eq!(reply_to, Some(question));
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn without_streaming_only_the_final_reply_is_shown() {
    let text = sentence();
    let off = "discord:\n  allow_all_users: true\nstreaming:\n  enabled: true\ndisplay:\n  platforms:\n    discord:\n      streaming: false\n";
    for config in [NOT_STREAMING, off] {
        let env = env(vec![slow_reply(&text)], config).await;
        let dm = env.server.dm_channel(env.ann);
        env.server.send_text(env.ann, dm, "tell me");
        assert_replies(&env, dm, &[&text]);
        assert_eq!(edit_count(&env), 0);
        assert_final_replies(env, dm, &[&text]).await;
    }
}

#[tokio::test]
async fn a_long_streamed_reply_is_split_with_valid_code_blocks() {
    let code: String =
        (0..160).map(|number| format!("let value_{number} = {number} * {number};\n")).collect();
    let text = format!("{}\n```rust\n{code}```\n{}", sentence(), sentence());
    let text = format!("{text}\n```sh\n{}\n```\nThat is all.", "echo once more; ".repeat(40));
    assert!(text.len() > 5_000, "{}", text.len());
    let env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "write it");
    let capabilities = Capabilities {
        max_message_len: 2_000,
        can_edit: true,
        typing_interval: Duration::ZERO,
        min_edit_interval: MIN_EDIT_INTERVAL,
        max_files: 0,
        max_file_bytes: 0,
    };
    let parts = hermes_gateway::split_message(&text, &capabilities);
    let parts: Vec<&str> = parts.iter().map(|part| part.trim()).collect();
    assert!(parts.len() > 2);
    assert_replies(&env, dm, &parts);
    let versions: Vec<String> = env.server.read(|world| {
        let all = world.bot_messages_in(dm).into_iter();
        all.flat_map(|said| said.edits.iter().chain([&said.content]).cloned()).collect()
    });
    assert!(versions.len() > parts.len(), "the reply was streamed");
    for seen in versions {
        let fences = seen.lines().filter(|line| line.starts_with("```")).count();
        assert_eq!(fences % 2, 0, "{seen}");
    }
    assert_final_replies(env, dm, &parts).await;
}

#[tokio::test]
async fn a_gateway_killed_while_streaming_continues_the_same_message() {
    let text = sentence();
    let mut env = env(vec![stalling_reply(&text), slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "tell me");
    let message = wait_for_draft(&env, dm, &text).await;
    env.kill();
    env.start().await;
    assert_replies(&env, dm, &[&text]);
    assert_eq!(env.server.read(|world| world.messages[&message].content.clone()), text);
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn a_gateway_killed_after_an_unconfirmed_draft_posts_one_message() {
    let text = sentence();
    let mut env = env(vec![stalling_reply(&text), ScriptStep::text(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    env.server.send_text(env.ann, dm, "tell me");
    wait_for_draft(&env, dm, &text).await;
    env.kill();
    env.start().await;
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn a_gateway_killed_before_the_last_edit_posts_the_reply_once() {
    let text = sentence();
    let mut env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    let question = env.server.send_text(env.ann, dm, "tell me");
    let message = wait_for_draft(&env, dm, &text).await;
    env.server.inject("PATCH /channels/*/messages/*", 7, InjectedFault::Fail(502));
    eventually("the turn has ended", || {
        let given = env.server.read(|world| world.messages[&question].reactions.clone());
        given.iter().any(|(emoji, _)| emoji == "✅")
    });
    assert_ne!(env.server.read(|world| world.messages[&message].content.clone()), text);
    env.kill();
    env.start().await;
    assert_replies(&env, dm, &[&text]);
    assert_eq!(env.server.read(|world| world.messages[&message].content.clone()), text);
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn a_deleted_draft_is_replaced_by_a_new_message() {
    let text = sentence();
    let env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    // The gateway tries one edit while streaming and one at the end.
    env.server.expect_violation(10_008);
    env.server.expect_violation(10_008);
    env.server.send_text(env.ann, dm, "tell me");
    let message = wait_for_draft(&env, dm, &text).await;
    env.server.delete_message(message);
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn a_rate_limited_platform_gets_fewer_edits_and_the_whole_reply() {
    let text = sentence();
    let env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.inject(
        "PATCH /channels/*/messages/*",
        1,
        InjectedFault::RateLimit { retry_after: 7.0, global: false },
    );
    env.server.send_text(env.ann, dm, "tell me");
    wait_for_draft(&env, dm, &text).await;
    assert_final_replies(env, dm, &[&text]).await;
}

#[tokio::test]
async fn a_stopped_reply_is_marked_as_interrupted() {
    let text = sentence();
    let env = env(vec![stalling_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "tell me");
    let message = wait_for_draft(&env, dm, &text).await;
    env.server.send_text(env.ann, dm, "/stop");
    eventually("the message is marked", || {
        env.server.read(|world| world.messages[&message].content.ends_with("\n\ninterrupted"))
    });
    let shown = env.server.read(|world| world.messages[&message].content.clone());
    assert!(text.starts_with(shown.trim_end_matches("interrupted").trim_end()), "{shown}");
    assert_final_replies(env, dm, &[&shown, "Stopped."]).await;
}

#[tokio::test]
async fn a_no_reply_token_is_never_shown() {
    let silent =
        reply("[SILENT]", BodyDelivery { chunk: Some(150), pause_ms: 700, ..BodyDelivery::default() });
    let env = env(vec![silent], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "hush");
    assert_final_replies(env, dm, &[]).await;
}

#[tokio::test]
async fn text_before_tool_calls_stays_and_later_text_is_a_new_message() {
    let call = ReplyItem::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "echo found" }),
    };
    let look = ScriptStep::reply([ReplyItem::Text("I look.".to_owned()), call]);
    let text = sentence();
    let env = env(vec![look, slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "look for it");
    wait_for_draft(&env, dm, &text).await;
    assert_final_replies(env, dm, &["I look.", &text]).await;
}

#[tokio::test]
async fn a_gateway_killed_during_tool_calls_posts_earlier_text_once() {
    let words = sentence();
    let call = ReplyItem::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "sleep 600" }),
    };
    let delivery = BodyDelivery { chunk: Some(600), pause_ms: 100, ..BodyDelivery::default() };
    let look = ScriptedReply {
        items: vec![ReplyItem::Text(words.clone()), call],
        delivery,
        ..ScriptedReply::default()
    };
    let mut env = env(vec![ScriptStep::Reply(look), ScriptStep::text("done")], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "look for it");
    eventually("the command runs", || {
        let listed = env.run(&["sandbox", "ls", "--json"]);
        let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
        listed["places"].as_array().is_some_and(|places| !places.is_empty())
    });
    assert_replies(&env, dm, &[&words]);
    env.kill();
    env.start().await;
    assert_final_replies(env, dm, &[&words, "done"]).await;
}

/// Waits for a status line with this text.
async fn wait_for_status(env: &GatewayEnv, chat: Snowflake, text: &str) -> Snowflake {
    let seen = env.server.wait_for(|world| {
        let said = world.bot_messages_in(chat).into_iter();
        let mut lines = said.filter(|said| said.content.contains(text));
        lines.next().map(|line| line.id)
    });
    match seen.await {
        Ok(line) => line,
        Err(error) => panic!("{error}: {:?}\n{}", env.replies(chat), env.log()),
    }
}

#[tokio::test]
async fn long_work_shows_one_status_line_and_a_separate_reply() {
    let steps = vec![
        terminal_call("c1", "sleep 14 # `*one*`"),
        terminal_call("c2", "sleep 14"),
        ScriptStep::text("done"),
    ];
    let env = env(steps, NOT_STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "work");
    let status_line = wait_for_status(&env, dm, " s: 1 step, now terminal `sleep 14 # '*one*'`").await;
    assert_eq!(wait_for_status(&env, dm, " s: 2 steps, now terminal `sleep 14`").await, status_line);
    assert_eq!(wait_for_status(&env, dm, "worked for ").await, status_line);
    let said = env.wait_for_replies(dm, 2).await;
    assert!(said[0].ends_with(" s, 2 steps"), "{said:?}");
    assert_eq!(said[1..], ["done"]);
    assert!(env.server.read(|world| world.messages[&status_line].reference.is_none()));
    env.close().await;
}

#[tokio::test]
async fn after_a_crash_the_same_status_line_is_continued() {
    let mut env = env(vec![terminal_call("c1", "sleep 600"), ScriptStep::text("done")], NOT_STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "work");
    let status_line = wait_for_status(&env, dm, "working for ").await;
    env.kill();
    env.start().await;
    assert_eq!(wait_for_status(&env, dm, "worked for ").await, status_line);
    let said = env.wait_for_replies(dm, 2).await;
    assert!(said[0].ends_with(" s, 1 step"), "{said:?}");
    assert_final_replies(env, dm, &[&said[0], "done"]).await;
}

#[tokio::test]
async fn tool_progress_can_be_turned_off() {
    let config = format!("{NOT_STREAMING}display:\n  tool_progress: 'off'\n");
    let env = env(vec![terminal_call("c1", "sleep 12"), ScriptStep::text("done")], &config).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "work");
    assert_final_replies(env, dm, &["done"]).await;
}

#[tokio::test]
async fn a_steer_is_answered_after_a_kill_before_the_model_saw_it() {
    let slow = reply("first", BodyDelivery { pause_ms: 500, ..BodyDelivery::default() });
    let config = format!("{NOT_STREAMING}display:\n  busy_input_mode: steer\n");
    let mut env = env(vec![slow, ScriptStep::Silence], &config).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "begin");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.server.send_text(env.ann, dm, "and more");
    eventually("the model is asked again", || env.model_requests().len() == 2);
    env.kill();
    env.start().await;
    assert_final_replies(env, dm, &["first", "echo: and more"]).await;
}

#[tokio::test]
async fn a_steer_is_answered_once_after_a_kill_after_the_model_saw_it() {
    let config = format!("{NOT_STREAMING}display:\n  busy_input_mode: steer\n");
    let mut env =
        env(vec![terminal_call("c1", "sleep 2"), ScriptStep::Silence, ScriptStep::text("both")], &config)
            .await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "begin");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.server.send_text(env.ann, dm, "and more");
    eventually("the model is asked again", || env.model_requests().len() == 2);
    let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(prompt.contains("user_says") && prompt.contains("and more"), "{prompt}");
    env.kill();
    env.start().await;
    assert_final_replies(env, dm, &["both"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_kills_leave_each_streamed_reply_once() {
    let text = sentence();
    let script = ModelScript { always: Some(slow_reply(&text)), ..ModelScript::default() };
    let mut env = GatewayEnv::with(script, STREAMING).await.open().await;
    let chats: Vec<Snowflake> = (0..6)
        .map(|number| {
            let person = env.server.add_user(&format!("p{number}"));
            let dm = env.server.dm_channel(person);
            env.server.send_text(person, dm, "tell me");
            dm
        })
        .collect();
    for kill in 1..=12_u64 {
        // The kills fall before, during and after each reply.
        tokio::time::sleep(Duration::from_millis(kill * 397 % 4_200)).await;
        env.kill();
        env.start().await;
    }
    for chat in chats {
        assert_replies(&env, chat, &[&text]);
    }
    env.close().await;
}

#[tokio::test]
async fn a_late_edit_is_overwritten() {
    let text = sentence();
    let env = env(vec![slow_reply(&text)], STREAMING).await;
    let dm = env.server.dm_channel(env.ann);
    env.server.inject("PATCH /channels/*/messages/*", 1, InjectedFault::Delay);
    env.server.send_text(env.ann, dm, "tell me");
    let message = wait_for_draft(&env, dm, &text).await;
    assert_replies(&env, dm, &[&text]);
    env.server.deliver_delayed();
    assert_ne!(env.server.read(|world| world.messages[&message].content.clone()), text);
    assert_final_replies(env, dm, &[&text]).await;
}
