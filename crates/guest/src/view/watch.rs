//! Reports at once when a program creates a protected path that did not exist.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

use crate::process::shim::nonblocking;

type Names = HashSet<OsString>;

/// Watches the directories of protected paths, and the directories above them, because a program
/// can create or replace these too.
#[derive(Debug)]
pub(super) struct CreationWatch {
    inotify: AsyncFd<OwnedFd>,
    /// The names of interest in each directory.
    wanted: BTreeMap<PathBuf, Names>,
    /// The same by watch descriptor, for the directories that exist.
    watched: HashMap<i32, Names>,
}

impl CreationWatch {
    pub(super) fn new<'a>(paths: impl Iterator<Item = &'a Path>) -> io::Result<Self> {
        let mut wanted: BTreeMap<PathBuf, Names> = BTreeMap::new();
        for path in paths.flat_map(Path::ancestors) {
            let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { continue };
            match wanted.get_mut(dir) {
                Some(names) => drop(names.insert(name.to_owned())),
                None => drop(wanted.insert(dir.to_owned(), Names::from([name.to_owned()]))),
            }
        }
        let inotify = nonblocking(inotify::init(CreateFlags::CLOEXEC)?)?;
        Ok(Self { inotify, wanted, watched: HashMap::new() })
    }

    /// Watches the directories that exist now. After this, the caller looks at the paths once.
    pub(super) fn update(&mut self) {
        let mut watched: HashMap<i32, Names> = HashMap::new();
        for (dir, names) in &self.wanted {
            let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
            // Two paths may lead to one directory.
            if let Ok(watch) = inotify::add_watch(self.inotify.get_ref(), dir, flags) {
                watched.entry(watch).or_default().extend(names.iter().cloned());
            }
        }
        for watch in self.watched.keys().filter(|watch| !watched.contains_key(watch)) {
            // The kernel may have removed it together with its directory.
            inotify::remove_watch(self.inotify.get_ref(), *watch).ok();
        }
        self.watched = watched;
    }

    /// Waits until one of the names appears.
    pub(super) async fn wait(&self) -> io::Result<()> {
        loop {
            let mut ready = self.inotify.readable().await?;
            match ready.try_io(|fd| self.read_events(fd.get_ref())) {
                Ok(Ok(true)) => return Ok(()),
                Ok(Err(error)) => return Err(error),
                Ok(Ok(false)) | Err(_) => {}
            }
        }
    }

    /// Reads all events, and whether one of them is of interest.
    fn read_events(&self, inotify: &OwnedFd) -> io::Result<bool> {
        let mut buffer = [MaybeUninit::uninit(); 4096];
        let mut events = inotify::Reader::new(inotify, &mut buffer);
        let mut is_any_wanted = false;
        loop {
            match events.next() {
                Ok(event) => {
                    let names = self.watched.get(&event.wd());
                    let name = event.file_name().map(|name| OsStr::from_bytes(name.to_bytes()));
                    is_any_wanted |= event.events().contains(ReadFlags::QUEUE_OVERFLOW)
                        || name.zip(names).is_some_and(|(name, names)| names.contains(name));
                }
                Err(rustix::io::Errno::WOULDBLOCK) if is_any_wanted => return Ok(true),
                Err(error) => return Err(error.into()),
            }
        }
    }
}
