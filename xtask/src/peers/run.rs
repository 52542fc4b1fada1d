//! Child processes with a time limit.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// The interval at which a child or a daemon is polled.
pub(crate) const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// The search path of every child: a developer's own may lack the `sbin` directories.
pub(crate) const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// A command with a small, known environment, so that nothing of cargo's leaks into a peer.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    command.env_clear().env("PATH", PATH).env("LANG", "C.UTF-8").env("HOME", "/root").current_dir("/");
    command
}

/// Lets a command that fetches packages use the proxy and the certificates of the machine, if set.
pub(crate) fn online(command: &mut Command) -> &mut Command {
    for name in ["http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"] {
        if let Some(value) = std::env::var_os(name) {
            command.env(name, value);
        }
    }
    command
}

/// A command that dies with this process and whose mounts and processes die with it.
///
/// Image builds mount `/proc` and `/dev` into the tree they fill. In a mount namespace of their
/// own, a killed build leaves no mount behind that a later removal of the tree would follow into
/// the machine's real `/dev`.
pub(crate) fn contained(program: &str) -> Command {
    let mut command = command("setpriv");
    command
        .args(["--pdeathsig", "KILL", "unshare", "--mount", "--propagation", "private"])
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "--", program]);
    command
}

/// Runs a command to its end and returns its standard output.
pub(crate) fn output(command: &mut Command, limit: Duration) -> Result<String> {
    let name = name(command);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let stdout = child.stdout.take().map(collect);
    let stderr = child.stderr.take().map(collect);
    let status = wait(&mut child, limit).with_context(|| name.clone())?;
    let text = |handle: Option<thread::JoinHandle<Vec<u8>>>| {
        let bytes = handle.and_then(|handle| handle.join().ok()).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    };
    let (stdout, stderr) = (text(stdout), text(stderr));
    if !status.success() {
        bail!("{name}: {status}: {}", last_lines(&stderr, 3));
    }
    Ok(stdout)
}

/// Runs a command to its end and writes its output to a log file.
pub(crate) fn logged(command: &mut Command, limit: Duration, log: &Path) -> Result<()> {
    let name = name(command);
    let file = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
    command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
    let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
    let status = wait(&mut child, limit).with_context(|| name.clone())?;
    if !status.success() {
        bail!("{name}: {status}: {} (log: {})", log_tail(log), log.display());
    }
    Ok(())
}

/// The last lines of a log, on one line.
pub(crate) fn log_tail(log: &Path) -> String {
    match std::fs::read(log) {
        Ok(bytes) => last_lines(&String::from_utf8_lossy(&bytes), 3),
        Err(error) => format!("no log: {error}"),
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<ExitStatus> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            bail!("still running after {} s, killed", limit.as_secs());
        }
        thread::sleep(POLL_INTERVAL);
    }
}

fn collect(mut pipe: impl Read + Send + 'static) -> thread::JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut bytes = Vec::new();
        match pipe.read_to_end(&mut bytes) {
            Ok(_) => bytes,
            Err(error) => format!("unreadable output: {error}").into_bytes(),
        }
    })
}

fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    lines.get(lines.len().saturating_sub(count)..).unwrap_or_default().join(" / ")
}

fn name(command: &Command) -> String {
    command.get_program().to_string_lossy().into_owned()
}
