//! Lost connections and messages sent in the meantime.

use hermes_gateway::ChannelHealth;
use hermes_gateway::discord::ResumeState;
use hermes_testkit::discord::{InjectedFault, ServerOptions};

use crate::fixture::{BotFixture, settings, without_rate_limits, world};

fn is_down(health: &ChannelHealth) -> bool {
    matches!(health, ChannelHealth::Down { .. })
}

#[tokio::test]
async fn messages_during_a_cut_arrive_once() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_text(bot.ann, dm, "before");
    assert_eq!(bot.next_message().await.text, "before");
    bot.server.drop_connections();
    bot.server.send_text(bot.ann, dm, "during the cut");
    assert_eq!(bot.next_message().await.text, "during the cut");
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    assert_eq!(bot.server.read(|world| (world.identified, world.resumed)), (1, 1));
    bot.end().await;
}

#[tokio::test]
async fn the_platform_may_ask_to_reconnect() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.request_reconnect();
    bot.server.wait_for(|world| (world.resumed == 1).then_some(())).await.unwrap();
    bot.server.invalidate_resumable();
    bot.server.wait_for(|world| (world.resumed == 2).then_some(())).await.unwrap();
    bot.server.close_connections(4000);
    bot.server.wait_for(|world| (world.resumed == 3).then_some(())).await.unwrap();
    bot.server.send_text(bot.ann, dm, "still there?");
    assert_eq!(bot.next_message().await.text, "still there?");
    bot.end().await;
}

#[tokio::test]
async fn a_silent_server_is_detected() {
    let world = world(without_rate_limits()).await;
    world.server.silence();
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    assert_eq!(
        bot.wait_for_health(is_down).await,
        ChannelHealth::Down { reason: "no response from Discord".to_owned() }
    );
    bot.server.recover();
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.end().await;
}

#[tokio::test]
async fn an_invalid_session_is_recovered_from() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_text(bot.ann, dm, "before");
    assert_eq!(bot.next_message().await.text, "before");
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("in the channel"));
    assert_eq!(bot.next_message().await.text, "in the channel");
    bot.server.drop_connections();
    bot.server.forget_sessions();
    bot.server.send_text(bot.ann, dm, "one");
    bot.server.send_text(bot.ann, dm, "two");
    bot.server.send_text(bot.ann, bot.channel, "not for the bot");
    let mut texts = vec![bot.next_message().await.text, bot.next_message().await.text];
    assert_eq!(texts, ["one", "two"]);
    bot.server.send_text(bot.ann, dm, "three");
    texts.push(bot.next_message().await.text);
    assert_eq!(texts, ["one", "two", "three"]);
    bot.end().await;
}

#[tokio::test]
async fn messages_sent_while_offline_are_fetched() {
    let world = world(without_rate_limits()).await;
    let (server, ann, chat) = (&world.server, world.ann, world.channel);
    let role = server.add_role(world.guild, "staff", &[ann]);
    let dm = server.dm_channel(ann);
    let seen = server.send_text(ann, dm, "answered long ago");
    let seen_there = server.send_text(ann, chat, "also seen");
    for number in 0..3 {
        server.send_text(ann, dm, &format!("missed {number}"));
    }
    server.send_text(ann, chat, "not for the bot");
    server.send_text(ann, chat, &format!("<@{}> missed there", server.bot()));
    server.inject("GET /channels/*/messages", 1, InjectedFault::Fail(503));
    server.inject("GET /channels/*/messages", 1, InjectedFault::Disconnect);
    server.inject("GET /guilds/*/members/*", 1, InjectedFault::RateLimit { retry_after: 0.5, global: false });
    let gone = 77;
    server.expect_violation(10_003);
    let last_messages = [(dm, seen), (chat, seen_there), (gone, 5)];
    let last_messages = last_messages.map(|(chat, message)| (chat.to_string(), message.to_string())).to_vec();
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(world, settings, ResumeState { last_messages, ..ResumeState::default() });
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.push(bot.next_message().await);
    }
    // The most recently active chat comes first, and within a chat the oldest message.
    let texts: Vec<&str> = messages.iter().map(|message| message.text.as_str()).collect();
    assert_eq!(texts, ["missed there", "missed 0", "missed 1", "missed 2"]);
    assert_eq!(messages[0].sender.roles, [role.to_string()]);
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn a_repeated_message_has_the_same_id() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    let said = bot.server.send_text(bot.ann, dm, "hello");
    bot.server.replay(said);
    let (first, second) = (bot.next_message().await, bot.next_message().await);
    assert_eq!(first, second);
    bot.end().await;
}

#[tokio::test]
async fn a_wrong_token_is_fatal() {
    let world = world(without_rate_limits()).await;
    world.server.expect_violation(4004);
    let mut settings = settings(&world.server);
    settings.token = hermes_types::Secret::new("wrong");
    let bot = BotFixture::start(world, settings, ResumeState::default());
    let (server, end) = bot.wait_for_end().await;
    let unfit = end.unwrap_err();
    assert_eq!(unfit.reason, "Discord rejected the bot token");
    assert!(unfit.hint.contains("discord.bot_token"), "{}", unfit.hint);
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_intent_is_fatal() {
    let world = world(ServerOptions { privileged_intents: 0, ..without_rate_limits() }).await;
    world.server.expect_violation(4014);
    let settings = settings(&world.server);
    let (server, end) = BotFixture::start(world, settings, ResumeState::default()).wait_for_end().await;
    assert!(end.unwrap_err().hint.contains("Message Content Intent"));
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_unreachable_server_is_retried() {
    let world = world(without_rate_limits()).await;
    let mut settings = settings(&world.server);
    // No server listens at this address.
    settings.gateway_url = Some("ws://127.0.0.1:9".to_owned());
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    let ChannelHealth::Down { reason } = bot.wait_for_health(is_down).await else { panic!("not down") };
    assert!(reason.starts_with("cannot reach Discord"), "{reason}");
    bot.end().await;
}
