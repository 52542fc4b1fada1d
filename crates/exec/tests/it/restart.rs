//! An engine that ends and begins again while its containers are in use.

use hermes_exec::backend::docker::engine_error::EngineError;
use hermes_exec::{EndReason, Error, OutputMode, RunningCommand, StateLoss};

use crate::bed::wish;
use crate::far::Far;
use crate::private::{Blow, Kind, Private};
use crate::session::{Ground, PATIENCE, text};

/// With this containers outlive their engine.
const LIVE_RESTORE: &[&str] = &["--live-restore"];

/// Something that must not take forever.
async fn soon<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_elapsed| panic!("no end of it: {what}"))
}

/// What becomes of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It ends with its engine.
    Ends,
    /// It goes on until the engine is back, and ends then. Docker ends so whatever it is to remove by itself, also
    /// where it lets others live.
    EndsLater,
    /// It goes on.
    Lives,
}

/// A command whose container is ended: its guest kills it and says so, or is killed itself.
async fn ends_with_all_in_there(running: &mut RunningCommand) {
    match soon("a command whose container ended", running.wait()).await {
        Ok(outcome) => {
            let seen = (outcome.code, outcome.end_reason, text(&outcome));
            assert_eq!(seen, (137, EndReason::Exited, "begun\n".to_owned()));
        }
        Err(error) => assert!(matches!(error, Error::Guest(_)), "{error:?}"),
    }
}

/// That an engine is not there is told as such, and not in the words of whoever was talking to it.
fn says_that_nobody_answers<T: std::fmt::Debug>(refused: Result<T, Error>) {
    let is_plain = |fault: &EngineError| {
        matches!(fault, EngineError::ConnectionRefused { .. } | EngineError::SocketMissing { .. })
    };
    assert!(matches!(&refused, Err(Error::Engine(fault)) if is_plain(fault)), "{refused:?}");
}

async fn an_engine_begins_again(kind: Kind, blow: Blow, fate: Fate) {
    let mut engine = Private::new(kind).await;
    let ground = Ground::of(engine.peer.clone());
    let s = ground.open("s").await;
    s.out("export A=1; cd /; echo kept >/workspace/file").await;
    let mut running = s.start("echo begun; while sleep 0.1; do :; done", wish(OutputMode::AtEnd)).await;
    engine.end(blow);
    if fate == Fate::Ends {
        ends_with_all_in_there(&mut running).await;
        // Nobody is there who could make another one, and that is what is said.
        says_that_nobody_answers(soon("a command without an engine", s.sandbox.cwd()).await);
    } else {
        let seen = soon("a command without an engine", s.run("echo $A $PWD")).await;
        assert_eq!((text(&seen).as_str(), seen.state_loss), ("1 /\n", StateLoss::No));
    }
    says_that_nobody_answers(soon("a new session", ground.try_open("other")).await);
    engine.start().await;
    let seen = soon("the first command", s.run("echo [$A] $PWD; cat /workspace/file")).await;
    let (said, reset) = match fate {
        Fate::Ends | Fate::EndsLater => ("[] /workspace\nkept\n", StateLoss::Yes),
        Fate::Lives => ("[1] /\nkept\n", StateLoss::No),
    };
    assert_eq!((text(&seen).as_str(), seen.state_loss), (said, reset));
    assert_eq!(s.run("true").await.state_loss, StateLoss::No);
    match fate {
        Fate::Ends => {}
        Fate::EndsLater => ends_with_all_in_there(&mut running).await,
        Fate::Lives => {
            running.interrupt().await.unwrap();
            let done = soon("what ran all the time", running.wait()).await.unwrap();
            assert_eq!((text(&done).as_str(), done.end_reason), ("begun\n", EndReason::Interrupted));
        }
    }
    // Another handle, as of the next process, finds the one there is.
    drop(s);
    assert_eq!(ground.open("s").await.run("true").await.state_loss, StateLoss::No);
    assert_eq!(ground.containers().await.len(), 1);
    ground.leave().await;
}

/// Each way in which an engine begins again.
macro_rules! ways {
    ($($name:ident: $kind:expr, $blow:expr => $fate:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                an_engine_begins_again($kind, $blow, $fate).await;
            }
        )*
    };
}

ways! {
    what_docker_ends_with_itself_is_made_again: Kind::Docker(&[]), Blow::Asked => Fate::Ends;
    what_a_killed_docker_left_running_is_made_again: Kind::Docker(&[]), Blow::Killed => Fate::EndsLater;
    what_docker_lets_live_goes_on_until_it_is_back: Kind::Docker(LIVE_RESTORE), Blow::Asked => Fate::EndsLater;
    what_a_killed_docker_lets_live_goes_on_until_it_is_back:
        Kind::Docker(LIVE_RESTORE), Blow::Killed => Fate::EndsLater;
    what_podman_made_goes_on_without_it: Kind::Podman, Blow::Asked => Fate::Lives;
    what_a_killed_podman_made_goes_on_without_it: Kind::Podman, Blow::Killed => Fate::Lives;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_on_another_machine_may_begin_again_too() {
    for (kind, reset) in [(Kind::Docker(&[]), StateLoss::Yes), (Kind::Podman, StateLoss::No)] {
        let mut engine = Private::new(kind).await;
        let ground = Ground::of(engine.peer.clone());
        let far = Far::new(engine.peer.socket.clone()).await;
        let s = ground.open_with("s", |docker| docker.engine = far.address.clone()).await;
        s.out("export A=1; echo kept >/workspace/file").await;
        let mut running = s.start("while sleep 0.1; do :; done", wish(OutputMode::AtEnd)).await;
        engine.end(Blow::Killed);
        // All that is said goes through the engine.
        let lost = soon("a command without its engine", running.wait()).await;
        assert!(matches!(lost, Err(Error::Guest(_))), "{lost:?}");
        let refused = soon("a command without an engine", s.sandbox.cwd()).await;
        assert!(matches!(refused, Err(Error::Engine(_))), "{refused:?}");
        engine.start().await;
        let seen = soon("the first command", s.run("cat /workspace/file; echo [$A]")).await;
        let state = if reset == StateLoss::Yes { "[]" } else { "[1]" };
        assert_eq!((text(&seen), seen.state_loss), (format!("kept\n{state}\n"), reset));
        assert_eq!(ground.containers().await.len(), 1);
        s.sandbox.remove().await.unwrap();
        assert_eq!(ground.containers().await.len(), 0);
    }
}
