//! The process between the launcher and the jail: it makes the jail, outlives it and cleans up after it.
//!
//! It is a program of its own, started anew, with one thread. It stays because somebody must: only a parent learns how
//! a process ended, an empty cgroup does not remove itself, and the one who asked for the jail may be killed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{DumpableBehavior, Signal, WaitIdOptions};

use crate::cgroup::Cgroups;
use crate::error::{During, Fault, Step};
use crate::held::Held;
use crate::inside::Inside;
use crate::jail::{Jail, Lifetime, Network};
use crate::room::Room;
use crate::sys::{self, Side};
use crate::wire::{self, Exit, Order, Report};
use crate::{privilege, probe};

/// The name by which a program that embeds this crate knows that it is to be the keeper.
pub(crate) const KEEPER: &str = "hermes-jail-keeper";

/// Becomes the keeper of a jail if this process was started to be one. Otherwise returns at once.
///
/// Every program that launches jails calls this first in `main`, before it starts a thread.
pub fn helper_main() {
    let Some(name) = std::env::args_os().next() else { return };
    let code = if name == KEEPER {
        keep()
    } else if name == probe::PRISONER {
        probe::attempt_everything()
    } else {
        return;
    };
    std::process::exit(code);
}

fn keep() -> i32 {
    // Whatever the launcher's process left open by mistake must not stay open as long as the jail lives.
    if sys::close_from(3).is_err() {
        return 1;
    }
    let Ok(control) = io::stdin().as_fd().try_clone_to_owned() else { return 1 };
    match make(&control) {
        Ok(Some(made)) => made.watch(control),
        Ok(None) => 0,
        Err(fault) => {
            // If nobody listens any more, nobody needs to know.
            wire::send(&control, &Report::Failed(fault), &[]).ok();
            1
        }
    }
}

/// A jail whose first process runs.
struct Made {
    init: OwnedFd,
    cgroups: Cgroups,
    lifetime: Lifetime,
    room: Option<Room>,
}

/// Makes the jail. `None`: this process is done, another one carries on.
fn make(control: &OwnedFd) -> Result<Option<Made>, Fault> {
    let (order, descriptors) = receive(control).during(Step::Spec)?;
    rustix::process::chdir("/").during(Step::Spec)?;
    if order.jail.lifetime == Lifetime::Detached {
        // The launcher must not have to bury us.
        if let Side::Parent { .. } = sys::fork(0).during(Step::Spec)? {
            return Ok(None);
        }
    }
    leave_groups().during(Step::Groups)?;
    let room = order.jail.room.as_ref().map(|room| Room::hold(Path::new(room)));
    let room = room.transpose().during(Step::Spec)?;
    let lifetime = order.jail.lifetime;
    let (init, cgroups) = start(control, order, descriptors)?;
    Ok(Some(Made { init, cgroups, lifetime, room }))
}

/// Root leaves the groups it is in. Others cannot, and root in a user namespace only where that allows it.
fn leave_groups() -> io::Result<()> {
    let allowed = std::fs::read_to_string("/proc/self/setgroups")?.trim() == "allow";
    if allowed && rustix::process::geteuid().is_root() {
        rustix::thread::set_thread_groups(&[])?;
    }
    Ok(())
}

fn receive(control: &OwnedFd) -> io::Result<(Order, Vec<OwnedFd>)> {
    let gone = || io::Error::from_raw_os_error(libc::EPIPE);
    let (_, mut descriptors): (u8, _) = wire::receive(control)?.ok_or_else(gone)?;
    if descriptors.is_empty() {
        return Err(gone());
    }
    let mut bytes = Vec::new();
    File::from(descriptors.remove(0)).read_to_end(&mut bytes)?;
    let order: Order = postcard::from_bytes(&bytes).map_err(io::Error::other)?;
    Ok((order, descriptors))
}

/// Starts the first process and tells the launcher. Returns the process by its descriptor, and its cgroups.
fn start(control: &OwnedFd, order: Order, descriptors: Vec<OwnedFd>) -> Result<(OwnedFd, Cgroups), Fault> {
    let (failure, failing) = pipe().during(Step::Namespaces)?;
    let (keeper_alive, alive) = pipe().during(Step::Namespaces)?;
    let (usher, admission) = wire::pair().during(Step::Namespaces)?;
    let limits = order.jail.limits.clone();
    let inside = Inside {
        descriptors: descriptors.into_iter().zip(order.numbers).collect(),
        admission,
        keeper_alive,
        uid: rustix::process::geteuid().as_raw(),
        gid: rustix::process::getegid().as_raw(),
        jail: order.jail,
    };
    match sys::fork(namespaces(&inside.jail)).during(Step::Namespaces)? {
        Side::Child => {
            drop((alive, usher));
            let fault = inside.run();
            // If this cannot be told, the launcher sees an end without a program, which is a failure too.
            let told = postcard::to_stdvec(&fault).map(|bytes| File::from(failing).write_all(&bytes));
            std::process::exit(if told.is_ok() { 1 } else { 2 });
        }
        Side::Parent { pid, pidfd } => {
            // The first process makes its tree meanwhile, and waits to be let in before it goes on.
            let (cgroups, held) = Cgroups::make(&limits);
            let told = admit(&usher, &cgroups, &held).during(Step::Cgroup).and_then(|()| {
                let held = privilege::Rlimits::new(&limits, held).held;
                wire::send(control, &Report::Made { pid, held }, &[pidfd.as_fd(), failure.as_fd()])
                    .during(Step::Spec)
            });
            if let Err(fault) = told {
                end(&pidfd).during(Step::Namespaces)?;
                cgroups.remove();
                return Err(fault);
            }
            // The first process lives as long as this end is open: until this process ends.
            std::mem::forget(alive);
            Ok((pidfd, cgroups))
        }
    }
}

/// Hands the first process the doors of its cgroups, and says what they hold.
fn admit(usher: &OwnedFd, cgroups: &Cgroups, held: &Held) -> io::Result<()> {
    let doors = cgroups.doors()?;
    let doors: Vec<_> = doors.iter().map(AsFd::as_fd).collect();
    wire::send(usher, held, &doors)
}

fn namespaces(jail: &Jail) -> i32 {
    let always = libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS;
    match jail.network {
        Network::None => always | libc::CLONE_NEWNET,
        Network::Full => always,
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

/// Kills the first process, and with it all others of the jail, and waits until they are gone.
fn end(init: &OwnedFd) -> io::Result<Exit> {
    match rustix::process::pidfd_send_signal(init, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => reap(init),
        Err(error) => Err(error.into()),
    }
}

/// The kernel lets process 1 of a jail end only after all others have.
fn reap(init: &OwnedFd) -> io::Result<Exit> {
    loop {
        match rustix::process::waitid(rustix::process::WaitId::PidFd(init.as_fd()), WaitIdOptions::EXITED) {
            Err(rustix::io::Errno::INTR) | Ok(None) => {}
            Err(error) => return Err(error.into()),
            Ok(Some(status)) => {
                return Ok(match status.exit_status() {
                    Some(code) => Exit::Code(code),
                    None => Exit::Signal(status.terminating_signal().unwrap_or_default()),
                });
            }
        }
    }
}

impl Made {
    /// Waits until the jail ends, or must end because its launcher is gone.
    fn watch(self, control: OwnedFd) -> i32 {
        let exit = match self.wait(&control) {
            Ok(()) => reap(&self.init),
            Err(_) => end(&self.init),
        };
        self.cgroups.remove();
        let Ok(exit) = exit else { return 1 };
        // A jail that was killed leaves its room, by which the next one knows. What cannot be removed is swept later.
        if exit == Exit::Code(0)
            && let Some(room) = self.room
        {
            room.remove().ok();
        }
        // A launcher that is gone, or let go of the jail, does not listen.
        wire::send(&control, &Report::Ended(exit), &[]).ok();
        0
    }

    /// Returns when the first process has ended. An error: it must be ended.
    fn wait(&self, control: &OwnedFd) -> io::Result<()> {
        // The order, which this process still has in memory, holds the environment of the jail.
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
