//! What one command leaves in its session is part of the judgment of the next one.

use std::fs;
use std::io::Write;

use crate::env::TestEnv;

/// Runs commands in one session of the local backend, without a terminal to ask on.
fn run(env: &TestEnv, command: &str) -> crate::Run {
    env.run(&["exec", "--session", "s", "--json", "--", command])
}

/// Whether a stored question contains a text.
fn was_stored(env: &TestEnv, text: &str) -> bool {
    ["hermes.db", "hermes.db-wal"].iter().any(|name| {
        let bytes = fs::read(env.home.path().join(name)).unwrap_or_default();
        String::from_utf8_lossy(&bytes).contains(text)
    })
}

#[test]
fn the_state_of_a_session_reaches_the_gate() {
    let env = TestEnv::new("terminal:\n  backend: local\n");
    let changes = [
        ("alias ll=true", r#""aliases":{"ll":"true"}"#),
        ("unalias ll; greet() { echo hi; }", r#""functions":{"greet":"greet () "#),
        ("unset -f greet; export CDPATH=/srv", r#""variables":{"CDPATH":"/srv""#),
        ("unset CDPATH; export HOME=/var", r#""variables":{"HOME":"/var""#),
        ("export HOME=/; cd /; cd /tmp", r#""OLDPWD":"/""#),
    ];
    for (change, expected) in changes {
        assert_eq!(run(&env, change).code, Some(0), "{change}");
        assert!(!was_stored(&env, expected), "{change}");
        assert_eq!(run(&env, "sudo id").code, Some(4), "{change}");
        assert!(was_stored(&env, expected), "{change}");
    }
}

#[test]
fn input_typed_in_pieces_is_judged_as_a_whole() {
    let env = TestEnv::new("terminal:\n  backend: local\n");
    let documents = env.user.path().join("Documents");
    fs::create_dir(&documents).unwrap();
    let start = env.run(&["exec", "--session", "s", "--background", "--yes", "--json", "--", "bash"]);
    let id = start.json()["process"].as_str().unwrap_or_else(|| panic!("{start:?}")).to_owned();
    let write = |text: &str| {
        let mut command = env.command(&["process", "write", &id]);
        command.stdin(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        child.wait().unwrap().code()
    };
    assert_eq!(write("rm -rf "), Some(0));
    assert_eq!(write("~/Documents\n"), Some(4), "the end of a line that removes files");
    assert_eq!(write("./missing\ncd ~\n"), Some(0));
    assert_eq!(write("rm -rf Documents\n"), Some(4), "in the directory that was entered before");
    assert!(documents.exists());
    assert_eq!(env.run(&["process", "kill", &id]).code, Some(0));
}
