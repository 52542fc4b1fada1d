//! A home with a scripted model, a working directory and a terminal.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hermes_testkit::model::ModelScript;
use hermes_testkit::{ReplyItem, ScriptStep, ScriptedModel};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};

use crate::{Home, Run};

/// Limit after which a test gives up; nothing is asserted about it.
const TEST_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct ChatEnv {
    pub(crate) home: Home,
    pub(crate) model: ScriptedModel,
    work: tempfile::TempDir,
    /// The owner's home directory.
    owner: tempfile::TempDir,
}

impl ChatEnv {
    pub(crate) fn new(steps: impl IntoIterator<Item = ScriptStep>) -> Self {
        Self::with(ModelScript { steps: steps.into_iter().collect(), ..ModelScript::default() }, "")
    }

    /// Starts with these settings in addition to the model.
    pub(crate) fn with(script: ModelScript, config: &str) -> Self {
        let model = ScriptedModel::start_script(script).unwrap();
        let url = model.url();
        let config = format!("model:\n  default: scripted\n  provider: custom\n  base_url: {url}\n{config}");
        let work = tempfile::tempdir().unwrap();
        let owner = tempfile::tempdir().unwrap();
        let env = Self { home: Home::with_config(&config), model, work, owner };
        fs::create_dir_all(env.home.path().join("run")).unwrap();
        env
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Creates a private file of the owner.
    pub(crate) fn create_private_file(&self) {
        let file = self.owner.path().join("private");
        fs::write(&file, "dear").unwrap();
        fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
    }

    /// Whether the private file still has its mode.
    pub(crate) fn is_private(&self) -> bool {
        fs::metadata(self.owner.path().join("private")).unwrap().permissions().mode() & 0o777 == 0o600
    }

    /// The program with the variables that a shell needs and a separate runtime directory.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        self.set_environment(&mut command);
        command
    }

    fn set_environment(&self, command: &mut Command) {
        command
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            .env("HOME", self.owner.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("TERMINAL_LIFETIME_SECONDS", "5")
            .current_dir(self.work.path());
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Runs the program with this standard input.
    pub(crate) fn run_with_input(&self, args: &[&str], input: &str) -> Run {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        Run::of(child.wait_with_output().unwrap())
    }

    /// Starts the program in a new terminal.
    pub(crate) fn open_terminal(&self, term: &str, args: &[&str]) -> Terminal {
        Terminal::new(self, term, args, &[])
    }

    /// Starts the program in a new terminal with an additional environment variable.
    pub(crate) fn open_terminal_with(&self, term: &str, args: &[&str], variable: (&str, &str)) -> Terminal {
        Terminal::new(self, term, args, &[variable])
    }

    /// Creates a named pipe. Opening one end blocks until the other end is open.
    pub(crate) fn create_pipe(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &path, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        path
    }

    /// The ids of the pending questions.
    pub(crate) fn questions(&self) -> Vec<String> {
        let listed = self.run(&["approvals", "ls", "--json"]).json();
        let ids = listed["questions"].as_array().unwrap().iter();
        ids.map(|question| question["id"].as_str().unwrap().to_owned()).collect()
    }

    /// Waits for a pending question and returns its id.
    pub(crate) fn wait_for_question(&self) -> String {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            match self.questions().as_slice() {
                [] => assert!(Instant::now() < deadline, "no pending question"),
                [one] => return one.clone(),
                several => panic!("{several:?}"),
            }
        }
    }

    /// The bodies of all requests to the model.
    pub(crate) fn requests(&self) -> Vec<Value> {
        let received = self.model.received();
        received.into_iter().filter(|one| one.line.starts_with("POST")).map(|one| one.json).collect()
    }

    /// The last message of the last request to the model.
    pub(crate) fn last_message(&self) -> String {
        let requests = self.requests();
        let messages = requests.last().unwrap()["messages"].as_array().unwrap().clone();
        messages.last().unwrap()["content"].as_str().unwrap().to_owned()
    }

    /// Asserts that every request matched the script and that no step is left.
    pub(crate) fn assert_no_violations(&self) {
        assert_eq!(self.model.failures(), [""; 0]);
        assert_eq!(self.model.steps_left(), 0, "steps that were not requested");
    }
}

/// A dangerous command that records each run.
pub(crate) const DANGER: &str = "chmod -R 777 ~/private && echo ran >> log";

/// A call of the terminal tool.
pub(crate) fn terminal_call(id: &str, command: &str) -> ScriptStep {
    ScriptStep::call(id, "terminal", json!({"command": command}))
}

/// A call of the terminal tool as a part of a reply.
pub(crate) fn command_call(id: &str, command: &str) -> ReplyItem {
    ReplyItem::Call { id: id.to_owned(), name: "terminal".to_owned(), arguments: json!({"command": command}) }
}

pub(crate) fn send_signal(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).unwrap();
}

/// Opens a pipe for writing, which blocks until it has a reader.
pub(crate) fn open_pipe(pipe: &Path) -> File {
    OpenOptions::new().write(true).open(pipe).unwrap()
}

/// A terminal that runs the program.
pub(crate) struct Terminal {
    pub(crate) child: Child,
    input: File,
    slave: File,
    seen: Arc<(Mutex<String>, Condvar)>,
    /// The end of the last match in `seen`.
    position: usize,
}

impl Terminal {
    fn new(env: &ChatEnv, term: &str, args: &[&str], variables: &[(&str, &str)]) -> Self {
        let master: OwnedFd = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&master).unwrap();
        unlockpt(&master).unwrap();
        let name = ptsname(&master, Vec::new()).unwrap();
        let slave = OpenOptions::new().read(true).write(true).open(name.to_str().unwrap()).unwrap();
        let size = rustix::termios::Winsize { ws_row: 40, ws_col: 200, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&slave, size).unwrap();
        // `setsid -c` makes it the controlling terminal and executes the program.
        #[expect(clippy::disallowed_methods, reason = "the program under test")]
        let mut command = Command::new("setsid");
        command.arg("-c").arg(env!("CARGO_BIN_EXE_hermes")).args(args).env_clear();
        command.env("HERMES_HOME", env.home.path()).env("TERM", term);
        env.set_environment(&mut command);
        command
            .envs(variables.iter().copied())
            .stdin(slave.try_clone().unwrap())
            .stdout(slave.try_clone().unwrap())
            .stderr(slave.try_clone().unwrap());
        let child = command.spawn().unwrap();
        let input = File::from(master);
        let seen = Arc::new((Mutex::new(String::new()), Condvar::new()));
        let (mut screen, shared) = (input.try_clone().unwrap(), Arc::clone(&seen));
        std::thread::spawn(move || {
            let mut buffer = [0; 4096];
            while let Ok(count @ 1..) = screen.read(&mut buffer) {
                let text = String::from_utf8_lossy(&buffer[..count]).into_owned();
                // The line editor queries the cursor position.
                for _ in text.matches("\u{1b}[6n") {
                    screen.write_all(b"\x1b[1;1R").ok();
                }
                shared.0.lock().unwrap().push_str(&text);
                shared.1.notify_all();
            }
        });
        Self { child, input, slave, seen, position: 0 }
    }

    pub(crate) fn type_keys(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits for this text after the previous match.
    pub(crate) fn wait_for(&mut self, text: &str) {
        let mut seen = self.seen.0.lock().unwrap();
        loop {
            let new = seen.get(self.position..).unwrap();
            if let Some(at) = new.find(text) {
                self.position += at + text.len();
                return;
            }
            let (next, timeout) = self.seen.1.wait_timeout(seen, TEST_TIMEOUT).unwrap();
            seen = next;
            assert!(!timeout.timed_out(), "{text:?} is not in {:?}", seen.get(self.position..));
        }
    }

    /// The local modes of the terminal, such as echo and line editing.
    pub(crate) fn modes(&self) -> rustix::termios::LocalModes {
        rustix::termios::tcgetattr(&self.input).unwrap().local_modes
    }

    /// Input that was typed but not read.
    pub(crate) fn unread(&self) -> String {
        let mut text = vec![0; 4096];
        let count = rustix::io::read(&self.slave, &mut text).unwrap();
        String::from_utf8_lossy(&text[..count]).into_owned()
    }

    /// The whole output so far.
    pub(crate) fn output(&self) -> String {
        self.seen.0.lock().unwrap().clone()
    }

    /// Waits for the program to exit.
    pub(crate) fn wait_for_exit(&mut self) -> ExitStatus {
        let deadline = Instant::now() + TEST_TIMEOUT;
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "it does not end: {:?}", self.output());
            std::thread::yield_now();
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}
