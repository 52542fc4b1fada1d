//! Forums, whose posts are threads.

use hermes_gateway::channel::{Channel, Enclosure, Found, Health, Post, Sign, Undelivered};
use hermes_gateway::discord::{Override, Past};
use hermes_gateway::letter::{ReplyPlace, RoomKind};
use hermes_testkit::discord::Trouble;

use crate::bed::{Bed, settings, text, wide, world};

#[tokio::test]
async fn a_post_is_a_thread_of_its_own_and_follows_the_rules_of_threads() {
    let mut bed = Bed::new().await;
    let forum = bed.server.forum(bed.guild, "questions");
    bed.server.begin_post(bed.ann, forum, "not for it", "hello");
    let post = bed.server.begin_post(bed.ann, forum, "a question", &bed.call("how?"));
    let letter = bed.letter().await;
    assert_eq!((letter.text.as_str(), letter.room.kind), ("how?", RoomKind::Thread));
    assert_eq!(
        (letter.room.chat.clone(), letter.room.thread.clone()),
        (post.to_string(), Some(post.to_string()))
    );
    assert_eq!(
        (letter.room.parent.clone(), letter.reply.clone()),
        (Some(forum.to_string()), ReplyPlace::Here)
    );
    // Its first message is in it, and not in the forum.
    bed.discord.mark(&letter, Sign::Seen).await;
    let reactions = bed.server.look(|world| world.messages[&post].reactions.len());
    assert_eq!(reactions, 1);
    bed.discord.joined(&post.to_string());
    bed.server.say(bed.ann, post, "and why?");
    assert_eq!(bed.letter().await.text, "and why?");
    bed.end().await;
}

#[tokio::test]
async fn what_is_chosen_for_a_forum_holds_for_its_posts() {
    let world = world(wide()).await;
    let forum = world.server.forum(world.guild, "questions");
    let mut chosen = settings(&world.server);
    let open = Override { require_mention: Some(false), ..Override::default() };
    chosen.overrides = [(forum.to_string(), open)].into();
    let mut bed = Bed::start(world, chosen, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.server.begin_post(bed.ann, forum, "a question", "how?");
    let letter = bed.letter().await;
    assert_eq!((letter.text.as_str(), letter.reply), ("how?", ReplyPlace::Here));
    bed.end().await;
}

#[tokio::test]
async fn what_is_sent_to_a_forum_begins_a_post() {
    let mut bed = Bed::new().await;
    bed.nothing().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "abc").unwrap();
    for (place, mark) in
        [(bed.server.forum(bed.guild, "reports"), "m1"), (bed.server.media(bed.guild, "films"), "m2")]
    {
        let chat = place.to_string();
        bed.nothing().await;
        let files = vec![Enclosure { name: "a.txt".to_owned(), path: path.clone() }];
        let post = Post { files, ..text("# All is well\nand so on") };
        let id = bed.discord.send(&chat, &post, mark).await.unwrap();
        // The same is not sent twice.
        assert_eq!(bed.discord.send(&chat, &post, mark).await, Ok(id.clone()));
        let number: u64 = id.parse().unwrap();
        let there = bed.server.look(|world| {
            let message = &world.messages[&number];
            let threads = world.threads_of(place).len();
            (
                world.channels[&number].name.clone(),
                message.content.clone(),
                message.attachments.len(),
                threads,
            )
        });
        assert_eq!(there, ("All is well".to_owned(), "# All is well\nand so on".to_owned(), 1, 1));
        bed.discord.edit(&chat, &id, &text("changed")).await.unwrap();
        assert_eq!(bed.server.look(|world| world.messages[&number].content.clone()), "changed");
        // Whoever answers there need not call it.
        bed.server.say(bed.ann, number, "thanks");
        assert_eq!(bed.letter().await.text, "thanks");
    }
    bed.end().await;
}

#[tokio::test]
async fn a_post_that_may_have_been_sent_is_found() {
    let mut bed = Bed::new().await;
    let forum = bed.server.forum(bed.guild, "reports");
    bed.nothing().await;
    let (chat, post) = (forum.to_string(), text("All is well\nand so on"));
    bed.server.trouble("POST /channels/*/threads", 1, Trouble::Vanish);
    let sent = bed.discord.send(&chat, &post, "m1").await;
    assert!(matches!(sent, Err(Undelivered::Unknown(_))), "{sent:?}");
    let thread = bed.server.look(|world| world.threads_of(forum)[0].id.to_string());
    assert_eq!(bed.discord.find(&chat, &post, "m1").await, Found::There(thread));
    assert_eq!(bed.discord.find(&chat, &text("Another"), "m2").await, Found::Unclear);
    bed.end().await;
}

#[tokio::test]
async fn a_forum_that_wants_tags_says_so() {
    let mut bed = Bed::new().await;
    let forum = bed.server.forum(bed.guild, "reports");
    bed.server.want_tags(forum);
    bed.nothing().await;
    bed.server.expect(40_067);
    let Err(Undelivered::Never(why)) = bed.discord.send(&forum.to_string(), &text("hello"), "m1").await
    else {
        panic!("sent")
    };
    assert!(why.contains("only posts with a tag"), "{why}");
    bed.end().await;
}
