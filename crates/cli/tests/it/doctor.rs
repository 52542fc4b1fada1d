//! `hermes doctor --live`, as root and as an unprivileged user.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::Run;
use crate::env::TestEnv;

pub(crate) fn with_key(config: &str) -> TestEnv {
    let env = TestEnv::new(config);
    fs::create_dir(env.user.path().join(".ssh")).unwrap();
    fs::write(env.user.path().join(".ssh").join("id_test"), "hunter2\n").unwrap();
    fs::write(env.user.path().join(".ssh").join("config"), "Host x\n").unwrap();
    env
}

/// The findings about a backend, with random file names and timings replaced.
pub(crate) fn findings_of(run: &Run, backend: &str) -> Vec<(String, String)> {
    let findings = run.json()["findings"].as_array().unwrap().clone();
    let of_backend = findings.into_iter().filter(|finding| finding["check"] == backend);
    let word = |value: &Value| value.as_str().unwrap().to_owned();
    of_backend
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

/// The findings of all escape attempts in a sandbox that holds.
fn passed_attempts(env: &TestEnv) -> Vec<(String, String)> {
    let user = env.user.path().display();
    [
        "ran a command".to_owned(),
        format!("cannot read {}/config.yaml", env.home.path().display()),
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
fn nothing_escapes_the_sandbox_and_nothing_remains() {
    let env = with_key("terminal: {backend: sandbox}\n");
    let run = env.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.out.contains("hunter2"));
    let findings = findings_of(&run, "sandbox");
    assert_eq!(findings[findings.len() - 11..], passed_attempts(&env), "{findings:#?}");
    assert_eq!(env.remaining_paths(), [] as [PathBuf; 0]);
    assert_eq!(fs::read_dir(env.user.path()).unwrap().count(), 1);
}

#[test]
fn nothing_escapes_the_sandbox_of_an_unprivileged_user() {
    let env = with_key("terminal: {backend: sandbox}\n");
    let run = env.run_unprivileged(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let findings = findings_of(&run, "sandbox");
    assert_eq!(findings[findings.len() - 11..], passed_attempts(&env), "{findings:#?}");
    assert_eq!(env.remaining_paths(), [] as [PathBuf; 0]);
}

#[test]
fn the_guard_of_the_local_backend_is_tried() {
    let env = TestEnv::new("");
    // A program below `/tmp` would not run without a question.
    let home = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let user = home.path().display();
    fs::create_dir(home.path().join(".ssh")).unwrap();
    fs::write(home.path().join(".ssh/id_test"), "hunter2\n").unwrap();
    fs::write(home.path().join(".bashrc"), "alias ll='ls -l'\n").unwrap();
    let mut command = env.command(&["doctor", "--live", "--json"]);
    let run = Run::of(command.env("HOME", home.path()).output().unwrap());
    assert_eq!(run.code, Some(0), "{run:?}");
    assert!(!run.out.contains("hunter2"));
    assert_eq!(findings_of(&run, "guard"), [("ok".to_owned(), "works (protect)".to_owned())]);
    let attempts = [
        "cannot signal a process outside".to_owned(),
        "cannot reach an abstract socket of this machine".to_owned(),
        format!("cannot read {}/.install-id", env.home.path().display()),
        format!("cannot read {user}/.ssh/id_test"),
        format!("cannot change {user}/.bashrc"),
    ]
    .map(|detail| ("ok".to_owned(), detail));
    let findings = findings_of(&run, "local");
    assert_eq!(findings[findings.len() - attempts.len()..], attempts, "{findings:#?}");
    assert_eq!(env.remaining_paths(), [] as [PathBuf; 0]);
    assert_eq!(fs::read_to_string(home.path().join(".bashrc")).unwrap(), "alias ll='ls -l'\n");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 2);
}

#[test]
fn a_missing_guard_is_reported_and_unread_code_asks() {
    let env = TestEnv::new("");
    fs::write(env.work.path().join("Makefile"), "all:\n\techo built\n").unwrap();
    let run = |args: &[&str]| env.run_without_namespaces(args);
    let status = run(&["status", "--json"]).json();
    assert!(status["backends"]["local"]["guard"]["problem"].is_string(), "{status}");
    let finding = &findings_of(&run(&["doctor", "--json"]), "guard")[0];
    assert!(finding.0 == "warning" && finding.1.starts_with("not available"), "{finding:?}");
    let listed = run(&["exec", "--", "echo fine"]);
    assert_eq!((listed.code, listed.out.as_str()), (Some(0), "fine\n"), "{listed:?}");
    assert!(listed.err.contains("the guard is not available"), "{listed:?}");
    let made = run(&["exec", "--", "make"]);
    assert_eq!(made.code, Some(4), "{made:?}");
    assert!(made.err.contains("runs code that was not read"), "{made:?}");
    assert_eq!(run(&["exec", "--yes", "--", "make"]).code, Some(0));
}

#[test]
fn the_local_backend_runs_a_command_without_confinement() {
    let env = TestEnv::new("terminal: {guard: 'off'}\n");
    let run = env.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let ok = |detail: &str| ("ok".to_owned(), detail.to_owned());
    assert_eq!(
        findings_of(&run, "local"),
        [ok("works; it does not isolate commands, so dangerous ones need approval"), ok("ran a command")]
    );
    assert!(run.out.contains("; not confined"), "{}", run.out);
    assert_eq!(env.remaining_paths(), [] as [PathBuf; 0]);
}

#[test]
fn attempts_that_need_approval_are_skipped_without_consent() {
    let env =
        with_key("terminal: {backend: sandbox}\napprovals: {deny: [\"mount *\"], ask: [\"unshare *\"]}\n");
    let state = |args: &[&str], about: &str| {
        let run = env.run(&[&["doctor", "--live", "--json"], args].concat());
        let found = findings_of(&run, "sandbox").into_iter().find(|(_, detail)| detail.contains(about));
        found.unwrap_or_else(|| panic!("{run:?}")).0
    };
    assert_eq!(state(&[], "user namespace"), "warning");
    assert_eq!(state(&["--yes"], "user namespace"), "ok");
    assert_eq!(state(&["--yes"], "can mount"), "warning");
    assert_eq!(env.run(&["doctor", "--yes"]).code, Some(2));
}

#[test]
fn a_mounted_secret_is_reported() {
    let env = with_key("");
    let keys = env.user.path().join(".ssh").display().to_string();
    let config = format!("terminal: {{backend: sandbox, docker_volumes: [\"{keys}/id_test:/key:ro\"]}}\n");
    env.home.write("config.yaml", config);
    let run = env.run(&["doctor", "--live", "--json"]);
    assert_eq!(run.code, Some(0), "{run:?}");
    let expected = ("warning".to_owned(), format!("can read {keys}/id_test, which is mounted"));
    assert!(findings_of(&run, "sandbox").contains(&expected), "{run:?}");
    let remedies: Vec<Value> =
        run.json()["findings"].as_array().unwrap().iter().map(|f| f["remedy"].clone()).collect();
    assert!(remedies.contains(&json!("Remove it from terminal.docker_volumes.")), "{remedies:?}");
}
