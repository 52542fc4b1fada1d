//! Pulls of images from a real registry by real engines.

use std::io::Read;
use std::process::{Child, Command, Stdio};

use hermes_testkit::eventually;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use crate::registry::{AUTH, Engine, Lock, Registry, engines};
use crate::{Home, Run};

const ALL_ENGINES: [&str; 3] = ["docker", "podman", "podman-rootless"];

/// A home directory whose containers, all of one engine, are removed on drop.
struct PullEnv {
    home: Home,
    engine: Engine,
}

impl PullEnv {
    fn new(engine: &Engine) -> Self {
        let is_rootless = engine.name == "podman-rootless";
        let home = if is_rootless { Home::of_user("") } else { Home::with_config("") };
        Self { home, engine: engine.clone() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let run = self.home.path().join("run");
        std::fs::create_dir_all(&run).unwrap();
        let mut command = self.home.command(args);
        command
            .env("XDG_RUNTIME_DIR", run)
            .env("HOME", self.home.path())
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("DOCKER_HOST", format!("unix://{}", self.engine.socket.display()))
            // An engine that cannot enforce a limit would cause a warning.
            .envs(["MEMORY", "CPU", "PIDS", "DISK"].map(|name| (format!("TERMINAL_CONTAINER_{name}"), "0")))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// A command that SIGINT ends, even if the test runner ignores SIGINT.
    fn interruptible_command(&self, args: &[&str]) -> Command {
        let hermes = self.command(args);
        #[expect(clippy::disallowed_methods, reason = "executes the program under test")]
        let mut env = Command::new("env");
        env.arg("--default-signal=INT").arg(hermes.get_program()).args(args).env_clear();
        env.envs(hermes.get_envs().filter_map(|(name, value)| Some((name, value?))));
        env.stdout(Stdio::piped()).stderr(Stdio::piped());
        self.home.run_as_user(&mut env);
        env
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn pull(&self, image: &str) -> Run {
        self.run(&["sandbox", "pull", image])
    }

    /// Runs a command in the environment of this session.
    fn exec(&self, image: &str, session: &str) -> Child {
        let args = ["exec", "--backend", "docker", "--image", image, "--session", session, "--json", "--"];
        self.command(&[&args[..], &["ls /noise"]].concat()).spawn().unwrap()
    }

    fn log_in(&self, host: &str, auth: &str) {
        let folder = self.home.path().join(".docker");
        std::fs::create_dir_all(&folder).unwrap();
        let file = json!({"auths": {host: {"auth": auth}}}).to_string();
        std::fs::write(folder.join("config.json"), file).unwrap();
    }
}

impl Drop for PullEnv {
    fn drop(&mut self) {
        let listed = self.run(&["sandbox", "ls", "--json"]).json();
        for place in listed["places"].as_array().unwrap() {
            let removed = self.run(&["sandbox", "rm", "--force", place["name"].as_str().unwrap()]);
            assert_eq!(removed.code, Some(0), "{removed:?}");
        }
    }
}

#[test]
fn a_pull_prints_its_layers_and_the_result() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        let image = registry.push("one", "amd64", 3);
        let name = &image.name;
        let pulled = env.pull(name);
        assert_eq!(pulled.code, Some(0), "{}: {pulled:?}", engine.name);
        assert!(
            pulled.out.starts_with(&format!("pulled {name}, ")) && pulled.out.contains(&image.digest),
            "{}: {pulled:?}",
            engine.name
        );
        let lines: Vec<&str> = pulled.err.lines().collect();
        let last = lines.last().unwrap();
        let layers = last.split(' ').next().unwrap();
        assert!(
            lines[0] == format!("pulling {name}")
                && last.starts_with(&format!("{layers} of {layers} layers, ")),
            "{}: {pulled:?}",
            engine.name
        );
        let again = env.run(&["sandbox", "pull", name, "--json"]).json();
        assert_eq!(
            json!([again["image"], again["digest"], again["pulled"]]),
            json!([name, image.digest, false]),
            "{}",
            engine.name
        );
        assert!(again["bytes"].as_u64().unwrap() > 3 << 20, "{again}");
        // The same tag, moved to another image.
        let newer = registry.push("one", "amd64", 1);
        let changed = env.run(&["sandbox", "pull", name, "--json"]).json();
        assert_eq!(
            json!([changed["digest"], changed["pulled"]]),
            json!([newer.digest, true]),
            "{}",
            engine.name
        );
    }
}

#[test]
fn a_terminal_shows_a_bar() {
    for engine in engines(&["docker"]) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        let image = registry.push("one", "amd64", 1).name;
        let hermes = env.command(&[]);
        let line = format!("{} sandbox pull {image}", hermes.get_program().display());
        #[expect(clippy::disallowed_methods, reason = "a terminal around the program under test")]
        let mut script = Command::new("script");
        script.args(["--quiet", "--return", "--command", &line, "/dev/null"]).env_clear();
        script.envs(hermes.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let shown = Run::of(script.stdin(Stdio::null()).output().unwrap());
        assert!(
            shown.code == Some(0)
                && shown.out.contains("\r\u{1b}[K[")
                && shown.out.contains(&format!("\r\u{1b}[Kpulled {image}")),
            "{shown:?}"
        );
    }
}

#[test]
fn only_a_missing_image_is_pulled() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        let image = registry.push("one", "amd64", 1).name;
        let first = Run::of(env.exec(&image, "first").wait_with_output().unwrap());
        assert_eq!(
            (first.code, first.json()["output"].as_str(), &first.err),
            (Some(0), Some("/noise\n"), &format!("pulling {image}\n")),
            "{}",
            engine.name
        );
        let asked = registry.reads("");
        let second = Run::of(env.exec(&image, "second").wait_with_output().unwrap());
        assert_eq!((second.code, second.err.as_str()), (Some(0), ""), "{}", engine.name);
        assert_eq!(registry.reads(""), asked, "{}", engine.name);
    }
}

#[test]
fn two_commands_share_one_pull_of_a_missing_image() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        let (image, alone) = (registry.push("one", "amd64", 2), registry.push("alone", "amd64", 1));
        assert_eq!(env.pull(&alone.name).code, Some(0), "{}", engine.name);
        registry.throttle();
        let mut both = ["one", "two"].map(|session| env.exec(&image.name, session));
        for child in &mut both {
            let mut output = vec![0; "pulling ".len()];
            child.stderr.as_mut().unwrap().read_exact(&mut output).unwrap();
            assert_eq!(String::from_utf8(output).unwrap(), "pulling ");
        }
        // Until now, neither command could finish the pull.
        registry.unthrottle();
        for child in both {
            let run = Run::of(child.wait_with_output().unwrap());
            assert_eq!(run.code, Some(0), "{}: {run:?}", engine.name);
        }
        assert_eq!(registry.reads(&image.layer), 1, "{}", engine.name);
        // The second command did not request the manifest.
        let asked = ["/one/manifests/", "/alone/manifests/"].map(|path| registry.reads(path));
        assert_eq!(asked[0], asked[1], "{}", engine.name);
    }
}

#[test]
fn each_pull_failure_has_its_own_message_and_hint() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        registry.push("one", "amd64", 1);
        let other = registry.push("other", "s390x", 1).name;
        let host = registry.host.clone();
        let cases = [
            (format!("{host}/one:v2"), "no such image or tag", "Check the name and the tag"),
            (format!("{host}/nothing:v1"), "no such image or tag", "`docker load -i FILE`"),
            (format!("{host}/Large:v1"), "invalid image name", "in lower case"),
            ("with space".to_owned(), "invalid image name", "in lower case"),
            ("../containers".to_owned(), "invalid image name", "in lower case"),
            ("127.0.0.1:1/one:v1".to_owned(), "cannot reach the registry", "`docker load -i FILE`"),
            ("nowhere.invalid/one:v1".to_owned(), "cannot reach the registry", "to try again"),
            (
                other.clone(),
                "is built for linux/s390x, but the engine runs linux/",
                "`terminal.docker_image`",
            ),
        ];
        for (image, reason, hint) in cases {
            let failed = env.pull(&image);
            assert!(
                failed.code == Some(5) && failed.err.contains(reason) && failed.err.contains(hint),
                "{}: {image}: {failed:?}",
                engine.name
            );
        }
        let run = Run::of(env.exec(&other, "s").wait_with_output().unwrap());
        let message = run.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(
            run.code == Some(5) && message.contains("is built for linux/s390x"),
            "{}: {run:?}",
            engine.name
        );
    }
}

#[test]
fn credentials_are_sent_to_their_own_registry_only() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Locked));
        let (image, host) = (registry.push("one", "amd64", 1).name, registry.host.clone());
        let login = format!("`docker login {host}`");
        // "user:wrong"
        for auth in [None, Some("dXNlcjp3cm9uZw==")] {
            if let Some(auth) = auth {
                env.log_in(&host, auth);
            }
            let denied = env.pull(&image);
            assert!(
                denied.code == Some(5) && denied.err.contains("access denied") && denied.err.contains(&login),
                "{}: {auth:?}: {denied:?}",
                engine.name
            );
        }
        env.log_in("elsewhere.example", AUTH);
        assert_eq!(env.pull(&image).code, Some(5), "{}", engine.name);
        env.log_in(&host, AUTH);
        let pulled = env.pull(&image);
        assert_eq!(pulled.code, Some(0), "{}: {pulled:?}", engine.name);
        // "user:a?b>c~d", which the header cannot carry unchanged
        env.log_in(&host, "dXNlcjphP2I+Y35k");
        let unsendable = env.pull(&image);
        assert!(
            unsendable.code == Some(5) && unsendable.err.contains("cannot be encoded for the engine"),
            "{}: {unsendable:?}",
            engine.name
        );
    }
}

#[test]
fn a_credential_helper_provides_the_password() {
    for engine in engines(&["docker"]) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Locked));
        let image = registry.push("one", "amd64", 1).name;
        let folder = env.home.path().join(".docker");
        std::fs::create_dir_all(&folder).unwrap();
        let file = json!({"credsStore": "test"}).to_string();
        std::fs::write(folder.join("config.json"), file).unwrap();
        let program = folder.join("docker-credential-test");
        let host = &registry.host;
        let script = format!(
            "#!/bin/sh\n[ \"$1 $(cat)\" = \"get {host}\" ] || exit 1\n\
             echo '{{\"ServerURL\":\"{host}\",\"Username\":\"user\",\"Secret\":\"hunter2\"}}'\n"
        );
        std::fs::write(&program, script).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let path = format!("{}:/usr/bin:/bin", folder.display());
        let pulled = Run::of(env.command(&["sandbox", "pull", &image]).env("PATH", path).output().unwrap());
        assert_eq!(pulled.code, Some(0), "{pulled:?}");
        let missing = env.pull(&image);
        assert!(missing.code == Some(5) && missing.err.contains("docker-credential-test"), "{missing:?}");
    }
}

/// Kills hermes during a pull and waits until the engine stops it.
fn kill_during_pull(registry: &Registry, mut child: Child, signal: Signal) {
    let before = registry.bytes_sent();
    eventually("the pull has started", || registry.bytes_sent() > before + (100 << 10));
    kill_process(Pid::from_child(&child), signal).unwrap();
    assert_eq!(child.wait().unwrap().code(), None);
    // Throttled, the pull would outlast the timeout of `eventually`.
    eventually("the engine stops", || registry.connections() == 0);
}

#[test]
fn an_interrupted_pull_stops_the_engine_and_leaves_nothing() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        for signal in [Signal::KILL, Signal::INT] {
            let name = if signal == Signal::INT { "int" } else { "kill" };
            let image = registry.push(name, "amd64", 5).name;
            registry.throttle();
            kill_during_pull(
                &registry,
                env.interruptible_command(&["sandbox", "pull", &image]).spawn().unwrap(),
                signal,
            );
            assert!(!engine.has_image(&image), "{}", engine.name);
            registry.unthrottle();
            assert_eq!(env.pull(&image).code, Some(0), "{}", engine.name);
        }
    }
}

#[test]
fn a_command_killed_during_a_pull_leaves_no_environment() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        let image = registry.push("one", "amd64", 5).name;
        registry.throttle();
        kill_during_pull(&registry, env.exec(&image, "s"), Signal::KILL);
        let listed = env.run(&["sandbox", "ls", "--json"]).json();
        assert_eq!(listed, json!({"places": []}), "{}", engine.name);
        registry.unthrottle();
        let run = Run::of(env.exec(&image, "s").wait_with_output().unwrap());
        assert_eq!(run.code, Some(0), "{}: {run:?}", engine.name);
    }
}

#[test]
fn a_pull_has_its_own_time_limit() {
    for engine in engines(&ALL_ENGINES) {
        let (env, mut registry) = (PullEnv::new(&engine), Registry::new(&engine, Lock::Open));
        env.home.write("config.yaml", "terminal:\n  docker_pull_timeout: 1\n");
        let image = registry.push("one", "amd64", 5).name;
        registry.throttle();
        let late = env.pull(&image);
        assert!(
            late.code == Some(5)
                && late.err.contains("timed out after 1 s")
                && late.err.contains("terminal.docker_pull_timeout"),
            "{}: {late:?}",
            engine.name
        );
        eventually("the engine stops", || registry.connections() == 0);
    }
}
