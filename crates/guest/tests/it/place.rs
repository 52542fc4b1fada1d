//! A guest for a test, and short ways to say what tests say often.

use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hermes_guest::client::{Client, Event};
use hermes_guest::protocol::message::{
    AtDeadline, AtEnd, Deadline, Delivery, Ended, Mode, OpenSession, ProcessId, Program, Run, SessionKey,
    StateRule, Stdin,
};
use serde_bytes::ByteBuf;
use tempfile::TempDir;
use tokio::net::UnixStream;

/// Long enough for anything that is not stuck, on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A guest of its own, which is gone when this is dropped.
pub(crate) struct Place {
    pub(crate) dir: TempDir,
    pub(crate) socket: PathBuf,
    pub(crate) pid: u32,
}

impl Place {
    pub(crate) async fn start() -> Self {
        Self::start_with(&["--idle", "60"]).await
    }

    pub(crate) async fn start_with(options: &[&str]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("run/guest.sock");
        serve(&socket, options);
        let mut place = Self { dir, socket, pid: 0 };
        place.pid = place.client().await.about().await.unwrap().pid;
        place
    }

    /// A connection of its own.
    pub(crate) async fn client(&self) -> Client {
        Client::connect(UnixStream::connect(&self.socket).await.unwrap()).await.unwrap()
    }

    /// A client with an open session named `s` in a directory of its own.
    pub(crate) async fn session(&self) -> Shell {
        self.named_session("s").await
    }

    pub(crate) async fn named_session(&self, key: impl AsRef<[u8]>) -> Shell {
        self.set_up_session(key, &[], &[]).await
    }

    /// A session that files set up, which cannot set some variables.
    pub(crate) async fn set_up_session(
        &self,
        key: impl AsRef<[u8]>,
        init: &[PathBuf],
        withheld: &[&str],
    ) -> Shell {
        let work = self.work();
        std::fs::create_dir_all(&work).unwrap();
        let client = self.client().await;
        let key = SessionKey::from(key.as_ref());
        let env = [("PATH", "/usr/local/bin:/usr/bin:/bin"), ("HOME", "/root"), ("LANG", "C.UTF-8")];
        let env = env.map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value))).to_vec();
        let cwd = ByteBuf::from(work.to_str().unwrap());
        let init = init.iter().map(|file| ByteBuf::from(file.as_os_str().as_bytes())).collect();
        let withheld = withheld.iter().map(|name| ByteBuf::from(*name)).collect();
        let open = OpenSession { key: key.clone(), cwd, env, init, withheld };
        client.open_session(open).await.unwrap();
        Shell { client, key }
    }

    /// Where sessions begin.
    pub(crate) fn work(&self) -> PathBuf {
        self.dir.path().canonicalize().unwrap().join("work")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.pid.cast_signed()) {
            // A test may have ended it already.
            rustix::process::kill_process(pid, rustix::process::Signal::TERM).ok();
        }
    }
}

/// Starts a guest; it can be reached when this returns.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
pub(crate) fn serve(socket: &Path, options: &[&str]) {
    let done = Command::new(env!("CARGO_BIN_EXE_hermes-guest"))
        .args(["serve", "--socket"])
        .arg(socket)
        .args(options)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("A_SECRET_OF_THE_STARTER", "hunter2")
        .stdin(Stdio::null())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}

/// A session and the client it is used by.
pub(crate) struct Shell {
    pub(crate) client: Client,
    pub(crate) key: SessionKey,
}

impl Shell {
    /// A foreground command with a summary of its output.
    pub(crate) fn command(&self, text: impl AsRef<[u8]>) -> Run {
        Run {
            session: self.key.clone(),
            program: Program::Shell(ByteBuf::from(text.as_ref())),
            workdir: hermes_guest::protocol::message::Workdir::Session,
            env: Vec::new(),
            stdin: Stdin::Null,
            terminal: None,
            deadline: None,
            mode: Mode::Foreground { output: Delivery::Summary, state: StateRule::Keep },
            keep: 64 * 1024,
            spool: 64 * 1024 * 1024,
        }
    }

    /// Runs something to its end.
    pub(crate) async fn run(&self, run: Run) -> Ended {
        let mut running = self.client.run(run).await.unwrap();
        match tokio::time::timeout(PATIENCE, running.end()).await.expect("the command is stuck").unwrap() {
            Event::Ended(ended) => *ended,
            other => panic!("{other:?}"),
        }
    }

    /// Exit code and output of a command.
    pub(crate) async fn sh(&self, text: impl AsRef<[u8]>) -> (i32, String) {
        let ended = self.run(self.command(text)).await;
        (ended.code, text_of(&ended))
    }

    /// The output of a command that works.
    pub(crate) async fn out(&self, text: impl AsRef<[u8]>) -> String {
        let (code, output) = self.sh(text).await;
        assert_eq!(code, 0, "{output}");
        output
    }

    /// A command with a deadline at which it is killed.
    pub(crate) fn killed_after(&self, text: &str, after: Duration) -> Run {
        Run { deadline: Some(Deadline { after, then: AtDeadline::Kill }), ..self.command(text) }
    }

    /// A background command that says when it ends.
    pub(crate) fn in_background(&self, text: &str) -> Run {
        let mode =
            Mode::Background { label: ByteBuf::from("test"), watch: Vec::new(), at_end: AtEnd::Notify };
        Run { mode, ..self.command(text) }
    }

    pub(crate) async fn start(&self, run: Run) -> ProcessId {
        self.client.run(run).await.unwrap().id().unwrap()
    }

    /// Waits until a process has written this.
    pub(crate) async fn wait_for_output(&self, id: ProcessId, wanted: &str) -> String {
        let mut followed = self.client.follow(id, 0).await.unwrap();
        let mut all = Vec::new();
        let found = async {
            while !String::from_utf8_lossy(&all).contains(wanted) {
                all.extend_from_slice(&followed.next().await.unwrap().expect("it ended").data);
            }
        };
        tokio::time::timeout(PATIENCE, found).await.expect("the output did not come");
        String::from_utf8_lossy(&all).into_owned()
    }
}

/// Beginning and end of an output, as text.
pub(crate) fn text_of(ended: &Ended) -> String {
    String::from_utf8_lossy(&[ended.head.as_slice(), ended.tail.as_slice()].concat()).into_owned()
}

/// Whether a process is there and not merely unburied.
pub(crate) fn lives(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with(['Z', 'X']))
}
