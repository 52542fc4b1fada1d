//! Which engine is contacted, what `status` and `doctor` report if it cannot be used, and what they
//! report about real engines.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use hermes_testkit::peers;
use serde_json::{Value, json};

use crate::Run;
use crate::doctor::{findings_of, with_key};
use crate::env::{TestEnv, UNPRIVILEGED_UID};

const CONFIG: &str =
    "terminal: {backend: docker, docker_image: \"localhost/hermes-test:bash\", network: none}\n";

/// A listening socket in place of an engine.
struct FakeEngine {
    folder: tempfile::TempDir,
    connections: Arc<AtomicUsize>,
}

impl FakeEngine {
    /// Sends this response on every connection, or never responds.
    fn new(response: Option<&'static str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        let listener = UnixListener::bind(folder.path().join("sock")).unwrap();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            let mut open = Vec::new();
            for mut stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::SeqCst);
                match response {
                    Some(response) => {
                        let mut request = Vec::new();
                        while !request.ends_with(b"\r\n\r\n") {
                            let mut byte = [0];
                            stream.read_exact(&mut byte).unwrap();
                            request.extend(byte);
                        }
                        stream.write_all(response.as_bytes()).unwrap();
                    }
                    None => open.push(stream),
                }
            }
        });
        Self { folder, connections }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("sock")
    }
}

fn host(socket: &Path) -> String {
    format!("unix://{}", socket.display())
}

fn with_engine(env: &TestEnv, host: &str, args: &[&str]) -> Run {
    Run::of(env.command(args).env("DOCKER_HOST", host).output().unwrap())
}

#[test]
fn an_engine_that_is_not_configured_is_never_contacted() {
    let fake = FakeEngine::new(None);
    let host = host(&fake.socket());
    for config in ["", "terminal: {backend: sandbox}\n"] {
        let env = TestEnv::new(config);
        let commands: [&[&str]; 6] = [
            &["status", "--json"],
            &["doctor"],
            &["doctor", "--live"],
            &["exec", "--", "true"],
            &["sandbox", "ls"],
            &["approvals", "test", "docker ps"],
        ];
        for args in commands {
            with_engine(&env, &host, args);
        }
        let status = with_engine(&env, &host, &["status", "--json"]);
        assert_eq!(status.code, Some(0), "{status:?}");
        let docker = &status.json()["backends"]["docker"];
        assert_eq!(docker["usable"], json!(null));
        assert_eq!(docker["reason"], "not checked: no setting uses this backend");
    }
    assert_eq!(fake.connections.load(Ordering::SeqCst), 0);
    // Control: a configured engine is contacted.
    with_engine(&TestEnv::new(CONFIG), &host, &["status"]);
    assert_eq!(fake.connections.load(Ordering::SeqCst), 1);
}

#[test]
fn each_engine_problem_has_its_own_message_and_remedy() {
    let silent = FakeEngine::new(None);
    let old = FakeEngine::new(Some("HTTP/1.1 200 OK\r\nApi-Version: 1.20\r\nContent-Length: 2\r\n\r\nOK"));
    let web = FakeEngine::new(Some("HTTP/1.1 404 Not Found\r\nServer: web\r\n\r\n"));
    let other = FakeEngine::new(Some("SSH-2.0-OpenSSH_9.2\r\n"));
    let folder = tempfile::tempdir().unwrap();
    let unused_socket = folder.path().join("unused");
    drop(UnixListener::bind(&unused_socket).unwrap());
    let absent = folder.path().join("absent");
    let [silent_host, old_host, web_host, other_host, unused_host, absent_host] =
        [&silent.socket(), &old.socket(), &web.socket(), &other.socket(), &unused_socket, &absent]
            .map(|socket| host(socket));
    let cases = [
        (&silent_host, format!("{silent_host} did not respond within 5 seconds"), "journalctl", 5),
        (
            &old_host,
            format!("{old_host} has Engine API version 1.20; 1.41 or later is required"),
            "Docker 20.10",
            5,
        ),
        (
            &web_host,
            format!("{web_host} does not speak the Engine API: the response is HTTP/1.1 404 Not Found"),
            "DOCKER_HOST=unix:///path/of/socket",
            5,
        ),
        (
            &other_host,
            format!("{other_host} does not speak the Engine API: the response is not HTTP"),
            "DOCKER_HOST=unix:///path/of/socket",
            5,
        ),
        (
            &unused_host,
            format!("cannot connect to {unused_host}: Connection refused (os error 111)"),
            "systemctl start docker",
            5,
        ),
        (&absent_host, format!("no such socket: {}", absent.display()), "podman system service", 5),
        (
            &"ssh://me@far".to_owned(),
            "DOCKER_HOST is ssh://me@far, but ssh is not supported".to_owned(),
            "ssh -nNT -L",
            3,
        ),
        (
            &"https://far:2376".to_owned(),
            "DOCKER_HOST is https://far:2376, but TLS is not supported".to_owned(),
            "ssh -nNT -L",
            3,
        ),
    ];
    let env = TestEnv::new(CONFIG);
    for (host, message, hint, code) in cases {
        let status = with_engine(&env, host, &["status", "--json"]);
        assert_eq!(status.code, Some(5), "{status:?}");
        let docker = &status.json()["backends"]["docker"];
        assert_eq!(docker["usable"], false);
        assert_eq!(docker["reason"], message);
        assert!(docker["remedy"].as_str().unwrap().contains(hint), "{docker}");
        let exec = with_engine(&env, host, &["exec", "--json", "--", "true"]);
        assert_eq!(exec.code, Some(code), "{exec:?}");
        let error = &exec.json()["error"];
        assert_eq!(error["message"], format!("cannot use the docker backend: {message}"));
        assert!(error["hints"].to_string().contains(hint), "{error}");
    }
}

#[test]
fn an_engine_named_by_other_settings_is_found_or_reported() {
    let fake = FakeEngine::new(None);
    let env = TestEnv::new("terminal: {backend: docker, docker_binary: podman}\n");
    let run = Run::of(
        env.command(&["status", "--json"]).env("CONTAINER_HOST", host(&fake.socket())).output().unwrap(),
    );
    let reason = run.json()["backends"]["docker"]["reason"].as_str().unwrap().to_owned();
    assert_eq!(reason, format!("{} did not respond within 5 seconds", host(&fake.socket())));

    let env = TestEnv::new("terminal: {backend: docker, docker_binary: nerdctl}\n");
    let reason = env.run(&["status", "--json"]).json()["backends"]["docker"]["reason"].clone();
    assert_eq!(reason, "terminal.docker_binary is nerdctl; expected docker or podman");

    let env = TestEnv::new(CONFIG);
    let mut command = env.command(&["exec", "--json", "--", "true"]);
    let run = Run::of(command.env("DOCKER_CONTEXT", "far").output().unwrap());
    assert_eq!(run.code, Some(3), "{run:?}");
    let message = run.json()["error"]["message"].as_str().unwrap().to_owned();
    assert!(message.starts_with("cannot use the docker backend: the docker context far "), "{message}");
}

#[test]
fn a_forbidden_socket_is_reported_with_the_group_that_may_use_it() {
    let fake = FakeEngine::new(None);
    let socket = fake.socket();
    fs::set_permissions(&socket, Permissions::from_mode(0o000)).unwrap();
    if rustix::process::geteuid().is_root() {
        chown(&socket, Some(0), Some(1)).unwrap();
    }
    let group = fs::metadata(&socket).unwrap().gid().to_string();
    let groups = fs::read_to_string("/etc/group").unwrap();
    let is_group = |line: &str| line.split(':').nth(2) == Some(&group);
    let name = groups.lines().find(|line| is_group(line)).unwrap().split(':').next().unwrap().to_owned();
    let env = TestEnv::new(CONFIG);
    let mut command = env.command_as(UNPRIVILEGED_UID, &["status", "--json"]);
    let run = Run::of(command.env("DOCKER_HOST", host(&socket)).output().unwrap());
    assert_eq!(run.code, Some(5), "{run:?}");
    let docker = &run.json()["backends"]["docker"];
    assert_eq!(docker["reason"], format!("permission denied: {}", socket.display()));
    let remedy = docker["remedy"].as_str().unwrap();
    assert!(remedy.contains(&format!("`sudo usermod -aG {name} $USER`")), "{remedy}");
    assert!(remedy.contains("systemctl --user start podman.socket"), "{remedy}");
    assert_eq!(fake.connections.load(Ordering::SeqCst), 0);
}

/// A real engine.
struct EnginePeer {
    socket: PathBuf,
    kind: &'static str,
    /// The user that it runs as, if not root.
    user: Option<u32>,
}

/// Returns the engine with this name, or nothing if it is missing and optional.
fn peer(name: &str, kind: &'static str) -> Option<EnginePeer> {
    let user = peers::user().filter(|_| name == "podman-rootless");
    Some(EnginePeer { socket: peers::socket(name)?, kind, user })
}

impl EnginePeer {
    fn run(&self, env: &TestEnv, args: &[&str]) -> Run {
        let mut command = match self.user {
            Some(user) => env.command_as(user, args),
            None => env.command(args),
        };
        Run::of(command.env("DOCKER_HOST", host(&self.socket)).output().unwrap())
    }

    /// The containers of this home that the engine has.
    fn containers(&self, env: &TestEnv) -> Value {
        let install = env.home.read(".install-id").unwrap();
        let filter = format!("%7B%22label%22%3A%5B%22hermes-install%3D{}%22%5D%7D", install.trim());
        let mut stream = UnixStream::connect(&self.socket).unwrap();
        let path = format!("/v1.41/containers/json?all=true&filters={filter}");
        write!(stream, "GET {path} HTTP/1.0\r\nHost: engine\r\n\r\n").unwrap();
        let mut response = String::new();
        stream.read_to_string(&mut response).unwrap();
        let (head, body) = response.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(" 200 OK"), "{head}");
        serde_json::from_str(body).unwrap()
    }
}

/// Asserts what is reported about the engine, and that its containers confine everything.
fn assert_reported_and_confined(name: &str, kind: &'static str) {
    let Some(peer) = peer(name, kind) else { return };
    let env = with_key(CONFIG);
    let status = peer.run(&env, &["status", "--json"]);
    assert_eq!(status.code, Some(0), "{status:?}");
    let docker = &status.json()["backends"]["docker"];
    assert_eq!(docker["usable"], true);
    let engine = &docker["engine"];
    let facts = ["address", "why", "kind", "rootless", "image", "image_present"].map(|fact| &engine[fact]);
    let expected = [
        json!(host(&peer.socket)),
        json!("DOCKER_HOST"),
        json!(peer.kind),
        json!(peer.user.is_some()),
        json!("localhost/hermes-test:bash"),
        json!(true),
    ];
    assert_eq!(facts, expected.each_ref());
    let states = ["files", "network", "processes", "syscalls", "resources"]
        .map(|what| docker["confines"][what]["state"].as_str().unwrap());
    // Without root, cgroup version 1 does not limit resources.
    let is_limited = peer.user.is_none() || engine["cgroup"] == 2;
    let resources = if is_limited { "held" } else { "not held" };
    assert_eq!(states, ["held", "held", "held", "held", resources], "{docker:#}");

    let doctor = peer.run(&env, &["doctor", "--live", "--json"]);
    assert_eq!(doctor.code, Some(0), "{doctor:?}");
    let found = findings_of(&doctor, "docker");
    let user = env.user.path().display();
    let ok = |detail: String| ("ok".to_owned(), detail);
    let warning = |detail: &str| ("warning".to_owned(), detail.to_owned());
    let expected = [
        ok("ran a command".to_owned()),
        ok(format!("cannot read {}/config.yaml", env.home.path().display())),
        ok(format!("cannot read {user}/.ssh/id_test")),
        ok(format!("cannot write {user}/FILE")),
        ok("cannot see a process outside".to_owned()),
        ok("cannot signal a process outside".to_owned()),
        ok("cannot reach a service on this machine's loopback".to_owned()),
        ok("cannot reach an abstract socket of this machine".to_owned()),
        match peer.kind {
            "Podman" => warning("can create a user namespace: the seccomp profile of the engine allows it"),
            _ => ok("cannot create a user namespace".to_owned()),
        },
        warning("unknown whether it can mount: requires mount"),
        match is_limited {
            true => ok("cannot start more than 256 processes".to_owned()),
            false => warning("can start more than 256 processes: this machine cannot limit them"),
        },
    ];
    assert_eq!(found[found.len() - expected.len()..], expected, "{found:#?}");
    assert_eq!(peer.containers(&env), json!([]));
}

#[test]
fn docker_is_described_and_nothing_escapes() {
    assert_reported_and_confined("docker", "Docker");
}

#[test]
fn podman_is_described_and_nothing_escapes() {
    assert_reported_and_confined("podman", "Podman");
}

#[test]
fn rootless_podman_is_described_and_nothing_escapes() {
    assert_reported_and_confined("podman-rootless", "Podman");
}

#[test]
fn a_path_that_the_engine_cannot_mount_is_named() {
    let Some(peer) = peer("podman-rootless", "Podman") else { return };
    // The directories of this home belong to root, and the rootless engine cannot enter them.
    let env = TestEnv::new(CONFIG);
    let run = with_engine(&env, &host(&peer.socket), &["exec", "--json", "--session", "s", "--", "true"]);
    assert_eq!(run.code, Some(5), "{run:?}");
    let error = &run.json()["error"];
    let message = error["message"].as_str().unwrap();
    let mounted = format!("the engine cannot mount {}/", env.home.path().display());
    assert!(message.contains(&mounted) && message.ends_with(": permission denied"), "{message}");
    assert!(error["hints"].to_string().contains("runs as another user"), "{error}");
    assert_eq!(peer.containers(&env), json!([]));
}
