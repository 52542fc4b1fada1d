//! Resets, background tasks, admin commands and rate limits.

use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

use hermes_store::{FILE_NAME, NewMessage, NewSession, SessionId, SessionPrompt, Store, TurnStep};
use hermes_testkit::ReplyItem;
use hermes_testkit::ScriptStep;
use hermes_testkit::discord::{InjectedFault, Snowflake};
use hermes_testkit::model::{BodyDelivery, ModelScript, ScriptedReply};
use hermes_types::{Message, Part, Person, SessionKey, Timestamp};
use rustix::process::{Signal, kill_process};
use serde_json::{Value, json};

use crate::gateway::env::{GatewayEnv, eventually, terminal_call};

const ALLOW_ALL: &str = "discord:\n  allow_all_users: true\n";

fn then_echo(steps: Vec<ScriptStep>) -> ModelScript {
    ModelScript { steps, always: Some(ScriptStep::Echo("echo: ".to_owned())), ..ModelScript::default() }
}

fn hours_ago(hours: u64) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs();
    Timestamp::from_seconds(now - hours * 3_600)
}

fn session_key(dm: Snowflake) -> SessionKey {
    SessionKey::new(format!("agent:main:discord:dm:{dm}"))
}

/// Creates a conversation that was last used this long ago.
async fn create_old_conversation(env: &GatewayEnv, dm: Snowflake, hours: u64) -> SessionId {
    let store = Store::open(env.path("home").join(FILE_NAME)).await.unwrap();
    let new = NewSession {
        key: session_key(dm),
        source: "discord".to_owned(),
        person: Person::new(format!("discord:{}", env.ann)),
        model: "scripted".to_owned(),
        provider: "custom".to_owned(),
        prompt: SessionPrompt { text: "You are here.".to_owned(), tools: "[]".to_owned() },
        cwd: None,
    };
    let id = store.create_session(new, hours_ago(hours)).await.unwrap();
    let words = Part::Text { text: "as you wish".to_owned() };
    for message in [Message::user("of old"), Message::Assistant { parts: vec![words] }] {
        let step =
            TurnStep { messages: vec![NewMessage::new(message, hours_ago(hours))], ..TurnStep::default() };
        store.append_step(&id, step).await.unwrap();
    }
    store.close().await;
    id
}

async fn end_reason(env: &GatewayEnv, id: &SessionId) -> Option<String> {
    let store = Store::open(env.path("home").join(FILE_NAME)).await.unwrap();
    let reason = store.session(id).await.unwrap().end_reason;
    store.close().await;
    reason
}

#[tokio::test]
async fn an_idle_conversation_is_reset_and_the_chat_is_notified() {
    let cases = [
        ("idle", 26, Some("(new conversation: the last one was idle for 26 h 0 min)")),
        ("idle", 23, None),
        ("daily", 26, Some("(new conversation: one starts every day at 04:00)")),
        ("both", 26, Some("(new conversation: the last one was idle for 26 h 0 min)")),
        ("none", 1_000, None),
    ];
    for (mode, hours, note) in cases {
        let env = GatewayEnv::echo().await.set_env("SESSION_RESET_MODE", mode);
        let dm = env.server.dm_channel(env.ann);
        let old = create_old_conversation(&env, dm, hours).await;
        let env = env.open().await;
        env.server.send_text(env.ann, dm, "hello");
        let said = env.wait_for_replies(dm, 1).await;
        let expected = note.map_or("echo: hello".to_owned(), |note| format!("echo: hello\n\n{note}"));
        assert_eq!(said, [expected], "{mode}");
        let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
        assert_eq!(prompt.contains("of old"), note.is_none(), "{mode}: {prompt}");
        env.server.send_text(env.ann, dm, "again");
        assert_eq!(env.wait_for_replies(dm, 2).await[1], "echo: again", "{mode}");
        let reason = note.map(|note| if note.contains("idle") { "idle" } else { "daily" });
        assert_eq!(end_reason(&env, &old).await.as_deref(), reason, "{mode}");
        env.close().await;
    }
}

#[tokio::test]
async fn a_conversation_with_a_running_process_is_not_reset() {
    let env = GatewayEnv::echo().await.set_env("SESSION_RESET_MODE", "idle");
    let dm = env.server.dm_channel(env.ann);
    let old = create_old_conversation(&env, dm, 26).await;
    let key = session_key(dm);
    let started = env.run(&[
        "exec",
        "--backend",
        "sandbox",
        "--session",
        key.as_str(),
        "--background",
        "--",
        "sleep 600",
    ]);
    assert!(started.status.success(), "{}", String::from_utf8_lossy(&started.stderr));
    let env = env.open().await;
    env.server.send_text(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: hello"]);
    assert!(env.model_requests().pop().unwrap()["messages"].to_string().contains("of old"));
    assert_eq!(end_reason(&env, &old).await, None);
    let ended = env.run(&["sandbox", "rm", "--force", key.as_str()]);
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    env.close().await;
}

fn slow(text: &str, pause_ms: u64) -> ScriptStep {
    let delivery = BodyDelivery { pause_ms, ..BodyDelivery::default() };
    ScriptStep::Reply(ScriptedReply {
        items: vec![ReplyItem::Text(text.to_owned())],
        delivery,
        ..ScriptedReply::default()
    })
}

/// The number of environments.
fn environment_count(env: &GatewayEnv) -> usize {
    let listed = env.run(&["sandbox", "ls", "--json"]);
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap();
    listed["places"].as_array().unwrap().len()
}

#[tokio::test]
async fn removing_a_conversation_removes_its_environment_and_the_chat_continues() {
    let env =
        GatewayEnv::then_echo([terminal_call("c1", "echo x >file; cat file"), ScriptStep::text("done")])
            .await
            .open()
            .await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "the first words");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["done"]);
    assert_eq!(environment_count(&env), 1);
    let removed = env.run(&["sessions", "rm", "last"]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    assert_eq!(environment_count(&env), 0);
    env.server.send_text(env.ann, dm, "more words");
    assert_eq!(env.wait_for_replies(dm, 2).await[1], "echo: more words");
    let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(!prompt.contains("first"), "{prompt}");
    env.close().await;
}

#[tokio::test]
async fn a_background_task_replies_in_the_chat_and_leaves_nothing() {
    let steps = vec![terminal_call("c1", "echo mine >~/file; ls ~"), ScriptStep::text("it is done")];
    let env = GatewayEnv::with(then_echo(steps), ALLOW_ALL).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "/background look at\nthe logs");
    let said = env.wait_for_replies(dm, 2).await;
    assert_eq!(said, ["[look at]\nStarted. The reply will be posted here.", "[look at]\nit is done"]);
    eventually("its environment is removed", || environment_count(&env) == 0);
    env.server.send_text(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 3).await[2], "echo: hello");
    let last = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(!last.contains("the logs"), "the conversation does not contain the task: {last}");
    env.close().await;
}

#[tokio::test]
async fn the_conversation_continues_during_a_task_and_stop_all_stops_everything() {
    let steps = vec![ScriptStep::Silence, ScriptStep::Silence];
    let env = GatewayEnv::with(then_echo(steps), ALLOW_ALL).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "/bg /new is no command here");
    env.wait_for_replies(dm, 1).await;
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.server.send_text(env.ann, dm, "/btw another one");
    env.wait_for_replies(dm, 2).await;
    eventually("the model is asked again", || env.model_requests().len() == 2);
    env.server.send_text(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 3).await[2], "echo: hello");
    env.server.send_text(env.ann, dm, "/status");
    let status = env.wait_for_replies(dm, 4).await[3].clone();
    assert!(status.contains("background   /new is no command here\nbackground   another one"), "{status}");
    env.server.send_text(env.ann, dm, "/stop");
    assert_eq!(env.wait_for_replies(dm, 5).await[4], "Nothing is running.");
    env.server.send_text(env.ann, dm, "/stop all");
    let mut said = env.wait_for_replies(dm, 8).await.split_off(5);
    said.sort();
    assert_eq!(said, ["Stopped.", "[/new is no command here]\ninterrupted", "[another one]\ninterrupted"]);
    eventually("nothing is listed", || {
        env.server.send_text(env.ann, dm, "/status");
        let count = env.replies(dm).len();
        eventually("the status is shown", || env.replies(dm).len() > count);
        !env.replies(dm).pop().unwrap().contains("background")
    });
    env.close().await;
}

#[tokio::test]
async fn a_background_task_is_answered_once_after_a_crash() {
    let mut env = GatewayEnv::with(then_echo(vec![ScriptStep::Silence]), ALLOW_ALL).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "/background count");
    env.wait_for_replies(dm, 1).await;
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.kill();
    env.start().await;
    assert_eq!(env.wait_for_replies(dm, 2).await[1], "[count]\necho: count");
    env.server.send_text(env.ann, dm, "and now?");
    let said = env.wait_for_replies(dm, 3).await;
    assert_eq!(
        said,
        ["[count]\nStarted. The reply will be posted here.", "[count]\necho: count", "echo: and now?"]
    );
    env.close().await;
}

#[tokio::test]
async fn a_question_of_a_background_task_is_answered_in_the_chat() {
    let steps =
        vec![terminal_call("c1", "chmod -R 777 ~/private && echo done"), ScriptStep::text("it is open")];
    let env = GatewayEnv::with(ModelScript { steps, ..ModelScript::default() }, LOCAL).await.open().await;
    fs::create_dir(env.path("owner/private")).unwrap();
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "/bg open it");
    assert!(env.wait_for_replies(dm, 2).await[1].contains("Allow this?"), "{:?}", env.replies(dm));
    env.server.send_text(env.ann, dm, "/approve");
    eventually("the task has run", || env.replies(dm).iter().any(|said| said == "[open it]\nit is open"));
    env.close().await;
}

#[tokio::test]
async fn process_notices_of_a_task_arrive_before_its_environment_is_removed() {
    let start = ReplyItem::Call {
        id: "c1".to_owned(),
        name: "terminal".to_owned(),
        arguments: json!({ "command": "sleep 1; echo ready", "background": true, "notify_on_complete": true }),
    };
    let steps = [ScriptStep::reply([start]), ScriptStep::text("started"), ScriptStep::text("it is ready")];
    let env = GatewayEnv::new(steps).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "/bg start it");
    let said = env.wait_for_replies(dm, 3).await.split_off(1);
    assert_eq!(said, ["[start it]\nstarted", "[start it]\nit is ready"]);
    eventually("its environment is removed", || environment_count(&env) == 0);
    env.close().await;
}

#[tokio::test]
async fn at_most_eight_background_tasks_run() {
    let env = GatewayEnv::with(then_echo(vec![ScriptStep::Silence; 8]), ALLOW_ALL).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    for number in 0..9 {
        env.server.send_text(env.ann, dm, &format!("/bg task {number}"));
    }
    let said = env.wait_for_replies(dm, 9).await;
    assert_eq!(said.iter().filter(|said| said.contains("Started.")).count(), 8, "{said:?}");
    assert!(said[8].contains("8 background tasks are already running"), "{said:?}");
    env.server.send_text(env.ann, dm, "/stop all");
    env.wait_for_replies(dm, 18).await;
    env.close().await;
}

#[tokio::test]
async fn an_admin_can_restart_the_gateway_and_is_notified() {
    let steps = vec![terminal_call("c1", "true"), ScriptStep::text("ran"), slow("at last", 300)];
    let env = GatewayEnv::with(then_echo(steps), ALLOW_ALL).await.with_admin().open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.ann, ann, "create an environment");
    env.wait_for_replies(ann, 1).await;
    env.server.send_text(env.bob, bob, "/restart");
    assert!(env.wait_for_replies(bob, 1).await[0].contains("is for admins"), "{:?}", env.replies(bob));
    env.server.send_text(env.bob, bob, "work");
    eventually("the model is asked", || env.model_requests().len() == 3);
    let before = env.server.read(|world| world.identified + world.resumed);
    let message = env.server.send_text(env.ann, ann, "/restart");
    let said = env.wait_for_replies(ann, 3).await.split_off(1);
    assert_eq!(said, ["Restarting as soon as running replies have finished.", "Restarted."]);
    assert_eq!(env.wait_for_replies(bob, 2).await[1], "at last", "the turn ended first");
    env.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
    env.server.replay(message);
    env.server.send_text(env.ann, ann, "hello");
    assert_eq!(env.wait_for_replies(ann, 4).await[3], "echo: hello");
    // A signal restarts the gateway without a chat. The process id stays the same.
    let before = env.server.read(|world| world.identified + world.resumed);
    kill_process(env.pid(), Signal::USR1).unwrap();
    env.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
    env.server.send_text(env.ann, ann, "still there?");
    assert_eq!(env.wait_for_replies(ann, 5).await[4], "echo: still there?");
    // Processes started before leave no zombies.
    let removed = env.run(&["sandbox", "rm", "--force", session_key(ann).as_str()]);
    assert!(removed.status.success(), "{}", String::from_utf8_lossy(&removed.stderr));
    let pid = env.pid().as_raw_nonzero();
    eventually("no child is left", || {
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap().trim().is_empty()
    });
    assert!(!env.path("home/gateway_restart.json").exists());
    env.close().await;
}

const LOCAL: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";

#[tokio::test]
async fn only_an_admin_can_change_the_default_model() {
    let env = GatewayEnv::echo().await.with_admin().open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.bob, bob, "/model other --global");
    env.wait_for_replies(bob, 1).await;
    env.server.send_text(env.ann, ann, "/model another --global");
    assert!(env.wait_for_replies(ann, 1).await[0].contains("another"), "{:?}", env.replies(ann));
    env.server.send_text(env.bob, bob, "hello");
    env.wait_for_replies(bob, 2).await;
    assert_eq!(env.model_requests().pop().unwrap()["model"], "another");
    let config = fs::read_to_string(env.path("home/config.yaml")).unwrap();
    assert!(config.contains("default: another"), "{config}");
    env.close().await;
}

#[tokio::test]
async fn an_admin_can_turn_approvals_off_until_the_conversation_ends() {
    let danger = "chmod -R 777 ~/private && echo done";
    let steps = vec![
        terminal_call("c1", danger),
        ScriptStep::text("unasked"),
        terminal_call("c2", "rm -rf /"),
        ScriptStep::text("never"),
        terminal_call("c3", danger),
        ScriptStep::text("denied"),
    ];
    let env = GatewayEnv::with(ModelScript { steps, ..ModelScript::default() }, LOCAL)
        .await
        .with_admin()
        .open()
        .await;
    fs::create_dir(env.path("owner/private")).unwrap();
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.server.send_text(env.bob, bob, "/yolo");
    assert!(env.wait_for_replies(bob, 1).await[0].contains("is for admins"), "{:?}", env.replies(bob));
    let say = |text: &str| env.server.send_text(env.ann, ann, text);
    say("/yolo");
    assert!(env.wait_for_replies(ann, 1).await[0].contains("Approvals are off"), "{:?}", env.replies(ann));
    say("open it");
    assert_eq!(env.wait_for_replies(ann, 2).await[1], "unasked");
    say("/status");
    assert!(env.wait_for_replies(ann, 3).await[2].contains("off (/yolo)"), "{:?}", env.replies(ann));
    say("remove all");
    assert_eq!(env.wait_for_replies(ann, 4).await[3], "never");
    let prompt = env.model_requests().pop().unwrap();
    let result = prompt["messages"].as_array().unwrap().last().unwrap()["content"].to_string();
    assert!(result.contains("never allowed"), "{result}");
    say("/new");
    env.wait_for_replies(ann, 5).await;
    say("open it");
    assert!(env.wait_for_replies(ann, 6).await[5].contains("Allow this?"), "{:?}", env.replies(ann));
    say("/deny");
    eventually("the model has replied", || env.replies(ann).iter().any(|said| said == "denied"));
    let audit = fs::read_to_string(env.path("home/logs/audit.jsonl")).unwrap();
    let noted = |what: &str| -> Vec<Value> {
        let lines = audit.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["what"] == what).collect()
    };
    let ran = noted("call");
    assert_eq!((&ran[0]["about"]["what"], &ran[0]["about"]["backend"]), (&json!(danger), &json!("local")));
    assert!(ran[0]["about"]["place"].as_str().unwrap().starts_with("hermes-"), "{audit}");
    let waived = noted("yolo");
    assert_eq!(waived.len(), 1, "{audit}");
    assert_eq!(waived[0]["about"]["person"], json!(format!("discord:{}", env.ann)));
    env.close().await;
}

#[tokio::test]
async fn a_flooding_user_is_warned_once_and_sees_what_was_ignored() {
    let env = GatewayEnv::echo()
        .await
        .set_env("GATEWAY_MESSAGE_BURST", 2)
        .set_env("GATEWAY_MESSAGES_PER_MINUTE", 1);
    let env = env.open().await;
    let dm = env.server.dm_channel(env.ann);
    let messages: Vec<Snowflake> =
        (0..6).map(|number| env.server.send_text(env.ann, dm, &format!("message {number}"))).collect();
    let unread = &messages[2..];
    eventually("each ignored message has a reaction", || {
        let failed = |world: &hermes_testkit::discord::World| {
            let marked = |id: &&Snowflake| world.messages[*id].reactions.iter().any(|(sign, _)| sign == "❌");
            unread.iter().filter(marked).count()
        };
        env.server.read(failed) == unread.len()
    });
    let mut said = env.wait_for_replies(dm, 3).await;
    said.sort();
    assert!(said[0].contains("sending messages too quickly"), "{said:?}");
    assert_eq!(said[1..], ["echo: message 0", "echo: message 1"]);
    env.server.send_text(env.bob, env.server.dm_channel(env.bob), "hello");
    assert_eq!(env.wait_for_replies(env.server.dm_channel(env.bob), 1).await, ["echo: hello"]);
    assert_eq!(env.replies(dm).len(), 3);
    env.close().await;
}

#[tokio::test]
async fn a_flooding_user_can_still_stop_a_turn() {
    let env = GatewayEnv::with(then_echo(vec![ScriptStep::Silence]), ALLOW_ALL).await;
    let env = env.set_env("GATEWAY_MESSAGE_BURST", 1).set_env("GATEWAY_MESSAGES_PER_MINUTE", 1).open().await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "think");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.server.send_text(env.ann, dm, "and more");
    assert!(
        env.wait_for_replies(dm, 1).await[0].contains("sending messages too quickly"),
        "{:?}",
        env.replies(dm)
    );
    env.server.send_text(env.ann, dm, "/stop");
    let mut said = env.wait_for_replies(dm, 3).await.split_off(1);
    said.sort();
    assert_eq!(said, ["Stopped.", "interrupted"]);
    env.close().await;
}

#[tokio::test]
async fn a_message_after_a_command_waits_for_its_acknowledgment() {
    let env = GatewayEnv::with(then_echo(Vec::new()), ALLOW_ALL).await.open().await;
    env.wait("the commands are there", |server| {
        server.read(|world| (world.commands.len() == 20).then_some(()))
    })
    .await;
    let dm = env.server.dm_channel(env.ann);
    env.server.send_text(env.ann, dm, "the old");
    env.wait_for_replies(dm, 1).await;
    let slow = InjectedFault::RateLimit { retry_after: 1.0, global: false };
    env.server.inject("POST /interactions/*/*/callback", 1, slow);
    let begun = env.server.invoke_command(env.ann, dm, "new", json!([]));
    let said = async {
        env.wait("the acknowledgment hangs", |server| {
            server.read(|world| {
                let is_callback = |line: &str| line.starts_with("POST /interactions/");
                world.requests.iter().any(|request| is_callback(&request.line)).then_some(())
            })
        })
        .await;
        env.server.send_text(env.ann, dm, "the new");
    };
    let (begun, ()) = tokio::join!(begun, said);
    begun.unwrap();
    env.wait_for_message(dm, "the answer", |seen| seen.text == "echo: the new").await;
    let prompt = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(!prompt.contains("the old"), "{prompt}");
    env.close().await;
}
