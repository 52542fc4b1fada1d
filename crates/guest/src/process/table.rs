//! All processes of the guest: running ones, and finished ones whose output is still available.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::PathBuf;
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    ExitCause, ExitNotice, FailedOperation, OutputDelivery, ProcessEvent, ProcessId, ProcessNotice,
    Rejection, RunMode, ShellSessionKey, TreeStatus,
};
use rustix::process::Pid;
use serde_bytes::ByteBuf;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::launch::{self, LaunchSpec};
use super::output::OutputBuffer;
use super::watcher::OutputWatcher;
use super::{GuestProcess, io_loop, os_error, tree};
use crate::view::ConfinedRun;

/// Output included in an exit notice.
const NOTICE_TAIL_BYTES: usize = 2000;

#[derive(Debug)]
pub(crate) struct ProcessTable {
    processes: RefCell<BTreeMap<ProcessId, Rc<GuestProcess>>>,
    notices: RefCell<VecDeque<ProcessNotice>>,
    next_notice_number: Cell<u64>,
    /// Notified when a process tree is gone or a notice was added.
    pub(crate) changed: Notify,
    /// When the last process tree went away.
    pub(crate) last_exit: Cell<Instant>,
    /// The directory of the guest's files that commands may see.
    pub(crate) work_dir: PathBuf,
}

/// How a program was started.
#[derive(Debug)]
pub(crate) struct NewProcess {
    pub(crate) session: ShellSessionKey,
    pub(crate) command: Vec<u8>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) mode: RunMode,
    pub(crate) memory_bytes: u32,
    pub(crate) spool_bytes: u64,
}

impl ProcessTable {
    pub(crate) fn new(dir: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            processes: RefCell::default(),
            notices: RefCell::default(),
            next_notice_number: Cell::new(0),
            changed: Notify::new(),
            last_exit: Cell::new(Instant::now()),
            work_dir: dir,
        })
    }

    /// Starts a program and supervises it.
    pub(crate) fn start(
        self: &Rc<Self>,
        spec: LaunchSpec<'_>,
        mut entry: NewProcess,
        confined: Option<ConfinedRun>,
    ) -> Result<Rc<GuestProcess>, Rejection> {
        self.prune();
        if self.running_count() >= limit::MAX_RUNNING {
            return Err(Rejection::TooManyProcesses);
        }
        let watch_patterns = match &entry.mode {
            RunMode::Foreground { .. } => Vec::new(),
            RunMode::Background { watch_patterns, .. } => watch_patterns.clone(),
        };
        if watch_patterns.len() > limit::MAX_WATCH_PATTERNS {
            return Err(Rejection::TooManyPatterns);
        }
        let memory_bytes = match entry.mode {
            // Unread live output is in memory, even if the client wants to keep little.
            RunMode::Foreground { output: OutputDelivery::Live, .. } => limit::MAX_MEMORY_OUTPUT_BYTES,
            _ => usize::try_from(entry.memory_bytes).unwrap_or(usize::MAX),
        };
        let is_on_terminal = spec.terminal.is_some();
        let started = launch::launch_process(spec).map_err(os_error(FailedOperation::Start))?;
        let main = started.shimmed.main;
        let status = pipe::Receiver::from_owned_fd(started.shimmed.status)
            .map_err(os_error(FailedOperation::Prepare))?;
        // The program may have exited already; then its shim identifies it.
        let started_ticks =
            tree::start_time(main).or_else(|| tree::start_time(started.shimmed.shim)).unwrap_or(0);
        let is_known = entry.command.len() <= limit::MAX_INPUT_HISTORY_BYTES;
        entry.command.truncate(limit::MAX_INPUT_HISTORY_BYTES);
        let id = ProcessId { pid: main.as_raw_nonzero().get().unsigned_abs(), started: started_ticks };
        let process = Rc::new(GuestProcess {
            id,
            shim: started.shimmed.shim,
            main,
            started: Instant::now(),
            kill_cause: Cell::new(None),
            exit: Cell::new(None),
            tree: Cell::new(TreeStatus::Alive),
            output: RefCell::new(OutputBuffer::new(memory_bytes, entry.spool_bytes, &self.work_dir, id)),
            launched: entry,
            watcher: RefCell::new(OutputWatcher::new(watch_patterns)),
            reader_offset: Cell::new(None),
            stdin: RefCell::new(started.stdin),
            is_on_terminal,
            typed: RefCell::new(is_known.then(Vec::new)),
            stderr: started.stderr,
            changed: Notify::new(),
        });
        self.processes.borrow_mut().insert(process.id, process.clone());
        if let Some(confined) = &confined {
            tokio::task::spawn_local(end_on_request(process.clone(), confined.end_request()));
        }
        let (table, watched) = (self.clone(), process.clone());
        tokio::task::spawn_local(async move {
            let notice = |event| table.add_notice(watched.id, event);
            let shims = || table.live_shims();
            io_loop::run_io_loop(watched.clone(), started.output, status, notice, shims).await;
            drop(confined);
            table.last_exit.set(Instant::now());
            table.changed.notify_waiters();
        });
        tokio::task::spawn_local(notify_exit(self.clone(), process.clone()));
        if let Some(typed) = started.terminal_input {
            let process = process.clone();
            tokio::task::spawn_local(async move {
                // A program that exits early does not want the rest.
                if process.write_stdin(&typed).await.is_ok() {
                    process.close_stdin().await.ok();
                }
            });
        }
        Ok(process)
    }

    pub(crate) fn get(&self, id: ProcessId) -> Result<Rc<GuestProcess>, Rejection> {
        self.processes.borrow().get(&id).cloned().ok_or(Rejection::NoProcess)
    }

    /// Background processes, and foreground commands that left processes running.
    pub(crate) fn list(&self) -> Vec<Rc<GuestProcess>> {
        self.prune();
        let listed = |process: &&Rc<GuestProcess>| {
            process.is_in_background() || process.tree.get() == TreeStatus::Alive
        };
        self.processes.borrow().values().filter(listed).cloned().collect()
    }

    pub(crate) fn running_count(&self) -> usize {
        self.processes.borrow().values().filter(|process| process.tree.get() == TreeStatus::Alive).count()
    }

    /// Deletes a record and its output.
    pub(crate) fn forget(&self, id: ProcessId) {
        self.processes.borrow_mut().remove(&id);
    }

    /// Deletes old records. Age is counted from the exit.
    fn prune(&self) {
        let mut processes = self.processes.borrow_mut();
        for (in_background, max) in [(true, limit::MAX_FINISHED), (false, limit::MAX_FINISHED_FOREGROUND)] {
            let same = processes.values().filter(|process| process.is_in_background() == in_background);
            let mut ended: Vec<(Instant, ProcessId)> =
                same.filter_map(|process| Some((process.ended_at()?, process.id))).collect();
            ended.sort_unstable();
            let excess = ended.len().saturating_sub(max);
            for (index, (at, id)) in ended.into_iter().enumerate() {
                if index < excess || at.elapsed() > limit::FINISHED_RETENTION {
                    processes.remove(&id);
                }
            }
        }
    }

    fn live_shims(&self) -> HashSet<Pid> {
        let processes = self.processes.borrow();
        let alive = processes.values().filter(|process| process.tree.get() == TreeStatus::Alive);
        alive.map(|process| process.shim).collect()
    }

    fn add_notice(&self, process: ProcessId, event: ProcessEvent) {
        let number = self.next_notice_number.replace(self.next_notice_number.get() + 1);
        let mut notices = self.notices.borrow_mut();
        if notices.len() == limit::MAX_NOTICES {
            notices.pop_front();
        }
        notices.push_back(ProcessNotice { number, process, event });
        self.changed.notify_waiters();
    }

    /// The oldest stored notice with at least this number.
    pub(crate) fn notice_from(&self, from: u64) -> Option<ProcessNotice> {
        self.notices.borrow().iter().find(|notice| notice.number >= from).cloned()
    }
}

/// Kills a process that the guard ends.
async fn end_on_request(process: Rc<GuestProcess>, end: Rc<Notify>) {
    tokio::select! {
        () = end.notified() => process.kill(ExitCause::Guard).await,
        () = process.wait_until(|process| process.tree.get() == TreeStatus::Gone) => {}
    }
}

async fn notify_exit(table: Rc<ProcessTable>, process: Rc<GuestProcess>) {
    process.wait_until(GuestProcess::has_exited).await;
    if let RunMode::Background { exit_notice: ExitNotice::Notify, .. } = process.launched.mode
        && let Some(mut ended) = process.exit_report(&process.launched.cwd)
    {
        ended.tail = ByteBuf::from(process.output.borrow().tail_bytes(NOTICE_TAIL_BYTES));
        table.add_notice(process.id, ProcessEvent::Exited(ended));
    }
}
