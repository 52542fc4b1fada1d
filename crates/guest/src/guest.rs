//! The state of the guest, shared by all clients.

use std::cell::Cell;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::message::Stats;
use tokio::time::Instant;

use crate::process::table::ProcessTable;
use crate::session::ShellSessions;
use crate::shell::state::ByteMap;
use crate::view::Views;

/// Variables of the guest's own environment that commands inherit.
pub(crate) const BASE_ENV: [&str; 7] = ["PATH", "HOME", "LANG", "TERM", "TZ", "USER", "SHELL"];

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) sessions: ShellSessions,
    pub(crate) table: Rc<ProcessTable>,
    pub(crate) clients: Cell<usize>,
    /// Cloned by each listening tunnel, to count them.
    pub(crate) listeners: Rc<()>,
    /// Requests in progress that count as activity.
    active_uses: Cell<usize>,
    last_used: Cell<Instant>,
    pub(crate) base_env: ByteMap,
    pub(crate) views: Rc<Views>,
}

impl Guest {
    pub(crate) fn new(work_dir: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            sessions: ShellSessions::default(),
            table: ProcessTable::new(work_dir),
            clients: Cell::new(0),
            listeners: Rc::default(),
            active_uses: Cell::new(0),
            last_used: Cell::new(Instant::now()),
            base_env: base_env(),
            views: Rc::default(),
        })
    }

    /// Time since the last activity: zero while anything runs. A connected client alone does not
    /// count, because a gateway stays connected all day.
    pub(crate) fn idle_time(&self) -> Duration {
        match self.active_uses.get() + self.table.running_count() {
            0 => self.last_used.get().max(self.table.last_exit.get()).elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Counts as activity until the guard is dropped.
    pub(crate) fn begin_use(self: &Rc<Self>) -> UseGuard {
        self.active_uses.set(self.active_uses.get() + 1);
        UseGuard(self.clone())
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Stats {
            clients: count(self.clients.get()),
            sessions: count(self.sessions.count()),
            running: count(self.table.running_count()),
            idle: self.idle_time(),
            memory: resident_memory(),
        }
    }
}

/// Marks the guest as active.
pub(crate) struct UseGuard(Rc<Guest>);

impl Drop for UseGuard {
    fn drop(&mut self) {
        self.0.active_uses.set(self.0.active_uses.get() - 1);
        self.0.last_used.set(Instant::now());
        self.0.table.changed.notify_waiters();
    }
}

/// The variables of the environment itself. Looks up `HOME` if it is not set.
#[expect(clippy::disallowed_methods, reason = "these are variables of the environment, not settings")]
fn base_env() -> ByteMap {
    let inherited = BASE_ENV.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut env: ByteMap = inherited.map(|(name, value)| (name.into(), value.into_vec())).collect();
    if !env.contains_key(b"HOME".as_slice())
        && let Some(home) = home_dir(rustix::process::getuid().as_raw())
    {
        env.insert(b"HOME".to_vec(), home);
    }
    env
}

/// Parses `/etc/passwd` directly: the lookup of libc would load shared libraries.
fn home_dir(uid: u32) -> Option<Vec<u8>> {
    let users = std::fs::read("/etc/passwd").ok()?;
    let uid = uid.to_string();
    users.split(|byte| *byte == b'\n').find_map(|line| {
        let fields: Vec<&[u8]> = line.split(|byte| *byte == b':').collect();
        let home = fields.get(5).filter(|home| home.starts_with(b"/"))?;
        (fields.get(2) == Some(&uid.as_bytes())).then(|| home.to_vec())
    })
}

fn resident_memory() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = pages.and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
