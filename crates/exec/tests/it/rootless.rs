//! Runs the tests of rootless Podman as the user of that engine, because only this user can create
//! containers with it.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers;

/// The variable that names the directory of the copied files in the process of that user.
const COPIES_DIR_VAR: &str = "HERMES_TEST_COPIES";
/// The file name of the jail helper in that directory.
pub(crate) const HELPER_NAME: &str = "exec-jailer";
/// Filters that select the tests of rootless Podman.
const TEST_FILTERS: [&str; 4] = [
    "podman_rootless::", "podman_rootless_busybox::", "podman_rootless_read_only::",
    "podman_rootless_users::",
];

/// The directory of the copied test programs, in the process of the user of rootless Podman.
#[expect(clippy::disallowed_methods, reason = "the test runs its own program as another user")]
pub(crate) fn copies_dir() -> Option<PathBuf> {
    std::env::var_os(COPIES_DIR_VAR).map(PathBuf::from)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test runs its own program as another user")]
fn the_rootless_podman_tests_pass_as_an_unprivileged_user() {
    let peers = peers::read();
    let number = |name: &str| u32::try_from(peers["user"][name].as_u64().unwrap()).unwrap();
    let (user, group) = (number("uid"), number("gid"));
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        let copied = Command::new("cp").arg(from).arg(folder.path().join(name)).status().unwrap();
        assert!(copied.success(), "{name}");
    };
    copy(&std::env::current_exe().unwrap(), "it");
    copy(Path::new(env!("CARGO_BIN_EXE_exec-jailer")), HELPER_NAME);
    copy(&peers::directory().join("peers.json"), "peers.json");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    chown(folder.path(), Some(user), Some(group)).unwrap();
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
    command.arg(folder.path().join("it")).arg("--ignored").args(TEST_FILTERS).current_dir(folder.path());
    command.env("HERMES_PEERS_DIR", folder.path()).env(COPIES_DIR_VAR, folder.path());
    let output = command.output().unwrap();
    let results = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !results.contains(" 0 passed"), "{results}\n{errors}");
}
