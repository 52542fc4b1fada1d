//! What others said where the bot is called.

use hermes_gateway::channel::{Channel, Health};
use hermes_gateway::discord::{Bots, Past};
use hermes_gateway::letter::Letter;

use crate::bed::{Bed, settings, text, wide, world};

async fn before(bed: &Bed, letter: &Letter) -> Vec<(String, String)> {
    let remarks = bed.discord.before(letter).await;
    remarks.into_iter().map(|remark| (remark.name, remark.text)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn what_was_said_since_its_own_last_message_is_given_with_a_call() {
    let mut bed = Bed::with(|settings| settings.auto_thread = false).await;
    let (bob, other) = (bed.server.user("bob"), bed.server.other_bot("other"));
    bed.server.say(bob, bed.room, "long ago");
    bed.discord.send(&bed.room.to_string(), &text("what I said"), "m1").await.unwrap();
    bed.server.say(bob, bed.room, "lunch at one");
    bed.server.say(other, bed.room, "beep");
    bed.server.say(bed.ann, bed.room, "fine");
    bed.server.say(bed.ann, bed.room, &bed.call("when is lunch?"));
    bed.server.say(bob, bed.room, "later");
    let letter = bed.letter().await;
    assert_eq!(before(&bed, &letter).await, pairs(&[("bob", "lunch at one"), ("ann", "fine")]));
    bed.end().await;
}

#[tokio::test]
async fn a_thread_that_it_is_called_into_is_given_too_and_no_more_than_chosen() {
    let mut bed = Bed::with(|settings| {
        settings.history = 2;
        settings.allow_bots = Bots::Mentions;
    })
    .await;
    let other = bed.server.other_bot("other");
    let thread = bed.server.thread(bed.ann, bed.room, None, "a thread");
    for words in ["one", "two"] {
        bed.server.say(bed.ann, thread, words);
    }
    bed.server.say(other, thread, "beep");
    bed.server.say(bed.ann, thread, &bed.call("sum it up"));
    let letter = bed.letter().await;
    assert_eq!(before(&bed, &letter).await, pairs(&[("ann", "two"), ("other", "beep")]));
    bed.end().await;
}

#[tokio::test]
async fn nothing_is_given_where_everything_is_heard_or_the_owner_does_not_want_it() {
    let world = world(wide()).await;
    let free = world.server.channel(world.guild, "free");
    let mut chosen = settings(&world.server);
    chosen.free_response_channels = [free.to_string()].iter().collect();
    let mut bed = Bed::start(world, chosen, Past::default());
    bed.until(|health| *health == Health::Up).await;
    let dm = bed.server.dm(bed.ann);
    for (place, words) in [(dm, "hello"), (free, "hello")] {
        bed.server.say(bed.ann, place, words);
        bed.letter().await;
        bed.server.say(bed.ann, place, "again");
        let letter = bed.letter().await;
        assert_eq!(before(&bed, &letter).await, []);
    }
    // A thread that was opened for the answer has nothing before it.
    bed.server.say(bed.ann, bed.room, "talk");
    bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let mut letter = bed.letter().await;
    letter.room = bed.discord.open_thread(&letter, "hello").await.unwrap();
    assert_eq!(before(&bed, &letter).await, []);
    bed.end().await;

    let mut bed = Bed::with(|settings| {
        settings.auto_thread = false;
        settings.history = 0;
    })
    .await;
    bed.server.say(bed.ann, bed.room, "talk");
    bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    assert_eq!(before(&bed, &letter).await, []);
    let asked =
        bed.server.look(|world| world.requests.iter().any(|request| request.line.ends_with("/messages")));
    assert!(!asked);
    bed.end().await;
}
