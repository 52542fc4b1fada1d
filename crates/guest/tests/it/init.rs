//! Init files of a session.

use std::path::PathBuf;
use std::sync::Arc;

use crate::fixture::{TestGuest, TestShell, is_alive};

/// Writes init files, in order.
fn files(guest: &TestGuest, texts: &[&str]) -> Vec<PathBuf> {
    let write = |(number, text): (usize, &&str)| {
        let path = guest.dir.path().join(format!("it's file {number}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    texts.iter().enumerate().map(write).collect()
}

/// Opens a session with these init files.
async fn set_up(guest: &TestGuest, texts: &[&str]) -> TestShell {
    guest.set_up_session("s", &files(guest, texts), &[]).await
}

#[tokio::test]
async fn state_set_by_init_files_is_available_to_every_command() {
    let guest = TestGuest::start().await;
    let shell = set_up(
        &guest,
        &[
            "export PATH=/first:$PATH A=1",
            "PATH=/second:$PATH; f() { echo f$A; }; alias hi='echo hi'; plain=1",
        ],
    )
    .await;
    for _ in 0..2 {
        let out = shell.out("echo $PATH; f\nhi \"[$plain]\"").await;
        assert_eq!(out, "/second:/first:/usr/local/bin:/usr/bin:/bin\nf1\nhi []\n");
    }
}

#[tokio::test]
async fn a_failing_init_file_does_not_affect_the_others() {
    // A file that execs another program or is killed leaves no state.
    let endings = [
        ("exit 3", "ab"),
        ("set -eu; false", "ab"),
        ("if", "ab"),
        ("return 1", "ab"),
        ("trap 'exit 9' EXIT", "ab"),
        ("trap 'unset B' EXIT; exit", "a"),
        ("exec true", "a"),
        ("kill -9 $$", "a"),
    ];
    for (ending, expected) in endings {
        let guest = TestGuest::start().await;
        let ending_file = format!("export B=b\n{ending}");
        let shell = set_up(&guest, &["export A=a", &ending_file, "export C=$A$B"]).await;
        assert_eq!(shell.out("echo $C $-").await, format!("{expected} hBc\n"), "{ending}");
    }
}

#[tokio::test]
async fn init_output_is_hidden_and_missing_files_are_skipped() {
    let guest = TestGuest::start().await;
    let mut init = files(&guest, &["echo out; echo err >&2; no-such-program; read -r line; export A=1"]);
    init.insert(0, guest.dir.path().join("missing"));
    init.insert(0, guest.dir.path().to_owned());
    let shell = guest.set_up_session("s", &init, &[]).await;
    assert_eq!(shell.sh("echo $A").await, (0, "1\n".to_owned()));
    assert!(shell.client.processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn an_init_file_does_not_change_the_session_directory() {
    let guest = TestGuest::start().await;
    let shell = set_up(&guest, &["export STARTED=$PWD; cd /usr; cd /"]).await;
    let work = guest.work().display().to_string();
    assert_eq!(shell.out("pwd; echo $STARTED; echo [$OLDPWD]").await, format!("{work}\n{work}\n[]\n"));
}

#[tokio::test]
async fn init_files_cannot_set_protected_variables() {
    let guest = TestGuest::start().await;
    let init = files(
        &guest,
        &["export SECRET=1 BOT_TOKEN=2 bot_token=2 BOT=3 OTHER=4", "export LEFT=[$SECRET$BOT_TOKEN]"],
    );
    let shell = guest.set_up_session("s", &init, &["SECRET", "BOT_*"]).await;
    assert_eq!(shell.out("echo [$SECRET] [$BOT_TOKEN$bot_token] $BOT $OTHER $LEFT").await, "[] [] 3 4 []\n");
    // Commands of the session may set any variable.
    assert_eq!(shell.out("export SECRET=5").await, "");
    assert_eq!(shell.out("echo $SECRET").await, "5\n");
}

#[tokio::test]
async fn a_hanging_init_file_is_killed_with_its_descendants() {
    let guest = TestGuest::start().await;
    let pids = guest.dir.path().join("pids");
    let stuck = format!(
        "export B=1; sleep 1000 & setsid sleep 1000 & echo $$ $! > '{}'; trap '' TERM INT; while :; do read -t 1; sleep 1; done",
        pids.display()
    );
    let shell = set_up(&guest, &["export A=1", &stuck, "export C=1"]).await;
    assert_eq!(shell.out("echo [$A] [$B] [$C]").await, "[1] [] []\n");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().map(is_alive).collect::<Vec<_>>(), [false, false]);
    assert!(shell.client.processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn processes_left_by_an_init_file_are_killed() {
    let guest = TestGuest::start().await;
    let shell = set_up(&guest, &["sleep 1000 & export AGENT=$!"]).await;
    let agent = shell.out("echo $AGENT").await;
    assert!(!agent.trim().is_empty() && !is_alive(&agent), "{agent}");
}

#[tokio::test]
async fn concurrent_commands_wait_for_one_initialization() {
    let guest = Arc::new(TestGuest::start().await);
    let count = guest.dir.path().join("count");
    let text = format!("echo once >> '{}'; sleep 0.3; export A=1", count.display());
    let init = files(&guest, &[&text]);
    let commands: Vec<_> = (0..10)
        .map(|_| {
            let (guest, init) = (guest.clone(), init.clone());
            tokio::spawn(async move { guest.set_up_session("s", &init, &[]).await.out("echo $A").await })
        })
        .collect();
    for command in commands {
        assert_eq!(command.await.unwrap(), "1\n");
    }
    assert_eq!(std::fs::read_to_string(count).unwrap(), "once\n");
}
