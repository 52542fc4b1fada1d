//! Uses each peer as `peers.json` describes it.
//!
//! A missing peer fails its test if `CI=true` is set. Elsewhere the test prints a line and passes.
#![expect(clippy::disallowed_methods, reason = "the tests start clients and read the environment")]

#[path = "../src/peers/http.rs"]
mod http;
#[path = "../src/peers/report.rs"]
mod report;

use std::fs;
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use report::{Access, Condition, Report};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(60);
const PYTHON: [&str; 3] = ["python3", "-c", "print(6*7)"];
const IS_THERE_BASH: [&str; 3] = ["/bin/sh", "-c", "command -v bash || echo no bash"];

#[test]
fn docker_runs_both_images() -> Result<()> {
    runs_both_images("docker")
}

#[test]
fn root_podman_runs_both_images() -> Result<()> {
    runs_both_images("podman")
}

#[test]
fn rootless_podman_runs_both_images() -> Result<()> {
    runs_both_images("podman-rootless")
}

#[test]
fn ssh_runs_commands_as_root_and_as_a_user() -> Result<()> {
    let Some((report, access)) = access("sshd")? else { return Ok(()) };
    let Access::Ssh { config, root_alias, user_alias, .. } = access else { bail!("not ssh: {access:?}") };
    let user = report.user.context("no user")?;
    for (alias, uid) in [(root_alias, 0), (user_alias, user.uid)] {
        let output = ssh(&config, &[], &alias, "echo $((6*7)) $(id -u); exit 3")?;
        ensure!(text(&output) == format!("42 {uid}") && output.status.code() == Some(3), "{output:?}");
    }
    Ok(())
}

#[test]
fn ssh_refuses_a_server_with_another_host_key() -> Result<()> {
    let Some((_, access)) = access("sshd")? else { return Ok(()) };
    let Access::Ssh { config, root_alias, host, port, identity, .. } = access else {
        bail!("not ssh: {access:?}")
    };
    // Replaces the host key of the server by another key, the public key of the user.
    let other_key = fs::read_to_string(identity.with_added_extension("pub"))?;
    let known_hosts = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wrong_known_hosts");
    fs::write(&known_hosts, format!("[{host}]:{port} {other_key}"))?;
    let option = format!("UserKnownHostsFile={}", known_hosts.display());
    let output = ssh(&config, &["-o", &option], &root_alias, "echo in")?;
    let complaint = String::from_utf8_lossy(&output.stderr).contains("Host key verification failed");
    ensure!(output.status.code() == Some(255) && output.stdout.is_empty() && complaint, "{output:?}");
    Ok(())
}

#[test]
fn apptainer_executes_in_both_images() -> Result<()> {
    let Some((report, access)) = access("apptainer")? else { return Ok(()) };
    let uid = report.user.context("no user")?.uid.to_string();
    let apptainer = Apptainer::new(&access)?;
    let exec = |image: &str, command: [&str; 3]| {
        apptainer.run(&[&["exec", "--containall", image], command.as_slice()].concat())
    };
    for image in apptainer.forms("bash")? {
        expect(&exec(image, PYTHON)?, "42", 0)?;
    }
    for image in apptainer.forms("busybox")? {
        expect(&exec(image, IS_THERE_BASH)?, "no bash", 0)?;
        expect(&exec(image, ["/bin/sh", "-c", "id -u; exit 7"])?, &uid, 7)?;
    }
    Ok(())
}

#[test]
fn apptainer_keeps_instances() -> Result<()> {
    let Some((report, access)) = access("apptainer")? else { return Ok(()) };
    let apptainer = Apptainer::new(&access)?;
    let note = report.shared_dir.join(format!("note-{}", std::process::id()));
    fs::write(&note, "from outside\n")?;
    let bind = format!("{}:/note", note.display());
    for (image, command, answer) in [("bash", PYTHON, "42"), ("busybox", IS_THERE_BASH, "no bash")] {
        let name = format!("smoke-{image}-{}", std::process::id());
        let instance = format!("instance://{name}");
        let [sandbox, _] = apptainer.forms(image)?;
        let start = ["instance", "start", "--containall", "--no-home", "--bind", &bind, sandbox, &name];
        expect(&apptainer.run(&start)?, "", 0)?;
        let computed = apptainer.run(&[&["exec", &instance], command.as_slice()].concat());
        let read = apptainer.run(&["exec", &instance, "cat", "/note"]);
        expect(&apptainer.run(&["instance", "stop", &name])?, "", 0)?;
        expect(&computed?, answer, 0)?;
        expect(&read?, "from outside", 0)?;
        let list = json_answer(apptainer.run(&["instance", "list", "--json", &name])?.stdout)?;
        ensure!(list == json!({ "instances": [] }), "still there: {list}");
    }
    fs::remove_file(note)?;
    Ok(())
}

fn runs_both_images(peer: &str) -> Result<()> {
    let Some((report, access)) = access(peer)? else { return Ok(()) };
    let Access::Engine { socket, .. } = access else { bail!("not an engine: {access:?}") };
    let reference = |name: &str| {
        let image = report.images.iter().find(|image| image.name == name);
        image.map(|image| image.reference.as_str()).with_context(|| format!("no image {name}"))
    };
    ensure!(container(&socket, reference("bash")?, &PYTHON)? == ("42".to_owned(), 0));
    let login = container(&socket, reference("bash")?, &["/bin/bash", "-c", "type -t type; exit 5"])?;
    ensure!(login == ("builtin".to_owned(), 5), "{login:?}");
    let shell = container(&socket, reference("busybox")?, &IS_THERE_BASH)?;
    ensure!(shell == ("no bash".to_owned(), 0), "{shell:?}");
    Ok(())
}

/// Creates, starts, waits for and removes a container. Returns what it printed and its exit code.
fn container(socket: &Path, image: &str, command: &[&str]) -> Result<(String, u64)> {
    // A terminal makes the log plain text, without the engine's framing.
    let spec =
        json!({ "Image": image, "Cmd": command, "Tty": true, "HostConfig": { "NetworkMode": "none" } });
    let spec = spec.to_string();
    let body = http::Body {
        kind: "application/json",
        length: u64::try_from(spec.len())?,
        bytes: &mut spec.as_bytes(),
    };
    let created = json_answer(http::request(socket, "POST", "/containers/create", Some(body), LIMIT)?)?;
    let id = created.get("Id").and_then(Value::as_str).context("no id")?;
    let call = |method: &str, what: &str| {
        http::request(socket, method, &format!("/containers/{id}{what}"), None, LIMIT)
    };
    let outcome = call("POST", "/start").and_then(|_| {
        let waited = json_answer(call("POST", "/wait")?)?;
        let code = waited.get("StatusCode").and_then(Value::as_u64).context("no exit code")?;
        let log = call("GET", "/logs?stdout=1&stderr=1")?;
        Ok((String::from_utf8(log)?.trim().to_owned(), code))
    });
    call("DELETE", "?force=1")?;
    outcome
}

fn json_answer(bytes: Vec<u8>) -> Result<Value> {
    serde_json::from_slice(&bytes).with_context(|| format!("not JSON: {}", String::from_utf8_lossy(&bytes)))
}

fn ssh(config: &Path, options: &[&str], alias: &str, command: &str) -> Result<Output> {
    let mut ssh = Command::new("timeout");
    ssh.args(["60", "ssh", "-F"]).arg(config).args(options).args([alias, command]);
    Ok(ssh.output()?)
}

struct Apptainer<'a> {
    launch: &'a [String],
    images: &'a [report::ApptainerImage],
}

impl<'a> Apptainer<'a> {
    fn new(access: &'a Access) -> Result<Self> {
        let Access::Apptainer { launch, images, .. } = access else { bail!("not Apptainer: {access:?}") };
        Ok(Self { launch, images })
    }

    /// The paths of an image: the directory and the single file.
    fn forms(&self, name: &str) -> Result<[&'a str; 2]> {
        let image = self.images.iter().find(|image| image.name == name).context("no such image")?;
        let path = |path: &'a Path| path.to_str().context("the path is not text");
        Ok([path(&image.sandbox)?, path(&image.sif)?])
    }

    fn run(&self, arguments: &[&str]) -> Result<Output> {
        Ok(Command::new("timeout").arg("60").args(self.launch).args(arguments).output()?)
    }
}

fn expect(output: &Output, stdout: &str, code: i32) -> Result<()> {
    ensure!(text(output) == stdout && output.status.code() == Some(code), "{output:?}");
    Ok(())
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// How to use a peer; `None` if it is missing and optional.
fn access(name: &str) -> Result<Option<(Report, Access)>> {
    let dir = std::env::var_os("HERMES_PEERS_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/peers"), PathBuf::from);
    let install = format!("cargo xtask peers up {name}");
    let Ok(text) = fs::read_to_string(dir.join("peers.json")) else {
        return absent(name, "no peer was ever started", &install);
    };
    let report: Report = serde_json::from_str(&text)?;
    ensure!(report.schema == report::SCHEMA, "peers.json has schema {}", report.schema);
    let peer = report.peers.iter().find(|peer| peer.name == name).context("not in peers.json")?;
    match peer.condition.clone() {
        Condition::Up { access } => Ok(Some((report, access))),
        Condition::Down { reason, start } => absent(name, &reason, &start),
        Condition::Missing { reason, install } => absent(name, &reason, &install),
    }
}

fn absent<T>(name: &str, reason: &str, install: &str) -> Result<Option<T>> {
    if std::env::var("CI").is_ok_and(|value| value == "true") {
        bail!("peer {name} is missing: {reason}; install it with: {install}");
    }
    // Written directly, because the test harness hides what printing macros print.
    writeln!(stderr(), "MISSING PEER {name}: NOTHING WAS TESTED: {reason}; install it with: {install}")?;
    Ok(None)
}
