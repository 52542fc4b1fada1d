//! What is told more than once, and what is said exactly once.

use std::time::Duration;

use hermes_testkit::Venue;
use hermes_testkit::venue::{Able, Words};

use crate::hall::Bed;

pub(super) async fn answers_replayed_messages_once<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    let messages = ["one", "two", "three"].map(|text| bed.say(bed.ann, dm, text));
    bed.said(dm, 3).await;
    bed.server.repeat(&messages);
    bed.server.repeat(&messages);
    bed.say(bed.ann, dm, "four");
    assert_eq!(bed.said(dm, 4).await, ["echo: one", "echo: two", "echo: three", "echo: four"]);
    assert_eq!(bed.told().len(), 4);
    bed.close().await;
    Ok(())
}

pub(super) async fn answers_duplicates_once<V: Venue>() -> Able {
    let mut bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    let message = bed.say(bed.ann, dm, "hello");
    bed.server.repeat(&[message]);
    bed.say(bed.ann, dm, "again");
    assert_eq!(bed.said(dm, 2).await, ["echo: hello", "echo: again"]);
    bed.kill();
    bed.start().await;
    bed.server.repeat(&[message]);
    bed.say(bed.ann, dm, "and now?");
    assert_eq!(bed.said(dm, 3).await, ["echo: hello", "echo: again", "echo: and now?"]);
    assert_eq!(bed.told().len(), 3);
    bed.close().await;
    Ok(())
}

pub(super) async fn obeys_rate_limits<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    // Longer than it would wait by itself after a failure. To come earlier is a fault, which is looked for at the end.
    bed.server.throttle(2, Duration::from_secs(2))?;
    for text in ["one", "two", "three"] {
        bed.say(bed.ann, dm, text);
    }
    assert_eq!(bed.said(dm, 3).await, ["echo: one", "echo: two", "echo: three"]);
    assert_eq!(bed.server.refusals(), 2);
    bed.close().await;
    Ok(())
}

pub(super) async fn finds_what_it_may_have_said<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.server.lose_answers(1)?;
    bed.say(bed.ann, dm, "hello");
    bed.say(bed.ann, dm, "and now?");
    assert_eq!(bed.said(dm, 2).await, ["echo: hello", "echo: and now?"]);
    bed.close().await;
    Ok(())
}

pub(super) async fn hears_what_is_quoted<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "hello");
    bed.said(dm, 1).await;
    let reply_to = Some(bed.server.seen(dm)[0].id);
    bed.server.tell(bed.ann, dm, Words { reply_to, ..Words::new("why?") });
    let said = bed.said(dm, 2).await;
    assert_eq!(said[1], "echo: [replying to your message: echo: hello]\nwhy?");
    bed.close().await;
    Ok(())
}
