//! Context messages.

use hermes_gateway::discord::ResumeState;
use hermes_gateway::{BotPolicy, Channel, ChannelHealth, InboundMessage};

use crate::fixture::{BotFixture, settings, text, wide, world};

async fn before(bot: &BotFixture, message: &InboundMessage) -> Vec<(String, String)> {
    let remarks = bot.discord.context_before(message).await;
    remarks.into_iter().map(|remark| (remark.author, remark.text)).collect()
}

fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
    expected.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned())).collect()
}

#[tokio::test]
async fn a_mention_comes_with_the_messages_since_the_bots_last_one() {
    let mut bot = BotFixture::with(|settings| settings.auto_thread = false).await;
    let (bob, other) = (bot.server.add_user("bob"), bot.server.add_bot("other"));
    bot.server.send_text(bob, bot.channel, "long ago");
    bot.discord.send_message(&bot.channel.to_string(), &text("what I said"), "m1").await.unwrap();
    bot.server.send_text(bob, bot.channel, "lunch at one");
    bot.server.send_text(other, bot.channel, "beep");
    bot.server.send_text(bot.ann, bot.channel, "fine");
    bot.server.send_text(bot.ann, bot.channel, &bot.call("when is lunch?"));
    bot.server.send_text(bob, bot.channel, "later");
    let message = bot.next_message().await;
    assert_eq!(before(&bot, &message).await, pairs(&[("bob", "lunch at one"), ("ann", "fine")]));
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
    for words in ["one", "two"] {
        bot.server.send_text(bot.ann, thread, words);
    }
    bot.server.send_text(other, thread, "beep");
    bot.server.send_text(bot.ann, thread, &bot.call("sum it up"));
    let message = bot.next_message().await;
    assert_eq!(before(&bot, &message).await, pairs(&[("ann", "two"), ("other", "beep")]));
    bot.end().await;
}

#[tokio::test]
async fn no_context_in_direct_messages_or_if_disabled() {
    let world = world(wide()).await;
    let free = world.server.add_channel(world.guild, "free");
    let mut chosen = settings(&world.server);
    chosen.free_response_channels = [free.to_string()].iter().collect();
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.until(|health| *health == ChannelHealth::Up).await;
    let dm = bot.server.dm_channel(bot.ann);
    for (place, words) in [(dm, "hello"), (free, "hello")] {
        bot.server.send_text(bot.ann, place, words);
        bot.next_message().await;
        bot.server.send_text(bot.ann, place, "again");
        let message = bot.next_message().await;
        assert_eq!(before(&bot, &message).await, []);
    }
    // A thread that was opened for the answer has nothing before it.
    bot.server.send_text(bot.ann, bot.channel, "talk");
    bot.server.send_text(bot.ann, bot.channel, &bot.call("hello"));
    let mut message = bot.next_message().await;
    message.chat = bot.discord.open_thread(&message, "hello").await.unwrap();
    assert_eq!(before(&bot, &message).await, []);
    bot.end().await;

    let mut bot = BotFixture::with(|settings| {
        settings.auto_thread = false;
        settings.history = 0;
    })
    .await;
    bot.server.send_text(bot.ann, bot.channel, "talk");
    bot.server.send_text(bot.ann, bot.channel, &bot.call("hello"));
    let message = bot.next_message().await;
    assert_eq!(before(&bot, &message).await, []);
    let asked =
        bot.server.read(|world| world.requests.iter().any(|request| request.line.ends_with("/messages")));
    assert!(!asked);
    bot.end().await;
}
