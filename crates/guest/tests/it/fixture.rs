//! A guest for tests, and shortcuts.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_guest::client::{Client, Error, RunEvent, RunHandle};
use hermes_guest::protocol::guard::{GuardSpec, GuardState, RunConfinement};
use hermes_guest::protocol::message::{
    ExitNotice, ExitReport, OpenSession, OutputDelivery, ProcessId, Program, RunMode, RunRequest,
    ShellSessionKey, StatePolicy, Stdin,
};
use serde_bytes::ByteBuf;
use tempfile::TempDir;
use tokio::net::UnixStream;

/// Long enough for anything that is not stuck, on a busy machine.
pub(crate) const TIMEOUT: Duration = Duration::from_secs(60);

/// A private guest, stopped on drop.
pub(crate) struct TestGuest {
    pub(crate) dir: TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) pid: u32,
}

impl TestGuest {
    pub(crate) async fn start() -> Self {
        Self::start_with(&["--idle", "60"]).await
    }

    pub(crate) async fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/guest.sock");
        start_guest(&socket, options);
        Self::find(dir, socket).await
    }

    /// Starts it as another user, which only root can.
    pub(crate) async fn start_as(user: u32) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // The directory of the build may be out of reach for other users.
        let program = dir.path().join("hermes-guest");
        std::fs::copy(env!("CARGO_BIN_EXE_hermes-guest"), &program).unwrap();
        std::os::unix::fs::chown(dir.path(), Some(user), Some(user)).unwrap();
        let socket = dir.path().join("run/guest.sock");
        let mut command = serve_command(&program, &socket, &["--idle", "60"]);
        run_to_start(command.uid(user).gid(user));
        Self::find(dir, socket).await
    }

    async fn find(dir: TempDir, socket: PathBuf) -> Self {
        let mut guest = Self { dir, socket, pid: 0 };
        guest.pid = guest.find_pid().await;
        guest
    }

    /// The process that listens on the socket.
    pub(crate) async fn find_pid(&self) -> u32 {
        let stream = UnixStream::connect(&self.socket).await.unwrap();
        stream.peer_cred().unwrap().pid().unwrap().unsigned_abs()
    }

    /// Opens a new connection.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(UnixStream::connect(&self.socket).await.unwrap()).await.unwrap()
    }

    /// A client with an open session `s` in its own directory.
    pub(crate) async fn session(&self) -> TestShell {
        self.named_session("s").await
    }

    pub(crate) async fn named_session(&self, key: impl AsRef<[u8]>) -> TestShell {
        self.set_up_session(key, &[], &[]).await
    }

    /// Opens a session with init files, which cannot set the protected variables.
    pub(crate) async fn set_up_session(
        &self,
        key: impl AsRef<[u8]>,
        init: &[PathBuf],
        withheld: &[&str],
    ) -> TestShell {
        let work = self.work();
        std::fs::create_dir_all(&work).unwrap();
        let client = self.client().await;
        let key = ShellSessionKey::from(key.as_ref());
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")];
        let env = env.map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value))).to_vec();
        let cwd = ByteBuf::from(work.to_str().unwrap());
        let init = init.iter().map(|file| ByteBuf::from(file.as_os_str().as_bytes())).collect();
        let withheld = withheld.iter().map(|name| ByteBuf::from(*name)).collect();
        let open = OpenSession {
            key: key.clone(),
            cwd,
            env,
            init_files: init,
            protected_env: withheld,
            guard: None,
        };
        client.open_session(open).await.unwrap();
        TestShell { client, key }
    }

    /// A session whose commands run in views unless a test says otherwise.
    pub(crate) async fn guarded_session(&self, guard: GuardSpec) -> (TestShell, GuardState) {
        let shell = self.session().await;
        let open = OpenSession {
            key: shell.key.clone(),
            cwd: ByteBuf::from(self.work().to_str().unwrap()),
            env: Vec::new(),
            init_files: Vec::new(),
            protected_env: Vec::new(),
            guard: Some(guard),
        };
        let state = shell.client.open_session(open).await.unwrap().guard;
        (shell, state)
    }

    /// The initial directory of sessions.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }
}

impl Drop for TestGuest {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.cast_signed()) {
            // A test may have stopped it already.
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }
}

/// Starts a guest; returns when it accepts connections.
pub(crate) fn start_guest(socket: &Path, options: &[&str]) {
    run_to_start(&mut serve_command(Path::new(env!("CARGO_BIN_EXE_hermes-guest")), socket, options));
}

#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
fn serve_command(program: &Path, socket: &Path, options: &[&str]) -> Command {
    let mut command = Command::new(program);
    command
        .args(["serve", "--socket"])
        .arg(socket)
        .args(options)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("A_SECRET_OF_THE_STARTER", "hunter2")
        .stdin(Stdio::null());
    command
}

fn run_to_start(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A session and its client.
pub(crate) struct TestShell {
    pub(crate) client: Client,
    pub(crate) key: ShellSessionKey,
}

impl TestShell {
    /// A foreground command with summary output.
    pub(crate) fn command(&self, text: impl AsRef<[u8]>) -> RunRequest {
        RunRequest {
            session: self.key.clone(),
            program: Program::Shell(ByteBuf::from(text.as_ref())),
            workdir: hermes_guest::protocol::message::WorkingDir::Session,
            judged_shell: None,
            env: Vec::new(),
            stdin: Stdin::Null,
            terminal: None,
            deadline: None,
            mode: RunMode::Foreground { output: OutputDelivery::Summary, state: StatePolicy::Apply },
            memory_bytes: 64 * 1024,
            spool_bytes: 64 * 1024 * 1024,
            confinement: RunConfinement::None,
        }
    }

    /// Runs a program until it exits.
    pub(crate) async fn run(&self, run: RunRequest) -> ExitReport {
        let mut running = self.client.run(run).await.unwrap();
        tokio::time::timeout(TIMEOUT, wait_for_exit(&mut running))
            .await
            .expect("the command is stuck")
            .unwrap()
    }

    /// Runs a command; returns exit code and output.
    pub(crate) async fn sh(&self, text: impl AsRef<[u8]>) -> (i32, String) {
        let ended = self.run(self.command(text)).await;
        (ended.code, output_text(&ended))
    }

    /// Runs a command that must succeed; returns its output.
    pub(crate) async fn out(&self, text: impl AsRef<[u8]>) -> String {
        let (code, output) = self.sh(text).await;
        assert_eq!(code, 0, "{output}");
        output
    }

    /// A command that is killed at a deadline.
    pub(crate) fn killed_after(&self, text: &str, after: Duration) -> RunRequest {
        RunRequest { deadline: Some(after), ..self.command(text) }
    }

    /// A background command with an exit notice.
    pub(crate) fn in_background(&self, text: &str) -> RunRequest {
        let mode = RunMode::Background {
            label: ByteBuf::from("test"),
            watch_patterns: Vec::new(),
            exit_notice: ExitNotice::Notify,
        };
        RunRequest { mode, ..self.command(text) }
    }

    pub(crate) async fn start(&self, run: RunRequest) -> ProcessId {
        self.client.run(run).await.unwrap().id().unwrap()
    }

    /// Waits until a process has written this text.
    pub(crate) async fn wait_for_output(&self, id: ProcessId, wanted: &str) -> String {
        let mut followed = self.client.follow_output(id, 0).await.unwrap();
        let mut all = Vec::new();
        let found = async {
            while !String::from_utf8_lossy(&all).contains(wanted) {
                all.extend_from_slice(&followed.next_page().await.unwrap().expect("it ended").data);
            }
        };
        tokio::time::timeout(TIMEOUT, found).await.expect("the output did not come");
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Beginning and end of the output, as text.
pub(crate) fn output_text(ended: &ExitReport) -> String {
    String::from_utf8_lossy(&[ended.head.as_slice(), ended.tail.as_slice()].concat()).into_owned()
}

/// Whether a process exists and is not a zombie.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}

/// Waits until a condition holds.
pub(crate) async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let wait = async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(TIMEOUT, wait).await.unwrap_or_else(|_| panic!("never: {what}"));
}

/// Skips output until the program exits.
pub(crate) async fn wait_for_exit(running: &mut RunHandle) -> Result<ExitReport, Error> {
    loop {
        if let RunEvent::Exited(ended) = running.next_event().await? {
            return Ok(*ended);
        }
    }
}
