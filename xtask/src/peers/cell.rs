//! A cell: one daemon with all that it starts, in namespaces of its own.
//!
//! | | |
//! |---|---|
//! | needs | root, `unshare`, `setsid` |
//! | promises | the daemon's mounts, and where asked its processes and network, exist in the cell alone |
//! | cleans up | when the first process of the cell ends, the kernel ends the others, the mounts and the bridges |
//!
//! That is why a peer can be killed at any moment and leave nothing, and why a private dockerd does
//! not meet a system one: each has its own `docker0`, its own packet filter and its own `/run`.
//!
//! A cell is known by its supervisor, the `unshare` process outside; the first process inside is
//! the supervisor's child.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::path::PathBuf;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::dirs::{self, Dirs};
use super::run::{self, POLL_INTERVAL};

const RECORD: &str = include_str!("cell/record.sh");
const PRELUDE: &str = include_str!("cell/prelude.sh");

/// Whether the cell shares something with the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Isolation {
    /// The cell has its own.
    Private,
    /// The cell has the machine's.
    Machine,
}

/// How to make a cell.
#[derive(Debug, Hash)]
pub(crate) struct Spec {
    /// Its network interfaces and packet filter.
    pub(crate) network: Isolation,
    /// Its process numbers.
    pub(crate) processes: Isolation,
    /// A shell script that ends by becoming the daemon. It can call the functions of
    /// `cell/prelude.sh`.
    pub(crate) script: &'static str,
    /// The arguments of the script.
    pub(crate) args: Vec<OsString>,
}

/// A named cell, running or not.
#[derive(Debug)]
pub(crate) struct Cell<'a> {
    dirs: &'a Dirs,
    name: &'static str,
}

/// A process, identified by pid and start time because pids are reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    pub(crate) start: u64,
}

impl<'a> Cell<'a> {
    pub(crate) fn new(dirs: &'a Dirs, name: &'static str) -> Self {
        Self { dirs, name }
    }

    /// Makes the cell, after ending one that does not answer or was made in another way.
    ///
    /// `answers` asks the daemon. Returns whether the cell is new.
    pub(crate) fn ensure(&self, spec: &Spec, answers: impl Fn() -> Result<()>) -> Result<bool> {
        if let Some((_, print)) = self.supervisor()?
            && print == dirs::fingerprint((PRELUDE, spec))
            && answers().is_ok()
        {
            return Ok(false);
        }
        self.stop()?;
        eprintln!("peers: {}: starting", self.name);
        self.start(spec)?;
        self.wait_until(Duration::from_secs(60), answers)?;
        Ok(true)
    }

    /// The first process inside the cell, if the cell is alive.
    pub(crate) fn init(&self) -> Result<Option<Process>> {
        let Some((supervisor, _)) = self.supervisor()? else { return Ok(None) };
        child_of(supervisor.pid)
    }

    /// Ends the cell: SIGTERM to the first process inside, then SIGKILL, which ends all others too.
    pub(crate) fn stop(&self) -> Result<()> {
        if let Some((supervisor, _)) = self.supervisor()? {
            eprintln!("peers: {}: stopping", self.name);
            let inside = child_of(supervisor.pid)?;
            if let Some(inside) = &inside {
                inside.signal(Signal::TERM)?;
            }
            // dockerd would wait ten seconds for each container that does not listen; none is worth
            // it.
            if !supervisor.gone_within(Duration::from_secs(4))? {
                inside.as_ref().unwrap_or(&supervisor).signal(Signal::KILL)?;
                if !supervisor.gone_within(Duration::from_secs(15))? {
                    bail!("process {} does not end", supervisor.pid);
                }
            }
        }
        dirs::remove(&self.dirs.run(&format!("{}.sh", self.name)))?;
        dirs::remove(&self.record())
    }

    fn start(&self, spec: &Spec) -> Result<()> {
        dirs::make(self.dirs.run_root(), 0o755)?;
        let log = self.dirs.log(self.name);
        let file = File::create(&log).with_context(|| format!("cannot create {}", log.display()))?;
        let mut command = run::command("setsid");
        command
            .args(["sh", "-eu", "-c", RECORD, "record"])
            .arg(self.record())
            .arg(dirs::fingerprint((PRELUDE, spec)));
        command.args(["unshare", "--mount", "--propagation", "slave", "--fork", "--kill-child"]);
        if spec.processes == Isolation::Private {
            command.args(["--pid", "--mount-proc"]);
        }
        if spec.network == Isolation::Private {
            command.arg("--net");
        }
        // A file, not an argument, so that a list of processes stays readable.
        let script = self.dirs.run(&format!("{}.sh", self.name));
        dirs::write(&script, &format!("{PRELUDE}\n{}", spec.script), 0o644)?;
        command
            .args(["sh", "-eu"])
            .arg(script)
            .args(&spec.args)
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file);
        // The child is not waited for: it outlives this process.
        command.spawn().context("cannot start setsid")?;
        Ok(())
    }

    fn wait_until(&self, limit: Duration, answers: impl Fn() -> Result<()>) -> Result<()> {
        let begin = Instant::now();
        loop {
            let Err(error) = answers() else { return Ok(()) };
            let log = self.dirs.log(self.name);
            // The record appears a moment after the start.
            let ended = begin.elapsed() > Duration::from_secs(2) && self.supervisor()?.is_none();
            if ended {
                bail!("ended at once: {} (log: {})", run::log_tail(&log), log.display());
            }
            if begin.elapsed() > limit {
                self.stop()?;
                return Err(error.context(format!(
                    "no answer in {} s, see {}",
                    limit.as_secs(),
                    log.display()
                )));
            }
            thread::sleep(POLL_INTERVAL);
        }
    }

    fn record(&self) -> PathBuf {
        self.dirs.run(&format!("{}.cell", self.name))
    }

    /// The supervisor and the fingerprint of the cell it keeps, if it is alive.
    fn supervisor(&self) -> Result<Option<(Process, String)>> {
        let Ok(record) = fs::read_to_string(self.record()) else { return Ok(None) };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        Ok(parse_supervisor(&record, boot.trim()))
    }
}

/// Reads what `cell/record.sh` wrote. A record that is not whole was cut off by a crash.
fn parse_supervisor(record: &str, boot: &str) -> Option<(Process, String)> {
    let fields: Vec<&str> = record.split_whitespace().collect();
    let [pid, start, then, print] = fields.as_slice() else { return None };
    let supervisor = Process { pid: pid.parse().ok()?, start: start.parse().ok()? };
    (*then == boot && supervisor.alive()).then(|| (supervisor, (*print).to_owned()))
}

impl Process {
    fn alive(&self) -> bool {
        stat(self.pid).is_some_and(|now| now.start == self.start && !now.dead)
    }

    /// Sends a signal. The process is held by a descriptor first and looked at after that, so a
    /// process that got the same number in between is never hit.
    fn signal(&self, signal: Signal) -> Result<()> {
        let pid = Pid::from_raw(self.pid).context("not a process number")?;
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else { return Ok(()) };
        if !self.alive() {
            return Ok(());
        }
        match pidfd_send_signal(held, signal) {
            Err(error) if error != rustix::io::Errno::SRCH => Err(error).context("cannot signal"),
            _ => Ok(()),
        }
    }

    fn gone_within(&self, limit: Duration) -> Result<bool> {
        let deadline = Instant::now() + limit;
        while self.alive() {
            if Instant::now() > deadline {
                return Ok(false);
            }
            thread::sleep(POLL_INTERVAL);
        }
        Ok(true)
    }
}

struct Stat {
    parent: i32,
    start: u64,
    dead: bool,
}

/// Reads `/proc/PID/stat`. The second field, the name, is in parentheses and may hold anything.
fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let (_, rest) = text.rsplit_once(')')?;
    let fields: Vec<&str> = rest.split_whitespace().collect();
    Some(Stat {
        parent: fields.get(1)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        // A zombie whose parent does not collect it has ended all the same.
        dead: matches!(*fields.first()?, "Z" | "X"),
    })
}

fn child_of(parent: i32) -> Result<Option<Process>> {
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if let Some(stat) = stat(pid)
            && stat.parent == parent
            && !stat.dead
        {
            return Ok(Some(Process { pid, start: stat.start }));
        }
    }
    Ok(None)
}

/// Runs a short script with the functions of `cell/prelude.sh`, in a mount namespace of its own.
pub(crate) fn script(text: &str, args: &[&OsStr]) -> Result<()> {
    let mut command = run::contained("sh");
    command.args(["-eu", "-c"]).arg(format!("{PRELUDE}\n{text}")).arg("script").args(args);
    run::output(&mut command, Duration::from_secs(30)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_hits_the_recorded_process_and_never_its_successor() {
        let mut child = run::command("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let start = stat(pid).unwrap().start;
        Process { pid, start: start + 1 }.signal(Signal::KILL).unwrap();
        assert!(Process { pid, start }.alive());
        assert_eq!(child.try_wait().unwrap(), None);
        let child_of_this_test = Process { pid, start };
        child_of_this_test.signal(Signal::KILL).unwrap();
        assert!(child_of_this_test.gone_within(Duration::from_secs(10)).unwrap());
        child.wait().unwrap();
    }

    #[test]
    fn a_record_of_another_boot_or_of_nonsense_means_no_cell() {
        let me = i32::try_from(std::process::id()).unwrap();
        let start = stat(me).unwrap().start;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let boot = boot.trim();
        let this = Some((Process { pid: me, start }, "f00d".to_owned()));
        let cases = [
            (format!("{me} {start} {boot} f00d\n"), this),
            (format!("{me} {start} another-boot f00d\n"), None),
            (format!("{me} {} {boot} f00d\n", start + 1), None),
            (format!("{me} {start}"), None),
            (String::new(), None),
        ];
        for (record, supervisor) in cases {
            assert_eq!(parse_supervisor(&record, boot), supervisor, "{record:?}");
        }
    }
}
