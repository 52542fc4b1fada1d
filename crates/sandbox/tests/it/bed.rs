//! A made-up person with secrets, and ways to run a program as that person, free or confined.

use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use hermes_sandbox::{Access, Jail};
use tempfile::TempDir;

/// What the secrets say.
pub(crate) const SECRET: &str = "the-moon-is-hollow";

/// Somebody who is not root, on every machine.
pub(crate) const NOBODY: u32 = 65534;

/// A program's way to say that it was refused.
pub(crate) const REFUSED: i32 = 7;

/// One person, with a home, a workspace and things outside of it.
pub(crate) struct Bed {
    pub(crate) uid: u32,
    top: TempDir,
}

/// How a program ended.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ended {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// Everybody the tests run as: root and an ordinary user, or only the ordinary user we are.
pub(crate) fn everybody() -> Vec<Bed> {
    let own = rustix::process::getuid().as_raw();
    if own == 0 { vec![Bed::new(0), Bed::new(NOBODY)] } else { vec![Bed::new(own)] }
}

impl Bed {
    pub(crate) fn new(uid: u32) -> Self {
        let top = tempfile::Builder::new().prefix("jail-").tempdir_in(ground()).unwrap();
        fs::set_permissions(top.path(), Permissions::from_mode(0o755)).unwrap();
        let bed = Self { uid, top };
        for name in
            ["home", "home/.ssh", "home/.hermes", "home/.aws", "home/.docker", "work", "outside", "spec"]
        {
            fs::create_dir_all(bed.path(name)).unwrap();
        }
        for name in
            ["home/.ssh/id", "home/.hermes/.env", "home/.aws/credentials", "home/.netrc", "outside/file"]
        {
            fs::write(bed.path(name), SECRET).unwrap();
        }
        fs::write(bed.path("home/visible"), "anybody may know").unwrap();
        copy(env!("CARGO_BIN_EXE_jail-testbed"), bed.program());
        bed.give(bed.top.path());
        bed
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.top.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// The testbed program, where everybody can start it.
    pub(crate) fn program(&self) -> PathBuf {
        self.path("testbed")
    }

    /// Makes everything below a path this person's.
    pub(crate) fn give(&self, path: &Path) {
        if rustix::process::getuid().is_root() {
            chown(path, Some(self.uid), Some(self.uid)).unwrap();
        }
        if path.is_dir() && !path.is_symlink() {
            for entry in fs::read_dir(path).unwrap() {
                self.give(&entry.unwrap().path());
            }
        }
    }

    /// A jail as a session would have it: the workspace, nothing else.
    pub(crate) fn jail<A: AsRef<OsStr>>(&self, program: impl Into<PathBuf>, arguments: &[A]) -> Jail {
        let mut jail = Jail::new(program, &self.path("home"))
            .bind(self.path("work"), Access::ReadWrite)
            .bind(self.program(), Access::ReadOnly);
        jail.arguments = arguments.iter().map(|argument| argument.as_ref().to_owned()).collect();
        jail.directory = self.path("work");
        jail.environment = environment(self);
        jail
    }

    /// Runs a command as this person, without a jail.
    pub(crate) fn free<A: AsRef<OsStr>>(&self, words: &[A]) -> Ended {
        self.free_as(self.uid, words)
    }

    pub(crate) fn free_as<A: AsRef<OsStr>>(&self, uid: u32, words: &[A]) -> Ended {
        let (program, arguments) = words.split_first().unwrap();
        let mut command = self.command(uid, program);
        ended(command.args(arguments).current_dir(self.path("work")).output().unwrap())
    }

    /// Runs the program of a jail and waits for it.
    pub(crate) fn confined(&self, jail: &Jail) -> Ended {
        ended(self.run(jail).output().unwrap())
    }

    /// The command that launches a jail and ends as its program did.
    pub(crate) fn run(&self, jail: &Jail) -> Command {
        let mut command = self.command(self.uid, self.program());
        command.arg("run").arg(self.spec(jail));
        command
    }

    pub(crate) fn spec(&self, jail: &Jail) -> PathBuf {
        let file = tempfile::NamedTempFile::new_in(self.path("spec")).unwrap();
        fs::write(file.path(), postcard::to_stdvec(jail).unwrap()).unwrap();
        self.give(file.path());
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

/// Copies a program. Another process does it: a descriptor open for writing in this one, inherited by whatever another
/// test starts at that moment, would keep the copy from being started.
pub(crate) fn copy(from: impl AsRef<OsStr>, to: impl AsRef<OsStr>) {
    assert!(Command::new("cp").arg(from).arg(to).status().unwrap().success());
}

fn environment(bed: &Bed) -> Vec<(std::ffi::OsString, std::ffi::OsString)> {
    [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin".into()),
        ("HOME", bed.path("work").into_os_string()),
    ]
    .map(|(name, value)| (name.into(), value))
    .to_vec()
}

fn ended(output: Output) -> Ended {
    Ended {
        code: output.status.code().unwrap_or(-1),
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8_lossy(&output.stderr).into_owned(),
    }
}

/// A directory everybody can reach and no jail hides by itself.
fn ground() -> PathBuf {
    let reachable = |path: &Path| {
        path.ancestors().all(|above| fs::metadata(above).is_ok_and(|meta| meta.mode() & 0o001 != 0))
    };
    let target = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    if reachable(&target) || !rustix::process::getuid().is_root() { target } else { PathBuf::from("/srv") }
}
