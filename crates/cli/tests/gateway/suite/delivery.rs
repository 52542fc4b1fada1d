//! Duplicates, rate limits and unconfirmed sends.

use std::time::Duration;

use hermes_testkit::Venue;
use hermes_testkit::venue::{Able, Words};

use crate::env::PlatformEnv;

pub(super) async fn answers_replayed_messages_once<V: Venue>() -> Able {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct(env.ann);
    let messages = ["one", "two", "three"].map(|text| env.send(env.ann, dm, text));
    env.wait_for_replies(dm, 3).await;
    env.server.repeat(&messages);
    env.server.repeat(&messages);
    env.send(env.ann, dm, "four");
    assert_eq!(env.wait_for_replies(dm, 4).await, ["echo: one", "echo: two", "echo: three", "echo: four"]);
    assert_eq!(env.model_requests().len(), 4);
    env.close().await;
    Ok(())
}

pub(super) async fn answers_duplicates_once<V: Venue>() -> Able {
    let mut env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct(env.ann);
    let message = env.send(env.ann, dm, "hello");
    env.server.repeat(&[message]);
    env.send(env.ann, dm, "again");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello", "echo: again"]);
    env.kill();
    env.start().await;
    env.server.repeat(&[message]);
    env.send(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: hello", "echo: again", "echo: and now?"]);
    assert_eq!(env.model_requests().len(), 3);
    env.close().await;
    Ok(())
}

pub(super) async fn obeys_rate_limits<V: Venue>() -> Able {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct(env.ann);
    // Longer than the retry delay. An earlier request is a violation, which is checked at the end.
    env.server.throttle(2, Duration::from_secs(2))?;
    for text in ["one", "two", "three"] {
        env.send(env.ann, dm, text);
    }
    assert_eq!(env.wait_for_replies(dm, 3).await, ["echo: one", "echo: two", "echo: three"]);
    assert_eq!(env.server.refusals(), 2);
    env.close().await;
    Ok(())
}

pub(super) async fn does_not_repeat_unconfirmed_messages<V: Venue>() -> Able {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct(env.ann);
    env.server.lose_answers(1)?;
    env.send(env.ann, dm, "hello");
    env.send(env.ann, dm, "and now?");
    assert_eq!(env.wait_for_replies(dm, 2).await, ["echo: hello", "echo: and now?"]);
    env.close().await;
    Ok(())
}

pub(super) async fn passes_on_quoted_messages<V: Venue>() -> Able {
    let env = PlatformEnv::<V>::echo().await.open().await;
    let dm = env.server.direct(env.ann);
    env.send(env.ann, dm, "hello");
    env.wait_for_replies(dm, 1).await;
    let reply_to = Some(env.server.seen(dm)[0].id);
    env.server.tell(env.ann, dm, Words { reply_to, ..Words::new("why?") });
    let said = env.wait_for_replies(dm, 2).await;
    assert_eq!(said[1], "echo: [replying to your message: echo: hello]\nwhy?");
    env.close().await;
    Ok(())
}
