//! Guests that break the protocol or are replaced.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use hermes_exec::{Error, OutputMode, PlaceState, StateLoss};
use hermes_guest::protocol::frame::FrameStream;
use hermes_guest::protocol::handshake;
use hermes_guest::protocol::message::{GuestReply, GuestRequest};
use hermes_guest::protocol::mux::{self, MuxMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinHandle;

use crate::fixture::{Fixture, run_options};
use crate::session::{Session, WAIT_TIMEOUT, guest, is_alive, kill, socket, text};

/// An impostor that listens in place of the guest.
#[derive(Debug, Clone, Copy)]
enum Impostor {
    /// Speaks another version.
    Stranger,
    /// Sends bytes that are not a handshake.
    Noise,
    /// Hangs up.
    Deaf,
    /// Completes the handshake, then sends bytes that are not a message.
    Turncoat,
    /// Sends the same reply to every request.
    Parrot,
}

/// Replaces the guest of a session by an impostor.
fn impersonate(fixture: &Fixture, s: &Session, impostor: Impostor) -> JoinHandle<()> {
    let socket = socket(fixture, &s.plan);
    fs::remove_file(&socket).ok();
    let listener = UnixListener::bind(&socket).unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(impostor.speak(stream));
        }
    })
}

impl Impostor {
    async fn speak(self, mut stream: UnixStream) {
        let mut theirs = [0; 16];
        match self {
            Self::Stranger => {
                stream.write_all(b"hermes-guest\xff\0\0\0").await.ok();
                stream.read_exact(&mut theirs).await.ok();
            }
            Self::Noise => {
                // Wait until the client disconnects.
                while stream.write_all(&[0xa5; 4096]).await.is_ok() {}
            }
            Self::Deaf => {}
            Self::Turncoat => {
                handshake::exchange_hello(&mut stream).await.ok();
                while stream.write_all(&[0xa5; 4096]).await.is_ok() {}
            }
            Self::Parrot => {
                handshake::exchange_hello(&mut stream).await.ok();
                let (_mux, driver, mut arrivals) = mux::multiplex(stream, MuxMode::Server);
                let answer = async {
                    while let Some(stream) = arrivals.recv().await {
                        let mut frames = FrameStream::new(stream);
                        drop(frames.reader.receive::<GuestRequest>().await);
                        frames.writer.send(&GuestReply::Done).await.ok();
                        frames.writer.finish().await.ok();
                    }
                };
                tokio::select! {
                    ended = driver.run() => drop(ended),
                    () = answer => {}
                }
            }
        }
    }
}

pub(crate) async fn an_unreachable_guest_is_replaced(fixture: &Fixture) {
    for impostor in [Impostor::Stranger, Impostor::Noise, Impostor::Deaf] {
        let s = fixture.open("s").await;
        s.out("export A=1").await;
        let before = guest(fixture, &s.plan).await;
        let listening = impersonate(fixture, &s, impostor);
        drop(s);
        let opened = tokio::time::timeout(WAIT_TIMEOUT, fixture.try_open("s")).await.unwrap().unwrap();
        let outcome = opened.run("echo [$A]").await;
        assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("[]\n", StateLoss::Yes), "{impostor:?}");
        assert!(!is_alive(before), "{impostor:?}");
        listening.abort();
    }
}

pub(crate) async fn a_hanging_guest_is_listed_and_can_be_ended(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let stopped = guest(fixture, &s.plan).await;
    let named = rustix::process::Pid::from_raw(stopped).unwrap();
    rustix::process::kill_process(named, rustix::process::Signal::STOP).unwrap();
    drop(s);
    let found = tokio::time::timeout(WAIT_TIMEOUT, fixture.places().list()).await.unwrap().unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found.state, PlaceState::Unresponsive);
    tokio::time::timeout(WAIT_TIMEOUT, found.end()).await.unwrap().unwrap();
    assert!(!is_alive(stopped));
    assert_eq!(fixture.open("s").await.out("echo fine").await, "fine\n");
}

pub(crate) async fn a_guest_that_breaks_the_protocol_is_replaced(fixture: &Fixture) {
    for impostor in [Impostor::Turncoat, Impostor::Parrot] {
        let s = fixture.open("s").await;
        let before = guest(fixture, &s.plan).await;
        let listening = impersonate(fixture, &s, impostor);
        drop(s);
        let places = fixture.places();
        let found = tokio::time::timeout(WAIT_TIMEOUT, places.list()).await.unwrap().unwrap();
        assert_eq!(
            found.iter().map(|found| found.state).collect::<Vec<_>>(),
            [PlaceState::Unresponsive],
            "{impostor:?}"
        );
        let opened = tokio::time::timeout(WAIT_TIMEOUT, fixture.try_open("s")).await.unwrap();
        let outcome = opened.unwrap().run("echo fine").await;
        assert_eq!((text(&outcome).as_str(), outcome.state_loss), ("fine\n", StateLoss::Yes), "{impostor:?}");
        assert!(!is_alive(before), "{impostor:?}");
        listening.abort();
    }
}

pub(crate) async fn a_guest_killed_during_a_command_is_an_error_and_nothing_runs_twice(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let mut command =
        s.start("echo ran >>count; echo begun; sleep 1000", run_options(OutputMode::Live)).await;
    assert!(matches!(command.next_event().await.unwrap(), hermes_exec::CommandEvent::Output(_)));
    kill(guest(fixture, &s.plan).await).await;
    let ended = tokio::time::timeout(Duration::from_secs(20), command.wait()).await.unwrap();
    assert!(matches!(ended, Err(Error::Guest(_))), "{ended:?}");
    assert_eq!(s.out("cat count").await, "ran\n");
    // Hermes does not mistake text printed by a command for an error of the place.
    let outcome = s.run("echo ran >>count; echo 'Error: container is not running' >&2; exit 1").await;
    assert_eq!((outcome.code, outcome.state_loss), (1, StateLoss::No));
    assert_eq!(s.out("cat count").await, "ran\nran\n");
}

pub(crate) async fn a_run_directory_that_others_can_change_is_not_trusted(fixture: &Fixture) {
    let s = fixture.open("s").await;
    let named = guest(fixture, &s.plan).await;
    s.background("sleep 1000").await;
    let found = fixture.places().list().await.unwrap();
    let run = fixture.folder.join("run");
    fs::set_permissions(&run, PermissionsExt::from_mode(0o777)).unwrap();
    let listening = impersonate(fixture, &s, Impostor::Noise);
    let refused = |error: &Error| matches!(error, Error::File { path, .. } if path.starts_with(&run));
    let error = fixture.try_open("s").await.unwrap_err();
    assert!(refused(&error), "{error}");
    let error = fixture.places().list().await.unwrap_err();
    assert!(refused(&error), "{error}");
    let error = fixture.places().remove_stale().await.unwrap_err();
    assert!(refused(&error), "{error}");
    for found in &found {
        assert!(found.end().await.is_err() && found.processes().await.is_err());
    }
    assert!(hermes_exec::proxy::serve_while_running(&run, &s.plan.name()).await.is_err());
    assert!(!run.join(format!(".proxy-{}", s.plan.name())).exists());
    assert!(is_alive(named));
    listening.abort();
    fs::set_permissions(&run, PermissionsExt::from_mode(0o700)).unwrap();
}
