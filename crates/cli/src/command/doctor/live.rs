//! `--live`: a real command on each configured backend, and attempts to break out of those that confine.
//!
//! Each attempt is first shown to succeed from here, outside. Wherever it can be seen from outside whether one
//! succeeded, that counts, and not what the command says. One that could not be made is unknown, and never fine.

mod script;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hermes_exec::{
    Backend, BindMount, CommandInput, OpenPlace, Outcome, OutputMode, ResolvedPlace, RunOptions,
    WorkingDirectory, Writable,
};
use hermes_types::{BackendName, Job, Network};

use script::{CROWD, DID};

use super::{DoctorFinding, FindingState};
use crate::Context;
use crate::approval::{Consent, Decision, approve};
use hermes_config::failure::Failure;
use hermes_config::keys::Config;
use hermes_config::resolve::PlaceRequest;
use hermes_config::resolve::random_hex;
use hermes_config::resolve::{self, ResolveMode, SessionChoice};

/// How long one attempt may take.
const PATIENCE: Duration = Duration::from_secs(30);
/// Output of an attempt that is kept.
const KEEP: u32 = 64 << 10;
/// What a command says when it has tried.
const TRIED: &str = "tried";
const REPORT: &str = "do not use it on this machine, and report this to the maintainers";

pub(super) fn run(
    context: &Context,
    config: &Config,
    backend: BackendName,
    consent: Consent,
) -> Result<Vec<DoctorFinding>, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(check_in_place(context, config, backend, consent))
}

async fn check_in_place(
    context: &Context,
    config: &Config,
    backend: BackendName,
    consent: Consent,
) -> Result<Vec<DoctorFinding>, Failure> {
    let name = backend.as_str();
    let args =
        PlaceRequest { backend: Some(backend), session: Some(String::new()), ..PlaceRequest::default() };
    let session = SessionChoice::new(&args, config)?;
    let plan = match resolve::resolve_place(context, config, &args, &session, ResolveMode::Create) {
        Ok(plan) => plan,
        Err(failure) => return Ok(vec![not_run(name, &failure)]),
    };
    let sandbox = match plan.open().await {
        Ok(sandbox) => sandbox,
        Err(error) => return Ok(vec![not_run(name, &resolve::place_failure(error))]),
    };
    let cell = LiveCheck { context, config, consent, name, plan, session, sandbox };
    let tried = cell.run_checks(backend).await;
    // Whatever came of it, the place goes.
    let removed = cell.sandbox.remove().await;
    let mut findings = tried?;
    if let Err(error) = removed {
        findings.push(broken(name, format!("cannot remove its environment: {error}")));
    }
    Ok(findings)
}

fn not_run(name: &'static str, failure: &Failure) -> DoctorFinding {
    let detail = format!("no command was run: {}", failure.message);
    if failure.hints.is_empty() {
        return broken(name, detail);
    }
    DoctorFinding::bad(name, FindingState::Broken, detail, failure.hints.join("; "))
}

fn broken(name: &'static str, detail: String) -> DoctorFinding {
    let remedy = format!("Run `hermes exec --backend {name} -- true`.");
    DoctorFinding::bad(name, FindingState::Broken, detail, remedy)
}

/// A place to break out of.
struct LiveCheck<'a> {
    context: &'a Context,
    config: &'a Config,
    consent: Consent,
    name: &'static str,
    plan: ResolvedPlace,
    session: SessionChoice,
    sandbox: OpenPlace,
}

/// What shall keep a command in.
struct Boundaries {
    kind: Boundary,
    binds: Vec<BindMount>,
    network: Network,
    /// How many processes there may be.
    processes: Option<u32>,
}

/// Whose walls they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Boundary {
    Jail,
    Container,
}

impl Boundaries {
    fn of(backend: &Backend) -> Option<Self> {
        match backend {
            Backend::Local(_) => None,
            Backend::Sandbox(jail) => Some(Self {
                kind: Boundary::Jail,
                binds: jail.binds.clone(),
                network: jail.network,
                processes: jail.limits.processes,
            }),
            Backend::Docker(docker) => Some(Self {
                kind: Boundary::Container,
                binds: docker.binds.clone(),
                network: docker.network,
                processes: docker.limits.processes,
            }),
        }
    }
}

/// What became of an attempt: what it said, or why it was not made.
type Attempt = Result<String, String>;

impl LiveCheck<'_> {
    /// Runs a command, and tries to break out where anything confines it.
    async fn run_checks(&self, backend: BackendName) -> Result<Vec<DoctorFinding>, Failure> {
        let start = Instant::now();
        match self.run("true").await {
            Err(reason) => {
                let detail = format!("not known whether commands run: {reason}");
                return Ok(vec![DoctorFinding::warning(self.name, detail)]);
            }
            Ok(outcome) if outcome.code != 0 => {
                return Ok(vec![broken(self.name, format!("`true` ended with {}", outcome.code))]);
            }
            Ok(_) => {}
        }
        let time = start.elapsed().as_secs_f64() * 1000.0;
        let nothing = if backend == BackendName::Local { "; nothing confines it" } else { "" };
        let mut findings =
            vec![DoctorFinding::ok(self.name, format!("ran a command in {time:.1} ms{nothing}"))];
        if let Some(walls) = Boundaries::of(self.plan.backend()) {
            findings.extend(self.break_out(&walls).await?);
        }
        Ok(findings)
    }

    /// Everything a command in a jail shall not be able to do.
    async fn break_out(&self, walls: &Boundaries) -> Result<Vec<DoctorFinding>, Failure> {
        let mut findings =
            vec![self.read_home(walls).await, self.read_keys(walls).await, self.write_outside(walls).await];
        findings.extend(self.touch_process().await);
        // A container has a loopback of its own whatever else it reaches.
        if walls.kind == Boundary::Container || walls.network != Network::Full {
            findings.push(self.reach_loopback().await?);
            findings.push(self.reach_abstract().await?);
        }
        if walls.network == Network::Full {
            findings.push(DoctorFinding::bad(
                self.name,
                FindingState::Warning,
                "can reach the services of this machine: terminal.network is full",
                "hermes config set terminal.network proxy",
            ));
        }
        // That both work from here is shown by the jail itself, which is made of them.
        findings.push(self.make_namespace(walls).await);
        findings.push(self.use_tool("mount", "mount", "mount -t tmpfs none /tmp").await);
        // Last, since it leaves no room for others.
        findings.extend(self.exhaust_processes(walls).await);
        Ok(findings)
    }

    async fn read_home(&self, walls: &Boundaries) -> DoctorFinding {
        let home = self.context.home.path();
        let files = [".env", "config.yaml", ".install-id"].map(|name| home.join(name));
        self.read(walls, "hermes' own files", files.into_iter().find(|path| is_readable(path))).await
    }

    async fn read_keys(&self, walls: &Boundaries) -> DoctorFinding {
        let home = self.context.variable("HOME").unwrap_or("/");
        let entries = fs::read_dir(Path::new(home).join(".ssh")).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> =
            entries.map(|entry| entry.path()).filter(|path| is_readable(path)).collect();
        let is_key = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("id_"))
                && path.extension().is_none()
        };
        files.sort_by_key(|path| (!is_key(path), path.clone()));
        self.read(walls, "~/.ssh", files.into_iter().next()).await
    }

    /// Reads the first character of a file that can be read from here, wherever it is to be seen inside. It says no
    /// more than whether it could.
    async fn read(&self, walls: &Boundaries, what: &str, file: Option<PathBuf>) -> DoctorFinding {
        let Some(file) = file else {
            return self.unknown(&format!("read {what}"), "there is nothing there to try it with");
        };
        let mounted = walls.binds.iter().filter_map(|bind| {
            let below = file.strip_prefix(&bind.source).ok()?;
            // Joining nothing would make a directory of a file.
            Some(if below.as_os_str().is_empty() { bind.target.clone() } else { bind.target.join(below) })
        });
        let inside: Vec<PathBuf> = mounted.chain([file.clone()]).collect();
        let attempt = self.attempt(&script::read(&inside)).await;
        let did = attempt_text(&attempt);
        if did && inside.len() > 1 {
            let detail = format!("can read {}, which is mounted", file.display());
            return DoctorFinding::bad(
                self.name,
                FindingState::Warning,
                detail,
                "take it out of terminal.docker_volumes",
            );
        }
        self.judge(&format!("read {}", file.display()), &attempt, did)
    }

    async fn write_outside(&self, walls: &Boundaries) -> DoctorFinding {
        let home = self.context.variable("HOME").map(PathBuf::from);
        let own = |path: &Path| {
            let mut writable = walls.binds.iter().filter(|bind| bind.writable == Writable::Yes);
            writable.any(|bind| path.starts_with(&bind.source))
        };
        let name = format!(".hermes-doctor-{}", std::process::id());
        let candidates = home.into_iter().chain(std::env::current_dir()).filter(|path| !own(path));
        let Some(file) = candidates.map(|directory| directory.join(&name)).find(|file| can_be_made(file))
        else {
            return self.unknown("write outside", "there is no directory that can be written from here");
        };
        let attempt = self.attempt(&script::write(&file)).await;
        let did = file.exists();
        let told = self.judge(&format!("write {}", file.display()), &attempt, did);
        // It is only there if the jail is broken, which has been told.
        fs::remove_file(&file).ok();
        told
    }

    /// This very process is what shall not be seen or signaled. Its number may mean another process inside.
    async fn touch_process(&self) -> [DoctorFinding; 2] {
        let pid = std::process::id();
        let started = fs::read_to_string("/proc/self/stat").ok().and_then(|stat| start_time(&stat));
        let attempt = self.attempt(&script::touch(pid)).await;
        let inside = attempt.as_deref().ok().and_then(|output| output.lines().find_map(start_time));
        let sees = started.is_some() && inside == started;
        let signals = attempt_text(&attempt) && (sees || inside.is_none());
        let about = [("see a process outside", sees), ("signal a process outside", signals)];
        about.map(|(what, did)| match started {
            Some(_) => self.judge(what, &attempt, did),
            None => self.unknown(what, "/proc cannot be read from here"),
        })
    }

    async fn reach_loopback(&self) -> Result<DoctorFinding, Failure> {
        let what = "reach a service on this machine's loopback";
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        if TcpStream::connect(address).and_then(|_| listener.accept()).is_err() {
            return Ok(self.unknown(what, "it cannot be reached from here either"));
        }
        let attempt = self.attempt(&script::dial(address.port())).await;
        Ok(self.judge(what, &attempt, !refuses(listener.accept())))
    }

    async fn reach_abstract(&self) -> Result<DoctorFinding, Failure> {
        let what = "reach an abstract socket of this machine";
        let name = format!("hermes-doctor-{}", random_hex()?);
        let address = SocketAddr::from_abstract_name(&name)?;
        let listener = UnixListener::bind_addr(&address)?;
        listener.set_nonblocking(true)?;
        if UnixStream::connect_addr(&address).and_then(|_| listener.accept()).is_err() {
            return Ok(self.unknown(what, "it cannot be reached from here either"));
        }
        let attempt = self.attempt(&script::dial_abstract(&name)).await;
        Ok(self.judge(what, &attempt, !refuses(listener.accept())))
    }

    /// Engines differ in whether they let one be made. Nothing is gained by it but more of the kernel to attack.
    async fn make_namespace(&self, walls: &Boundaries) -> DoctorFinding {
        let what = "make a user namespace";
        let finding = self.use_tool(what, "unshare", "unshare --user true").await;
        match (walls.kind, finding.state) {
            (Boundary::Container, FindingState::Broken) => {
                DoctorFinding::warning(self.name, format!("can {what}: the engine's seccomp profile lets it"))
            }
            _ => finding,
        }
    }

    async fn use_tool(&self, what: &str, tool: &str, command: &str) -> DoctorFinding {
        let attempt = self.attempt(&script::tool(tool, command)).await;
        let did = attempt_text(&attempt);
        self.judge(what, &attempt, did)
    }

    /// Starts more processes than there may be, and counts how many there are.
    async fn exhaust_processes(&self, walls: &Boundaries) -> Option<DoctorFinding> {
        let most = u64::from(walls.processes?);
        let what = format!("start more than {most} processes");
        let allowed = rustix::process::getrlimit(rustix::process::Resource::Nproc).current;
        if allowed.is_some_and(|allowed| allowed < CROWD) {
            return Some(self.unknown(&what, &format!("from here it is not allowed either ({allowed:?})")));
        }
        let attempt = self.attempt(&script::crowd(most)).await;
        let count = attempt.as_deref().ok().and_then(|output| {
            output.lines().find_map(|line| line.strip_prefix("count ")?.parse::<u64>().ok())
        });
        Some(match count {
            Some(count) if count > most => DoctorFinding::warning(
                self.name,
                format!("can {what}: this machine does not let us limit them"),
            ),
            Some(count) if count > most / 2 => self.judge(&what, &attempt, false),
            _ => self.unknown(&what, "so many could not be started that the limit would be met"),
        })
    }

    async fn attempt(&self, script: &str) -> Attempt {
        let outcome = self.run(&format!("{script}\necho {TRIED}")).await?;
        Ok(String::from_utf8_lossy(&outcome.output).into_owned())
    }

    /// Runs a command as any other: only if the gate lets it, or the owner has said yes beforehand.
    async fn run(&self, command: &str) -> Result<Outcome, String> {
        let told = |error: hermes_exec::Error| error.to_string();
        let job = Job::shell(command, self.sandbox.cwd().await.map_err(told)?);
        let (place, key) = (self.plan.place(), &self.session.key);
        let decision = approve(self.context, self.config, place, key, job, self.consent).await;
        let permit = match decision.map_err(|failure| failure.message)? {
            Decision::Allowed(permit) => permit,
            Decision::Refused(refused) => return Err(refused.reason().to_owned()),
            Decision::Interrupted => return Err("interrupted".to_owned()),
        };
        let wish = RunOptions {
            timeout: Some(PATIENCE),
            keep_bytes: KEEP,
            input: CommandInput::None,
            env: Vec::new(),
            output: OutputMode::AtEnd,
            directory: WorkingDirectory::Session,
            terminal_size: None,
        };
        self.sandbox.start_command(permit, wish).await.map_err(told)?.wait().await.map_err(told)
    }

    fn judge(&self, what: &str, attempt: &Attempt, did: bool) -> DoctorFinding {
        judge(self.name, what, attempt, did)
    }

    fn unknown(&self, what: &str, reason: &str) -> DoctorFinding {
        unknown(self.name, what, reason)
    }
}

fn judge(name: &'static str, what: &str, attempt: &Attempt, did: bool) -> DoctorFinding {
    let output = match attempt {
        _ if did => return DoctorFinding::bad(name, FindingState::Broken, format!("can {what}"), REPORT),
        Err(reason) => return unknown(name, what, reason),
        Ok(output) => output,
    };
    if let Some(tool) = output.lines().find_map(|line| line.strip_prefix("lacks ")) {
        return unknown(name, what, &format!("it takes {tool}"));
    }
    match output.lines().any(|line| line == TRIED) {
        true => DoctorFinding::ok(name, format!("cannot {what}")),
        false => unknown(name, what, "the attempt broke off"),
    }
}

fn unknown(name: &'static str, what: &str, reason: &str) -> DoctorFinding {
    DoctorFinding::warning(name, format!("not known whether it can {what}: {reason}"))
}

fn attempt_text(attempt: &Attempt) -> bool {
    attempt.as_deref().is_ok_and(|output| output.lines().any(|line| line == DID))
}

/// Whether nobody has connected.
fn refuses<T>(accepted: io::Result<T>) -> bool {
    accepted.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
}

fn is_readable(path: &Path) -> bool {
    let mut first = [0];
    path.is_file() && File::open(path).and_then(|mut file| file.read(&mut first)).is_ok_and(|count| count > 0)
}

/// Makes a file and removes it.
fn can_be_made(file: &Path) -> bool {
    OpenOptions::new().write(true).create_new(true).open(file).is_ok() && fs::remove_file(file).is_ok()
}

/// When a process was started, from its line in /proc. Its name may hold anything, also parentheses.
fn start_time(stat: &str) -> Option<u64> {
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_an_attempt_that_was_made_and_failed_is_fine() {
        let judged = |attempt: Attempt| {
            let did = attempt_text(&attempt);
            let finding = judge("sandbox", "mount", &attempt, did);
            (finding.state, finding.detail)
        };
        let output = |text: &str| Ok(text.to_owned());
        let unknown = "not known whether it can mount:";
        let cases = [
            (output("mount: denied\ntried\n"), FindingState::Ok, "cannot mount".to_owned()),
            (output("did\ntried\n"), FindingState::Broken, "can mount".to_owned()),
            (output("did\n"), FindingState::Broken, "can mount".to_owned()),
            (output(""), FindingState::Warning, format!("{unknown} the attempt broke off")),
            (output("lacks mount\n"), FindingState::Warning, format!("{unknown} it takes mount")),
            (Err("no".to_owned()), FindingState::Warning, format!("{unknown} no")),
        ];
        for (attempt, state, detail) in cases {
            assert_eq!(judged(attempt.clone()), (state, detail), "{attempt:?}");
        }
    }

    #[test]
    fn the_start_of_a_process_is_found_behind_any_name() {
        let stat = "7 (a) b (c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 1 2";
        assert_eq!(start_time(stat), Some(4711));
        assert_eq!(start_time("7 (a"), None);
    }
}
