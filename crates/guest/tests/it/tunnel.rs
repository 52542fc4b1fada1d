//! Tunnels between sockets inside the environment and the host.

use std::time::Duration;

use hermes_guest::client::Error;
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::Rejection;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::fixture::{TIMEOUT, TestGuest, eventually};

#[tokio::test]
async fn connections_inside_the_environment_arrive_at_the_host() {
    let guest = TestGuest::start().await;
    let client = guest.client().await;
    let mut tcp = client.listen(0).await.unwrap();
    let port = tcp.port;
    assert_ne!(port, 0);
    for round in 0..20_u8 {
        let data = vec![round; 300_000];
        let mut inside = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        let mut arrived = tcp.connections.recv().await.unwrap();
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
    drop(tcp);
    eventually("the socket is closed", async || TcpStream::connect(("127.0.0.1", port)).await.is_err()).await;
}

#[tokio::test]
async fn listeners_are_bounded() {
    let guest = TestGuest::start().await;
    let mut listeners = Vec::new();
    // More than one client may open: each listener uses a stream.
    while listeners.len() < limit::MAX_LISTENERS {
        let client = guest.client().await;
        for _ in 0..limit::MAX_STREAMS / 2 {
            listeners.push(client.listen(0).await.unwrap());
        }
    }
    let client = guest.client().await;
    let refused = client.listen(0).await.unwrap_err();
    assert!(matches!(refused, Error::Rejected(Rejection::TooManyListeners)), "{refused:?}");
    drop(listeners);
    eventually("a listener is free again", async || client.listen(0).await.is_ok()).await;
}

#[tokio::test]
async fn clients_share_a_port_and_one_takes_over_from_the_other() {
    let guest = TestGuest::start().await;
    let (one, two) = (guest.client().await, guest.client().await);
    let mut first = one.listen(0).await.unwrap();
    let port = first.port;
    let mut second = two.listen(port).await.unwrap();
    let mut served = [false, false];
    // The kernel distributes connections by hash, so both get one soon.
    for _ in 0..1000 {
        let _inside = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
        tokio::select! {
            tunnel = first.connections.recv() => served[0] |= tunnel.is_some(),
            tunnel = second.connections.recv() => served[1] |= tunnel.is_some(),
        }
        if served == [true, true] {
            break;
        }
    }
    assert_eq!(served, [true, true]);
    drop((first, one));
    let left = async {
        loop {
            // Connections in the backlog of the closed listener are reset.
            let Ok(_inside) = TcpStream::connect(("127.0.0.1", port)).await else { continue };
            let alone = tokio::time::timeout(Duration::from_millis(200), second.connections.recv()).await;
            if let Ok(Some(_tunnel)) = alone {
                break;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, left).await.expect("the other client does not accept");
}

#[tokio::test]
async fn more_connections_than_streams_wait_in_the_backlog() {
    let guest = TestGuest::start().await;
    let client = guest.client().await;
    let mut listener = client.listen(0).await.unwrap();
    let port = listener.port;
    let mut inside = Vec::new();
    for _ in 0..2 * limit::MAX_STREAMS {
        inside.push(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    }
    let mut tunnels = Vec::new();
    let take = async {
        while tunnels.len() < limit::MAX_LISTENER_CONNECTIONS {
            tunnels.push(listener.connections.recv().await.unwrap());
        }
    };
    tokio::time::timeout(TIMEOUT, take).await.expect("fewer connections than the limit");
    // A reply arrives after everything that was sent before it.
    client.stats().await.unwrap();
    let more = tokio::time::timeout(Duration::ZERO, listener.connections.recv()).await;
    assert!(more.is_err(), "the limit was exceeded");
    drop(tunnels);
    inside.truncate(limit::MAX_STREAMS);
    let next = tokio::time::timeout(TIMEOUT, listener.connections.recv()).await;
    assert!(next.expect("no further connection").is_some());
    assert_eq!(client.stats().await.unwrap().running, 0);
    assert!(!client.is_closed());
}
