//! Start, access and exit of a guest.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_guest::client::Client;
use hermes_guest::protocol::frame::FrameStream;
use hermes_guest::protocol::handshake::{self, PROTOCOL_VERSION};
use hermes_guest::protocol::message::{GuestRequest, RunRequest, Stdin, TreeStatus};
use hermes_guest::protocol::mux::{self, MuxMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::fixture::{TIMEOUT, TestGuest, eventually, is_alive, start_guest};

#[tokio::test]
async fn a_disconnect_kills_the_foreground_and_keeps_the_background() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let background =
        s.start(RunRequest { stdin: Stdin::Stream, ..s.in_background("echo up; read x; echo $x") }).await;
    s.wait_for_output(background, "up").await;
    let foreground = s.client.run(s.command("setsid sleep 800 & echo $$ $! >pids; sleep 800")).await.unwrap();
    let pids = guest.work().join("pids");
    eventually("the command begins", async || {
        std::fs::read_to_string(&pids).is_ok_and(|text| text.ends_with('\n'))
    })
    .await;
    let pids = std::fs::read_to_string(&pids).unwrap();
    drop((foreground, s));
    eventually("the foreground is dead", async || !pids.split_whitespace().any(is_alive)).await;
    let later = guest.session().await;
    // The record is deleted shortly after the last process is gone.
    eventually("only the background is listed", async || {
        let listed = later.client.processes().await.unwrap();
        listed.iter().map(|view| view.process).eq([background])
    })
    .await;
    later.client.write_stdin(background, None, b"still there\n").await.unwrap();
    later.client.wait(background, TIMEOUT).await.unwrap();
    assert_eq!(
        later.client.read_output(background, 0, 100).await.unwrap().data.as_slice(),
        b"up\nstill there\n"
    );
}

#[tokio::test]
async fn a_dropped_handle_kills_only_its_own_command() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let one = s.client.run(s.command("echo $$ >one; sleep 800")).await.unwrap();
    let two = s.client.run(s.command("echo $$ >two; sleep 800")).await.unwrap();
    let read = |name: &str| std::fs::read_to_string(guest.work().join(name)).unwrap_or_default();
    eventually("both run", async || read("one").ends_with('\n') && read("two").ends_with('\n')).await;
    drop(one);
    eventually("one is dead", async || !is_alive(&read("one"))).await;
    assert!(is_alive(&read("two")));
    drop(two);
    eventually("nothing runs", async || s.client.stats().await.unwrap().running == 0).await;
}

#[tokio::test]
async fn a_stream_cut_anywhere_runs_a_command_at_most_once() {
    let guest = TestGuest::start().await;
    let s = guest.session().await;
    let request = GuestRequest::Run(Box::new(s.in_background("echo ran >>count")));
    // Record the bytes of a whole request on a stream that leads nowhere.
    let (near, mut far) = tokio::io::duplex(1 << 20);
    let (mux, driver, _arrivals) = mux::multiplex(near, MuxMode::Client);
    let driver = tokio::spawn(driver.run());
    FrameStream::new(mux.open_stream().await.unwrap()).writer.send(&request).await.unwrap();
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
        let mut stream = UnixStream::connect(&guest.socket).await.unwrap();
        handshake::exchange_hello(&mut stream).await.unwrap();
        stream.write_all(&wire[..cut]).await.unwrap();
        if cut == length {
            held.push(stream);
        }
    }
    let count = guest.work().join("count");
    eventually("it ran", async || {
        std::fs::read_to_string(&count).is_ok_and(|text| text.lines().count() >= held.len())
    })
    .await;
    eventually("nothing runs", async || s.client.stats().await.unwrap().running == 0).await;
    let ran = std::fs::read_to_string(&count).unwrap().lines().count();
    assert_eq!(ran, held.len());
}

/// The end of the last frame with data. The multiplexer may send a ping or an empty frame after it,
/// which is not part of the request.
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
async fn an_idle_guest_exits() {
    let guest = TestGuest::start_with(&["--idle", "1"]).await;
    let pid = guest.pid.to_string();
    let s = guest.session().await;
    let command = s.in_background("sleep 1.5; echo late; read x");
    let background = s.start(RunRequest { stdin: Stdin::Stream, ..command }).await;
    // Following the output does not count as activity, but the running process does.
    s.wait_for_output(background, "late").await;
    drop(s);
    let client = guest.client().await;
    assert_eq!(client.stats().await.unwrap().idle, Duration::ZERO);
    client.kill(background).await.unwrap();
    // Polling does not count as activity.
    eventually("the guest is gone", async || client.stats().await.is_err() && !is_alive(&pid)).await;
    let dir = guest.socket.parent().unwrap();
    assert_eq!(std::fs::read_dir(dir).unwrap().count(), 0, "the socket is gone too");
}

#[tokio::test]
async fn a_killed_guest_takes_its_processes_with_it() {
    let guest = TestGuest::start().await;
    let long = 1_000_000 + guest.pid;
    let s = guest.session().await;
    let ended = s
        .run(s.command(format!(
            "setsid bash -c 'sleep {long} & sleep {long}' & sleep 0.2; pgrep -f 'sleep {long}'"
        )))
        .await;
    assert_eq!(ended.tree, TreeStatus::Alive);
    let pids = crate::fixture::output_text(&ended);
    let pid = rustix::process::Pid::from_raw(guest.pid.cast_signed()).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    eventually("all are dead", async || !pids.split_whitespace().any(is_alive)).await;
    assert!(s.client.stats().await.is_err());
    // The next guest reuses the socket.
    start_guest(&guest.socket, &["--idle", "60"]);
    let next = guest.client().await;
    let next_pid = guest.find_pid().await;
    assert_ne!(next_pid, guest.pid);
    rustix::process::kill_process(
        rustix::process::Pid::from_raw(next_pid.cast_signed()).unwrap(),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    next.wait_closed().await;
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
async fn the_socket_is_private_and_has_one_guest() {
    let guest = TestGuest::start().await;
    let mode = std::fs::metadata(guest.socket.parent().unwrap()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
    let second = Command::new(env!("CARGO_BIN_EXE_hermes-guest"))
        .args(["serve", "--socket"])
        .arg(&guest.socket)
        .output()
        .unwrap();
    assert!(!second.status.success());
    assert!(String::from_utf8_lossy(&second.stderr).contains("already listening"), "{second:?}");
    assert!(guest.client().await.stats().await.is_ok());
}

#[tokio::test]
async fn attach_carries_the_protocol_over_pipes() {
    let guest = TestGuest::start().await;
    let mut attach = tokio::process::Command::new(env!("CARGO_BIN_EXE_hermes-guest"))
        .args(["attach", "--socket"])
        .arg(&guest.socket)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let stream = tokio::io::join(attach.stdout.take().unwrap(), attach.stdin.take().unwrap());
    let client = Client::connect(stream).await.unwrap();
    assert_eq!(client.stats().await.unwrap().clients, 1);
    drop(client);
    assert!(tokio::time::timeout(TIMEOUT, attach.wait()).await.unwrap().unwrap().success());
}

#[tokio::test]
async fn only_a_guest_of_the_same_version_is_accepted() {
    let guest = TestGuest::start().await;
    let mut stream = UnixStream::connect(&guest.socket).await.unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let mut rest = Vec::new();
    tokio::time::timeout(TIMEOUT, stream.read_to_end(&mut rest)).await.unwrap().unwrap_or_default();
    assert_eq!(&rest[..12], b"hermes-guest", "it greets, and hangs up");
    let (near, mut far) = tokio::io::duplex(64);
    far.write_all(b"hermes-guest\x63\0\0\0").await.unwrap();
    let error = Client::connect(near).await.unwrap_err();
    let expected = format!("the peer speaks version 99 of the guest protocol, not {PROTOCOL_VERSION}");
    assert_eq!(error.to_string(), expected);
}
