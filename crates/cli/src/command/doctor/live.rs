//! `--live`: runs a command on each configured backend, and tries to break out of those that
//! confine.
//!
//! Each attempt is first shown to succeed outside. If its success can be seen from outside, that
//! counts rather than the output of the command. An attempt that could not be made has an unknown
//! result.

mod script;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_exec::{Backend, BindMount, OpenPlace, Outcome, OutputMode, ResolvedPlace};
use hermes_types::{
    BackendName, Guard, MountAccess, Network, Work, parse_start_time, process_start_time, shell_quote,
};

use script::{MANY_PROCESSES, SUCCEEDED};

use super::{DoctorFinding, FindingState};
use crate::approval::{Consent, Decision, approve};
use crate::place::foreground_options;
use crate::{Config, Context, Failure, Result};
use hermes_config::resolve::{self, PlaceRequest, ResolveMode, SessionChoice, random_hex};

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_OUTPUT_BYTES: u32 = 64 << 10;
/// Printed at the end of every attempt.
const TRIED: &str = "tried";

pub(super) async fn run(
    context: &Context,
    config: &Config,
    backend: BackendName,
    consent: Consent,
) -> Result<Vec<DoctorFinding>> {
    let name = backend.as_str();
    let request =
        PlaceRequest { backend: Some(backend), session: Some(String::new()), ..PlaceRequest::default() };
    let session = SessionChoice::new(&request, config)?;
    let resolved = match resolve::resolve_place(context, config, &request, &session, ResolveMode::Create) {
        Ok(resolved) => resolved,
        Err(failure) => return Ok(vec![not_run(name, failure)]),
    };
    let place = match resolved.open().await {
        Ok(place) => place,
        Err(error) => return Ok(vec![not_run(name, error.into())]),
    };
    let check = LiveCheck { context, config, consent, name, resolved, place };
    let findings = check.run_checks(backend).await;
    let removed = check.place.remove().await;
    let mut findings = findings?;
    if let Err(error) = removed {
        findings.push(broken(name, format!("cannot remove its environment: {error}")));
    }
    Ok(findings)
}

fn not_run(name: &'static str, failure: Failure) -> DoctorFinding {
    let finding = broken(name, format!("no command ran: {}", failure.message));
    if failure.hints.is_empty() { finding } else { finding.remedy(failure.hints.join(" ")) }
}

fn broken(name: &'static str, detail: String) -> DoctorFinding {
    DoctorFinding::broken(name, detail).remedy(format!("Run `hermes exec --backend {name} -- true`."))
}

/// An open environment to test.
struct LiveCheck<'a> {
    context: &'a Context,
    config: &'a Config,
    consent: Consent,
    name: &'static str,
    resolved: ResolvedPlace,
    place: OpenPlace,
}

/// A script in a directory of the owner, until it is dropped.
struct TemporaryScript(PathBuf);

impl TemporaryScript {
    fn create(directory: &Path, script: &str) -> Result<Self> {
        let path = directory.join(format!(".hermes-doctor-{}.sh", random_hex()?));
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
        let created = Self(path);
        file.write_all(script.as_bytes())?;
        Ok(created)
    }
}

impl Drop for TemporaryScript {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// The output of an attempt, or the reason why it was not made.
type Attempt = Result<String>;

impl LiveCheck<'_> {
    /// Runs a command, and tries to break out if the backend confines commands.
    async fn run_checks(&self, backend: BackendName) -> Result<Vec<DoctorFinding>> {
        let start = Instant::now();
        match self.run("true").await {
            Err(failure) => {
                let detail = format!("unknown whether commands run: {}", failure.message);
                return Ok(vec![DoctorFinding::warning(self.name, detail)]);
            }
            Ok(outcome) if outcome.code != 0 => {
                return Ok(vec![broken(self.name, format!("`true` ended with {}", outcome.code))]);
            }
            Ok(_) => {}
        }
        let millis = start.elapsed().as_secs_f64() * 1000.0;
        let note = if backend == BackendName::Local { "; not confined" } else { "" };
        let mut findings =
            vec![DoctorFinding::ok(self.name, format!("ran a command in {millis:.1} ms{note}"))];
        match self.resolved.backend() {
            Backend::Local(local) => {
                if local.guard != Guard::Off {
                    findings.extend(self.try_guard().await?);
                }
            }
            Backend::Sandbox(jail) => {
                findings.extend(self.break_out(&jail.binds, jail.limits.processes).await?);
            }
            Backend::Docker(docker) => {
                findings.extend(self.break_out(&docker.binds, docker.limits.processes).await?);
            }
        }
        Ok(findings)
    }

    /// Tries what the guard keeps from commands without approval.
    async fn try_guard(&self) -> Result<[DoctorFinding; 5]> {
        let [_, signal] = self.touch_process().await;
        let needs_landlock = [signal, self.reach_abstract().await?].map(|finding| match finding.state {
            FindingState::Broken => {
                let detail = format!("{}: that needs Landlock of Linux 6.12 or newer", finding.detail);
                DoctorFinding::warning(self.name, detail)
            }
            _ => finding,
        });
        let [signal, socket] = needs_landlock;
        let (home, keys) = (self.read_home(&[]).await, self.read_keys(&[]).await);
        Ok([signal, socket, home, keys, self.change_startup().await])
    }

    fn home(&self) -> &Path {
        Path::new(self.context.variable("HOME").unwrap_or("/"))
    }

    /// Opens a start-up file for writing and changes nothing.
    async fn change_startup(&self) -> DoctorFinding {
        let files = [".bashrc", ".profile", ".zshrc", ".bash_profile"].map(|name| self.home().join(name));
        let is_writable = |path: &&PathBuf| OpenOptions::new().append(true).open(path).is_ok();
        let Some(file) = files.iter().find(is_writable) else {
            return unknown(self.name, "change start-up files", "no file to test");
        };
        let attempt = self.attempt(&script::open_for_writing(file)).await;
        judge(self.name, &format!("change {}", file.display()), &attempt, has_succeeded(&attempt))
    }

    async fn break_out(&self, binds: &[BindMount], max_processes: Option<u32>) -> Result<Vec<DoctorFinding>> {
        let mut findings =
            vec![self.read_home(binds).await, self.read_keys(binds).await, self.write_outside(binds).await];
        let network = self.resolved.backend().network();
        findings.extend(self.touch_process().await);
        // A container has its own loopback even with full network access.
        if self.is_container() || network != Network::Full {
            findings.push(self.reach_loopback().await?);
            findings.push(self.reach_abstract().await?);
        }
        if network == Network::Full {
            let detail = "can reach the services of this machine: terminal.network is full";
            let finding = DoctorFinding::warning(self.name, detail);
            findings.push(finding.remedy("hermes config set terminal.network proxy"));
        }
        // Both work outside: the sandbox itself uses them.
        findings.push(self.create_namespace().await);
        findings.push(self.use_tool("mount", "mount", "mount -t tmpfs none /tmp").await);
        // Last, because it leaves no free processes.
        if let Some(limit) = max_processes {
            findings.push(self.exhaust_processes(limit.into()).await);
        }
        Ok(findings)
    }

    async fn read_home(&self, binds: &[BindMount]) -> DoctorFinding {
        let home = self.context.home.path();
        let files = [".env", "config.yaml", ".install-id"].map(|name| home.join(name));
        let file = files.into_iter().find(|path| is_readable(path));
        self.read(binds, "the files of hermes", file).await
    }

    async fn read_keys(&self, binds: &[BindMount]) -> DoctorFinding {
        let entries = fs::read_dir(self.home().join(".ssh")).into_iter().flatten().flatten();
        let is_key = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("id_"))
                && path.extension().is_none()
        };
        let files = entries.map(|entry| entry.path()).filter(|path| is_readable(path));
        let file = files.min_by_key(|path| (!is_key(path), path.clone()));
        self.read(binds, "~/.ssh", file).await
    }

    /// Reads the first character of a file, at every path where it may be visible inside.
    async fn read(&self, binds: &[BindMount], what: &str, file: Option<PathBuf>) -> DoctorFinding {
        let Some(file) = file else {
            return unknown(self.name, &format!("read {what}"), "no file to test");
        };
        let mounted = binds.iter().filter_map(|bind| {
            let below = file.strip_prefix(&bind.source).ok()?;
            // Joining an empty path would append a slash.
            Some(if below.as_os_str().is_empty() { bind.target.clone() } else { bind.target.join(below) })
        });
        let paths: Vec<PathBuf> = mounted.chain([file.clone()]).collect();
        let attempt = self.attempt(&script::read(&paths)).await;
        let succeeded = has_succeeded(&attempt);
        if succeeded && paths.len() > 1 {
            let detail = format!("can read {}, which is mounted", file.display());
            return DoctorFinding::warning(self.name, detail)
                .remedy("Remove it from terminal.docker_volumes.");
        }
        judge(self.name, &format!("read {}", file.display()), &attempt, succeeded)
    }

    async fn write_outside(&self, binds: &[BindMount]) -> DoctorFinding {
        let home = self.context.variable("HOME").map(PathBuf::from);
        let is_mounted = |path: &Path| {
            let mut writable = binds.iter().filter(|bind| bind.access == MountAccess::ReadWrite);
            writable.any(|bind| path.starts_with(&bind.source))
        };
        let name = format!(".hermes-doctor-{}", std::process::id());
        let candidates = home.into_iter().chain(std::env::current_dir()).filter(|path| !is_mounted(path));
        let can_create = |file: &PathBuf| {
            let created = OpenOptions::new().write(true).create_new(true).open(file);
            created.is_ok() && fs::remove_file(file).is_ok()
        };
        let Some(file) = candidates.map(|directory| directory.join(&name)).find(can_create) else {
            return unknown(self.name, "write outside", "no directory is writable outside either");
        };
        let attempt = self.attempt(&script::write(&file)).await;
        let finding = judge(self.name, &format!("write {}", file.display()), &attempt, file.exists());
        // It exists only if the confinement failed, which is reported.
        fs::remove_file(&file).ok();
        finding
    }

    /// Tries to see and signal this process. Its pid may belong to another process inside.
    async fn touch_process(&self) -> [DoctorFinding; 2] {
        let started = i32::try_from(std::process::id()).ok().and_then(process_start_time);
        let attempt = self.attempt(&script::touch(std::process::id())).await;
        let inside = attempt.as_deref().ok().and_then(|output| output.lines().find_map(parse_start_time));
        let sees = started.is_some() && inside == started;
        let signals = has_succeeded(&attempt) && (sees || inside.is_none());
        [("see a process outside", sees), ("signal a process outside", signals)].map(|(what, succeeded)| {
            match started {
                Some(_) => judge(self.name, what, &attempt, succeeded),
                None => unknown(self.name, what, "/proc is not readable outside"),
            }
        })
    }

    async fn reach_loopback(&self) -> Result<DoctorFinding> {
        let what = "reach a service on this machine's loopback";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if TcpStream::connect(address).and_then(|_| listener.accept()).is_err() {
            return Ok(unknown(self.name, what, "it is not reachable outside either"));
        }
        let attempt = self.attempt(&script::dial(address.port())).await;
        Ok(judge(self.name, what, &attempt, is_connected(listener.accept())))
    }

    async fn reach_abstract(&self) -> Result<DoctorFinding> {
        let what = "reach an abstract socket of this machine";
        let name = format!("hermes-doctor-{}", random_hex()?);
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        if UnixStream::connect_addr(&address).and_then(|_| listener.accept()).is_err() {
            return Ok(unknown(self.name, what, "it is not reachable outside either"));
        }
        let attempt = self.attempt(&script::dial_abstract(&name)).await;
        Ok(judge(self.name, what, &attempt, is_connected(listener.accept())))
    }

    /// Some engines allow it. A namespace gives no access, but exposes more of the kernel.
    async fn create_namespace(&self) -> DoctorFinding {
        let what = "create a user namespace";
        let finding = self.use_tool(what, "unshare", "unshare --user true").await;
        match (self.is_container(), finding.state) {
            (true, FindingState::Broken) => DoctorFinding::warning(
                self.name,
                format!("can {what}: the seccomp profile of the engine allows it"),
            ),
            _ => finding,
        }
    }

    async fn use_tool(&self, what: &str, tool: &str, command: &str) -> DoctorFinding {
        let attempt = self.attempt(&script::tool(tool, command)).await;
        let succeeded = has_succeeded(&attempt);
        judge(self.name, what, &attempt, succeeded)
    }

    /// Starts more processes than allowed and counts them.
    async fn exhaust_processes(&self, limit: u64) -> DoctorFinding {
        let what = format!("start more than {limit} processes");
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
        if allowed.is_some_and(|allowed| allowed < MANY_PROCESSES) {
            let reason = format!("it is not allowed outside either ({allowed:?})");
            return unknown(self.name, &what, &reason);
        }
        let attempt = self.attempt(&script::start_many(limit)).await;
        let count = attempt.as_deref().ok().and_then(|output| {
            output.lines().find_map(|line| line.strip_prefix("count ")?.parse::<u64>().ok())
        });
        match count {
            Some(count) if count > limit => {
                DoctorFinding::warning(self.name, format!("can {what}: this machine cannot limit them"))
            }
            Some(count) if count > limit / 2 => judge(self.name, &what, &attempt, false),
            _ => unknown(self.name, &what, "too few could be started to reach the limit"),
        }
    }

    fn is_container(&self) -> bool {
        matches!(self.resolved.backend(), Backend::Docker(_))
    }

    async fn attempt(&self, script: &str) -> Attempt {
        let script = format!("{script}\necho {TRIED}");
        let outcome = match self.resolved.backend() {
            // The gate does not read files, so it asks nothing: that is what the guard is for.
            Backend::Local(_) => {
                let file = TemporaryScript::create(self.home(), &script)?;
                self.run(&format!("bash {}", shell_quote(&file.0.to_string_lossy()))).await?
            }
            Backend::Sandbox(_) | Backend::Docker(_) => self.run(&script).await?,
        };
        Ok(String::from_utf8_lossy(&outcome.output).into_owned())
    }

    /// Runs a command like any other: only if the gate allows it or the owner gave consent.
    async fn run(&self, command: &str) -> Result<Outcome> {
        let job = self.place.job(Work::Shell(command.to_owned())).await?;
        let (place, key) = (self.resolved.place(), self.resolved.session());
        let permit = match approve(self.context, self.config, place, key, job, self.consent).await? {
            Decision::Allowed(permit) => permit,
            Decision::Refused(refusal) => return Err(Failure::refused(refusal.reason)),
            Decision::Interrupted => return Err(Failure::failed("interrupted")),
        };
        let options = foreground_options(ATTEMPT_TIMEOUT, MAX_OUTPUT_BYTES, OutputMode::AtEnd);
        Ok(self.place.start_command(permit, options).await?.wait().await?)
    }
}

fn judge(name: &'static str, what: &str, attempt: &Attempt, succeeded: bool) -> DoctorFinding {
    if succeeded {
        return DoctorFinding::broken(name, format!("can {what}"))
            .remedy("Do not use it on this machine, and report this to the maintainers.");
    }
    let output = match attempt {
        Err(failure) => return unknown(name, what, &failure.message),
        Ok(output) => output,
    };
    if let Some(tool) = output.lines().find_map(|line| line.strip_prefix("lacks ")) {
        return unknown(name, what, &format!("requires {tool}"));
    }
    if output.lines().any(|line| line == TRIED) {
        DoctorFinding::ok(name, format!("cannot {what}"))
    } else {
        unknown(name, what, "the attempt did not finish")
    }
}

fn unknown(name: &'static str, what: &str, reason: &str) -> DoctorFinding {
    DoctorFinding::warning(name, format!("unknown whether it can {what}: {reason}"))
}

fn has_succeeded(attempt: &Attempt) -> bool {
    attempt.as_deref().is_ok_and(|output| output.lines().any(|line| line == SUCCEEDED))
}

/// Whether a client connected. An error other than `WouldBlock` counts as a connection.
fn is_connected<T>(accepted: io::Result<T>) -> bool {
    accepted.err().is_none_or(|error| error.kind() != io::ErrorKind::WouldBlock)
}

fn is_readable(path: &Path) -> bool {
    let mut first = [0];
    path.is_file() && File::open(path).and_then(|mut file| file.read(&mut first)).is_ok_and(|count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_that_ran_and_failed_is_ok() {
        let judged = |attempt: Attempt| {
            let succeeded = has_succeeded(&attempt);
            let finding = judge("sandbox", "mount", &attempt, succeeded);
            (finding.state, finding.detail)
        };
        let output = |text: &str| Ok(text.to_owned());
        let unknown = "unknown whether it can mount:";
        let cases = [
            (output("mount: denied\ntried\n"), FindingState::Ok, "cannot mount".to_owned()),
            (output("did\ntried\n"), FindingState::Broken, "can mount".to_owned()),
            (output("did\n"), FindingState::Broken, "can mount".to_owned()),
            (output(""), FindingState::Warning, format!("{unknown} the attempt did not finish")),
            (output("lacks mount\n"), FindingState::Warning, format!("{unknown} requires mount")),
            (Err(Failure::failed("no")), FindingState::Warning, format!("{unknown} no")),
        ];
        for (attempt, state, detail) in cases {
            assert_eq!(judged(attempt.clone()), (state, detail), "{attempt:?}");
        }
    }
}
