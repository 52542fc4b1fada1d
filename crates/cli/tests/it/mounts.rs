//! Mounts and environment variables of containers, with real engines.

use std::fs::{self, Permissions};
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use hermes_testkit::eventually;
use serde_json::{Value, json};

use crate::{Home, Run, ordinary_uid, socket};

const IMAGE: &str = "localhost/hermes-test:bash";

/// Sends a request to an engine and returns the response body.
fn engine_request(socket: &Path, method: &str, path: &str, body: &Value) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).unwrap();
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let length = body.len();
    let head = format!("{method} /v1.41{path} HTTP/1.0\r\nHost: x\r\nContent-Type: application/json\r\n");
    stream.write_all(format!("{head}Content-Length: {length}\r\n\r\n{body}").as_bytes()).unwrap();
    let mut response = Vec::new();
    stream.read_to_end(&mut response).unwrap();
    let end = response.windows(4).position(|bytes| bytes == b"\r\n\r\n").unwrap();
    assert!(response.starts_with(b"HTTP/1.0 2"), "{path}: {}", String::from_utf8_lossy(&response));
    response.split_off(end + 4)
}

/// A home directory whose containers are removed on drop.
struct ContainerEnv {
    home: Home,
    work: tempfile::TempDir,
    engine: PathBuf,
}

impl ContainerEnv {
    fn new(engine: &Path, config: &str) -> Self {
        let work = tempfile::tempdir().unwrap();
        Self { home: Home::with_config(config), work, engine: engine.to_owned() }
    }

    /// Runs hermes as an ordinary user.
    fn of_user(engine: &Path, config: &str) -> Self {
        let work = tempfile::tempdir().unwrap();
        Self { home: Home::of_user(config), work, engine: engine.to_owned() }
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.home.command(args);
        self.home.chown_to_user(self.work.path(), &self.persistent_dir());
        command
            .env("DOCKER_HOST", format!("unix://{}", self.engine.display()))
            .env("TERMINAL_DOCKER_IMAGE", IMAGE)
            .env("HOME", "/home/nobody")
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .current_dir(self.work.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, args: &[&str]) -> Run {
        Run::of(self.command(args).output().unwrap())
    }

    fn exec(&self, text: &str, env: &[(&str, &str)]) -> Run {
        let args = ["exec", "--backend", "docker", "--yes", "--session", "s", "--", text];
        Run::of(self.command(&args).envs(env.iter().copied()).output().unwrap())
    }

    fn places(&self) -> Vec<String> {
        let listed = self.run(&["sandbox", "ls", "--json"]).json();
        let names = listed["places"].as_array().unwrap().iter();
        names.map(|place| place["name"].as_str().unwrap().to_owned()).collect()
    }

    /// The directory of the persistent files of containers.
    fn persistent_dir(&self) -> PathBuf {
        self.home.path().join("sandboxes/docker")
    }

    /// The directory of sockets and records.
    fn runtime_dir(&self) -> PathBuf {
        let install = self.home.read(".install-id").unwrap();
        let uid = fs::metadata(self.home.path()).unwrap().uid();
        let short: String = install.chars().take(8).collect();
        PathBuf::from(format!("/tmp/hermes-{uid}-{short}"))
    }
}

impl Drop for ContainerEnv {
    fn drop(&mut self) {
        for place in self.places() {
            self.run(&["sandbox", "rm", "--force", &place]);
        }
        if self.home.read(".install-id").is_ok() {
            fs::remove_dir_all(self.runtime_dir()).ok();
        }
    }
}

/// Relays a world-writable socket to an engine.
fn relay_engine(engine: &Path, folder: &Path) -> PathBuf {
    let path = folder.join("engine.sock");
    let listener = UnixListener::bind(&path).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    let engine = engine.to_owned();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let engine = UnixStream::connect(&engine).unwrap();
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), engine.try_clone().unwrap()), (engine, client)]
            {
                thread::spawn(move || {
                    // Either side may disconnect at any time.
                    std::io::copy(&mut from, &mut to).ok();
                    to.shutdown(std::net::Shutdown::Write).ok();
                });
            }
        }
    });
    path
}

/// No engine listens here, so a refusal happens before an engine is contacted.
fn missing_engine() -> PathBuf {
    PathBuf::from("/nowhere/engine.sock")
}

#[test]
fn files_of_hermes_are_never_mounted_and_missing_paths_are_not_created() {
    let env = ContainerEnv::new(&missing_engine(), "");
    let home = env.home.path().canonicalize().unwrap();
    env.home.write(".env", "");
    for name in ["tool.json", "hermes.db", "hermes.db.v1.bak", "approvals.key"] {
        env.home.write(name, "");
    }
    for name in ["logs", "cache/guest", "skills"] {
        fs::create_dir_all(home.join(name)).unwrap();
    }
    let work = env.work.path();
    fs::create_dir(work.join("inner")).unwrap();
    symlink(&home, work.join("link")).unwrap();
    symlink("/etc", work.join("inner/data")).unwrap();
    symlink("/etc/passwd", home.join("outside-link")).unwrap();
    symlink(".env", home.join("env-link")).unwrap();
    let at = |path: &Path| path.display().to_string();
    let volume = |source: &str, target: &str| json!({"docker_volumes": [format!("{source}:{target}:ro")]});
    let in_home = |name: &str| at(&home.join(name));
    let cases = [
        (volume("./absent", "/x"), at(&work.join("absent"))),
        (volume(&at(&home), "/x"), in_home(".env")),
        (volume("/", "/x"), in_home(".env")),
        (volume("./link", "/x"), in_home(".env")),
        (volume("./link/logs", "/x"), in_home("logs")),
        (volume(&in_home("env-link"), "/x"), in_home(".env")),
        (volume(&in_home("cache"), "/x"), in_home("cache/guest")),
        (volume("./inner", "/.hermes/guest"), "/.hermes".to_owned()),
        // A command in the container may have made the link.
        (json!({"docker_volumes": ["./inner:/x", "./inner/data:/y:ro"]}), at(&work.join("inner/data"))),
        (json!({"credential_files": ["/etc/passwd"]}), "/etc/passwd".to_owned()),
        (json!({"credential_files": ["../x"]}), "../x".to_owned()),
        (json!({"credential_files": ["outside-link"]}), "/etc/passwd".to_owned()),
        (json!({"credential_files": ["env-link"]}), in_home(".env")),
        (json!({"credential_files": [".env"]}), in_home(".env")),
        (json!({"credential_files": ["hermes.db"]}), in_home("hermes.db")),
        (json!({"credential_files": ["approvals.key"]}), in_home("approvals.key")),
        (json!({"credential_files": ["hermes.db.v1.bak"]}), in_home("hermes.db.v1.bak")),
        (volume(&in_home("hermes.db"), "/x"), in_home("hermes.db")),
        (json!({"docker_mount_cwd_to_workspace": true, "cwd": at(&home)}), in_home(".env")),
    ];
    for (terminal, expected_path) in cases {
        env.home.write("config.yaml", json!({"terminal": terminal}).to_string());
        let refused = env.exec("true", &[]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{terminal}: {refused:?}");
        assert!(refused.err.contains(&expected_path), "{terminal}: {expected_path}: {refused:?}");
    }
    assert!(!work.join("absent").exists());
    // The sandbox applies the same rules to the same volumes.
    for volume in [at(&home), at(home.parent().unwrap()), in_home("hermes.db"), in_home("cache")] {
        let terminal = json!({"backend": "sandbox", "docker_volumes": [format!("{volume}:/x")]});
        env.home.write("config.yaml", json!({"terminal": terminal}).to_string());
        let refused = env.run(&["exec", "--backend", "sandbox", "--", "true"]);
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{volume}: {refused:?}");
        assert!(refused.err.contains("which Hermes itself depends on"), "{volume}: {refused:?}");
    }
    // Control: other files of the same directories are allowed, so the engine is contacted.
    let allowed = json!({"terminal": {"docker_volumes": ["./inner:/x"], "credential_files": ["tool.json"]}});
    env.home.write("config.yaml", allowed.to_string());
    assert_eq!(env.exec("true", &[]).code, Some(5));
}

fn mounts_appear_at_their_targets(env: &ContainerEnv) {
    let (home, work) = (env.home.path(), env.work.path());
    for name in ["skills/one", "cache/images", "creds", "sessions"] {
        fs::create_dir_all(home.join(name)).unwrap();
    }
    env.home.write("skills/one/SKILL.md", "skill");
    env.home.write("creds/token", "token");
    for name in ["outer", "inner", "deepest"] {
        fs::create_dir(work.join(name)).unwrap();
        fs::write(work.join(name).join("is"), name).unwrap();
    }
    let terminal = json!({
        // The volume that contains the other targets is listed last.
        "docker_volumes": ["./deepest:/workspace/a/b/c/d:ro", "./inner:/workspace/a/b", "./outer:/root/o"],
        "credential_files": ["creds/token"],
    });
    env.home.write("config.yaml", json!({"terminal": terminal}).to_string());
    let script = "pwd; cat a/b/is a/b/c/d/is ~/o/is ~/.hermes/skills/one/SKILL.md ~/.hermes/creds/token; \
        ls ~/.hermes ~/.hermes/cache; touch a/b/c/d/new 2>/dev/null || touch a/b/new; \
        while read -r _ _ _ _ at how _; do case $at in */.hermes/*/*|*/.hermes/skills) echo $at ${how%%,*};; esac; \
        done < /proc/self/mountinfo | sort";
    let seen = env.exec(script, &[]);
    let listing = "/root/.hermes:\ncache\ncreds\nskills\n\n/root/.hermes/cache:\nimages\n";
    let read_only =
        ["cache/images", "creds/token", "skills"].map(|name| format!("/root/.hermes/{name} ro\n"));
    let expected = format!("/workspace\ninnerdeepestouterskilltoken{listing}{}", read_only.concat());
    assert_eq!((seen.code, seen.out), (Some(0), expected), "{}", seen.err);
    assert!(work.join("inner/new").exists() && !work.join("deepest/new").exists());
    // Mount points were created in the persistent files and in the outer volume.
    let [name] = env.places().try_into().unwrap();
    assert!(
        env.persistent_dir().join(&name).join("workspace/a/b").is_dir() && work.join("inner/c/d").is_dir()
    );

    let strict = json!({"strict_mounts": true, "docker_mount_cwd_to_workspace": true,
        "docker_volumes": ["./outer:/workspace/below"], "credential_files": ["creds/token"]});
    env.home.write("config.yaml", json!({"terminal": strict}).to_string());
    let seen = env.exec("pwd; cat inner/is below/is; grep -c ' /root/.hermes' /proc/self/mountinfo", &[]);
    assert_eq!(seen.out, "/workspace\ninnerouter0\n", "{seen:?}");

    // Another volume at the same target wins, and a symlink that leaves the skills directory hides
    // all of it.
    symlink("/etc", home.join("skills/escaping-link")).unwrap();
    let other = json!({"docker_mount_cwd_to_workspace": true, "docker_volumes": ["./outer:/workspace"]});
    env.home.write("config.yaml", json!({"terminal": other}).to_string());
    let seen = env.exec("cat is; ls ~/.hermes/skills; ls -d ~/.hermes/cache/images", &[]);
    assert_eq!(seen.out, "outer/root/.hermes/cache/images\n", "{seen:?}");
    assert!(seen.err.contains("skills/escaping-link"), "{seen:?}");
}

#[test]
fn mounts_appear_at_their_targets_on_docker() {
    mounts_appear_at_their_targets(&ContainerEnv::new(&socket("docker"), ""));
}

#[test]
fn mounts_appear_at_their_targets_on_podman() {
    mounts_appear_at_their_targets(&ContainerEnv::new(&socket("podman"), ""));
}

#[test]
fn mounts_appear_at_their_targets_without_root() {
    let env = ContainerEnv::of_user(&socket("podman-rootless"), "");
    mounts_appear_at_their_targets(&env);
    // Mount points, and files written below them, belong to the owner.
    let [name] = env.places().try_into().unwrap();
    let persistent = env.persistent_dir().join(&name);
    let work = env.work.path();
    for path in [persistent.join("workspace/a/b"), work.join("inner/c/d"), work.join("inner/new")] {
        assert_eq!(fs::metadata(&path).unwrap().uid(), ordinary_uid(), "{}", path.display());
    }
}

fn skills_are_mounted_with_their_files(env: &ContainerEnv) {
    let (home, work) = (env.home.path(), env.work.path());
    let skill = |entries: &str| format!("---\nname: x\nrequired_credential_files:\n{entries}---\ntext\n");
    for path in [
        home.join("skills/cat/one"),
        home.join("more"),
        home.join("credentials"),
        work.join("team/two"),
        work.join("bad"),
    ] {
        fs::create_dir_all(path).unwrap();
    }
    for (name, text) in [
        ("credentials/google.json", "google"),
        ("creds.json", "team"),
        ("auth.json", "no"),
        (".env", ""),
        ("hermes.db", "no"),
        ("unlisted.json", "no"),
    ] {
        env.home.write(name, text);
    }
    symlink("../unlisted.json", home.join("credentials/link")).unwrap();
    symlink("auth.json", home.join("env-link")).unwrap();
    symlink("/etc/passwd", home.join("outside-link")).unwrap();
    symlink("/etc/passwd", work.join("bad/escaping-link")).unwrap();
    let entries = "  - credentials/google.json\n  - path: missing.json\n  - .env\n  - path: auth.json\n  - env-link\n\
        \x20 - outside-link\n  - ../x\n  - /etc/hosts\n  - credentials/../creds.json\n  - hermes.db\n\
        \x20 - unlisted.json\n  - credentials/link\n";
    env.home.write("skills/cat/one/SKILL.md", skill(entries));
    fs::write(work.join("team/two/SKILL.md"), skill("  - name: creds.json\n")).unwrap();
    fs::write(work.join("bad/SKILL.md"), skill("  - config.yaml\n")).unwrap();
    let team = work.join("team").display().to_string();
    let dirs = json!([team, "skills", "absent", team, work.join("bad"), "more"]);
    let config = json!({"skills": {"external_dirs": dirs}, "terminal": {"credential_files": ["creds.json"]}});
    env.home.write("config.yaml", config.to_string());
    let script = "cd ~/.hermes; cat credentials/google.json creds.json; echo; \
        tail -qn 1 external_skills/0/two/SKILL.md skills/cat/one/SKILL.md; ls -A . external_skills; \
        for at in skills/x external_skills/0/x external_skills/2/x credentials/google.json; do \
        ( echo x >>$at ) 2>&1 | grep -c 'Read-only'; done";
    let seen = env.exec(script, &[]);
    // A hidden directory keeps its number, so the numbers of the others do not change.
    let listing = ".:\ncredentials\ncreds.json\nexternal_skills\nskills\n\nexternal_skills:\n0\n2\n";
    assert_eq!(
        (seen.code, seen.out.as_str()),
        (Some(0), format!("googleteam\ntext\ntext\n{listing}1\n1\n1\n1\n").as_str()),
        "{seen:?}"
    );
    let refused = [
        ".env", "auth.json", "env-link", "outside-link", "../x", "/etc/hosts", "credentials/../creds.json",
        "hermes.db", "unlisted.json", "credentials/link",
    ];
    for name in refused {
        assert!(seen.err.contains(&format!("wants the file `{name}`")), "{name}: {}", seen.err);
    }
    assert!(seen.err.contains("escaping-link") && seen.err.contains("there is no directory"), "{}", seen.err);
    assert!(!seen.err.contains("config.yaml") && !seen.err.contains("missing.json"), "{}", seen.err);
    // With strict mounts, only paths that the owner listed are mounted, not those of skills.
    let strict = json!({"skills": {"external_dirs": dirs}, "terminal": {"strict_mounts": true}});
    env.home.write("config.yaml", strict.to_string());
    let seen = env.exec("ls -A ~; grep -c ' /root/.hermes' /proc/self/mountinfo", &[]);
    assert!(seen.out.ends_with("0\n") && seen.err.lines().all(|line| !line.contains("wants")), "{seen:?}");
    // The home of hermes is refused as a skills directory.
    let home = json!({"skills": {"external_dirs": ["."]}});
    env.home.write("config.yaml", home.to_string());
    let seen = env.exec("true", &[]);
    assert!(seen.code == Some(3) && seen.err.contains("which Hermes itself depends on"), "{seen:?}");
    env.home.write("config.yaml", "");
}

#[test]
fn skills_are_mounted_with_their_files_on_docker() {
    skills_are_mounted_with_their_files(&ContainerEnv::new(&socket("docker"), ""));
}

#[test]
fn skills_are_mounted_with_their_files_on_podman() {
    skills_are_mounted_with_their_files(&ContainerEnv::new(&socket("podman"), ""));
}

#[test]
fn skills_are_mounted_with_their_files_without_root() {
    skills_are_mounted_with_their_files(&ContainerEnv::of_user(&socket("podman-rootless"), ""));
}

/// Lists every file below a directory that contains these bytes.
fn files_containing(directory: &Path, bytes: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap().flatten() {
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(files_containing(&entry.path(), bytes));
        } else if kind.is_file() && contains(&fs::read(entry.path()).unwrap(), bytes) {
            found.push(entry.path());
        }
    }
    found
}

fn contains(text: &[u8], bytes: &str) -> bool {
    text.windows(bytes.len()).any(|window| window == bytes.as_bytes())
}

fn variable_values_are_only_in_the_command(env: &ContainerEnv) {
    let config = json!({"terminal": {
        "docker_env": {"LITERAL": "plain", "BOTH": "plain"},
        "docker_forward_env": ["TOKEN", "OPENAI_API_KEY", "BOTH", "BLANK", "MISSING"],
        "env_passthrough": ["ANTHROPIC_API_KEY"],
    }});
    env.home.write("config.yaml", config.to_string());
    let engine = &env.engine;
    env.home.write(".env", "OPENAI_API_KEY=from-the-file\nTOKEN=shadowed\nBLANK=from-the-file\n");
    let canary = format!("canary-{}-one", std::process::id());
    let variables =
        [("TOKEN", canary.as_str()), ("BOTH", "forwarded"), ("BLANK", " "), ("ANTHROPIC_API_KEY", "never")];
    let show =
        "echo $TOKEN $OPENAI_API_KEY $LITERAL $BOTH $BLANK ${MISSING-unset} ${ANTHROPIC_API_KEY-unset}";
    let text = format!("{show}; touch begun; until [ -e go ]; do sleep 0.05; done");
    let args = ["exec", "--backend", "docker", "--yes", "--session", "s", "--", &text];
    let running =
        env.command(&args).envs(variables).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let work = || Some(fs::read_dir(env.persistent_dir()).ok()?.flatten().next()?.path().join("workspace"));
    eventually("the command runs", || work().is_some_and(|work| work.join("begun").exists()));

    let [place] = env.places().try_into().unwrap();
    let name: String = place.chars().take("hermes-".len() + 8).collect();
    let inspected = engine_request(engine, "GET", &format!("/containers/{name}/json"), &Value::Null);
    let all = engine_request(engine, "GET", "/containers/json?all=1", &Value::Null);
    let logs =
        engine_request(engine, "GET", &format!("/containers/{name}/logs?stdout=1&stderr=1"), &Value::Null);
    for (request, text) in [("inspect", &inspected), ("list", &all), ("logs", &logs)] {
        assert!(!contains(text, &canary), "{request}");
    }
    let (mut commands, mut guests) = (0, 0);
    for process in fs::read_dir("/proc").unwrap().flatten() {
        let read = |name: &str| fs::read(process.path().join(name));
        // A process that has ended since cannot be read.
        let (Ok(line), Ok(mounts)) = (read("cmdline"), read("mountinfo")) else { continue };
        commands += 1;
        assert!(!contains(&line, &canary), "{}", String::from_utf8_lossy(&line));
        if contains(&mounts, &place) && contains(&line, "/.hermes/run/sock") {
            guests += 1;
            let environment = read("environ").unwrap();
            assert!(!contains(&environment, &canary) && contains(&environment, "HOME="));
        }
    }
    assert!(commands > guests && guests > 0, "{commands} commands, {guests} guests");
    fs::write(work().unwrap().join("go"), "").unwrap();
    let done = Run::of(running.wait_with_output().unwrap());
    assert_eq!(
        done.out,
        format!("{canary} from-the-file plain forwarded from-the-file unset unset\n"),
        "{done:?}"
    );

    // The next command sees changed values; variables set by the session stay.
    let next = env.exec(&format!("{show}; export LITERAL=own"), &[("TOKEN", "two")]);
    assert_eq!(next.out, "two from-the-file plain plain from-the-file unset unset\n", "{next:?}");
    env.home.write(".env", "");
    let next = env.exec(show, &[]);
    assert_eq!(next.out, "own plain unset unset\n", "{next:?}");

    let no_files: [PathBuf; 0] = [];
    assert_eq!(files_containing(env.home.path(), &canary), no_files);
    assert_eq!(files_containing(&env.runtime_dir(), &canary), no_files);
}

#[test]
fn variables_are_not_forwarded_over_an_unencrypted_network() {
    let run = |key: &str, host: &str, value: &str| {
        let config = json!({"terminal": {"backend": "docker", key: ["TOKEN"]}});
        let env = ContainerEnv::new(&missing_engine(), &config.to_string());
        let mut command = env.command(&["exec", "--dry-run", "--", "true"]);
        Run::of(command.envs([("DOCKER_HOST", host), ("TOKEN", value)]).output().unwrap())
    };
    for key in ["docker_forward_env", "env_passthrough"] {
        let refused = run(key, "tcp://engine.invalid:2375", "secret");
        assert_eq!((refused.code, refused.out.as_str()), (Some(3), ""), "{key}: {refused:?}");
        let expected = "cannot forward TOKEN to the engine at tcp://engine.invalid:2375";
        assert!(refused.err.contains(expected), "{key}: {refused:?}");
        assert!(!refused.err.contains("secret"), "{key}: {refused:?}");
        // The engine is contacted, and is not there.
        assert_eq!(run(key, "tcp://127.0.0.1:1", "secret").code, Some(5), "{key}");
        assert_eq!(run(key, "tcp://engine.invalid:2375", "").code, Some(5), "{key}");
    }
}

#[test]
fn status_says_which_forwarded_variables_have_a_value() {
    let config =
        json!({"terminal": {"backend": "docker", "docker_forward_env": ["HERE", "BLANK", "FILE", "GONE"]}});
    let env = ContainerEnv::new(&missing_engine(), &config.to_string());
    env.home.write(".env", "FILE=x\nGONE=\n");
    let mut status = env.command(&["status", "--json"]);
    let status =
        Run::of(status.envs([("HERE", "x"), ("BLANK", " "), ("FILE", " ")]).output().unwrap()).json();
    let row = |name: &str, present: bool| json!({"name": name, "present": present});
    let expected = json!([row("HERE", true), row("BLANK", false), row("FILE", true), row("GONE", false)]);
    assert_eq!(status["terminal"]["forwarded"], expected);
}

#[test]
fn variable_values_are_only_in_the_command_on_docker() {
    variable_values_are_only_in_the_command(&ContainerEnv::new(&socket("docker"), ""));
}

#[test]
fn variable_values_are_only_in_the_command_on_podman() {
    variable_values_are_only_in_the_command(&ContainerEnv::new(&socket("podman"), ""));
}

#[test]
fn variable_values_are_only_in_the_command_without_root() {
    variable_values_are_only_in_the_command(&ContainerEnv::of_user(&socket("podman-rootless"), ""));
}

fn an_ordinary_user_can_remove_files_of_root(engine: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let env = ContainerEnv::of_user(&relay_engine(&socket(engine), folder.path()), "");
    let made = env.exec("mkdir -p ~/a/b /.hermes/run/c/d; touch ~/a/b/c; chmod 0 ~/a; id -u", &[]);
    assert_eq!(made.out, "0\n", "{made:?}");
    let [place] = env.places().try_into().unwrap();
    assert_eq!(fs::metadata(env.persistent_dir().join(&place).join("home/a")).unwrap().uid(), 0);
    let removed = env.run(&["sandbox", "rm", &place]);
    assert_eq!((removed.code, removed.out), (Some(0), format!("{place}\n")), "{}", removed.err);
    assert!(!env.persistent_dir().join(&place).exists() && !env.runtime_dir().join(&place).exists());
}

#[test]
fn an_ordinary_user_can_remove_files_of_root_on_docker() {
    an_ordinary_user_can_remove_files_of_root("docker");
}

#[test]
fn an_ordinary_user_can_remove_files_of_root_on_podman() {
    an_ordinary_user_can_remove_files_of_root("podman");
}

fn the_host_user_can_write_to_home_and_workspace(engine: &str) {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
    let engine = relay_engine(&socket(engine), folder.path());
    for persistent in [true, false] {
        let config =
            json!({"terminal": {"docker_run_as_host_user": true, "container_persistent": persistent}});
        let env = ContainerEnv::of_user(&engine, &config.to_string());
        let done = env.exec(
            "touch ~/x /workspace/y /tmp/z && id -u && stat -c %u ~/x && echo $HOME && \
             python3 -c 'import os; print(os.path.expanduser(\"~\"))'",
            &[],
        );
        assert_eq!(done.out, format!("{0}\n{0}\n/root\n/root\n", ordinary_uid()), "{persistent}: {done:?}");
    }
}

#[test]
fn the_host_user_can_write_to_home_and_workspace_on_docker() {
    the_host_user_can_write_to_home_and_workspace("docker");
}

#[test]
fn the_host_user_can_write_to_home_and_workspace_on_podman() {
    the_host_user_can_write_to_home_and_workspace("podman");
}

#[test]
fn rootless_files_in_mounts_belong_to_the_owner() {
    let env = ContainerEnv::of_user(&socket("podman-rootless"), "");
    let done = env.exec("id -u; touch ~/mine; mkdir ~/other; touch ~/other/x; chown -R 7:7 ~/other", &[]);
    assert_eq!(done.out, "0\n", "{done:?}");
    let [place] = env.places().try_into().unwrap();
    let home = env.persistent_dir().join(&place).join("home");
    let owner = |name: &str| fs::metadata(home.join(name)).unwrap().uid();
    assert_eq!(owner("mine"), ordinary_uid());
    // Files of another user of the container have an unmapped owner here, and are removed too.
    assert_ne!(owner("other"), ordinary_uid());
    let removed = env.run(&["sandbox", "rm", &place]);
    assert_eq!(removed.code, Some(0), "{removed:?}");
    assert!(!home.exists());
}

#[test]
fn hermes_in_a_container_mounts_paths_of_the_engine_host() {
    let engine = socket("docker");
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    fs::create_dir_all(data.join("project")).unwrap();
    fs::write(data.join("project/file"), "seen").unwrap();
    fs::copy(env!("CARGO_BIN_EXE_hermes"), data.join("hermes")).unwrap();
    relay_engine(&engine, &data);
    let name = format!("hermes-test-outer-{}", std::process::id());
    // The directory that the guest shares with hermes is in the home, which is on a mount.
    let run_in_container = |persistent: bool| {
        let args = ["/data/hermes", "exec", "--backend", "docker", "--yes", "--session", "s", "--"];
        let mut args = args.to_vec();
        args.push("cat /project/file; touch ~/written; id -u");
        let env = [
            "HERMES_HOME=/data/home".to_owned(),
            "DOCKER_HOST=unix:///data/engine.sock".to_owned(),
            format!("TERMINAL_DOCKER_IMAGE={IMAGE}"),
            "TERMINAL_DOCKER_VOLUMES=[\"/data/project:/project:ro\"]".to_owned(),
            "TERMINAL_LIFETIME_SECONDS=2".to_owned(),
            format!("TERMINAL_CONTAINER_PERSISTENT={persistent}"),
        ];
        let body = json!({"Image": IMAGE, "Entrypoint": [], "Cmd": args, "Env": env, "WorkingDir": "/data",
            "HostConfig": {"Binds": [format!("{}:/data", data.display())]}});
        engine_request(&engine, "POST", &format!("/containers/create?name={name}"), &body);
        engine_request(&engine, "POST", &format!("/containers/{name}/start"), &Value::Null);
        let waited = engine_request(&engine, "POST", &format!("/containers/{name}/wait"), &Value::Null);
        let logs = engine_request(
            &engine,
            "GET",
            &format!("/containers/{name}/logs?stdout=1&stderr=1"),
            &Value::Null,
        );
        engine_request(&engine, "DELETE", &format!("/containers/{name}?force=1"), &Value::Null);
        let waited: Value = serde_json::from_slice(&waited).unwrap();
        (waited["StatusCode"].clone(), String::from_utf8_lossy(&logs).into_owned())
    };
    let (code, output) = run_in_container(true);
    assert!(code == json!(0) && output.contains("seen") && output.contains('0'), "{code}: {output}");
    let place_dir = fs::read_dir(data.join("home/sandboxes/docker")).unwrap().flatten().next().unwrap();
    assert!(place_dir.path().join("home/written").exists());

    let (code, output) = run_in_container(false);
    assert!(code == json!(0) && output.contains("seen"), "{code}: {output}");
    eventually("the inner container is gone", || {
        let all = engine_request(&engine, "GET", "/containers/json?all=1", &Value::Null);
        !contains(&all, &place_dir.file_name().to_string_lossy())
    });
}
