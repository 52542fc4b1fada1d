//! The tests that use the command as a whole, or its configuration on real files.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod approvals;
mod chat;
mod chat_commands;
mod command;
mod crash;
mod desk;
mod doctor;
mod doors;
mod edits;
mod engine;
mod exec;
mod help;
mod hostile;
mod layers;
mod local;
mod model;
mod mounts;
mod pairing;
mod places;
mod progress;
mod pull;
mod questions;
mod registry;
mod request;
mod room;
mod sessions;
mod smollm;
mod status;
mod tool;

use std::collections::BTreeMap;
use std::os::unix::fs::{MetadataExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use hermes_testkit::peers;
use serde_json::Value;

/// A home of its own, and the command run in it with nothing else in its environment.
struct Home {
    folder: tempfile::TempDir,
    /// Whose it is, if not of whoever tests.
    user: Option<User>,
}

/// The user of the rootless peer, or anybody else who is not root.
const ORDINARY: u32 = 1001;

/// An ordinary user.
struct User {
    uid: u32,
    /// Holds the program: where it was built only its builder may look.
    programs: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), user: None }
    }

    /// One of an ordinary user.
    #[expect(clippy::disallowed_methods, reason = "copies the program under test")]
    fn of_user(config: &str) -> Self {
        let programs = tempfile::tempdir().unwrap();
        // Another process does it: what another test starts meanwhile would hold our copy open, and it could not be run.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_hermes")).arg(programs.path()).status().unwrap();
        assert!(copied.success());
        chown(programs.path(), Some(ORDINARY), Some(ORDINARY)).unwrap();
        let user = Some(User { uid: ORDINARY, programs });
        let home = Self { user, ..Self::new() };
        home.write("config.yaml", config);
        home
    }

    /// Gives its user what the test has put below a directory, except for one that holds what commands made.
    fn give(&self, directory: &Path, except: &Path) {
        let Some(user) = &self.user else { return };
        let mut paths = vec![directory.to_owned()];
        while let Some(path) = paths.pop() {
            if path == except {
                continue;
            }
            // What hermes makes and removes meanwhile is the user's already.
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.uid() == 0 {
                lchown(&path, Some(user.uid), Some(user.uid)).unwrap();
            }
            if meta.is_dir() {
                paths.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
            }
        }
    }

    /// Lets a program run as its user.
    fn own(&self, command: &mut Command) {
        if let Some(user) = &self.user {
            command.uid(user.uid).gid(user.uid);
        }
    }

    fn with_config(text: &str) -> Self {
        let home = Self::new();
        home.write("config.yaml", text);
        home
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.path().join(name), text).unwrap();
    }

    fn read(&self, name: &str) -> io::Result<String> {
        fs::read_to_string(self.path().join(name))
    }

    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    fn command(&self, args: &[&str]) -> Command {
        let copied = self.user.as_ref().map(|user| user.programs.path().join("hermes"));
        let mut command = Command::new(copied.unwrap_or_else(|| env!("CARGO_BIN_EXE_hermes").into()));
        self.give(self.path(), &self.path().join("sandboxes"));
        self.own(&mut command);
        command.args(args).env_clear().env("HERMES_HOME", self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn load(&self, process: &[(&str, &str)]) -> hermes_config::LoadedConfig {
        let process = process.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        hermes_config::load(self.path(), process, BTreeMap::new())
    }
}

/// What a run of the command gave.
#[derive(Debug, PartialEq)]
struct Run {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Run {
    fn of(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8(output.stdout).unwrap(),
            err: String::from_utf8(output.stderr).unwrap(),
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

/// Where the engine with this name listens, which must be there.
fn socket(name: &str) -> PathBuf {
    peers::socket(name).unwrap()
}
