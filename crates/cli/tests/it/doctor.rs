//! `hermes doctor --live`, as root and as somebody without any right.

use std::fs;
use std::os::unix::fs::chown;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

use crate::Run;
use crate::status::Desk;

/// The user that owns nothing.
pub(crate) const NOBODY: u32 = 65534;

impl Desk {
    fn run_as_nobody(&self, args: &[&str]) -> Run {
        Run::of(self.command_as(NOBODY, args).output().unwrap())
    }

    /// The command for this user, who gets everything that is here. Only root can become somebody else.
    #[expect(clippy::disallowed_methods, reason = "the program under test")]
    pub(crate) fn command_as(&self, user: u32, args: &[&str]) -> Command {
        let program = self.work.path().join("hermes");
        // The one that was built may be where nobody else can go.
        fs::copy(env!("CARGO_BIN_EXE_hermes"), &program).unwrap();
        let mut command = Command::new(&program);
        command.args(args).env_clear();
        self.set_up(&mut command);
        if rustix::process::geteuid().is_root() {
            for folder in [self.home.path(), self.user.path(), self.work.path()] {
                give(folder, user);
            }
            command.uid(user).gid(user);
        }
        command
    }

    /// Everything in the directory of places and in that of kept files.
    fn left(&self) -> Vec<PathBuf> {
        let list =
            |path: PathBuf| fs::read_dir(path).into_iter().flatten().map(|entry| entry.unwrap().path());
        let rooms = list(self.home.path().join("run")).flat_map(list).filter(|path| path.is_dir());
        rooms.chain(list(self.home.path().join("sandboxes").join("sandbox"))).collect()
    }
}

fn give(path: &Path, user: u32) {
    chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        fs::read_dir(path).unwrap().for_each(|entry| give(&entry.unwrap().path(), user));
    }
}

pub(crate) fn with_key(config: &str) -> Desk {
    let desk = Desk::new(config);
    fs::create_dir(desk.user.path().join(".ssh")).unwrap();
    fs::write(desk.user.path().join(".ssh").join("id_test"), "hunter2\n").unwrap();
    fs::write(desk.user.path().join(".ssh").join("config"), "Host x\n").unwrap();
    desk
}

/// What was found about a backend, with everything that differs from run to run replaced.
pub(crate) fn told(run: &Run, backend: &str) -> Vec<(String, String)> {
    let findings = run.json()["findings"].as_array().unwrap().clone();
    let about = findings.into_iter().filter(|finding| finding["check"] == backend);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    about
        .map(|finding| {
            let detail = word(&finding["detail"]);
            let detail = match detail.split_once(".hermes-doctor-") {
                Some((before, _)) => format!("{before}FILE"),
                None if detail.starts_with("ran a command in") => "ran a command".to_owned(),
                None => detail,
            };
            (word(&finding["state"]), detail)
        })
        .collect()
}

/// All that a jail is tried with.
fn attempts(desk: &Desk) -> Vec<(String, String)> {
    let user = desk.user.path().display();
    [
        "ran a command".to_owned(),
        format!("cannot read {}/config.yaml", desk.home.path().display()),
        format!("cannot read {user}/.ssh/id_test"),
        format!("cannot write {user}/FILE"),
        "cannot see a process outside".to_owned(),
        "cannot signal a process outside".to_owned(),
        "cannot reach a service on this machine's loopback".to_owned(),
        "cannot reach an abstract socket of this machine".to_owned(),
        "cannot create a user namespace".to_owned(),
        "cannot mount".to_owned(),
        "cannot start more than 256 processes".to_owned(),
    ]
    .map(|detail| ("ok".to_owned(), detail))
    .into()
}

#[test]
fn nothing_gets_out_of_the_sandbox_and_nothing_is_left_behind() {
    let desk = with_key("terminal: {backend: sandbox}\n");
    let run = desk.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.out.contains("hunter2"));
    let told = told(&run, "sandbox");
    assert_eq!(told[told.len() - 11..], attempts(&desk), "{told:#?}");
    assert_eq!(desk.left(), [] as [PathBuf; 0]);
    assert_eq!(fs::read_dir(desk.user.path()).unwrap().count(), 1);
}

#[test]
fn nothing_gets_out_of_the_sandbox_of_somebody_without_rights() {
    let desk = with_key("terminal: {backend: sandbox}\n");
    let run = desk.run_as_nobody(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let told = told(&run, "sandbox");
    assert_eq!(told[told.len() - 11..], attempts(&desk), "{told:#?}");
    assert_eq!(desk.left(), [] as [PathBuf; 0]);
}

#[test]
fn this_machine_runs_a_command_and_is_said_to_confine_nothing() {
    let desk = Desk::new("");
    let run = desk.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let ok = |detail: &str| ("ok".to_owned(), detail.to_owned());
    assert_eq!(
        told(&run, "local"),
        [ok("works; it does not isolate commands, so dangerous ones need approval"), ok("ran a command")]
    );
    assert!(run.out.contains("; not confined"), "{}", run.out);
    assert_eq!(desk.left(), [] as [PathBuf; 0]);
}

#[test]
fn what_the_gate_asks_about_is_not_tried_without_a_yes_and_never_fine() {
    let desk =
        with_key("terminal: {backend: sandbox}\napprovals: {deny: [\"mount *\"], ask: [\"unshare *\"]}\n");
    let state = |args: &[&str], about: &str| {
        let run = desk.run(&[&["doctor", "--live", "--json"], args].concat());
        let found = told(&run, "sandbox").into_iter().find(|(_, detail)| detail.contains(about));
        found.unwrap_or_else(|| panic!("{run:?}")).0
    };
    assert_eq!(state(&[], "user namespace"), "warning");
    assert_eq!(state(&["--yes"], "user namespace"), "ok");
    assert_eq!(state(&["--yes"], "can mount"), "warning");
    assert_eq!(desk.run(&["doctor", "--yes"]).code, Some(2));
}

#[test]
fn a_hole_that_the_owner_made_is_seen_through_and_told() {
    let desk = with_key("");
    let keys = desk.user.path().join(".ssh").display().to_string();
    let config = format!("terminal: {{backend: sandbox, docker_volumes: [\"{keys}/id_test:/key:ro\"]}}\n");
    desk.home.write("config.yaml", config);
    let run = desk.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let expected = ("warning".to_owned(), format!("can read {keys}/id_test, which is mounted"));
    assert!(told(&run, "sandbox").contains(&expected), "{run:?}");
    let remedies: Vec<Value> =
        run.json()["findings"].as_array().unwrap().iter().map(|f| f["remedy"].clone()).collect();
    assert!(remedies.contains(&json!("Remove it from terminal.docker_volumes.")), "{remedies:?}");
}
