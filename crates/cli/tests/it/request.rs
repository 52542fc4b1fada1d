//! The create request that hermes sends to real engines.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::{Home, Run, socket};

/// Two engines of root and one of an ordinary user.
const ENGINES: [&str; 3] = ["docker", "podman", ROOTLESS];
const ROOTLESS: &str = "podman-rootless";

/// The limits that an engine does not enforce. Without root, cgroup version 1 enforces none.
fn unenforced(engine: &str) -> Vec<String> {
    let is_limited = engine != ROOTLESS || Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    let missing: &[&str] =
        if is_limited { &["disk"] } else { &["disk", "memory", "processors", "processes"] };
    missing.iter().map(|resource| format!("the engine cannot limit the {resource} of a container")).collect()
}

/// The warnings that hermes prints about these limits.
fn warnings(limits: &[String]) -> String {
    limits.iter().map(|limit| format!("warning: {limit}\n")).collect()
}

/// A home directory whose containers, all of one engine, are removed on drop.
struct RequestEnv {
    home: Home,
    socket: PathBuf,
}

impl RequestEnv {
    fn new(engine: &str, settings: &str) -> Self {
        let image = "localhost/hermes-test:bash";
        let config = format!("terminal:\n  backend: docker\n  docker_image: {image}\n{settings}");
        let home = if engine == ROOTLESS { Home::of_user(&config) } else { Home::with_config(&config) };
        Self { home, socket: socket(engine) }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        command
            .env("XDG_RUNTIME_DIR", self.home.path().join("run"))
            .env("DOCKER_HOST", format!("unix://{}", self.socket.display()))
            .env("PATH", "/usr/bin:/bin");
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    /// Types a line into `hermes shell`.
    fn shell(&self, session: &str, line: &str) -> Run {
        let hermes = self.command(&[]);
        let command = format!("{} shell --session {session}", hermes.get_program().display());
        #[expect(clippy::disallowed_methods, reason = "a terminal around the program under test")]
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &command, "/dev/null"]).env_clear();
        script.envs(hermes.get_envs().filter_map(|(name, value)| Some((name, value?))));
        self.home.run_as_user(&mut script);
        let mut child =
            script.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        writeln!(stdin, "{line}").unwrap();
        let done = Run::of(child.wait_with_output().unwrap());
        drop(stdin);
        done
    }

    /// Sends a GET request to the engine and returns the status and the response body.
    fn get_from_engine(&self, path: &str) -> (String, String) {
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        write!(stream, "GET /v1.41{path} HTTP/1.0\r\nHost: engine\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().to_owned(), body.to_owned())
    }
}

impl Drop for RequestEnv {
    fn drop(&mut self) {
        self.run(&["sandbox", "prune", "--files"]);
    }
}

/// Splits a request into the request without its creation time, and that time.
fn split_creation_time(request: &Value) -> (String, u64) {
    let mut request = request.clone();
    let created = request["Labels"]["hermes-created"].take();
    (request.to_string(), created.as_str().unwrap().parse().unwrap())
}

#[test]
fn every_entry_point_requests_the_same_container() {
    let settings = "  network: none
  docker_env: {GREETING: hello}
  docker_extra_args: ['--cap-add=NET_RAW', '-e TOKEN=hunter2', '--label', team=a, '--dns', 10.0.0.1]
";
    for engine in ENGINES {
        let env = RequestEnv::new(engine, settings);
        let shown = |session: &str| {
            let place = env.run(&["sandbox", "show", session, "--json"]).json();
            assert_eq!(place["unenforced"], json!(unenforced(engine)));
            place
        };
        let made = env.run(&["exec", "--session", "s", "--", "echo $TOKEN"]);
        assert_eq!((made.code, made.out.as_str()), (Some(0), "hunter2\n"), "{made:?}");
        // The disk limit is not configured.
        assert_eq!(made.err, warnings(&unenforced(engine)[1..]));
        let by_exec = shown("s");
        assert_eq!(env.run(&["exec", "--session", "s", "--", "true"]).err, "");
        let dry = env.run(&["exec", "--session", "s", "--dry-run", "--json", "--", "true"]).json();
        for key in ["engine", "container", "request", "unenforced", "reach"] {
            if key != "request" {
                assert_eq!(dry[key], by_exec[key], "{key}");
            }
        }
        // The engine reports what was requested.
        let (status, found) =
            env.get_from_engine(&format!("/containers/{}/json", dry["container"].as_str().unwrap()));
        assert_eq!(status, "200", "{found}");
        assert!(!found.contains("hunter2"), "{found}");
        let found: Value = serde_json::from_str(&found).unwrap();
        let requested = &by_exec["request"];
        for (name, value) in requested["Labels"].as_object().unwrap() {
            assert_eq!(&found["Config"]["Labels"][name], value, "{name}");
        }
        for key in ["Memory", "NanoCpus", "PidsLimit", "NetworkMode"] {
            // Podman drops limits that it cannot enforce.
            if key == "NetworkMode" || unenforced(engine).len() == 1 {
                assert_eq!(found["HostConfig"][key], requested["HostConfig"][key], "{engine}: {key}");
            }
        }
        assert_eq!(env.run(&["sandbox", "rm", "--force", "s"]).code, Some(0));
        assert_eq!(
            env.get_from_engine(&format!("/containers/{}/json", dry["container"].as_str().unwrap())).0,
            "404"
        );
        let shell = env.shell("s", "test -t 0 && echo \"[$TOKEN]\"; exit 7");
        assert!(shell.code == Some(7) && shell.out.contains("[hunter2]"), "{shell:?}");
        let by_shell = shown("s");
        let [(exec, exec_time), (shell, shell_time), (dry, _)] =
            [&by_exec, &by_shell, &dry].map(|place| split_creation_time(&place["request"]));
        assert_eq!(exec, shell, "{engine}");
        assert_eq!(exec, dry, "{engine}");
        assert!(exec_time <= shell_time && by_exec["created"].as_u64().unwrap() <= exec_time);
        let output = env.run(&["sandbox", "show", "s"]).out;
        assert!(output.contains("\"hermes-created\"") && !output.contains("hunter2"), "{output}");
    }
}

#[test]
fn a_missing_disk_limit_is_a_warning_if_configured_and_always_in_status() {
    for engine in ENGINES {
        let env = RequestEnv::new(engine, "  container_disk: 1000\n");
        let first = env.run(&["exec", "--session", "s", "--", "true"]);
        assert_eq!(first.err, warnings(&unenforced(engine)), "{engine}");
        assert_eq!(env.run(&["exec", "--session", "s", "--", "true"]).err, "", "{engine}");
        let output = |settings: &str| {
            let status = RequestEnv::new(engine, settings).run(&["status", "--json"]).json();
            let reason = &status["backends"]["docker"]["confines"]["resources"]["reason"];
            reason.as_str().unwrap_or_else(|| panic!("{status}")).rsplit("; ").next().unwrap().to_owned()
        };
        for settings in ["  container_disk: 1000\n", ""] {
            assert_eq!(
                output(settings),
                "disk is not limited: the engine's storage has no quota",
                "{engine}"
            );
        }
        // Without a limit there is no warning.
        assert_eq!(output("  container_disk: 0\n"), "disk is not limited", "{engine}");
    }
}

#[test]
fn a_dry_run_creates_nothing() {
    for engine in ENGINES {
        let env = RequestEnv::new(engine, "");
        let dry = env.run(&["exec", "--dry-run", "--json", "--session", "s", "--", "rm -rf /"]);
        let new = "warning: no install id yet: the names shown will change once this home is first used\n";
        assert_eq!((dry.code, dry.err.as_str()), (Some(0), new), "{dry:?}");
        let container = dry.json()["container"].as_str().unwrap().to_owned();
        assert_eq!(env.get_from_engine(&format!("/containers/{container}/json")).0, "404");
        let left: Vec<_> =
            fs::read_dir(env.home.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["config.yaml"]);
        let text = env.run(&["exec", "--dry-run", "--session", "s", "--", "true"]);
        assert!(text.out.contains(&format!("container  {container}\n")), "{text:?}");
        assert_eq!(text.err, format!("{new}{}", warnings(&unenforced(engine))));
    }
}

#[test]
fn either_network_key_disables_the_network_of_containers() {
    for settings in
        ["  network: none\n", "  docker_network: false\n", "  docker_network: false\n  network: full\n"]
    {
        let env = RequestEnv::new("docker", settings);
        let dry = env.run(&["exec", "--session", "s", "--dry-run", "--json", "--", "true"]).json();
        assert_eq!(dry["request"]["HostConfig"]["NetworkMode"], "none", "{settings}: {dry}");
    }
}

#[test]
fn a_dry_run_without_an_engine_prints_the_spec() {
    let home = Home::new();
    let dry = home
        .run(&["exec", "--dry-run", "--json", "--backend", "sandbox", "--session", "s", "--", "true"])
        .json();
    assert_eq!(dry["request"]["backend"]["Sandbox"]["network"], "proxy");
    assert_eq!((&dry["engine"], &dry["container"]), (&Value::Null, &Value::Null));
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

/// The content of the memory limit file of cgroup version 1 without a limit.
const UNLIMITED_MEMORY: &str = "9223372036854771712\n";

#[test]
fn limits_and_options_apply_inside() {
    let settings = "  container_pids: 77
  docker_shm_size: 32m
  docker_tmpfs: {/tmp: 16m}
  docker_extra_args:
    - --hostname=box
    - --add-host
    - db:10.1.2.3
    - --ulimit nofile=99
    # Podman adds this one to any other, higher than the machine may allow.
    - --ulimit nproc=1000
    - --tmpfs=/scratch:size=8m
    - --cap-drop=CHOWN
    - --cap-add=NET_RAW
    - --memory=300m
    - --init
";
    let script = "hostname; grep -c 10.1.2.3 /etc/hosts; [ $(ulimit -n) = 99 ] && echo few || echo many
        grep CapEff /proc/self/status
        df -k /dev/shm /tmp /scratch | awk 'NR > 1 { print $2 }'
        cat /sys/fs/cgroup/memory/memory.limit_in_bytes /sys/fs/cgroup/memory.max 2>/dev/null
        cat /sys/fs/cgroup/pids/pids.max /sys/fs/cgroup/pids.max 2>/dev/null; true";
    for engine in ENGINES {
        let env = RequestEnv::new(engine, settings);
        let done = env.run(&["exec", "--session", "s", "--", script]);
        let limits = if unenforced(engine).len() == 1 { "314572800\n77\n" } else { UNLIMITED_MEMORY };
        // An ignored option is a warning.
        assert_eq!(done.err.contains("ignores `--ulimit`"), engine == ROOTLESS, "{done:?}");
        let files = if engine == ROOTLESS { "many" } else { "few" };
        // DAC_OVERRIDE, FOWNER, SETGID, SETUID, NET_RAW.
        let expected = format!(
            "box\n1\n{files}\nCapEff:\t{:016x}\n32768\n16384\n8192\n{limits}",
            1 << 1 | 1 << 3 | 1 << 6 | 1 << 7 | 1 << 13
        );
        assert_eq!((done.code, done.out), (Some(0), expected), "{engine}: {}", done.err);
        let status = env.run(&["status", "--json"]).json();
        let exposures = json!([
            {"kind": "network", "network": "full"},
            {"kind": "option", "option": "--cap-add NET_RAW"},
        ]);
        assert_eq!(status["places"][0]["holes"], exposures);
    }
}

#[test]
fn a_read_only_container_works_and_a_port_is_published() {
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let settings = format!(
        "  docker_extra_args: [--read-only, -p, '127.0.0.1:{port}:80', -v, '/usr/share:/shared:ro']\n"
    );
    for engine in ENGINES {
        let env = RequestEnv::new(engine, &settings);
        let done = env.run(&[
            "exec",
            "--session",
            "s",
            "--",
            "touch /x; touch /shared/x; touch here && ls /shared | head -1",
        ]);
        assert!(done.code == Some(0) && done.out.matches("Read-only file system").count() == 2, "{done:?}");
        let place = env.run(&["sandbox", "show", "s", "--json"]).json();
        let (_, found) =
            env.get_from_engine(&format!("/containers/{}/json", place["container"].as_str().unwrap()));
        let found: Value = serde_json::from_str(&found).unwrap();
        let bound = &found["HostConfig"]["PortBindings"]["80/tcp"];
        assert_eq!(*bound, json!([{"HostIp": "127.0.0.1", "HostPort": port.to_string()}]), "{engine}");
        let exposures = json!([
            {"kind": "network", "network": "full"},
            {"kind": "mount", "source": "/usr/share", "target": "/shared", "access": "read-only"},
            {"kind": "option", "option": format!("--publish 127.0.0.1:{port}:80/tcp")},
        ]);
        assert_eq!(place["holes"], exposures);
    }
}

#[test]
fn an_invalid_docker_option_is_reported_with_its_line() {
    let check = |args: &str| {
        let home =
            Home::with_config(&format!("terminal:\n  docker_extra_args:\n    - --init\n    - {args}\n"));
        let checked = home.run(&["config", "check", "--json"]);
        assert_eq!(checked.code, Some(3), "{checked:?}");
        let problem = checked.json()["problems"][0].clone();
        json!([problem["key"], problem["line"], problem["message"]])
    };
    let message = "expected a supported option of `docker run`, found `--frobnicate`";
    assert_eq!(check("--frobnicate"), json!(["terminal.docker_extra_args", 4, message]));
    let message = "expected `--memory` with a size such as 512m, found `--memory lots`";
    assert_eq!(check("--memory lots"), json!(["terminal.docker_extra_args", 4, message]));
    let message = "expected no `--name` (Hermes names the container), found one";
    assert_eq!(check("--name=x"), json!(["terminal.docker_extra_args", 4, message]));
}

#[test]
fn sizes_are_checked_and_shown_as_they_are_written() {
    let home = Home::with_config("terminal: {docker_shm_size: 1024k, docker_tmpfs: {/tmp: 1073741824}}\n");
    let get = |key: &str| home.run(&["config", "get", key, "--json"]).json();
    assert_eq!(get("terminal.docker_shm_size"), "1m");
    assert_eq!(get("terminal.docker_tmpfs"), json!({"/tmp": "1g"}));
    for wrong in [
        "docker_shm_size: 0", "docker_shm_size: big", "docker_gpus: 0", "docker_tmpfs: {/etc: 1m}",
        "docker_tmpfs: {/tmp: x}",
    ] {
        let checked = Home::with_config(&format!("terminal: {{{wrong}}}\n")).run(&["config", "check"]);
        assert_eq!(checked.code, Some(3), "{wrong}: {checked:?}");
    }
}

#[test]
fn an_option_cannot_give_more_network_than_the_setting() {
    for (network, option, refused) in [
        ("none", "--network=host", true),
        ("none", "--net=bridge", true),
        ("proxy", "--network=mine", true),
        ("proxy", "-p=80", true),
        ("none", "--network=none", false),
        ("proxy", "--network=none", false),
        ("full", "--network=mine", false),
    ] {
        let settings = format!("  network: {network}\n  docker_extra_args: ['{option}']\n");
        let dry = RequestEnv::new("docker", &settings)
            .run(&["exec", "--dry-run", "--session", "s", "--json", "--", "true"]);
        if refused {
            assert_eq!(dry.code, Some(3), "{network} {option}: {dry:?}");
            let message = dry.json()["error"]["message"].as_str().unwrap().to_owned();
            assert!(message.ends_with(&format!("but the network is {network}")), "{message}");
        } else {
            let mode = option.split_once('=').unwrap().1;
            assert_eq!(dry.json()["request"]["HostConfig"]["NetworkMode"], mode, "{dry:?}");
        }
    }
    let twice = "  docker_volumes: ['/a:/x']\n  docker_extra_args: ['-v /b:/x']\n";
    let dry = RequestEnv::new("docker", twice).run(&["exec", "--dry-run", "--session", "s", "--", "true"]);
    assert!(dry.code == Some(3) && dry.err.contains("mounts `/x` a second time"), "{dry:?}");
}

#[test]
fn a_dry_run_shows_exposures_to_the_host_and_commands_need_approval() {
    for (option, reach) in [
        ("--privileged", json!("host")),
        ("--pid=host", json!("host")),
        ("--device=/dev/fuse", json!("host")),
        ("--volume=/run:/x:ro", json!("host")),
        ("--cap-add=SYS_ADMIN", json!("host")),
        ("--volume=/srv:/x", json!({"directories": ["/x"]})),
        ("--cap-add=NET_RAW", json!("nothing")),
    ] {
        let env = RequestEnv::new("docker", &format!("  docker_extra_args: ['{option}']\n"));
        let dry = env.run(&["exec", "--dry-run", "--session", "s", "--json", "--", "true"]);
        assert_eq!(dry.json()["reach"], reach, "{option}");
        let asked = env.run(&["approvals", "test", "git push --force", "--json"]).json();
        let expected = if reach == "nothing" { "allow" } else { "ask" };
        assert_eq!(asked["verdict"], expected, "{option}: {asked}");
    }
}
