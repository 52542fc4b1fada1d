//! How a guest begins, who can reach it, and how it ends.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_guest::client::Client;
use hermes_guest::protocol::frame::Frames;
use hermes_guest::protocol::greeting;
use hermes_guest::protocol::message::{Request, Run, Stdin, Tree};
use hermes_guest::protocol::mux::{self, End};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::place::{PATIENCE, Place, lives, serve};

async fn until(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(PATIENCE, wait).await.unwrap_or_else(|_| panic!("not yet: {what}"));
}

#[tokio::test]
async fn when_the_host_goes_the_foreground_dies_and_the_background_is_found_again() {
    let place = Place::start().await;
    let s = place.session().await;
    let background =
        s.start(Run { stdin: Stdin::Stream, ..s.in_background("echo up; read x; echo $x") }).await;
    s.wait_for_output(background, "up").await;
    let foreground = s.client.run(s.command("setsid sleep 800 & echo $$ $! >pids; sleep 800")).await.unwrap();
    let pids = place.work().join("pids");
    until("the command begins", async || {
        std::fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    let pids = std::fs::read_to_string(&pids).unwrap();
    drop((foreground, s));
    until("the foreground is dead", async || !pids.split_whitespace().any(lives)).await;
    let later = place.session().await;
    // Its record goes a moment after its last process.
    until("only the background is listed", async || {
        let listed = later.client.processes().await.unwrap();
        listed.iter().map(|view| view.process).eq([background])
    })
    .await;
    later.client.write_stdin(background, b"still there\n").await.unwrap();
    later.client.wait(background, PATIENCE).await.unwrap();
    assert_eq!(later.client.output(background, 0, 100).await.unwrap().data.as_slice(), b"up\nstill there\n");
}

#[tokio::test]
async fn a_dropped_handle_kills_only_its_own_command() {
    let place = Place::start().await;
    let s = place.session().await;
    let one = s.client.run(s.command("echo $$ >one; sleep 800")).await.unwrap();
    let two = s.client.run(s.command("echo $$ >two; sleep 800")).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(place.work().join(name)).unwrap_or_default();
    until("both run", async || read("one").ends_with('\n') && read("two").ends_with('\n')).await;
    drop(one);
    until("one is dead", async || !lives(&read("one"))).await;
    assert!(lives(&read("two")));
    drop(two);
    until("nothing runs", async || s.client.stats().await.unwrap().running == 0).await;
}

#[tokio::test]
async fn a_stream_cut_anywhere_runs_a_command_at_most_once() {
    let place = Place::start().await;
    let s = place.session().await;
    let request = Request::Run(Box::new(s.in_background("echo ran >>count")));
    // The bytes that a whole request puts on the wire, learned from a wire that leads nowhere.
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mux, driver, _arrivals) = mux::multiplex(near, End::Host);
    let driver = tokio::spawn(driver.run());
    Frames::new(mux.open().await.unwrap()).writer.send(&request).await.unwrap();
    let mut wire = vec![0; 1 << 16];
    let mut length = 0;
    while let Ok(Ok(count @ 1..)) =
        tokio::time::timeout(Duration::from_millis(200), far.read(&mut wire[length..])).await
    {
        length += count;
    }
    driver.abort();
    let length = end_of_data(&wire[..length]);
    let wire = &wire[..length];
    let mut held = Vec::new();
    for cut in (0..=length).step_by(7).chain([length - 1, length]) {
        let mut stream = UnixStream::connect(&place.socket).await.unwrap();
        greeting::exchange(&mut stream).await.unwrap();
        stream.write_all(&wire[..cut]).await.unwrap();
        if cut == length {
            held.push(stream);
        }
    }
    let count = place.work().join("count");
    until("it ran", async || {
        std::fs::read_to_string(&count).is_ok_and(|text| text.lines().count() >= held.len())
    })
    .await;
    until("nothing runs", async || s.client.stats().await.unwrap().running == 0).await;
    let ran = std::fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(ran, held.len());
}

/// Where the last frame with data ends. The multiplexer may send a ping or an empty farewell behind it, which are
/// no part of the request.
fn end_of_data(wire: &[u8]) -> usize {
    let (mut at, mut end) = (0, 0);
    while let Some(&[_, kind, _, _, _, _, _, _, a, b, c, d]) = wire.get(at..at + 12) {
        at += 12;
        let length = u32::from_be_bytes([a, b, c, d]) as usize;
        if kind == 0 && length > 0 {
            at += length;
            end = at;
        }
    }
    end
}

#[tokio::test]
async fn a_guest_ends_itself_when_nobody_needs_it() {
    let place = Place::start_with(&["--idle", "1"]).await;
    let pid = place.pid.to_string();
    let s = place.session().await;
    let background = s.start(Run { stdin: Stdin::Stream, ..s.in_background("read x") }).await;
    drop(s);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    assert!(lives(&pid), "a running process keeps the guest");
    let client = place.client().await;
    assert_eq!(client.stats().await.unwrap().idle, Duration::ZERO);
    client.kill(background).await.unwrap();
    // Whoever only watches does not keep it.
    until("the guest is gone", async || client.stats().await.is_err() && !lives(&pid)).await;
    let dir = place.socket.parent().unwrap();
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "the socket is gone too");
}

#[tokio::test]
async fn a_guest_that_is_killed_takes_its_processes_along() {
    let place = Place::start().await;
    let long = 1_000_000 + place.pid;
    let s = place.session().await;
    let ended = s
        .run(s.command(format!(
            "setsid bash -c 'sleep {long} & sleep {long}' & sleep 0.2; pgrep -f 'sleep {long}'"
        )))
        .await;
    assert_eq!(ended.tree, Tree::Alive);
    let pids = crate::place::text_of(&ended);
    let pid = rustix::process::Pid::from_raw(place.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    until("all are dead", async || !pids.split_whitespace().any(lives)).await;
    assert!(s.client.stats().await.is_err());
    // The next one takes its place.
    serve(&place.socket, &["--idle", "60"]);
    let next = place.client().await;
    let about = next.about().await.unwrap();
    assert_ne!(about.pid, place.pid);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(about.pid.cast_signed()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    next.closed().await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
async fn the_socket_is_private_and_has_one_guest() {
    let place = Place::start().await;
    let mode = std::fs::metadata(place.socket.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let second = Command::new(env!("CARGO_BIN_EXE_hermes-guest"))
        .args(["serve", "--socket"])
        .arg(&place.socket)
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("already there"), "{second:?}");
    assert!(place.client().await.about().await.is_ok());
}

#[tokio::test]
async fn attach_carries_the_protocol_over_pipes() {
    let place = Place::start().await;
    let mut attach = tokio::process::Command::new(env!("CARGO_BIN_EXE_hermes-guest"))
        .args(["attach", "--socket"])
        .arg(&place.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stream = tokio::io::join(attach.stdout.take().unwrap(), attach.stdin.take().unwrap());
    let client = Client::connect(stream).await.unwrap();
    assert_eq!(client.about().await.unwrap().pid, place.pid);
    drop(client);
    assert!(tokio::time::timeout(PATIENCE, attach.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn nothing_but_a_guest_of_the_same_version_is_talked_to() {
    let place = Place::start().await;
    let mut stream = UnixStream::connect(&place.socket).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut rest)).await.unwrap().unwrap_or_default();
    assert_eq!(&rest[..12], b"hermes-guest", "it greets, and hangs up");
    let (near, mut far) = tokio::io::duplex(64);
    far.write_all(b"hermes-guest\x63\0\0\0").await.unwrap();
    let error = Client::connect(near).await.unwrap_err();
    assert_eq!(error.to_string(), "the other side speaks version 99 of the protocol, this one 3");
}
