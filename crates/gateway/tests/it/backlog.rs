//! Messages missed while offline.

use hermes_gateway::discord::ResumeState;
use hermes_gateway::{ChannelHealth, ChatKind};
use hermes_testkit::discord::InjectedFault;

use crate::fixture::{BotFixture, settings, without_rate_limits, world};

/// The number of message list requests.
fn list_request_count(bot: &BotFixture) -> usize {
    bot.server.read(|world| {
        let is_list = |line: &str| line.starts_with("GET ") && line.ends_with("/messages");
        world.requests.iter().filter(|request| is_list(&request.line)).count()
    })
}

#[tokio::test]
async fn mentions_in_new_channels_are_found_after_a_lost_session() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let other = server.add_channel(world.guild, "elsewhere");
    let thread = server.start_thread(world.ann, world.channel, None, "a thread");
    let forum = server.add_forum(world.guild, "forum");
    let quiet = server.add_channel(world.guild, "quiet");
    let mention = |text: &str| format!("<@{}> {text}", server.bot());
    server.send_text(world.ann, other, "not for the bot");
    server.send_text(world.ann, other, &mention("one"));
    server.send_text(world.ann, other, &mention("two"));
    server.send_text(world.ann, thread, &mention("three"));
    let post = server.start_forum_post(world.ann, forum, "a post", &mention("four"));
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.push(bot.next_message().await);
    }
    // The most recently active chat comes first; within a chat the oldest message.
    let texts: Vec<&str> = messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(texts, ["four", "three", "one", "two"]);
    let kinds = messages.iter().map(|message| (message.chat.kind, message.chat.id.clone()));
    let expected = [
        (ChatKind::Thread, post.to_string()),
        (ChatKind::Thread, thread.to_string()),
        (ChatKind::Group, other.to_string()),
        (ChatKind::Group, other.to_string()),
    ];
    assert_eq!(kinds.collect::<Vec<_>>(), expected);
    bot.assert_nothing_arrived().await;
    let quiet = format!("GET /channels/{quiet}/messages");
    assert!(bot.server.read(|world| world.requests.iter().all(|request| request.line != quiet)));
    bot.end().await;
}

#[tokio::test]
async fn the_first_start_fetches_nothing() {
    let world = world(without_rate_limits()).await;
    let call = format!("<@{}> from before", world.server.bot());
    world.server.send_text(world.ann, world.channel, &call);
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    assert_eq!(list_request_count(&bot), 0);
    bot.end().await;
}

#[tokio::test]
async fn fetching_missed_messages_keeps_order_and_blocks_no_other_chat() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let mention = |text: &str| format!("<@{}> {text}", server.bot());
    server.send_text(world.ann, world.channel, &mention("old"));
    server.inject(
        "GET /channels/*/messages",
        1,
        InjectedFault::RateLimit { retry_after: 2.0, global: false },
    );
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    bot.server
        .wait_for(|world| world.requests.iter().any(|request| request.status == 429).then_some(()))
        .await
        .unwrap();
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("new"));
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_text(bot.ann, dm, "direct");
    let mut texts = Vec::new();
    for _ in 0..3 {
        texts.push(bot.next_message().await.text);
    }
    assert_eq!(texts, ["direct", "old", "new"]);
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn the_bookmark_does_not_pass_unfetched_messages() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    server.send_text(world.ann, world.channel, &format!("<@{}> missed", server.bot()));
    server.inject(
        "GET /channels/*/messages",
        50,
        InjectedFault::RateLimit { retry_after: 30.0, global: false },
    );
    let first = settings(server);
    let bookmark = resume_state.bookmark.clone();
    let mut bot = BotFixture::start(world, first, resume_state);
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    // A new message is stored, and then the bot stops before the rest is fetched.
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    assert_eq!(resume_state.bookmark, None, "the bookmark has not advanced");
    world.server.clear_injected();
    let second = settings(&world.server);
    let mut bot = BotFixture::start(world, second, ResumeState { bookmark, ..ResumeState::default() });
    assert_eq!(bot.next_message().await.text, "missed");
    bot.end().await;
}

#[tokio::test]
async fn many_missed_messages_arrive_once_page_by_page() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    for number in 0..230 {
        let text =
            if number % 100 == 7 { format!("<@{}> call {number}", server.bot()) } else { "talk".to_owned() };
        server.send_text(world.ann, world.channel, &text);
    }
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    for number in [7, 107, 207] {
        assert_eq!(bot.next_message().await.text, format!("call {number}"));
    }
    bot.assert_nothing_arrived().await;
    assert_eq!(list_request_count(&bot), 3);
    bot.end().await;
}

#[tokio::test]
async fn all_missed_messages_arrive() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let dm = server.dm_channel(world.ann);
    for number in 0..1_250 {
        let is_call = number % 600 == 7 || number == 1_249;
        let text = if is_call { format!("<@{}> call {number}", server.bot()) } else { "talk".to_owned() };
        server.send_text(world.ann, world.channel, &text);
    }
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    for number in [7, 607, 1_207, 1_249] {
        assert_eq!(bot.next_message().await.text, format!("call {number}"));
    }
    bot.server.send_text(bot.ann, dm, "one");
    assert_eq!(bot.next_message().await.text, "one");
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn a_busy_chat_does_not_delay_others() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let mention = |text: &str| format!("<@{}> {text}", server.bot());
    let other = server.add_channel(world.guild, "elsewhere");
    server.send_text(world.ann, other, &mention("from elsewhere"));
    for _ in 0..350 {
        server.send_text(world.ann, world.channel, "talk");
    }
    server.send_text(world.ann, world.channel, &mention("at last"));
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    let texts = [bot.next_message().await.text, bot.next_message().await.text];
    assert_eq!(texts, ["from elsewhere", "at last"]);
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn every_channel_is_searched() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let count = 130;
    for number in 0..count {
        let channel = server.add_channel(world.guild, &format!("c{number}"));
        server.send_text(world.ann, channel, &format!("<@{}> {number}", server.bot()));
    }
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    for number in (0..count).rev() {
        assert_eq!(bot.next_message().await.text, number.to_string());
    }
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn a_stored_message_does_not_prove_that_earlier_ones_were_processed() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let mention = |text: &str| format!("<@{}> {text}", server.bot());
    server.send_text(world.ann, world.channel, &mention("missed"));
    let stored = server.send_text(world.ann, world.channel, &mention("stored"));
    let settings = settings(server);
    // The later message was stored, but the bookmark does not prove that the earlier one was.
    let resume_state =
        ResumeState { last_messages: vec![(world.channel.to_string(), stored.to_string())], ..resume_state };
    let mut bot = BotFixture::start(world, settings, resume_state);
    assert_eq!(bot.next_message().await.text, "missed");
    assert_eq!(bot.next_message().await.text, "stored");
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn archived_threads_are_searched() {
    let mut bot = BotFixture::new().await;
    bot.assert_nothing_arrived().await;
    let (world, resume_state) = bot.stop_and_forget_sessions().await;
    let server = &world.server;
    let mention = |text: &str| format!("<@{}> {text}", server.bot());
    let forum = server.add_forum(world.guild, "forum");
    let thread = server.start_thread(world.ann, world.channel, None, "a thread");
    let other = server.start_thread(world.ann, world.channel, None, "another thread");
    let post = server.start_forum_post(world.ann, forum, "a post", &mention("in the post"));
    server.send_text(world.ann, thread, &mention("in the thread"));
    server.send_text(world.ann, other, "not for the bot");
    for thread in [thread, other, post] {
        server.archive_thread(thread);
    }
    let settings = settings(server);
    let mut bot = BotFixture::start(world, settings, resume_state);
    let mut texts = vec![bot.next_message().await.text, bot.next_message().await.text];
    texts.sort();
    assert_eq!(texts, ["in the post", "in the thread"]);
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn a_joined_thread_is_known_even_if_discord_does_not_report_it() {
    let world = world(without_rate_limits()).await;
    let server = &world.server;
    let thread = server.start_thread(world.ann, world.channel, None, "a thread");
    // The server does not report an archived thread to a new session.
    server.archive_thread(thread);
    let settings = settings(server);
    let resume_state = ResumeState { threads: vec![thread.to_string()], ..ResumeState::default() };
    let mut bot = BotFixture::start(world, settings, resume_state);
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    bot.server.inject(&format!("GET /channels/{thread}"), 1, InjectedFault::Fail(404));
    bot.server.send_text(bot.ann, thread, "and then?");
    let message = bot.next_message().await;
    assert_eq!((message.chat.kind, message.text.as_str()), (ChatKind::Thread, "and then?"));
    bot.assert_nothing_arrived().await;
    bot.end().await;
}
