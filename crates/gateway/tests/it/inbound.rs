//! Inbound messages, commands and button presses.

use std::time::Duration;

use hermes_gateway::discord::{CommandSync, CommandVisibility, ResumeState};
use hermes_gateway::{
    BotPolicy, ButtonStyle, Channel, ChannelHealth, Chat, ChatKind, DeliveryCheck, InboundMessage,
    MessageButton, Platform, ReplyTarget, SendError, Sender,
};
use hermes_testkit::discord::{EventDetail, InjectedFault, InteractionReply, ServerOptions, UserPost};
use serde_json::json;

use crate::fixture::{BotFixture, settings, text_message, with_timeout, without_rate_limits, world};

/// Commands that are offered in chats.
const COMMAND_COUNT: usize = 20;

#[tokio::test]
async fn a_mention_becomes_an_inbound_message() {
    let mut bot = BotFixture::new().await;
    let role = bot.server.add_role(bot.guild, "staff", &[bot.ann]);
    let said = bot.server.send_text(bot.ann, bot.channel, &bot.mention("fix <#5> the  build"));
    let message = bot.next_message().await;
    let expected = InboundMessage {
        chat: Chat {
            platform: Platform::Discord,
            kind: ChatKind::Group,
            id: bot.channel.to_string(),
            thread: None,
            parent: None,
            name: Some("general".to_owned()),
        },
        sender: Sender {
            id: bot.ann.to_string(),
            name: message.sender.name.clone(),
            is_bot: false,
            roles: vec![role.to_string()],
        },
        id: said.to_string(),
        sent_at: message.sent_at,
        text: "fix <#5> the  build".to_owned(),
        attachments: Vec::new(),
        quote: None,
        reply_target: ReplyTarget::NewThread("fix the build".to_owned()),
        interaction: None,
    };
    assert_eq!(message, expected);
    assert!(message.sender.name.contains("ann"), "{}", message.sender.name);
    bot.end().await;
}

#[tokio::test]
async fn only_messages_for_the_bot_arrive() {
    let mut bot = BotFixture::new().await;
    let bob = bot.server.add_user("bob");
    let other = bot.server.add_bot("other");
    let thread = bot.server.start_thread(bot.ann, bot.channel, None, "known");
    bot.server.send_text(bot.ann, bot.channel, "no mention");
    bot.server.send_text(bot.ann, bot.channel, &format!("<@{bob}> hello"));
    bot.server.send_text(bot.ann, bot.channel, &format!("<@{other}> hello"));
    bot.server.send_text(other, bot.channel, &bot.mention("from a bot"));
    bot.server.send_text(bot.ann, thread, "not yet");
    bot.assert_nothing_arrived().await;

    bot.discord.join_thread(&thread.to_string());
    bot.server.send_text(bot.ann, thread, "a follow-up");
    let message = bot.next_message().await;
    assert_eq!((message.text.as_str(), message.chat.kind), ("a follow-up", ChatKind::Thread));
    assert_eq!(message.chat.thread, Some(thread.to_string()));
    assert_eq!(message.chat.parent, Some(bot.channel.to_string()));
    assert_eq!(message.reply_target, ReplyTarget::SameChat);
    bot.end().await;
}

#[tokio::test]
async fn threads_from_before_need_no_mention() {
    let world = world(without_rate_limits()).await;
    let thread = world.server.start_thread(world.ann, world.channel, None, "from before");
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(
        world,
        settings,
        ResumeState { threads: vec![thread.to_string()], ..ResumeState::default() },
    );
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.server.send_text(bot.ann, thread, "go on");
    assert_eq!(bot.next_message().await.text, "go on");
    bot.end().await;
}

#[tokio::test]
async fn bots_do_not_talk_forever() {
    let mut bot = BotFixture::with(|settings| settings.allow_bots = BotPolicy::All).await;
    let other = bot.server.add_bot("other");
    let dm = bot.server.dm_channel(bot.ann);
    for number in 0..12 {
        bot.server.send_text(other, bot.channel, &bot.mention(&format!("ping {number}")));
    }
    for number in 0..10 {
        assert_eq!(bot.next_message().await.text, format!("ping {number}"));
    }
    bot.server.send_text(bot.ann, dm, "between");
    assert_eq!(bot.next_message().await.text, "between");
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("a person"));
    assert_eq!(bot.next_message().await.text, "a person");
    bot.server.send_text(other, bot.channel, &bot.mention("again"));
    assert_eq!(bot.next_message().await.text, "again");
    bot.end().await;
}

#[tokio::test]
async fn a_reply_carries_the_quoted_message() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    let ours = bot.discord.send_message(&dm.to_string(), &text_message("what I said"), "m1").await.unwrap();
    let reply_to = Some(ours.parse().unwrap());
    bot.server.send_post(
        bot.ann,
        dm,
        UserPost { text: "and why?".to_owned(), reply_to, ..UserPost::default() },
    );
    let message = bot.next_message().await;
    let quote = message.quote.unwrap();
    assert_eq!((quote.id, quote.text, quote.is_ours), (ours, "what I said".to_owned(), true));
    assert_eq!((message.text.as_str(), message.chat.kind), ("and why?", ChatKind::Dm));
    bot.end().await;
}

#[tokio::test]
async fn commands_are_registered_once_and_received() {
    let mut bot = BotFixture::new().await;
    let count = |bot: &BotFixture| bot.server.read(|world| world.commands.len());
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();

    let options = json!([{"name": "text", "type": 3, "value": "after that"}]);
    let (command, reply) = bot.invoke_command("queue", options).await;
    let InteractionReply { interaction, kind, data, message } = reply.unwrap();
    assert_eq!((kind, &data["flags"]), (5, &json!(64)));
    assert_eq!((command.text.as_str(), command.chat.kind), ("/queue after that", ChatKind::Group));
    assert_eq!(command.id, interaction.to_string());
    assert_eq!(command.reply_target, ReplyTarget::SameChat);

    // The first text replaces the deferred response, the next is a follow-up, both visible to one
    // user only.
    let to = command.interaction.clone().unwrap();
    bot.discord.reply_privately(&to, "queued").await;
    bot.discord.reply_privately(&to, "and more").await;
    let hidden: Vec<(String, u64)> = bot.server.read(|world| {
        let mine = world.messages.values().filter(|message| message.author == world.bot);
        mine.map(|message| (message.content.clone(), message.flags & 64)).collect()
    });
    assert_eq!(hidden, [("queued".to_owned(), 64), ("and more".to_owned(), 64)]);
    assert_eq!(
        bot.server.read(|world| world.messages.get(&message.unwrap()).unwrap().content.clone()),
        "queued"
    );
    // A command gets no reactions.
    bot.discord.set_reaction(&command, hermes_gateway::Reaction::Seen).await;

    // A second bot with the same commands writes nothing.
    let writes = |bot: &BotFixture| {
        bot.server.read(|world| {
            world.requests.iter().filter(|request| request.line.starts_with("PUT /app")).count()
        })
    };
    assert_eq!((count(&bot), writes(&bot)), (COMMAND_COUNT, 1));
    bot.server.invalidate();
    bot.wait_for_health(|health| *health != ChannelHealth::Up).await;
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    assert_eq!(writes(&bot), 1);
    bot.end().await;
}

#[tokio::test]
async fn hiding_commands_registers_them_again() {
    let bot = BotFixture::new().await;
    let seen = |bot: &BotFixture, permissions: serde_json::Value| {
        bot.server.read(|world| {
            let all = world.commands.values();
            world.commands.len() == COMMAND_COUNT
                && all.into_iter().all(|(_, command)| command["default_member_permissions"] == permissions)
        })
    };
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    assert!(seen(&bot, serde_json::Value::Null));
    let (world, _) = bot.stop_and_forget_sessions().await;
    let mut chosen = settings(&world.server);
    chosen.command_visibility = CommandVisibility::Admins;
    let bot = BotFixture::start(world, chosen, ResumeState::default());
    let puts = |world: &hermes_testkit::discord::World| {
        world.requests.iter().filter(|request| request.line.starts_with("PUT /app")).count()
    };
    bot.server.wait_for(|world| (puts(world) == 2).then_some(())).await.unwrap();
    assert!(seen(&bot, json!("0")));
    bot.end().await;
}

#[tokio::test]
async fn command_registration_can_be_turned_off() {
    let mut bot = BotFixture::with(|settings| settings.command_sync = CommandSync::Off).await;
    bot.assert_nothing_arrived().await;
    assert_eq!(bot.server.read(|world| world.commands.len()), 0);
    bot.end().await;
}

#[tokio::test]
async fn command_registration_is_retried() {
    let world = world(without_rate_limits()).await;
    world.server.inject("GET /applications/*/commands", 1, InjectedFault::Disconnect);
    world.server.inject("GET /applications/*/commands", 1, InjectedFault::Fail(503));
    world.server.inject("PUT /applications/*/commands", 1, InjectedFault::Fail(503));
    let settings = settings(&world.server);
    let bot = BotFixture::start(world, settings, ResumeState::default());
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    bot.end().await;
}

#[tokio::test]
async fn commands_in_ignored_channels_are_refused() {
    let world = world(without_rate_limits()).await;
    let mut settings = settings(&world.server);
    settings.ignored_channels = [world.channel.to_string()].iter().collect();
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    let reply = bot.server.invoke_command(bot.ann, bot.channel, "status", json!([])).await.unwrap();
    assert_eq!((reply.kind, &reply.data["flags"]), (4, &json!(64)));
    bot.assert_nothing_arrived().await;
    bot.end().await;
}

#[tokio::test]
async fn a_message_that_was_not_stored_is_submitted_again() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_text(bot.ann, dm, "one");
    bot.server.send_text(bot.ann, dm, "two");
    let first = with_timeout(bot.inbound.recv()).await.unwrap();
    drop(first.ack);
    assert_eq!(bot.next_message().await.text, "one");
    assert_eq!(bot.next_message().await.text, "two");
    bot.end().await;
}

#[tokio::test]
async fn the_next_message_waits_until_the_last_is_stored() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.server.send_text(bot.ann, dm, "one");
    bot.server.send_text(bot.ann, dm, "two");
    let first = with_timeout(bot.inbound.recv()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), bot.inbound.recv()).await.is_err());
    first.ack.send(()).unwrap();
    assert_eq!(bot.next_message().await.text, "two");
    bot.end().await;
}

#[tokio::test]
async fn a_button_press_is_acknowledged_at_once() {
    let mut bot = BotFixture::new().await;
    let dm = bot.server.dm_channel(bot.ann);
    let button =
        MessageButton { label: "Yes".to_owned(), value: "yes".to_owned(), style: ButtonStyle::Success };
    let post = hermes_gateway::OutboundMessage { buttons: vec![button], ..text_message("well?") };
    let id = bot.discord.send_message(&dm.to_string(), &post, "a").await.unwrap();
    bot.server.send_text(bot.ann, dm, "not stored yet");
    let first = with_timeout(bot.inbound.recv()).await.unwrap();
    bot.server.press_button(bot.ann, id.parse().unwrap(), "yes").await.unwrap();
    first.ack.send(()).unwrap();
    assert_eq!(bot.next_press().await.value, "yes");
    bot.end().await;
}

#[tokio::test]
async fn a_command_whose_user_saw_a_failure_is_dropped() {
    let mut bot = BotFixture::new().await;
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    bot.server.inject("POST /interactions/*/*/callback", 1, InjectedFault::Fail(404));
    bot.server.expect_violation(10_062);
    let (message, reply) = bot.invoke_command("stop", json!([])).await;
    reply.unwrap_err();
    bot.server.expect_violation(10_062);
    assert!(!bot.discord.acknowledge_command(&message.interaction.unwrap()).await);
    bot.end().await;
}

#[tokio::test]
async fn a_command_can_be_acknowledged_twice() {
    let mut bot = BotFixture::new().await;
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    bot.server.inject("POST /interactions/*/*/callback", 1, InjectedFault::LoseResponse);
    bot.server.expect_violation(40_060);
    let (message, reply) = bot.invoke_command("status", json!([])).await;
    let shown = reply.unwrap().message.unwrap();
    let command = message.interaction.unwrap();
    bot.server.expect_violation(40_060);
    assert!(bot.discord.acknowledge_command(&command).await);
    bot.discord.reply_privately(&command, "well").await;
    assert_eq!(bot.server.read(|world| world.messages.get(&shown).unwrap().content.clone()), "well");
    bot.end().await;
}

#[tokio::test]
async fn invalid_ids_are_rejected() {
    let bot = BotFixture::new().await;
    let sent = bot.discord.send_message("general", &text_message("hello"), "m1").await;
    assert!(matches!(sent, Err(SendError::Permanent(_))), "{sent:?}");
    assert_eq!(
        bot.discord.find_message("general", &text_message("hello"), "m1").await,
        DeliveryCheck::Unknown
    );
    bot.end().await;
}

#[tokio::test]
async fn a_minimal_server_is_understood() {
    let world = world(ServerOptions { event_detail: EventDetail::Minimal, ..without_rate_limits() }).await;
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    assert_eq!((message.text.as_str(), message.chat.kind), ("hello", ChatKind::Group));
    assert_eq!((message.chat.id, message.sender.id), (bot.channel.to_string(), bot.ann.to_string()));

    let dm = bot.server.dm_channel(bot.ann);
    bot.server.wait_for(|world| (world.commands.len() == COMMAND_COUNT).then_some(())).await.unwrap();
    let (message, reply) =
        bot.invoke_command("undo", json!([{"name": "turns", "type": 3, "value": "2"}])).await;
    reply.unwrap();
    assert_eq!((message.text.as_str(), message.chat.id), ("/undo 2", bot.channel.to_string()));

    // The server does not even send RESUMED.
    bot.server.drop_connections();
    bot.wait_for_health(|health| *health != ChannelHealth::Up).await;
    bot.server.send_text(bot.ann, dm, "during the cut");
    assert_eq!(bot.next_message().await.text, "during the cut");
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.end().await;
}
