//! Duplicates, rate limits and unconfirmed sends.

use std::time::Duration;

use hermes_testkit::FakePlatform;
use hermes_testkit::fake_platform::{Supported, UserMessage};

use crate::gateway::env::PlatformEnv;

pub(super) async fn answers_replayed_messages_once<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    let messages = ["one", "two", "three"].map(|text| env.send(env.ann, dm, text));
    env.wait_for_replies(dm, 3).await;
    env.server.redeliver(&messages);
    env.server.redeliver(&messages);
    env.send(env.ann, dm, "four");
    assert_eq!(env.wait_for_replies(dm, 4).await, ["echo: one", "echo: two", "echo: three", "echo: four"]);
    assert_eq!(env.model_requests().len(), 4);
    env.close().await;
    Ok(())
}

pub(super) async fn answers_duplicates_once<V: FakePlatform>() -> Supported {
    let mut env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    let message = env.send(env.ann, dm, "hello");
    env.server.redeliver(&[message]);
    env.send(env.ann, dm, "again");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello", "echo: again"]);
    env.kill();
    env.start().await;
    env.server.redeliver(&[message]);
    env.send(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: hello", "echo: again", "echo: and now?"]);
    assert_eq!(env.model_requests().len(), 3);
    env.close().await;
    Ok(())
}

pub(super) async fn obeys_rate_limits<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    // The limit is longer than the retry delay. `close` fails on a request that comes too early.
    env.server.throttle_sends(2, Duration::from_secs(2))?;
    for text in ["one", "two", "three"] {
        env.send(env.ann, dm, text);
    }
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: one", "echo: two", "echo: three"]);
    assert_eq!(env.server.refused_sends(), 2);
    env.close().await;
    Ok(())
}

pub(super) async fn does_not_repeat_unconfirmed_messages<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.server.lose_send_responses(1)?;
    env.send(env.ann, dm, "hello");
    env.send(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello", "echo: and now?"]);
    env.close().await;
    Ok(())
}

pub(super) async fn passes_on_quoted_messages<V: FakePlatform>() -> Supported {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct_chat(env.ann);
    env.send(env.ann, dm, "hello");
    env.wait_for_replies(dm, 1).await;
    let reply_to = Some(env.server.bot_messages(dm)[0].id);
    env.server.send(env.ann, dm, UserMessage { reply_to, ..UserMessage::new("why?") });
    let said = env.wait_for_replies(dm, 2).await;
    assert_eq!(said[1], "echo: [replying to your message: echo: hello]\nwhy?");
    env.close().await;
    Ok(())
}
