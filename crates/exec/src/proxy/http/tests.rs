use proptest::prelude::*;
use tokio::io::{DuplexStream, duplex};
use tokio::net::TcpListener;

use super::body::BodyFraming;
use super::*;
use crate::proxy;

fn parse(head: &str) -> Result<ProxyRequest, RequestError> {
    ProxyRequest::parse(head.as_bytes())
}

/// The target of a request and the head that the server gets.
fn sent_on(head: &str) -> (String, u16, String, BodyFraming) {
    let request = parse(head).unwrap();
    let RequestKind::Forward(plain) = request.kind else { panic!("a tunnel") };
    (request.host, request.port, String::from_utf8(plain.head()).unwrap(), plain.body)
}

#[test]
fn a_request_is_rewritten_without_hop_by_hop_headers() {
    let (host, port, head, body) = sent_on(
        "POST http://Example.com:8080/a?b HTTP/1.1\r\nHost: other.example\r\nProxy-Connection: keep-alive\r\n\
         Proxy-Authorization: Basic eA==\r\nConnection: x-mine, content-length\r\nX-Mine: 1\r\nTE: trailers\r\n\
         Upgrade: h2c\r\nAccept:  */*  \r\nContent-Length: 5\r\n\r\n",
    );
    assert_eq!((host.as_str(), port, body), ("Example.com", 8080, BodyFraming::Length(5)));
    assert_eq!(
        head,
        "POST /a?b HTTP/1.1\r\nHost: Example.com:8080\r\nAccept: */*\r\nContent-Length: 5\r\nConnection: close\r\n\r\n"
    );
    let (_, port, head, _) = sent_on("GET http://example.com?q HTTP/1.0\r\n\r\n");
    assert_eq!(
        (port, head.as_str()),
        (80, "GET /?q HTTP/1.0\r\nHost: example.com\r\nConnection: close\r\n\r\n")
    );
    let (host, _, head, body) =
        sent_on("OPTIONS HTTP://[2606:4700::1111]:81 HTTP/1.1\r\nTransfer-Encoding: Chunked\r\n\r\n");
    assert_eq!((host.as_str(), body), ("[2606:4700::1111]", BodyFraming::Chunked));
    assert_eq!(
        head,
        "OPTIONS * HTTP/1.1\r\nHost: [2606:4700::1111]:81\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    );
}

#[test]
fn a_tunnel_needs_a_host_and_a_port() {
    let target = |text: &str| {
        let request = parse(&format!("CONNECT {text} HTTP/1.1\r\nHost: whatever\r\n\r\n"))?;
        assert_eq!(request.kind, RequestKind::Connect);
        Ok((request.host, request.port))
    };
    assert_eq!(target("example.com:443"), Ok(("example.com".to_owned(), 443)));
    assert_eq!(target("[::1]:80"), Ok(("[::1]".to_owned(), 80)));
    for text in [
        "example.com", "example.com:", ":443", "example.com:0", "example.com:65536", "example.com:+1",
        "u@h:1", "[::1]", "[::1]x:1", "::1:80", "a\\b:1",
    ] {
        assert_eq!(target(text), Err(RequestError::InvalidAuthority), "{text}");
    }
}

#[test]
fn an_ambiguous_request_is_refused() {
    let with = |fields: &str| parse(&format!("POST http://a.example/ HTTP/1.1\r\n{fields}\r\n"));
    for (fields, expected) in [
        ("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", RequestError::AmbiguousLength),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", RequestError::AmbiguousLength),
        ("Content-Length: 1, 1\r\n", RequestError::AmbiguousLength),
        ("Content-Length: +1\r\n", RequestError::AmbiguousLength),
        ("Content-Length:\r\n", RequestError::AmbiguousLength),
        ("Content-Length: 99999999999999999999\r\n", RequestError::AmbiguousLength),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", RequestError::AmbiguousLength),
        ("Transfer-Encoding: gzip, chunked\r\n", RequestError::UnsupportedCoding),
        ("Transfer-Encoding: xchunked\r\n", RequestError::UnsupportedCoding),
        ("A: b\r\n c\r\n", RequestError::InvalidHeader),
        ("A: b\nB: c\r\n", RequestError::InvalidHeader),
        ("A: b\rc\r\n", RequestError::InvalidHeader),
        ("A: b\0\r\n", RequestError::InvalidHeader),
        ("A : b\r\n", RequestError::InvalidHeader),
        (": b\r\n", RequestError::InvalidHeader),
        ("A\r\n", RequestError::InvalidHeader),
    ] {
        assert_eq!(with(fields), Err(expected), "{fields:?}");
    }
    for (line, expected) in [
        ("GET / HTTP/1.1", RequestError::InvalidRequestLine),
        ("GET  http://a.example/ HTTP/1.1", RequestError::InvalidRequestLine),
        ("GET http://a.example/ x HTTP/1.1", RequestError::InvalidRequestLine),
        ("GET http://a.example/", RequestError::InvalidRequestLine),
        ("G\u{e9}T http://a.example/ HTTP/1.1", RequestError::InvalidRequestLine),
        ("GET http://a.example/ HTTP/2", RequestError::UnsupportedVersion),
        ("GET https://a.example/ HTTP/1.1", RequestError::UnsupportedScheme),
        ("GET ftp://a.example/ HTTP/1.1", RequestError::UnsupportedScheme),
        ("GET http:///x HTTP/1.1", RequestError::InvalidAuthority),
        ("GET http://u:p@a.example/ HTTP/1.1", RequestError::InvalidAuthority),
        ("GET http://a.example\\@127.0.0.1/ HTTP/1.1", RequestError::InvalidAuthority),
        ("GET http://a.example/#x HTTP/1.1", RequestError::InvalidAuthority),
        ("GET http://a.ex\0ample/ HTTP/1.1", RequestError::InvalidHeader),
    ] {
        assert_eq!(parse(&format!("{line}\r\n\r\n")), Err(expected), "{line:?}");
    }
    let old = "POST http://a.example/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(parse(old), Err(RequestError::AmbiguousLength));
}

/// The response of the whole proxy.
async fn answered(request: &[u8]) -> String {
    let (mut client, inner) = duplex(2 * MAX_HEAD_BYTES);
    let served = tokio::spawn(proxy::serve_connection(inner));
    client.write_all(request).await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    served.await.unwrap();
    answer
}

#[tokio::test]
async fn a_refusal_names_the_host_and_the_reason() {
    assert_eq!(
        answered(b"CONNECT 0x7f.1:22 HTTP/1.1\r\n\r\n").await,
        "HTTP/1.1 403 Refused by hermes: loopback\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: 101\r\nX-Hermes-Refused: loopback\r\nConnection: close\r\n\r\n\
         hermes: 0x7f.1 is not a public address (loopback); terminal.network: proxy reaches public hosts only\n"
    );
    let socks4 = answered(b"\x04\x01\x00\x50\x08\x08\x08\x08\x00").await;
    assert!(socks4.starts_with("HTTP/1.1 400 "), "{socks4}");
    let long = [b"GET http://a.example/ HTTP/1.1\r\nA: ", &vec![b'x'; MAX_HEAD_BYTES][..]].concat();
    let long = answered(&long).await;
    assert!(long.starts_with("HTTP/1.1 431 "), "{long}");
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_is_dropped_at_the_timeout() {
    let (mut client, inner) = duplex(1024);
    let started = Instant::now();
    let served = tokio::spawn(proxy::serve_connection(inner));
    let (mut answers, mut drip) = tokio::io::split(&mut client);
    let dripping = async {
        drip.write_all(b"GET http://a.example/ HTTP/1.1\r\n").await.unwrap();
        while drip.write_all(b"A: b\r\n").await.is_ok() {
            tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    let mut answer = String::new();
    tokio::select! {
        read = answers.read_to_string(&mut answer) => drop(read.unwrap()),
        () = dripping => {}
    }
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(started.elapsed().as_secs(), proxy::HANDSHAKE_TIMEOUT.as_secs());
    served.await.unwrap();
}

/// A client, the server's connection, and the task that forwards the request.
async fn one_request(head: &str) -> (DuplexStream, TcpStream, tokio::task::JoinHandle<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let to_server = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (server, _) = listener.accept().await.unwrap();
    let (client, inner) = duplex(64 * 1024);
    let RequestKind::Forward(plain) = parse(head).unwrap().kind else { panic!("a tunnel") };
    (client, server, tokio::spawn(forward(BufReader::new(inner), to_server, plain)))
}

/// Reads until the input ends with these bytes.
async fn read_to(stream: &mut TcpStream, end: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    while !all.ends_with(end) {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        all.push(byte[0]);
    }
    all
}

#[tokio::test]
async fn bodies_pass_unchanged_and_nothing_after_them() {
    let bytes: Vec<u8> = (0..=255).cycle().take(300_000).collect();
    let plain = format!("POST http://a.example/ HTTP/1.1\r\nContent-Length: {}\r\n\r\n", bytes.len());
    let chunked = "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    let in_chunks: Vec<u8> = bytes
        .chunks(70_001)
        .flat_map(|chunk| [format!("{:X};ext=1\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
        .chain(*b"0\r\nTrailer: x\r\n\r\n")
        .collect();
    let rewritten: Vec<u8> = bytes
        .chunks(70_001)
        .flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat())
        .chain(*b"0\r\n\r\n")
        .collect();
    for (head, sent, expected) in
        [(plain.as_str(), bytes.clone(), bytes.clone()), (chunked, in_chunks, rewritten)]
    {
        let (mut client, mut server, task) = one_request(head).await;
        let upload = tokio::spawn(async move {
            client.write_all(&sent).await.unwrap();
            client.write_all(b"GET http://secret.example/ HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).await.unwrap();
            answer
        });
        read_to(&mut server, b"\r\n\r\n").await;
        let mut got = vec![0; expected.len()];
        server.read_exact(&mut got).await.unwrap();
        assert!(got == expected);
        server.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await.unwrap();
        server
            .write_all(b"HTTP/1.1 200 OK\r\nConnection: keep-alive\r\nKeep-Alive: 5\r\nA: b\r\n\r\n")
            .await
            .unwrap();
        server.write_all(&bytes).await.unwrap();
        server.shutdown().await.unwrap();
        let answer = upload.await.unwrap();
        let head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nA: b\r\nConnection: close\r\n\r\n";
        assert!(answer == [&head[..], &bytes].concat());
        task.await.unwrap().unwrap();
        let mut after = Vec::new();
        server.read_to_end(&mut after).await.unwrap();
        assert_eq!(after, b"", "the next request is not the server's");
    }
}

#[tokio::test]
async fn a_truncated_request_never_looks_complete_to_the_server() {
    let head = "POST http://a.example/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
    for wrong in
        ["5\r\nabcdeXX", "x\r\n", "5\nabcde\r\n", "11111111111111111\r\n", "-1\r\n", "\r\n", "5\r\nab"]
    {
        let (mut client, mut server, task) = one_request(head).await;
        client.write_all(wrong.as_bytes()).await.unwrap();
        client.shutdown().await.unwrap();
        task.await.unwrap().unwrap_err();
        let mut got = Vec::new();
        // A reset is an end too.
        drop(server.read_to_end(&mut got).await);
        assert!(!got.ends_with(b"0\r\n\r\n"), "{wrong:?}");
    }
}

#[tokio::test]
async fn a_silent_server_is_a_bad_gateway() {
    let (mut client, mut server, task) = one_request("GET http://a.example/ HTTP/1.1\r\n\r\n").await;
    read_to(&mut server, b"\r\n\r\n").await;
    drop(server);
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 502 No response from the server\r\n"), "{answer}");
    drop(task.await);
}

fn mutated() -> impl Strategy<Value = Vec<u8>> {
    let heads = prop::sample::select(vec![
        "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com:443\r\n\r\n",
        "GET http://example.com/a HTTP/1.1\r\nHost: example.com\r\nAccept: */*\r\n\r\n",
        "POST http://[::1]:80/ HTTP/1.1\r\nContent-Length: 3\r\nConnection: close\r\n\r\n",
        "PUT http://a/ HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ]);
    let odd =
        prop::sample::select(vec![0_u8, b'\n', b'\r', b' ', b':', b'@', b'\\', b'/', b'[', b']', 0x7f, 0xff]);
    let edits = prop::collection::vec((any::<prop::sample::Index>(), prop_oneof![odd, any::<u8>()]), 0..6);
    (heads, edits).prop_map(|(head, edits)| {
        let mut head = head.as_bytes().to_vec();
        for (place, byte) in edits {
            let place = place.index(head.len());
            if byte % 3 == 0 { head.insert(place, byte) } else { head[place] = byte }
        }
        head
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn the_server_always_gets_one_clean_head(head in mutated()) {
        let Ok(ProxyRequest { host, kind: RequestKind::Forward(plain), .. }) = ProxyRequest::parse(&head) else { return Ok(()) };
        let written = plain.head();
        let text = written.strip_suffix(b"\r\n\r\n").unwrap();
        for line in text.split(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            prop_assert!(!line.is_empty() && line.iter().all(|byte| *byte >= b' ' || *byte == b'\t'));
        }
        let lower = String::from_utf8_lossy(text).to_ascii_lowercase();
        let count = |name: &str| lower.matches(&format!("\r\n{name}:")).count();
        prop_assert_eq!((count("host"), count("connection")), (1, 1));
        prop_assert!(count("content-length") + count("transfer-encoding") <= 1);
        let host_line = format!("\r\nhost: {}", host.to_ascii_lowercase());
        prop_assert!(lower.contains(&host_line));
    }
}
