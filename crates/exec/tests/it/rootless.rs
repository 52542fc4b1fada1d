//! The same tests as the user of rootless Podman, because only that user can create containers
//! there.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::peers;

/// Set for the process that runs as that user: the directory with its files.
const COPIES: &str = "HERMES_TEST_COPIES";
/// The name of the jail helper there.
pub(crate) const HELPER: &str = "exec-jailer";
/// Words in the names of the tests that only run there.
const ROWS: [&str; 4] = [
    "podman_rootless::", "podman_rootless_busybox::", "podman_rootless_read_only::",
    "podman_rootless_users::",
];

/// The directory with the test programs that the user of rootless Podman can run.
#[expect(clippy::disallowed_methods, reason = "the test starts itself again as another user")]
pub(crate) fn copies() -> Option<PathBuf> {
    std::env::var_os(COPIES).map(PathBuf::from)
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the test starts itself again as another user")]
fn the_rootless_podman_rows_pass_as_an_unprivileged_user() {
    let peers = peers::read();
    let number = |name: &str| u32::try_from(peers["user"][name].as_u64().unwrap()).unwrap();
    let (user, group) = (number("uid"), number("gid"));
    let folder = tempfile::tempdir().unwrap();
    let copy = |from: &Path, name: &str| {
        let copied = Command::new("cp").arg(from).arg(folder.path().join(name)).status().unwrap();
        assert!(copied.success(), "{name}");
    };
    copy(&std::env::current_exe().unwrap(), "it");
    copy(Path::new(env!("CARGO_BIN_EXE_exec-jailer")), HELPER);
    copy(&peers::directory().join("peers.json"), "peers.json");
    fs::set_permissions(folder.path(), PermissionsExt::from_mode(0o700)).unwrap();
    chown(folder.path(), Some(user), Some(group)).unwrap();
    let mut command = Command::new("setpriv");
    command.arg(format!("--reuid={user}")).arg(format!("--regid={group}")).arg("--clear-groups");
    command.arg(folder.path().join("it")).arg("--ignored").args(ROWS).current_dir(folder.path());
    command.env("HERMES_PEERS_DIR", folder.path()).env(COPIES, folder.path());
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && !said.contains(" 0 passed"), "{said}\n{errors}");
}
