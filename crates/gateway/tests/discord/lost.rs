//! Connections that end, and what was said meanwhile.

use hermes_gateway::channel::Health;
use hermes_gateway::discord::Past;
use hermes_testkit::discord::{Options, Trouble};

use crate::bed::{Bed, settings, wide, world};

fn is_down(health: &Health) -> bool {
    matches!(health, Health::Down { .. })
}

#[tokio::test]
async fn what_was_said_while_the_connection_was_cut_is_told_once() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.say(bed.ann, dm, "before");
    assert_eq!(bed.letter().await.text, "before");
    bed.server.cut();
    bed.server.say(bed.ann, dm, "meanwhile");
    assert_eq!(bed.letter().await.text, "meanwhile");
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    assert_eq!(bed.server.look(|world| (world.identified, world.resumed)), (1, 1));
    bed.end().await;
}

#[tokio::test]
async fn the_platform_may_ask_to_reconnect() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.reconnect();
    bed.server.wait_for(|world| (world.resumed == 1).then_some(())).await.unwrap();
    bed.server.invalidate_resumable();
    bed.server.wait_for(|world| (world.resumed == 2).then_some(())).await.unwrap();
    bed.server.close(4000);
    bed.server.wait_for(|world| (world.resumed == 3).then_some(())).await.unwrap();
    bed.server.say(bed.ann, dm, "still there?");
    assert_eq!(bed.letter().await.text, "still there?");
    bed.end().await;
}

#[tokio::test]
async fn a_server_that_never_says_a_word_is_noticed() {
    let world = world(wide()).await;
    world.server.silence();
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past::default());
    assert_eq!(bed.until(is_down).await, Health::Down { why: "Discord fell silent".to_owned() });
    bed.server.recover();
    bed.until(|health| *health == Health::Up).await;
    bed.end().await;
}

#[tokio::test]
async fn a_session_that_is_over_is_made_up_for() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    bed.server.say(bed.ann, dm, "before");
    assert_eq!(bed.letter().await.text, "before");
    bed.server.say(bed.ann, bed.room, &bed.call("in the channel"));
    assert_eq!(bed.letter().await.text, "in the channel");
    bed.server.cut();
    bed.server.forget_sessions();
    bed.server.say(bed.ann, dm, "one");
    bed.server.say(bed.ann, dm, "two");
    bed.server.say(bed.ann, bed.room, "not for the bot");
    let mut texts = vec![bed.letter().await.text, bed.letter().await.text];
    assert_eq!(texts, ["one", "two"]);
    bed.server.say(bed.ann, dm, "three");
    texts.push(bed.letter().await.text);
    assert_eq!(texts, ["one", "two", "three"]);
    bed.end().await;
}

#[tokio::test]
async fn what_was_said_while_nobody_ran_is_fetched() {
    let world = world(wide()).await;
    let (server, ann, room) = (&world.server, world.ann, world.room);
    let role = server.role(world.guild, "staff", &[ann]);
    let dm = server.dm(ann);
    let seen = server.say(ann, dm, "answered long ago");
    let seen_there = server.say(ann, room, "also seen");
    for number in 0..3 {
        server.say(ann, dm, &format!("missed {number}"));
    }
    server.say(ann, room, "not for the bot");
    server.say(ann, room, &format!("<@{}> missed there", server.bot()));
    server.trouble("GET /channels/*/messages", 1, Trouble::Fail(503));
    server.trouble("GET /channels/*/messages", 1, Trouble::Break);
    server.trouble("GET /guilds/*/members/*", 1, Trouble::RateLimit { retry_after: 0.5, global: false });
    let gone = 77;
    server.expect(10_003);
    let last = [(dm, seen), (room, seen_there), (gone, 5)];
    let last = last.map(|(chat, message)| (chat.to_string(), message.to_string())).to_vec();
    let settings = settings(&world.server);
    let mut bed = Bed::start(world, settings, Past { last, ..Past::default() });
    let mut letters = Vec::new();
    for _ in 0..4 {
        letters.push(bed.letter().await);
    }
    // The chat where something was said last comes first, and within a chat the oldest message.
    let texts: Vec<&str> = letters.iter().map(|letter| letter.text.as_str()).collect();
    assert_eq!(texts, ["missed there", "missed 0", "missed 1", "missed 2"]);
    assert_eq!(letters[0].sender.roles, [role.to_string()]);
    bed.nothing().await;
    bed.end().await;
}

#[tokio::test]
async fn a_message_that_is_told_twice_comes_twice_under_one_name() {
    let mut bed = Bed::new().await;
    let dm = bed.server.dm(bed.ann);
    let said = bed.server.say(bed.ann, dm, "hello");
    bed.server.replay(said);
    let (first, second) = (bed.letter().await, bed.letter().await);
    assert_eq!(first, second);
    bed.end().await;
}

#[tokio::test]
async fn a_wrong_token_is_the_end() {
    let world = world(wide()).await;
    world.server.expect(4004);
    let mut settings = settings(&world.server);
    settings.token = hermes_types::Secret::new("wrong");
    let bed = Bed::start(world, settings, Past::default());
    let (server, end) = bed.ends().await;
    let unfit = end.unwrap_err();
    assert_eq!(unfit.why, "Discord does not take the bot's token");
    assert!(unfit.remedy.contains("discord.bot_token"), "{}", unfit.remedy);
    assert_eq!(server.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn an_intent_that_was_not_granted_is_the_end() {
    let world = world(Options { privileged: 0, ..wide() }).await;
    world.server.expect(4014);
    let settings = settings(&world.server);
    let (server, end) = Bed::start(world, settings, Past::default()).ends().await;
    assert!(end.unwrap_err().remedy.contains("Message Content Intent"));
    assert_eq!(server.faults(), Vec::<String>::new());
}

#[tokio::test]
async fn a_server_that_is_away_is_waited_for() {
    let world = world(wide()).await;
    let mut settings = settings(&world.server);
    // Nobody listens there.
    settings.gateway_url = Some("ws://127.0.0.1:9".to_owned());
    let mut bed = Bed::start(world, settings, Past::default());
    let Health::Down { why } = bed.until(is_down).await else { panic!("not down") };
    assert!(why.starts_with("Discord cannot be reached"), "{why}");
    bed.end().await;
}
