//! Crashes at each step of a message.

use hermes_testkit::fake_platform::Supported;
use hermes_testkit::{FakePlatform, ScriptStep};

use crate::gateway::env::{PlatformEnv, eventually, terminal_call};

/// Restarts, sends one more message and asserts exactly these replies.
async fn assert_replies_after_restart<V: FakePlatform>(
    mut env: PlatformEnv<V>,
    dm: V::Id,
    answers: &[&str],
) -> Supported {
    env.kill();
    env.start().await;
    env.wait_for_replies(dm, answers.len()).await;
    env.send(env.ann, dm, "and now?");
    let expected: Vec<&str> = answers.iter().copied().chain(["echo: and now?"]).collect();
    assert_eq!(env.wait_for_replies(dm, expected.len()).await, expected);
    env.close().await;
    Ok(())
}

pub(super) async fn answers_messages_sent_while_it_was_down<V: FakePlatform>() -> Supported {
    let mut env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "one");
    env.wait_for_replies(dm, 1).await;
    env.kill();
    env.send(env.ann, dm, "two");
    env.send(env.ann, dm, "three");
    env.start().await;
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: one", "echo: two", "echo: three"]);
    env.close().await;
    Ok(())
}

pub(super) async fn survives_a_crash_in_the_model<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::then_echo([ScriptStep::Silence]).await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "hello");
    eventually("the model is asked", || env.model_requests().len() == 1);
    assert_replies_after_restart(env, dm, &["echo: hello"]).await
}

pub(super) async fn survives_a_crash_in_a_command<V: FakePlatform>() -> Supported {
    let config = format!("{}gateway:\n  terminal_backend: local\n", PlatformEnv::<V>::allow_everyone());
    let steps = [
        terminal_call("c1", "echo ran >>~/log; sleep 600"),
        terminal_call("c2", "wc -l <~/log"),
        ScriptStep::text("done"),
    ];
    let mut env = PlatformEnv::<V>::with(PlatformEnv::<V>::echo_script(steps), &config).await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "do it");
    eventually("the command runs", || env.path("owner/log").exists());
    env.kill();
    env.start().await;
    assert_eq!(env.wait_for_replies(dm, 1).await, ["done"]);
    let requests = env.model_requests();
    let last = requests.last().unwrap()["messages"].as_array().unwrap();
    let results: Vec<&str> =
        last.iter().filter(|one| one["role"] == "tool").filter_map(|one| one["content"].as_str()).collect();
    assert!(results[0].contains("it may have run"), "{results:?}");
    assert!(results[1].contains("\"output\":\"1\""), "{results:?}");
    assert_replies_after_restart(env, dm, &["done"]).await
}

pub(super) async fn survives_a_crash_after_sending<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.server.lose_send_responses(1)?;
    env.send(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: hello"]);
    assert_replies_after_restart(env, dm, &["echo: hello"]).await
}

pub(super) async fn survives_a_crash_before_sending<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.server.fail_sends(2)?;
    env.send(env.ann, dm, "hello");
    env.wait("a send was tried", |server| (server.refused_sends() > 0).then_some(())).await;
    assert_replies_after_restart(env, dm, &["echo: hello"]).await
}
