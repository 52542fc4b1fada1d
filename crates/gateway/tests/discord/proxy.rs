//! Everything goes through the proxy, or nowhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use hermes_gateway::channel::{Channel, Health};
use hermes_gateway::discord::{Past, Proxy};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};

use crate::bed::{Bed, World, settings, text, wide, world};

/// The name of the server, which only the proxy knows.
const NAME: &str = "discord.invalid";

/// A proxy that knows one server, speaks HTTP or SOCKS, and counts.
struct Gate {
    address: String,
    count: Arc<AtomicU32>,
}

impl Gate {
    async fn open(world: &World, serve: fn(TcpStream, String) -> tokio::task::JoinHandle<()>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (count, server) = (Arc::new(AtomicU32::new(0)), world.server.address().to_string());
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::SeqCst);
                serve(client, server.clone());
            }
        });
        Self { address, count }
    }
}

async fn until_blank(client: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// HTTP, with a name and a password.
fn http(mut client: TcpStream, server: String) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let head = until_blank(&mut client).await;
        // me:hush
        assert!(head.to_lowercase().contains("proxy-authorization: basic bwu6ahvzaa=="), "{head}");
        let mut remote = TcpStream::connect(&server).await.unwrap();
        match head.starts_with("CONNECT ") {
            true => {
                let known = [format!("CONNECT {NAME}:80 "), format!("CONNECT {server} ")];
                assert!(known.iter().any(|known| head.starts_with(known)), "{head}");
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

/// SOCKS 5 without a password; names are looked up here.
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
        assert!(asked == format!("{NAME}:80") || asked == server, "{asked}");
        let mut remote = TcpStream::connect(server).await.unwrap();
        client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await.unwrap();
        copy_bidirectional(&mut client, &mut remote).await.ok();
    })
}

async fn goes_through(world: World, gate: Gate, proxy: String) {
    let mut chosen = settings(&world.server);
    chosen.api_base = Some(format!("http://{NAME}/api/v10"));
    chosen.gateway_url = Some(format!("ws://{NAME}"));
    chosen.proxy = Some(Proxy::parse(&proxy).unwrap());
    // What it is told to go on with is an address that it could reach by itself, too.
    let again = chosen.clone();
    let mut bed = Bed::start(world, chosen, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    let dm = bed.server.dm(bed.ann);
    bed.discord.send(&dm.to_string(), &text("an answer"), "m1").await.unwrap();
    // However a connection ends, the next one goes the same way.
    type End = fn(&hermes_testkit::discord::Server);
    let ends: [End; 5] = [
        |server| server.cut(),
        |server| server.reconnect(),
        |server| server.invalidate_resumable(),
        |server| server.close(4000),
        |server| server.invalidate(),
    ];
    for end in ends {
        let before = bed.server.look(|world| world.identified + world.resumed);
        end(&bed.server);
        bed.server.wait_for(|world| (world.identified + world.resumed > before).then_some(())).await.unwrap();
        bed.until(|health| *health == Health::Up).await;
        bed.nothing().await;
    }
    let resumed = bed.server.look(|world| world.resumed);
    assert_eq!(resumed, 4);
    let (world, _) = bed.leave().await;
    let mut bed = Bed::start(world, again, Past::default());
    bed.until(|health| *health == Health::Up).await;
    bed.nothing().await;
    let (through, taken) = (gate.count.load(Ordering::SeqCst), bed.server.look(|world| world.connections));
    assert_eq!(through, taken, "something went around the proxy");
    assert!(through >= 8, "{through}");
    bed.end().await;
}

#[tokio::test]
async fn everything_goes_through_an_http_proxy() {
    let world = world(wide()).await;
    let gate = Gate::open(&world, http).await;
    let proxy = format!("http://me:hush@{}", gate.address);
    goes_through(world, gate, proxy).await;
}

#[tokio::test]
async fn everything_goes_through_a_socks_proxy() {
    let world = world(wide()).await;
    let gate = Gate::open(&world, socks).await;
    let proxy = format!("socks5://{}", gate.address);
    goes_through(world, gate, proxy).await;
}

#[tokio::test]
async fn where_the_proxy_does_not_get_through_nothing_goes_around_it() {
    let world = world(wide()).await;
    let mut chosen = settings(&world.server);
    // Nobody listens there.
    chosen.proxy = Some(Proxy::parse("http://127.0.0.1:9").unwrap());
    let mut bed = Bed::start(world, chosen, Past::default());
    let Health::Down { why } = bed.until(|health| matches!(health, Health::Down { .. })).await else {
        panic!("not down")
    };
    assert!(why.starts_with("the proxy does not get through"), "{why}");
    let dm = bed.server.dm(bed.ann);
    bed.discord.send(&dm.to_string(), &text("an answer"), "m1").await.unwrap_err();
    assert_eq!(bed.server.look(|world| world.connections), 0);
    bed.end().await;
}
