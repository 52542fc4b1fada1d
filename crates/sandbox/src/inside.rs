//! The jail's first process, from its birth to the program's first instruction.

use std::fs;
use std::io;
use std::os::fd::{OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::Signal;

use crate::error::{During, Fault, Step};
use crate::held::Held;
use crate::jail::{Jail, Network};
use crate::privilege::Rlimits;
use crate::{access, cgroup, files, privilege, sys, syscalls, wire};

/// What the first process needs.
pub(crate) struct Inside {
    pub(crate) jail: Jail,
    /// Descriptors that go along, each with its number inside.
    pub(crate) descriptors: Vec<(OwnedFd, RawFd)>,
    /// Where the doors of its cgroups come from, once there are any.
    pub(crate) admission: OwnedFd,
    /// Ends when the keeper does.
    pub(crate) keeper_alive: OwnedFd,
    /// Who it is, inside and outside.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

impl Inside {
    /// Shuts the door behind itself and becomes the program. Returns only if a step failed.
    pub(crate) fn run(self) -> Fault {
        match self.steps() {
            Ok(never) => match never {},
            Err(fault) => fault,
        }
    }

    fn steps(self) -> Result<std::convert::Infallible, Fault> {
        let jail = &self.jail;
        sys::ordinary_signals();
        rustix::process::setsid().during(Step::Namespaces)?;
        rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));
        map_user(self.uid, self.gid).during(Step::IdMap)?;
        rustix::system::sethostname(jail.hostname.as_bytes()).during(Step::Hostname)?;
        if jail.network == Network::None {
            loopback().during(Step::Loopback)?;
        }
        let writable = files::enter(jail)?;
        let held = enter_cgroups(&self.admission).during(Step::Cgroup)?;
        own_cgroup_names().during(Step::Cgroup)?;

        privilege::drop_all().during(Step::Capabilities)?;
        die_with(&self.keeper_alive).during(Step::DeathSignal)?;
        rustix::process::chdir(&jail.directory)
            .map_err(|error| Fault::at(Step::Directory, &jail.directory, error))?;
        access::restrict(&writable).during(Step::Landlock)?;
        privilege::place(self.descriptors).during(Step::Descriptors)?;
        // Only now: until here, more files may be open than the program is allowed.
        Rlimits::new(&jail.limits, held).set().during(Step::Rlimits)?;
        syscalls::restrict().during(Step::Seccomp)?;
        Err(Fault::at(Step::Exec, &jail.program, become_program(jail)))
    }
}

/// The user keeps the number it has outside: what it writes belongs to it there, and tools find it in /etc/passwd.
fn map_user(uid: u32, gid: u32) -> io::Result<()> {
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("{uid} {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("{gid} {gid} 1"))
}

/// Waits for the cgroups, enters them and says what they hold.
fn enter_cgroups(admission: &OwnedFd) -> io::Result<Held> {
    let (held, doors) = wire::receive(admission)?.ok_or_else(|| io::Error::from_raw_os_error(libc::EPIPE))?;
    doors.into_iter().try_for_each(cgroup::enter)?;
    Ok(held)
}

/// Hides the path of our cgroup. A kernel without such namespaces shows a name, and nothing more.
fn own_cgroup_names() -> io::Result<()> {
    match sys::unshare_cgroup() {
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => Ok(()),
        other => other,
    }
}

fn loopback() -> io::Result<()> {
    use std::os::fd::AsFd;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::loopback_up(socket.as_fd())
}

/// From now on the kernel kills the jail when its keeper is gone; if it went before, nobody would be told.
fn die_with(keeper_alive: &OwnedFd) -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
    let mut poll = [PollFd::new(keeper_alive, PollFlags::empty())];
    rustix::event::poll(&mut poll, Some(&Timespec::default()))?;
    let [state] = poll;
    if state.revents().is_empty() { Ok(()) } else { Err(io::Error::from_raw_os_error(libc::ESRCH)) }
}

#[expect(clippy::disallowed_methods, reason = "starting the program is what a jail is for")]
fn become_program(jail: &Jail) -> io::Error {
    let environment = jail.environment.iter().map(|(name, value)| (name, value));
    Command::new(&jail.program).args(&jail.arguments).env_clear().envs(environment).exec()
}
