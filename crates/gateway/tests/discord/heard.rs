//! What becomes a letter.

use std::time::Duration;

use hermes_gateway::channel::{Button, Channel, Found, Health, Look, Undelivered};
use hermes_gateway::discord::{Bots, CommandSync, Past, Sight};
use hermes_gateway::letter::{Letter, Platform, ReplyPlace, Room, RoomKind, Sender};
use hermes_testkit::discord::{Options, Post, Reply, Telling, Trouble};
use serde_json::json;

use crate::bed::{Bed, settings, text, wide, within, world};

#[tokio::test]
async fn a_mention_becomes_a_letter_whole() {
    let mut bed = Bed::new().await;
    let role = bed.server.role(bed.guild, "staff", &[bed.ann]);
    let said = bed.server.say(bed.ann, bed.room, &bed.call("fix <#5> the  build"));
    let letter = bed.letter().await;
    let expected = Letter {
        room: Room {
            platform: Platform::Discord,
            kind: RoomKind::Group,
            chat: bed.room.to_string(),
            thread: None,
            parent: None,
            name: Some("general".to_owned()),
        },
        sender: Sender {
            id: bed.ann.to_string(),
            name: letter.sender.name.clone(),
            is_bot: false,
            roles: vec![role.to_string()],
        },
        message: said.to_string(),
        sent: letter.sent,
        text: "fix <#5> the  build".to_owned(),
        files: Vec::new(),
        quote: None,
        reply: ReplyPlace::Thread("fix the build".to_owned()),
        interaction: None,
    };
    assert_eq!(letter, expected);
    assert!(letter.sender.name.contains("ann"), "{}", letter.sender.name);
    bed.end().await;
}

#[tokio::test]
async fn only_what_is_for_the_bot_comes() {
    let mut bed = Bed::new().await;
    let bob = bed.server.user("bob");
    let other = bed.server.other_bot("other");
    let thread = bed.server.thread(bed.ann, bed.room, None, "known");
    bed.server.say(bed.ann, bed.room, "nobody in particular");
    bed.server.say(bed.ann, bed.room, &format!("<@{bob}> hello"));
    bed.server.say(bed.ann, bed.room, &format!("<@{other}> hello"));
    bed.server.say(other, bed.room, &bed.call("from a bot"));
    bed.server.say(bed.ann, thread, "not yet");
    bed.nothing().await;

    bed.discord.joined(&thread.to_string());
    bed.server.say(bed.ann, thread, "a follow-up");
    let letter = bed.letter().await;
    assert_eq!((letter.text.as_str(), letter.room.kind), ("a follow-up", RoomKind::Thread));
    assert_eq!(letter.room.thread, Some(thread.to_string()));
    assert_eq!(letter.room.parent, Some(bed.room.to_string()));
    assert_eq!(letter.reply, ReplyPlace::Here);
    bed.end().await;
}

#[tokio::test]
async fn threads_from_before_need_no_mention() {
    let world = world(wide()).await;
    let thread = world.server.thread(world.ann, world.room, None, "from before");
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past { threads: vec![thread.to_string()], ..Past::default() });
    bed.until(|health| *health == Health::Up).await;
    bed.server.say(bed.ann, thread, "go on");
    assert_eq!(bed.letter().await.text, "go on");
    bed.end().await;
}

#[tokio::test]
async fn bots_do_not_talk_for_ever() {
    let mut bed = Bed::with(|settings| settings.allow_bots = Bots::All).await;
    let other = bed.server.other_bot("other");
    let dm = bed.server.dm(bed.ann);
    for number in 0..12 {
        bed.server.say(other, bed.room, &bed.call(&format!("ping {number}")));
    }
    for number in 0..10 {
        assert_eq!(bed.letter().await.text, format!("ping {number}"));
    }
    bed.server.say(bed.ann, dm, "between");
    assert_eq!(bed.letter().await.text, "between");
    bed.server.say(bed.ann, bed.room, &bed.call("a person"));
    assert_eq!(bed.letter().await.text, "a person");
    bed.server.say(other, bed.room, &bed.call("again"));
    assert_eq!(bed.letter().await.text, "again");
    bed.end().await;
}

#[tokio::test]
async fn an_answer_to_a_message_carries_it() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    let ours = bed.discord.send(&dm.to_string(), &text("what I said"), "m1").await.unwrap();
    let reply_to = Some(ours.parse().unwrap());
    bed.server.post(bed.ann, dm, Post { text: "and why?".to_owned(), reply_to, ..Post::default() });
    let letter = bed.letter().await;
    let quote = letter.quote.unwrap();
    assert_eq!((quote.message, quote.text, quote.is_ours), (ours, "what I said".to_owned(), true));
    assert_eq!((letter.text.as_str(), letter.room.kind), ("and why?", RoomKind::Dm));
    bed.end().await;
}

#[tokio::test]
async fn commands_are_registered_once_and_heard() {
    let mut bed = Bed::new().await;
    let count = |bed: &Bed| bed.server.look(|world| world.commands.len());
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();

    let options = json!([{"name": "text", "type": 3, "value": "after that"}]);
    let (letter, reply) = bed.called("queue", options).await;
    let Reply { interaction, kind, data, message } = reply.unwrap();
    assert_eq!((kind, &data["flags"]), (5, &json!(64)));
    assert_eq!((letter.text.as_str(), letter.room.kind), ("/queue after that", RoomKind::Group));
    assert_eq!(letter.message, interaction.to_string());
    assert_eq!(letter.reply, ReplyPlace::Here);

    // The first words take the place of the waiting, the next are new, and only one person sees them.
    let to = letter.interaction.clone().unwrap();
    bed.discord.whisper(&to, "queued").await;
    bed.discord.whisper(&to, "and more").await;
    let hidden: Vec<(String, u64)> = bed.server.look(|world| {
        let mine = world.messages.values().filter(|message| message.author == world.bot);
        mine.map(|message| (message.content.clone(), message.flags & 64)).collect()
    });
    assert_eq!(hidden, [("queued".to_owned(), 64), ("and more".to_owned(), 64)]);
    assert_eq!(
        bed.server.look(|world| world.messages.get(&message.unwrap()).unwrap().content.clone()),
        "queued"
    );
    // Nothing is shown at a command.
    bed.discord.mark(&letter, hermes_gateway::channel::Sign::Seen).await;

    // A second bot with the same commands writes nothing.
    let writes = |bed: &Bed| {
        bed.server.look(|world| {
            world.requests.iter().filter(|request| request.line.starts_with("PUT /app")).count()
        })
    };
    assert_eq!((count(&bed), writes(&bed)), (18, 1));
    bed.server.invalidate();
    bed.until(|health| *health != Health::Up).await;
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    assert_eq!(writes(&bed), 1);
    bed.end().await;
}

#[tokio::test]
async fn commands_can_be_hidden_and_are_registered_anew_for_that() {
    let bed = Bed::new().await;
    let seen = |bed: &Bed, permissions: serde_json::Value| {
        bed.server.look(|world| {
            let all = world.commands.values();
            world.commands.len() == 18
                && all.into_iter().all(|(_, command)| command["default_member_permissions"] == permissions)
        })
    };
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    assert!(seen(&bed, serde_json::Value::Null));
    let (world, _) = bed.leave().await;
    let mut chosen = settings(&world.server);
    chosen.commands_seen_by = Sight::Admins;
    let bed = Bed::start(world, chosen, Past::default());
    let puts = |world: &hermes_testkit::discord::World| {
        world.requests.iter().filter(|request| request.line.starts_with("PUT /app")).count()
    };
    bed.server.wait_for(|world| (puts(world) == 2).then_some(())).await.unwrap();
    assert!(seen(&bed, json!("0")));
    bed.end().await;
}

#[tokio::test]
async fn commands_are_left_alone_where_the_owner_says_so() {
    let mut bed = Bed::with(|settings| settings.command_sync = CommandSync::Off).await;
    bed.nothing().await;
    assert_eq!(bed.server.look(|world| world.commands.len()), 0);
    bed.end().await;
}

#[tokio::test]
async fn commands_are_registered_where_there_is_trouble_at_first() {
    let world = world(wide()).await;
    world.server.trouble("GET /applications/*/commands", 1, Trouble::Break);
    world.server.trouble("GET /applications/*/commands", 1, Trouble::Fail(503));
    world.server.trouble("PUT /applications/*/commands", 1, Trouble::Fail(503));
    let settings = settings(&world.server);
    let bed = Bed::start(world, settings, Past::default());
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    bed.end().await;
}

#[tokio::test]
async fn commands_in_ignored_channels_are_refused() {
    let world = world(wide()).await;
    let mut settings = settings(&world.server);
    settings.ignored_channels = [world.room.to_string()].iter().collect();
    let mut bed = Bed::start(world, settings, Past::default());
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    let reply = bed.server.invoke(bed.ann, bed.room, "status", json!([])).await.unwrap();
    assert_eq!((reply.kind, &reply.data["flags"]), (4, &json!(64)));
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn a_letter_that_was_not_kept_comes_again() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.say(bed.ann, dm, "one");
    bed.server.say(bed.ann, dm, "two");
    let first = within(bed.arrivals.recv()).await.unwrap();
    drop(first.kept);
    assert_eq!(bed.letter().await.text, "one");
    assert_eq!(bed.letter().await.text, "two");
    bed.end().await;
}

#[tokio::test]
async fn the_next_waits_until_the_last_is_kept() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.say(bed.ann, dm, "one");
    bed.server.say(bed.ann, dm, "two");
    let first = within(bed.arrivals.recv()).await.unwrap();
    assert!(tokio::time::timeout(Duration::from_millis(300), bed.arrivals.recv()).await.is_err());
    first.kept.send(()).unwrap();
    assert_eq!(bed.letter().await.text, "two");
    bed.end().await;
}

#[tokio::test]
async fn whoever_presses_is_answered_whatever_else_is_to_be_done() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    let button = Button { label: "Yes".to_owned(), value: "yes".to_owned(), look: Look::Go };
    let post = hermes_gateway::Post { buttons: vec![button], ..text("well?") };
    let id = bed.discord.send(&dm.to_string(), &post, "a").await.unwrap();
    bed.server.say(bed.ann, dm, "not kept yet");
    let first = within(bed.arrivals.recv()).await.unwrap();
    bed.server.press(bed.ann, id.parse().unwrap(), "yes").await.unwrap();
    first.kept.send(()).unwrap();
    assert_eq!(bed.press().await.value, "yes");
    bed.end().await;
}

#[tokio::test]
async fn a_command_that_failed_for_its_person_is_not_done() {
    let mut bed = Bed::new().await;
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    bed.server.trouble("POST /interactions/*/*/callback", 1, Trouble::Fail(404));
    bed.server.expect(10_062);
    let (letter, reply) = bed.called("stop", json!([])).await;
    reply.unwrap_err();
    bed.server.expect(10_062);
    assert!(!bed.discord.hear(&letter.interaction.unwrap()).await);
    bed.end().await;
}

#[tokio::test]
async fn a_command_that_was_heard_is_heard_again() {
    let mut bed = Bed::new().await;
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    bed.server.trouble("POST /interactions/*/*/callback", 1, Trouble::Vanish);
    bed.server.expect(40_060);
    let (letter, reply) = bed.called("status", json!([])).await;
    let shown = reply.unwrap().message.unwrap();
    let command = letter.interaction.unwrap();
    bed.server.expect(40_060);
    assert!(bed.discord.hear(&command).await);
    bed.discord.whisper(&command, "well").await;
    assert_eq!(bed.server.look(|world| world.messages.get(&shown).unwrap().content.clone()), "well");
    bed.end().await;
}

#[tokio::test]
async fn ids_that_are_none_are_refused() {
    let bed = Bed::new().await;
    let sent = bed.discord.send("general", &text("hello"), "m1").await;
    assert!(matches!(sent, Err(Undelivered::Never(_))), "{sent:?}");
    assert_eq!(bed.discord.find("general", &text("hello"), "m1").await, Found::Unclear);
    bed.end().await;
}

#[tokio::test]
async fn a_server_that_tells_the_least_is_understood() {
    let world = world(Options { telling: Telling::Least, ..wide() }).await;
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.server.say(bed.ann, bed.room, &bed.call("hello"));
    let letter = bed.letter().await;
    assert_eq!((letter.text.as_str(), letter.room.kind), ("hello", RoomKind::Group));
    assert_eq!((letter.room.chat, letter.sender.id), (bed.room.to_string(), bed.ann.to_string()));

    let dm = bed.server.dm(bed.ann);
    bed.server.wait_for(|world| (world.commands.len() == 18).then_some(())).await.unwrap();
    let (letter, reply) = bed.called("undo", json!([{"name": "turns", "type": 3, "value": "2"}])).await;
    reply.unwrap();
    assert_eq!((letter.text.as_str(), letter.room.chat), ("/undo 2", bed.room.to_string()));

    // It does not even say that it went on.
    bed.server.cut();
    bed.until(|health| *health != Health::Up).await;
    bed.server.say(bed.ann, dm, "meanwhile");
    assert_eq!(bed.letter().await.text, "meanwhile");
    bed.until(|health| *health == Health::Up).await;
    bed.end().await;
}
