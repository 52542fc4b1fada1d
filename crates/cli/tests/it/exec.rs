//! `hermes exec` on this machine, through the gate.

use std::io::Write;
use std::process::Stdio;

use serde_json::json;

use crate::Run;
use crate::desk::Desk;

fn with(config: &str) -> Desk {
    Desk::new("exec", config)
}

#[test]
fn the_exit_code_and_the_output_are_the_commands_own() {
    let desk = with("");
    let done = desk.run(&["--", "echo out; echo err >&2; exit 7"]);
    assert_eq!((done.code, done.out.as_str()), (Some(7), "out\nerr\n"), "{done:?}");
    let words = desk.run(&["--", "printf", "%s|", "a b", "c'd"]);
    assert_eq!(words.out, "a b|c'd|");
}

#[test]
fn a_session_lives_on_between_processes() {
    let desk = with("");
    desk.run(&["--session", "any \\n key/..", "--", "mkdir d; cd d; export A=1; f() { echo f; }"]);
    let next = desk.run(&["--session", "any \\n key/..", "--json", "--", "echo $A; f"]).json();
    assert_eq!(next["output"], "1\nf\n");
    assert_eq!(next["cwd"], desk.path().join("d").display().to_string());
    assert_eq!(next["place_reset"], false);
    let other = desk.run(&["--session", "other", "--", "echo \"[$A]\"; pwd"]);
    assert_eq!(other.out, format!("[]\n{}\n", desk.path().display()));
}

#[test]
fn an_option_that_is_mistyped_is_no_command() {
    let desk = with("");
    let mistyped = desk.run(&["--sesion", "x", "--", "touch ran"]);
    assert_eq!((mistyped.code, mistyped.out.as_str()), (Some(2), ""), "{mistyped:?}");
    assert_eq!(desk.run(&["--timeout", "0", "--", "touch ran"]).code, Some(2));
    assert!(!desk.path().join("ran").exists());
    assert_eq!(desk.run(&["printf", "%s|", "--json", "-x"]).out, "--json|-x|");
}

#[test]
fn whoever_uses_a_session_is_told_what_is_not_as_it_was() {
    let desk = with("");
    let told = |args: &[&str]| {
        let done = desk.run(args);
        (done.code, done.err)
    };
    let missing = "nothing was run: /not/there is not a directory there\n";
    assert_eq!(told(&["--cwd", "/not/there", "--", "true"]), (Some(126), missing.to_owned()));
    desk.run(&["--", "mkdir d; cd d"]);
    std::fs::remove_dir(desk.path().join("d")).unwrap();
    let next = desk.path().display();
    let gone = format!("nothing was run: the session's directory is gone; the next command runs in {next}\n");
    assert_eq!(told(&["--", "true"]), (Some(126), gone));
    let unset = "warning: UNSET is not set; the command does not get it\n";
    assert_eq!(told(&["--env", "UNSET", "--", "true"]), (Some(0), unset.to_owned()));
}

#[test]
fn nothing_dangerous_runs_unasked() {
    let desk = with("");
    std::fs::write(desk.path().join("victim"), "x").unwrap();
    let asked = desk.run(&["--json", "--", "cd /srv && rm -rf nothing-of-ours; rm -f $V/victim"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
    let refused = &asked.json()["refused"];
    assert!(refused["question"].as_str().unwrap().starts_with("q_"), "{refused}");
    assert!(!refused["rules"].as_array().unwrap().is_empty());
    let floor = desk.run(&["--yes", "--", "rm -rf /"]);
    assert_eq!(floor.code, Some(4), "{floor:?}");
    assert!(floor.err.contains("never allowed"), "{floor:?}");
    assert!(desk.path().join("victim").exists());
    let yes = desk.run(&["--yes", "--", "chmod 777 victim && echo done"]);
    assert_eq!((yes.code, yes.out.as_str()), (Some(0), "done\n"), "{yes:?}");
}

#[test]
fn the_store_is_made_for_questions_only() {
    let desk = with("");
    let store = desk.home.path().join("hermes.db");
    for command in ["echo hi", "mkdir -p build; rm -rf build", "exit 3"] {
        desk.run(&["--", command]);
        assert!(!store.exists(), "{command}");
    }
    // Nobody can allow it, so nobody is asked.
    assert_eq!(desk.run(&["--", "rm -rf /"]).code, Some(4));
    assert!(!store.exists());
    assert_eq!(desk.run(&["--", "chmod 777 victim"]).code, Some(4));
    assert!(store.exists());
}

#[test]
fn a_relative_path_is_judged_where_the_session_is() {
    let desk = with("");
    desk.run(&["--session", "s", "--", "mkdir -p a/build; cd a"]);
    assert_eq!(desk.run(&["--session", "s", "--", "rm -rf build"]).code, Some(0));
    desk.run(&["--session", "s", "--", "cd /"]);
    let in_the_root = desk.run(&["--session", "s", "--", "rm -rf home"]);
    assert_eq!(in_the_root.code, Some(4), "{in_the_root:?}");
}

#[test]
fn a_backend_that_is_not_there_runs_nothing_anywhere() {
    let desk = with("");
    for backend in ["docker", "ssh", "singularity", "modal", "daytona", "kubernetes"] {
        let failed = desk.run(&["--json", "--backend", backend, "--", "touch ran"]);
        assert_eq!(failed.code, Some(5), "{failed:?}");
        assert_eq!(failed.json()["error"]["kind"], json!("unavailable"));
    }
    assert!(!desk.path().join("ran").exists());
}

#[test]
fn only_listed_variables_get_in() {
    let desk = with("terminal: {env_passthrough: [LISTED]}\n");
    let mut command = desk.command(&["--env", "GIVEN", "--", "echo \"[$LISTED] [$GIVEN] [$SECRET_TOKEN]\""]);
    command.env("LISTED", "1").env("GIVEN", "2").env("SECRET_TOKEN", "3");
    assert_eq!(Run::of(command.output().unwrap()).out, "[1] [2] []\n");
}

#[test]
fn standard_input_reaches_the_command() {
    let desk = with("");
    let mut child = desk
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
fn a_deadline_ends_it_with_124_and_what_it_said() {
    let desk = with("");
    let done = desk.run(&["--timeout", "1", "--json", "--", "echo before; sleep 60"]);
    assert_eq!(done.code, Some(124));
    let told = done.json();
    assert_eq!((&told["timed_out"], &told["output"]), (&json!(true), &json!("before\n")));
}

#[test]
fn one_shot_leaves_nothing_behind() {
    let desk = with("");
    let done = desk.run(&["--session", "", "--", "echo hi"]);
    assert_eq!(done.out, "hi\n", "{done:?}");
    let left: Vec<_> = std::fs::read_dir(desk.home.path().join("run"))
        .unwrap()
        .flat_map(|entry| std::fs::read_dir(entry.unwrap().path()).unwrap())
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir())
        .collect();
    assert_eq!(left, [] as [std::path::PathBuf; 0]);
}

#[test]
fn the_sandbox_keeps_its_own_files_and_writes_no_others() {
    let desk = with("");
    let sandbox = ["--backend", "sandbox", "--session", "s", "--"];
    let outside = desk.path().join("outside");
    let first = format!("echo mine > f; export A=1; cd /tmp; echo x > {}; echo wrote $?", outside.display());
    let first = desk.run(&[&sandbox[..], &[&first]].concat());
    assert!(first.out.ends_with("wrote 1\n"), "{first:?}");
    assert!(!outside.exists());
    let next = desk.run(&[&sandbox[..], &["pwd; cat /workspace/f; echo $A"]].concat());
    assert_eq!(next.out, "/tmp\nmine\n1\n", "{next:?}");
    let other =
        desk.run(&["--backend", "sandbox", "--session", "t", "--", "ls -A /workspace; echo \"[$A]\""]);
    assert_eq!(other.out, "[]\n", "{other:?}");
}

#[test]
fn the_sandbox_is_not_asked_about_and_hides_the_home() {
    let desk = with("");
    desk.home.write(".env", "THE_TOKEN=hunter2\n");
    let env = desk.home.path().join(".env").display().to_string();
    let run = |command: &str| desk.run(&["--backend", "sandbox", "--session", "s", "--", command]);
    let read = run(&format!("cat {env}; cat /proc/1/environ /proc/self/environ"));
    assert!(!format!("{read:?}").contains("hunter2"), "{read:?}");
    // On the host this would be refused; here it can hurt nobody.
    let wild = run("rm -rf /workspace/* ~ 2>/dev/null; echo alive");
    assert_eq!((wild.code, wild.out.as_str()), (Some(0), "alive\n"), "{wild:?}");
    let network = run("exec 3<>/dev/tcp/127.0.0.1/22");
    assert_ne!(network.code, Some(0), "{network:?}");
}

#[test]
fn a_reader_that_goes_away_ends_the_command_without_a_word() {
    let desk = with("");
    let mut child = desk.command(&["--session", "s", "--", "echo $$; exec yes"]);
    let mut child = child.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 16];
    let count = std::io::Read::read(&mut child.stdout.take().unwrap(), &mut first).unwrap();
    let run = Run::of(child.wait_with_output().unwrap());
    assert_eq!((run.code, run.err.as_str()), (Some(0), ""), "{run:?}");
    let pid = String::from_utf8_lossy(&first[..count]).lines().next().unwrap().to_owned();
    // The guest kills what nobody listens to any more; the next command of the session sees it gone.
    let gone = format!("while kill -0 {pid} 2>/dev/null; do :; done; echo gone");
    assert_eq!(desk.run(&["--session", "s", "--timeout", "30", "--", &gone]).out, "gone\n");
}

#[test]
fn what_was_left_out_of_an_output_is_said_and_where_all_of_it_is() {
    let desk = with("tool_output: {max_bytes: 5000}");
    let cut = desk.run(&["--session", "s", "--json", "--", "seq 1 20000"]).json();
    assert_eq!(json!([cut["truncated"], cut["total_bytes"]]), json!([true, 108_894]), "{cut}");
    let spool = cut["spool"].as_str().unwrap();
    let whole = desk.run(&["--session", "s", "--", &format!("wc -c < {spool}; tail -n 1 {spool}")]);
    assert_eq!(whole.out, "108894\n20000\n");
    let short = desk.run(&["--session", "s", "--json", "--", "echo x"]).json();
    assert_eq!(json!([short["truncated"], short["spool"]]), json!([false, null]));
}

#[test]
fn a_confinement_that_cannot_be_given_is_refused() {
    for (network, code) in [("none", Some(3)), ("proxy", Some(3)), ("full", Some(0))] {
        let desk = with(&format!("terminal: {{network: {network}}}\n"));
        let done = desk.run(&["--backend", "local", "--", "touch ran"]);
        assert_eq!(done.code, code, "{done:?}");
        assert_eq!(desk.path().join("ran").exists(), network == "full", "{network}");
        assert_eq!(done.err.contains("cannot confine the network"), network != "full", "{done:?}");
    }
    // With the machine's own network a jail can hurt the machine.
    let full = with("terminal: {network: full}\n");
    let asked = full.run(&["--backend", "sandbox", "--", "git push --force"]);
    assert_eq!(asked.code, Some(4), "{asked:?}");
}

/// Asks the proxy for something that it refuses, which shows that it is there.
const ASK_THE_PROXY: &str =
    "curl -s -o /dev/null -w '%{http_code}' --max-time 20 --noproxy '' http://127.0.0.2/";

#[test]
fn a_sandbox_has_the_proxy_unless_it_is_to_have_nothing() {
    let names = "env | grep -i proxy | sort";
    let desk = with("terminal: {backend: sandbox}\n");
    let done = desk.run(&["--session", "", "--", &format!("{names}; {ASK_THE_PROXY}")]);
    let expected = "ALL_PROXY=http://127.0.0.1:13128\nHTTPS_PROXY=http://127.0.0.1:13128\n\
                    HTTP_PROXY=http://127.0.0.1:13128\nNODE_USE_ENV_PROXY=1\nNO_PROXY=localhost,127.0.0.1,::1\n\
                    all_proxy=http://127.0.0.1:13128\nhttp_proxy=http://127.0.0.1:13128\n\
                    https_proxy=http://127.0.0.1:13128\nno_proxy=localhost,127.0.0.1,::1\n403";
    assert_eq!((done.code, done.out.as_str()), (Some(0), expected), "{done:?}");
    let desk = with("terminal: {backend: sandbox, network: none}\n");
    let done =
        desk.run(&["--session", "", "--", &format!("{names}; {ASK_THE_PROXY} -x http://127.0.0.1:13128")]);
    assert_eq!((done.code, done.out.as_str()), (Some(7), "000"), "{done:?}");
}

#[test]
fn what_runs_on_in_a_sandbox_keeps_its_proxy_and_the_proxy_ends_with_it() {
    let desk = with("terminal: {backend: sandbox}\n");
    let wait = format!("until [ -e go ]; do sleep 0.05; done; {ASK_THE_PROXY} >answer; mv answer done");
    let background = desk.run(&["--json", "--background", "--", &wait]).json();
    // The same place, and what a foreground command leaves behind.
    let left = desk
        .run(&["--json", "--", "(until [ -e done ]; do sleep 0.05; done; touch last) & echo left"])
        .json();
    assert_eq!(left["place"], background["place"]);
    let place = background["place"].as_str().unwrap();
    let workspace = desk.home.path().join("sandboxes/sandbox").join(place).join("workspace");
    let serving = || {
        let run = std::fs::read_dir(desk.home.path().join("run")).unwrap().next().unwrap().unwrap().path();
        run.join(format!(".proxy-{place}")).exists()
    };
    until("somebody serves", serving);
    std::fs::write(workspace.join("go"), "").unwrap();
    until("all of it has ended", || workspace.join("last").exists());
    assert_eq!(std::fs::read_to_string(workspace.join("done")).unwrap(), "403");
    until("nobody serves any more", || !serving());
}

fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = std::time::Instant::now();
    while !is_so() {
        assert!(started.elapsed().as_secs() < 60, "it never came to this: {what}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}
