//! What a jail holds on this machine, found out by trying to break one.
//!
//! The attempts are made by this crate's own code inside a small jail. Each is a thing the one who asks could do
//! outside, so that a refusal comes from the jail and not from somewhere else.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::{SocketAddr as UnixAddress, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::held::{Held, Hold};
use crate::jail::{Access, Bind, Jail};
use crate::launcher::{Launcher, Streams};
use crate::sys;

/// The path of the program in its jail, by which it knows that it is to try and break out.
pub(crate) const PRISONER: &str = "/tmp/hermes-jail-prisoner";

/// Where the prisoner finds itself and what it shall not touch.
const CELL: &str = "/tmp/probe";

/// What the prisoner is allowed, and what it tries to take.
const PROCESSES: u32 = 16;
const MEMORY: u64 = 32 << 20;

/// What a jail on this machine holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Probe {
    /// Masked files cannot be read, files outside cannot be written.
    pub files: Verdict,
    /// The host's loopback and its abstract sockets cannot be reached.
    pub network: Verdict,
    /// Processes outside cannot be seen or signalled.
    pub processes: Verdict,
    /// Dangerous system calls are refused, and no capability is left.
    pub syscalls: Verdict,
    /// Memory, processes and processor time are limited.
    pub resources: Verdict,
}

/// Whether one dimension holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every attempt was refused.
    Held,
    /// Something could be done, or a limit cannot be enforced.
    NotHeld(String),
    /// It could not be tried.
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

/// One thing the prisoner found.
#[derive(Debug, Serialize, Deserialize)]
enum Finding {
    /// It could do this.
    Done(Dimension, String),
    /// It could not even do this, which is allowed: the attempts prove nothing.
    Useless(Dimension, String),
    /// All but the memory was tried.
    Tried,
}

/// What outside the prisoner shall try to reach.
#[derive(Debug, Serialize, Deserialize)]
struct Bait {
    port: u16,
    name: String,
    pid: i32,
}

impl Launcher {
    /// Tries on this machine what a jail holds. Takes some tens of milliseconds; the answer stays good while the
    /// machine and this program's user stay the same. An error says why no jail can be made at all.
    pub fn probe(&self) -> Result<Probe, Error> {
        let ground = Ground::new().map_err(Error::io("cannot prepare the probe"))?;
        let program = fs::canonicalize(self.path()).map_err(Error::io("cannot find this program"))?;
        let jail = ground.jail(&program)?;
        let (mut reader, writer) = io::pipe().map_err(Error::io("cannot make a pipe"))?;
        let streams = Streams { stdout: Some(writer.as_fd()), ..Streams::default() };
        let mut running = self.launch(&jail, &streams)?;
        drop(writer);
        let mut bytes = Vec::new();
        reader.read_to_end(&mut bytes).map_err(Error::io("cannot read from the probe"))?;
        running.wait()?;
        Ok(judge(&findings(&bytes), running.held()))
    }
}

/// Things outside the jail, made for the probe, and removed after it.
struct Ground {
    directory: PathBuf,
    bait: Bait,
    _tcp: TcpListener,
    _unix: UnixListener,
}

/// How grounds are called, before the number of their process.
const NAME: &str = "hermes-probe-";
/// A ground that is older than this belongs to nobody.
const OLD: Duration = Duration::from_secs(600);

/// Makes a ground of its own. One that was killed may have left one under the same number.
fn make(parent: &Path) -> io::Result<(String, PathBuf)> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    loop {
        let name = format!("{NAME}{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let directory = parent.join(&name);
        match fs::DirBuilder::new().mode(0o700).create(&directory) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return made.map(|()| (name, directory)),
        }
    }
}

/// Removes what was left by those that were killed. What cannot be removed is in nobody's way.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let is_ground = entry.file_name().as_encoded_bytes().starts_with(NAME.as_bytes());
        let age = || entry.metadata().and_then(|found| found.modified()).ok()?.elapsed().ok();
        if is_ground && age().is_some_and(|age| age > OLD) {
            for file in ["open", "masked"] {
                fs::remove_file(entry.path().join(file)).ok();
            }
            fs::remove_dir(entry.path()).ok();
        }
    }
}

impl Ground {
    fn new() -> io::Result<Self> {
        sweep(Path::new("/tmp"));
        let (name, directory) = make(Path::new("/tmp"))?;
        fs::write(directory.join("open"), "seen")?;
        fs::write(directory.join("masked"), "seen")?;
        let tcp = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let unix = UnixListener::bind_addr(&UnixAddress::from_abstract_name(&name)?)?;
        let pid = i32::try_from(std::process::id()).map_err(io::Error::other)?;
        let bait = Bait { port: tcp.local_addr()?.port(), name, pid };
        Ok(Self { directory, bait, _tcp: tcp, _unix: unix })
    }

    fn jail(&self, program: &Path) -> Result<Jail, Error> {
        let mut jail = Jail::new(PRISONER, &self.directory);
        let bind = |source: &Path, target: &str| Bind {
            source: source.to_path_buf(),
            target: PathBuf::from(target),
            access: Access::ReadOnly,
        };
        jail.binds.extend([bind(program, PRISONER), bind(&self.directory, CELL)]);
        jail.masked.push(self.directory.join("masked"));
        jail.limits.processes = Some(PROCESSES);
        jail.limits.memory = Some(MEMORY);
        jail.limits.millicpus = Some(1000);
        let bait = postcard::to_stdvec(&self.bait).map_err(|error| Error::Broken(error.to_string()))?;
        jail.arguments = vec![hex(&bait).into()];
        Ok(jail)
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        // A file that stays behind in /tmp harms nobody, and there is nobody to tell.
        fs::remove_dir_all(&self.directory).ok();
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits: Option<Vec<u8>> =
        text.chars().map(|c| c.to_digit(16).and_then(|d| u8::try_from(d).ok())).collect();
    Some(digits?.chunks(2).map(|pair| pair.iter().fold(0, |byte, digit| byte << 4 | digit)).collect())
}

fn findings(bytes: &[u8]) -> Vec<Finding> {
    let mut rest = bytes;
    let mut all = Vec::new();
    while let Ok((finding, after)) = postcard::take_from_bytes(rest) {
        all.push(finding);
        rest = after;
    }
    all
}

fn judge(findings: &[Finding], held: &Held) -> Probe {
    let tried = findings.iter().any(|finding| matches!(finding, Finding::Tried));
    let verdict = |dimension: Dimension| {
        let useless = findings.iter().find_map(|finding| match finding {
            Finding::Useless(about, what) if *about == dimension => Some(what.clone()),
            _ => None,
        });
        let done: Vec<&str> = findings
            .iter()
            .filter_map(|finding| match finding {
                Finding::Done(about, what) if *about == dimension => Some(what.as_str()),
                _ => None,
            })
            .collect();
        match (done.is_empty(), useless, tried) {
            (false, _, _) => Verdict::NotHeld(format!("could {}", done.join(", could "))),
            (true, Some(what), _) => Verdict::Unknown(format!("could not even {what}")),
            (true, None, false) => Verdict::Unknown("the probe broke off".to_owned()),
            (true, None, true) => Verdict::Held,
        }
    };
    Probe {
        files: verdict(Dimension::Files),
        network: verdict(Dimension::Network),
        processes: verdict(Dimension::Processes),
        syscalls: verdict(Dimension::Syscalls),
        resources: resources(verdict(Dimension::Resources), held),
    }
}

/// What was tried, and what the jail says it cannot enforce.
fn resources(tried: Verdict, held: &Held) -> Verdict {
    let limits = [("memory", &held.memory), ("processes", &held.processes), ("processor time", &held.cpu)];
    let mut reasons: Vec<String> = match tried {
        Verdict::Held => Vec::new(),
        Verdict::NotHeld(reason) => vec![reason],
        Verdict::Unknown(_) => return tried,
    };
    reasons.extend(limits.iter().filter_map(|(name, hold)| match hold {
        Hold::Held | Hold::NotAsked => None,
        Hold::EachProcess { reason } => Some(format!("{name} only for each process: {reason}")),
        Hold::NotHeld { reason } => Some(format!("{name}: {reason}")),
    }));
    if reasons.is_empty() { Verdict::Held } else { Verdict::NotHeld(reasons.join("; ")) }
}

/// The prisoner: tries everything and tells what it could do.
pub(crate) fn attempt_everything() -> i32 {
    let bait = std::env::args().nth(1).and_then(|text| unhex(&text));
    let Some(Ok(bait)) = bait.as_deref().map(postcard::from_bytes::<Bait>) else { return 2 };
    try_files();
    try_network(&bait);
    try_processes(&bait);
    try_syscalls();
    try_many_threads();
    tell(&Finding::Tried);
    // Last, because it may be the end of this process.
    try_memory();
    0
}

fn tell(finding: &Finding) {
    let bytes = postcard::to_stdvec(finding).unwrap_or_default();
    // If nobody hears it, the verdict is Unknown.
    io::stdout().lock().write_all(&bytes).and_then(|()| io::stdout().lock().flush()).ok();
}

fn done(dimension: Dimension, what: &str) {
    tell(&Finding::Done(dimension, what.to_owned()));
}

fn try_files() {
    let cell = Path::new(CELL);
    if fs::read_to_string(cell.join("open")).ok().as_deref() != Some("seen") {
        tell(&Finding::Useless(Dimension::Files, "read an open file".to_owned()));
    }
    if fs::read_to_string(cell.join("masked")).is_ok_and(|text| !text.is_empty()) {
        done(Dimension::Files, "read a masked file");
    }
    if File::create(cell.join("new")).is_ok() {
        done(Dimension::Files, "write outside");
    }
    if fs::write(cell.join("open"), "changed").is_ok() {
        done(Dimension::Files, "change a file outside");
    }
    if fs::read_dir("/run").is_ok_and(|mut entries| entries.next().is_some()) {
        done(Dimension::Files, "look into /run");
    }
}

fn try_network(bait: &Bait) {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, bait.port));
    if TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
        done(Dimension::Network, "reach the host's loopback");
    }
    if UnixAddress::from_abstract_name(&bait.name).and_then(|name| UnixStream::connect_addr(&name)).is_ok() {
        done(Dimension::Network, "reach an abstract socket");
    }
    if TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).is_err() {
        tell(&Finding::Useless(Dimension::Network, "use its own loopback".to_owned()));
    }
}

fn try_processes(bait: &Bait) {
    let seen = rustix::process::Pid::from_raw(bait.pid).map(rustix::process::test_kill_process);
    if !matches!(seen, Some(Err(rustix::io::Errno::SRCH))) {
        done(Dimension::Processes, "signal a process outside");
    }
    let Ok(entries) = fs::read_dir("/proc") else {
        return tell(&Finding::Useless(Dimension::Processes, "read /proc".to_owned()));
    };
    let others = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()))
        .filter(|pid| *pid != 1);
    if others.count() > 0 {
        done(Dimension::Processes, "see processes outside");
    }
}

fn try_syscalls() {
    let calls = [
        ("make a user namespace", libc::SYS_unshare, i64::from(libc::CLONE_NEWUSER)),
        ("mount", libc::SYS_fsopen, 0),
        ("use the kernel's keys", libc::SYS_keyctl, 0),
        ("load a bpf program", libc::SYS_bpf, 0),
        ("use io_uring", libc::SYS_io_uring_setup, 1),
        ("use userfaultfd", libc::SYS_userfaultfd, 1),
        ("count events", libc::SYS_perf_event_open, 0),
        ("enter a namespace", libc::SYS_setns, -1),
    ];
    for (what, call, argument) in calls {
        // The filter answers before the kernel looks at the arguments; any other error is the kernel's own.
        match sys::attempt(call, argument).map_err(|error| error.raw_os_error()) {
            Err(Some(libc::EPERM | libc::ENOSYS)) => {}
            _ => done(Dimension::Syscalls, what),
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let has = |name: &str, value: &str| {
        status.lines().any(|line| line.strip_prefix(name).is_some_and(|rest| rest.trim() == value))
    };
    if !has("NoNewPrivs:", "1") || !has("CapBnd:", "0000000000000000") || !has("CapEff:", "0000000000000000")
    {
        done(Dimension::Syscalls, "keep privileges");
    }
}

fn try_many_threads() {
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    let mut threads = Vec::new();
    for _ in 0..PROCESSES * 2 {
        let released = released.clone();
        let wait = move || released.lock().is_ok_and(|released| released.recv().is_ok());
        match thread::Builder::new().stack_size(64 << 10).spawn(wait) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    if threads.len() >= PROCESSES as usize {
        done(Dimension::Resources, "start more threads than allowed");
    }
    drop(release);
    for thread in threads {
        // A thread that failed has ended, which is all that matters.
        thread.join().ok();
    }
}

fn try_memory() {
    let mut memory: Vec<u8> = Vec::new();
    let Ok(bytes) = usize::try_from(MEMORY + MEMORY / 4) else { return };
    if memory.try_reserve_exact(bytes).is_ok() {
        memory.resize(bytes, 1);
        if memory.iter().step_by(4096).all(|byte| *byte == 1) {
            done(Dimension::Resources, "use more memory than allowed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn what_was_left_by_one_that_was_killed_is_passed_by_and_swept_away_later() {
        let folder = tempfile::tempdir().unwrap();
        let (_, first) = make(folder.path()).unwrap();
        let number: u32 = first.to_str().unwrap().rsplit('-').next().unwrap().parse().unwrap();
        let next = |ahead| folder.path().join(format!("{NAME}{}-{}", std::process::id(), number + ahead));
        for left in [&first, &next(1), &next(2)] {
            fs::create_dir_all(left).unwrap();
            fs::write(left.join("open"), "seen").unwrap();
        }
        let (_, made) = make(folder.path()).unwrap();
        assert!(![first.clone(), next(1), next(2)].contains(&made));
        sweep(folder.path());
        assert!(first.exists());
        File::open(&first).unwrap().set_modified(SystemTime::now() - 2 * OLD).unwrap();
        sweep(folder.path());
        assert!(!first.exists() && next(1).exists() && made.exists());
    }
}
