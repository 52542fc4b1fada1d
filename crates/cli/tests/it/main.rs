//! The tests that use the command as a whole, or its configuration on real files.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod approvals;
mod chat;
mod command;
mod crash;
mod doctor;
mod doors;
mod edits;
mod engine;
mod exec;
mod hostile;
mod layers;
mod local;
mod model;
mod mounts;
mod places;
mod pull;
mod questions;
mod registry;
mod request;
mod room;
mod sessions;
mod status;
mod tool;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::{fs, io};

use serde_json::Value;

/// A home of its own, and the command run in it with nothing else in its environment.
struct Home {
    folder: tempfile::TempDir,
}

impl Home {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
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
        let mut command = Command::new(env!("CARGO_BIN_EXE_hermes"));
        command.args(args).env_clear().env("HERMES_HOME", self.path()).stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn load(&self, process: &[(&str, &str)]) -> hermes_cli::config::Loaded {
        let process = process.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        hermes_cli::config::load(self.path(), process, BTreeMap::new())
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
