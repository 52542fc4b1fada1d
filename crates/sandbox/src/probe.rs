//! Tests what a jail enforces on this machine by trying to escape from one.
//!
//! The attempts run inside a small jail, in this crate's own code. Outside of a jail each of them
//! would succeed, so a failure is due to the jail.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use hermes_types::MountAccess;
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::error::Error;
use crate::jail::{Jail, JailMount};
use crate::launcher::{JailStreams, Launcher};
use crate::limit_report::{LimitReport, LimitStatus};
use crate::sys;

/// The path of the program in its jail, by which it knows that it must run the attempts.
pub(crate) const PROBE_PROGRAM: &str = "/tmp/hermes-jail-probe";

/// Where the jail sees the probe's directory.
const PROBE_DIR: &str = "/tmp/probe";

/// Limits of the jail, which the attempts try to exceed.
const MAX_PROCESSES: u32 = 16;
const MAX_MEMORY_BYTES: u64 = 32 << 20;

/// The properties that a jail enforces on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeReport {
    /// Masked files cannot be read; files outside cannot be written.
    pub files: ProbeVerdict,
    /// Loopback and abstract sockets of the host cannot be reached.
    pub network: ProbeVerdict,
    /// Processes outside cannot be seen or signaled.
    pub processes: ProbeVerdict,
    /// Dangerous system calls fail, and no capability is left.
    pub syscalls: ProbeVerdict,
    pub resources: ProbeVerdict,
}

/// The result for one dimension.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProbeVerdict {
    /// Every attempt failed.
    Enforced,
    /// An attempt succeeded, or a limit cannot be enforced.
    NotEnforced(String),
    /// The attempts could not be made.
    Unknown(String),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum Dimension {
    Files,
    Network,
    Processes,
    Syscalls,
    Resources,
}

/// A result of the attempts.
#[derive(Debug, Serialize, Deserialize)]
enum ProbeFinding {
    /// This attempt succeeded.
    Escaped(Dimension, String),
    /// This permitted action failed, so the attempts prove nothing.
    Inconclusive(Dimension, String),
    /// All attempts except the one on memory were made.
    Completed,
}

impl Launcher {
    /// Tests what a jail enforces on this machine. Takes some tens of milliseconds; the result is
    /// valid as long as the machine and the user stay the same. An error says why no jail can be
    /// created.
    pub fn probe(&self) -> Result<ProbeReport, Error> {
        let fixture = ProbeFixture::new().map_err(Error::io("prepare the probe"))?;
        let program = fs::canonicalize(&self.program).map_err(Error::io("find this program"))?;
        let jail = fixture.jail(&program);
        let (mut reader, writer) = io::pipe().map_err(Error::io("create a pipe"))?;
        let streams = JailStreams { stdout: Some(writer.as_fd()), ..JailStreams::default() };
        let mut running = self.launch(&jail, &streams)?;
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(Error::io("read from the probe"))?;
        running.wait()?;
        Ok(summarize(&parse_findings(&bytes), &running.limits))
    }
}

/// Targets outside the jail, removed on drop.
struct ProbeFixture {
    directory: TempDir,
    /// The targets of the attempts: port, name of an abstract socket, pid.
    arguments: [String; 3],
    _tcp: TcpListener,
    _unix: UnixListener,
}

const DIR_PREFIX: &str = "hermes-probe-";
/// Older directories belong to a probe that was killed.
const STALE_AGE: Duration = Duration::from_secs(600);

/// Removes directories of killed probes; failures do no harm.
fn remove_stale_dirs(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_probe_dir = entry.file_name().as_encoded_bytes().starts_with(DIR_PREFIX.as_bytes());
        let age = || entry.metadata().and_then(|found| found.modified()).ok()?.elapsed().ok();
        if is_probe_dir && age().is_some_and(|age| age > STALE_AGE) {
            for file in ["open", "masked"] {
                fs::remove_file(entry.path().join(file)).ok();
            }
            fs::remove_dir(entry.path()).ok();
        }
    }
}

impl ProbeFixture {
    fn new() -> io::Result<Self> {
        remove_stale_dirs(Path::new("/tmp"));
        let directory = tempfile::Builder::new()
            .prefix(DIR_PREFIX)
            .permissions(Permissions::from_mode(0o700))
            .tempdir_in("/tmp")?;
        fs::write(directory.path().join("open"), "seen")?;
        fs::write(directory.path().join("masked"), "seen")?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let name = directory.path().display().to_string();
        let unix = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name)?)?;
        let arguments = [tcp.local_addr()?.port().to_string(), name, std::process::id().to_string()];
        Ok(Self { directory, arguments, _tcp: tcp, _unix: unix })
    }

    fn jail(&self, program: &Path) -> Jail {
        let directory = self.directory.path();
        let mut jail = Jail::new(PROBE_PROGRAM, directory);
        let bind = |source: &Path, target: &str| JailMount {
            source: source.into(),
            target: target.into(),
            access: MountAccess::ReadOnly,
        };
        jail.binds.extend([bind(program, PROBE_PROGRAM), bind(directory, PROBE_DIR)]);
        jail.masked.push(directory.join("masked").into());
        jail.limits.processes = Some(MAX_PROCESSES);
        jail.limits.memory = Some(MAX_MEMORY_BYTES);
        jail.limits.millicpus = Some(1000);
        jail.arguments = self.arguments.iter().map(OsString::from).collect();
        jail
    }
}

fn parse_findings(bytes: &[u8]) -> Vec<ProbeFinding> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while let Ok((finding, after)) = postcard::take_from_bytes(rest) {
        all.push(finding);
        rest = after;
    }
    all
}

fn summarize(findings: &[ProbeFinding], report: &LimitReport) -> ProbeReport {
    let completed = findings.iter().any(|finding| matches!(finding, ProbeFinding::Completed));
    let verdict = |dimension: Dimension| {
        let (mut escapes, mut failures) = (Vec::new(), Vec::new());
        for finding in findings {
            match finding {
                ProbeFinding::Escaped(about, what) if *about == dimension => escapes.push(what.as_str()),
                ProbeFinding::Inconclusive(about, what) if *about == dimension => failures.push(what),
                _ => {}
            }
        }
        match (escapes.as_slice(), failures.as_slice()) {
            ([], []) if completed => ProbeVerdict::Enforced,
            ([], []) => ProbeVerdict::Unknown("the probe did not finish".to_owned()),
            ([], [what, ..]) => ProbeVerdict::Unknown(format!("could not {what}, which is allowed")),
            _ => ProbeVerdict::NotEnforced(format!("could {}", escapes.join(", could "))),
        }
    };
    ProbeReport {
        files: verdict(Dimension::Files),
        network: verdict(Dimension::Network),
        processes: verdict(Dimension::Processes),
        syscalls: verdict(Dimension::Syscalls),
        resources: resource_verdict(verdict(Dimension::Resources), report),
    }
}

/// Combines the attempts on resources with the limits that the jail reports as not enforced.
fn resource_verdict(completed: ProbeVerdict, report: &LimitReport) -> ProbeVerdict {
    let limits =
        [("memory", &report.memory), ("processes", &report.processes), ("processor time", &report.cpu)];
    let mut reasons: Vec<String> = match completed {
        ProbeVerdict::Enforced => Vec::new(),
        ProbeVerdict::NotEnforced(reason) => vec![reason],
        ProbeVerdict::Unknown(_) => return completed,
    };
    reasons.extend(limits.iter().filter_map(|(name, hold)| match hold {
        LimitStatus::Enforced | LimitStatus::NotRequested => None,
        LimitStatus::PerProcess { reason } => Some(format!("{name} only for each process: {reason}")),
        LimitStatus::NotEnforced { reason } => Some(format!("{name}: {reason}")),
    }));
    if reasons.is_empty() { ProbeVerdict::Enforced } else { ProbeVerdict::NotEnforced(reasons.join("; ")) }
}

/// Runs inside the jail: makes all attempts and reports those that succeed.
pub(crate) fn run_attempts() -> i32 {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [port, name, pid] = arguments.as_slice() else { return 2 };
    let (Ok(port), Ok(pid)) = (port.parse(), pid.parse()) else { return 2 };
    try_files();
    try_network(port, name);
    try_processes(pid);
    try_syscalls();
    try_many_threads();
    report_finding(&ProbeFinding::Completed);
    // Last, because the kernel may kill this process.
    try_memory();
    0
}

fn report_finding(finding: &ProbeFinding) {
    let bytes = postcard::to_stdvec(finding).unwrap_or_default();
    // If the report is lost, the verdict is `Unknown`.
    io::stdout().lock().write_all(&bytes).and_then(|()| io::stdout().lock().flush()).ok();
}

fn report_escape_if(escaped: bool, dimension: Dimension, what: &str) {
    if escaped {
        report_finding(&ProbeFinding::Escaped(dimension, what.to_owned()));
    }
}

/// Reports a permitted action that fails.
fn report_unless(succeeded: bool, dimension: Dimension, what: &str) {
    if !succeeded {
        report_finding(&ProbeFinding::Inconclusive(dimension, what.to_owned()));
    }
}

fn try_files() {
    let dimension = Dimension::Files;
    let text = |name: &str| fs::read_to_string(Path::new(PROBE_DIR).join(name));
    report_unless(text("open").is_ok_and(|text| text == "seen"), dimension, "read an open file");
    report_escape_if(text("masked").is_ok_and(|text| !text.is_empty()), dimension, "read a masked file");
    report_escape_if(File::create(Path::new(PROBE_DIR).join("new")).is_ok(), dimension, "write outside");
    let changed = fs::write(Path::new(PROBE_DIR).join("open"), "changed");
    report_escape_if(changed.is_ok(), dimension, "change a file outside");
    let listed = fs::read_dir("/run").is_ok_and(|mut entries| entries.next().is_some());
    report_escape_if(listed, dimension, "list /run");
}

fn try_network(port: u16, name: &str) {
    let dimension = Dimension::Network;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let loopback = TcpStream::connect_timeout(&address, Duration::from_secs(1));
    report_escape_if(loopback.is_ok(), dimension, "reach the host's loopback");
    let address = UnixAddress::from_abstract_name(name);
    let connected = address.and_then(|address| UnixStream::connect_addr(&address));
    report_escape_if(connected.is_ok(), dimension, "reach an abstract socket");
    let own = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    report_unless(own.is_ok(), dimension, "use its own loopback");
}

fn try_processes(pid: i32) {
    let dimension = Dimension::Processes;
    let seen = rustix::process::Pid::from_raw(pid).map(rustix::process::test_kill_process);
    let is_hidden = matches!(seen, Some(Err(rustix::io::Errno::SRCH)));
    report_escape_if(!is_hidden, dimension, "signal a process outside");
    let entries = fs::read_dir("/proc");
    report_unless(entries.is_ok(), dimension, "read /proc");
    let pids =
        entries.into_iter().flatten().flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    report_escape_if(pids.filter(|pid: &i32| *pid != 1).count() > 0, dimension, "see processes outside");
}

fn try_syscalls() {
    let calls = [
        ("make a user namespace", libc::SYS_unshare, i64::from(libc::CLONE_NEWUSER)),
        ("mount", libc::SYS_fsopen, 0),
        ("use the kernel's keys", libc::SYS_keyctl, 0),
        ("load a bpf program", libc::SYS_bpf, 0),
        ("use io_uring", libc::SYS_io_uring_setup, 1),
        ("use userfaultfd", libc::SYS_userfaultfd, 1),
        ("use perf events", libc::SYS_perf_event_open, 0),
        ("enter a namespace", libc::SYS_setns, -1),
    ];
    for (what, call, argument) in calls {
        // The filter rejects a call before the kernel checks its arguments; any other error comes
        // from the kernel.
        let result = sys::try_syscall(call, argument).map_err(|error| error.raw_os_error());
        let is_refused = matches!(result, Err(Some(libc::EPERM | libc::ENOSYS)));
        report_escape_if(!is_refused, Dimension::Syscalls, what);
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has_value = |name: &str, value: &str| {
        status.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim() == value))
    };
    let is_stripped = has_value("NoNewPrivs:", "1")
        && has_value("CapBnd:", "0000000000000000")
        && has_value("CapEff:", "0000000000000000");
    report_escape_if(!is_stripped, Dimension::Syscalls, "keep privileges");
}

fn try_many_threads() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let mut threads = Vec::new();
    for _ in 0..MAX_PROCESSES * 2 {
        let released = released.clone();
        let wait = move || released.lock().is_ok_and(|released| released.recv().is_ok());
        match thread::Builder::new().stack_size(64 << 10).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    let exceeded = threads.len() >= MAX_PROCESSES as usize;
    report_escape_if(exceeded, Dimension::Resources, "start more threads than allowed");
    drop(release);
    for thread in threads {
        // Whether the thread panicked does not matter.
        thread.join().ok();
    }
}

fn try_memory() {
    let mut memory: Vec<u8> = Vec::new();
    let Ok(bytes) = usize::try_from(MAX_MEMORY_BYTES + MAX_MEMORY_BYTES / 4) else { return };
    if memory.try_reserve_exact(bytes).is_ok() {
        memory.resize(bytes, 1);
        let exceeded = memory.iter().step_by(4096).all(|byte| *byte == 1);
        report_escape_if(exceeded, Dimension::Resources, "use more memory than allowed");
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn directories_of_killed_probes_are_removed_when_they_are_old() {
        let folder = tempfile::tempdir().unwrap();
        let create = |name: &str| {
            let directory = folder.path().join(name);
            fs::create_dir(&directory).unwrap();
            fs::write(directory.join("open"), "seen").unwrap();
            directory
        };
        let names = [format!("{DIR_PREFIX}old"), format!("{DIR_PREFIX}new"), "other".to_owned()];
        let [old, new, other] = names.each_ref().map(|name| create(name));
        for directory in [&old, &other] {
            File::open(directory).unwrap().set_modified(SystemTime::now() - 2 * STALE_AGE).unwrap();
        }
        remove_stale_dirs(folder.path());
        assert_eq!([old, new, other].map(|directory| directory.exists()), [false, true, true]);
    }
}
