//! Roles in direct messages.

use hermes_gateway::discord::ResumeState;
use hermes_gateway::{Channel, ChannelHealth};
use hermes_testkit::discord::InjectedFault;

use crate::fixture::{BotFixture, settings, text_message, without_rate_limits, world};

#[tokio::test]
async fn only_roles_of_the_configured_server_apply_in_direct_messages() {
    let world = world(without_rate_limits()).await;
    let bob = world.server.add_user("bob");
    let role = world.server.add_role(world.guild, "staff", &[world.ann]);
    let other = world.server.add_guild("other", &[world.ann, bob]);
    world.server.add_role(other, "staff there", &[world.ann, bob]);
    let mut chosen = settings(&world.server);
    chosen.dm_role_guild = Some(world.guild.to_string());
    world.server.inject("GET /guilds/*/members/*", 1, InjectedFault::Fail(503));
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    let (ann_dm, bob_dm) = (bot.server.dm_channel(bot.ann), bot.server.dm_channel(bob));
    // Ann's roles are fetched again; other chats do not wait, and her messages keep their order.
    bot.server.send_text(bot.ann, ann_dm, "one");
    bot.server.send_text(bot.ann, ann_dm, "two");
    let (first, second) = (bot.next_message().await, bot.next_message().await);
    assert_eq!((first.text.as_str(), second.text.as_str()), ("one", "two"));
    assert_eq!((first.sender.roles, second.sender.roles), (vec![role.to_string()], vec![role.to_string()]));
    bot.server.expect_violation(10_013);
    bot.server.send_text(bob, bob_dm, "let me in");
    let message = bot.next_message().await;
    assert_eq!((message.text.as_str(), message.sender.roles), ("let me in", Vec::new()));
    // A button press in the direct message has the roles too.
    let button = hermes_gateway::MessageButton {
        label: "Yes".to_owned(),
        value: "yes".to_owned(),
        style: hermes_gateway::ButtonStyle::Success,
    };
    let post = hermes_gateway::OutboundMessage { buttons: vec![button], ..text_message("well?") };
    let id = bot.discord.send_message(&ann_dm.to_string(), &post, "a").await.unwrap();
    bot.server.press_button(bot.ann, id.parse().unwrap(), "yes").await.unwrap();
    assert_eq!(bot.next_press().await.sender.roles, [role.to_string()]);
    // The roles are cached.
    let asked = bot
        .server
        .read(|world| world.requests.iter().filter(|request| request.line.contains("/members/")).count());
    assert_eq!(asked, 3);
    bot.end().await;
}

#[tokio::test]
async fn no_roles_are_fetched_without_a_configured_server() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.add_role(bot.guild, "staff", &[bot.ann]);
    bot.server.send_text(bot.ann, dm, "hello");
    assert_eq!(bot.next_message().await.sender.roles, Vec::<String>::new());
    let asked =
        bot.server.read(|world| world.requests.iter().any(|request| request.line.contains("/members/")));
    assert!(!asked);
    bot.end().await;
}
