//! Forums.

use hermes_gateway::discord::{ChannelOverride, ResumeState};
use hermes_gateway::{
    AttachmentFile, Channel, ChannelHealth, ChatKind, DeliveryCheck, OutboundMessage, Reaction, ReplyTarget,
    SendError,
};
use hermes_testkit::discord::InjectedFault;

use crate::fixture::{BotFixture, settings, text_message, without_rate_limits, world};

#[tokio::test]
async fn a_post_follows_the_rules_of_threads() {
    let mut bot = BotFixture::new().await;
    let forum = bot.server.add_forum(bot.guild, "questions");
    bot.server.start_forum_post(bot.ann, forum, "not for it", "hello");
    let post = bot.server.start_forum_post(bot.ann, forum, "a question", &bot.mention("how?"));
    let message = bot.next_message().await;
    assert_eq!((message.text.as_str(), message.chat.kind), ("how?", ChatKind::Thread));
    assert_eq!(
        (message.chat.id.clone(), message.chat.thread.clone()),
        (post.to_string(), Some(post.to_string()))
    );
    assert_eq!(
        (message.chat.parent.clone(), message.reply_target.clone()),
        (Some(forum.to_string()), ReplyTarget::SameChat)
    );
    // The first message of the post is in the post, not in the forum.
    bot.discord.set_reaction(&message, Reaction::Seen).await;
    let reactions = bot.server.read(|world| world.messages[&post].reactions.len());
    assert_eq!(reactions, 1);
    bot.discord.join_thread(&post.to_string());
    bot.server.send_text(bot.ann, post, "and why?");
    assert_eq!(bot.next_message().await.text, "and why?");
    bot.end().await;
}

#[tokio::test]
async fn forum_overrides_apply_to_posts() {
    let world = world(without_rate_limits()).await;
    let forum = world.server.add_forum(world.guild, "questions");
    let mut chosen = settings(&world.server);
    let open = ChannelOverride { require_mention: Some(false), ..ChannelOverride::default() };
    chosen.overrides = [(forum.to_string(), open)].into();
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.server.start_forum_post(bot.ann, forum, "a question", "how?");
    let message = bot.next_message().await;
    assert_eq!((message.text.as_str(), message.reply_target), ("how?", ReplyTarget::SameChat));
    bot.end().await;
}

#[tokio::test]
async fn a_message_to_a_forum_creates_a_post() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.txt");
    std::fs::write(&path, "abc").unwrap();
    for (place, mark) in [
        (bot.server.add_forum(bot.guild, "reports"), "m1"),
        (bot.server.add_media_channel(bot.guild, "films"), "m2"),
    ] {
        let chat = place.to_string();
        bot.assert_nothing_arrived().await;
        let files = vec![AttachmentFile { name: "a.txt".to_owned(), path: path.clone() }];
        let post = OutboundMessage { files, ..text_message("# All is well\nand so on") };
        let id = bot.discord.send_message(&chat, &post, mark).await.unwrap();
        // Sending the same message again posts nothing.
        assert_eq!(bot.discord.send_message(&chat, &post, mark).await, Ok(id.clone()));
        let number: u64 = id.parse().unwrap();
        let there = bot.server.read(|world| {
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
        bot.discord.edit_message(&chat, &id, &text_message("changed")).await.unwrap();
        assert_eq!(bot.server.read(|world| world.messages[&number].content.clone()), "changed");
        // A reply in the post needs no mention.
        bot.server.send_text(bot.ann, number, "thanks");
        assert_eq!(bot.next_message().await.text, "thanks");
    }
    bot.end().await;
}

#[tokio::test]
async fn a_post_that_may_have_been_sent_is_found() {
    let mut bot = BotFixture::new().await;
    let forum = bot.server.add_forum(bot.guild, "reports");
    bot.assert_nothing_arrived().await;
    let (chat, post) = (forum.to_string(), text_message("All is well\nand so on"));
    bot.server.inject("POST /channels/*/threads", 1, InjectedFault::LoseResponse);
    let sent = bot.discord.send_message(&chat, &post, "m1").await;
    assert!(matches!(sent, Err(SendError::Unknown(_))), "{sent:?}");
    let thread = bot.server.read(|world| world.threads_of(forum)[0].id.to_string());
    assert_eq!(bot.discord.find_message(&chat, &post, "m1").await, DeliveryCheck::Sent(thread));
    assert_eq!(bot.discord.find_message(&chat, &text_message("Another"), "m2").await, DeliveryCheck::Unknown);
    bot.end().await;
}

#[tokio::test]
async fn a_forum_that_requires_tags_is_an_error() {
    let mut bot = BotFixture::new().await;
    let forum = bot.server.add_forum(bot.guild, "reports");
    bot.server.require_tags(forum);
    bot.assert_nothing_arrived().await;
    bot.server.expect_violation(40_067);
    let Err(SendError::Permanent(why)) =
        bot.discord.send_message(&forum.to_string(), &text_message("hello"), "m1").await
    else {
        panic!("sent")
    };
    assert!(why.contains("requires a tag"), "{why}");
    bot.end().await;
}
