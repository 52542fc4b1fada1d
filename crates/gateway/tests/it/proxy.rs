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

use crate::fixture::{
    BotFixture, World, settings, text_message, without_rate_limits, world, world_behind_tls,
};

/// The host name of the server, which only the proxy resolves.
const SERVER_NAME: &str = "discord.invalid";

/// A proxy for one server that counts its connections.
struct CountingProxy {
    address: String,
    server: String,
    count: Arc<AtomicU32>,
}

impl CountingProxy {
    async fn start(server: SocketAddr, serve: fn(TcpStream, String) -> tokio::task::JoinHandle<()>) -> Self {
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

/// Whether a requested address is that of the server, by name or number.
fn is_server(requested: &str, server: &str) -> bool {
    requested == server
        || [format!("{SERVER_NAME}:80"), format!("{SERVER_NAME}:443")].contains(&requested.to_owned())
}

async fn read_head(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Serves HTTP with credentials.
fn serve_http(mut client: TcpStream, server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let head = read_head(&mut client).await;
        // me:hush
        assert!(head.to_lowercase().contains("proxy-authorization: basic bwu6ahvzaa=="), "{head}");
        let mut remote = TcpStream::connect(&server).await.unwrap();
        match head.starts_with("CONNECT ") {
            true => {
                let requested = head.split(' ').nth(1).unwrap();
                assert!(is_server(requested, &server), "{head}");
                client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await.unwrap();
            }
            false => {
                assert!(head.contains(&format!("http://{SERVER_NAME}/")), "{head}");
                remote.write_all(head.as_bytes()).await.unwrap();
            }
        }
        copy_bidirectional(&mut client, &mut remote).await.ok();
    })
}

/// Serves SOCKS 5 without a password, and resolves names.
fn serve_socks(mut client: TcpStream, server: String) -> tokio::task::JoinHandle<()> {
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
        let requested = format!("{host}:{}", client.read_u16().await.unwrap());
        assert!(is_server(&requested, &server), "{requested}");
        let mut remote = TcpStream::connect(server).await.unwrap();
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        copy_bidirectional(&mut client, &mut remote).await.ok();
    })
}

/// Serves HTTP and rejects every client.
fn reject_clients(mut client: TcpStream, _server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        read_head(&mut client).await;
        let answer = "HTTP/1.1 407 Proxy Authentication Required\r\nproxy-authenticate: Basic\r\ncontent-length: 0\r\n\r\n";
        client.write_all(answer.as_bytes()).await.unwrap();
    })
}

/// Accepts connections and never responds.
fn never_respond(client: TcpStream, _server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let _held = client;
        std::future::pending().await
    })
}

/// Reconnects in every way and returns the numbers of connections to the server and to the proxy.
async fn count_connections(
    world: World,
    mut chosen: DiscordSettings,
    counting: CountingProxy,
    proxy: String,
) -> (u32, u32) {
    let (api_base, gateway_url) = (world.server.api_base(), world.server.gateway_url());
    chosen.api_base = Some(api_base.replace(&counting.server, SERVER_NAME));
    chosen.gateway_url = Some(gateway_url.replace(&counting.server, SERVER_NAME));
    chosen.proxy = Some(ProxyServer::parse(&proxy).unwrap());
    // The resume URL would be reachable directly too.
    let again = chosen.clone();
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    let dm = bot.server.dm_channel(bot.ann);
    bot.discord.send_message(&dm.to_string(), &text_message("an answer"), "m1").await.unwrap();
    // After each kind of disconnect, the next connection uses the same proxy.
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
        bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
        bot.assert_nothing_arrived().await;
    }
    let resumed = bot.server.read(|world| world.resumed);
    assert_eq!(resumed, 4);
    let (world, _) = bot.stop_and_forget_sessions().await;
    let mut bot = BotFixture::start(world, again, ResumeState::default());
    bot.wait_for_health(|health| *health == ChannelHealth::Up).await;
    bot.assert_nothing_arrived().await;
    let (direct, proxied) =
        (bot.server.read(|world| world.connections), counting.count.load(Ordering::SeqCst));
    assert!(direct >= 8, "{direct}");
    bot.end().await;
    (direct, proxied)
}

#[tokio::test]
async fn everything_goes_through_an_http_proxy() {
    let world = world(without_rate_limits()).await;
    let counting = CountingProxy::start(world.server.address(), serve_http).await;
    let (chosen, proxy) = (settings(&world.server), format!("http://me:hush@{}", counting.address));
    let (direct, proxied) = count_connections(world, chosen, counting, proxy).await;
    assert_eq!(direct, proxied, "a connection bypassed the proxy");
}

#[tokio::test]
async fn everything_goes_through_a_socks_proxy() {
    let world = world(without_rate_limits()).await;
    let counting = CountingProxy::start(world.server.address(), serve_socks).await;
    let (chosen, proxy) = (settings(&world.server), format!("socks5://{}", counting.address));
    let (direct, proxied) = count_connections(world, chosen, counting, proxy).await;
    assert_eq!(direct, proxied, "a connection bypassed the proxy");
}

#[tokio::test]
async fn a_proxy_sees_only_encrypted_data() {
    for (serve, scheme) in [(serve_http as fn(_, _) -> _, "http://me:hush@"), (serve_socks, "socks5://")] {
        let (world, front, chosen) = world_behind_tls(SERVER_NAME).await;
        let counting = CountingProxy::start(front.address(), serve).await;
        let proxy = format!("{scheme}{}", counting.address);
        let (direct, proxied) = count_connections(world, chosen, counting, proxy).await;
        // A handshake may fail before the server sees it.
        assert!(direct <= proxied, "a connection bypassed the proxy");
    }
}

#[tokio::test]
async fn an_untrusted_certificate_is_not_blamed_on_the_proxy() {
    let (world, front, mut chosen) = world_behind_tls(SERVER_NAME).await;
    front.set_behavior(TlsBehavior::UnknownAuthority);
    let counting = CountingProxy::start(front.address(), serve_http).await;
    chosen.proxy = Some(ProxyServer::parse(&format!("http://me:hush@{}", counting.address)).unwrap());
    let reason = connection_error(world, chosen).await;
    assert!(reason.contains("certificate signed by an unknown authority"), "{reason}");
}

#[tokio::test]
async fn a_proxy_password_error_is_reported() {
    let open = world(without_rate_limits()).await;
    let open = (settings(&open.server), open);
    let (world, front, chosen) = world_behind_tls(SERVER_NAME).await;
    for (mut chosen, world) in [open, (chosen, world)] {
        let counting = CountingProxy::start(front.address(), reject_clients).await;
        chosen.proxy = Some(ProxyServer::parse(&format!("http://{}", counting.address)).unwrap());
        let reason = connection_error(world, chosen).await;
        assert!(
            reason.contains("proxy authentication required") && reason.contains("discord.proxy"),
            "{reason}"
        );
    }
}

#[tokio::test]
async fn a_silent_proxy_times_out() {
    let (world, front, mut chosen) = world_behind_tls(SERVER_NAME).await;
    let counting = CountingProxy::start(front.address(), never_respond).await;
    chosen.proxy = Some(ProxyServer::parse(&format!("http://{}", counting.address)).unwrap());
    let reason = connection_error(world, chosen).await;
    assert_eq!(reason, "cannot reach Discord through `discord.proxy`: timed out");
}

/// Returns the reason for the missing connection, with which requests fail too.
async fn connection_error(world: World, chosen: DiscordSettings) -> String {
    let mut bot = BotFixture::start(world, chosen, ResumeState::default());
    let ChannelHealth::Down { reason } =
        bot.wait_for_health(|health| matches!(health, ChannelHealth::Down { .. })).await
    else {
        panic!("not down")
    };
    let sent = bot.discord.send_message(&bot.channel.to_string(), &text_message("an answer"), "m1").await;
    assert_eq!(sent, Err(SendError::Retry { after: None, reason: reason.clone() }));
    assert_eq!(bot.server.read(|world| world.connections), 0);
    assert!(!reason.contains("hush"), "{reason}");
    bot.end().await;
    reason
}

#[tokio::test]
async fn nothing_bypasses_a_broken_proxy() {
    let world = world(without_rate_limits()).await;
    let mut chosen = settings(&world.server);
    // No proxy listens at this address.
    chosen.proxy = Some(ProxyServer::parse("http://127.0.0.1:9").unwrap());
    let reason = connection_error(world, chosen).await;
    assert!(reason.starts_with("cannot reach Discord through `discord.proxy`: "), "{reason}");
}
