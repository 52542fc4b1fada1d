//! A command that Hermes runs cannot use Hermes to change what is allowed.

use std::fs;
use std::time::{Duration, Instant};

use crate::env::TestEnv;

#[test]
fn a_command_cannot_use_hermes_to_change_what_is_allowed() {
    let env = TestEnv::new("terminal:\n  backend: local\n");
    let other = TestEnv::new("");
    let config = other.home.path().join("config.yaml");
    fs::write(&config, "").unwrap();
    // The gate does not know the copy, so only the program itself can refuse.
    let tool = env.work.path().join("tool");
    fs::copy(env!("CARGO_BIN_EXE_hermes"), &tool).unwrap();
    std::os::unix::fs::symlink(&tool, env.work.path().join("link")).unwrap();
    let set = format!("--home {} config set approvals.mode off", other.home.path().display());
    let argv: Vec<String> = set.split(' ').map(|word| format!("{word:?}")).collect();
    for command in [
        format!("./tool {set}"),
        format!("./link {set}"),
        format!("env -i ./tool {set}"),
        format!(
            "python3 -c 'import subprocess, sys; sys.exit(subprocess.call([\"./tool\", {}]))'",
            argv.join(", ")
        ),
        format!("setsid --wait ./tool {set}"),
    ] {
        let run = env.run(&["exec", "--session", "s", "--yes", "--", &command]);
        assert_eq!(run.code, Some(4), "{command}: {run:?}");
        let expected = "cannot run 'hermes config set' from a command that Hermes runs";
        assert!(format!("{run:?}").contains(expected), "{command}: {run:?}");
    }
    // A process whose parents have all ended.
    let detached = format!("(setsid sh -c 'sleep 0.2; ./tool {set}; echo $? > code' > /dev/null 2>&1 &)");
    assert_eq!(env.run(&["exec", "--session", "s", "--yes", "--", &detached]).code, Some(0));
    let deadline = Instant::now() + Duration::from_secs(30);
    while fs::read_to_string(env.work.path().join("code")).unwrap_or_default().is_empty() {
        assert!(Instant::now() < deadline, "the detached command did not end");
    }
    assert_eq!(fs::read_to_string(env.work.path().join("code")).unwrap(), "4\n");
    assert_eq!(fs::read_to_string(&config).unwrap(), "");
    let run = env.run(&["exec", "--session", "s", "--yes", "--", "./tool config get approvals.mode"]);
    assert_eq!(run.code, Some(0), "reading is harmless: {run:?}");
}
