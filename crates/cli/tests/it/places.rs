//! `hermes sandbox`, `hermes process` and `hermes shell` with the real program.

use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{Home, Run};

/// A home directory whose environments are removed on drop.
struct PlacesEnv {
    home: Home,
    work: tempfile::TempDir,
}

impl PlacesEnv {
    fn new() -> Self {
        Self { home: Home::with_config(""), work: tempfile::tempdir().unwrap() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        let run = self.home.path().join("run");
        std::fs::create_dir_all(&run).unwrap();
        command
            .env("XDG_RUNTIME_DIR", run)
            .env("HOME", "/home/nobody")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir(self.work.path());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn places(&self) -> Vec<Value> {
        let listed = self.run(&["sandbox", "ls", "--json"]).json();
        listed["places"].as_array().unwrap().clone()
    }

    /// Runs `hermes shell` on a terminal and types this text.
    fn shell(&self, session: &str, typed: &str) -> Run {
        let hermes = self.command(&[]);
        let line =
            format!("{} shell --backend sandbox --session '{session}'", hermes.get_program().display());
        #[expect(clippy::disallowed_methods, reason = "a terminal around the program under test")]
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear();
        script.envs(hermes.get_envs().filter_map(|(name, value)| Some((name, value?))));
        script.current_dir(self.work.path());
        let mut child =
            script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::io::Write::write_all(&mut stdin, typed.as_bytes()).unwrap();
        let done = Run::of(child.wait_with_output().unwrap());
        drop(stdin);
        done
    }
}

impl Drop for PlacesEnv {
    fn drop(&mut self) {
        for place in self.places() {
            self.run(&["sandbox", "rm", "--force", place["name"].as_str().unwrap()]);
        }
    }
}

#[test]
fn before_the_first_environment_no_guessable_directory_is_read() {
    let env = PlacesEnv::new();
    // Another user could create this directory in /tmp in advance.
    let planted = env.home.path().join("run/hermes-");
    std::fs::create_dir_all(planted.join("hermes-1a2b3c4d")).unwrap();
    std::fs::set_permissions(&planted, PermissionsExt::from_mode(0o777)).unwrap();
    assert_eq!(env.places(), [] as [Value; 0]);
    let pruned = env.run(&["sandbox", "prune", "--files", "--json"]);
    assert_eq!(pruned.json(), json!({"ended": [], "files_removed": []}));
    assert!(planted.join("hermes-1a2b3c4d").exists());
}

#[test]
fn places_are_listed_shown_and_removed_with_their_files() {
    let env = PlacesEnv::new();
    assert_eq!(env.places(), [] as [Value; 0]);
    let made =
        env.run(&["exec", "--backend", "sandbox", "--session", "a\nb", "--json", "--", "echo x > file"]);
    let name = made.json()["place"].as_str().unwrap().to_owned();
    let listed = env.places();
    let [place] = &listed[..] else { panic!("{listed:?}") };
    let facts = |key: &str| place[key].clone();
    assert_eq!(
        json!([
            facts("name"),
            facts("session"),
            facts("backend"),
            facts("state"),
            facts("running"),
            facts("reach")
        ]),
        json!([name, "a\nb", "sandbox", "idle", 0, "nothing"])
    );
    let file = env.home.path().join("sandboxes/sandbox").join(&name).join("workspace/file");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "x\n");
    let shown = env.run(&["sandbox", "show", &name]);
    assert!(
        shown.out.contains("session   a b\n") && shown.out.contains("nothing of this machine"),
        "{shown:?}"
    );
    let removed = env.run(&["sandbox", "rm", "a\nb"]);
    assert_eq!((removed.code, removed.out), (Some(0), format!("{name}\n")));
    assert!(!file.exists());
    assert_eq!(env.places(), [] as [Value; 0]);
    let missing = env.run(&["sandbox", "rm", &name]);
    assert_eq!(missing.code, Some(1), "{missing:?}");
}

#[test]
fn rm_all_removes_every_environment_and_needs_force_for_busy_ones() {
    let env = PlacesEnv::new();
    env.run(&["exec", "--backend", "sandbox", "--session", "idle", "--", "true"]);
    env.run(&["exec", "--session", "busy", "--background", "--", "sleep 1000"]);
    let refused = env.run(&["sandbox", "rm", "--all"]);
    assert!(refused.code == Some(1) && refused.err.contains("in use"), "{refused:?}");
    assert_eq!(env.places().len(), 2);
    let removed = env.run(&["sandbox", "rm", "--all", "-f", "--json"]);
    assert_eq!((removed.code, removed.json()["removed"].as_array().unwrap().len()), (Some(0), 2));
    assert_eq!(env.places(), [] as [Value; 0]);
    assert_eq!(env.run(&["sandbox", "rm"]).code, Some(2));
}

#[test]
fn prune_removes_idle_environments_and_files_only_on_request() {
    let env = PlacesEnv::new();
    env.run(&["exec", "--backend", "sandbox", "--session", "idle", "--", "echo x > file"]);
    env.run(&["exec", "--session", "busy", "--background", "--", "sleep 1000"]);
    let idle = env.run(&["sandbox", "show", "idle", "--json"]).json();
    let pruned = env.run(&["sandbox", "prune", "--json"]).json();
    assert_eq!(pruned, json!({"ended": [idle["name"]], "files_removed": []}));
    let states = |env: &PlacesEnv| {
        let mut states: Vec<_> = env
            .places()
            .iter()
            .map(|place| {
                format!("{} {}", place["session"].as_str().unwrap(), place["state"].as_str().unwrap())
            })
            .collect();
        states.sort();
        states
    };
    assert_eq!(states(&env), ["busy running", "idle asleep"]);
    let refused = env.run(&["sandbox", "rm", "busy"]);
    assert!(refused.code == Some(1) && refused.err.contains("in use"), "{refused:?}");
    let woken =
        env.run(&["exec", "--backend", "sandbox", "--session", "idle", "--json", "--", "cat file"]).json();
    assert_eq!(json!([woken["output"], woken["place_reset"]]), json!(["x\n", true]));
    env.run(&["sandbox", "prune", "--files"]);
    assert_eq!(states(&env), ["busy running"]);
    assert!(!std::path::Path::new(idle["files"].as_str().unwrap()).exists());
}

#[test]
fn a_session_named_like_another_environment_is_not_confused_with_it() {
    let env = PlacesEnv::new();
    let started = env.run(&["exec", "--session", "s", "--background", "--", "echo mine; sleep 1000"]);
    let handle = started.out.trim();
    let place = handle.split('_').nth(1).unwrap();
    assert_eq!(env.run(&["exec", "--session", place, "--", "true"]).code, Some(0));
    let killed = env.run(&["process", "kill", handle]);
    assert_eq!((killed.code, killed.out), (Some(0), format!("killed {handle}\n")));
}

#[test]
fn a_background_process_can_be_found_read_written_awaited_and_killed() {
    let env = PlacesEnv::new();
    let started = env.run(&[
        "exec",
        "--session",
        "s",
        "--background",
        "--",
        "while read x; do echo \"<$x>\"; done; exit 3",
    ]);
    let id = started.out.trim();
    let listed = env.run(&["process", "ls", "--json"]).json();
    let [process] = &listed["processes"].as_array().unwrap()[..] else { panic!("{listed}") };
    assert_eq!(
        json!([process["id"], process["running"], process["exit_code"], process["session"]]),
        json!([id, true, null, "s"])
    );
    let late = env.run(&["process", "wait", id, "--timeout", "0"]);
    assert_eq!(late.code, Some(124), "{late:?}");
    assert_eq!(env.run(&["process", "write", id, "hello there"]).code, Some(0));
    let floor = env.run(&["process", "write", "--yes", id, "rm -rf /"]);
    assert_eq!(floor.code, Some(4), "{floor:?}");
    assert_eq!(env.run(&["process", "write", "--close", id, "bye"]).code, Some(0));
    assert_eq!(env.run(&["process", "wait", id]).code, Some(3));
    assert_eq!(env.run(&["process", "log", id]).out, "<hello there>\n<bye>\n");
    assert_eq!(env.run(&["process", "log", "--follow", id]).out, "<hello there>\n<bye>\n");
    assert_eq!(env.run(&["process", "log", "--offset", "-6", "--limit", "5", id]).out, "<bye>");

    let long =
        env.run(&["exec", "--session", "s", "--background", "--json", "--", "sleep 1000 & sleep 1000"]);
    let id = long.json()["process"].as_str().unwrap().to_owned();
    let killed = env.run(&["process", "kill", &id, "--json"]).json();
    assert_eq!(killed["running"], false);
    for wrong in ["nonsense", "proc_00000000_1_1"] {
        let missing = env.run(&["process", "log", wrong]);
        assert!(matches!(missing.code, Some(1 | 2)) && missing.err.contains("process"), "{missing:?}");
    }
}

#[test]
fn a_shell_has_a_terminal_and_returns_its_exit_code() {
    let env = PlacesEnv::new();
    env.run(&["exec", "--backend", "sandbox", "--session", "s", "--", "export FROM=exec; mkdir d; cd d"]);
    let done = env.shell("s", "test -t 0 && echo \"[$FROM $PWD]\"; exit 7\n");
    assert!(done.out.contains("[exec /workspace/d]") && done.code == Some(7), "{done:?}");
    let piped = env.run(&["shell"]);
    assert!(piped.code == Some(2) && piped.err.contains("requires a terminal"), "{piped:?}");
}

#[test]
fn a_refused_one_shot_shell_leaves_no_environment() {
    let env = PlacesEnv::new();
    std::fs::write(env.home.path().join("config.yaml"), "approvals: {deny: ['bash *']}\n").unwrap();
    let refused = env.shell("", "");
    assert_eq!(refused.code, Some(4), "{refused:?}");
    assert_eq!(env.places(), [] as [Value; 0]);
}
