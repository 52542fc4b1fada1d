//! The supervisor: the process between the launcher and the jail that creates the jail, waits for
//! it and cleans up.
//!
//! It is the launcher's program, started again, with one thread. It stays as long as the jail,
//! because only a parent learns how a process exited, an empty cgroup does not remove itself, and
//! the launcher may be killed.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use hermes_types::RunDir;
use rustix::event::{PollFd, PollFlags};
use rustix::process::{DumpableBehavior, Signal, WaitIdOptions};

use crate::cgroup::Cgroups;
use crate::error::{SetupError, SetupStep, WithStep};
use crate::init::{self, JailIds, JailInit};
use crate::ipc::{self, JailExit, SupervisorReport};
use crate::jail::{Jail, JailNetwork, Lifetime};
use crate::limit_report::LimitReport;
use crate::rootfs::OpenedMounts;
use crate::sys::{self, ForkSide};
use crate::{privilege, probe};

/// The `argv[0]` by which a program that embeds this crate knows that it is the supervisor.
pub(crate) const SUPERVISOR_ARG0: &str = "hermes-jail-supervisor";

/// Runs as the supervisor of a jail if this process was started as one; otherwise returns
/// immediately.
///
/// Every program that launches jails must call this first in `main`, before it starts a thread.
pub fn helper_main() {
    let Some(name) = std::env::args_os().next() else { return };
    let code = if name == SUPERVISOR_ARG0 {
        run_supervisor()
    } else if name == probe::PROBE_PROGRAM {
        probe::run_attempts()
    } else {
        return;
    };
    std::process::exit(code);
}

/// The user and group outside of a jail that root creates. It is outside the ranges that systemd and
/// container engines assign, so it owns no file and no process.
const UNPRIVILEGED_ID: u32 = 2_000_000_000;

fn run_supervisor() -> i32 {
    // Descriptors leaked by the launcher must not stay open as long as the jail.
    if sys::close_from(3).is_err() {
        return 1;
    }
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return 1 };
    match create_jail(&control) {
        Ok(Some(jail)) => jail.supervise(control),
        Ok(None) => 0,
        Err(fault) => {
            // The launcher may be gone.
            ipc::send(&control, &SupervisorReport::Failed(fault), &[]).ok();
            1
        }
    }
}

/// A jail whose first process runs.
struct SupervisedJail {
    init: OwnedFd,
    cgroups: Cgroups,
    lifetime: Lifetime,
    run_dir: Option<RunDir>,
}

/// Creates the jail. `None` means that another process continues.
fn create_jail(control: &OwnedFd) -> Result<Option<SupervisedJail>, SetupError> {
    let (jail, descriptors) = receive_request(control).with_step(SetupStep::Request)?;
    rustix::process::chdir("/").with_step(SetupStep::Request)?;
    if jail.lifetime == Lifetime::Detached {
        // The launcher must not have to reap a detached supervisor.
        if let ForkSide::Parent(..) = sys::fork(0).with_step(SetupStep::Request)? {
            return Ok(None);
        }
    }
    drop_groups().with_step(SetupStep::Groups)?;
    let run_dir = jail.run_dir.as_ref().map(|run_dir| RunDir::open(Path::new(run_dir)));
    let run_dir = run_dir.transpose().with_step(SetupStep::Request)?;
    let lifetime = jail.lifetime;
    let (init, cgroups) = start_init(control, jail, descriptors)?;
    Ok(Some(SupervisedJail { init, cgroups, lifetime, run_dir }))
}

/// Drops supplementary groups. Only root can, and only where the user namespace allows it.
fn drop_groups() -> io::Result<()> {
    let allowed = std::fs::read_to_string("/proc/self/setgroups")?.trim() == "allow";
    if allowed && rustix::process::geteuid().is_root() {
        rustix::thread::set_thread_groups(&[])?;
    }
    Ok(())
}

/// Receives the jail, in a memory file because an environment can exceed the size of a packet, and
/// the descriptors of its standard streams.
fn receive_request(control: &OwnedFd) -> io::Result<(Jail, Vec<OwnedFd>)> {
    let gone = || io::Error::from_raw_os_error(libc::EPIPE);
    let (_, mut descriptors): (u8, _) = ipc::receive(control)?.ok_or_else(gone)?;
    if descriptors.is_empty() {
        return Err(gone());
    }
    let mut bytes = Vec::new();
    File::from(descriptors.remove(0)).read_to_end(&mut bytes)?;
    Ok((postcard::from_bytes(&bytes).map_err(io::Error::other)?, descriptors))
}

/// Starts the first process and reports to the launcher. Returns the pidfd of the process, and its
/// cgroups.
fn start_init(
    control: &OwnedFd,
    jail: Jail,
    descriptors: Vec<OwnedFd>,
) -> Result<(OwnedFd, Cgroups), SetupError> {
    let (failure, failing) = ipc::socket_pair().with_step(SetupStep::Namespaces)?;
    let (to_init, from_supervisor) = ipc::socket_pair().with_step(SetupStep::Namespaces)?;
    let limits = jail.limits.clone();
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // In a container root may lack the right to mount, and not every file system can map owners.
    let opened = if uid == 0 { open_mapped(&jail).ok() } else { None };
    let ids = if opened.is_some() { JailIds::Unprivileged } else { JailIds::Same { uid, gid } };
    let inside = JailInit { descriptors, supervisor: from_supervisor, ids, opened, jail };
    match sys::fork(namespace_flags(&inside.jail)).with_step(SetupStep::Namespaces)? {
        ForkSide::Child => {
            drop(to_init);
            let Err(fault) = inside.run();
            // If the report fails, the launcher sees an exit without an exec, which is an error
            // too.
            let sent = ipc::send(&failing, &fault, &[]);
            std::process::exit(if sent.is_ok() { 1 } else { 2 });
        }
        ForkSide::Parent(pid, pidfd) => {
            let mapped = match ids {
                JailIds::Same { .. } => Ok(()),
                JailIds::Unprivileged => map_root(pid).and_then(|()| ipc::send(&to_init, &0u8, &[])),
            };
            // The first process builds its file tree in parallel, then waits for the cgroups.
            let (cgroups, report) = Cgroups::create(&limits);
            let sent = mapped
                .with_step(SetupStep::IdMap)
                .and_then(|()| send_cgroups(&to_init, &cgroups, &report).with_step(SetupStep::Cgroup))
                .and_then(|()| {
                    let report = privilege::Rlimits::new(&limits, report, ids).limits;
                    let descriptors = [pidfd.as_fd(), failure.as_fd()];
                    ipc::send(control, &SupervisorReport::Started(report), &descriptors)
                        .with_step(SetupStep::Request)
                });
            if let Err(fault) = sent {
                kill_and_reap(&pidfd).with_step(SetupStep::Namespaces)?;
                cgroups.remove();
                return Err(fault);
            }
            // The first process lives as long as this end is open, that is until this process
            // exits.
            std::mem::forget(to_init);
            Ok((pidfd, cgroups))
        }
    }
}

/// The jail's mounts, opened by root and with root's files shown as those of [`UNPRIVILEGED_ID`].
fn open_mapped(jail: &Jail) -> Result<OpenedMounts, SetupError> {
    let opened = OpenedMounts::open(jail)?;
    let namespace = mapped_namespace().with_step(SetupStep::IdMap)?;
    opened.map_owners(namespace.as_fd()).with_step(SetupStep::IdMap)?;
    Ok(opened)
}

/// A user namespace whose root is [`UNPRIVILEGED_ID`].
fn mapped_namespace() -> io::Result<OwnedFd> {
    let (held, waiting) = ipc::socket_pair()?;
    match sys::fork(libc::CLONE_NEWUSER)? {
        ForkSide::Child => {
            drop(held);
            // Ends when the other side is closed.
            drop(ipc::receive::<u8>(&waiting));
            std::process::exit(0);
        }
        ForkSide::Parent(pid, pidfd) => {
            let namespace = map_root(pid).and_then(|()| File::open(format!("/proc/{pid}/ns/user")));
            kill_and_reap(&pidfd)?;
            Ok(namespace?.into())
        }
    }
}

fn map_root(pid: i64) -> io::Result<()> {
    init::write_id_maps(&pid.to_string(), (0, UNPRIVILEGED_ID), (0, UNPRIVILEGED_ID))
}

/// Sends the first process the entry files of its cgroups, and which limits they enforce.
fn send_cgroups(to_init: &OwnedFd, cgroups: &Cgroups, report: &LimitReport) -> io::Result<()> {
    let entry_files = cgroups.entry_files()?;
    let entry_files: Vec<_> = entry_files.iter().map(AsFd::as_fd).collect();
    ipc::send(to_init, report, &entry_files)
}

fn namespace_flags(jail: &Jail) -> i32 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match jail.network {
        JailNetwork::None => always | libc::CLONE_NEWNET,
        JailNetwork::Full => always,
    }
}

/// Kills the first process, and thereby all processes of the jail, and waits until they are gone.
fn kill_and_reap(init: &OwnedFd) -> io::Result<JailExit> {
    send_sigkill(init)?;
    reap_init(init)
}

/// Kills a process, which may be gone already.
pub(crate) fn send_sigkill(process: &OwnedFd) -> io::Result<()> {
    match rustix::process::pidfd_send_signal(process, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// The kernel reports the exit of process 1 only after all other processes of the jail exited.
fn reap_init(init: &OwnedFd) -> io::Result<JailExit> {
    loop {
        match rustix::process::waitid(rustix::process::WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
            Ok(Some(status)) => {
                return Ok(match status.exit_status() {
                    Some(code) => JailExit::Code(code),
                    None => JailExit::Signal(status.terminating_signal().unwrap_or_default()),
                });
            }
        }
    }
}

impl SupervisedJail {
    /// Waits until the jail exits, or kills it when its launcher is gone.
    fn supervise(self, control: OwnedFd) -> i32 {
        let exit = match self.wait_for_exit(&control) {
            Ok(()) => reap_init(&self.init),
            Err(_) => kill_and_reap(&self.init),
        };
        self.cgroups.remove();
        let Ok(exit) = exit else { return 1 };
        // After a failure the run directory stays as a trace for the next start. Leftovers are
        // removed later.
        if exit == JailExit::Code(0)
            && let Some(run_dir) = self.run_dir
        {
            run_dir.remove().ok();
        }
        // The launcher may be gone.
        ipc::send(&control, &SupervisorReport::Exited(exit), &[]).ok();
        0
    }

    /// Returns when the first process exited. An error means that it must be killed.
    fn wait_for_exit(&self, control: &OwnedFd) -> io::Result<()> {
        // The request in this process's memory contains the environment of the jail.
        rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
        loop {
            let mut poll = vec![PollFd::new(&self.init, PollFlags::IN)];
            if self.lifetime == Lifetime::WithParent {
                poll.push(PollFd::new(control, PollFlags::IN));
            }
            match rustix::event::poll(&mut poll, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            let mut ready = poll.iter().map(|fd| !fd.revents().is_empty());
            if ready.next() == Some(true) {
                return Ok(());
            }
            if ready.next() == Some(true) {
                return Err(io::Error::from_raw_os_error(libc::EPIPE));
            }
        }
    }
}
