//! Outbound messages, edits, threads and reactions.

use std::time::Duration;

use hermes_gateway::discord::{Discord, DiscordSettings, MentionPolicy, ReplyMode, ResumeState};
use hermes_gateway::{
    AttachmentFile, ButtonStyle, Channel, ChannelHealth, ChatKind, DeliveryCheck, MessageButton,
    OutboundMessage, Reaction, SendError,
};
use hermes_testkit::discord::{InjectedFault, ServerOptions, Snowflake};

use crate::fixture::{BotFixture, settings, text_message, world};

fn number(id: &str) -> Snowflake {
    id.parse().unwrap()
}

#[tokio::test]
async fn a_reply_is_sent_and_edited() {
    let mut bot = BotFixture::new().await;
    let asked = bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    bot.discord.show_typing(&message.chat.id).await;
    let post = OutboundMessage { reply_to: Some(message.id.clone()), ..text_message("hi there") };
    let id = bot.discord.send_message(&message.chat.id, &post, "answer.0").await.unwrap();
    bot.discord.edit_message(&message.chat.id, &id, &text_message("hi there, ann")).await.unwrap();
    bot.server.read(|world| {
        let message = &world.messages[&number(&id)];
        assert_eq!((message.content.as_str(), message.reference), ("hi there, ann", Some(asked)));
        assert_eq!(message.edits, ["hi there"]);
        assert_eq!(message.nonce, "answer.0");
        assert!(message.mentions.contains(&bot.ann));
        assert_eq!(world.typing, [bot.channel]);
    });
    bot.end().await;
}

#[tokio::test]
async fn the_same_message_is_sent_once() {
    let bot = BotFixture::new().await;
    let chat = bot.channel.to_string();
    let first = bot.discord.send_message(&chat, &text_message("once"), "a").await.unwrap();
    assert_eq!(bot.discord.send_message(&chat, &text_message("once"), "a").await.unwrap(), first);
    let second = bot.discord.send_message(&chat, &text_message("once"), "b").await.unwrap();
    assert_ne!(first, second);
    assert_eq!(bot.server.read(|world| world.bot_messages_in(bot.channel).len()), 2);
    bot.end().await;
}

#[tokio::test]
async fn only_the_first_part_refers_to_the_question() {
    for (mode, expected) in
        [(ReplyMode::Off, [false, false]), (ReplyMode::First, [true, false]), (ReplyMode::All, [true, true])]
    {
        let mut bot = BotFixture::with(|settings| settings.reply_to = mode).await;
        bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
        let message = bot.next_message().await;
        let post = OutboundMessage { reply_to: Some(message.id.clone()), ..text_message("part") };
        bot.discord.send_message(&message.chat.id, &post, "a").await.unwrap();
        bot.discord.send_message(&message.chat.id, &post, "b").await.unwrap();
        let points = bot.server.read(|world| {
            world
                .bot_messages_in(bot.channel)
                .iter()
                .map(|message| message.reference.is_some())
                .collect::<Vec<_>>()
        });
        assert_eq!(points, expected, "{mode:?}");
        bot.end().await;
    }
}

#[tokio::test]
async fn a_deleted_message_is_still_answered() {
    let mut bot = BotFixture::new().await;
    let asked = bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    bot.server.delete_message(asked);
    let post = OutboundMessage { reply_to: Some(message.id.clone()), ..text_message("hi") };
    bot.discord.send_message(&message.chat.id, &post, "a").await.unwrap();
    assert_eq!(bot.server.read(|world| world.bot_messages_in(bot.channel)[0].reference), None);
    bot.end().await;
}

#[tokio::test]
async fn only_allowed_mentions_notify() {
    let bot = BotFixture::new().await;
    let role = bot.server.add_role(bot.guild, "staff", &[bot.ann]);
    let words = format!("@everyone <@&{role}> <@{}>", bot.ann);
    let notified = |bot: &BotFixture, id: &str| {
        bot.server.read(|world| {
            let message = &world.messages[&number(id)];
            (message.mention_everyone, message.mention_roles.len(), message.mentions.len())
        })
    };
    let id = bot.discord.send_message(&bot.channel.to_string(), &text_message(&words), "a").await.unwrap();
    assert_eq!(notified(&bot, &id), (false, 0, 1));
    bot.end().await;

    let all = MentionPolicy { everyone: true, roles: true, users: false, replied_user: false };
    let bot = BotFixture::with(|settings| settings.mentions = all).await;
    let role = bot.server.add_role(bot.guild, "staff", &[bot.ann]);
    let words = format!("@everyone <@&{role}> <@{}>", bot.ann);
    let id = bot.discord.send_message(&bot.channel.to_string(), &text_message(&words), "a").await.unwrap();
    assert_eq!(notified(&bot, &id), (true, 1, 0));
    bot.end().await;
}

#[tokio::test]
async fn a_thread_is_opened_and_joined() {
    let mut bot = BotFixture::new().await;
    let asked = bot.server.send_text(bot.ann, bot.channel, &bot.mention("fix the build"));
    let message = bot.next_message().await;
    let chat = bot.discord.open_thread(&message, "fix the build").await.unwrap();
    assert_eq!((chat.kind, chat.thread.as_deref()), (ChatKind::Thread, Some(chat.id.as_str())));
    assert_eq!((number(&chat.id), chat.parent.clone()), (asked, Some(bot.channel.to_string())));
    assert!(bot.discord.has_joined(&chat.id));
    bot.server.read(|world| {
        let threads = world.threads_of(bot.channel);
        assert_eq!(threads.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(), ["fix the build"]);
        assert_eq!(threads[0].auto_archive, 1440);
    });
    // In the thread there is no reference to the starting message, and no mention is needed.
    let post = OutboundMessage { reply_to: Some(message.id.clone()), ..text_message("on it") };
    let id = bot.discord.send_message(&chat.id, &post, "a").await.unwrap();
    assert_eq!(bot.server.read(|world| world.messages[&number(&id)].channel), asked);
    bot.server.send_text(bot.ann, asked, "and the tests");
    assert_eq!(bot.next_message().await.chat.thread, chat.thread);
    // The reaction is on the message in the channel, even if the reply is in the thread.
    let moved = hermes_gateway::InboundMessage { chat, ..message.clone() };
    bot.discord.set_reaction(&moved, Reaction::Done).await;
    assert_eq!(reactions(&bot, asked), ["✅"]);
    // Opening the thread again is harmless.
    bot.server.expect_violation(160_004);
    assert_eq!(number(&bot.discord.open_thread(&message, "again").await.unwrap().id), asked);
    bot.end().await;
}

#[tokio::test]
async fn a_forbidden_thread_is_an_error() {
    let mut bot = BotFixture::new().await;
    bot.server.forbid_threads();
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("fix the build"));
    let message = bot.next_message().await;
    let Err(SendError::Permanent(why)) = bot.discord.open_thread(&message, "name").await else {
        panic!("opened")
    };
    assert!(why.starts_with("the bot lacks a permission in this channel"), "{why}");
    assert!(!bot.discord.has_joined(&message.id));
    bot.end().await;
}

fn reactions(bot: &BotFixture, message: Snowflake) -> Vec<String> {
    bot.server
        .read(|world| world.messages[&message].reactions.iter().map(|(emoji, _)| emoji.clone()).collect())
}

#[tokio::test]
async fn reactions_replace_each_other() {
    let mut bot = BotFixture::new().await;
    let asked = bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    for (sign, shown) in [
        (Reaction::Seen, &["👀"][..]),
        (Reaction::Seen, &["👀"]),
        (Reaction::Done, &["✅"]),
        (Reaction::Failed, &["❌"]),
        (Reaction::Nothing, &[]),
    ] {
        bot.discord.set_reaction(&message, sign).await;
        assert_eq!(reactions(&bot, asked), shown, "{sign:?}");
    }
    bot.end().await;

    let mut bot = BotFixture::with(|settings| settings.reactions = false).await;
    let asked = bot.server.send_text(bot.ann, bot.channel, &bot.mention("hello"));
    let message = bot.next_message().await;
    bot.discord.set_reaction(&message, Reaction::Seen).await;
    assert_eq!(reactions(&bot, asked), Vec::<String>::new());
    bot.end().await;
}

#[tokio::test]
async fn buttons_are_shown_pressed_and_removed() {
    let mut bot = BotFixture::new().await;
    let button =
        |label: &str, style| MessageButton { label: label.to_owned(), value: format!("q1:{label}"), style };
    let buttons = vec![
        button("Once", ButtonStyle::Success),
        button("Session", ButtonStyle::Secondary),
        button("Always", ButtonStyle::Secondary),
        button("All", ButtonStyle::Secondary),
        button("More", ButtonStyle::Secondary),
        button("Deny", ButtonStyle::Danger),
    ];
    let post = OutboundMessage { buttons, ..text_message("May I run `ls`?") };
    let chat = bot.channel.to_string();
    let id = bot.discord.send_message(&chat, &post, "q1").await.unwrap();
    let styles = bot.server.read(|world| {
        let rows = world.messages[&number(&id)].components.as_array().unwrap().clone();
        let style = |row: &serde_json::Value| {
            row["components"]
                .as_array()
                .unwrap()
                .iter()
                .map(|button| button["style"].as_u64().unwrap())
                .collect()
        };
        rows.iter().map(style).collect::<Vec<Vec<u64>>>()
    });
    assert_eq!(styles, [vec![3, 2, 2, 2, 2], vec![4]]);
    let reply = bot.server.press_button(bot.ann, number(&id), "q1:Deny").await.unwrap();
    assert_eq!(reply.kind, 6);
    let press = bot.next_press().await;
    assert_eq!(press.value, "q1:Deny");
    assert_eq!((press.sender.id, press.chat.id.clone()), (bot.ann.to_string(), chat.clone()));
    bot.discord.reply_privately(&press.interaction, "only you may see this").await;
    bot.discord.edit_message(&chat, &id, &text_message("Denied.")).await.unwrap();
    bot.server.read(|world| {
        let message = &world.messages[&number(&id)];
        assert_eq!((message.content.as_str(), &message.components), ("Denied.", &serde_json::json!([])));
        let whispered = world.messages.values().filter(|message| message.flags & 64 != 0);
        assert_eq!(
            whispered.map(|message| message.content.as_str()).collect::<Vec<_>>(),
            ["only you may see this"]
        );
    });
    bot.end().await;
}

#[tokio::test]
async fn rate_limits_are_returned_and_respected() {
    let bot = BotFixture::new().await;
    let chat = bot.channel.to_string();
    bot.server.inject(
        "POST /channels/*/messages",
        1,
        InjectedFault::RateLimit { retry_after: 1.25, global: false },
    );
    let Err(SendError::Retry { after, .. }) =
        bot.discord.send_message(&chat, &text_message("hello"), "a").await
    else {
        panic!("sent")
    };
    assert_eq!(after, Some(Duration::from_millis(1250)));
    // The next request waits for the limit.
    bot.discord.send_message(&chat, &text_message("hello"), "a").await.unwrap();

    bot.server.inject(
        "POST /channels/*/messages",
        1,
        InjectedFault::RateLimit { retry_after: 90.0, global: true },
    );
    let sent = bot.discord.send_message(&chat, &text_message("more"), "b").await;
    assert!(matches!(sent, Err(SendError::Retry { after: Some(_), .. })), "{sent:?}");
    // A long limit is returned as an error, and nothing is sent early.
    let Err(SendError::Retry { after, .. }) =
        bot.discord.send_message(&chat, &text_message("more"), "b").await
    else {
        panic!("sent")
    };
    assert!(after.unwrap() > Duration::from_secs(60), "{after:?}");
    assert_eq!(bot.server.read(|world| world.bot_messages_in(bot.channel).len()), 1);
    bot.end().await;
}

#[tokio::test]
async fn a_burst_waits_for_the_rate_limit() {
    let world = world(ServerOptions::default()).await;
    let settings = settings(&world.server);
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    let chat = bot.channel.to_string();
    for number in 0..7 {
        bot.discord.send_message(&chat, &text_message("hello"), &format!("m{number}")).await.unwrap();
    }
    bot.server.read(|world| {
        assert_eq!(world.bot_messages_in(bot.channel).len(), 7);
        assert!(world.requests.iter().all(|request| request.status != 429), "{:?}", world.requests);
    });
    bot.end().await;
}

#[tokio::test]
async fn send_errors_are_distinguished() {
    let bot = BotFixture::new().await;
    let chat = bot.channel.to_string();
    let route = "POST /channels/*/messages";
    for (status, mark) in [(500, "a"), (502, "b"), (503, "c")] {
        bot.server.inject(route, 1, InjectedFault::Fail(status));
        let sent = bot.discord.send_message(&chat, &text_message("hello"), mark).await;
        assert!(matches!(sent, Err(SendError::Retry { after: None, .. })), "{sent:?}");
    }
    bot.server.inject(route, 1, InjectedFault::Disconnect);
    let sent = bot.discord.send_message(&chat, &text_message("hello"), "d").await;
    assert!(matches!(sent, Err(SendError::Unknown(_))), "{sent:?}");
    assert_eq!(bot.discord.find_message(&chat, &text_message("hello"), "d").await, DeliveryCheck::NotSent);

    bot.server.expect_violation(10_003);
    let sent = bot.discord.send_message("123456", &text_message("hello"), "e").await;
    let Err(SendError::Permanent(why)) = sent else { panic!("{sent:?}") };
    assert!(why.starts_with("the channel no longer exists"), "{why}");
    bot.server.expect_violation(50_035);
    let sent = bot.discord.send_message(&chat, &text_message(&"a".repeat(2001)), "f").await;
    assert!(matches!(sent, Err(SendError::Permanent(_))), "{sent:?}");
    bot.end().await;
}

#[tokio::test]
async fn a_message_whose_response_was_lost_is_found() {
    let bot = BotFixture::new().await;
    let chat = bot.channel.to_string();
    // The same text with another key is another message.
    let other = bot.discord.send_message(&chat, &text_message("hello"), "a").await.unwrap();
    bot.server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    let sent = bot.discord.send_message(&chat, &text_message("hello"), "b").await;
    assert!(matches!(sent, Err(SendError::Unknown(_))), "{sent:?}");
    let DeliveryCheck::Sent(found) = bot.discord.find_message(&chat, &text_message("hello"), "b").await
    else {
        panic!("not found")
    };
    assert_ne!(found, other);
    // Sending the message again posts nothing.
    assert_eq!(bot.discord.send_message(&chat, &text_message("hello"), "b").await.unwrap(), found);
    assert_eq!(bot.server.read(|world| world.bot_messages_in(bot.channel).len()), 2);
    bot.end().await;
}

#[tokio::test]
async fn a_message_sent_before_a_restart_is_found() {
    let mut bot = BotFixture::new().await;
    let chat = bot.channel.to_string();
    let before = bot.discord.send_message(&chat, &text_message("done"), "a").await.unwrap();
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("again"));
    let answer = OutboundMessage { reply_to: Some(bot.next_message().await.id), ..text_message("done") };
    bot.server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    let sent = bot.discord.send_message(&chat, &answer, "b").await;
    assert!(matches!(sent, Err(SendError::Unknown(_))), "{sent:?}");

    let bot = bot.restart().await;
    let DeliveryCheck::Sent(found) = bot.discord.find_message(&chat, &answer, "b").await else {
        panic!("not found")
    };
    assert!(number(&found) > number(&before));
    let other = OutboundMessage { reply_to: Some(found), ..text_message("done") };
    assert_eq!(bot.discord.find_message(&chat, &other, "c").await, DeliveryCheck::NotSent);
    assert_eq!(
        bot.discord.find_message(&chat, &text_message("never said"), "d").await,
        DeliveryCheck::Unknown
    );
    bot.end().await;
}

#[tokio::test]
async fn a_refused_connection_is_not_uncertain() {
    let bot = BotFixture::new().await;
    let api_base = Some("http://127.0.0.1:9/api/v10".to_owned());
    let away = Discord::new(DiscordSettings { api_base, ..settings(&bot.server) }, ResumeState::default());
    let sent = away.send_message("1", &text_message("hello"), "a").await;
    assert!(matches!(sent, Err(SendError::Retry { after: None, .. })), "{sent:?}");
    bot.end().await;
}

#[tokio::test]
async fn files_go_out() {
    let bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    std::fs::write(&path, "some bytes").unwrap();
    let files = vec![AttachmentFile { name: "notes ä.txt".to_owned(), path: path.clone() }];
    let chat = bot.channel.to_string();
    let id = bot
        .discord
        .send_message(&chat, &OutboundMessage { files, ..text_message("here") }, "a")
        .await
        .unwrap();
    bot.server.read(|world| {
        let message = &world.messages[&number(&id)];
        let file = &message.attachments[0];
        assert_eq!((message.content.as_str(), file.name.as_str()), ("here", "notes ä.txt"));
        assert_eq!(file.bytes, b"some bytes");
    });
    let files = vec![AttachmentFile { name: "gone".to_owned(), path: folder.path().join("gone") }];
    let sent = bot.discord.send_message(&chat, &OutboundMessage { files, ..text_message("here") }, "b").await;
    assert!(matches!(sent, Err(SendError::Permanent(_))), "{sent:?}");
    bot.end().await;
}

#[tokio::test]
async fn uploads_whose_response_was_lost_are_found_by_size() {
    let mut bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let chat = bot.channel.to_string();
    bot.server.send_text(bot.ann, bot.channel, &bot.mention("send them"));
    let question = bot.next_message().await.id;
    let post = |name: &str, bytes: usize| {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![b'x'; bytes]).unwrap();
        let files = vec![AttachmentFile { name: name.to_owned(), path }];
        OutboundMessage { files, reply_to: Some(question.clone()), ..text_message("") }
    };
    let (one, other) = (post("one", 10), post("other", 20));
    bot.server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    assert!(matches!(bot.discord.send_message(&chat, &one, "a").await, Err(SendError::Unknown(_))));

    let bot = bot.restart().await;
    assert_eq!(bot.discord.find_message(&chat, &other, "b").await, DeliveryCheck::NotSent);
    assert!(matches!(bot.discord.find_message(&chat, &one, "a").await, DeliveryCheck::Sent(_)));
    bot.end().await;
}

#[tokio::test]
async fn a_file_that_is_too_large_is_a_permanent_error() {
    let bot = BotFixture::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    let most = bot.discord.capabilities().max_file_bytes;
    let send = async |size: u64, mark: &str| {
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let files = vec![AttachmentFile { name: "large".to_owned(), path: path.clone() }];
        bot.discord
            .send_message(&bot.channel.to_string(), &OutboundMessage { files, ..text_message("") }, mark)
            .await
    };
    assert!(send(most, "a").await.is_ok());
    bot.server.expect_violation(40_005);
    assert!(matches!(send(most + 1, "b").await, Err(SendError::Permanent(_))));
    bot.end().await;
}
