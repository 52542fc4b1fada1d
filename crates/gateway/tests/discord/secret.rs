//! What is said to the platform is secret, or is not said.

use hermes_gateway::channel::{Channel, Health, Undelivered, Unfetched};
use hermes_gateway::discord::{Past, Settings};
use hermes_gateway::letter::Attachment;
use hermes_testkit::discord::{File, Post, Trouble};
use hermes_testkit::tls::Manner;

use crate::bed::{Bed, behind, text, within};

const NAME: &str = "discord.invalid";

/// Waits until there is no connection, and gives why.
async fn down(bed: &mut Bed) -> String {
    match bed.until(|health| matches!(health, Health::Down { .. })).await {
        Health::Down { why } => why,
        other => panic!("{other:?}"),
    }
}

/// Fetches a file.
async fn fetch(bed: &Bed, file: &Attachment) -> Result<Vec<u8>, Unfetched> {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("kept");
    std::fs::write(&into, "").unwrap();
    within(bed.discord.fetch(file, &into, 1 << 20)).await.map(|_| std::fs::read(&into).unwrap())
}

#[tokio::test]
async fn everything_is_said_in_secret_and_gone_on_with_in_secret() {
    for manner in [Manner::Honest, Manner::Abrupt] {
        let (world, front, settings) = behind(NAME).await;
        front.behave(manner);
        let mut bed = Bed::start(world, settings, Past::default());
        bed.until(|health| *health == Health::Up).await;
        let dm = bed.server.dm(bed.ann);
        let file = File { name: "a.bin".to_owned(), bytes: b"0123456789".repeat(10_000), ..File::default() };
        let post = Post { text: "look".to_owned(), files: vec![file], ..Post::default() };
        bed.server.post(bed.ann, dm, post);
        let file = bed.letter().await.files.remove(0);
        assert!(file.source.starts_with("https://127.0.0.1:"), "{}", file.source);
        assert_eq!(fetch(&bed, &file).await.unwrap().len(), 100_000);
        bed.discord.send(&dm.to_string(), &text("an answer"), "m1").await.unwrap();
        let ends: [fn(&hermes_testkit::discord::Server); 3] =
            [|server| server.cut(), |server| server.reconnect(), |server| server.close(4000)];
        for (resumed, end) in ends.iter().enumerate() {
            end(&bed.server);
            bed.server.say(bed.ann, dm, "meanwhile");
            assert_eq!(bed.letter().await.text, "meanwhile");
            let counts = bed.server.look(|world| (world.identified, world.resumed as usize));
            assert_eq!(counts, (1, resumed + 1), "{manner:?}");
        }
        front.cut();
        bed.server.say(bed.ann, dm, "after all was cut");
        assert_eq!(bed.letter().await.text, "after all was cut");
        assert!(bed.server.look(|world| world.connections) <= *front.taken().borrow(), "not all was secret");
        bed.end().await;
    }
}

#[tokio::test]
async fn who_cannot_be_trusted_hears_nothing_and_the_owner_hears_why() {
    let cases = [
        (Manner::OtherName, "its certificate is for another name"),
        (Manner::Expired, "its certificate has expired"),
        (Manner::Early, "its certificate is not valid yet"),
        (Manner::Stranger, "SSL_CERT_FILE"),
        (Manner::Plain, "does not speak TLS"),
        (Manner::Broken, "tls handshake eof"),
    ];
    for (manner, words) in cases {
        let (world, front, settings) = behind(NAME).await;
        let base = world.server.api_base();
        front.behave(manner);
        let token = world.server.token().to_owned();
        let mut bed = Bed::start(world, settings, Past::default());
        let why = down(&mut bed).await;
        assert!(why.starts_with("Discord cannot be reached: ") && why.contains(words), "{manner:?}: {why}");
        let sent = bed.discord.send(&bed.room.to_string(), &text("an answer"), "m1").await;
        assert_eq!(sent, Err(Undelivered::Later { after: None, why: why.clone() }), "{manner:?}");
        let file = Attachment {
            name: "a".to_owned(),
            media_type: None,
            size: 1,
            source: base.replace("/api/v10", "/attachments/1/2/a"),
        };
        let Err(Unfetched::Failed(told)) = fetch(&bed, &file).await else { panic!("{manner:?}") };
        assert!(why.starts_with(&told) && !told.contains("SSL_CERT_FILE"), "{manner:?}: {told}");
        assert!(!why.contains(&token), "{why}");
        let heard = bed.server.look(|world| (world.requests.len(), world.identified));
        assert_eq!(heard, (0, 0), "{manner:?}");
        // It is tried again, and heals.
        front.behave(Manner::Honest);
        bed.until(|health| *health == Health::Up).await;
        bed.discord.send(&bed.room.to_string(), &text("an answer"), "m1").await.unwrap();
        bed.end().await;
    }
}

#[tokio::test]
async fn who_never_answers_the_handshake_is_given_up() {
    let (world, front, settings) = behind(NAME).await;
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    front.behave(Manner::Silent);
    front.cut();
    let room = bed.room.to_string();
    let discord = std::sync::Arc::clone(&bed.discord);
    let sending = tokio::spawn(async move { discord.send(&room, &text("an answer"), "m1").await });
    let why = "Discord cannot be reached: it takes too long".to_owned();
    bed.until(|health| *health == Health::Down { why: why.clone() }).await;
    let sent = within(sending).await.unwrap();
    assert_eq!(sent, Err(Undelivered::Later { after: None, why }));
    front.behave(Manner::Honest);
    bed.until(|health| *health == Health::Up).await;
    assert_eq!(bed.server.look(|world| (world.identified, world.resumed)), (1, 1));
    // Whoever is told to stop does not wait for an answer.
    front.behave(Manner::Silent);
    let (mut taken, before) = (front.taken(), *front.taken().borrow());
    front.cut();
    within(taken.wait_for(|taken| *taken > before)).await.unwrap();
    bed.end().await;
}

#[tokio::test]
async fn a_connection_that_went_stale_neither_loses_nor_doubles_a_message() {
    let (world, front, settings) = behind(NAME).await;
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    let room = bed.room.to_string();
    for number in 0..30 {
        front.behave(if number % 2 == 0 { Manner::Honest } else { Manner::Abrupt });
        bed.discord.typing(&room).await;
        front.cut();
        let (words, mark) = (format!("message {number}"), format!("m{number}"));
        // One whose fate nobody knows is sent again under the same mark, which Discord knows it by.
        let send = async || match bed.discord.send(&room, &text(&words), &mark).await {
            Ok(_) => true,
            Err(Undelivered::Unknown(_) | Undelivered::Later { .. }) => false,
            other => panic!("{other:?}"),
        };
        while !send().await {}
        let times = bed.server.look(|world| {
            world.said_by_bot(bed.room).iter().filter(|message| message.content == words).count()
        });
        assert_eq!(times, 1, "{words}");
    }
    // One that was surely taken, though nobody said so.
    bed.server.trouble("POST /channels/*/messages", 1, Trouble::Vanish);
    let sent = bed.discord.send(&room, &text("vanished"), "v").await;
    assert!(matches!(sent, Err(Undelivered::Unknown(_))), "{sent:?}");
    assert_eq!(bed.server.look(|world| world.said_by_bot(bed.room).len()), 31);
    bed.end().await;
}

#[tokio::test]
async fn a_session_is_not_gone_on_with_in_the_open() {
    let (world, front, settings) = behind(NAME).await;
    // What it says of itself is where it can be heard by everybody.
    world.server.move_to(&format!("http://{}", world.server.address()));
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.server.cut();
    bed.server.wait_for(|world| (world.resumed == 1).then_some(())).await.unwrap();
    assert!(bed.server.look(|world| world.connections) <= *front.taken().borrow(), "not all was secret");
    bed.end().await;
}

#[tokio::test]
async fn requests_may_be_secret_where_the_gateway_is_not() {
    let (world, front, settings) = behind(NAME).await;
    let open = format!("ws://{}", world.server.address());
    let api_base = world.server.api_base().replace("https", "HTTPS");
    let settings = Settings { api_base: Some(api_base), gateway_url: Some(open), ..settings };
    let mut bed = Bed::start(world, settings, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.discord.send(&bed.room.to_string(), &text("an answer"), "m1").await.unwrap();
    assert!(*front.taken().borrow() > 0);
    bed.end().await;
}

#[tokio::test]
async fn certificates_are_those_of_this_machine_if_nothing_else_is_said() {
    let (world, front, settings) = behind(NAME).await;
    let mut bed = Bed::start(world, Settings { roots: None, ..settings }, Past::default());
    let why = down(&mut bed).await;
    assert!(why.contains("its certificate is from nobody this machine trusts"), "{why}");
    assert!(*front.taken().borrow() > 0);
    bed.end().await;
}
