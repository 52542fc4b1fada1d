//! The connection to the platform.

use hermes_testkit::Venue;
use hermes_testkit::venue::Able;

use crate::hall::{Bed, until};

pub(super) async fn connects<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    until("it is up", || bed.state() == "up");
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "hello");
    assert_eq!(bed.said(dm, 1).await, ["echo: hello"]);
    let message = bed.call(bed.ann, bed.channel, "and here?");
    let room = bed.answered_in(message).await;
    let said = bed.said(room, 1).await;
    assert!(said[0].starts_with("echo: ") && said[0].ends_with("and here?"), "{said:?}");
    assert_eq!(bed.server.connections(), 1);
    bed.close().await;
    Ok(())
}

pub(super) async fn reconnects_after_a_cut<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "before");
    bed.said(dm, 1).await;
    bed.server.break_off()?;
    bed.say(bed.ann, dm, "meanwhile");
    bed.wait("it is back", |server| (server.connections() > 1).then_some(())).await;
    bed.say(bed.ann, dm, "after");
    assert_eq!(bed.said(dm, 3).await, ["echo: before", "echo: meanwhile", "echo: after"]);
    until("it is up", || bed.state() == "up");
    bed.close().await;
    Ok(())
}

pub(super) async fn notices_silence<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    until("it is up", || bed.state() == "up");
    bed.server.fall_silent()?;
    bed.say(bed.ann, dm, "anybody?");
    until("it is down", || bed.state() != "up");
    assert!(bed.server.unheard() <= 2, "{} signs of life in vain", bed.server.unheard());
    bed.server.relent();
    until("it is up again", || bed.state() == "up");
    bed.say(bed.ann, dm, "hello");
    assert_eq!(bed.said(dm, 2).await, ["echo: anybody?", "echo: hello"]);
    bed.close().await;
    Ok(())
}

pub(super) async fn is_not_held_up_by_a_slow_platform<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.server.hang()?;
    bed.say(bed.ann, dm, "hello");
    bed.wait("something hangs", |server| (server.hanging() > 0).then_some(())).await;
    until("the model is asked", || bed.told().len() == 1);
    assert_eq!(bed.server.given_up(), 0, "it waited for what is only shown");
    bed.server.relent();
    bed.said(dm, 1).await;
    bed.say(bed.ann, dm, "and now?");
    assert_eq!(bed.said(dm, 2).await, ["echo: hello", "echo: and now?"]);
    bed.close().await;
    Ok(())
}
