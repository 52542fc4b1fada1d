//! The host process that keeps a place alive: its guest.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use hermes_types::process_start_time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::socket_peercred;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// The time a guest gets to end its processes and itself.
const TERMINATION_TIMEOUT: Timespec = Timespec { tv_sec: 5, tv_nsec: 0 };

/// A process of this host. The start time distinguishes it from a later process with the same pid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessRef {
    pid: i32,
    #[serde(rename = "started")]
    start_time: u64,
}

impl ProcessRef {
    /// The process at the other end of a socket, as reported by the kernel.
    pub(crate) fn of_peer(stream: impl AsFd) -> Option<Self> {
        let pid = socket_peercred(stream).ok()?.pid.as_raw_nonzero().get();
        Some(Self { pid, start_time: process_start_time(pid)? })
    }

    pub(crate) fn is_alive(self) -> bool {
        process_start_time(self.pid) == Some(self.start_time)
    }

    /// Ends the process and with it the place. Returns once it is gone.
    pub(crate) fn terminate(self) -> io::Result<()> {
        let Some(fd) = self.open_pidfd() else { return Ok(()) };
        for signal in [Signal::TERM, Signal::KILL] {
            match pidfd_send_signal(&fd, signal) {
                Err(Errno::SRCH) => return Ok(()),
                sent => sent?,
            }
            if poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&TERMINATION_TIMEOUT))? > 0 {
                return Ok(());
            }
        }
        Err(io::ErrorKind::TimedOut.into())
    }

    fn open_pidfd(self) -> Option<OwnedFd> {
        let fd = pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Checked after opening, so the pid cannot have been reused.
        self.is_alive().then_some(fd)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_identified_by_its_start_time_and_zombies_are_dead() {
        let me = i32::try_from(std::process::id()).unwrap();
        let process = ProcessRef { pid: me, start_time: process_start_time(me).unwrap() };
        assert!(process.is_alive() && process.open_pidfd().is_some());
        let before = ProcessRef { start_time: process.start_time - 1, ..process };
        assert!(!before.is_alive() && before.open_pidfd().is_none());
        #[expect(clippy::disallowed_methods, reason = "a process to look at")]
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        while process_start_time(pid).is_some() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
    }
}
