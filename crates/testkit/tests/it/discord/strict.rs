//! The checks and injected faults of the fake Discord server, tested without a client library.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use hermes_testkit::discord::{
    DiscordServer, DownloadBehavior, InjectedFault, ServerOptions, ServerRateLimits, UserFile, UserPost,
};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message as Frame;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

type Socket = WebSocketStream<MaybeTlsStream<TcpStream>>;

/// Sends a request on a new connection and returns the response, or none if the connection breaks.
async fn raw(server: &DiscordServer, line: &str, headers: &str, body: &str) -> Option<(u16, String, String)> {
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    let length = body.len();
    let request = format!(
        "{line} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{headers}content-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Some((status, head.to_owned(), body.to_owned()))
}

async fn call(server: &DiscordServer, method: &str, path: &str, body: Value) -> Option<(u16, Value)> {
    let headers = format!("authorization: Bot {}\r\ncontent-type: application/json\r\n", server.token());
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let (status, _, body) = raw(server, &format!("{method} /api/v10{path}"), &headers, &text).await?;
    Some((status, serde_json::from_str(&body).unwrap_or(Value::Null)))
}

async fn connect(server: &DiscordServer) -> Socket {
    let url = format!("{}/?v=10&encoding=json", server.gateway_url());
    let (mut socket, _) = tokio_tungstenite::connect_async(url).await.unwrap();
    assert_eq!(receive(&mut socket).await["op"], 10);
    socket
}

/// The next payload, or the code that the socket is closed with.
async fn receive(socket: &mut Socket) -> Value {
    let next = tokio::time::timeout(Duration::from_secs(20), socket.next()).await;
    match next.expect("the gateway sends nothing") {
        Some(Ok(Frame::Text(text))) => serde_json::from_str(&text).unwrap(),
        Some(Ok(Frame::Close(Some(frame)))) => json!({"closed": u16::from(frame.code)}),
        _ => json!({"closed": null}),
    }
}

async fn send(socket: &mut Socket, payload: Value) {
    socket.send(Frame::text(payload.to_string())).await.unwrap();
}

fn identify(token: &str, intents: u64) -> Value {
    let properties = json!({"os": "linux", "browser": "test", "device": "test"});
    json!({"op": 2, "d": {"token": token, "intents": intents, "properties": properties}})
}

async fn server_with_channel(options: ServerOptions) -> (DiscordServer, u64, u64) {
    let server = DiscordServer::start(options).await.unwrap();
    let ann = server.add_user("ann");
    let guild = server.add_guild("guild", &[ann]);
    let channel = server.add_channel(guild, "general");
    (server, ann, channel)
}

fn unlimited() -> ServerOptions {
    ServerOptions { rate_limits: ServerRateLimits::Unlimited, ..ServerOptions::default() }
}

#[tokio::test]
async fn invalid_requests_are_rejected_and_recorded() {
    let (server, ann, channel) = server_with_channel(unlimited()).await;
    let theirs = server.send_text(ann, channel, "hi");
    let messages = format!("/channels/{channel}/messages");
    let button = |id: &str| json!({"type": 2, "style": 1, "label": "x", "custom_id": id});
    let row = |buttons: Vec<Value>| json!({"type": 1, "components": buttons});
    let rows = |count: usize| (0..count).map(|n| row(vec![button(&n.to_string())])).collect::<Vec<_>>();
    let six = (0..6).map(|n| button(&n.to_string())).collect();
    let thread = format!("{messages}/{theirs}/threads");
    let wrong = [
        ("POST", "/nowhere".to_owned(), json!({}), 404, 0),
        ("PUT", messages.clone(), json!({}), 405, 0),
        ("POST", "/channels/7/messages".to_owned(), json!({"content": "x"}), 404, 10_003),
        ("GET", format!("{messages}/7"), Value::Null, 404, 10_008),
        ("POST", messages.clone(), json!({"content": "é".repeat(2001)}), 400, 50_035),
        ("POST", messages.clone(), json!({"content": "x", "contents": "y"}), 400, 50_035),
        ("POST", messages.clone(), json!({"content": ""}), 400, 50_006),
        ("POST", messages.clone(), json!({"content": "x", "components": rows(6)}), 400, 50_035),
        ("POST", messages.clone(), json!({"content": "x", "components": [row(six)]}), 400, 50_035),
        (
            "POST",
            messages.clone(),
            json!({"content": "x", "components": [row(vec![button(&"x".repeat(101))])]}),
            400,
            50_035,
        ),
        (
            "POST",
            messages.clone(),
            json!({"content": "x", "message_reference": {"message_id": "7"}}),
            400,
            50_035,
        ),
        ("PATCH", format!("{messages}/{theirs}"), json!({"content": "x"}), 403, 50_005),
        ("POST", thread.clone(), json!({"name": ""}), 400, 50_035),
        ("POST", thread.clone(), json!({"name": "x".repeat(101)}), 400, 50_035),
        ("POST", "/interactions/7/x/callback".to_owned(), json!({"type": 4}), 404, 10_062),
    ];
    for (number, (method, path, body, status, code)) in wrong.into_iter().enumerate() {
        let (given, answer) = call(&server, method, &path, body).await.unwrap();
        assert_eq!((given, answer["code"].as_u64().unwrap()), (status, code), "{method} {path}: {answer}");
        assert_eq!(server.violations().len(), number + 1);
    }
    let before = server.violations().len();
    // The longest text, and a thread that is created once.
    assert_eq!(call(&server, "POST", &messages, json!({"content": "é".repeat(2000)})).await.unwrap().0, 200);
    assert_eq!(call(&server, "POST", &thread, json!({"name": "x"})).await.unwrap().0, 201);
    assert_eq!(server.violations().len(), before);
    server.expect_violation(160_004);
    let (status, answer) = call(&server, "POST", &thread, json!({"name": "x"})).await.unwrap();
    assert_eq!((status, &answer["code"]), (400, &json!(160_004)));
    assert_eq!(server.violations().len(), before);
    let (status, _, body) =
        raw(&server, "GET /api/v10/users/@me", "authorization: Bot x\r\n", "").await.unwrap();
    assert_eq!((status, serde_json::from_str::<Value>(&body).unwrap()["code"].clone()), (401, json!(0)));
}

#[tokio::test]
async fn a_nonce_creates_one_message() {
    let (server, _, channel) = server_with_channel(unlimited()).await;
    let path = format!("/channels/{channel}/messages");
    let body = json!({"content": "x", "nonce": "n1", "enforce_nonce": true});
    let first = call(&server, "POST", &path, body.clone()).await.unwrap().1;
    let again = call(&server, "POST", &path, body).await.unwrap().1;
    assert_eq!(first["id"], again["id"]);
    assert_eq!(server.read(|world| world.bot_messages_in(channel).len()), 1);
}

#[tokio::test]
async fn injected_faults_affect_the_next_calls() {
    let (server, _, channel) = server_with_channel(unlimited()).await;
    let path = format!("/channels/{channel}/messages");
    let body = || json!({"content": "x"});
    server.inject("POST /channels/*/messages", 2, InjectedFault::Fail(502));
    server.inject("POST /channels/*/messages", 1, InjectedFault::Disconnect);
    server.inject("POST /channels/*/messages", 1, InjectedFault::LoseResponse);
    assert_eq!(call(&server, "POST", &path, body()).await.unwrap().0, 502);
    assert_eq!(call(&server, "POST", &path, body()).await.unwrap().0, 502);
    let said = || server.read(|world| world.bot_messages_in(channel).len());
    assert_eq!((call(&server, "POST", &path, body()).await, said()), (None, 0));
    assert_eq!((call(&server, "POST", &path, body()).await, said()), (None, 1));
    assert_eq!(call(&server, "POST", &path, body()).await.unwrap().0, 200);
    server.forbid_threads();
    let thread = json!({"name": "x", "type": 11});
    let (status, answer) =
        call(&server, "POST", &format!("/channels/{channel}/threads"), thread).await.unwrap();
    assert_eq!((status, &answer["code"]), (403, &json!(50_013)));
    server.stall();
    let hangs = call(&server, "GET", "/users/@me", Value::Null);
    assert!(tokio::time::timeout(Duration::from_millis(300), hangs).await.is_err());
    server.recover();
    assert_eq!(call(&server, "GET", "/users/@me", Value::Null).await.unwrap().0, 200);
    server.inject(
        "POST /channels/*/messages",
        1,
        InjectedFault::RateLimit { retry_after: 60.0, global: true },
    );
    let (status, answer) = call(&server, "POST", &path, body()).await.unwrap();
    assert_eq!((status, &answer["retry_after"], &answer["global"]), (429, &json!(60.0), &json!(true)));
    assert_eq!(server.violations(), Vec::<String>::new());
    // A client that does not wait violates the rate limit.
    call(&server, "GET", "/users/@me", Value::Null).await.unwrap();
    assert_eq!(server.violations(), ["429: GET /users/@me: retried too early"]);
}

#[tokio::test]
async fn exceeding_a_rate_limit_twice_is_a_violation() {
    let (server, _, channel) = server_with_channel(ServerOptions::default()).await;
    let path = format!("/channels/{channel}/messages");
    for _ in 0..5 {
        assert_eq!(call(&server, "POST", &path, json!({"content": "x"})).await.unwrap().0, 200);
    }
    let (status, answer) = call(&server, "POST", &path, json!({"content": "x"})).await.unwrap();
    assert_eq!((status, &answer["global"]), (429, &json!(false)));
    assert_eq!(server.violations(), Vec::<String>::new());
    assert_eq!(call(&server, "POST", &path, json!({"content": "x"})).await.unwrap().0, 429);
    assert_eq!(server.violations().len(), 1);
}

#[tokio::test]
async fn files_are_sent_slowly_or_without_an_end() {
    let (server, ann, channel) = server_with_channel(unlimited()).await;
    let file = |download: DownloadBehavior| UserFile {
        name: "a".to_owned(),
        bytes: b"abc".to_vec(),
        download,
        ..UserFile::default()
    };
    let files = vec![
        file(DownloadBehavior::Immediate),
        file(DownloadBehavior::Slow(1, 5)),
        file(DownloadBehavior::Endless),
    ];
    let message = server.send_post(ann, channel, UserPost { files, ..UserPost::default() });
    let ids = server
        .read(|world| world.messages[&message].attachments.iter().map(|file| file.id).collect::<Vec<_>>());
    let path = |id: u64| format!("GET /attachments/{channel}/{id}/a");
    assert_eq!(raw(&server, &path(ids[0]), "", "").await.unwrap().2, "abc");
    let slow = raw(&server, &path(ids[1]), "", "").await.unwrap().2;
    assert_eq!(slow.chars().filter(|char| "abc".contains(*char)).collect::<String>(), "abc");
    let mut stream = TcpStream::connect(server.address()).await.unwrap();
    stream.write_all(format!("{} HTTP/1.1\r\nhost: x\r\n\r\n", path(ids[2])).as_bytes()).await.unwrap();
    let mut much = vec![0; 100_000];
    stream.read_exact(&mut much).await.unwrap();
}

#[tokio::test]
async fn the_gateway_closes_connections_that_violate_the_protocol() {
    let options = ServerOptions {
        privileged_intents: 0,
        heartbeat_interval: Duration::from_millis(400),
        ..unlimited()
    };
    let (server, ann, channel) = server_with_channel(options).await;
    let wrong = [
        (json!({"op": 3, "d": {}}), 4003),
        (json!({"op": 77, "d": {}}), 4001),
        (identify("wrong", 1), 4004),
        (identify(server.token(), 1 << 15), 4014),
        (identify(server.token(), 1 << 40), 4013),
        (json!({"op": 2, "d": {"token": server.token()}}), 4013),
    ];
    for (payload, code) in wrong {
        server.expect_violation(code);
        let mut socket = connect(&server).await;
        send(&mut socket, payload.clone()).await;
        assert_eq!(receive(&mut socket).await, json!({"closed": code}), "{payload}");
    }
    let mut socket = connect(&server).await;
    send(&mut socket, identify(server.token(), 1 | 1 << 9)).await;
    let ready = receive(&mut socket).await;
    assert_eq!((&ready["t"], &ready["s"]), (&json!("READY"), &json!(1)));
    assert_eq!(receive(&mut socket).await["t"], "GUILD_CREATE");
    // Without the intent, only messages that mention the bot have content.
    server.send_text(ann, channel, "hidden");
    let mention = format!("<@{}>", server.bot());
    server.send_text(ann, channel, &mention);
    assert_eq!(receive(&mut socket).await["d"]["content"], "");
    assert_eq!(receive(&mut socket).await["d"]["content"], mention);
    assert_eq!(server.violations(), Vec::<String>::new());
    // A client without heartbeats is disconnected. When it resumes, it gets the missed events; a
    // sequence number from the future is a violation.
    assert_eq!(receive(&mut socket).await, json!({"closed": 4009}));
    assert_eq!(server.violations().len(), 1);
    server.send_text(ann, channel, &mention);
    let resume = |seq: u64| json!({"op": 6, "d": {"token": server.token(), "session_id": ready["d"]["session_id"], "seq": seq}});
    let mut socket = connect(&server).await;
    send(&mut socket, resume(4)).await;
    assert_eq!(receive(&mut socket).await["s"], 5);
    assert_eq!(receive(&mut socket).await["t"], "RESUMED");
    send(&mut socket, json!({"op": 1, "d": 6})).await;
    assert_eq!(receive(&mut socket).await["op"], 11);
    send(&mut socket, json!({"op": 1, "d": 60})).await;
    assert_eq!(receive(&mut socket).await, json!({"closed": 4007}));
    assert_eq!(server.violations().len(), 2);
    server.expect_violation(4007);
    let mut socket = connect(&server).await;
    send(&mut socket, resume(99)).await;
    assert_eq!(receive(&mut socket).await, json!({"closed": 4007}));
    server.forget_sessions();
    let mut socket = connect(&server).await;
    send(&mut socket, resume(4)).await;
    assert_eq!(receive(&mut socket).await, json!({"op": 9, "s": null, "t": null, "d": false}));
    assert_eq!(server.violations().len(), 2);
}

#[tokio::test]
async fn a_silent_gateway_sends_nothing_and_stays_open() {
    let (server, ann, channel) = server_with_channel(unlimited()).await;
    let mut socket = connect(&server).await;
    send(&mut socket, identify(server.token(), 1 << 9)).await;
    assert_eq!(receive(&mut socket).await["t"], "READY");
    let first = server.send_text(ann, channel, "x");
    assert_eq!(receive(&mut socket).await["d"]["id"], first.to_string());
    server.replay(first);
    assert_eq!(receive(&mut socket).await["d"]["id"], first.to_string());
    server.silence();
    server.send_text(ann, channel, "y");
    send(&mut socket, json!({"op": 1, "d": 3})).await;
    assert!(tokio::time::timeout(Duration::from_millis(300), socket.next()).await.is_err());
    server.recover();
    server.request_reconnect();
    assert!(tokio::time::timeout(Duration::from_millis(300), socket.next()).await.is_err());
    assert_eq!(server.violations(), Vec::<String>::new());
}

#[tokio::test]
async fn an_interaction_needs_one_response_in_time() {
    let (server, ann, channel) = server_with_channel(unlimited()).await;
    let button = json!({"type": 2, "style": 1, "label": "x", "custom_id": "x"});
    let body = json!({"content": "choose", "components": [{"type": 1, "components": [button]}]});
    let (_, sent) = call(&server, "POST", &format!("/channels/{channel}/messages"), body).await.unwrap();
    let message: u64 = sent["id"].as_str().unwrap().parse().unwrap();
    let answer = async |which: usize| {
        let path = server
            .wait_for(|world| {
                let pressed = world.interactions.values().nth(which)?;
                Some(format!("/interactions/{}/{}/callback", pressed.id, pressed.token))
            })
            .await;
        call(&server, "POST", &path.unwrap(), json!({"type": 7, "data": {"content": "chosen"}}))
            .await
            .unwrap()
    };
    let (reply, (status, _)) = tokio::join!(server.press_button(ann, message, "x"), answer(0));
    assert_eq!((reply.unwrap().kind, status), (7, 204));
    assert_eq!(server.read(|world| world.messages[&message].content.clone()), "chosen");
    server.expect_violation(40_060);
    let (status, refused) = answer(0).await;
    assert_eq!((status, &refused["code"]), (400, &json!(40_060)));
    assert_eq!(server.violations(), Vec::<String>::new());
    assert!(server.press_button(ann, message, "x").await.is_err());
    assert_eq!(server.violations().len(), 1);
    let (status, refused) = answer(1).await;
    assert_eq!((status, &refused["code"]), (404, &json!(10_062)));
    assert_eq!(server.violations().len(), 2);
}
