//! Sockets inside the place that lead to the host, and the other way.

use std::time::Duration;

use hermes_guest::client::Error;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Address, Counted, Fault};
use serde_bytes::ByteBuf;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};

use crate::place::{PATIENCE, Place};

#[tokio::test]
async fn connections_inside_the_place_arrive_at_the_host() {
    let place = Place::start().await;
    let client = place.client().await;
    let path = place.dir.path().join("rpc.sock");
    let address = Address::Unix(ByteBuf::from(path.to_str().unwrap()));
    let mut unix = client.listen(address).await.unwrap();
    let mut tcp = client.listen(Address::Loopback(0)).await.unwrap();
    let port = tcp.port();
    assert_ne!(port, 0);
    for round in 0..20_u8 {
        let data = vec![round; 300_000];
        let (mut inside, mut arrived) = if round % 2 == 0 {
            let inside: Box<dyn Duplex> = Box::new(UnixStream::connect(&path).await.unwrap());
            (inside, unix.accept().await.unwrap())
        } else {
            let inside: Box<dyn Duplex> = Box::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
            (inside, tcp.accept().await.unwrap())
        };
        let sent = data.clone();
        let inside = tokio::spawn(async move {
            inside.write_all(&sent).await.unwrap();
            inside.shutdown().await.unwrap();
            let mut answer = Vec::new();
            inside.read_to_end(&mut answer).await.unwrap();
            answer
        });
        let mut received = Vec::new();
        arrived.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, data);
        arrived.write_all(b"answer").await.unwrap();
        arrived.shutdown().await.unwrap();
        assert_eq!(inside.await.unwrap(), b"answer");
    }
    drop(unix);
    let gone = async {
        while path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, gone).await.expect("the socket is still there");
}

trait Duplex: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send {}
impl<T: tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send> Duplex for T {}

#[tokio::test]
async fn the_host_can_dial_into_the_place() {
    let place = Place::start().await;
    let client = place.client().await;
    let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = server.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        let (mut stream, _) = server.accept().await.unwrap();
        stream.write_all(b"hello ").await.unwrap();
        let mut data = Vec::new();
        stream.read_to_end(&mut data).await.unwrap();
        stream.write_all(&data).await.unwrap();
    });
    let mut tunnel = client.dial(Address::Loopback(port)).await.unwrap();
    tunnel.write_all(b"there").await.unwrap();
    tunnel.shutdown().await.unwrap();
    let mut answer = String::new();
    tunnel.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "hello there");
    echo.await.unwrap();
    let refused = client.dial(Address::Unix(ByteBuf::from("/no/such/socket"))).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Fault::Os { errno: libc::ENOENT, .. })), "{refused:?}");
}

#[tokio::test]
async fn listeners_are_bounded() {
    let place = Place::start().await;
    let mut listeners = Vec::new();
    // More than one client may have: each of these is a stream of its connection.
    while listeners.len() < limit::LISTENERS {
        let client = place.client().await;
        for _ in 0..limit::STREAMS / 2 {
            listeners.push(client.listen(Address::Loopback(0)).await.unwrap());
        }
    }
    let client = place.client().await;
    let refused = client.listen(Address::Loopback(0)).await.unwrap_err();
    assert!(
        matches!(refused, Error::Refused(Fault::TooMany { what: Counted::Listeners, .. })),
        "{refused:?}"
    );
    drop(listeners);
    let again = async { while client.listen(Address::Loopback(0)).await.is_err() {} };
    tokio::time::timeout(PATIENCE, again).await.expect("what was given back can be used again");
}

#[tokio::test]
async fn clients_share_a_port_and_what_one_leaves_the_other_serves() {
    let place = Place::start().await;
    let (one, two) = (place.client().await, place.client().await);
    let mut first = one.listen(Address::Loopback(0)).await.unwrap();
    let port = first.port();
    let mut second = two.listen(Address::Loopback(port)).await.unwrap();
    let mut served = [false, false];
    // The kernel chooses by a hash of the connection, so either gets one soon.
    for _ in 0..1000 {
        let _inside = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tokio::select! {
            tunnel = first.accept() => served[0] |= tunnel.is_some(),
            tunnel = second.accept() => served[1] |= tunnel.is_some(),
        }
        if served == [true, true] {
            break;
        }
    }
    assert_eq!(served, [true, true]);
    drop((first, one));
    let left = async {
        loop {
            // What was waiting for the one that left is reset.
            let Ok(_inside) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            let alone = tokio::time::timeout(Duration::from_millis(200), second.accept()).await;
            if let Ok(Some(_tunnel)) = alone {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, left).await.expect("the other one serves nobody");
}

#[tokio::test]
async fn more_connections_than_streams_wait_for_their_turn() {
    let place = Place::start().await;
    let client = place.client().await;
    let mut listener = client.listen(Address::Loopback(0)).await.unwrap();
    let port = listener.port();
    let mut inside = Vec::new();
    for _ in 0..2 * limit::STREAMS {
        inside.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let mut tunnels = Vec::new();
    let take = async {
        while tunnels.len() < limit::CARRIED {
            tunnels.push(listener.accept().await.unwrap());
        }
    };
    tokio::time::timeout(PATIENCE, take).await.expect("not as many as should be carried");
    // An answer comes after whatever was on the way before it.
    client.about().await.unwrap();
    let more = tokio::time::timeout(Duration::ZERO, listener.accept()).await;
    assert!(more.is_err(), "one more was let through");
    drop(tunnels);
    inside.truncate(limit::STREAMS);
    let next = tokio::time::timeout(PATIENCE, listener.accept()).await;
    assert!(next.expect("nobody has a turn").is_some());
    assert_eq!(client.stats().await.unwrap().running, 0);
    assert!(!client.is_closed());
}
