//! Launches jails, and handles for running ones.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};

use crate::error::Error;
use crate::ipc::{self, JailExit, SupervisorReport};
use crate::jail::{Jail, Lifetime};
use crate::limit_report::LimitReport;
use crate::supervisor::SUPERVISOR_ARG0;
use crate::{mount_plan, sockets, supervisor};

/// Time limit for a step of the setup, on a busy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// Launches jails, each with its own supervisor process.
#[derive(Debug, Clone)]
pub struct Launcher {
    pub(crate) program: PathBuf,
}

/// The descriptors of the program in the jail. It inherits no others.
#[derive(Debug, Default)]
pub struct JailStreams<'a> {
    /// Default: `/dev/null`.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Default: `/dev/null`.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Default: `/dev/null`.
    pub stderr: Option<BorrowedFd<'a>>,
}

impl Launcher {
    /// Uses this program, which must call [`helper_main`](crate::helper_main) first in its `main`.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// Creates a jail and starts its program; see [`PreparedLauncher::launch`].
    pub fn launch(&self, jail: &Jail, streams: &JailStreams<'_>) -> Result<RunningJail, Error> {
        self.prepare()?.launch(jail, streams)
    }

    /// Starts the supervisor in advance. It takes a while, in which the caller can prepare what the
    /// jail needs.
    pub fn prepare(&self) -> Result<PreparedLauncher, Error> {
        let (control, peer) = ipc::socket_pair().map_err(Error::io("create a socket"))?;
        set_socket_timeout(&control, Timeout::Recv, Some(STEP_TIMEOUT))
            .map_err(Error::io("set a socket timeout"))?;
        let supervisor = self.spawn(peer)?;
        Ok(PreparedLauncher { control, supervisor: Supervisor(supervisor) })
    }

    #[expect(clippy::disallowed_methods, reason = "a jail needs a supervisor process")]
    fn spawn(&self, control: OwnedFd) -> Result<Child, Error> {
        Command::new(&self.program)
            .arg0(SUPERVISOR_ARG0)
            .env_clear()
            // Keeps terminal signals away from the supervisor. A new session would do so too, but a
            // scheduler that groups processes by session delays the first process of a new one.
            .process_group(0)
            .stdin(Stdio::from(control))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Spawn { program: self.program.clone(), source })
    }
}

/// A started supervisor waiting for its jail; dropping it ends the process.
///
/// The fields are dropped in this order: closing the socket makes the supervisor clean up and exit.
#[derive(Debug)]
pub struct PreparedLauncher {
    control: OwnedFd,
    supervisor: Supervisor,
}

/// The supervisor's process, reaped when dropped.
#[derive(Debug)]
struct Supervisor(Child);

impl Drop for Supervisor {
    fn drop(&mut self) {
        // This only fails if the process was already reaped.
        self.0.wait().ok();
    }
}

impl PreparedLauncher {
    /// Creates a jail and starts its program. On success the program runs, and everything is
    /// enforced except what [`RunningJail::limits`] reports; on failure nothing was run and nothing
    /// is left.
    ///
    /// Blocks for a few milliseconds, so asynchronous code must call it on a blocking thread.
    pub fn launch(self, jail: &Jail, streams: &JailStreams<'_>) -> Result<RunningJail, Error> {
        send_request(&self.control, jail, streams)?;
        let (limits, init) = receive_started(&self.control)?;
        set_socket_timeout(&self.control, Timeout::Recv, None).map_err(Error::io("set a socket timeout"))?;
        // That of a detached jail exits immediately; its forked child, which needs no reaping,
        // continues.
        let supervisor = (jail.lifetime == Lifetime::WithParent).then_some(self.supervisor);
        Ok(RunningJail { control: self.control, init, limits, supervisor, exit: None })
    }
}

/// Sends the request. The socket buffers it until the supervisor reads it.
fn send_request(control: &OwnedFd, jail: &Jail, streams: &JailStreams<'_>) -> Result<(), Error> {
    let mut jail = jail.clone();
    // Resolved here, while the supervisor is still starting. Sockets are listed per network
    // namespace, and that of the jail may differ.
    jail.masked.retain(|path| mount_plan::may_need_mask(Path::new(path)));
    jail.masked.extend(sockets::host_sockets(&jail).into_iter().map(PathBuf::into_os_string));
    let bytes = postcard::to_stdvec(&jail).map_err(|error| Error::Launcher(error.to_string()))?;
    let memory = rustix::fs::memfd_create("jail", MemfdFlags::CLOEXEC);
    let memory = memory.map_err(Error::io("create a memory file"))?;
    let mut memory = File::from(memory);
    memory.write_all(&bytes).map_err(Error::io("write the jail request"))?;
    io::Seek::rewind(&mut memory).map_err(Error::io("write the jail request"))?;
    let null =
        File::options().read(true).write(true).open("/dev/null").map_err(Error::io("open /dev/null"))?;
    let mut descriptors = vec![memory.as_fd()];
    descriptors.extend([streams.stdin, streams.stdout, streams.stderr].map(|fd| fd.unwrap_or(null.as_fd())));
    ipc::send(control, &0u8, &descriptors).map_err(Error::io("send the jail request"))
}

/// Waits until the program runs or a step failed.
fn receive_started(control: &OwnedFd) -> Result<(LimitReport, OwnedFd), Error> {
    let broken = |what: &str| Error::Launcher(what.to_owned());
    let received = ipc::receive(control).map_err(Error::io("receive a report from the jail supervisor"))?;
    let (report, descriptors) = received.ok_or_else(|| broken("it exited without a report"))?;
    let limits = match report {
        SupervisorReport::Started(limits) => limits,
        SupervisorReport::Failed(fault) => return Err(Error::from_setup(fault)),
        SupervisorReport::Exited(_) => return Err(broken("it sent an unexpected report")),
    };
    let Ok([init, failure]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err(broken("descriptors are missing"));
    };
    set_socket_timeout(&failure, Timeout::Recv, Some(STEP_TIMEOUT))
        .map_err(Error::io("set a socket timeout"))?;
    match ipc::receive(&failure).map_err(Error::io("receive a report from the jail's first process"))? {
        None => Ok((limits, init)),
        Some((fault, _)) => Err(Error::from_setup(fault)),
    }
}

/// Whether the descriptor becomes readable before the timeout.
fn wait_readable(fd: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let mut poll = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
    loop {
        match rustix::event::poll(&mut poll, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

/// A running jail. Dropping the handle kills a jail with [`Lifetime::WithParent`] and waits for its
/// end; a detached jail keeps running.
#[derive(Debug)]
pub struct RunningJail {
    control: OwnedFd,
    init: OwnedFd,
    /// Which limits are enforced.
    pub limits: LimitReport,
    supervisor: Option<Supervisor>,
    exit: Option<JailExit>,
}

impl RunningJail {
    /// The pidfd of the program; it becomes readable when the whole jail is gone.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    /// Waits until the jail is gone and cleaned up.
    pub fn wait(&mut self) -> Result<JailExit, Error> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let received =
            ipc::receive(&self.control).map_err(Error::io("receive a report from the jail supervisor"))?;
        let ended = match received {
            Some((SupervisorReport::Exited(exit), _)) => Ok(exit),
            // The supervisor was killed, so the kernel kills the jail.
            None => wait_gone(&self.init).map(|()| JailExit::Signal(libc::SIGKILL)),
            Some(_) => Err(Error::Launcher("it sent an unexpected report".to_owned())),
        };
        self.supervisor = None;
        Ok(*self.exit.insert(ended?))
    }

    /// Kills every process of the jail and waits until they are gone.
    pub fn kill(&mut self) -> Result<JailExit, Error> {
        if self.exit.is_none() {
            supervisor::send_sigkill(&self.init).map_err(Error::io("kill the jail"))?;
        }
        self.wait()
    }
}

impl Drop for RunningJail {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            // On error the supervisor sees the socket close and kills the jail.
            self.kill().ok();
        }
    }
}

/// Waits for the end of a jail that is being killed.
fn wait_gone(init: &OwnedFd) -> Result<(), Error> {
    if wait_readable(init.as_fd(), STEP_TIMEOUT).map_err(Error::io("wait for the jail"))? {
        return Ok(());
    }
    Err(Error::Launcher("the jail does not exit".to_owned()))
}
