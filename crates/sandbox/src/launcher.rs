//! Launching a jail, and what one has of a launched one.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault};
use crate::held::Held;
use crate::jail::{Jail, Lifetime};
use crate::keeper::KEEPER;
use crate::wire::{self, Exit, MOST_DESCRIPTORS, Order, Report};
use crate::{plan, sockets, sys};

/// The longest a step of the set-up may take on the busiest machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// Makes jails, each by a process of its own.
#[derive(Debug, Clone)]
pub struct Launcher {
    program: PathBuf,
}

/// The descriptors the program in the jail begins with. Nothing else is inherited.
#[derive(Debug, Default)]
pub struct Streams<'a> {
    /// Standard input; without one, nothing to read.
    pub stdin: Option<BorrowedFd<'a>>,
    /// Standard output; without one, into nothing.
    pub stdout: Option<BorrowedFd<'a>>,
    /// Standard error; without one, into nothing.
    pub stderr: Option<BorrowedFd<'a>>,
    /// Others, each with its number inside, from 3 up.
    pub others: Vec<(RawFd, BorrowedFd<'a>)>,
}

impl Launcher {
    /// Uses this very program, which must call [`helper_main`](crate::helper_main) first in its `main`.
    pub fn this_program() -> Self {
        Self { program: PathBuf::from("/proc/self/exe") }
    }

    /// Uses another program that does so.
    pub fn program(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    pub(crate) fn path(&self) -> &PathBuf {
        &self.program
    }

    /// Makes a jail and starts its program: see [`Prepared::launch`].
    pub fn launch(&self, jail: &Jail, streams: &Streams<'_>) -> Result<Running, Error> {
        self.prepare()?.launch(jail, streams)
    }

    /// Starts what will make a jail. That takes a while, in which the caller can do what the jail needs.
    pub fn prepare(&self) -> Result<Prepared, Error> {
        let (control, theirs) = wire::pair().map_err(Error::io("cannot make a socket"))?;
        set_socket_timeout(&control, Timeout::Recv, Some(PATIENCE))
            .map_err(|error| Error::io("cannot set a timeout")(error.into()))?;
        let keeper = self.spawn(theirs)?;
        Ok(Prepared { waiting: Some((control, keeper)) })
    }

    #[expect(clippy::disallowed_methods, reason = "making jails is what this crate may start a process for")]
    fn spawn(&self, control: OwnedFd) -> Result<Child, Error> {
        Command::new(&self.program)
            .arg0(KEEPER)
            .env_clear()
            // A terminal's signals are for the program that asked. A session of its own would do the same, but a
            // scheduler that shares the processors out by session lets a new one wait for its turn.
            .process_group(0)
            .stdin(Stdio::from(control))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|source| Error::Spawn { program: self.program.clone(), source })
    }
}

/// Somebody who waits to be told what jail to make. Dropped untold, it ends, and nothing is left.
#[derive(Debug)]
pub struct Prepared {
    /// The connection and the process, until it is told.
    waiting: Option<(OwnedFd, Child)>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        if let Some((control, mut keeper)) = self.waiting.take() {
            // Without this end the keeper ends. That it cannot be waited for means that somebody else did.
            drop(control);
            keeper.wait().ok();
        }
    }
}

impl Prepared {
    /// Makes a jail and starts its program. When this returns, the program runs and everything holds that the report
    /// [`Running::held`] does not except; if it fails, nothing was run and nothing is left.
    ///
    /// It waits for a few milliseconds, so asynchronous code calls it on a thread for such things.
    pub fn launch(mut self, jail: &Jail, streams: &Streams<'_>) -> Result<Running, Error> {
        let told = self.waiting.as_ref().map(|(control, _)| order(control, jail, streams)).transpose()?;
        let (Some((control, mut keeper)), Some(())) = (self.waiting.take(), told) else {
            return Err(Error::Broken("it was told before".to_owned()));
        };
        if jail.lifetime == Lifetime::Detached {
            // It ends at once: its copy, which nobody has to wait for, does the work.
            keeper.wait().map_err(Error::io("cannot wait for the jail's launcher"))?;
        }
        let outcome = receive_made(&control);
        if outcome.is_err() && jail.lifetime == Lifetime::WithParent {
            // Without this end the keeper ends what there is, and itself.
            drop(control);
            keeper.wait().map_err(Error::io("cannot wait for the jail's launcher"))?;
            return Err(outcome.err().unwrap_or_else(|| Error::Broken("it ended".to_owned())));
        }
        let (pid, held, init) = outcome?;
        set_socket_timeout(&control, Timeout::Recv, None)
            .map_err(|error| Error::io("cannot set a timeout")(error.into()))?;
        let keeper = (jail.lifetime == Lifetime::WithParent).then_some(keeper);
        Ok(Running { control, init, pid, held, keeper, exit: None })
    }
}

/// Says what is to be made. The socket keeps it until somebody is there to read it.
fn order(control: &OwnedFd, jail: &Jail, streams: &Streams<'_>) -> Result<(), Error> {
    let mut numbers = vec![0, 1, 2];
    numbers.extend(streams.others.iter().map(|(number, _)| *number));
    let twice = streams.others.iter().enumerate().any(|(i, (number, _))| {
        *number < 3 || streams.others.iter().skip(i + 1).any(|(other, _)| other == number)
    });
    if twice || numbers.len() >= MOST_DESCRIPTORS {
        return Err(Error::io("cannot hand over these descriptors")(io::Error::from_raw_os_error(
            libc::EINVAL,
        )));
    }
    let mut jail = jail.clone();
    // Looked for here, where there is time: the keeper is still being started. And sockets are listed by network, of
    // which the jail may have another.
    jail.masked.retain(|path| plan::may_need_cover(path));
    jail.masked.extend(sockets::of_the_host(&jail));
    let bytes =
        postcard::to_stdvec(&Order { jail, numbers }).map_err(|error| Error::Broken(error.to_string()))?;
    let memory = rustix::fs::memfd_create("jail", MemfdFlags::CLOEXEC)
        .map_err(|error| Error::io("cannot make a file in memory")(error.into()))?;
    let mut memory = File::from(memory);
    memory.write_all(&bytes).map_err(Error::io("cannot write to memory"))?;
    io::Seek::rewind(&mut memory).map_err(Error::io("cannot write to memory"))?;
    let null = File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
        .map_err(Error::io("cannot open /dev/null"))?;
    let mut descriptors = vec![memory.as_fd()];
    descriptors.extend([streams.stdin, streams.stdout, streams.stderr].map(|fd| fd.unwrap_or(null.as_fd())));
    descriptors.extend(streams.others.iter().map(|(_, fd)| *fd));
    wire::send(control, &0u8, &descriptors).map_err(Error::io("cannot hand over the jail"))
}

/// Waits until the program runs or a step has failed.
fn receive_made(control: &OwnedFd) -> Result<(i32, Held, OwnedFd), Error> {
    let broken = |what: &str| Error::Broken(what.to_owned());
    let received = wire::receive(control).map_err(Error::io("no word from the jail's launcher"))?;
    let (report, descriptors) = received.ok_or_else(|| broken("it ended without a word"))?;
    let (pid, held) = match report {
        Report::Made { pid, held } => (pid, held),
        Report::Failed(fault) => return Err(Error::from_fault(fault)),
        Report::Ended(_) => return Err(broken("it spoke out of turn")),
    };
    let Ok([init, failure]) = <[OwnedFd; 2]>::try_from(descriptors) else {
        return Err(broken("descriptors are missing"));
    };
    match read_failure(failure).map_err(Error::io("no word from the jail's first process"))? {
        None => Ok((pid, held, init)),
        Some(fault) => Err(Error::from_fault(fault)),
    }
}

fn read_failure(pipe: OwnedFd) -> io::Result<Option<Fault>> {
    if !ready(pipe.as_fd(), PATIENCE)? {
        return Err(io::Error::from(io::ErrorKind::TimedOut));
    }
    let mut bytes = Vec::new();
    File::from(pipe).take(64 * 1024).read_to_end(&mut bytes)?;
    if bytes.is_empty() { Ok(None) } else { postcard::from_bytes(&bytes).map(Some).map_err(io::Error::other) }
}

/// Whether there is something to read before the time is over.
fn ready(fd: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let mut poll = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    loop {
        match rustix::event::poll(&mut poll, Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            other => return Ok(other? > 0),
        }
    }
}

/// A jail whose program runs. Dropping it ends a jail that lives with its parent and waits for that end, and lets go of
/// a detached one.
#[derive(Debug)]
pub struct Running {
    control: OwnedFd,
    init: OwnedFd,
    pid: i32,
    held: Held,
    keeper: Option<Child>,
    exit: Option<Exit>,
}

impl Running {
    /// Which of the limits hold.
    pub fn held(&self) -> &Held {
        &self.held
    }

    /// The program, as a descriptor that becomes readable when the whole jail is gone.
    pub fn pidfd(&self) -> BorrowedFd<'_> {
        self.init.as_fd()
    }

    /// A name for this jail that survives this process.
    pub fn id(&self) -> Result<JailId, Error> {
        let started = sys::started(self.pid).map_err(Error::io("cannot look at the jail's first process"))?;
        Ok(JailId { pid: self.pid, started })
    }

    /// Waits until the jail has ended and nothing of it is left.
    pub fn wait(&mut self) -> Result<Exit, Error> {
        if let Some(exit) = self.exit {
            return Ok(exit);
        }
        let received = wire::receive(&self.control).map_err(Error::io("no word from the jail's keeper"))?;
        let ended = match received {
            Some((Report::Ended(exit), _)) => Ok(exit),
            // It was killed, and the jail with it, as soon as the kernel gets to it.
            None => gone(&self.init).map(|()| Exit::Signal(libc::SIGKILL)),
            Some(_) => Err(Error::Broken("it spoke out of turn".to_owned())),
        };
        if let Some(keeper) = &mut self.keeper {
            keeper.wait().map_err(Error::io("cannot wait for the jail's keeper"))?;
        }
        self.exit = Some(ended?);
        self.exit.ok_or_else(|| Error::Broken("it ended".to_owned()))
    }

    /// Kills every process of the jail and waits until they are gone.
    pub fn kill(&mut self) -> Result<Exit, Error> {
        if self.exit.is_none() {
            signal_kill(&self.init)?;
        }
        self.wait()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.keeper.is_some() {
            // An error means that it is gone already or cannot be reached any more; the keeper then sees our end close.
            self.kill().ok();
        }
    }
}

/// The name of a detached jail: a process number, and when that process started, since numbers are used again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JailId {
    pid: i32,
    started: u64,
}

impl JailId {
    /// Whether this jail still runs.
    pub fn is_alive(&self) -> Result<bool, Error> {
        match self.open()? {
            Some(init) => {
                Ok(!ready(init.as_fd(), Duration::ZERO).map_err(Error::io("cannot look at the jail"))?)
            }
            None => Ok(false),
        }
    }

    /// Kills every process of the jail and waits until they are gone. One that is gone already is no error.
    pub fn kill(&self) -> Result<(), Error> {
        let Some(init) = self.open()? else { return Ok(()) };
        signal_kill(&init)?;
        gone(&init)
    }

    /// The first process, if it is still the one that was meant.
    fn open(&self) -> Result<Option<OwnedFd>, Error> {
        let Some(pid) = Pid::from_raw(self.pid) else { return Ok(None) };
        let init = match rustix::process::pidfd_open(pid, PidfdFlags::empty()) {
            Ok(init) => init,
            Err(rustix::io::Errno::SRCH) => return Ok(None),
            Err(error) => return Err(Error::io("cannot open the jail's first process")(error.into())),
        };
        // Only now: the descriptor cannot come to mean another process, the number can.
        Ok(sys::started(self.pid).is_ok_and(|started| started == self.started).then_some(init))
    }
}

fn signal_kill(init: &OwnedFd) -> Result<(), Error> {
    match rustix::process::pidfd_send_signal(init, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(Error::io("cannot kill the jail")(error.into())),
    }
}

/// Waits for the end of a jail that is being killed.
fn gone(init: &OwnedFd) -> Result<(), Error> {
    match ready(init.as_fd(), PATIENCE).map_err(Error::io("cannot wait for the jail"))? {
        true => Ok(()),
        false => Err(Error::Broken("the jail does not end".to_owned())),
    }
}
