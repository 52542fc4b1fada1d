//! Who is heard, and who decides.

use hermes_testkit::venue::{Able, Deed};
use hermes_testkit::{Step, Venue};

use crate::hall::{Bed, runs, until};

/// What nobody runs unasked on their own machine.
const DANGER: &str = "chmod -R 777 ~/private && echo ran >>~/log";

/// A bed where commands run on the owner's machine.
async fn at_home<V: Venue>(steps: impl IntoIterator<Item = Step>) -> Bed<V> {
    let config = format!("{}gateway:\n  terminal_backend: local\n", Bed::<V>::everybody());
    let bed = Bed::with(Bed::<V>::echoing(steps), &config).await.open().await;
    std::fs::create_dir(bed.path("owner/private")).unwrap();
    bed
}

/// How often it was done.
fn done<V: Venue>(bed: &Bed<V>) -> usize {
    std::fs::read_to_string(bed.path("owner/log")).unwrap_or_default().lines().count()
}

/// Lets somebody in with the code that they were told.
fn let_in<V: Venue>(bed: &Bed<V>, told: &str) {
    let code = told.split_whitespace().last().unwrap().trim_matches('`');
    assert!(told.contains(&format!("hermes pairing approve {}", V::WORD)), "{told}");
    let approved = bed.run(&["pairing", "approve", V::WORD, code]);
    assert!(approved.status.success(), "{}", String::from_utf8_lossy(&approved.stderr));
}

pub(super) async fn is_silent_to_strangers<V: Venue>() -> Able {
    let bed = Bed::<V>::with(Bed::<V>::echoing([]), "").await.open().await;
    let (ann, bob) = (bed.server.direct(bed.ann), bed.server.direct(bed.bob));
    bed.say(bed.bob, bob, "let me in");
    let_in(&bed, &bed.said(bob, 1).await[0]);
    bed.say(bed.bob, bob, "thank you");
    bed.said(bob, 2).await;

    let before = bed.server.deeds().len();
    bed.call(bed.ann, bed.channel, "hello?");
    bed.call(bed.ann, bed.channel, "/status");
    for text in ["let me in", "hello?", "/status"] {
        bed.say(bed.ann, ann, text);
    }
    bed.call(bed.ann, bed.channel, "anybody?");
    bed.say(bed.bob, bob, "still there?");
    bed.said(bob, 3).await;
    let told = bed.said(ann, 1).await;
    let deeds = bed.server.deeds().split_off(before);
    let others: Vec<&Deed<V::Id>> = deeds.iter().filter(|deed| deed.chat != Some(bob)).collect();
    assert!(others.len() == 1 && others[0].chat == Some(ann), "{others:?}");
    assert_eq!(bed.told().len(), 2);

    let_in(&bed, &told[0]);
    bed.say(bed.ann, ann, "now?");
    assert_eq!(bed.said(ann, 2).await[1], "echo: now?");
    bed.close().await;
    Ok(())
}

pub(super) async fn heeds_the_right_button_once<V: Venue>() -> Able {
    V::buttons()?;
    let bed = at_home::<V>([runs("c1", DANGER), Step::text("done")]).await;
    let message = bed.call(bed.ann, bed.channel, "do it");
    let room = bed.answered_in(message).await;
    let question = bed.saw(room, "a question", |seen| !seen.buttons.is_empty()).await;
    let (_, once) = &question.buttons[0];
    bed.server.push(bed.bob, question.id, once).await.unwrap();
    bed.wait("bob is told no", |server| {
        server.whispers(bed.bob).iter().any(|told| told.contains("may answer")).then_some(())
    })
    .await;
    assert_eq!(done(&bed), 0);
    let push = || bed.server.push(bed.ann, question.id, once);
    // The second may find the button gone.
    let (first, _) = tokio::join!(push(), push());
    first.unwrap();
    bed.saw(room, "the answer", |seen| seen.text == "done").await;
    bed.wait("there is nothing to press", |server| {
        server.seen(room).iter().all(|seen| seen.buttons.is_empty()).then_some(())
    })
    .await;
    bed.call(bed.ann, room, "and now?");
    bed.saw(room, "the next answer", |seen| seen.text.ends_with("and now?")).await;
    assert_eq!(done(&bed), 1);
    bed.close().await;
    Ok(())
}

pub(super) async fn shows_who_decided<V: Venue>() -> Able {
    V::edits()?;
    let bed = at_home::<V>([runs("c1", DANGER), Step::text("done")]).await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "do it");
    let question = bed.saw(dm, "a question", |seen| seen.text.contains("May this run?")).await;
    bed.say(bed.ann, dm, "/approve");
    let by = format!("allowed once by {}:{} at ", V::WORD, bed.ann);
    let shown = bed.saw(dm, &by, |seen| seen.id == question.id && seen.text.contains(&by)).await;
    assert!(shown.text.ends_with(" UTC") && shown.text.starts_with(&question.text), "{shown:?}");
    assert_eq!((shown.before, shown.buttons), (vec![question.text], Vec::new()));
    bed.saw(dm, "the answer", |seen| seen.text == "done").await;
    assert_eq!(done(&bed), 1);
    bed.close().await;
    Ok(())
}

pub(super) async fn keeps_questions_over_a_crash<V: Venue>() -> Able {
    let mut bed = at_home::<V>([runs("c1", DANGER), Step::text("as you wish")]).await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "do it");
    let said = bed.said(dm, 1).await;
    assert!(said[0].contains("chmod"), "{said:?}");
    bed.kill();
    bed.start().await;
    bed.say(bed.ann, dm, "/deny");
    bed.saw(dm, "the answer", |seen| seen.text == "as you wish").await;
    assert_eq!(done(&bed), 0);
    let questions = bed.heard(dm).iter().filter(|said| said.contains("May this run?")).count();
    assert_eq!(questions, 1, "{:?}", bed.heard(dm));
    bed.close().await;
    Ok(())
}

pub(super) async fn obeys_commands_first<V: Venue>() -> Able {
    let bed = Bed::<V>::then_echo([Step::Silence]).await.open().await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "wait for it");
    until("the model is asked", || bed.told().len() == 1);
    bed.say(bed.ann, dm, "after that");
    bed.say(bed.ann, dm, "/status");
    let said = bed.said(dm, 1).await;
    assert!(said[0].contains("session"), "{said:?}");
    bed.say(bed.ann, dm, "/new");
    bed.saw(dm, "a new conversation", |seen| seen.text.contains("new")).await;
    bed.say(bed.ann, dm, "hello");
    bed.saw(dm, "the answer", |seen| seen.text == "echo: hello").await;
    let last = bed.told().pop().unwrap()["messages"].to_string();
    assert!(!last.contains("wait for it"), "a new conversation knows of the old one: {last}");
    bed.close().await;
    Ok(())
}

pub(super) async fn is_freed_by_stop<V: Venue>() -> Able {
    let bed = at_home::<V>([runs("c1", "sleep 600"), runs("c2", DANGER)]).await;
    let dm = bed.server.direct(bed.ann);
    bed.say(bed.ann, dm, "wait for it");
    until("the model is asked", || bed.told().len() == 1);
    bed.say(bed.ann, dm, "/stop");
    bed.saw(dm, "it was stopped", |seen| seen.text == "interrupted").await;
    bed.say(bed.ann, dm, "do it");
    let question = bed.saw(dm, "a question", |seen| seen.text.contains("May this run?")).await;
    bed.say(bed.ann, dm, "/stop");
    bed.wait("it was stopped again", |server| {
        let ends = server.seen(dm).into_iter().filter(|seen| seen.text == "interrupted").count();
        (ends == 2).then_some(())
    })
    .await;
    bed.say(bed.ann, dm, "hello");
    bed.saw(dm, "the answer", |seen| seen.text == "echo: hello").await;
    if V::edits().is_ok() {
        let is_over = |text: &str| text.contains("it is no longer asked");
        bed.saw(dm, "the end of the question", |seen| seen.id == question.id && is_over(&seen.text)).await;
    }
    assert_eq!(done(&bed), 0);
    bed.close().await;
    Ok(())
}
