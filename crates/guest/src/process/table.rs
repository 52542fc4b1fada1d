//! All processes of the guest: those that run, and those whose output can still be read.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashSet, VecDeque};
use std::path::{Path, PathBuf};
use std::rc::Rc;

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{
    AtEnd, Counted, Doing, Fault, Happening, Notice, ProcessId, SessionKey, StateFate, Tree,
};
use rustix::process::Pid;
use serde_bytes::ByteBuf;
use tokio::net::unix::pipe;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::launch::{self, Plan};
use super::output::Output;
use super::watch::Watch;
use super::{COMMAND_SHOWN, Process, Role, os, tend, tree};

/// Bytes of output that come with the notice of an end.
const NOTICE_TAIL: usize = 2000;

#[derive(Debug)]
pub(crate) struct Table {
    processes: RefCell<BTreeMap<ProcessId, Rc<Process>>>,
    notices: RefCell<VecDeque<Notice>>,
    next_notice: Cell<u64>,
    /// Woken whenever a tree has gone or a notice has come.
    pub(crate) changed: Notify,
    /// When a tree was gone, the last time.
    pub(crate) last_end: Cell<Instant>,
    /// Where long outputs go.
    dir: PathBuf,
}

/// What the table is told about a program that is to start.
pub(crate) struct Entry {
    pub(crate) session: SessionKey,
    pub(crate) command: Vec<u8>,
    pub(crate) cwd: Vec<u8>,
    pub(crate) role: Role,
    pub(crate) patterns: Vec<ByteBuf>,
    pub(crate) keep: usize,
    pub(crate) spool: u64,
}

impl Table {
    pub(crate) fn new(dir: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            processes: RefCell::default(),
            notices: RefCell::default(),
            next_notice: Cell::new(0),
            changed: Notify::new(),
            last_end: Cell::new(Instant::now()),
            dir,
        })
    }

    /// The private directory of the guest.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// Starts a program and looks after it from then on.
    pub(crate) fn start(self: &Rc<Self>, plan: Plan<'_>, mut entry: Entry) -> Result<Rc<Process>, Fault> {
        self.prune();
        if self.running() >= limit::RUNNING {
            return Err(Fault::TooMany { what: Counted::Processes, limit: limit::RUNNING as u64 });
        }
        let started = launch::start(plan).map_err(|error| os(Doing::Start, &error))?;
        let main = started.shimmed.main;
        let status = pipe::Receiver::from_owned_fd(started.shimmed.status)
            .map_err(|error| os(Doing::Prepare, &error))?;
        // A shim reaps its program only after it was asked to wait for signals, and tells us before anything
        // else; but should the program be gone already, its shim stands for it.
        let begun = tree::started(main).or_else(|| tree::started(started.shimmed.shim)).unwrap_or(0);
        entry.command.truncate(COMMAND_SHOWN);
        let id = ProcessId { pid: main.as_raw_nonzero().get().unsigned_abs(), started: begun };
        let process = Rc::new(Process {
            id,
            shim: started.shimmed.shim,
            main,
            session: entry.session,
            command: entry.command,
            cwd: entry.cwd,
            started: Instant::now(),
            role: RefCell::new(entry.role),
            verdict: Cell::new(None),
            exit: Cell::new(None),
            state: Cell::new(StateFate::Left),
            tree: Cell::new(Tree::Alive),
            output: RefCell::new(Output::new(entry.keep, entry.spool, &self.dir, id)),
            watch: RefCell::new(Watch::new(entry.patterns)),
            reader: Cell::new(None),
            input: RefCell::new(started.feed),
            errors: started.errors,
            changed: Notify::new(),
        });
        self.processes.borrow_mut().insert(process.id, process.clone());
        let (table, tended) = (self.clone(), process.clone());
        tokio::task::spawn_local(async move {
            let notice = |what| table.notify(tended.id, what);
            let shims = || table.shims();
            tend::tend(tended.clone(), started.source, status, notice, shims).await;
            table.last_end.set(Instant::now());
            table.changed.notify_waiters();
        });
        tokio::task::spawn_local(announce_end(self.clone(), process.clone()));
        if let Some(typed) = started.typed {
            let process = process.clone();
            tokio::task::spawn_local(async move {
                // A program that ends before it has read everything did not want it.
                if process.write(&typed).await.is_ok() {
                    process.close_stdin().await.ok();
                }
            });
        }
        Ok(process)
    }

    pub(crate) fn get(&self, id: ProcessId) -> Result<Rc<Process>, Fault> {
        self.processes.borrow().get(&id).cloned().ok_or(Fault::NoProcess)
    }

    /// What a person would call running or finished in the background: processes started there, and foreground
    /// commands that left something running.
    pub(crate) fn listed(&self) -> Vec<Rc<Process>> {
        self.prune();
        let listed = |process: &&Rc<Process>| process.is_background() || process.tree() == Tree::Alive;
        self.processes.borrow().values().filter(listed).cloned().collect()
    }

    pub(crate) fn running(&self) -> usize {
        self.processes.borrow().values().filter(|process| process.tree() == Tree::Alive).count()
    }

    pub(crate) fn finished(&self) -> usize {
        self.processes.borrow().len() - self.running()
    }

    /// Drops a record and with it its output.
    pub(crate) fn forget(&self, id: ProcessId) -> Result<(), Fault> {
        if self.get(id)?.tree() == Tree::Alive {
            return Err(Fault::Running);
        }
        self.processes.borrow_mut().remove(&id);
        Ok(())
    }

    /// Drops the records that were kept long enough, counted from the end and not from the start.
    fn prune(&self) {
        let mut ended: Vec<(Instant, ProcessId, bool)> = self
            .processes
            .borrow()
            .values()
            .filter_map(|process| Some((process.ended_at()?, process.id, process.is_background())))
            .collect();
        ended.sort_unstable();
        let mut old = Vec::new();
        for (background, room) in [(true, limit::FINISHED), (false, limit::FINISHED_FOREGROUND)] {
            let same = ended.iter().filter(|(_, _, is_background)| *is_background == background);
            let too_many = same.clone().count().saturating_sub(room);
            let dropped = same
                .enumerate()
                .filter(|(place, (at, _, _))| *place < too_many || at.elapsed() > limit::FINISHED_FOR);
            old.extend(dropped.map(|(_, (_, id, _))| *id));
        }
        let mut processes = self.processes.borrow_mut();
        old.iter().for_each(|id| drop(processes.remove(id)));
    }

    /// The shims that live.
    fn shims(&self) -> HashSet<Pid> {
        let processes = self.processes.borrow();
        let alive = processes.values().filter(|process| process.tree() == Tree::Alive);
        alive.map(|process| process.shim).collect()
    }

    fn notify(&self, process: ProcessId, what: Happening) {
        let number = self.next_notice.replace(self.next_notice.get() + 1);
        let mut notices = self.notices.borrow_mut();
        if notices.len() == limit::NOTICES {
            notices.pop_front();
        }
        notices.push_back(Notice { number, process, what });
        self.changed.notify_waiters();
    }

    /// The oldest notice that is kept, from a number on.
    pub(crate) fn notice(&self, from: u64) -> Option<Notice> {
        self.notices.borrow().iter().find(|notice| notice.number >= from).cloned()
    }
}

async fn announce_end(table: Rc<Table>, process: Rc<Process>) {
    process.until(Process::has_exited).await;
    if let Role::Background { at_end: AtEnd::Notify, .. } = process.role()
        && let Some(mut ended) = process.ended(&process.cwd)
    {
        ended.tail = ByteBuf::from(process.output.borrow().last(NOTICE_TAIL));
        table.notify(process.id, Happening::Ended(ended));
    }
}
