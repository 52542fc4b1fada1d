//! Processes of the guest.

mod io_loop;
pub(crate) mod launch;
pub(crate) mod output;
pub(crate) mod shim;
pub(crate) mod stderr;
pub(crate) mod table;
pub(crate) mod tree;
mod watcher;

use std::cell::{Cell, RefCell};
use std::convert::Infallible;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, ExitReport, FailedOperation, InputHistory, OutputPage, ProcessId, ProcessView, Rejection,
    RunMode, TerminalSize, TreeStatus,
};
use rustix::process::Pid;
use serde_bytes::ByteBuf;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::time::Instant;

use output::OutputBuffer;
use stderr::StderrCapture;
use table::NewProcess;
use watcher::OutputWatcher;

/// The listed command is truncated to this length.
const MAX_LISTED_COMMAND_BYTES: usize = 1000;
/// Output shown in the list.
const LISTED_TAIL_BYTES: usize = 2000;
/// Delay between two rounds of killing a process tree.
const KILL_POLL_INTERVAL: Duration = Duration::from_millis(2);

/// One program and all its descendants.
#[derive(Debug)]
pub(crate) struct GuestProcess {
    pub(crate) id: ProcessId,
    shim: Pid,
    main: Pid,
    launched: NewProcess,
    started: Instant,
    /// Reported instead of the exit status if the guest kills the program.
    kill_cause: Cell<Option<ExitCause>>,
    exit: Cell<Option<ProcessExit>>,
    pub(crate) tree: Cell<TreeStatus>,
    pub(crate) output: RefCell<OutputBuffer>,
    watcher: RefCell<OutputWatcher>,
    /// Offset of a live reader, which must not miss any output.
    reader_offset: Cell<Option<u64>>,
    /// The writing end of standard input; on a terminal, its master.
    stdin: RefCell<Option<Rc<AsyncFd<OwnedFd>>>>,
    is_on_terminal: bool,
    /// All input so far; `None` if it is too long to keep.
    typed: RefCell<Option<Vec<u8>>>,
    /// Captured standard error, if it is separate from the output.
    pub(crate) stderr: Option<StderrCapture>,
    changed: Notify,
}

/// Wait status of the main process, and when it exited.
#[derive(Debug, Clone, Copy)]
struct ProcessExit {
    status: i32,
    at: Instant,
}

impl GuestProcess {
    pub(crate) fn is_in_background(&self) -> bool {
        matches!(self.launched.mode, RunMode::Background { .. })
    }

    pub(crate) fn has_exited(&self) -> bool {
        self.exit.get().is_some()
    }

    /// Whether the program exited and, if the guest killed it, its whole tree is gone.
    pub(crate) fn is_finished(&self) -> bool {
        self.has_exited() && (self.kill_cause.get().is_none() || self.tree.get() == TreeStatus::Gone)
    }

    /// The time of the exit, once the whole tree is gone.
    pub(crate) fn ended_at(&self) -> Option<Instant> {
        self.exit.get().filter(|_| self.tree.get() == TreeStatus::Gone).map(|exit| exit.at)
    }

    pub(crate) fn output_bytes(&self) -> u64 {
        self.output.borrow().total
    }

    pub(crate) fn output_page(&self, offset: u64, limit: usize) -> Result<OutputPage, Rejection> {
        self.output.borrow().page(offset, limit).map_err(os_error(FailedOperation::Read))
    }

    /// Blocks the program from now on while it is too far ahead of this reader.
    pub(crate) fn set_reader_offset(&self, offset: u64) {
        self.reader_offset.set(Some(offset));
        self.changed.notify_waiters();
    }

    /// Waits until a condition holds; checks it after every change.
    pub(crate) async fn wait_until(&self, holds: impl Fn(&Self) -> bool) {
        loop {
            let mut changed = pin!(self.changed.notified());
            changed.as_mut().enable();
            if holds(self) {
                return;
            }
            changed.await;
        }
    }

    /// The exit report, without output. `None` while the program runs.
    pub(crate) fn exit_report(&self, cwd: &[u8]) -> Option<ExitReport> {
        let exit = self.exit.get()?;
        let (code, cause) = match self.kill_cause.get() {
            Some(cause @ ExitCause::Deadline) => (124, cause),
            Some(cause @ ExitCause::Interrupted) => (130, cause),
            Some(cause) => (137, cause),
            None if libc::WIFSIGNALED(exit.status) => {
                let signal = libc::WTERMSIG(exit.status);
                (128 + signal, ExitCause::Signaled(signal))
            }
            None => (libc::WEXITSTATUS(exit.status), ExitCause::Exited),
        };
        Some(ExitReport {
            process: self.id,
            code,
            cause,
            output_bytes: self.output_bytes(),
            head: ByteBuf::new(),
            tail: ByteBuf::new(),
            spool_path: self.output.borrow().whole_output_path(),
            stderr: self.stderr.as_ref().map(StderrCapture::head).unwrap_or_default(),
            cwd: ByteBuf::from(cwd),
            tree: self.tree.get(),
            quarantined: Vec::new(),
        })
    }

    /// Reads separate standard error, for as long as the caller polls.
    pub(crate) async fn read_stderr(&self) -> Infallible {
        if let Some(errors) = &self.stderr {
            errors.read().await;
        }
        std::future::pending().await
    }

    pub(crate) fn view(&self) -> ProcessView {
        let label = match &self.launched.mode {
            RunMode::Foreground { .. } => ByteBuf::new(),
            RunMode::Background { label, .. } => label.clone(),
        };
        let output = self.output.borrow();
        ProcessView {
            process: self.id,
            session: self.launched.session.clone(),
            label,
            command: ByteBuf::from(
                self.launched.command.iter().take(MAX_LISTED_COMMAND_BYTES).copied().collect::<Vec<_>>(),
            ),
            cwd: ByteBuf::from(self.launched.cwd.clone()),
            age: self.ended_at().unwrap_or_else(Instant::now) - self.started,
            exit: self.exit_report(&self.launched.cwd),
            tree: self.tree.get(),
            output_tail: ByteBuf::from(output.tail_bytes(LISTED_TAIL_BYTES)),
            output_bytes: output.total,
            spool_path: output.whole_output_path(),
        }
    }

    /// Kills the whole process tree; returns when it is gone.
    pub(crate) async fn kill(&self, cause: ExitCause) {
        if !self.has_exited() && self.kill_cause.get().is_none() {
            self.kill_cause.set(Some(cause));
        }
        while self.tree.get() == TreeStatus::Alive {
            if tree::kill_descendants(self.shim).is_err() {
                // Without /proc neither the guest nor the shim can list descendants, but the
                // process group can be killed.
                rustix::process::kill_process_group(self.main, rustix::process::Signal::KILL).ok();
            }
            let gone = self.wait_until(|process| process.tree.get() == TreeStatus::Gone);
            if tokio::time::timeout(KILL_POLL_INTERVAL, gone).await.is_ok() {
                break;
            }
        }
        self.wait_until(Self::has_exited).await;
    }

    /// Sends SIGINT, waits for the exit at most `grace`, then kills the tree.
    pub(crate) async fn interrupt(&self, grace: Duration) {
        if self.kill_cause.get().is_none() {
            self.kill_cause.set(Some(ExitCause::Interrupted));
        }
        rustix::process::kill_process_group(self.main, rustix::process::Signal::INT).ok();
        // Descendants must be killed even if the program exits.
        drop(tokio::time::timeout(grace, self.wait_until(Self::has_exited)).await);
        self.kill(ExitCause::Interrupted).await;
    }

    pub(crate) fn input_history(&self) -> InputHistory {
        InputHistory {
            command: ByteBuf::from(self.launched.command.clone()),
            cwd: ByteBuf::from(self.launched.cwd.clone()),
            typed: self.typed.borrow().clone().map(ByteBuf::from),
        }
    }

    /// Whether this text is all input so far; without a text there is nothing to check.
    pub(crate) fn check_input_history(&self, judged: Option<&str>) -> Result<(), Rejection> {
        let Some(judged) = judged else { return Ok(()) };
        let typed = self.typed.borrow();
        let is_same = typed.as_ref().is_some_and(|typed| String::from_utf8_lossy(typed) == judged);
        if is_same { Ok(()) } else { Err(Rejection::SessionMoved) }
    }

    /// Writes all data to standard input, as fast as the program reads.
    pub(crate) async fn write_stdin(&self, data: &[u8]) -> Result<(), Rejection> {
        let stdin = self.stdin.borrow().clone().ok_or(Rejection::NoStdin)?;
        let mut typed =
            self.typed.take().filter(|typed| typed.len() + data.len() <= limit::MAX_INPUT_HISTORY_BYTES);
        typed.iter_mut().for_each(|typed| typed.extend_from_slice(data));
        self.typed.replace(typed);
        let mut rest = data;
        while !rest.is_empty() {
            // The exit of the reader does not always wake the writer of a terminal.
            let mut ready = tokio::select! {
                ready = stdin.writable() => ready.map_err(os_error(FailedOperation::Write))?,
                () = self.wait_until(|process| process.tree.get() == TreeStatus::Gone) => return Err(Rejection::NoStdin),
            };
            let written = ready.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), rest)?));
            match written {
                Ok(Ok(count)) => rest = rest.split_at(count).1,
                Ok(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                    return Err(Rejection::NoStdin);
                }
                Ok(Err(error)) => return Err(os_error(FailedOperation::Write)(error)),
                Err(_would_block) => {}
            }
        }
        Ok(())
    }

    /// Closes standard input; on a terminal, sends its end-of-file character.
    pub(crate) async fn close_stdin(&self) -> Result<(), Rejection> {
        if self.is_on_terminal {
            return self.write_stdin(&[4]).await;
        }
        self.stdin.take().map(drop).ok_or(Rejection::NoStdin)
    }

    pub(crate) fn resize(&self, size: TerminalSize) -> Result<(), Rejection> {
        match &*self.stdin.borrow() {
            Some(master) if self.is_on_terminal => {
                launch::set_size(master.get_ref(), size).map_err(os_error(FailedOperation::Write))
            }
            _ => Err(Rejection::NoTerminal),
        }
    }
}

pub(crate) fn os_error<E: Into<io::Error>>(operation: FailedOperation) -> impl FnOnce(E) -> Rejection {
    move |error| Rejection::Os { operation, errno: error.into().raw_os_error().unwrap_or(libc::EIO) }
}
