//! The connection to the platform.

use hermes_testkit::FakePlatform;
use hermes_testkit::fake_platform::Supported;

use crate::gateway::env::{PlatformEnv, eventually};

pub(super) async fn connects<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    eventually("the channel is up", || env.state() == "up");
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 1).await, ["echo: hello"]);
    let message = env.mention(env.ann, env.channel, "and here?");
    let chat = env.reply_chat(message).await;
    let said = env.wait_for_replies(chat, 1).await;
    assert!(said[0].starts_with("echo: ") && said[0].ends_with("and here?"), "{said:?}");
    assert_eq!(env.server.connection_count(), 1);
    env.close().await;
    Ok(())
}

pub(super) async fn reconnects_after_a_cut<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "before");
    env.wait_for_replies(dm, 1).await;
    env.server.drop_connection()?;
    env.send(env.ann, dm, "during");
    env.wait("the gateway has reconnected", |server| (server.connection_count() > 1).then_some(())).await;
    env.send(env.ann, dm, "after");
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: before", "echo: during", "echo: after"]);
    eventually("the channel is up", || env.state() == "up");
    env.close().await;
    Ok(())
}

pub(super) async fn detects_a_dead_connection<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    eventually("the channel is up", || env.state() == "up");
    env.server.go_silent()?;
    env.send(env.ann, dm, "hello?");
    eventually("the channel is down", || env.state() != "up");
    assert!(
        env.server.unanswered_heartbeats() <= 2,
        "{} unanswered heartbeats",
        env.server.unanswered_heartbeats()
    );
    env.server.resume_answering();
    eventually("the channel is up again", || env.state() == "up");
    env.send(env.ann, dm, "hello");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello?", "echo: hello"]);
    env.close().await;
    Ok(())
}

pub(super) async fn is_not_blocked_by_a_slow_platform<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.server.stop_answering()?;
    env.send(env.ann, dm, "hello");
    env.wait("a request hangs", |server| (server.pending_requests() > 0).then_some(())).await;
    eventually("the model is asked", || env.model_requests().len() == 1);
    assert_eq!(env.server.abandoned_requests(), 0, "a typing or reaction request delayed the turn");
    env.server.resume_answering();
    env.wait_for_replies(dm, 1).await;
    env.send(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello", "echo: and now?"]);
    env.close().await;
    Ok(())
}
