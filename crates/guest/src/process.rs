//! Programs and what is known about them.

mod errors;
pub(crate) mod launch;
pub(crate) mod output;
pub(crate) mod shim;
pub(crate) mod table;
mod tend;
pub(crate) mod tree;
mod watch;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::time::Duration;

use hermes_guest::protocol::message::{
    AtEnd, Cause, Doing, Ended, Fault, ProcessId, ProcessView, SessionKey, Signal, Size, StateFate, Tree,
};
use rustix::process::Pid;
use serde_bytes::ByteBuf;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use errors::Errors;
use output::Output;
use watch::Watch;

/// How much of a command is shown in the list.
const COMMAND_SHOWN: usize = 1000;
/// How much of the output is shown in the list.
const LAST_SHOWN: usize = 2000;
/// How often a tree is looked at while it is being killed.
const ROUND: Duration = Duration::from_millis(2);

/// One program and everything it started.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: ProcessId,
    shim: Pid,
    main: Pid,
    session: SessionKey,
    command: Vec<u8>,
    cwd: Vec<u8>,
    started: Instant,
    role: RefCell<Role>,
    /// What stands for the end if we bring it about.
    verdict: Cell<Option<Cause>>,
    exit: Cell<Option<Exit>>,
    state: Cell<StateFate>,
    tree: Cell<Tree>,
    output: RefCell<Output>,
    watch: RefCell<Watch>,
    /// How far a reader has come that must not miss anything.
    reader: Cell<Option<u64>>,
    input: RefCell<Feed>,
    /// Its standard error, where that is kept apart.
    errors: Option<Errors>,
    changed: Notify,
}

/// Whether somebody waits for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Role {
    Foreground,
    Background { label: ByteBuf, at_end: AtEnd },
}

/// How the main program ended, and when.
#[derive(Debug, Clone, Copy)]
struct Exit {
    status: i32,
    at: Instant,
}

/// The way to the program's input.
#[derive(Debug)]
enum Feed {
    None,
    Pipe(std::rc::Rc<AsyncFd<OwnedFd>>),
    Terminal(std::rc::Rc<AsyncFd<OwnedFd>>),
}

impl Process {
    pub(crate) fn role(&self) -> Role {
        self.role.borrow().clone()
    }

    pub(crate) fn is_background(&self) -> bool {
        matches!(*self.role.borrow(), Role::Background { .. })
    }

    /// Makes a foreground program one that nobody waits for.
    pub(crate) fn move_to_background(&self) {
        *self.role.borrow_mut() = Role::Background { label: ByteBuf::new(), at_end: AtEnd::Notify };
        self.reader.set(None);
        self.changed.notify_waiters();
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.exit.get().is_some()
    }

    /// Whether it ended and, if we ended it, nothing of it is left.
    pub(crate) fn is_over(&self) -> bool {
        self.has_exited() && (self.verdict.get().is_none() || self.tree.get() == Tree::Gone)
    }

    pub(crate) fn tree(&self) -> Tree {
        self.tree.get()
    }

    pub(crate) fn set_state_fate(&self, fate: StateFate) {
        self.state.set(fate);
    }

    /// When the last of it ended, if it has.
    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.exit.get().filter(|_| self.tree.get() == Tree::Gone).map(|exit| exit.at)
    }

    pub(crate) fn output_is_long(&self) -> bool {
        self.output.borrow().is_long()
    }

    pub(crate) fn total(&self) -> u64 {
        self.output.borrow().total()
    }

    pub(crate) fn page(
        &self,
        offset: u64,
        limit: usize,
    ) -> Result<hermes_guest::protocol::message::Page, Fault> {
        self.output.borrow().page(offset, limit).map_err(|error| os(Doing::Read, &error))
    }

    /// From now on the program waits for a reader that has come this far.
    pub(crate) fn set_reader(&self, offset: u64) {
        self.reader.set(Some(offset));
        self.changed.notify_waiters();
    }

    /// Waits until something is true of the process; it is looked at whenever anything changes.
    pub(crate) async fn until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    /// How it ended, if it has. The summary of the output is left to the caller.
    pub(crate) fn ended(&self, cwd: &[u8]) -> Option<Ended> {
        let exit = self.exit.get()?;
        let (code, cause) = match self.verdict.get() {
            Some(cause @ Cause::Deadline) => (124, cause),
            Some(cause @ Cause::Interrupted) => (130, cause),
            Some(cause) => (137, cause),
            None if libc::WIFSIGNALED(exit.status) => {
                let signal = libc::WTERMSIG(exit.status);
                (128 + signal, Cause::Signaled(Signal(signal)))
            }
            None => (libc::WEXITSTATUS(exit.status), Cause::Exited),
        };
        Some(Ended {
            process: self.id,
            code,
            cause,
            total: self.total(),
            head: ByteBuf::new(),
            tail: ByteBuf::new(),
            spool: self.output.borrow().whole(),
            errors: self.errors.as_ref().map(Errors::head).unwrap_or_default(),
            cwd: ByteBuf::from(cwd),
            state: self.state.get(),
            tree: self.tree.get(),
        })
    }

    /// Reads its standard error, where that is kept apart, for as long as it is waited for.
    pub(crate) async fn read_errors(&self) -> Infallible {
        if let Some(errors) = &self.errors {
            errors.read().await;
        }
        std::future::pending().await
    }

    /// Reads what is there of its standard error.
    pub(crate) fn drain_errors(&self) {
        if let Some(errors) = &self.errors {
            errors.drain();
        }
    }

    pub(crate) fn summary(&self) -> (Vec<u8>, Vec<u8>) {
        self.output.borrow().summary()
    }

    pub(crate) fn view(&self) -> ProcessView {
        let label = match &*self.role.borrow() {
            Role::Foreground => ByteBuf::new(),
            Role::Background { label, .. } => label.clone(),
        };
        let output = self.output.borrow();
        ProcessView {
            process: self.id,
            session: self.session.clone(),
            label,
            command: ByteBuf::from(self.command.clone()),
            cwd: ByteBuf::from(self.cwd.clone()),
            age: self.ended_at().unwrap_or_else(Instant::now) - self.started,
            ended: self.ended(&self.cwd),
            tree: self.tree.get(),
            last: ByteBuf::from(output.last(LAST_SHOWN)),
            total: output.total(),
            spool: output.whole(),
        }
    }

    /// Sends a signal to the program's process group.
    pub(crate) fn signal(&self, signal: Signal) -> Result<(), Fault> {
        if self.has_exited() {
            return Err(Fault::NoProcess);
        }
        let number = rustix::process::Signal::from_named_raw(signal.0).ok_or(Fault::Malformed)?;
        rustix::process::kill_process_group(self.main, number)
            .map_err(|errno| os(Doing::Signal, &errno.into()))
    }

    /// Kills the whole tree and returns when nothing of it is left.
    pub(crate) async fn kill(&self, cause: Cause) {
        if !self.has_exited() && self.verdict.get().is_none() {
            self.verdict.set(Some(cause));
        }
        while self.tree.get() == Tree::Alive {
            if tree::kill_descendants(self.shim).is_err() {
                // Without /proc the shim, which is told by this signal, knows no more than we do; but the
                // program itself can be reached.
                rustix::process::kill_process_group(self.main, rustix::process::Signal::KILL).ok();
            }
            let gone = self.until(|process| process.tree.get() == Tree::Gone);
            if tokio::time::timeout(ROUND, gone).await.is_ok() {
                break;
            }
        }
        self.until(Self::has_exited).await;
    }

    /// What Ctrl-C means, for a program that may not listen.
    pub(crate) async fn interrupt(&self, patience: Duration) {
        if self.verdict.get().is_none() {
            self.verdict.set(Some(Cause::Interrupted));
        }
        rustix::process::kill_process_group(self.main, rustix::process::Signal::INT).ok();
        // Whether it listened or not, nothing of it may stay.
        drop(tokio::time::timeout(patience, self.until(Self::has_exited)).await);
        self.kill(Cause::Interrupted).await;
    }

    /// Writes all of it to the program's input, as fast as the program reads.
    pub(crate) async fn write(&self, data: &[u8]) -> Result<(), Fault> {
        let feed = match &*self.input.borrow() {
            Feed::None => return Err(Fault::NoStdin),
            Feed::Pipe(feed) | Feed::Terminal(feed) => feed.clone(),
        };
        let mut rest = data;
        while !rest.is_empty() {
            // A reader that is gone does not always wake the writer of a terminal, so the end is watched too.
            let mut ready = tokio::select! {
                ready = feed.writable() => ready.map_err(|error| os(Doing::Write, &error))?,
                () = self.until(|process| process.tree.get() == Tree::Gone) => return Err(Fault::NoStdin),
            };
            let written = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), rest)?));
            match written {
                Ok(Ok(count)) => rest = rest.split_at(count).1,
                Ok(Err(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
                    return Err(Fault::NoStdin);
                }
                Ok(Err(error)) => return Err(os(Doing::Write, &error)),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    /// Ends the program's input. A terminal is told so by its end-of-file character.
    pub(crate) async fn close_stdin(&self) -> Result<(), Fault> {
        if matches!(*self.input.borrow(), Feed::Terminal(_)) {
            return self.write(&[4]).await;
        }
        match self.input.replace(Feed::None) {
            Feed::None => Err(Fault::NoStdin),
            Feed::Pipe(_) | Feed::Terminal(_) => Ok(()),
        }
    }

    pub(crate) fn resize(&self, size: Size) -> Result<(), Fault> {
        match &*self.input.borrow() {
            Feed::Terminal(master) => {
                launch::set_size(master.get_ref(), size).map_err(|error| os(Doing::Write, &error))
            }
            Feed::None | Feed::Pipe(_) => Err(Fault::NoTerminal),
        }
    }
}

/// A fault from an error of the system.
pub(crate) fn os(doing: Doing, error: &std::io::Error) -> Fault {
    Fault::Os { doing, errno: error.raw_os_error().unwrap_or(libc::EIO) }
}
