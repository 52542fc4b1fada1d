//! Minimal environments: no bash, no shell, no users, a read-only root. The guest is process 1.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use hermes_guest::client::{Client, Error};
use hermes_guest::protocol::message::{OpenSession, Rejection, ShellSessionKey, TreeStatus};
use serde_bytes::ByteBuf;
use tempfile::TempDir;
use tokio::net::UnixStream;

use crate::fixture::{TestShell, eventually};

struct BareGuest {
    _dir: TempDir,
    outside: Child,
    shell: TestShell,
}

impl Drop for BareGuest {
    fn drop(&mut self) {
        self.outside.kill().ok();
        self.outside.wait().ok();
    }
}

/// Starts a guest in new namespaces after a script that removes things.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
async fn start_bare(setup: &str) -> BareGuest {
    let dir = tempfile::tempdir().unwrap();
    let socket: PathBuf = dir.path().join("run/guest.sock");
    let script = format!(
        "set -e; RUN={}; {setup}; exec {} serve --socket {} --idle 60",
        dir.path().display(),
        env!("CARGO_BIN_EXE_hermes-guest"),
        socket.display()
    );
    let outside = Command::new("unshare")
        .args([
            "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh",
            "-c",
        ])
        .arg(script)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    eventually("the guest listens", async || UnixStream::connect(&socket).await.is_ok()).await;
    let client = Client::connect(UnixStream::connect(&socket).await.unwrap()).await.unwrap();
    let key = ShellSessionKey::from("s");
    let init = dir.path().join("init");
    std::fs::write(&init, "export FROM_A_FILE=1").unwrap();
    let env = vec![(ByteBuf::from("PATH"), ByteBuf::from("/usr/bin:/bin"))];
    client
        .open_session(OpenSession {
            key: key.clone(),
            cwd: ByteBuf::from("/tmp"),
            env,
            init_files: vec![ByteBuf::from(init.to_str().unwrap())],
            protected_env: Vec::new(),
            guard: None,
        })
        .await
        .unwrap();
    BareGuest { _dir: dir, outside, shell: TestShell { client, key } }
}

/// Hides bash behind a file that cannot be executed.
const NO_BASH: &str =
    "for d in /bin /usr/bin /usr/local/bin; do [ -e $d/bash ] && mount --bind /etc/passwd $d/bash; done; :";

#[tokio::test]
async fn without_bash_sh_keeps_directory_and_exports() {
    let guest = start_bare(NO_BASH).await;
    let s = &guest.shell;
    assert_eq!(s.out("echo $0; tr '\\0' '\\n' </proc/1/cmdline | sed -n 2p").await, "sh\nserve\n");
    assert_eq!(s.out("echo \"[$FROM_A_FILE]\"").await, "[]\n");
    assert_eq!(s.sh("cd /usr; export A=\"it's \\\"1\\\"\nline\"; f() { :; }; exit 3").await.0, 3);
    assert_eq!(s.out("pwd; echo \"$A\"").await, "/usr\nit's \"1\"\nline\n");
    assert_eq!(s.sh("f").await.0, 127);
    assert_eq!(s.sh("kill -9 $$").await.0, 137);
}

#[tokio::test]
async fn without_any_shell_commands_are_refused() {
    let guest = start_bare(&format!("{NO_BASH}; for d in /bin /usr/bin; do for n in sh dash; do [ -e $d/$n ] && mount --bind /etc/passwd $d/$n; done; done; :")).await;
    let s = &guest.shell;
    let refused = s.client.run(s.command("echo x")).await.unwrap_err();
    assert!(matches!(refused, Error::Rejected(Rejection::NoShell)), "{refused:?}");
}

#[tokio::test]
async fn commands_run_without_users_and_with_a_read_only_root() {
    let guest =
        start_bare("mount --bind $RUN $RUN; mount --bind /dev/null /etc/passwd; mount -o remount,ro,bind /")
            .await;
    let s = &guest.shell;
    assert_eq!(
        s.out("wc -c </etc/passwd; touch /x 2>/dev/null || echo no; cd /; export A=1").await,
        "0\nno\n"
    );
    assert_eq!(s.out("pwd; echo $A $FROM_A_FILE").await, "/\n1 1\n");
}

#[tokio::test]
async fn process_1_reaps_zombies() {
    let guest = start_bare(":").await;
    let s = &guest.shell;
    let ended =
        s.run(s.command("for i in $(seq 50); do (setsid true &); done; setsid sleep 300 & sleep 0.2")).await;
    assert_eq!(ended.tree, TreeStatus::Alive);
    s.client.kill(ended.process).await.unwrap();
    eventually("all zombies are reaped", async || s.out("ps -A -o stat= | grep -c Z || true").await == "0\n")
        .await;
}
