//! An engine that restarts while its containers are in use.

use hermes_exec::backend::docker::engine_error::EngineError;
use hermes_exec::{EndReason, Error, OutputMode, RunningCommand, StateLoss};

use crate::fixture::run_options;
use crate::private::{Disruption, Kind, Private};
use crate::remote::TcpEngine;
use crate::session::{TestEnv, WAIT_TIMEOUT, text};

/// Lets containers outlive their engine.
const LIVE_RESTORE: &[&str] = &["--live-restore"];

/// Waits for a future with a time limit.
async fn with_timeout<T>(what: &str, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(WAIT_TIMEOUT, work).await.unwrap_or_else(|_elapsed| panic!("timed out: {what}"))
}

/// How a container reacts to the restart of its engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Survival {
    /// The container ends with its engine.
    Ends,
    /// The container runs until the engine is back and ends then. Docker does this to containers
    /// that it removes automatically, even with live restore.
    EndsLater,
    /// The container keeps running.
    Lives,
}

/// Asserts that the guest killed the command and reported it, or was killed too.
async fn assert_command_ended_with_container(running: &mut RunningCommand) {
    match with_timeout("a command whose container ended", running.wait()).await {
        Ok(outcome) => {
            let seen = (outcome.code, outcome.end_reason, text(&outcome));
            assert_eq!(seen, (137, EndReason::Exited, "started\n".to_owned()));
        }
        Err(error) => assert!(matches!(error, Error::Guest(_)), "{error:?}"),
    }
}

/// Asserts that the error names the stopped engine, not only the message of the HTTP client.
fn assert_connection_refused<T: std::fmt::Debug>(refused: Result<T, Error>) {
    let is_plain = |fault: &EngineError| {
        matches!(fault, EngineError::ConnectionRefused { .. } | EngineError::SocketMissing { .. })
    };
    assert!(matches!(&refused, Err(Error::Engine(fault)) if is_plain(fault)), "{refused:?}");
}

async fn engine_restarts(kind: Kind, disruption: Disruption, survival: Survival) {
    let mut engine = Private::new(kind).await;
    let test_env = TestEnv::of(engine.peer.clone());
    let s = test_env.open("s").await;
    s.out("export A=1; cd /; echo kept >/workspace/file").await;
    let mut running =
        s.start("echo started; while sleep 0.1; do :; done", run_options(OutputMode::AtEnd)).await;
    engine.end(disruption);
    if survival == Survival::Ends {
        assert_command_ended_with_container(&mut running).await;
        // Without an engine no container can be created, and the error says so.
        assert_connection_refused(with_timeout("a command without an engine", s.sandbox.cwd()).await);
    } else {
        let seen = with_timeout("a command without an engine", s.run("echo $A $PWD")).await;
        assert_eq!((text(&seen).as_str(), seen.state_loss), ("1 /\n", StateLoss::No));
    }
    assert_connection_refused(with_timeout("a new session", test_env.try_open("other")).await);
    engine.start().await;
    let seen = with_timeout("the first command", s.run("echo [$A] $PWD; cat /workspace/file")).await;
    let (output, state_loss) = match survival {
        Survival::Ends | Survival::EndsLater => ("[] /workspace\nkept\n", StateLoss::Yes),
        Survival::Lives => ("[1] /\nkept\n", StateLoss::No),
    };
    assert_eq!((text(&seen).as_str(), seen.state_loss), (output, state_loss));
    assert_eq!(s.run("true").await.state_loss, StateLoss::No);
    match survival {
        Survival::Ends => {}
        Survival::EndsLater => assert_command_ended_with_container(&mut running).await,
        Survival::Lives => {
            running.interrupt().await.unwrap();
            let done = with_timeout("a command that ran all the time", running.wait()).await.unwrap();
            assert_eq!((text(&done).as_str(), done.end_reason), ("started\n", EndReason::Interrupted));
        }
    }
    // Another handle, as in another process, finds the same container.
    drop(s);
    assert_eq!(test_env.open("s").await.run("true").await.state_loss, StateLoss::No);
    assert_eq!(test_env.containers().await.len(), 1);
    test_env.remove_all().await;
}

/// Defines a test for each way in which an engine restarts.
macro_rules! restart_tests {
    ($($name:ident: $kind:expr, $disruption:expr => $survival:expr;)*) => {
        $(
            #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                engine_restarts($kind, $disruption, $survival).await;
            }
        )*
    };
}

restart_tests! {
    a_container_that_ends_with_docker_is_recreated: Kind::Docker(&[]), Disruption::Asked => Survival::Ends;
    a_container_that_a_killed_docker_left_is_recreated: Kind::Docker(&[]), Disruption::Killed => Survival::EndsLater;
    a_container_with_live_restore_runs_until_docker_is_back: Kind::Docker(LIVE_RESTORE), Disruption::Asked => Survival::EndsLater;
    a_container_with_live_restore_runs_until_a_killed_docker_is_back:
        Kind::Docker(LIVE_RESTORE), Disruption::Killed => Survival::EndsLater;
    a_container_of_podman_outlives_it: Kind::Podman, Disruption::Asked => Survival::Lives;
    a_container_of_a_killed_podman_outlives_it: Kind::Podman, Disruption::Killed => Survival::Lives;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_engine_may_restart() {
    for (kind, reset) in [(Kind::Docker(&[]), StateLoss::Yes), (Kind::Podman, StateLoss::No)] {
        let mut engine = Private::new(kind).await;
        let test_env = TestEnv::of(engine.peer.clone());
        let remote = TcpEngine::new(engine.peer.socket.clone()).await;
        let s = test_env.open_with("s", |docker| docker.engine = remote.address.clone()).await;
        s.out("export A=1; echo kept >/workspace/file").await;
        let mut running = s.start("while sleep 0.1; do :; done", run_options(OutputMode::AtEnd)).await;
        engine.end(Disruption::Killed);
        // The connection to the guest goes through the engine.
        let lost = with_timeout("a command without its engine", running.wait()).await;
        assert!(matches!(lost, Err(Error::Guest(_))), "{lost:?}");
        let refused = with_timeout("a command without an engine", s.sandbox.cwd()).await;
        assert!(matches!(refused, Err(Error::Engine(_))), "{refused:?}");
        engine.start().await;
        let seen = with_timeout("the first command", s.run("cat /workspace/file; echo [$A]")).await;
        let state = if reset == StateLoss::Yes { "[]" } else { "[1]" };
        assert_eq!((text(&seen), seen.state_loss), (format!("kept\n{state}\n"), reset));
        assert_eq!(test_env.containers().await.len(), 1);
        s.sandbox.remove().await.unwrap();
        assert_eq!(test_env.containers().await.len(), 0);
    }
}
