//! `hermes status`.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Run;
use crate::env::TestEnv;

/// Asserts that these time-dependent fields are numbers and removes them.
fn without_times(value: &Value, times: &[&str]) -> Value {
    let mut value = value.clone();
    for time in times {
        let number = value.as_object_mut().unwrap().remove(*time);
        assert!(number.is_some_and(|number| number.is_u64()), "{time}: {value}");
    }
    value
}

/// Limit after which a test gives up.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

#[test]
fn a_running_environment_is_shown_with_its_exposures_and_processes() {
    let env = TestEnv::new("terminal: {env_passthrough: [THE_TOKEN, MISSING]}\n");
    fs::write(env.work.path().join("go"), "").unwrap();
    fs::write(env.work.path().join("stay"), "").unwrap();
    let command = "while [ -e go ]; do sleep 0.05; done; exit 3";
    let mut start = env.command(&["exec", "--session", "odd\n\u{1b}[31mkey", "--background", "--", command]);
    let handle = Run::of(start.env("THE_TOKEN", "hunter2").output().unwrap()).out.trim().to_owned();
    // This process keeps the environment alive until the test removes its directory.
    let stay = "while [ -e stay ]; do sleep 0.05; done";
    env.run(&["exec", "--session", "odd\n\u{1b}[31mkey", "--background", "--", stay]);
    let status = env.run(&["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(!status.out.contains("hunter2"));
    let [place] = status.json()["places"].as_array().unwrap().clone().try_into().unwrap();
    let id = place["id"].as_str().unwrap().to_owned();
    assert_eq!(
        without_times(&place, &["age_seconds", "idle_seconds"]),
        json!({
            "name": place["name"],
            "id": id,
            "backend": "local",
            "session": "odd\n\u{1b}[31mkey",
            "state": "live",
            "lifetime_seconds": 2,
            "clients": 0,
            "processes": 2,
            "reach": "host",
            "holes": [{"kind": "host"}, {"kind": "variable", "name": "THE_TOKEN", "present": true}],
        })
    );
    let process = |running: bool, exit_code: Option<i32>| {
        json!({
            "id": handle, "place": place["name"], "command": command, "running": running, "exit_code": exit_code,
        })
    };
    let shown = |status: &Value| {
        let mut processes = status["processes"].as_array().unwrap().iter();
        without_times(processes.find(|process| process["id"] == handle.as_str()).unwrap(), &["age_seconds"])
    };
    assert_eq!(shown(&status.json()), process(true, None));
    let text = env.run(&["status"]).out;
    assert!(text.contains("session odd⏎⟨U+001B⟩[31mkey"), "{text}");
    assert!(text.contains("variable THE_TOKEN") && text.contains(&handle), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains(env.home.path().to_str().unwrap()))
    );

    fs::remove_file(env.work.path().join("go")).unwrap();
    let since = Instant::now();
    while shown(&env.status()) != process(false, Some(3)) {
        assert!(since.elapsed() < TEST_TIMEOUT, "{}", env.status());
    }
}

/// The user's home directory, which a sandbox shows.
fn home_exposure(env: &TestEnv) -> Value {
    let home = env.user.path().to_str().unwrap();
    json!({"kind": "mount", "source": home, "target": home, "access": "read-only"})
}

#[test]
fn the_exposures_of_a_sandbox_are_its_mounts_and_its_network() {
    let data = tempfile::tempdir().unwrap();
    let source = data.path().to_str().unwrap();
    let config = format!(
        "terminal: {{backend: sandbox, network: full, docker_volumes: [\"{source}:/data\", \"{source}:/look:ro\"]}}\n"
    );
    let env = TestEnv::new(&config);
    assert_eq!(env.run(&["exec", "--session", "s", "--", "true"]).code, Some(0));
    let status = env.run(&["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let status = status.json();
    assert_eq!(
        status["places"][0]["holes"],
        json!([
            {"kind": "host"},
            {"kind": "network", "network": "full"},
            home_exposure(&env),
            {"kind": "mount", "source": source, "target": "/data", "access": "read-write"},
            {"kind": "mount", "source": source, "target": "/look", "access": "read-only"},
        ])
    );
    let sandbox = &status["backends"]["sandbox"];
    let reason = "terminal.network is full: this machine and everything it reaches";
    assert_eq!(sandbox["confines"]["network"], json!({"state": "not held", "reason": reason}));
    let states = ["files", "processes", "syscalls"].map(|what| &sandbox["confines"][what]["state"]);
    assert_eq!(states, ["held", "held", "held"]);
}

#[test]
fn an_environment_with_only_files_is_stopped() {
    let env = TestEnv::new("terminal: {backend: sandbox}\n");
    assert_eq!(env.run(&["exec", "--session", "s", "--", "echo > f"]).code, Some(0));
    let since = Instant::now();
    let place = loop {
        let place = env.status()["places"][0].clone();
        if place["state"] == "asleep" {
            break place;
        }
        assert!(since.elapsed() < TEST_TIMEOUT, "{place}");
    };
    let facts =
        ["session", "idle_seconds", "clients", "processes", "reach", "holes"].map(|fact| &place[fact]);
    let exposures = json!([{"kind": "network", "network": "proxy"}, home_exposure(&env)]);
    assert_eq!(facts, [&json!("s"), &json!(null), &json!(null), &json!(null), &json!("nothing"), &exposures]);
}

#[test]
fn an_unusable_configured_backend_is_reported_with_exit_code_5() {
    let cases = [
        ("terminal: {backend: local}\n", "local", None),
        ("terminal: {backend: sandbox}\n", "sandbox", None),
        ("terminal: {backend: daytona}\n", "daytona", Some("not part of this version")),
        ("gateway: {terminal_backend: ssh}\n", "ssh", Some("not part of this version")),
        (
            "terminal: {backend: sandbox, docker_volumes: [\"/nowhere/at/all:/data\"]}\n",
            "sandbox",
            Some(
                "terminal.docker_volumes: `/nowhere/at/all:/data`: cannot mount /nowhere/at/all: \
                 No such file or directory (os error 2)",
            ),
        ),
        // The exit code does not depend on backends that are not configured.
        ("terminal: {docker_volumes: [\"/nowhere/at/all:/data\"]}\n", "local", None),
    ];
    for (config, backend, reason) in cases {
        let env = TestEnv::new(config);
        let status = env.run(&["status", "--json"]);
        let backend_facts = &status.json()["backends"][backend];
        assert_eq!(
            (&backend_facts["usable"], &backend_facts["reason"]),
            (&json!(reason.is_none()), &json!(reason)),
            "{config}"
        );
        assert_eq!(status.code, Some(if reason.is_none() { 0 } else { 5 }), "{config}");
        assert_eq!(env.run(&["doctor"]).code, status.code, "{config}");
    }
}

#[test]
fn without_user_namespaces_the_sandbox_is_unusable_and_the_remedy_is_shown() {
    let env = TestEnv::new("terminal: {backend: sandbox}\n");
    let status = env.run_without_namespaces(&["status", "--json"]);
    assert_eq!(status.code, Some(5), "{status:?}");
    let status = status.json();
    let sandbox = &status["backends"]["sandbox"];
    assert_eq!(sandbox["usable"], false);
    assert_eq!(sandbox["remedy"], "as root: sysctl -w user.max_user_namespaces=15000");
    let unknown = json!({"state": "unknown", "reason": "no jail can be created to probe it"});
    let all: Vec<&Value> = sandbox["confines"].as_object().unwrap().values().collect();
    assert_eq!(all, [&unknown; 5]);
    assert_eq!(status["gateway"]["effective"], json!(null));

    let doctor = env.run_without_namespaces(&["doctor", "--live"]);
    assert_eq!(doctor.code, Some(5), "{doctor:?}");
    assert!(doctor.out.contains("→ as root: sysctl -w user.max_user_namespaces=15000"), "{}", doctor.out);
    // The command did not run on the host instead.
    assert!(!doctor.out.contains("ran a command"), "{}", doctor.out);
    assert!(!Path::new(&env.home.path().join("sandboxes")).exists());
}
