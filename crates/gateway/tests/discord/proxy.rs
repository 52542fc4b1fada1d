//! Proxies.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hermes_gateway::discord::{DiscordSettings, ResumeState};
use hermes_gateway::{Channel, ChannelHealth, SendError};
use hermes_net::ProxyServer;
use hermes_testkit::tls::TlsBehavior;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::fixture::{BotFixture, World, behind, settings, text, wide, world};

/// The server's name, which only the proxy resolves.
const NAME: &str = "discord.invalid";

/// A proxy that knows one server, speaks HTTP or SOCKS, and counts.
struct Gate {
    address: String,
    server: String,
    count: Arc<AtomicU32>,
}

impl Gate {
    async fn open(server: SocketAddr, serve: fn(TcpStream, String) -> tokio::task::JoinHandle<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (count, server) = (Arc::new(AtomicU32::new(0)), server.to_string());
        let (counted, known) = (Arc::clone(&count), server.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                serve(client, known.clone());
            }
        });
        Self { address, server, count }
    }
}

/// Whether this is the server, by name or address.
fn is_known(asked: &str, server: &str) -> bool {
    asked == server || [format!("{NAME}:80"), format!("{NAME}:443")].contains(&asked.to_owned())
}

async fn until_blank(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// HTTP, with credentials.
fn http(mut client: TcpStream, server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let head = until_blank(&mut client).await;
        // me:hush
        assert!(head.to_lowercase().contains("proxy-authorization: basic bwu6ahvzaa=="), "{head}");
        let mut remote = TcpStream::connect(&server).await.unwrap();
        match head.starts_with("CONNECT ") {
            true => {
                let asked = head.split(' ').nth(1).unwrap();
                assert!(is_known(asked, &server), "{head}");
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            }
            false => {
                assert!(head.contains(&format!("http://{NAME}/")), "{head}");
                remote.write_all(head.as_bytes()).await.unwrap();
            }
        }
        copy_bidirectional(&mut client, &mut remote).await.ok();
    })
}

/// SOCKS 5 without a password; resolves names.
fn socks(mut client: TcpStream, server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let (version, methods) = (client.read_u8().await.unwrap(), client.read_u8().await.unwrap());
        assert_eq!(version, 5);
        client.read_exact(&mut vec![0; methods.into()]).await.unwrap();
        client.write_all(&[5, 0]).await.unwrap();
        let mut request = [0; 4];
        client.read_exact(&mut request).await.unwrap();
        let host = match request {
            [5, 1, 0, 1] => std::net::Ipv4Addr::from(client.read_u32().await.unwrap()).to_string(),
            [5, 1, 0, 3] => {
                let mut name = vec![0; client.read_u8().await.unwrap().into()];
                client.read_exact(&mut name).await.unwrap();
                String::from_utf8(name).unwrap()
            }
            other => panic!("{other:?}"),
        };
        let asked = format!("{host}:{}", client.read_u16().await.unwrap());
        assert!(is_known(&asked, &server), "{asked}");
        let mut remote = TcpStream::connect(server).await.unwrap();
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        copy_bidirectional(&mut client, &mut remote).await.ok();
    })
}

/// HTTP, rejects everyone.
fn locked(mut client: TcpStream, _server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        until_blank(&mut client).await;
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer.as_bytes()).await.unwrap();
    })
}

/// HTTP, never responds.
fn mute(client: TcpStream, _server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let _held = client;
        std::future::pending().await
    })
}

/// Returns the numbers of connections to the server and to the proxy.
async fn goes_through(world: World, mut chosen: DiscordSettings, gate: Gate, proxy: String) -> (u32, u32) {
    let (api_base, gateway_url) = (world.server.api_base(), world.server.gateway_url());
    chosen.api_base = Some(api_base.replace(&gate.server, NAME));
    chosen.gateway_url = Some(gateway_url.replace(&gate.server, NAME));
    chosen.proxy = Some(ProxyServer::parse(&proxy).unwrap());
    // The resume URL would be reachable directly too.
    let again = chosen.clone();
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.until(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.discord.send_message(&dm.to_string(), &text("an answer"), "m1").await.unwrap();
    // However a connection ends, the next one uses the same proxy.
    type End = fn(&hermes_testkit::discord::DiscordServer);
    let ends: [End; 5] = [
        |server| server.drop_connections(),
        |server| server.request_reconnect(),
        |server| server.invalidate_resumable(),
        |server| server.close_connections(4000),
        |server| server.invalidate(),
    ];
    for end in ends {
        let before = bot.server.read(|world| world.identified + world.resumed);
        end(&bot.server);
        bot.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
        bot.until(|health| *health == ChannelHealth::Up).await;
        bot.assert_nothing_arrived().await;
    }
    let resumed = bot.server.read(|world| world.resumed);
    assert_eq!(resumed, 4);
    let (world, _) = bot.stop_and_forget_sessions().await;
    let mut bot = BotFixture::start(world, again, ResumeState::default());
    bot.until(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    let (taken, through) = (bot.server.read(|world| world.connections), gate.count.load(Ordering::SeqCst));
    assert!(taken >= 8, "{taken}");
    bot.end().await;
    (taken, through)
}

#[tokio::test]
async fn everything_goes_through_an_http_proxy() {
    let world = world(wide()).await;
    let gate = Gate::open(world.server.address(), http).await;
    let (chosen, proxy) = (settings(&world.server), format!("http://me:hush@{}", gate.address));
    let (taken, through) = goes_through(world, chosen, gate, proxy).await;
    assert_eq!(taken, through, "something went around the proxy");
}

#[tokio::test]
async fn everything_goes_through_a_socks_proxy() {
    let world = world(wide()).await;
    let gate = Gate::open(world.server.address(), socks).await;
    let (chosen, proxy) = (settings(&world.server), format!("socks5://{}", gate.address));
    let (taken, through) = goes_through(world, chosen, gate, proxy).await;
    assert_eq!(taken, through, "something went around the proxy");
}

#[tokio::test]
async fn a_proxy_sees_only_encrypted_data() {
    for (serve, scheme) in [(http as fn(_, _) -> _, "http://me:hush@"), (socks, "socks5://")] {
        let (world, front, chosen) = behind(NAME).await;
        let gate = Gate::open(front.address(), serve).await;
        let proxy = format!("{scheme}{}", gate.address);
        let (taken, through) = goes_through(world, chosen, gate, proxy).await;
        // A handshake may fail before the server sees it.
        assert!(taken <= through, "something went around the proxy");
    }
}

#[tokio::test]
async fn an_untrusted_certificate_is_not_blamed_on_the_proxy() {
    let (world, front, mut chosen) = behind(NAME).await;
    front.set_behavior(TlsBehavior::UnknownAuthority);
    let gate = Gate::open(front.address(), http).await;
    chosen.proxy = Some(ProxyServer::parse(&format!("http://me:hush@{}", gate.address)).unwrap());
    let why = fails(world, chosen).await;
    assert!(why.contains("certificate signed by an unknown authority"), "{why}");
}

#[tokio::test]
async fn a_proxy_password_error_is_reported() {
    let open = world(wide()).await;
    let open = (settings(&open.server), open);
    let (world, front, chosen) = behind(NAME).await;
    for (mut chosen, world) in [open, (chosen, world)] {
        let gate = Gate::open(front.address(), locked).await;
        chosen.proxy = Some(ProxyServer::parse(&format!("http://{}", gate.address)).unwrap());
        let why = fails(world, chosen).await;
        assert!(why.contains("proxy authentication required") && why.contains("discord.proxy"), "{why}");
    }
}

#[tokio::test]
async fn a_silent_proxy_times_out() {
    let (world, front, mut chosen) = behind(NAME).await;
    let gate = Gate::open(front.address(), mute).await;
    chosen.proxy = Some(ProxyServer::parse(&format!("http://{}", gate.address)).unwrap());
    let why = fails(world, chosen).await;
    assert_eq!(why, "cannot reach Discord through `discord.proxy`: timed out");
}

/// Returns why there is no connection; requests fail for the same reason and may be retried.
async fn fails(world: World, chosen: DiscordSettings) -> String {
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    let ChannelHealth::Down { reason: why } =
        bot.until(|health| matches!(health, ChannelHealth::Down { .. })).await
    else {
        panic!("not down")
    };
    let sent = bot.discord.send_message(&bot.channel.to_string(), &text("an answer"), "m1").await;
    assert_eq!(sent, Err(SendError::Retry { after: None, reason: why.clone() }));
    assert_eq!(bot.server.read(|world| world.connections), 0);
    assert!(!why.contains("hush"), "{why}");
    bot.end().await;
    why
}

#[tokio::test]
async fn nothing_bypasses_a_broken_proxy() {
    let world = world(wide()).await;
    let mut chosen = settings(&world.server);
    // Nobody listens there.
    chosen.proxy = Some(ProxyServer::parse("http://127.0.0.1:9").unwrap());
    let why = fails(world, chosen).await;
    assert!(why.starts_with("cannot reach Discord through `discord.proxy`: "), "{why}");
}
