//! Test environments that check that nothing is left behind, and sessions in them.

use std::fs;
use std::ops::Deref;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Program, Stdio};
use std::time::Duration;

use hermes_exec::{
    EndReason, Error, ExitNotice, OpenPlace, Outcome, OutputMode, Places, ProcessId, Processes,
    ResolvedPlace, RunOptions, RunningCommand,
};
use hermes_policy::Permit;
use hermes_types::{BackendName, Job, Work};
use tokio::net::UnixStream;

use crate::fixture::{Fixture, Peer, permit_for, run_options};
use crate::rootless;

/// Limit after which a test gives up.
pub(crate) const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// The environment of one test.
#[derive(Debug)]
pub(crate) struct TestEnv {
    fixture: Fixture,
    /// Removed on drop.
    _folder: tempfile::TempDir,
}

impl Deref for TestEnv {
    type Target = Fixture;

    fn deref(&self) -> &Fixture {
        &self.fixture
    }
}

impl TestEnv {
    pub(crate) fn new(backend: BackendName) -> Self {
        Self::with(backend, None)
    }

    /// An environment for containers of an engine.
    pub(crate) fn of(peer: Peer) -> Self {
        Self::with(BackendName::Docker, Some(peer))
    }

    fn with(backend: BackendName, peer: Option<Peer>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("work")).unwrap();
        let owner = fs::metadata(folder.path()).unwrap().uid();
        let (cache, helper) = match rootless::copies_dir() {
            Some(copies) => (copies.join("guest"), copies.join(rootless::HELPER_NAME)),
            None => (
                Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("guest-{owner}")),
                env!("CARGO_BIN_EXE_exec-jailer").into(),
            ),
        };
        let fixture = Fixture {
            backend,
            peer,
            folder: folder.path().to_owned(),
            cache,
            helper,
            owner: folder.path().join("owner"),
            lifetime: Duration::from_secs(60),
        };
        Self { fixture, _folder: folder }
    }

    /// The same with places that end after one idle second.
    pub(crate) fn short_lived(&self) -> Fixture {
        Fixture { lifetime: Duration::from_secs(1), ..self.fixture.clone() }
    }

    /// Ends all places and asserts that nothing is left of them.
    pub(crate) async fn remove_all(self) {
        let places = self.places();
        let failed = places.end_all(places.list().await.unwrap()).await;
        assert!(failed.is_empty(), "{failed:?}");
        self.assert_nothing_left().await;
    }

    /// Waits until no place directory, process or mount is left.
    pub(crate) async fn assert_nothing_left(&self) {
        let dirs = || -> Vec<String> {
            let list = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
            let storages = list(self.folder.join("hermes/cache/places")).flat_map(|entry| list(entry.path()));
            let names = list(self.folder.join("run")).chain(storages);
            names.map(|entry| entry.file_name().into_string().unwrap()).collect()
        };
        // The directory of a container that an engine may still be creating stays for a while.
        let swept = async {
            self.places().remove_stale().await.unwrap();
            while !dirs().is_empty() {
                tokio::time::sleep(Duration::from_millis(200)).await;
                self.places().remove_stale().await.unwrap();
            }
        };
        assert!(
            tokio::time::timeout(WAIT_TIMEOUT, swept).await.is_ok(),
            "directories are left: {:?}",
            dirs()
        );
        until("all processes are gone", || self.running().is_empty()).await;
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        assert!(!mounts.contains(&self.folder.display().to_string()), "{mounts}");
        assert_eq!(self.containers().await, Vec::<String>::new());
    }

    /// The names of all containers of these places.
    pub(crate) async fn containers(&self) -> Vec<String> {
        match &self.peer {
            Some(peer) => peer.containers(&self.host().install_id).await,
            None => Vec::new(),
        }
    }

    /// All processes of this machine that belong to these places.
    pub(crate) fn running(&self) -> Vec<i32> {
        let folder = self.folder.display().to_string();
        let belongs = |pid: &i32| {
            let at = |name: &str| PathBuf::from(format!("/proc/{pid}/{name}"));
            let is_below = |link: PathBuf| fs::read_link(link).is_ok_and(|to| to.starts_with(&self.folder));
            let contains_folder = |file: PathBuf| {
                fs::read(file).is_ok_and(|text| String::from_utf8_lossy(&text).contains(&folder))
            };
            is_below(at("cwd"))
                || is_below(at("exe"))
                || contains_folder(at("cmdline"))
                || contains_folder(at("mountinfo"))
        };
        let all = fs::read_dir("/proc").unwrap().flatten();
        all.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(belongs).collect()
    }
}

impl Fixture {
    pub(crate) async fn open(&self, key: &str) -> Session {
        self.try_open(key).await.unwrap()
    }

    pub(crate) async fn try_open(&self, key: &str) -> Result<Session, Error> {
        let plan = self.plan(key);
        Ok(Session { sandbox: plan.open().await?, plan, key: key.to_owned() })
    }

    pub(crate) fn places(&self) -> Places {
        Places {
            run_dir: self.folder.join("run"),
            kept_dirs: vec![self.persistent_dir().join(self.backend.as_str())],
        }
    }

    /// The path of the guest's socket inside a confined place.
    pub(crate) fn inside(&self) -> &'static str {
        if self.peer.is_some() { "/.hermes/run" } else { "/sandbox/run" }
    }

    /// Starts another hermes that opens a place and runs these steps in it.
    #[expect(clippy::disallowed_methods, reason = "tests kill this process")]
    pub(crate) fn another_hermes(&self, session: &str, steps: &[(&str, &str)]) -> Child {
        let mut program = Program::new(&self.helper);
        program.arg(self.backend.as_str()).arg(&self.folder);
        match &self.peer {
            Some(peer) => program.arg(&peer.socket).arg(&peer.image).arg(peer.options.join("\n")),
            None => program.args(["", "", ""]),
        };
        program.arg(&self.cache);
        program.arg(self.lifetime.as_millis().to_string()).arg(session);
        program.args(steps.iter().flat_map(|(verb, text)| [verb, text]));
        program.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap()
    }
}

/// A permit for work in a session that is as new.
pub(crate) fn permit(plan: &ResolvedPlace, session: &str, work: Work, cwd: &str) -> Permit {
    permit_for(plan, session, Job::new(work, cwd))
}

/// A session and its place.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) plan: ResolvedPlace,
    pub(crate) sandbox: OpenPlace,
    pub(crate) key: String,
}

impl Session {
    pub(crate) async fn permit(&self, command: &str) -> Permit {
        let job = self.sandbox.job(Work::Shell(command.to_owned())).await.unwrap();
        permit_for(&self.plan, &self.key, job)
    }

    /// A permit for a command in another directory.
    pub(crate) async fn permit_in(&self, cwd: &str, command: &str) -> Permit {
        let job = self.sandbox.job(Work::Shell(command.to_owned())).await.unwrap();
        permit_for(&self.plan, &self.key, Job { cwd: cwd.to_owned(), ..job })
    }

    pub(crate) async fn start(&self, command: &str, run_options: RunOptions) -> RunningCommand {
        self.sandbox.start_command(self.permit(command).await, run_options).await.unwrap()
    }

    pub(crate) async fn end(&self, command: &str, run_options: RunOptions) -> Outcome {
        self.start(command, run_options).await.wait().await.unwrap()
    }

    pub(crate) async fn run(&self, command: &str) -> Outcome {
        self.end(command, run_options(OutputMode::AtEnd)).await
    }

    /// The output of a command that must succeed.
    pub(crate) async fn out(&self, command: &str) -> String {
        let outcome = self.run(command).await;
        assert_eq!(
            (outcome.code, outcome.end_reason),
            (0, EndReason::Exited),
            "{command}: {}",
            text(&outcome)
        );
        text(&outcome)
    }

    pub(crate) async fn background(&self, command: &str) -> ProcessId {
        self.background_as(command, run_options(quiet())).await
    }

    pub(crate) async fn background_as(&self, command: &str, run_options: RunOptions) -> ProcessId {
        let outcome = self.end(command, run_options).await;
        let EndReason::Background(id) = outcome.end_reason else { panic!("{outcome:?}") };
        id
    }

    pub(crate) async fn processes(&self) -> Processes {
        self.sandbox.processes().await.unwrap()
    }

    /// Returns those of these pids, as seen in the place, whose process is alive.
    pub(crate) async fn alive(&self, pids: &str) -> String {
        let pids = pids.split_whitespace().collect::<Vec<_>>().join(" ");
        // A zombie can still be signaled.
        self.out(&format!(
            "for pid in {pids}; do \
               if read -r stat 2>/dev/null </proc/$pid/stat; then stat=${{stat##*) }}; \
                 [ \"${{stat%% *}}\" = Z ] || echo $pid; fi; done"
        ))
        .await
    }
}

/// A background process without notices.
pub(crate) fn quiet() -> OutputMode {
    OutputMode::Background { label: String::new(), watch: Vec::new(), at_end: ExitNotice::Quiet }
}

pub(crate) fn text(outcome: &Outcome) -> String {
    String::from_utf8_lossy(&outcome.output).into_owned()
}

/// Waits for a condition that must become true.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let wait = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    assert!(tokio::time::timeout(WAIT_TIMEOUT, wait).await.is_ok(), "not so after {WAIT_TIMEOUT:?}: {what}");
}

/// The socket of the guest of a session.
pub(crate) fn socket(fixture: &Fixture, plan: &ResolvedPlace) -> PathBuf {
    fixture.folder.join("run").join(plan.name()).join("guest/sock")
}

/// The pid of the guest of a session on this machine.
pub(crate) async fn guest(fixture: &Fixture, plan: &ResolvedPlace) -> i32 {
    let stream = UnixStream::connect(socket(fixture, plan)).await.unwrap();
    stream.peer_cred().unwrap().pid().unwrap()
}

/// Kills a process and waits until it is dead.
pub(crate) async fn kill(pid: i32) {
    let named = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(named, rustix::process::Signal::KILL).unwrap();
    until("the process is dead", || !is_alive(pid)).await;
}

/// Whether a process of this machine is alive.
pub(crate) fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit_once(')').unwrap().1.starts_with(" Z"))
}
