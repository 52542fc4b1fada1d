//! The jail's first process, from the fork to the exec of the program.

use std::convert::Infallible;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{Gid, Signal, Uid};

use crate::error::{SetupError, SetupStep, WithStep};
use crate::jail::{Jail, JailNetwork};
use crate::limit_report::LimitReport;
use crate::privilege::Rlimits;
use crate::rootfs::OpenedMounts;
use crate::{cgroup, file_access, ipc, privilege, rootfs, seccomp, sys};

pub(crate) struct JailInit {
    pub(crate) jail: Jail,
    /// The standard streams of the program.
    pub(crate) descriptors: Vec<OwnedFd>,
    /// Receives the entry files of the cgroups once they exist, and is closed when the supervisor
    /// dies.
    pub(crate) supervisor: OwnedFd,
    pub(crate) ids: JailIds,
    /// The mounts, if the supervisor opened them.
    pub(crate) opened: Option<OpenedMounts>,
}

/// The user and group of the jail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JailIds {
    /// Those of the supervisor, inside and outside.
    Same { uid: u32, gid: u32 },
    /// Root inside, and outside a user that owns nothing: what only root can read stays unreadable.
    /// The supervisor writes the maps and opens the mounts, which that user might not reach.
    Unprivileged,
}

impl JailInit {
    /// Completes the setup and executes the program. Returns only if a step fails.
    pub(crate) fn run(self) -> Result<Infallible, SetupError> {
        let jail = &self.jail;
        sys::reset_signals();
        rustix::process::setsid().with_step(SetupStep::Namespaces)?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        match self.ids {
            JailIds::Same { uid, gid } => write_id_maps("self", (uid, uid), (gid, gid)),
            JailIds::Unprivileged => become_mapped_root(&self.supervisor),
        }
        .with_step(SetupStep::IdMap)?;
        rustix::system::sethostname(jail.hostname.as_bytes()).with_step(SetupStep::Hostname)?;
        if jail.network == JailNetwork::None {
            bring_up_loopback().with_step(SetupStep::Loopback)?;
        }
        let opened = self.opened.map_or_else(|| OpenedMounts::open(jail), Ok)?;
        let writable = rootfs::enter_rootfs(jail, opened)?;
        let report = enter_cgroups(&self.supervisor).with_step(SetupStep::Cgroup)?;
        unshare_cgroup_namespace().with_step(SetupStep::Cgroup)?;

        privilege::drop_capabilities().with_step(SetupStep::Capabilities)?;
        die_with_supervisor(&self.supervisor).with_step(SetupStep::DeathSignal)?;
        rustix::process::chdir(&jail.directory)
            .map_err(SetupError::at(SetupStep::WorkingDir, &jail.directory))?;
        file_access::restrict_files(&writable).with_step(SetupStep::Landlock)?;
        privilege::install_descriptors(self.descriptors).with_step(SetupStep::Descriptors)?;
        // Last, because the setup may open more files than the program is allowed to.
        Rlimits::new(&jail.limits, report, self.ids).set().with_step(SetupStep::Rlimits)?;
        seccomp::install_filter().with_step(SetupStep::Seccomp)?;
        Err(SetupError::at(SetupStep::Exec, &jail.program)(exec_program(jail)))
    }
}

/// Maps one user and one group, each as a number inside and outside. A user keeps its number inside,
/// so that `/etc/passwd` matches.
pub(crate) fn write_id_maps(process: &str, uid: (u32, u32), gid: (u32, u32)) -> io::Result<()> {
    let write = |name: &str, text: &str| fs::write(format!("/proc/{process}/{name}"), text);
    write("setgroups", "deny")?;
    write("uid_map", &format!("{} {} 1", uid.0, uid.1))?;
    write("gid_map", &format!("{} {} 1", gid.0, gid.1))
}

/// Waits until the supervisor has mapped root, and becomes it, with all capabilities of the jail's
/// user namespace.
fn become_mapped_root(supervisor: &OwnedFd) -> io::Result<()> {
    let (_, _): (u8, _) =
        ipc::receive(supervisor)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EPIPE))?;
    let (uid, gid) = (Uid::ROOT, Gid::ROOT);
    rustix::thread::set_thread_res_gid(gid, gid, gid)?;
    Ok(rustix::thread::set_thread_res_uid(uid, uid, uid)?)
}

/// Waits for the cgroups, enters them and returns which limits they enforce.
fn enter_cgroups(supervisor: &OwnedFd) -> io::Result<LimitReport> {
    let (report, entry_files) =
        ipc::receive(supervisor)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EPIPE))?;
    entry_files.into_iter().try_for_each(cgroup::enter)?;
    Ok(report)
}

/// Hides the path of the cgroup. A kernel without cgroup namespaces shows its name, but nothing
/// more.
fn unshare_cgroup_namespace() -> io::Result<()> {
    match sys::unshare_cgroup() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

fn bring_up_loopback() -> io::Result<()> {
    use std::os::fd::AsFd;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::loopback_up(socket.as_fd())
}

/// From now on the kernel kills the jail when the supervisor dies. The poll catches a supervisor
/// that died before.
fn die_with_supervisor(supervisor: &OwnedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut poll = [PollFd::new(supervisor, PollFlags::empty())];
    rustix::event::poll(&mut poll, Some(&Timespec::default()))?;
    let [state] = poll;
    if state.revents().is_empty() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[expect(clippy::disallowed_methods, reason = "a jail starts its program")]
fn exec_program(jail: &Jail) -> io::Error {
    let environment = jail.environment.iter().map(|(name, value)| (name, value));
    Command::new(&jail.program).args(&jail.arguments).env_clear().envs(environment).exec()
}
