//! The files that set a session up.

use std::path::PathBuf;
use std::sync::Arc;

use crate::place::{Place, Shell, lives};

/// Writes init files into a place, in order.
fn files(place: &Place, texts: &[&str]) -> Vec<PathBuf> {
    let write = |(number, text): (usize, &&str)| {
        let path = place.dir.path().join(format!("it's file {number}"));
        std::fs::write(&path, text).unwrap();
        path
    };
    texts.iter().enumerate().map(write).collect()
}

/// A session set up by these files.
async fn set_up(place: &Place, texts: &[&str]) -> Shell {
    place.set_up_session("s", &files(place, texts), &[]).await
}

#[tokio::test]
async fn what_the_files_set_up_is_there_for_every_command() {
    let place = Place::start().await;
    let shell = set_up(
        &place,
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
async fn a_file_that_ends_badly_takes_nothing_from_the_others() {
    // What becomes another program or is killed outright leaves nothing of its own file.
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
        let place = Place::start().await;
        let ending_file = format!("export B=b\n{ending}");
        let shell = set_up(&place, &["export A=a", &ending_file, "export C=$A$B"]).await;
        assert_eq!(shell.out("echo $C $-").await, format!("{expected} hBc\n"), "{ending}");
    }
}

#[tokio::test]
async fn nothing_a_file_says_is_seen_and_a_file_that_is_not_there_is_passed_over() {
    let place = Place::start().await;
    let mut init = files(&place, &["echo out; echo err >&2; no-such-program; read -r line; export A=1"]);
    init.insert(0, place.dir.path().join("missing"));
    init.insert(0, place.dir.path().to_owned());
    let shell = place.set_up_session("s", &init, &[]).await;
    assert_eq!(shell.sh("echo $A").await, (0, "1\n".to_owned()));
    assert!(shell.client.processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn a_file_does_not_move_the_session() {
    let place = Place::start().await;
    let shell = set_up(&place, &["export STARTED=$PWD; cd /usr; cd /"]).await;
    let work = place.work().display().to_string();
    assert_eq!(shell.out("pwd; echo $STARTED; echo [$OLDPWD]").await, format!("{work}\n{work}\n[]\n"));
}

#[tokio::test]
async fn withheld_names_do_not_get_in_by_a_file() {
    let place = Place::start().await;
    let init = files(
        &place,
        &["export SECRET=1 BOT_TOKEN=2 bot_token=2 BOT=3 OTHER=4", "export LEFT=[$SECRET$BOT_TOKEN]"],
    );
    let shell = place.set_up_session("s", &init, &["SECRET", "BOT_*"]).await;
    assert_eq!(shell.out("echo [$SECRET] [$BOT_TOKEN$bot_token] $BOT $OTHER $LEFT").await, "[] [] 3 4 []\n");
    // The session's own commands may set whatever they like.
    assert_eq!(shell.out("export SECRET=5").await, "");
    assert_eq!(shell.out("echo $SECRET").await, "5\n");
}

#[tokio::test]
async fn what_hangs_is_killed_with_everything_it_started_and_the_session_goes_on() {
    let place = Place::start().await;
    let pids = place.dir.path().join("pids");
    let stuck = format!(
        "export B=1; sleep 1000 & setsid sleep 1000 & echo $$ $! > '{}'; trap '' TERM INT; while :; do read -t 1; sleep 1; done",
        pids.display()
    );
    let shell = set_up(&place, &["export A=1", &stuck, "export C=1"]).await;
    assert_eq!(shell.out("echo [$A] [$B] [$C]").await, "[1] [] []\n");
    let pids = std::fs::read_to_string(pids).unwrap();
    assert_eq!(pids.split_whitespace().map(lives).collect::<Vec<_>>(), [false, false]);
    assert!(shell.client.processes().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_a_file_leaves_running_is_ended() {
    let place = Place::start().await;
    let shell = set_up(&place, &["sleep 1000 & export AGENT=$!"]).await;
    let agent = shell.out("echo $AGENT").await;
    assert!(!agent.trim().is_empty() && !lives(&agent), "{agent}");
}

#[tokio::test]
async fn commands_that_come_at_once_wait_for_the_same_setting_up() {
    let place = Arc::new(Place::start().await);
    let count = place.dir.path().join("count");
    let text = format!("echo once >> '{}'; sleep 0.3; export A=1", count.display());
    let init = files(&place, &[&text]);
    let commands: Vec<_> = (0..10)
        .map(|_| {
            let (place, init) = (place.clone(), init.clone());
            tokio::spawn(async move { place.set_up_session("s", &init, &[]).await.out("echo $A").await })
        })
        .collect();
    for command in commands {
        assert_eq!(command.await.unwrap(), "1\n");
    }
    assert_eq!(std::fs::read_to_string(count).unwrap(), "once\n");
}
