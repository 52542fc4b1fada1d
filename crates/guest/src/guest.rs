//! Everything the guest knows, shared by all its clients.

use std::cell::Cell;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use hermes_guest::protocol::message::{About, Stats};
use serde_bytes::ByteBuf;
use tokio::time::Instant;

use crate::process::table::Table;
use crate::session::Sessions;
use crate::shell;

/// What a place tells its guest that commands should know too.
pub(crate) const BASE_ENV: [&str; 7] = ["PATH", "HOME", "LANG", "TERM", "TZ", "USER", "SHELL"];

/// The name and the value of a variable.
pub(crate) type Variable = (ByteBuf, ByteBuf);

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) sessions: Sessions,
    pub(crate) table: Rc<Table>,
    pub(crate) clients: Cell<usize>,
    pub(crate) listeners: Cell<usize>,
    /// Requests that make use of the place, at this moment.
    uses: Cell<usize>,
    last_used: Cell<Instant>,
    started: Instant,
    pub(crate) base_env: Vec<Variable>,
}

impl Guest {
    pub(crate) fn new(run_dir: PathBuf) -> Rc<Self> {
        Rc::new(Self {
            sessions: Sessions::default(),
            table: Table::new(run_dir),
            clients: Cell::new(0),
            listeners: Cell::new(0),
            uses: Cell::new(0),
            last_used: Cell::new(Instant::now()),
            started: Instant::now(),
            base_env: base_env(),
        })
    }

    /// How long nothing has run and nobody has asked for anything but news. A client that is merely connected keeps
    /// no place alive: a gateway is connected all day.
    pub(crate) fn idle(&self) -> Duration {
        match self.uses.get() + self.table.running() {
            0 => self.last_used.get().max(self.table.last_end.get()).elapsed(),
            _ => Duration::ZERO,
        }
    }

    /// Counts as a use of the place until it is dropped.
    pub(crate) fn using(self: &Rc<Self>) -> Use {
        self.uses.set(self.uses.get() + 1);
        Use(self.clone())
    }

    pub(crate) fn about(&self) -> About {
        let search_path = self.base_env.iter().find(|(name, _)| name.as_slice() == b"PATH");
        let me = rustix::process::getpid();
        About {
            instance: crate::process::tree::started(me).unwrap_or(0),
            pid: std::process::id(),
            uid: rustix::process::getuid().as_raw(),
            gid: rustix::process::getgid().as_raw(),
            shell: shell::find(search_path.map(|(_, value)| value.as_slice())),
            base_env: self.base_env.clone(),
        }
    }

    pub(crate) fn stats(&self) -> Stats {
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        Stats {
            uptime: self.started.elapsed(),
            clients: count(self.clients.get()),
            sessions: count(self.sessions.count()),
            running: count(self.table.running()),
            finished: count(self.table.finished()),
            idle: self.idle(),
            memory: resident_memory(),
        }
    }
}

/// Somebody uses the place.
pub(crate) struct Use(Rc<Guest>);

impl Drop for Use {
    fn drop(&mut self) {
        self.0.uses.set(self.0.uses.get() - 1);
        self.0.last_used.set(Instant::now());
        self.0.table.changed.notify_waiters();
    }
}

/// The variables of the place itself. `HOME` is looked up where the guest was not told.
#[expect(clippy::disallowed_methods, reason = "this is the environment of the place, not a setting")]
fn base_env() -> Vec<Variable> {
    let told = BASE_ENV.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let mut env: Vec<Variable> =
        told.map(|(name, value)| (ByteBuf::from(name), ByteBuf::from(value.as_bytes()))).collect();
    if !env.iter().any(|(name, _)| name.as_slice() == b"HOME")
        && let Some(home) = home_of(rustix::process::getuid().as_raw())
    {
        env.push((ByteBuf::from("HOME"), ByteBuf::from(home)));
    }
    env
}

/// Reads the list of users by hand: the lookup of libc would load libraries.
fn home_of(uid: u32) -> Option<Vec<u8>> {
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
