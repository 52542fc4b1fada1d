//! Access and approvals.

use hermes_testkit::fake_platform::{PlatformAction, Supported};
use hermes_testkit::{FakePlatform, ScriptStep};

use crate::gateway::env::{PlatformEnv, eventually, terminal_call};

/// A command that needs approval on the local backend.
const DANGER: &str = "chmod -R 777 ~/private && echo ran >>~/log";

/// Starts a gateway with the local backend.
async fn local_env<V: FakePlatform>(steps: impl IntoIterator<Item = ScriptStep>) -> PlatformEnv<V> {
    let config = format!("{}gateway:\n  terminal_backend: local\n", PlatformEnv::<V>::allow_everyone());
    let env = PlatformEnv::with(PlatformEnv::<V>::echo_script(steps), &config).await.open().await;
    std::fs::create_dir(env.path("owner/private")).unwrap();
    env
}

/// How often the command ran.
fn run_count<V: FakePlatform>(env: &PlatformEnv<V>) -> usize {
    std::fs::read_to_string(env.path("owner/log")).unwrap_or_default().lines().count()
}

/// Approves a user with the pairing code in a reply.
fn approve_pairing<V: FakePlatform>(env: &PlatformEnv<V>, reply: &str) {
    let code = reply.split_whitespace().last().unwrap().trim_matches('`');
    assert!(reply.contains(&format!("hermes pairing approve {}", V::NAME)), "{reply}");
    let approved = env.run(&["pairing", "approve", V::NAME, code]);
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
}

pub(super) async fn ignores_strangers<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::with(PlatformEnv::<V>::echo_script([]), "").await.open().await;
    let (ann, bob) = (env.server.direct_chat(env.ann), env.server.direct_chat(env.bob));
    env.send(env.bob, bob, "hello");
    approve_pairing(&env, &env.wait_for_replies(bob, 1).await[0]);
    env.send(env.bob, bob, "thank you");
    env.wait_for_replies(bob, 2).await;

    let before = env.server.actions().len();
    env.mention(env.ann, env.channel, "hello?");
    env.mention(env.ann, env.channel, "/status");
    for text in ["hello", "hello?", "/status"] {
        env.send(env.ann, ann, text);
    }
    env.mention(env.ann, env.channel, "hello?");
    env.send(env.bob, bob, "still there?");
    env.wait_for_replies(bob, 3).await;
    let reply = env.wait_for_replies(ann, 1).await;
    let actions = env.server.actions().split_off(before);
    let others: Vec<&PlatformAction<V::Id>> =
        actions.iter().filter(|action| action.chat != Some(bob)).collect();
    assert!(others.len() == 1 && others[0].chat == Some(ann), "{others:?}");
    assert_eq!(env.model_requests().len(), 2);

    approve_pairing(&env, &reply[0]);
    env.send(env.ann, ann, "now?");
    assert_eq!(env.wait_for_replies(ann, 2).await[1], "echo: now?");
    env.close().await;
    Ok(())
}

pub(super) async fn accepts_one_button_press_from_the_right_person<V: FakePlatform>() -> Supported {
    V::supports_buttons()?;
    let env = local_env::<V>([terminal_call("c1", DANGER), ScriptStep::text("done")]).await;
    let message = env.mention(env.ann, env.channel, "do it");
    let chat = env.reply_chat(message).await;
    let question = env.wait_for_message(chat, "a question", |seen| !seen.buttons.is_empty()).await;
    let (_, once) = &question.buttons[0];
    env.server.click_button(env.bob, question.id, once).await.unwrap();
    env.wait("bob is refused", |server| {
        server.private_notices(env.bob).iter().any(|notice| notice.contains("can answer")).then_some(())
    })
    .await;
    assert_eq!(run_count(&env), 0);
    let press = || env.server.click_button(env.ann, question.id, once);
    // The second press may fail because the buttons are removed.
    let (first, _) = tokio::join!(press(), press());
    first.unwrap();
    env.wait_for_message(chat, "the answer", |seen| seen.text == "done").await;
    env.wait("the buttons are removed", |server| {
        server.bot_messages(chat).iter().all(|seen| seen.buttons.is_empty()).then_some(())
    })
    .await;
    env.mention(env.ann, chat, "and now?");
    env.wait_for_message(chat, "the next answer", |seen| seen.text.ends_with("and now?")).await;
    assert_eq!(run_count(&env), 1);
    env.close().await;
    Ok(())
}

pub(super) async fn shows_who_answered<V: FakePlatform>() -> Supported {
    V::supports_edits()?;
    let env = local_env::<V>([terminal_call("c1", DANGER), ScriptStep::text("done")]).await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "do it");
    let question = env.wait_for_message(dm, "a question", |seen| seen.text.contains("Allow this?")).await;
    env.send(env.ann, dm, "/approve");
    let by = format!("allowed once by {}:{} at ", V::NAME, env.ann);
    let shown = env.wait_for_message(dm, &by, |seen| seen.id == question.id && seen.text.contains(&by)).await;
    assert!(shown.text.ends_with(" UTC") && shown.text.starts_with(&question.text), "{shown:?}");
    assert_eq!((shown.previous_texts, shown.buttons), (vec![question.text], Vec::new()));
    env.wait_for_message(dm, "the answer", |seen| seen.text == "done").await;
    assert_eq!(run_count(&env), 1);
    env.close().await;
    Ok(())
}

pub(super) async fn keeps_questions_across_a_crash<V: FakePlatform>() -> Supported {
    let mut env = local_env::<V>([terminal_call("c1", DANGER), ScriptStep::text("as you wish")]).await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "do it");
    let said = env.wait_for_replies(dm, 1).await;
    assert!(said[0].contains("chmod"), "{said:?}");
    env.kill();
    env.start().await;
    env.send(env.ann, dm, "/deny");
    env.wait_for_message(dm, "the answer", |seen| seen.text == "as you wish").await;
    assert_eq!(run_count(&env), 0);
    let questions = env.replies(dm).iter().filter(|said| said.contains("Allow this?")).count();
    assert_eq!(questions, 1, "{:?}", env.replies(dm));
    env.close().await;
    Ok(())
}

pub(super) async fn runs_commands_during_a_turn<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::then_echo([ScriptStep::Silence]).await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "wait for it");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.send(env.ann, dm, "after that");
    env.send(env.ann, dm, "/status");
    let said = env.wait_for_replies(dm, 1).await;
    assert!(said[0].contains("session"), "{said:?}");
    env.send(env.ann, dm, "/new");
    env.wait_for_message(dm, "a new conversation", |seen| seen.text.contains("new")).await;
    env.send(env.ann, dm, "hello");
    env.wait_for_message(dm, "the answer", |seen| seen.text == "echo: hello").await;
    let last = env.model_requests().pop().unwrap()["messages"].to_string();
    assert!(!last.contains("wait for it"), "the new conversation contains the old one: {last}");
    env.close().await;
    Ok(())
}

pub(super) async fn stop_ends_waits<V: FakePlatform>() -> Supported {
    let env = local_env::<V>([terminal_call("c1", "sleep 600"), terminal_call("c2", DANGER)]).await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "wait for it");
    eventually("the model is asked", || env.model_requests().len() == 1);
    env.send(env.ann, dm, "/stop");
    env.wait_for_message(dm, "the turn was stopped", |seen| seen.text == "interrupted").await;
    env.send(env.ann, dm, "do it");
    let question = env.wait_for_message(dm, "a question", |seen| seen.text.contains("Allow this?")).await;
    env.send(env.ann, dm, "/stop");
    env.wait("the turn was stopped again", |server| {
        let ends = server.bot_messages(dm).into_iter().filter(|seen| seen.text == "interrupted").count();
        (ends == 2).then_some(())
    })
    .await;
    env.send(env.ann, dm, "hello");
    env.wait_for_message(dm, "the answer", |seen| seen.text == "echo: hello").await;
    if V::supports_edits().is_ok() {
        let is_over = |text: &str| text.contains("no longer needed");
        env.wait_for_message(dm, "the end of the question", |seen| {
            seen.id == question.id && is_over(&seen.text)
        })
        .await;
    }
    assert_eq!(run_count(&env), 0);
    env.close().await;
    Ok(())
}
