//! What was said elsewhere while nobody listened.

use hermes_gateway::channel::Health;
use hermes_gateway::discord::Past;
use hermes_gateway::letter::RoomKind;
use hermes_testkit::discord::Trouble;

use crate::bed::{Bed, settings, wide, world};

/// How often messages were asked for.
fn asked(bed: &Bed) -> usize {
    bed.server.look(|world| {
        let lists = |line: &str| line.starts_with("GET ") && line.ends_with("/messages");
        world.requests.iter().filter(|request| lists(&request.line)).count()
    })
}

#[tokio::test]
async fn calls_in_places_where_it_never_spoke_are_heard_after_a_lost_session() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let other = server.channel(world.guild, "elsewhere");
    let thread = server.thread(world.ann, world.room, None, "a thread");
    let forum = server.forum(world.guild, "forum");
    let quiet = server.channel(world.guild, "quiet");
    let call = |text: &str| format!("<@{}> {text}", server.bot());
    server.say(world.ann, other, "not for the bot");
    server.say(world.ann, other, &call("one"));
    server.say(world.ann, other, &call("two"));
    server.say(world.ann, thread, &call("three"));
    let post = server.begin_post(world.ann, forum, "a post", &call("four"));
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    let mut letters = Vec::new();
    for _ in 0..4 {
        letters.push(bed.letter().await);
    }
    // Where something was said last comes first; within a place the oldest does.
    let texts: Vec<&str> = letters.iter().map(|letter| letter.text.as_str()).collect();
    assert_eq!(texts, ["four", "three", "one", "two"]);
    let kinds = letters.iter().map(|letter| (letter.room.kind, letter.room.chat.clone()));
    let expected = [
        (RoomKind::Thread, post.to_string()),
        (RoomKind::Thread, thread.to_string()),
        (RoomKind::Group, other.to_string()),
        (RoomKind::Group, other.to_string()),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    bed.nothing().await;
    let quiet = format!("GET /channels/{quiet}/messages");
    assert!(bed.server.look(|world| world.requests.iter().all(|request| request.line != quiet)));
    bed.end().await;
}

#[tokio::test]
async fn one_that_never_ran_before_asks_for_nothing() {
    let world = world(wide()).await;
    let call = format!("<@{}> from before", world.server.bot());
    world.server.say(world.ann, world.room, &call);
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    assert_eq!(asked(&bed), 0);
    bed.end().await;
}

#[tokio::test]
async fn a_place_that_is_caught_up_with_keeps_its_order_and_others_do_not_wait_for_it() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let call = |text: &str| format!("<@{}> {text}", server.bot());
    server.say(world.ann, world.room, &call("old"));
    server.trouble("GET /channels/*/messages", 1, Trouble::RateLimit { retry_after: 2.0, global: false });
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    bed.server
        .wait_for(|world| world.requests.iter().any(|request| request.status == 429).then_some(()))
        .await
        .unwrap();
    bed.server.say(bed.ann, bed.room, &bed.call("new"));
    let dm = bed.server.dm(bed.ann);
    bed.server.say(bed.ann, dm, "beside");
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(bed.letter().await.text);
    }
    assert_eq!(texts, ["beside", "old", "new"]);
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn what_was_not_caught_up_with_is_not_taken_as_heard() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    server.say(world.ann, world.room, &format!("<@{}> missed", server.bot()));
    server.trouble("GET /channels/*/messages", 50, Trouble::RateLimit { retry_after: 30.0, global: false });
    let first = settings(server);
    let bookmark = past.bookmark.clone();
    let mut bed = Bed::start(world, first, past);
    bed.until(|health| *health == Health::Up).await;
    // Something new is heard and kept, and then it ends before the rest was fetched.
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    assert_eq!(past.bookmark, None, "nothing may be said to be heard");
    world.server.clear_troubles();
    let second = settings(&world.server);
    let mut bed = Bed::start(world, second, Past { bookmark, ..Past::default() });
    assert_eq!(bed.letter().await.text, "missed");
    bed.end().await;
}

#[tokio::test]
async fn much_that_was_missed_comes_page_by_page_and_once() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    for number in 0..230 {
        let text =
            if number % 100 == 7 { format!("<@{}> call {number}", server.bot()) } else { "talk".to_owned() };
        server.say(world.ann, world.room, &text);
    }
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    for number in [7, 107, 207] {
        assert_eq!(bed.letter().await.text, format!("call {number}"));
    }
    bed.nothing().await;
    assert_eq!(asked(&bed), 3);
    bed.end().await;
}

#[tokio::test]
async fn no_matter_how_much_was_missed_all_of_it_is_heard() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let dm = server.dm(world.ann);
    for number in 0..1_250 {
        let is_call = number % 600 == 7 || number == 1_249;
        let text = if is_call { format!("<@{}> call {number}", server.bot()) } else { "talk".to_owned() };
        server.say(world.ann, world.room, &text);
    }
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    for number in [7, 607, 1_207, 1_249] {
        assert_eq!(bed.letter().await.text, format!("call {number}"));
    }
    bed.server.say(bed.ann, dm, "one");
    assert_eq!(bed.letter().await.text, "one");
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn a_place_where_much_was_said_does_not_keep_the_others_waiting() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let call = |text: &str| format!("<@{}> {text}", server.bot());
    let other = server.channel(world.guild, "elsewhere");
    server.say(world.ann, other, &call("from elsewhere"));
    for _ in 0..350 {
        server.say(world.ann, world.room, "talk");
    }
    server.say(world.ann, world.room, &call("at last"));
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    let texts = [bed.letter().await.text, bed.letter().await.text];
    assert_eq!(texts, ["from elsewhere", "at last"]);
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn every_channel_is_looked_through() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let count = 130;
    for number in 0..count {
        let channel = server.channel(world.guild, &format!("c{number}"));
        server.say(world.ann, channel, &format!("<@{}> {number}", server.bot()));
    }
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    for number in (0..count).rev() {
        assert_eq!(bed.letter().await.text, number.to_string());
    }
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn a_letter_does_not_stand_for_what_was_said_before_it() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let call = |text: &str| format!("<@{}> {text}", server.bot());
    server.say(world.ann, world.room, &call("missed"));
    let kept = server.say(world.ann, world.room, &call("kept"));
    let settings = settings(server);
    // The later one was kept, and yet it was never said that all before it was heard.
    let past = Past { last: vec![(world.room.to_string(), kept.to_string())], ..past };
    let mut bed = Bed::start(world, settings, past);
    assert_eq!(bed.letter().await.text, "missed");
    assert_eq!(bed.letter().await.text, "kept");
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn threads_that_were_archived_meanwhile_are_looked_through() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let (world, past) = bed.leave().await;
    let server = &world.server;
    let call = |text: &str| format!("<@{}> {text}", server.bot());
    let forum = server.forum(world.guild, "forum");
    let thread = server.thread(world.ann, world.room, None, "a thread");
    let other = server.thread(world.ann, world.room, None, "another thread");
    let post = server.begin_post(world.ann, forum, "a post", &call("in the post"));
    server.say(world.ann, thread, &call("in the thread"));
    server.say(world.ann, other, "not for the bot");
    for thread in [thread, other, post] {
        server.archive(thread);
    }
    let settings = settings(server);
    let mut bed = Bed::start(world, settings, past);
    let mut texts = vec![bed.letter().await.text, bed.letter().await.text];
    texts.sort();
    assert_eq!(texts, ["in the post", "in the thread"]);
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn a_thread_it_takes_part_in_is_one_also_where_discord_does_not_say_so() {
    let world = world(wide()).await;
    let server = &world.server;
    let thread = server.thread(world.ann, world.room, None, "a thread");
    // It is told to nobody who comes now.
    server.archive(thread);
    let settings = settings(server);
    let past = Past { threads: vec![thread.to_string()], ..Past::default() };
    let mut bed = Bed::start(world, settings, past);
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    bed.server.trouble(&format!("GET /channels/{thread}"), 1, Trouble::Fail(404));
    bed.server.say(bed.ann, thread, "and then?");
    let letter = bed.letter().await;
    assert_eq!((letter.room.kind, letter.text.as_str()), (RoomKind::Thread, "and then?"));
    bed.nothing().await;
    bed.end().await;
}
