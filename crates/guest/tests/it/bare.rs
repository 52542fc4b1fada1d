//! Places that have little: no bash, no shell, no user, no writable root. The guest is the first process there.

use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use hermes_guest::client::{Client, Error};
use hermes_guest::protocol::message::{
    Fault, OpenSession, Program, Run, SessionKey, Shell as ShellKind, Tree,
};
use serde_bytes::ByteBuf;
use tempfile::TempDir;
use tokio::net::UnixStream;

use crate::place::{PATIENCE, Shell, text_of};

struct Bare {
    _dir: TempDir,
    outside: Child,
    shell: Shell,
}

impl Drop for Bare {
    fn drop(&mut self) {
        self.outside.kill().ok();
        self.outside.wait().ok();
    }
}

/// A guest in namespaces of its own, after these commands have taken things away.
#[expect(clippy::disallowed_methods, reason = "tests start the program they test")]
async fn bare(take_away: &str) -> Bare {
    let dir = tempfile::tempdir().unwrap();
    let socket: PathBuf = dir.path().join("run/guest.sock");
    let script = format!(
        "set -e; RUN={}; {take_away}; exec {} serve --socket {} --idle 60",
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
    let connected = async {
        loop {
            match UnixStream::connect(&socket).await {
                Ok(stream) => return Client::connect(stream).await.unwrap(),
                Err(_not_yet) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    };
    let client = tokio::time::timeout(PATIENCE, connected).await.expect("the guest does not come up");
    let key = SessionKey::from("s");
    let init = dir.path().join("init");
    std::fs::write(&init, "export FROM_A_FILE=1").unwrap();
    let env = vec![(ByteBuf::from("PATH"), ByteBuf::from("/usr/bin:/bin"))];
    client
        .open_session(OpenSession {
            key: key.clone(),
            cwd: ByteBuf::from("/tmp"),
            env,
            init: vec![ByteBuf::from(init.to_str().unwrap())],
            withheld: Vec::new(),
        })
        .await
        .unwrap();
    Bare { _dir: dir, outside, shell: Shell { client, key } }
}

/// Puts a file that cannot be executed in the way.
const NO_BASH: &str =
    "for d in /bin /usr/bin /usr/local/bin; do [ -e $d/bash ] && mount --bind /etc/passwd $d/bash; done; :";

#[tokio::test]
async fn without_bash_sh_keeps_directory_and_exports() {
    let place = bare(NO_BASH).await;
    let s = &place.shell;
    let about = s.client.about().await.unwrap();
    assert!(matches!(about.shell, Some(ShellKind::Sh(_))), "{about:?}");
    assert_eq!(about.pid, 1);
    assert_eq!(s.out("echo \"[$FROM_A_FILE]\"").await, "[]\n");
    assert_eq!(s.sh("cd /usr; export A=\"it's \\\"1\\\"\nline\"; f() { :; }; exit 3").await.0, 3);
    assert_eq!(s.out("pwd; echo \"$A\"").await, "/usr\nit's \"1\"\nline\n");
    assert_eq!(s.sh("f").await.0, 127);
    assert_eq!(s.sh("kill -9 $$").await.0, 137);
}

#[tokio::test]
async fn without_any_shell_programs_run_and_commands_are_refused() {
    let place = bare(&format!("{NO_BASH}; for d in /bin /usr/bin; do for n in sh dash; do [ -e $d/$n ] && mount --bind /etc/passwd $d/$n; done; done; :")).await;
    let s = &place.shell;
    assert_eq!(s.client.about().await.unwrap().shell, None);
    let refused = s.client.run(s.command("echo x")).await.unwrap_err();
    assert!(matches!(refused, Error::Refused(Fault::NoShell)), "{refused:?}");
    let argv = vec![ByteBuf::from("echo"), ByteBuf::from("fine")];
    let ended = s.run(Run { program: Program::Argv(argv), ..s.command("") }).await;
    assert_eq!((ended.code, text_of(&ended)), (0, "fine\n".to_owned()));
}

#[tokio::test]
async fn without_users_and_with_a_root_that_cannot_be_written_commands_run() {
    let place =
        bare("mount --bind $RUN $RUN; mount --bind /dev/null /etc/passwd; mount -o remount,ro,bind /").await;
    let s = &place.shell;
    assert_eq!(
        s.out("wc -c </etc/passwd; touch /x 2>/dev/null || echo no; cd /; export A=1").await,
        "0\nno\n"
    );
    assert_eq!(s.out("pwd; echo $A $FROM_A_FILE").await, "/\n1 1\n");
}

#[tokio::test]
async fn the_first_process_buries_the_dead() {
    let place = bare(":").await;
    let s = &place.shell;
    let ended =
        s.run(s.command("for i in $(seq 50); do (setsid true &); done; setsid sleep 300 & sleep 0.2")).await;
    assert_eq!(ended.tree, Tree::Alive);
    s.client.kill(ended.process).await.unwrap();
    let settled = async { while s.out("ps -A -o stat= | grep -c Z || true").await != "0\n" {} };
    tokio::time::timeout(PATIENCE, settled).await.expect("zombies stay");
}
