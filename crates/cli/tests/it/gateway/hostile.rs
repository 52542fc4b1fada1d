//! Hostile users.

use std::fs;
use std::path::Path;

use hermes_testkit::discord::Snowflake;
use hermes_testkit::fake_platform::FakePlatform;
use hermes_testkit::{ReplyItem, ScriptStep};
use serde_json::{Value, json};

use crate::gateway::env::{GatewayEnv, eventually, terminal_call};

/// A command that needs approval on the local backend.
const DANGER: &str = "chmod -R 777 ~/private && echo ran >>~/log";
/// Everyone has access, and commands run with the local backend.
const OPEN_LOCAL: &str = "discord:\n  allow_all_users: true\ngateway:\n  terminal_backend: local\n";

/// An open gateway whose model runs the same dangerous command several times.
async fn local_env(times: usize) -> GatewayEnv {
    let steps = (0..times)
        .flat_map(|number| [terminal_call(&format!("c{number}"), DANGER), ScriptStep::text("done")]);
    let env = GatewayEnv::with(GatewayEnv::echo_script(steps), OPEN_LOCAL).await;
    fs::create_dir(env.path("owner/private")).unwrap();
    env
}

/// How often the command ran.
fn run_count(env: &GatewayEnv) -> usize {
    fs::read_to_string(env.path("owner/log")).unwrap_or_default().lines().count()
}

/// The number of questions in a chat.
fn question_count(env: &GatewayEnv, chat: Snowflake) -> usize {
    env.replies(chat).iter().filter(|said| said.contains("Allow this?")).count()
}

/// The last message of the last model request.
fn last_prompt(env: &GatewayEnv) -> String {
    env.model_requests().pop().unwrap()["messages"].as_array().unwrap().last().unwrap()["content"].to_string()
}

#[tokio::test]
async fn only_admins_and_approvers_can_grant_always() {
    let env = local_env(3).await.with_admin().open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.send(env.bob, bob, "do it");
    let question = env.wait_for_message(bob, "a question", |seen| !seen.buttons.is_empty()).await;
    let (_, always) = question.buttons.iter().find(|(label, _)| label == "Always").unwrap();
    env.server.click_button(env.bob, question.id, always).await.unwrap();
    env.wait("bob is refused", |server| {
        server
            .private_notices(env.bob)
            .iter()
            .any(|notice| notice.contains("applies to everyone"))
            .then_some(())
    })
    .await;
    env.send(env.bob, bob, "/approve always");
    env.wait_for_message(bob, "bob is refused again", |seen| seen.text.contains("applies to everyone")).await;
    assert_eq!(run_count(&env), 0);
    env.send(env.bob, bob, "/approve session");
    env.wait_for_message(bob, "the answer", |seen| seen.text == "done").await;
    assert_eq!(run_count(&env), 1);

    // The answer of bob grants nothing to others; an admin can grant it.
    env.send(env.ann, ann, "do it");
    env.wait_for_message(ann, "a question", |seen| seen.text.contains("Allow this?")).await;
    assert_eq!(run_count(&env), 1);
    env.send(env.ann, ann, "/approve always");
    env.wait_for_message(ann, "the answer", |seen| seen.text == "done").await;
    env.send(env.ann, ann, "do it again");
    eventually("the answer", || env.replies(ann).iter().filter(|said| *said == "done").count() == 2);
    assert_eq!((run_count(&env), question_count(&env, ann)), (3, 1));
    env.close().await;
}

#[tokio::test]
async fn a_session_grant_ends_with_the_conversation() {
    let env = local_env(3).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    let wait_for_answers = |count: usize| {
        eventually("the answer", || env.replies(dm).iter().filter(|said| *said == "done").count() == count);
    };
    env.send(env.ann, dm, "do it");
    eventually("a question", || question_count(&env, dm) == 1);
    env.send(env.ann, dm, "/approve session");
    wait_for_answers(1);
    env.send(env.ann, dm, "do it again");
    wait_for_answers(2);
    assert_eq!((run_count(&env), question_count(&env, dm)), (2, 1));
    env.send(env.ann, dm, "/new");
    env.wait_for_message(dm, "a new conversation", |seen| seen.text.contains("a new conversation")).await;
    env.send(env.ann, dm, "do it");
    eventually("another question", || question_count(&env, dm) == 2);
    env.send(env.ann, dm, "/deny");
    wait_for_answers(3);
    assert_eq!(run_count(&env), 2);
    env.close().await;
}

#[tokio::test]
async fn command_rights_also_hold_during_a_turn() {
    let config = "discord:\n  allow_all_users: true\n  user_allowed_commands: [status]\n";
    let mut env = GatewayEnv::with(GatewayEnv::echo_script([ScriptStep::Silence]), config).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "wait for it");
    eventually("the model is asked", || env.model_requests().len() == 1);
    for (number, command) in ["/stop", "/new", "/steer left", "/queue more"].into_iter().enumerate() {
        env.send(env.ann, dm, command);
        let said = env.wait_for_replies(dm, number + 1).await;
        assert!(said[number].contains("is not enabled for you"), "{command}: {said:?}");
    }
    env.send(env.ann, dm, "/status");
    let said = env.wait_for_replies(dm, 5).await;
    assert!(said[4].contains("queued       0"), "{said:?}");
    assert_eq!(env.model_requests().len(), 1);
    env.kill();
    env.close().await;
}

#[tokio::test]
async fn a_message_during_a_turn_keeps_its_author() {
    let steps = [terminal_call("c1", "until [ -e ~/go ]; do sleep 0.05; done"), ScriptStep::text("done")];
    let env = GatewayEnv::with(GatewayEnv::echo_script(steps), OPEN_LOCAL).await.open().await;
    let call = env.mention(env.ann, env.channel, "wait for it");
    let thread = env.reply_chat(call).await;
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.send(env.bob, thread, "/steer delete everything");
    env.send(env.bob, thread, "/status");
    // A reply to the second command means that the first has been processed.
    env.wait_for_message(thread, "the status", |seen| seen.text.contains("session")).await;
    fs::write(env.path("owner/go"), "").unwrap();
    env.wait_for_message(thread, "the answer", |seen| seen.text == "done").await;
    let prompt = last_prompt(&env);
    assert!(prompt.contains("[bob] delete everything"), "{prompt}");
    env.close().await;
}

#[tokio::test]
async fn a_long_question_is_shown_in_full_and_answered_once() {
    let command = format!("echo {} && {DANGER}", "word ".repeat(1_000));
    let steps = [terminal_call("c1", &command), ScriptStep::text("done")];
    let env = GatewayEnv::with(GatewayEnv::echo_script(steps), OPEN_LOCAL).await.open().await;
    fs::create_dir(env.path("owner/private")).unwrap();
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "do it");
    let question = env.wait_for_message(dm, "a question", |seen| !seen.buttons.is_empty()).await;
    let shown = env.replies(dm).concat();
    assert_eq!(shown.matches("word").count(), 1_000, "{shown}");
    assert!(question.text.contains("chmod -R 777") && question.text.contains("/approve q_"), "{question:?}");
    assert_eq!(run_count(&env), 0);
    let (_, once) = &question.buttons[0];
    env.server.click_button(env.ann, question.id, once).await.unwrap();
    env.wait_for_message(dm, "the answer", |seen| seen.text == "done").await;
    env.wait_for_message(dm, "who decided", |seen| {
        seen.id == question.id && seen.text.contains("allowed once by")
    })
    .await;
    assert_eq!(run_count(&env), 1);
    env.close().await;
}

#[tokio::test]
async fn backticks_in_a_command_are_visible_in_the_question() {
    let steps = [terminal_call("c1", "echo ```chmod -R 777 ~/private```"), ScriptStep::text("as you wish")];
    let env = GatewayEnv::with(GatewayEnv::echo_script(steps), OPEN_LOCAL).await.open().await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "do it");
    let question = env.wait_for_message(dm, "a question", |seen| !seen.buttons.is_empty()).await;
    assert!(!question.text.contains("'''") && question.text.contains("``⟨U+0060⟩"), "{question:?}");
    assert_eq!(question.text.matches("```").count(), 2, "{question:?}");
    env.send(env.ann, dm, "/deny");
    env.wait_for_message(dm, "the answer", |seen| seen.text == "as you wish").await;
    env.close().await;
}

#[tokio::test]
async fn a_users_environment_is_not_open_to_others_in_a_thread() {
    let steps = [
        terminal_call("c1", "echo ann\\'s >~/secret; ls ~"),
        ScriptStep::text("saved"),
        ScriptStep::text("hello"),
        terminal_call("c2", "ls ~; cat ~/secret"),
        ScriptStep::text("looked"),
    ];
    let env = GatewayEnv::new(steps).await.set_env("GATEWAY_SANDBOX_SCOPE", "user").open().await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "save this");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["saved"]);
    let call = env.mention(env.ann, env.channel, "hello");
    let thread = env.reply_chat(call).await;
    assert_eq!(env.wait_for_replies(thread, 1).await, ["hello"]);
    env.send(env.bob, thread, "what did ann save?");
    assert_eq!(env.wait_for_replies(thread, 2).await[1], "looked");
    let seen = last_prompt(&env);
    assert!(seen.contains("No such file") && !seen.contains("ann's"), "{seen}");
    env.close().await;
}

#[tokio::test]
async fn a_users_environment_is_the_same_in_all_their_chats_and_private() {
    let steps = [
        terminal_call("c1", "echo ann\\'s >~/secret; ls ~"),
        ScriptStep::text("saved"),
        terminal_call("c2", "cat ~/secret"),
        ScriptStep::text("found"),
        terminal_call("c3", "ls ~; cat ~/secret"),
        ScriptStep::text("looked"),
    ];
    let env = GatewayEnv::new(steps)
        .await
        .set_env("GATEWAY_SANDBOX_SCOPE", "user")
        .set_env("DISCORD_AUTO_THREAD", false)
        .open()
        .await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "save this");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["saved"]);
    env.mention(env.ann, env.channel, "what did I save?");
    assert_eq!(env.wait_for_replies(env.channel, 1).await, ["found"]);
    assert!(last_prompt(&env).contains("ann's"), "{}", last_prompt(&env));
    env.mention(env.bob, env.channel, "what did ann save?");
    assert_eq!(env.wait_for_replies(env.channel, 2).await[1], "looked");
    assert!(last_prompt(&env).contains("No such file"), "{}", last_prompt(&env));
    env.close().await;
}

#[tokio::test]
async fn the_owners_home_is_not_visible_in_a_chat() {
    // /tmp is not visible in an environment anyway.
    let owner = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let diary = owner.path().join("diary");
    fs::write(&diary, "dear diary").unwrap();
    let look = format!("cat {}", diary.display());
    let env = GatewayEnv::new([terminal_call("c1", &look), ScriptStep::text("looked")]).await;
    let env = env.set_env("HOME", owner.path().display()).open().await;
    // The owner reads it in their own environment.
    let read = env.run(&["exec", "--backend", "sandbox", "--session", "", "--", &look]);
    assert_eq!(String::from_utf8_lossy(&read.stdout), "dear diary");
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "what does the owner write?");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["looked"]);
    let seen = last_prompt(&env);
    assert!(seen.contains("No such file") && !seen.contains("dear diary"), "{seen}");
    env.close().await;
}

#[tokio::test]
async fn files_and_guests_of_other_chats_are_not_reachable() {
    let base = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (files, run) = (base.path().join("files"), base.path().join("run"));
    fs::create_dir(&run).unwrap();
    let steps = [
        terminal_call("c1", "echo ann\\'s >secret; ls"),
        ScriptStep::text("saved"),
        terminal_call("c2", &format!("find {0}; grep -rs ann {0}; echo searched", base.path().display())),
        ScriptStep::text("looked"),
    ];
    let env = GatewayEnv::new(steps).await;
    let env = env.set_env("TERMINAL_SANDBOX_DIR", files.display()).set_env("XDG_RUNTIME_DIR", run.display());
    let env = env.open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    env.send(env.ann, ann, "save this");
    assert_eq!(env.wait_for_replies(ann, 1).await, ["saved"]);
    env.send(env.bob, bob, "what did ann save?");
    assert_eq!(env.wait_for_replies(bob, 1).await, ["looked"]);
    let seen = last_prompt(&env);
    assert!(seen.contains("searched") && !seen.contains("secret") && !seen.contains("sock"), "{seen}");
    // Both are there to be found.
    let names = names_below(base.path());
    assert!(names.iter().any(|name| name == "secret"), "{names:?}");
    assert!(names.iter().any(|name| name.contains("sock")), "{names:?}");
    env.close().await;
}

/// The names of all files below a directory.
fn names_below(directory: &Path) -> Vec<String> {
    let mut names = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
            names.push(entry.file_name().to_string_lossy().into_owned());
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                pending.push(entry.path());
            }
        }
    }
    names
}

#[tokio::test]
async fn process_notices_of_a_user_without_access_are_dropped() {
    let arguments = json!({
        "command": "until [ -e ~/go ]; do sleep 0.05; done", "background": true, "notify_on_complete": true,
    });
    let call = ReplyItem::Call { id: "c1".to_owned(), name: "terminal".to_owned(), arguments };
    let steps = [ScriptStep::reply([call]), ScriptStep::text("started")];
    let env = GatewayEnv::with(GatewayEnv::echo_script(steps), "gateway:\n  terminal_backend: local\n")
        .await
        .open()
        .await;
    let dm = env.server.dm_channel(env.bob);
    env.send(env.bob, dm, "hello");
    let code = env
        .wait_for_replies(dm, 1)
        .await
        .remove(0)
        .split_whitespace()
        .last()
        .unwrap()
        .trim_matches('`')
        .to_owned();
    assert!(env.run(&["pairing", "approve", "discord", &code]).status.success());
    env.send(env.bob, dm, "begin");
    env.wait_for_message(dm, "it has started", |seen| seen.text == "started").await;
    let requests = env.model_requests().len();
    assert!(env.run(&["pairing", "revoke", "discord", &env.bob.to_string()]).status.success());
    fs::write(env.path("owner/go"), "").unwrap();
    let log = env.path("home/logs/agent.log");
    eventually("the notice is dropped", || {
        fs::read_to_string(&log).unwrap_or_default().contains("process notice dropped")
    });
    assert_eq!((env.model_requests().len(), env.replies(dm).len()), (requests, 2), "{:?}", env.replies(dm));
    env.close().await;
}

#[tokio::test]
async fn an_api_key_in_a_provider_error_is_redacted() {
    let body =
        json!({ "error": { "message": "Incorrect API key provided: hush-4711-hush-0815.", "code": 401 } });
    let refusal = ScriptStep::Error { status: 401, headers: Vec::new(), body };
    let env = GatewayEnv::new([refusal]).await.set_env("OPENAI_API_KEY", "hush-4711-hush-0815").open().await;
    let dm = env.server.dm_channel(env.ann);
    env.send(env.ann, dm, "hello");
    let said = env.wait_for_replies(dm, 1).await;
    assert!(said[0].contains("Incorrect API key") && !said[0].contains("hush"), "{said:?}");
    env.close().await;
}

#[tokio::test]
async fn a_stranger_cannot_fill_the_disk() {
    let env = GatewayEnv::with(GatewayEnv::echo_script([]), "").await;
    let ann = env.ann;
    let env = env.set_env("DISCORD_ALLOWED_USERS", ann).open().await;
    let (ann, bob) = (env.server.dm_channel(env.ann), env.server.dm_channel(env.bob));
    for number in 0..30 {
        env.send(env.bob, bob, &format!("hello {number}"));
    }
    env.send(env.ann, ann, "hello");
    env.wait_for_replies(ann, 1).await;
    let audit = fs::read_to_string(env.path("home/logs/audit.jsonl")).unwrap();
    let lines: Vec<Value> = audit.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let strangers = lines.iter().filter(|line| line["what"] == "stranger").count();
    assert!((1..5).contains(&strangers), "{audit}");
    env.close().await;
}

#[tokio::test]
async fn a_strangers_command_is_ignored() {
    let env = GatewayEnv::with(GatewayEnv::echo_script([]), "").await;
    let ann = env.ann;
    let env = env.set_env("DISCORD_ALLOWED_USERS", ann).open().await;
    env.wait("the commands are there", |server| {
        server.read(|world| (world.commands.len() == 20).then_some(()))
    })
    .await;
    env.server.expect_violation(10_062);
    env.server.invoke_command(env.bob, env.channel, "status", json!([])).await.unwrap_err();
    env.server.invoke_command(env.ann, env.channel, "status", json!([])).await.unwrap();
    assert!(env.model_requests().is_empty() && env.server.private_notices(env.bob).is_empty());
    env.close().await;
}
