//! `hermes exec` with the local backend and in a sandbox.

use std::io::Write;
use std::process::Stdio;

use hermes_testkit::eventually;
use serde_json::json;

use crate::Run;
use crate::env::CommandEnv;

fn with(config: &str) -> CommandEnv {
    CommandEnv::new("exec", config)
}

#[test]
fn exit_code_and_output_are_those_of_the_command() {
    let env = with("");
    let done = env.run(&["--", "echo out; echo err >&2; exit 7"]);
    assert_eq!((done.code, done.out.as_str()), (Some(7), "out\nerr\n"), "{done:?}");
    let words = env.run(&["--", "printf", "%s|", "a b", "c'd"]);
    assert_eq!(words.out, "a b|c'd|");
}

#[test]
fn a_session_persists_between_processes() {
    let env = with("");
    env.run(&["--session", "any \\n key/..", "--", "mkdir d; cd d; export A=1; f() { echo f; }"]);
    let next = env.run(&["--session", "any \\n key/..", "--json", "--", "echo $A; f"]).json();
    assert_eq!(next["output"], "1\nf\n");
    assert_eq!(next["cwd"], env.path().join("d").display().to_string());
    assert_eq!(next["place_reset"], false);
    let other = env.run(&["--session", "other", "--", "echo \"[$A]\"; pwd"]);
    assert_eq!(other.out, format!("[]\n{}\n", env.path().display()));
}

#[test]
fn a_misspelled_option_is_not_a_command() {
    let env = with("");
    let mistyped = env.run(&["--sesion", "x", "--", "touch ran"]);
    assert_eq!((mistyped.code, mistyped.out.as_str()), (Some(2), ""), "{mistyped:?}");
    assert_eq!(env.run(&["--timeout", "0", "--", "touch ran"]).code, Some(2));
    assert!(!env.path().join("ran").exists());
    assert_eq!(env.run(&["printf", "%s|", "--json", "-x"]).out, "--json|-x|");
}

#[test]
fn a_lost_session_state_is_reported() {
    let env = with("");
    let report = |args: &[&str]| {
        let done = env.run(args);
        (done.code, done.err)
    };
    let missing = "nothing was run: /not/there is not a directory there\n";
    assert_eq!(report(&["--cwd", "/not/there", "--", "true"]), (Some(126), missing.to_owned()));
    env.run(&["--", "mkdir d; cd d"]);
    std::fs::remove_dir(env.path().join("d")).unwrap();
    let next = env.path().display();
    let gone = format!("nothing was run: the session's directory is gone; the next command runs in {next}\n");
    assert_eq!(report(&["--", "true"]), (Some(126), gone));
    let unset = "warning: UNSET is not set; the command does not get it\n";
    assert_eq!(report(&["--env", "UNSET", "--", "true"]), (Some(0), unset.to_owned()));
}

#[test]
fn a_dangerous_command_needs_approval() {
    let env = with("");
    std::fs::write(env.path().join("victim"), "x").unwrap();
    let asked = env.run(&["--json", "--", "cd /srv && rm -rf nothing-of-ours; rm -f $V/victim"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    let refused = &asked.json()["refused"];
    assert!(refused["question"].as_str().unwrap().starts_with("q_"), "{refused}");
    assert!(!refused["rules"].as_array().unwrap().is_empty());
    let floor = env.run(&["--yes", "--", "rm -rf /"]);
    assert_eq!(floor.code, Some(4), "{floor:?}");
    assert!(floor.err.contains("never allowed"), "{floor:?}");
    assert!(env.path().join("victim").exists());
    let yes = env.run(&["--yes", "--", "chmod 777 victim && echo done"]);
    assert_eq!((yes.code, yes.out.as_str()), (Some(0), "done\n"), "{yes:?}");
}

#[test]
fn only_a_question_creates_the_store() {
    let env = with("");
    let store = env.home.path().join("hermes.db");
    for command in ["echo hi", "mkdir -p build; rm -rf build", "exit 3"] {
        env.run(&["--", command]);
        assert!(!store.exists(), "{command}");
    }
    // The command cannot be approved, so no question is stored.
    assert_eq!(env.run(&["--", "rm -rf /"]).code, Some(4));
    assert!(!store.exists());
    assert_eq!(env.run(&["--", "chmod 777 victim"]).code, Some(4));
    assert!(store.exists());
}

#[test]
fn a_relative_path_is_judged_in_the_directory_of_the_session() {
    let env = with("");
    env.run(&["--session", "s", "--", "mkdir -p a/build; cd a"]);
    assert_eq!(env.run(&["--session", "s", "--", "rm -rf build"]).code, Some(0));
    env.run(&["--session", "s", "--", "cd /"]);
    let in_the_root = env.run(&["--session", "s", "--", "rm -rf home"]);
    assert_eq!(in_the_root.code, Some(4), "{in_the_root:?}");
}

#[test]
fn a_missing_backend_runs_nothing() {
    let env = with("");
    for backend in ["docker", "ssh", "singularity", "modal", "daytona", "kubernetes"] {
        let failed = env.run(&["--json", "--backend", backend, "--", "touch ran"]);
        assert_eq!(failed.code, Some(5), "{failed:?}");
        assert_eq!(failed.json()["error"]["kind"], json!("unavailable"));
    }
    assert!(!env.path().join("ran").exists());
}

#[test]
fn only_listed_variables_are_passed() {
    let env = with("terminal: {env_passthrough: [LISTED]}\n");
    let mut command = env.command(&["--env", "GIVEN", "--", "echo \"[$LISTED] [$GIVEN] [$SECRET_TOKEN]\""]);
    command.env("LISTED", "1").env("GIVEN", "2").env("SECRET_TOKEN", "3");
    assert_eq!(Run::of(command.output().unwrap()).out, "[1] [2] []\n");
}

#[test]
fn standard_input_reaches_the_command() {
    let env = with("");
    let mut child = env
        .command(&["--stdin", "--", "wc -c"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&[b'x'; 100_000]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), "100000");
}

#[test]
fn a_timed_out_command_exits_with_124_and_its_output() {
    let env = with("");
    let done = env.run(&["--timeout", "1", "--json", "--", "echo before; sleep 60"]);
    assert_eq!(done.code, Some(124));
    let report = done.json();
    assert_eq!((&report["timed_out"], &report["output"]), (&json!(true), &json!("before\n")));
}

#[test]
fn one_shot_leaves_nothing_behind() {
    let env = with("");
    let done = env.run(&["--session", "", "--", "echo hi"]);
    assert_eq!(done.out, "hi\n", "{done:?}");
    let left: Vec<_> = std::fs::read_dir(env.home.path().join("run"))
        .unwrap()
        .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(left, [] as [std::path::PathBuf; 0]);
}

#[test]
fn the_sandbox_writes_only_its_own_files() {
    let env = with("");
    let sandbox = ["--backend", "sandbox", "--session", "s", "--"];
    let outside = env.path().join("outside");
    let first = format!("echo mine > f; export A=1; cd /tmp; echo x > {}; echo wrote $?", outside.display());
    let first = env.run(&[&sandbox[..], &[&first]].concat());
    assert!(first.out.ends_with("wrote 1\n"), "{first:?}");
    assert!(!outside.exists());
    let next = env.run(&[&sandbox[..], &["pwd; cat /workspace/f; echo $A"]].concat());
    assert_eq!(next.out, "/tmp\nmine\n1\n", "{next:?}");
    let other = env.run(&["--backend", "sandbox", "--session", "t", "--", "ls -A /workspace; echo \"[$A]\""]);
    assert_eq!(other.out, "[]\n", "{other:?}");
}

#[test]
fn the_sandbox_needs_no_approval_and_hides_the_home() {
    let env = with("");
    env.home.write(".env", "THE_TOKEN=hunter2\n");
    let secrets = env.home.path().join(".env").display().to_string();
    let run = |command: &str| env.run(&["--backend", "sandbox", "--session", "s", "--", command]);
    let read = run(&format!("cat {secrets}; cat /proc/1/environ /proc/self/environ"));
    assert!(!format!("{read:?}").contains("hunter2"), "{read:?}");
    // On the host this would be refused; in the sandbox it is harmless.
    let wild = run("rm -rf /workspace/* ~ 2>/dev/null; echo alive");
    assert_eq!((wild.code, wild.out.as_str()), (Some(0), "alive\n"), "{wild:?}");
    let network = run("exec 3<>/dev/tcp/127.0.0.1/22");
    assert_ne!(network.code, Some(0), "{network:?}");
}

#[test]
fn a_closed_pipe_ends_the_command_silently() {
    let env = with("");
    let mut child = env.command(&["--session", "s", "--", "echo $$; exec yes"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    let count = std::io::Read::read(&mut child.stdout.take().unwrap(), &mut first).unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
    let pid = String::from_utf8_lossy(&first[..count]).lines().next().unwrap().to_owned();
    // The guest kills a command whose client is gone.
    let gone = format!("while kill -0 {pid} 2>/dev/null; do :; done; echo gone");
    assert_eq!(env.run(&["--session", "s", "--timeout", "30", "--", &gone]).out, "gone\n");
}

#[test]
fn truncated_output_names_the_file_with_the_full_output() {
    let env = with("tool_output: {max_bytes: 5000}");
    let cut = env.run(&["--session", "s", "--json", "--", "seq 1 20000"]).json();
    assert_eq!(json!([cut["truncated"], cut["total_bytes"]]), json!([true, 108_894]), "{cut}");
    let spool = cut["spool"].as_str().unwrap();
    let whole = env.run(&["--session", "s", "--", &format!("wc -c < {spool}; tail -n 1 {spool}")]);
    assert_eq!(whole.out, "108894\n20000\n");
    let short = env.run(&["--session", "s", "--json", "--", "echo x"]).json();
    assert_eq!(json!([short["truncated"], short["spool"]]), json!([false, null]));
}

#[test]
fn an_impossible_confinement_is_refused() {
    for (network, code) in [("none", Some(3)), ("proxy", Some(3)), ("full", Some(0))] {
        let env = with(&format!("terminal: {{network: {network}}}\n"));
        let done = env.run(&["--backend", "local", "--", "touch ran"]);
        assert_eq!(done.code, code, "{done:?}");
        assert_eq!(env.path().join("ran").exists(), network == "full", "{network}");
        assert_eq!(done.err.contains("cannot confine the network"), network != "full", "{done:?}");
    }
    // With the host network, a sandbox is not isolated from the machine.
    let full = with("terminal: {network: full}\n");
    let asked = full.run(&["--backend", "sandbox", "--", "git push --force"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
}

/// Requests an address that the proxy refuses; the status 403 shows that the proxy is running.
const PROXY_PROBE: &str =
    "curl -s -o /dev/null -w '%{http_code}' --max-time 20 --noproxy '' http://127.0.0.2/";

#[test]
fn a_sandbox_has_the_proxy_unless_the_network_is_none() {
    let names = "env | grep -i proxy | sort";
    let env = with("terminal: {backend: sandbox}\n");
    let done = env.run(&["--session", "", "--", &format!("{names}; {PROXY_PROBE}")]);
    let expected = "ALL_PROXY=http://127.0.0.1:13128\nHTTPS_PROXY=http://127.0.0.1:13128\n\
                    HTTP_PROXY=http://127.0.0.1:13128\nNODE_USE_ENV_PROXY=1\nNO_PROXY=localhost,127.0.0.1,::1\n\
                    all_proxy=http://127.0.0.1:13128\nhttp_proxy=http://127.0.0.1:13128\n\
                    https_proxy=http://127.0.0.1:13128\nno_proxy=localhost,127.0.0.1,::1\n403";
    assert_eq!((done.code, done.out.as_str()), (Some(0), expected), "{done:?}");
    let env = with("terminal: {backend: sandbox, network: none}\n");
    let done =
        env.run(&["--session", "", "--", &format!("{names}; {PROXY_PROBE} -x http://127.0.0.1:13128")]);
    assert_eq!((done.code, done.out.as_str()), (Some(7), "000"), "{done:?}");
}

#[test]
fn a_background_process_in_a_sandbox_keeps_its_proxy_until_it_ends() {
    let env = with("terminal: {backend: sandbox}\n");
    let wait = format!("until [ -e go ]; do sleep 0.05; done; {PROXY_PROBE} >answer; mv answer done");
    let background = env.run(&["--json", "--background", "--", &wait]).json();
    // A foreground command leaves a process in the same environment.
    let left =
        env.run(&["--json", "--", "(until [ -e done ]; do sleep 0.05; done; touch last) & echo left"]).json();
    assert_eq!(left["place"], background["place"]);
    let place = background["place"].as_str().unwrap();
    let workspace = env.home.path().join("sandboxes/sandbox").join(place).join("workspace");
    let is_proxy_running = || {
        let run = std::fs::read_dir(env.home.path().join("run")).unwrap().next().unwrap().unwrap().path();
        run.join(format!(".proxy-{place}")).exists()
    };
    eventually("a proxy is running", is_proxy_running);
    std::fs::write(workspace.join("go"), "").unwrap();
    eventually("both processes have ended", || workspace.join("last").exists());
    assert_eq!(std::fs::read_to_string(workspace.join("done")).unwrap(), "403");
    eventually("the proxy has ended", || !is_proxy_running());
}
