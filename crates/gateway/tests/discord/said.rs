//! What is sent.

use std::time::Duration;

use hermes_gateway::channel::{Button, Channel, Enclosure, Found, Health, Look, Post, Sign, Undelivered};
use hermes_gateway::discord::{Discord, Mentions, Past, ReplyTo, Settings};
use hermes_gateway::letter::RoomKind;
use hermes_testkit::discord::{Id, Options, Trouble};

use crate::bed::{Bed, settings, text, world};

fn number(id: &str) -> Id {
    id.parse().unwrap()
}

#[tokio::test]
async fn an_answer_goes_out_and_is_changed() {
    let mut bed = Bed::new().await;
    let asked = bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    bed.discord.typing(&letter.room.chat).await;
    let post = Post { reply_to: Some(letter.message.clone()), ..text("hi there") };
    let id = bed.discord.send(&letter.room.chat, &post, "answer.0").await.unwrap();
    bed.discord.edit(&letter.room.chat, &id, &text("hi there, ann")).await.unwrap();
    bed.server.look(|world| {
        let message = &world.messages[&number(&id)];
        assert_eq!((message.content.as_str(), message.reference), ("hi there, ann", Some(asked)));
        assert_eq!(message.edits, ["hi there"]);
        assert_eq!(message.nonce, "answer.0");
        assert!(message.mentions.contains(&bed.ann));
        assert_eq!(world.typing, [bed.room]);
    });
    bed.end().await;
}

#[tokio::test]
async fn the_same_message_is_sent_once() {
    let bed = Bed::new().await;
    let room = bed.room.to_string();
    let first = bed.discord.send(&room, &text("once"), "a").await.unwrap();
    assert_eq!(bed.discord.send(&room, &text("once"), "a").await.unwrap(), first);
    let second = bed.discord.send(&room, &text("once"), "b").await.unwrap();
    assert_ne!(first, second);
    assert_eq!(bed.server.look(|world| world.said_by_bot(bed.room).len()), 2);
    bed.end().await;
}

#[tokio::test]
async fn only_the_first_part_points_to_the_question() {
    for (mode, expected) in
        [(ReplyTo::Off, [false, false]), (ReplyTo::First, [true, false]), (ReplyTo::All, [true, true])]
    {
        let mut bed = Bed::with(|settings| settings.reply_to = mode).await;
        bed.server.say(bed.ann, bed.room, &bed.call("hello"));
        let letter = bed.letter().await;
        let post = Post { reply_to: Some(letter.message.clone()), ..text("part") };
        bed.discord.send(&letter.room.chat, &post, "a").await.unwrap();
        bed.discord.send(&letter.room.chat, &post, "b").await.unwrap();
        let points = bed.server.look(|world| {
            world.said_by_bot(bed.room).iter().map(|message| message.reference.is_some()).collect::<Vec<_>>()
        });
        assert_eq!(points, expected, "{mode:?}");
        bed.end().await;
    }
}

#[tokio::test]
async fn a_question_that_was_deleted_is_answered_all_the_same() {
    let mut bed = Bed::new().await;
    let asked = bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    bed.server.delete(asked);
    let post = Post { reply_to: Some(letter.message.clone()), ..text("hi") };
    bed.discord.send(&letter.room.chat, &post, "a").await.unwrap();
    assert_eq!(bed.server.look(|world| world.said_by_bot(bed.room)[0].reference), None);
    bed.end().await;
}

#[tokio::test]
async fn only_those_are_notified_who_may_be() {
    let bed = Bed::new().await;
    let role = bed.server.role(bed.guild, "staff", &[bed.ann]);
    let words = format!("@everyone <@&{role}> <@{}>", bed.ann);
    let told = |bed: &Bed, id: &str| {
        bed.server.look(|world| {
            let message = &world.messages[&number(id)];
            (message.mention_everyone, message.mention_roles.len(), message.mentions.len())
        })
    };
    let id = bed.discord.send(&bed.room.to_string(), &text(&words), "a").await.unwrap();
    assert_eq!(told(&bed, &id), (false, 0, 1));
    bed.end().await;

    let all = Mentions { everyone: true, roles: true, users: false, replied_user: false };
    let bed = Bed::with(|settings| settings.mentions = all).await;
    let role = bed.server.role(bed.guild, "staff", &[bed.ann]);
    let words = format!("@everyone <@&{role}> <@{}>", bed.ann);
    let id = bed.discord.send(&bed.room.to_string(), &text(&words), "a").await.unwrap();
    assert_eq!(told(&bed, &id), (true, 1, 0));
    bed.end().await;
}

#[tokio::test]
async fn a_thread_is_opened_and_taken_part_in() {
    let mut bed = Bed::new().await;
    let asked = bed.server.say(bed.ann, bed.room, &bed.call("fix the build"));
    let letter = bed.letter().await;
    let room = bed.discord.open_thread(&letter, "fix the build").await.unwrap();
    assert_eq!((room.kind, room.thread.as_deref()), (RoomKind::Thread, Some(room.chat.as_str())));
    assert_eq!((number(&room.chat), room.parent.clone()), (asked, Some(bed.room.to_string())));
    assert!(bed.discord.takes_part(&room.chat));
    bed.server.look(|world| {
        let threads = world.threads_of(bed.room);
        assert_eq!(threads.iter().map(|thread| thread.name.as_str()).collect::<Vec<_>>(), ["fix the build"]);
        assert_eq!(threads[0].auto_archive, 1440);
    });
    // In the thread nothing points to the message before it, and people need not call the bot.
    let post = Post { reply_to: Some(letter.message.clone()), ..text("on it") };
    let id = bed.discord.send(&room.chat, &post, "a").await.unwrap();
    assert_eq!(bed.server.look(|world| world.messages[&number(&id)].channel), asked);
    bed.server.say(bed.ann, asked, "and the tests");
    assert_eq!(bed.letter().await.room.thread, room.thread);
    // The message is marked where it is, also when its answer belongs to the thread.
    let moved = hermes_gateway::Letter { room, ..letter.clone() };
    bed.discord.mark(&moved, Sign::Done).await;
    assert_eq!(reactions(&bed, asked), ["✅"]);
    // Once more is as good.
    bed.server.expect(160_004);
    assert_eq!(number(&bed.discord.open_thread(&letter, "again").await.unwrap().chat), asked);
    bed.end().await;
}

#[tokio::test]
async fn where_threads_are_forbidden_that_is_told() {
    let mut bed = Bed::new().await;
    bed.server.forbid_threads();
    bed.server.say(bed.ann, bed.room, &bed.call("fix the build"));
    let letter = bed.letter().await;
    let Err(Undelivered::Never(why)) = bed.discord.open_thread(&letter, "name").await else {
        panic!("opened")
    };
    assert!(why.starts_with("the bot lacks a permission in this channel"), "{why}");
    assert!(!bed.discord.takes_part(&letter.message));
    bed.end().await;
}

fn reactions(bed: &Bed, message: Id) -> Vec<String> {
    bed.server
        .look(|world| world.messages[&message].reactions.iter().map(|(emoji, _)| emoji.clone()).collect())
}

#[tokio::test]
async fn reactions_replace_each_other() {
    let mut bed = Bed::new().await;
    let asked = bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    for (sign, shown) in [
        (Sign::Seen, &["👀"][..]),
        (Sign::Seen, &["👀"]),
        (Sign::Done, &["✅"]),
        (Sign::Failed, &["❌"]),
        (Sign::Nothing, &[]),
    ] {
        bed.discord.mark(&letter, sign).await;
        assert_eq!(reactions(&bed, asked), shown, "{sign:?}");
    }
    bed.end().await;

    let mut bed = Bed::with(|settings| settings.reactions = false).await;
    let asked = bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    bed.discord.mark(&letter, Sign::Seen).await;
    assert_eq!(reactions(&bed, asked), Vec::<String>::new());
    bed.end().await;
}

#[tokio::test]
async fn buttons_are_shown_pressed_and_taken_away() {
    let mut bed = Bed::new().await;
    let button = |label: &str, look| Button { label: label.to_owned(), value: format!("q1:{label}"), look };
    let buttons = vec![
        button("Once", Look::Go),
        button("Session", Look::Plain),
        button("Always", Look::Plain),
        button("All", Look::Plain),
        button("More", Look::Plain),
        button("Deny", Look::Stop),
    ];
    let post = Post { buttons, ..text("May I run `ls`?") };
    let room = bed.room.to_string();
    let id = bed.discord.send(&room, &post, "q1").await.unwrap();
    let styles = bed.server.look(|world| {
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
    let reply = bed.server.press(bed.ann, number(&id), "q1:Deny").await.unwrap();
    assert_eq!(reply.kind, 6);
    let press = bed.press().await;
    assert_eq!((press.value.as_str(), press.message.as_str()), ("q1:Deny", id.as_str()));
    assert_eq!((press.sender.id, press.room.chat.clone()), (bed.ann.to_string(), room.clone()));
    bed.discord.whisper(&press.interaction, "only you may see this").await;
    bed.discord.edit(&room, &id, &text("Denied.")).await.unwrap();
    bed.server.look(|world| {
        let message = &world.messages[&number(&id)];
        assert_eq!((message.content.as_str(), &message.components), ("Denied.", &serde_json::json!([])));
        let whispered = world.messages.values().filter(|message| message.flags & 64 != 0);
        assert_eq!(
            whispered.map(|message| message.content.as_str()).collect::<Vec<_>>(),
            ["only you may see this"]
        );
    });
    bed.end().await;
}

#[tokio::test]
async fn limits_are_told_and_heeded() {
    let bed = Bed::new().await;
    let room = bed.room.to_string();
    bed.server.trouble(
        "POST /channels/*/messages",
        1,
        Trouble::RateLimit { retry_after: 1.25, global: false },
    );
    let Err(Undelivered::Later { after, .. }) = bed.discord.send(&room, &text("hello"), "a").await else {
        panic!("sent")
    };
    assert_eq!(after, Some(Duration::from_millis(1250)));
    // The next one waits by itself.
    bed.discord.send(&room, &text("hello"), "a").await.unwrap();

    bed.server.trouble(
        "POST /channels/*/messages",
        1,
        Trouble::RateLimit { retry_after: 90.0, global: true },
    );
    let sent = bed.discord.send(&room, &text("more"), "b").await;
    assert!(matches!(sent, Err(Undelivered::Later { after: Some(_), .. })), "{sent:?}");
    // Nothing waits so long without a word, and nothing is sent before.
    let Err(Undelivered::Later { after, .. }) = bed.discord.send(&room, &text("more"), "b").await else {
        panic!("sent")
    };
    assert!(after.unwrap() > Duration::from_secs(60), "{after:?}");
    assert_eq!(bed.server.look(|world| world.said_by_bot(bed.room).len()), 1);
    bed.end().await;
}

#[tokio::test]
async fn more_than_the_platform_takes_at_once_waits_by_itself() {
    let world = world(Options::default()).await;
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    let room = bed.room.to_string();
    for number in 0..7 {
        bed.discord.send(&room, &text("hello"), &format!("m{number}")).await.unwrap();
    }
    bed.server.look(|world| {
        assert_eq!(world.said_by_bot(bed.room).len(), 7);
        assert!(world.requests.iter().all(|request| request.status != 429), "{:?}", world.requests);
    });
    bed.end().await;
}

#[tokio::test]
async fn what_became_of_a_message_is_told_apart() {
    let bed = Bed::new().await;
    let room = bed.room.to_string();
    let route = "POST /channels/*/messages";
    for (status, mark) in [(500, "a"), (502, "b"), (503, "c")] {
        bed.server.trouble(route, 1, Trouble::Fail(status));
        let sent = bed.discord.send(&room, &text("hello"), mark).await;
        assert!(matches!(sent, Err(Undelivered::Later { after: None, .. })), "{sent:?}");
    }
    bed.server.trouble(route, 1, Trouble::Break);
    let sent = bed.discord.send(&room, &text("hello"), "d").await;
    assert!(matches!(sent, Err(Undelivered::Unknown(_))), "{sent:?}");
    assert_eq!(bed.discord.find(&room, &text("hello"), "d").await, Found::NotThere);

    bed.server.expect(10_003);
    let sent = bed.discord.send("123456", &text("hello"), "e").await;
    let Err(Undelivered::Never(why)) = sent else { panic!("{sent:?}") };
    assert!(why.starts_with("the channel is gone"), "{why}");
    bed.server.expect(50_035);
    let sent = bed.discord.send(&room, &text(&"a".repeat(2001)), "f").await;
    assert!(matches!(sent, Err(Undelivered::Never(_))), "{sent:?}");
    bed.end().await;
}

#[tokio::test]
async fn a_message_whose_answer_was_lost_is_found_again() {
    let bed = Bed::new().await;
    let room = bed.room.to_string();
    // The same words under another mark are another message.
    let other = bed.discord.send(&room, &text("hello"), "a").await.unwrap();
    bed.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    let sent = bed.discord.send(&room, &text("hello"), "b").await;
    assert!(matches!(sent, Err(Undelivered::Unknown(_))), "{sent:?}");
    let Found::There(found) = bed.discord.find(&room, &text("hello"), "b").await else { panic!("not found") };
    assert_ne!(found, other);
    // Sent again, it is not said again.
    assert_eq!(bed.discord.send(&room, &text("hello"), "b").await.unwrap(), found);
    assert_eq!(bed.server.look(|world| world.said_by_bot(bed.room).len()), 2);
    bed.end().await;
}

#[tokio::test]
async fn a_message_of_a_life_before_is_found_again() {
    let mut bed = Bed::new().await;
    let room = bed.room.to_string();
    let before = bed.discord.send(&room, &text("done"), "a").await.unwrap();
    bed.server.say(bed.ann, bed.room, &bed.call("again"));
    let answer = Post { reply_to: Some(bed.letter().await.message), ..text("done") };
    bed.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    let sent = bed.discord.send(&room, &answer, "b").await;
    assert!(matches!(sent, Err(Undelivered::Unknown(_))), "{sent:?}");

    let bed = bed.again().await;
    let Found::There(found) = bed.discord.find(&room, &answer, "b").await else { panic!("not found") };
    assert!(number(&found) > number(&before));
    let other = Post { reply_to: Some(found), ..text("done") };
    assert_eq!(bed.discord.find(&room, &other, "c").await, Found::NotThere);
    assert_eq!(bed.discord.find(&room, &text("never said"), "d").await, Found::Unclear);
    bed.end().await;
}

#[tokio::test]
async fn nobody_there_is_not_maybe_sent() {
    let bed = Bed::new().await;
    let api_base = Some("http://127.0.0.1:9/api/v10".to_owned());
    let away = Discord::new(Settings { api_base, ..settings(&bed.server) }, Past::default());
    let sent = away.send("1", &text("hello"), "a").await;
    assert!(matches!(sent, Err(Undelivered::Later { after: None, .. })), "{sent:?}");
    bed.end().await;
}

#[tokio::test]
async fn files_go_out() {
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("copy");
    std::fs::write(&path, "some bytes").unwrap();
    let files = vec![Enclosure { name: "notes ä.txt".to_owned(), path: path.clone() }];
    let room = bed.room.to_string();
    let id = bed.discord.send(&room, &Post { files, ..text("here") }, "a").await.unwrap();
    bed.server.look(|world| {
        let message = &world.messages[&number(&id)];
        let file = &message.attachments[0];
        assert_eq!((message.content.as_str(), file.name.as_str()), ("here", "notes ä.txt"));
        assert_eq!(file.bytes, b"some bytes");
    });
    let files = vec![Enclosure { name: "gone".to_owned(), path: folder.path().join("gone") }];
    let sent = bed.discord.send(&room, &Post { files, ..text("here") }, "b").await;
    assert!(matches!(sent, Err(Undelivered::Never(_))), "{sent:?}");
    bed.end().await;
}

#[tokio::test]
async fn files_whose_answer_was_lost_are_found_by_what_they_are() {
    let mut bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let room = bed.room.to_string();
    bed.server.say(bed.ann, bed.room, &bed.call("send them"));
    let question = bed.letter().await.message;
    let post = |name: &str, bytes: usize| {
        let path = folder.path().join(name);
        std::fs::write(&path, vec![b'x'; bytes]).unwrap();
        let files = vec![Enclosure { name: name.to_owned(), path }];
        Post { files, reply_to: Some(question.clone()), ..text("") }
    };
    let (one, other) = (post("one", 10), post("other", 20));
    bed.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    assert!(matches!(bed.discord.send(&room, &one, "a").await, Err(Undelivered::Unknown(_))));

    let bed = bed.again().await;
    assert_eq!(bed.discord.find(&room, &other, "b").await, Found::NotThere);
    assert!(matches!(bed.discord.find(&room, &one, "a").await, Found::There(_)));
    bed.end().await;
}

#[tokio::test]
async fn a_file_that_is_too_large_will_never_be_sent() {
    let bed = Bed::new().await;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("large");
    let most = bed.discord.manners().largest_file;
    let send = async |size: u64, mark: &str| {
        std::fs::File::create(&path).unwrap().set_len(size).unwrap();
        let files = vec![Enclosure { name: "large".to_owned(), path: path.clone() }];
        bed.discord.send(&bed.room.to_string(), &Post { files, ..text("") }, mark).await
    };
    assert!(send(most, "a").await.is_ok());
    bed.server.expect(40_005);
    assert!(matches!(send(most + 1, "b").await, Err(Undelivered::Never(_))));
    bed.end().await;
}
