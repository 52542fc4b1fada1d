//! Fixtures: hermes homes with separate environments and directories.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::{Home, Run};

/// The user id without any privileges or files.
pub(crate) const UNPRIVILEGED_UID: u32 = 65534;

/// A home and a working directory for tests of one subcommand.
pub(crate) struct CommandEnv {
    pub(crate) home: Home,
    work: tempfile::TempDir,
    command: &'static str,
}

impl CommandEnv {
    pub(crate) fn new(command: &'static str, config: &str) -> Self {
        Self { home: Home::with_config(config), work: tempfile::tempdir().unwrap(), command }
    }

    pub(crate) fn path(&self) -> &Path {
        self.work.path()
    }

    /// The subcommand with the variables that a shell needs.
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

/// A home, a user's home directory and a working directory.
pub(crate) struct TestEnv {
    pub(crate) home: Home,
    pub(crate) user: tempfile::TempDir,
    pub(crate) work: tempfile::TempDir,
}

impl TestEnv {
    pub(crate) fn new(config: &str) -> Self {
        let home = Home::with_config(config);
        fs::create_dir(home.path().join("run")).unwrap();
        Self { home, user: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() }
    }

    /// Sets the variables and the directory of a command.
    pub(crate) fn set_up(&self, command: &mut Command) {
        command
            .env("HERMES_HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            .env("HOME", self.user.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("TERMINAL_LIFETIME_SECONDS", "2")
            .current_dir(self.work.path());
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        self.set_up(&mut command);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Runs the command where user and mount namespaces are disabled.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn run_without_namespaces(&self, args: &[&str]) -> Run {
        let mut command = Command::new("unshare");
        let script = "cd /proc/sys/user && echo 0 > max_user_namespaces && echo 0 > max_mnt_namespaces && \
                      cd - >/dev/null && exec \"$@\"";
        command
            .args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_hermes")])
            .args(args)
            .env_clear();
        self.set_up(&mut command);
        Run::of(command.output().unwrap())
    }

    pub(crate) fn status(&self) -> Value {
        self.run(&["status", "--json"]).json()
    }
}

impl TestEnv {
    pub(crate) fn run_unprivileged(&self, args: &[&str]) -> Run {
        Run::of(self.command_as(UNPRIVILEGED_UID, args).output().unwrap())
    }

    /// The command as another user, who becomes the owner of all files of the fixture. Only root
    /// can change the user.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn command_as(&self, user: u32, args: &[&str]) -> Command {
        let program = self.work.path().join("hermes");
        // The directory of the built program may not be accessible to the user.
        fs::copy(env!("CARGO_BIN_EXE_hermes"), &program).unwrap();
        let mut command = Command::new(&program);
        command.args(args).env_clear();
        self.set_up(&mut command);
        if rustix::process::geteuid().is_root() {
            for folder in [self.home.path(), self.user.path(), self.work.path()] {
                chown_recursively(folder, user);
            }
            command.uid(user).gid(user);
        }
        command
    }

    /// The run directories of environments and their persistent files.
    pub(crate) fn remaining_paths(&self) -> Vec<PathBuf> {
        let list =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
        let run_dirs = list(self.home.path().join("run")).flat_map(list).filter(|path| path.is_dir());
        run_dirs.chain(list(self.home.path().join("sandboxes").join("sandbox"))).collect()
    }
}

fn chown_recursively(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| chown_recursively(&entry.unwrap().path(), user));
    }
}
