//! `hermes status` on what really is there.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::{Home, Run};

/// A home, a user with a home, and a directory for work, all with places of their own.
pub(crate) struct Desk {
    pub(crate) home: Home,
    pub(crate) user: tempfile::TempDir,
    pub(crate) work: tempfile::TempDir,
}

impl Desk {
    pub(crate) fn new(config: &str) -> Self {
        let home = Home::with_config(config);
        fs::create_dir(home.path().join("run")).unwrap();
        Self { home, user: tempfile::tempdir().unwrap(), work: tempfile::tempdir().unwrap() }
    }

    /// What the command is given, whoever starts it.
    pub(crate) fn set_up(&self, command: &mut Command) {
        command
            .env("HERMES_HOME", self.home.path())
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            .env("HOME", self.user.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
            .env("TERMINAL_LIFETIME_SECONDS", "2")
            .current_dir(self.work.path());
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        self.set_up(&mut command);
        command
    }

    pub(crate) fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// The same where nobody may make a user namespace.
    #[expect(clippy::disallowed_methods, reason = "the program under test, in another world")]
    pub(crate) fn run_without_namespaces(&self, args: &[&str]) -> Run {
        let mut command = Command::new("unshare");
        let script = "echo 0 > /proc/sys/user/max_user_namespaces && exec \"$@\"";
        command
            .args(["--user", "--map-root-user", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_hermes")])
            .args(args)
            .env_clear();
        self.set_up(&mut command);
        Run::of(command.output().unwrap())
    }

    fn status(&self) -> Value {
        self.run(&["status", "--json"]).json()
    }
}

/// The value without the parts that time changes, each of which must be a number.
fn timeless(value: &Value, times: &[&str]) -> Value {
    let mut value = value.clone();
    for time in times {
        let number = value.as_object_mut().unwrap().remove(*time);
        assert!(number.is_some_and(|number| number.is_u64()), "{time}: {value}");
    }
    value
}

/// How long something may take that is bound to happen.
const SOON: Duration = Duration::from_secs(30);

#[test]
fn a_live_place_is_shown_with_its_holes_and_what_runs_there() {
    let desk = Desk::new("terminal: {env_passthrough: [THE_TOKEN, MISSING]}\n");
    fs::write(desk.work.path().join("go"), "").unwrap();
    fs::write(desk.work.path().join("stay"), "").unwrap();
    let command = "while [ -e go ]; do sleep 0.05; done; exit 3";
    let mut start = desk.command(&["exec", "--session", "odd\n\u{1b}[31mkey", "--background", "--", command]);
    let handle = Run::of(start.env("THE_TOKEN", "hunter2").output().unwrap()).out.trim().to_owned();
    // The place must not end before all has been seen; this one ends when its directory is removed.
    let stay = "while [ -e stay ]; do sleep 0.05; done";
    desk.run(&["exec", "--session", "odd\n\u{1b}[31mkey", "--background", "--", stay]);
    let status = desk.run(&["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(!status.out.contains("hunter2"));
    let [place] = status.json()["places"].as_array().unwrap().clone().try_into().unwrap();
    let id = place["id"].as_str().unwrap().to_owned();
    assert_eq!(
        timeless(&place, &["age_seconds", "idle_seconds"]),
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
        timeless(processes.find(|process| process["id"] == handle.as_str()).unwrap(), &["age_seconds"])
    };
    assert_eq!(shown(&status.json()), process(true, None));
    let text = desk.run(&["status"]).out;
    assert!(text.contains("session odd⏎⟨U+001B⟩[31mkey"), "{text}");
    assert!(text.contains("variable THE_TOKEN") && text.contains(&handle), "{text}");
    assert!(
        text.lines()
            .all(|line| line.chars().count() <= 80 || line.contains(desk.home.path().to_str().unwrap()))
    );

    fs::remove_file(desk.work.path().join("go")).unwrap();
    let since = Instant::now();
    while shown(&desk.status()) != process(false, Some(3)) {
        assert!(since.elapsed() < SOON, "{}", desk.status());
    }
}

#[test]
fn the_holes_of_a_sandbox_are_its_mounts_and_its_network() {
    let data = tempfile::tempdir().unwrap();
    let source = data.path().to_str().unwrap();
    let config = format!(
        "terminal: {{backend: sandbox, network: full, docker_volumes: [\"{source}:/data\", \"{source}:/look:ro\"]}}\n"
    );
    let desk = Desk::new(&config);
    assert_eq!(desk.run(&["exec", "--session", "s", "--", "true"]).code, Some(0));
    let status = desk.run(&["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let status = status.json();
    assert_eq!(
        status["places"][0]["holes"],
        json!([
            {"kind": "host"},
            {"kind": "network", "network": "full"},
            {"kind": "mount", "source": source, "target": "/data", "access": "read-write"},
            {"kind": "mount", "source": source, "target": "/look", "access": "read-only"},
        ])
    );
    let sandbox = &status["backends"]["sandbox"];
    let reason = "terminal.network is full: this machine and all it reaches";
    assert_eq!(sandbox["confines"]["network"], json!({"state": "not held", "reason": reason}));
    let states = ["files", "processes", "syscalls"].map(|what| &sandbox["confines"][what]["state"]);
    assert_eq!(states, ["held", "held", "held"]);
}

#[test]
fn a_place_of_which_only_files_are_left_is_asleep() {
    let desk = Desk::new("terminal: {backend: sandbox}\n");
    assert_eq!(desk.run(&["exec", "--session", "s", "--", "echo > f"]).code, Some(0));
    let since = Instant::now();
    let place = loop {
        let place = desk.status()["places"][0].clone();
        if place["state"] == "asleep" {
            break place;
        }
        assert!(since.elapsed() < SOON, "{place}");
    };
    let facts =
        ["session", "idle_seconds", "clients", "processes", "reach", "holes"].map(|fact| &place[fact]);
    let holes = json!([{"kind": "network", "network": "proxy"}]);
    assert_eq!(facts, [&json!("s"), &json!(null), &json!(null), &json!(null), &json!("nothing"), &holes]);
}

#[test]
fn a_configured_backend_that_cannot_be_used_is_told_and_exits_with_5() {
    let cases = [
        ("terminal: {backend: local}\n", "local", None),
        ("terminal: {backend: sandbox}\n", "sandbox", None),
        ("terminal: {backend: daytona}\n", "daytona", Some("not part of this version")),
        ("gateway: {terminal_backend: ssh}\n", "ssh", Some("not part of this version")),
        (
            "terminal: {backend: sandbox, docker_volumes: [\"/nowhere/at/all:/data\"]}\n",
            "sandbox",
            Some("/nowhere/at/all is to be mounted and is not there"),
        ),
        // What nobody has chosen need not work.
        ("terminal: {docker_volumes: [\"/nowhere/at/all:/data\"]}\n", "local", None),
    ];
    for (config, backend, reason) in cases {
        let desk = Desk::new(config);
        let status = desk.run(&["status", "--json"]);
        let told = &status.json()["backends"][backend];
        assert_eq!(
            (&told["usable"], &told["reason"]),
            (&json!(reason.is_none()), &json!(reason)),
            "{config}"
        );
        assert_eq!(status.code, Some(if reason.is_none() { 0 } else { 5 }), "{config}");
        assert_eq!(desk.run(&["doctor"]).code, status.code, "{config}");
    }
}

#[test]
fn without_user_namespaces_there_is_no_sandbox_and_the_remedy_is_told() {
    let desk = Desk::new("terminal: {backend: sandbox}\n");
    let status = desk.run_without_namespaces(&["status", "--json"]);
    assert_eq!(status.code, Some(5), "{status:?}");
    let status = status.json();
    let sandbox = &status["backends"]["sandbox"];
    assert_eq!(sandbox["usable"], false);
    assert_eq!(sandbox["remedy"], "as root: sysctl -w user.max_user_namespaces=15000");
    let unknown = json!({"state": "unknown", "reason": "there is no jail to try it in"});
    let all: Vec<&Value> = sandbox["confines"].as_object().unwrap().values().collect();
    assert_eq!(all, [&unknown; 5]);
    assert_eq!(status["gateway"]["effective"], json!(null));

    let doctor = desk.run_without_namespaces(&["doctor", "--live"]);
    assert_eq!(doctor.code, Some(5), "{doctor:?}");
    assert!(doctor.out.contains("→ as root: sysctl -w user.max_user_namespaces=15000"), "{}", doctor.out);
    // Nothing ran on this machine instead.
    assert!(!doctor.out.contains("ran a command"), "{}", doctor.out);
    assert!(!Path::new(&desk.home.path().join("sandboxes")).exists());
}
