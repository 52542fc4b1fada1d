//! What one command leaves in its session is part of the judgment of the next one.

use std::fs;

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
