//! Test users with secrets, and ways to run programs as them, with and without a jail.

use std::ffi::{OsStr, OsString};
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hermes_sandbox::Jail;
use hermes_types::MountAccess;
use tempfile::TempDir;

/// The content of every secret.
pub(crate) const SECRET: &str = "the-moon-is-hollow";

/// A uid without privileges on every machine.
pub(crate) const UNPRIVILEGED_UID: u32 = 65534;

/// Exit code of a refused attack.
pub(crate) const REFUSED: i32 = 7;

/// One user with a home, a workspace and files outside of it.
pub(crate) struct TestUser {
    pub(crate) uid: u32,
    top: TempDir,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct CommandOutput {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// The users that tests run as: root and an unprivileged user, or only the current user if it is
/// not root.
pub(crate) fn test_users() -> Vec<TestUser> {
    let own = rustix::process::getuid().as_raw();
    if own == 0 { vec![TestUser::new(0), TestUser::new(UNPRIVILEGED_UID)] } else { vec![TestUser::new(own)] }
}

impl TestUser {
    pub(crate) fn new(uid: u32) -> Self {
        let top = tempfile::Builder::new().prefix("jail-").tempdir_in(reachable_dir()).unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
        let user = Self { uid, top };
        for name in
            ["home", "home/.ssh", "home/.hermes", "home/.aws", "home/.docker", "work", "outside", "spec"]
        {
            fs::create_dir_all(user.path(name)).unwrap();
        }
        for name in
            ["home/.ssh/id", "home/.hermes/.env", "home/.aws/credentials", "home/.netrc", "outside/file"]
        {
            fs::write(user.path(name), SECRET).unwrap();
        }
        fs::write(user.path("home/visible"), "not a secret").unwrap();
        copy(env!("CARGO_BIN_EXE_jail-testbed"), user.program());
        user.chown_tree(user.top.path());
        user
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(crate) fn path_str(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// A copy of the testbed program that every user can start.
    pub(crate) fn program(&self) -> PathBuf {
        self.path("testbed")
    }

    /// Changes the owner of a tree to this user.
    pub(crate) fn chown_tree(&self, path: &Path) {
        if rustix::process::getuid().is_root() {
            chown(path, Some(self.uid), Some(self.uid)).unwrap();
        }
        if path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).unwrap() {
                self.chown_tree(&entry.unwrap().path());
            }
        }
    }

    /// A jail with write access to the workspace only.
    pub(crate) fn jail<A: AsRef<OsStr>>(&self, program: impl Into<OsString>, arguments: &[A]) -> Jail {
        let mut jail = Jail::new(program, &self.path("home"))
            .bind(self.path("work"), MountAccess::ReadWrite)
            .bind(self.program(), MountAccess::ReadOnly);
        jail.arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        jail.directory = self.path("work").into();
        jail.environment = environment(self);
        jail
    }

    /// Runs a command as this user, without a jail.
    pub(crate) fn run_unconfined<A: AsRef<OsStr>>(&self, words: &[A]) -> CommandOutput {
        self.run_unconfined_as(self.uid, words)
    }

    pub(crate) fn run_unconfined_as<A: AsRef<OsStr>>(&self, uid: u32, words: &[A]) -> CommandOutput {
        let (program, arguments) = words.split_first().unwrap();
        let mut command = self.command(uid, program);
        collect_output(command.args(arguments).current_dir(self.path("work")).output().unwrap())
    }

    /// Runs a jail to its end.
    pub(crate) fn run_confined(&self, jail: &Jail) -> CommandOutput {
        collect_output(self.jail_command(jail).output().unwrap())
    }

    /// The command that launches a jail and exits as its program does.
    pub(crate) fn jail_command(&self, jail: &Jail) -> Command {
        let mut command = self.command(self.uid, self.program());
        command.arg("run").arg(self.write_spec(jail));
        command
    }

    pub(crate) fn write_spec(&self, jail: &Jail) -> PathBuf {
        let file = tempfile::NamedTempFile::new_in(self.path("spec")).unwrap();
        fs::write(file.path(), postcard::to_stdvec(jail).unwrap()).unwrap();
        self.chown_tree(file.path());
        file.into_temp_path().keep().unwrap()
    }

    pub(crate) fn command(&self, uid: u32, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        command.env_clear().envs(environment(self)).stdin(Stdio::null());
        if rustix::process::getuid().is_root() {
            command.uid(uid).gid(uid);
        }
        command
    }
}

/// Copies a program in another process: a writable descriptor in this process, inherited by a child
/// of another test, would make the copy busy.
pub(crate) fn copy(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

fn environment(user: &TestUser) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()),
        ("HOME", user.path("work").into_os_string()),
    ]
    .map(|(name, value)| (name.into(), value))
    .to_vec()
}

fn collect_output(output: Output) -> CommandOutput {
    CommandOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A directory that every user can reach and that no jail masks by default.
fn reachable_dir() -> PathBuf {
    let reachable = |path: &Path| {
        path.ancestors().all(|above| fs::metadata(above).is_ok_and(|meta| meta.mode() & 0o001 != 0))
    };
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if reachable(&target) || !rustix::process::getuid().is_root() { target } else { PathBuf::from("/srv") }
}
