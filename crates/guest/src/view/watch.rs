//! Reports at once when a program creates or removes a protected path.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use rustix::io::Errno;
use tokio::io::unix::AsyncFd;

use crate::process::shim::nonblocking;

type Names = HashSet<OsString>;

/// Watches the directories of protected paths, and the directories above them, because a program
/// can create or replace these too.
#[derive(Debug)]
pub(super) struct PathWatch {
    inotify: AsyncFd<OwnedFd>,
    /// The names of interest in each directory.
    wanted: BTreeMap<PathBuf, Names>,
    /// The same by watch descriptor, for the directories that exist.
    watched: RefCell<HashMap<i32, Names>>,
    /// Whether the kernel watches every directory that exists.
    is_complete: Cell<bool>,
    has_changed: Cell<bool>,
}

impl PathWatch {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> io::Result<Self> {
        let mut wanted: BTreeMap<PathBuf, Names> = BTreeMap::new();
        for path in paths.flat_map(Path::ancestors) {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
            match wanted.get_mut(dir) {
                Some(names) => drop(names.insert(name.to_owned())),
                None => drop(wanted.insert(dir.to_owned(), Names::from([name.to_owned()]))),
            }
        }
        let watch = Self {
            inotify: nonblocking(inotify::init(CreateFlags::CLOEXEC)?)?,
            wanted,
            watched: RefCell::default(),
            is_complete: Cell::new(true),
            has_changed: Cell::new(true),
        };
        watch.watch_existing();
        Ok(watch)
    }

    /// Whether one of the paths may have appeared or disappeared since the last call.
    pub(super) fn take_change(&self) -> bool {
        self.read_events();
        self.has_changed.take() || !self.is_complete.get()
    }

    /// Waits for a change, which the next [`Self::take_change`] returns.
    pub(super) async fn wait(&self) {
        loop {
            self.read_events();
            if self.has_changed.get() {
                return;
            }
            match self.inotify.readable().await {
                // All events are read after this.
                Ok(mut ready) => ready.clear_ready(),
                Err(_closed) => std::future::pending().await,
            }
        }
    }

    /// Watches the directories that exist now.
    fn watch_existing(&self) {
        let flags = WatchFlags::CREATE
            | WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::ONLYDIR;
        let mut watched: HashMap<i32, Names> = HashMap::new();
        let mut is_complete = true;
        for (dir, names) in &self.wanted {
            match inotify::add_watch(self.inotify.get_ref(), dir, flags) {
                // Two paths may lead to one directory.
                Ok(watch) => watched.entry(watch).or_default().extend(names.iter().cloned()),
                Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
                Err(_no_watch_left) => is_complete = false,
            }
        }
        let before = self.watched.replace(watched);
        let watched = self.watched.borrow();
        for watch in before.keys().filter(|watch| !watched.contains_key(watch)) {
            // The kernel may have removed it together with its directory.
            inotify::remove_watch(self.inotify.get_ref(), *watch).ok();
        }
        self.is_complete.set(is_complete);
    }

    fn read_events(&self) {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        let mut is_any_wanted = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let watched = self.watched.borrow();
                    let names = watched.get(&event.wd());
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    is_any_wanted |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                        || name.zip(names).is_some_and(|(name, names)| names.contains(name));
                }
                Err(Errno::INTR) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(_broken) => {
                    self.is_complete.set(false);
                    break;
                }
            }
        }
        if is_any_wanted {
            self.has_changed.set(true);
            self.watch_existing();
        }
    }
}
