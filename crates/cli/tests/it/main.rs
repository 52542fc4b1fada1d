//! Tests of the `hermes` command.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod approvals;
mod chat;
mod chat_commands;
mod chat_env;
mod command;
mod crash;
mod doctor;
mod engine;
mod entry_points;
mod env;
mod exec;
mod gateway;
mod help;
mod hermes_verbs;
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
mod self_use;
mod session_state;
mod sessions;
mod smart;
mod smollm;
mod status;
mod tool;

use std::os::unix::fs::{MetadataExt, chown, lchown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use hermes_testkit::peers;
use serde_json::Value;

/// A hermes home and the command, whose environment contains only this home.
struct Home {
    folder: tempfile::TempDir,
    /// The owner, if not the user who runs the test.
    user: Option<User>,
}

/// The user id of the rootless peers, which `cargo xtask peers up` creates and reports.
fn ordinary_uid() -> u32 {
    peers::user().unwrap()
}

/// An unprivileged user with a copy of the program.
struct User {
    uid: u32,
    /// Contains a copy of the program, because the build directory may be inaccessible.
    programs: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap(), user: None }
    }

    /// The home of an unprivileged user.
    #[expect(clippy::disallowed_methods, reason = "copies the program under test")]
    fn of_user(config: &str) -> Self {
        let programs = tempfile::tempdir().unwrap();
        // `fs::copy` would leak the open copy to a child of another test, and an open file cannot be
        // executed.
        let copied =
            Command::new("cp").arg(env!("CARGO_BIN_EXE_hermes")).arg(programs.path()).status().unwrap();
        assert!(copied.success());
        let uid = ordinary_uid();
        chown(programs.path(), Some(uid), Some(uid)).unwrap();
        let user = Some(User { uid, programs });
        let home = Self { user, ..Self::new() };
        home.write("config.yaml", config);
        home
    }

    /// Makes the user own the files below a directory, except those that commands created.
    fn chown_to_user(&self, directory: &Path, except: &Path) {
        let Some(user) = &self.user else { return };
        let mut paths = vec![directory.to_owned()];
        while let Some(path) = paths.pop() {
            if path == except {
                continue;
            }
            // Files that hermes creates concurrently already belong to the user.
            let Ok(meta) = fs::symlink_metadata(&path) else { continue };
            if meta.uid() == 0 {
                lchown(&path, Some(user.uid), Some(user.uid)).unwrap();
            }
            if meta.is_dir() {
                paths.extend(fs::read_dir(&path).into_iter().flatten().map(|entry| entry.unwrap().path()));
            }
        }
    }

    /// Makes a command run as the user, if there is one.
    fn run_as_user(&self, command: &mut Command) {
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
        self.chown_to_user(self.path(), &self.path().join("sandboxes"));
        self.run_as_user(&mut command);
        command.args(args).env_clear().env("HERMES_HOME", self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn load(&self, process: &[(&str, &str)]) -> hermes_config::LoadedConfig {
        let process = process.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        hermes_config::load(self.path(), process)
    }
}

/// The exit code and output of a command.
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

/// The socket of an engine peer, which must be up.
fn socket(name: &str) -> PathBuf {
    peers::socket(name).unwrap()
}
