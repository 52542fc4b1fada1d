//! TLS.

use hermes_gateway::discord::{DiscordSettings, ResumeState};
use hermes_gateway::{Attachment, Channel, ChannelHealth, FetchError, SendError};
use hermes_testkit::discord::{InjectedFault, UserFile, UserPost};
use hermes_testkit::tls::TlsBehavior;

use crate::fixture::{BotFixture, text_message, with_timeout, world_behind_tls};

const SERVER_NAME: &str = "discord.invalid";

/// Waits until the channel is down and returns the reason.
async fn down_reason(bot: &mut BotFixture) -> String {
    match bot.wait_for_health(|health| matches!(health, ChannelHealth::Down { .. })).await {
        ChannelHealth::Down { reason } => reason,
        other => panic!("{other:?}"),
    }
}

async fn download(bot: &BotFixture, file: &Attachment) -> Result<Vec<u8>, FetchError> {
    let folder = tempfile::tempdir().unwrap();
    let into = folder.path().join("target");
    std::fs::write(&into, "").unwrap();
    with_timeout(bot.discord.download_attachment(file, &into, 1 << 20))
        .await
        .map(|_| std::fs::read(&into).unwrap())
}

#[tokio::test]
async fn everything_is_encrypted_also_after_a_resume() {
    for behavior in [TlsBehavior::Valid, TlsBehavior::NoCloseNotify] {
        let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
        front.set_behavior(behavior);
        let mut bot = BotFixture::start(world, settings, ResumeState::default());
        bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
        let dm = bot.server.dm_channel(bot.ann);
        let file =
            UserFile { name: "a.bin".to_owned(), bytes: b"0123456789".repeat(10_000), ..UserFile::default() };
        let post = UserPost { text: "look".to_owned(), files: vec![file], ..UserPost::default() };
        bot.server.send_post(bot.ann, dm, post);
        let file = bot.next_message().await.attachments.remove(0);
        assert!(file.source.starts_with("https://127.0.0.1:"), "{}", file.source);
        assert_eq!(download(&bot, &file).await.unwrap().len(), 100_000);
        bot.discord.send_message(&dm.to_string(), &text_message("an answer"), "m1").await.unwrap();
        let ends: [fn(&hermes_testkit::discord::DiscordServer); 3] = [
            |server| server.drop_connections(),
            |server| server.request_reconnect(),
            |server| server.close_connections(4000),
        ];
        for (resumed, end) in ends.iter().enumerate() {
            end(&bot.server);
            bot.server.send_text(bot.ann, dm, "during the cut");
            assert_eq!(bot.next_message().await.text, "during the cut");
            let counts = bot.server.read(|world| (world.identified, world.resumed as usize));
            assert_eq!(counts, (1, resumed + 1), "{behavior:?}");
        }
        front.drop_connections();
        bot.server.send_text(bot.ann, dm, "after the cut");
        assert_eq!(bot.next_message().await.text, "after the cut");
        assert!(
            bot.server.read(|world| world.connections) <= *front.accepted().borrow(),
            "a connection was not encrypted"
        );
        bot.end().await;
    }
}

#[tokio::test]
async fn an_untrusted_server_gets_no_token_and_the_owner_a_reason() {
    let cases = [
        (TlsBehavior::WrongName, "certificate is not valid for this host name"),
        (TlsBehavior::Expired, "certificate has expired"),
        (TlsBehavior::NotYetValid, "certificate is not valid yet"),
        (TlsBehavior::UnknownAuthority, "SSL_CERT_FILE"),
        (TlsBehavior::NoTls, "does not speak TLS"),
        (TlsBehavior::BrokenHandshake, "tls handshake eof"),
    ];
    for (behavior, words) in cases {
        let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
        let base = world.server.api_base();
        front.set_behavior(behavior);
        let token = world.server.token().to_owned();
        let mut bot = BotFixture::start(world, settings, ResumeState::default());
        let reason = down_reason(&mut bot).await;
        assert!(
            reason.starts_with("cannot reach Discord: ") && reason.contains(words),
            "{behavior:?}: {reason}"
        );
        let sent = bot.discord.send_message(&bot.channel.to_string(), &text_message("an answer"), "m1").await;
        assert_eq!(sent, Err(SendError::Retry { after: None, reason: reason.clone() }), "{behavior:?}");
        let file = Attachment {
            name: "a".to_owned(),
            media_type: None,
            size: 1,
            source: base.replace("/api/v10", "/attachments/1/2/a"),
        };
        let Err(FetchError::Failed(explained)) = download(&bot, &file).await else { panic!("{behavior:?}") };
        assert!(
            reason.starts_with(&explained) && !explained.contains("SSL_CERT_FILE"),
            "{behavior:?}: {explained}"
        );
        assert!(!reason.contains(&token), "{reason}");
        let contacts = bot.server.read(|world| (world.requests.len(), world.identified));
        assert_eq!(contacts, (0, 0), "{behavior:?}");
        // The bot retries and recovers.
        front.set_behavior(TlsBehavior::Valid);
        bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
        bot.discord.send_message(&bot.channel.to_string(), &text_message("an answer"), "m1").await.unwrap();
        bot.end().await;
    }
}

#[tokio::test]
async fn a_stalled_handshake_times_out() {
    let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    front.set_behavior(TlsBehavior::Silent);
    front.drop_connections();
    let chat = bot.channel.to_string();
    let discord = std::sync::Arc::clone(&bot.discord);
    let sending =
        tokio::spawn(async move { discord.send_message(&chat, &text_message("an answer"), "m1").await });
    let reason = "cannot reach Discord: timed out".to_owned();
    bot.wait_for_health(|health| *health == ChannelHealth::Down { reason: reason.clone() }).await;
    let sent = with_timeout(sending).await.unwrap();
    assert_eq!(sent, Err(SendError::Retry { after: None, reason }));
    front.set_behavior(TlsBehavior::Valid);
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    assert_eq!(bot.server.read(|world| (world.identified, world.resumed)), (1, 1));
    // Shutdown does not wait for a response.
    front.set_behavior(TlsBehavior::Silent);
    let (mut taken, before) = (front.accepted(), *front.accepted().borrow());
    front.drop_connections();
    with_timeout(taken.wait_for(|taken| *taken > before)).await.unwrap();
    bot.end().await;
}

#[tokio::test]
async fn a_stale_connection_neither_loses_nor_duplicates_a_message() {
    let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    let chat = bot.channel.to_string();
    for number in 0..30 {
        front.set_behavior(if number % 2 == 0 { TlsBehavior::Valid } else { TlsBehavior::NoCloseNotify });
        bot.discord.show_typing(&chat).await;
        front.drop_connections();
        let (words, mark) = (format!("message {number}"), format!("m{number}"));
        // An uncertain message is sent again with the same nonce.
        let send = async || match bot.discord.send_message(&chat, &text_message(&words), &mark).await {
            Ok(_) => true,
            Err(SendError::Unknown(_) | SendError::Retry { .. }) => false,
            other => panic!("{other:?}"),
        };
        while !send().await {}
        let times = bot.server.read(|world| {
            world.bot_messages_in(bot.channel).iter().filter(|message| message.content == words).count()
        });
        assert_eq!(times, 1, "{words}");
    }
    // The message was certainly sent, but not confirmed.
    bot.server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    let sent = bot.discord.send_message(&chat, &text_message("vanished"), "v").await;
    assert!(matches!(sent, Err(SendError::Unknown(_))), "{sent:?}");
    assert_eq!(bot.server.read(|world| world.bot_messages_in(bot.channel).len()), 31);
    bot.end().await;
}

#[tokio::test]
async fn a_session_is_not_resumed_unencrypted() {
    let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
    // The announced address is public.
    world.server.set_base(&format!("http://{}", world.server.address()));
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.server.drop_connections();
    bot.server.wait_for(|world| (world.resumed == 1).then_some(())).await.unwrap();
    assert!(
        bot.server.read(|world| world.connections) <= *front.accepted().borrow(),
        "a connection was not encrypted"
    );
    bot.end().await;
}

#[tokio::test]
async fn requests_may_be_encrypted_if_the_gateway_is_not() {
    let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
    let open = format!("ws://{}", world.server.address());
    let api_base = world.server.api_base().replace("https", "HTTPS");
    let settings = DiscordSettings { api_base: Some(api_base), gateway_url: Some(open), ..settings };
    let mut bot = BotFixture::start(world, settings, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.discord.send_message(&bot.channel.to_string(), &text_message("an answer"), "m1").await.unwrap();
    assert!(*front.accepted().borrow() > 0);
    bot.end().await;
}

#[tokio::test]
async fn system_certificates_are_the_default() {
    let (world, front, settings) = world_behind_tls(SERVER_NAME).await;
    let mut bot = BotFixture::start(
        world,
        DiscordSettings { root_certificates: None, ..settings },
        ResumeState::default(),
    );
    let reason = down_reason(&mut bot).await;
    assert!(reason.contains("certificate signed by an unknown authority"), "{reason}");
    assert!(*front.accepted().borrow() > 0);
    bot.end().await;
}
