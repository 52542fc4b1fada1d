//! Killed at each step of the way of a message.

use hermes_testkit::venue::Able;
use hermes_testkit::{Step, Venue};

use crate::hall::{Bed, runs, until};

/// Begins again, says something more and finds exactly these answers.
async fn ends_with<V: Venue>(mut bed: Bed<V>, dm: V::Id, answers: &[&str]) -> Able {
    bed.kill();
    bed.start().await;
    bed.said(dm, answers.len()).await;
    bed.say(bed.ann, dm, "and now?");
    let expected: Vec<&str> = answers.iter().copied().chain(["echo: and now?"]).collect();
    assert_eq!(bed.said(dm, expected.len()).await, expected);
    bed.close().await;
    Ok(())
}

pub(super) async fn answers_what_came_while_it_was_dead<V: Venue>() -> Able {
    let mut bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "one");
    bed.said(dm, 1).await;
    bed.kill();
    bed.say(bed.ann, dm, "two");
    bed.say(bed.ann, dm, "three");
    bed.start().await;
    assert_eq!(bed.said(dm, 3).await, ["echo: one", "echo: two", "echo: three"]);
    bed.close().await;
    Ok(())
}

pub(super) async fn survives_a_crash_in_the_model<V: Venue>() -> Able {
    let bed = Bed::<V>::then_echo([Step::Silence]).await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "hello");
    until("the model is asked", || bed.told().len() == 1);
    ends_with(bed, dm, &["echo: hello"]).await
}

pub(super) async fn survives_a_crash_in_a_command<V: Venue>() -> Able {
    let config = format!("{}gateway:\n  terminal_backend: local\n", Bed::<V>::everybody());
    let steps = [runs("c1", "echo ran >>~/log; sleep 600"), runs("c2", "wc -l <~/log"), Step::text("done")];
    let mut bed = Bed::<V>::with(Bed::<V>::echoing(steps), &config).await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "do it");
    until("the command runs", || bed.path("owner/log").exists());
    bed.kill();
    bed.start().await;
    assert_eq!(bed.said(dm, 1).await, ["done"]);
    let told = bed.told();
    let last = told.last().unwrap()["messages"].as_array().unwrap();
    let results: Vec<&str> =
        last.iter().filter(|one| one["role"] == "tool").filter_map(|one| one["content"].as_str()).collect();
    assert!(results[0].contains("it may have run"), "{results:?}");
    assert!(results[1].contains("\"output\":\"1\""), "{results:?}");
    ends_with(bed, dm, &["done"]).await
}

pub(super) async fn survives_a_crash_after_sending<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.server.lose_answers(1)?;
    bed.say(bed.ann, dm, "hello");
    assert_eq!(bed.said(dm, 1).await, ["echo: hello"]);
    ends_with(bed, dm, &["echo: hello"]).await
}

pub(super) async fn survives_a_crash_before_sending<V: Venue>() -> Able {
    let bed = Bed::<V>::echo().await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.server.fail(2)?;
    bed.say(bed.ann, dm, "hello");
    bed.wait("it was tried", |server| (server.refusals() > 0).then_some(())).await;
    ends_with(bed, dm, &["echo: hello"]).await
}
