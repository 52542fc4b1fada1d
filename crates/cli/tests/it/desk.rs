//! A home, and a directory for work beside it.

use std::path::Path;
use std::process::Command;

use crate::{Home, Run};

/// Where one command of hermes is used, with places of its own.
pub(crate) struct Desk {
    pub(crate) home: Home,
    work: tempfile::TempDir,
    command: &'static str,
}

impl Desk {
    pub(crate) fn new(command: &'static str, config: &str) -> Self {
        Self { home: Home::with_config(config), work: tempfile::tempdir().unwrap(), command }
    }

    pub(crate) fn path(&self) -> &Path {
        self.work.path()
    }

    /// The command with what a shell needs.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(&[&[self.command], args].concat());
        let run = self.home.path().join("run");
        std::fs::create_dir_all(&run).unwrap();
        command
            .env("XDG_RUNTIME_DIR", run)
            .env("HOME", "/home/nobody")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin");
        command.env("TERMINAL_LIFETIME_SECONDS", "2").current_dir(self.path());
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }
}
