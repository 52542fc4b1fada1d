//! Context messages.

use hermes_gateway::discord::ResumeState;
use hermes_gateway::{BotPolicy, Channel, ChannelHealth, InboundMessage};

use crate::fixture::{BotFixture, settings, text_message, without_rate_limits, world};

async fn context_before(bot: &BotFixture, message: &InboundMessage) -> Vec<(String, String)> {
    let context = bot.discord.context_before(message).await;
    context.into_iter().map(|message| (message.author, message.text)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_mention_has_the_messages_since_the_last_one_of_the_bot() {
    let mut bot = BotFixture::with(|settings| settings.auto_thread = false).await;
    let (bob, other) = (bot.server.add_user("bob"), bot.server.add_bot("other"));
    bot.server.send_text(bob, bot.channel, "long ago");
    bot.discord.send_message(&bot.channel.to_string(), &text_message("what I said"), "m1").await.unwrap();
    bot.server.send_text(bob, bot.channel, "lunch at one");
    bot.server.send_text(other, bot.channel, "beep");
    bot.server.send_text(bot.ann, bot.channel, "fine");
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("when is lunch?"));
    bot.server.send_text(bob, bot.channel, "later");
    let message = bot.next_message().await;
    assert_eq!(context_before(&bot, &message).await, pairs(&[("bob", "lunch at one"), ("ann", "fine")]));
    bot.end().await;
}

#[tokio::test]
async fn context_of_a_thread_is_limited_by_the_settings() {
    let mut bot = BotFixture::with(|settings| {
        settings.history = 2;
        settings.allow_bots = BotPolicy::Mentions;
    })
    .await;
    let other = bot.server.add_bot("other");
    let thread = bot.server.start_thread(bot.ann, bot.channel, None, "a thread");
    for text in ["one", "two"] {
        bot.server.send_text(bot.ann, thread, text);
    }
    bot.server.send_text(other, thread, "beep");
    bot.server.send_text(bot.ann, thread, &bot.mention("sum it up"));
    let message = bot.next_message().await;
    assert_eq!(context_before(&bot, &message).await, pairs(&[("ann", "two"), ("other", "beep")]));
    bot.end().await;
}

#[tokio::test]
async fn no_context_in_direct_messages_or_if_disabled() {
    let world = world(without_rate_limits()).await;
    let free = world.server.add_channel(world.guild, "free");
    let mut chosen = settings(&world.server);
    chosen.free_response_channels = [free.to_string()].iter().collect();
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    let dm = bot.server.dm_channel(bot.ann);
    for (chat, text) in [(dm, "hello"), (free, "hello")] {
        bot.server.send_text(bot.ann, chat, text);
        bot.next_message().await;
        bot.server.send_text(bot.ann, chat, "again");
        let message = bot.next_message().await;
        assert_eq!(context_before(&bot, &message).await, []);
    }
    // A thread that was opened for the reply has no earlier messages.
    bot.server.send_text(bot.ann, bot.channel, "talk");
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let mut message = bot.next_message().await;
    message.chat = bot.discord.open_thread(&message, "hello").await.unwrap();
    assert_eq!(context_before(&bot, &message).await, []);
    bot.end().await;

    let mut bot = BotFixture::with(|settings| {
        settings.auto_thread = false;
        settings.history = 0;
    })
    .await;
    bot.server.send_text(bot.ann, bot.channel, "talk");
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    assert_eq!(context_before(&bot, &message).await, []);
    let asked =
        bot.server.read(|world| world.requests.iter().any(|request| request.line.ends_with("/messages")));
    assert!(!asked);
    bot.end().await;
}
