//! Views: mount namespaces of commands without approval.
//!
//! In a view, protected paths are empty or read-only ([`build`]). There is one view per set of
//! allowed classes; programs enter it between fork and exec, so it costs two system calls.
//!
//! A mount cannot protect a path that does not exist. So the guest compares the protected paths
//! before and after a command, and watches them while programs run. A path that a command created is
//! moved to the quarantine directory, and a program that creates it again and again is ended. Paths
//! that another program of the owner changed between two commands are protected by a new view.

pub(crate) mod build;
mod scope;
mod watch;

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use hermes_guest::protocol::guard::{GuardEntry, GuardKind, GuardSpec, GuardState, RunConfinement};
use hermes_types::{ProtectedClass, Timestamp, create_private_dir};
use tokio::sync::Notify;
use tokio::time::timeout;

use build::ViewPlan;
pub(crate) use scope::ScopedThread;
use scope::ScopedThreads;
use watch::PathWatch;

/// More sets of classes than commands use; further ones replace the others.
const MAX_VIEWS: usize = 16;
/// Most programs end sooner, and the guest looks at the protected paths when they do.
const WATCH_DELAY: Duration = Duration::from_millis(10);
/// Time between two looks at the protected paths if nothing was reported, in case the kernel has no
/// watch left for this user.
const WATCH_INTERVAL: Duration = Duration::from_millis(500);
/// File systems record times in steps of up to this length.
const TIMESTAMP_GRANULARITY: Duration = Duration::from_millis(20);
/// A program that creates the same protected path this often is ended.
const MAX_CREATIONS: u32 = 3;

/// The namespaces of a view.
#[derive(Debug)]
pub(crate) struct View {
    /// Not for root.
    pub(crate) user_namespace: Option<OwnedFd>,
    pub(crate) mount_namespace: OwnedFd,
    /// Whether it shows anything that the strictest view hides.
    pub(crate) has_allowance: bool,
    /// The thread that starts its programs.
    pub(crate) thread: Option<ScopedThread>,
}

/// The guard of all sessions of this guest.
#[derive(Debug, Default)]
pub(crate) struct Views {
    guard: RefCell<Option<Guard>>,
    state: RefCell<GuardState>,
    views: RefCell<BTreeMap<Vec<ProtectedClass>, Arc<View>>>,
    threads: OnceCell<Option<ScopedThreads>>,
    /// Programs in a view that still run, oldest first, and how to end them.
    confined: RefCell<BTreeMap<u64, Rc<Notify>>>,
    last_run: Cell<u64>,
    /// Running programs that may change any protected path.
    unconfined: Cell<usize>,
    is_watching: Cell<bool>,
    /// The classes that programs in views may change now, once for each program.
    in_use: RefCell<Vec<ProtectedClass>>,
    /// Quarantined paths that no command has reported yet.
    quarantined: RefCell<Vec<PathBuf>>,
    /// How often programs that run now, or ran next to them, created each quarantined path.
    creations: RefCell<BTreeMap<PathBuf, u32>>,
    /// The program that the guest asked to end last.
    ending: Cell<u64>,
}

#[derive(Debug)]
struct Guard {
    spec: GuardSpec,
    entries: Vec<Entry>,
    parents: Vec<PathBuf>,
    /// Set up before the first look, so that it reports every later change.
    watch: Option<Rc<PathWatch>>,
    /// The state that the views show.
    seen: Snapshot,
}

#[derive(Debug)]
struct Entry {
    path: PathBuf,
    /// The index of its directory in [`Guard::parents`].
    parent: usize,
    class: Option<ProtectedClass>,
    kind: GuardKind,
}

impl Entry {
    /// Whether a command must not create it. Programs keep histories and profiles of their own in
    /// some hidden places, but no settings with tokens.
    fn is_quarantined(&self) -> bool {
        let holds_settings = || match self.class {
            Some(ProtectedClass::PackageTokens | ProtectedClass::GitCredentials) => self.path.is_file(),
            _ => false,
        };
        self.kind == GuardKind::ReadOnly || holds_settings()
    }
}

/// Which protected paths exist.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Snapshot {
    /// If these are unchanged, nothing was created or removed.
    parents: Vec<Option<Identity>>,
    entries: Vec<Option<EntryState>>,
}

impl Snapshot {
    /// Whether a directory is as it was at an earlier look.
    fn is_unchanged(&self, index: usize, now: Option<&Identity>) -> bool {
        let before = self.parents.get(index).and_then(Option::as_ref);
        index < self.parents.len() && before == now && before.is_none_or(|before| !before.is_recent)
    }

    fn has_changed(&self, now: &Self) -> bool {
        let mut parents = now.parents.iter().enumerate();
        !parents.all(|(index, parent)| self.is_unchanged(index, parent.as_ref()))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    changed: (i64, i64),
    links: u64,
    bytes: u64,
    /// Whether it changed so shortly before the look that a later change may have the same time.
    is_recent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct EntryState {
    device: u64,
    inode: u64,
    /// A symbolic link cannot be covered by a mount.
    link: Option<PathBuf>,
}

/// A running program, for as long as it runs.
#[derive(Debug)]
pub(crate) struct ConfinedRun {
    views: Rc<Views>,
    confinement: RunConfinement,
    /// The number of a program in a view.
    number: u64,
    end: Rc<Notify>,
}

impl ConfinedRun {
    /// Notified if the program must end.
    pub(crate) fn end_request(&self) -> Rc<Notify> {
        self.end.clone()
    }
}

impl Drop for ConfinedRun {
    fn drop(&mut self) {
        let views = &self.views;
        match &self.confinement {
            RunConfinement::None => {
                // What it changed was allowed.
                views.accept_changes();
                views.unconfined.set(views.unconfined.get().saturating_sub(1));
            }
            RunConfinement::Guard(allowed) => {
                views.quarantine_new();
                let mut confined = views.confined.borrow_mut();
                confined.remove(&self.number);
                if confined.is_empty() {
                    views.creations.take();
                }
                let mut in_use = views.in_use.borrow_mut();
                for class in allowed {
                    if let Some(index) = in_use.iter().position(|used| used == class) {
                        in_use.swap_remove(index);
                    }
                }
            }
        }
    }
}

impl Views {
    /// Sets the protected paths, and builds the strictest view to see whether the kernel allows it.
    pub(crate) async fn configure(self: &Rc<Self>, spec: Option<GuardSpec>) -> GuardState {
        let state = match spec {
            None => GuardState::Off,
            Some(spec) => self.configure_spec(spec).await,
        };
        self.state.replace(state.clone());
        state
    }

    async fn configure_spec(self: &Rc<Self>, spec: GuardSpec) -> GuardState {
        let is_same = self.guard.borrow().as_ref().is_some_and(|guard| guard.spec == spec);
        if !is_same {
            self.views.borrow_mut().clear();
            *self.guard.borrow_mut() = Some(Guard::new(spec));
        }
        match self.view(&[]).await {
            Ok(_) => GuardState::Active,
            Err(error) => GuardState::Unavailable(error.to_string()),
        }
    }

    /// The view for a program, and a guard to hold while it runs.
    pub(crate) async fn enter(
        self: &Rc<Self>,
        confinement: &RunConfinement,
    ) -> io::Result<(Option<Arc<View>>, ConfinedRun)> {
        let (number, end) = (self.last_run.get() + 1, Rc::new(Notify::new()));
        self.last_run.set(number);
        let view = match confinement {
            RunConfinement::None => {
                self.unconfined.set(self.unconfined.get() + 1);
                None
            }
            RunConfinement::Guard(allowed) => {
                if self.confined.borrow().is_empty() && self.unconfined.get() == 0 {
                    self.accept_changes();
                }
                let view = self.view(allowed).await?;
                self.confined.borrow_mut().insert(number, end.clone());
                self.in_use.borrow_mut().extend(allowed);
                if !self.is_watching.replace(true) {
                    tokio::task::spawn_local(self.clone().watch());
                }
                Some(view)
            }
        };
        let run = ConfinedRun { views: self.clone(), confinement: confinement.clone(), number, end };
        Ok((view, run))
    }

    /// Looks for created files while programs run in views.
    async fn watch(self: Rc<Self>) {
        tokio::time::sleep(WATCH_DELAY).await;
        while !self.confined.borrow().is_empty() {
            self.quarantine_new();
            let watch = self.guard.borrow().as_ref().and_then(|guard| guard.watch.clone());
            match watch.filter(|_| self.unconfined.get() == 0) {
                Some(watch) => drop(timeout(WATCH_INTERVAL, watch.wait()).await),
                None => tokio::time::sleep(WATCH_INTERVAL).await,
            }
        }
        self.is_watching.set(false);
    }

    /// The state as of the last [`Self::configure`].
    pub(crate) fn state(&self) -> GuardState {
        self.state.borrow().clone()
    }

    async fn view(&self, allowed: &[ProtectedClass]) -> io::Result<Arc<View>> {
        if let Some(view) = self.views.borrow().get(allowed) {
            return Ok(view.clone());
        }
        let plan = {
            let guard = self.guard.borrow();
            let guard = guard.as_ref().ok_or_else(|| io::Error::other("the session has no guard"))?;
            guard.plan(allowed)
        };
        let has_allowance = !allowed.is_empty();
        let thread = self.scoped_thread(allowed)?;
        let built = tokio::task::spawn_blocking(move || build_view(&plan, has_allowance, thread));
        let view = Arc::new(built.await.map_err(io::Error::other)??);
        let mut views = self.views.borrow_mut();
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        views.insert(allowed.to_vec(), view.clone());
        Ok(view)
    }

    fn scoped_thread(&self, allowed: &[ProtectedClass]) -> io::Result<Option<ScopedThread>> {
        let threads = match self.threads.get() {
            Some(threads) => threads,
            None => {
                let started = ScopedThreads::start()?;
                self.threads.get_or_init(|| started)
            }
        };
        Ok(threads.as_ref().and_then(|threads| threads.thread(allowed)).cloned())
    }

    /// Protects what programs of the owner created since the views were built.
    fn accept_changes(&self) {
        let mut guard = self.guard.borrow_mut();
        let Some(guard) = guard.as_mut().filter(|guard| guard.may_have_changed()) else { return };
        let now = guard.snapshot();
        if guard.seen.has_changed(&now) {
            if now.entries != guard.seen.entries {
                self.views.borrow_mut().clear();
            }
            guard.seen = now;
        }
    }

    /// Moves protected files that programs in views created to the quarantine directory.
    pub(crate) fn quarantine_new(&self) {
        if self.unconfined.get() > 0 {
            return;
        }
        let mut guard = self.guard.borrow_mut();
        let Some(guard) = guard.as_mut().filter(|guard| guard.may_have_changed()) else { return };
        let mut now = guard.snapshot();
        if !guard.seen.has_changed(&now) {
            return;
        }
        let moved_dirs = guard.replaced_parents(&now);
        let (mut moved, in_use) = (Vec::new(), self.in_use.borrow());
        let states = guard.seen.entries.iter().zip(&mut now.entries);
        for (entry, (before, now)) in guard.entries.iter().zip(states) {
            let link = before.as_ref().and_then(|before| before.link.as_deref());
            let is_new = now.is_some()
                && (before.is_none()
                    || (link.is_some() && before != now)
                    || moved_dirs.contains(&entry.path.parent()));
            let is_allowed = entry.class.is_some_and(|class| in_use.contains(&class));
            if !is_new || is_allowed || !entry.is_quarantined() {
                continue;
            }
            // A path that appears again from here on is new at the next look.
            *now = None;
            if move_away(&entry.path, &guard.quarantine_dir()).is_err() {
                continue;
            }
            moved.push(entry.path.clone());
            if let Some(link) = link
                && std::os::unix::fs::symlink(link, &entry.path).is_ok()
            {
                *now = entry_state(&entry.path).filter(|state| state.link.as_deref() == Some(link));
            }
        }
        guard.seen = now;
        self.end_repeated(&moved);
        let mut quarantined = self.quarantined.borrow_mut();
        moved.retain(|path| !quarantined.contains(path));
        quarantined.append(&mut moved);
    }

    /// Ends the newest program if programs keep creating a path. If another program did it, it does
    /// it again, and is ended next.
    fn end_repeated(&self, moved: &[PathBuf]) {
        let mut creations = self.creations.borrow_mut();
        let mut is_repeated = false;
        for path in moved {
            let count = creations.entry(path.clone()).or_default();
            *count += 1;
            is_repeated |= *count >= MAX_CREATIONS;
        }
        let confined = self.confined.borrow();
        if is_repeated
            && !confined.contains_key(&self.ending.get())
            && let Some((number, end)) = confined.last_key_value()
        {
            self.ending.set(*number);
            end.notify_one();
        }
    }

    /// The paths that were quarantined since the last call.
    pub(crate) fn take_quarantined(&self) -> Vec<PathBuf> {
        self.quarantine_new();
        self.quarantined.take()
    }
}

impl Guard {
    fn new(spec: GuardSpec) -> Self {
        let parent_of = |path: &Path| path.parent().unwrap_or(path).to_owned();
        let mut parents: Vec<PathBuf> =
            spec.entries.iter().map(|entry| parent_of(&to_path(&entry.path))).collect();
        parents.sort_unstable();
        parents.dedup();
        let entry = |entry: &GuardEntry| {
            let path = to_path(&entry.path);
            let parent = parents.binary_search(&parent_of(&path)).unwrap_or_default();
            Entry { path, parent, class: entry.class, kind: entry.kind }
        };
        let entries: Vec<Entry> = spec.entries.iter().map(entry).collect();
        let watch = PathWatch::new(entries.iter().map(|entry| entry.path.as_path())).ok().map(Rc::new);
        let mut guard = Self { spec, entries, parents, watch, seen: Snapshot::default() };
        guard.seen = guard.snapshot();
        guard
    }

    fn plan(&self, allowed: &[ProtectedClass]) -> ViewPlan {
        let is_allowed = |entry: &Entry| entry.class.is_some_and(|class| allowed.contains(&class));
        let paths =
            |paths: &[serde_bytes::ByteBuf]| -> Vec<_> { paths.iter().map(|path| to_path(path)).collect() };
        let kept = self.entries.iter().filter(|entry| !is_allowed(entry));
        let entries: Vec<_> = kept.map(|entry| (entry.path.clone(), entry.kind)).collect();
        let mut sorted: Vec<&Path> = entries.iter().map(|(path, _)| path.as_path()).collect();
        sorted.sort_unstable();
        // A directory may be removed with everything below it that is allowed.
        let is_above_an_entry = |dir: &PathBuf| {
            let next = sorted.partition_point(|path| path <= &dir.as_path());
            sorted.get(next).is_some_and(|path| path.starts_with(dir))
        };
        ViewPlan {
            cover: to_path(&self.spec.cover),
            pinned: paths(&self.spec.pinned).into_iter().filter(is_above_an_entry).collect(),
            entries,
            shown: self.spec.shown.iter().map(|dir| (to_path(&dir.path), dir.is_writable)).collect(),
            writable: self.spec.writable.as_deref().map(paths),
        }
    }

    /// Looks only at the entries of directories that changed.
    fn snapshot(&self) -> Snapshot {
        let parents: Vec<Option<Identity>> = self.parents.iter().map(|path| identity(path)).collect();
        let is_seen: Vec<bool> = parents
            .iter()
            .enumerate()
            .map(|(index, now)| self.seen.is_unchanged(index, now.as_ref()))
            .collect();
        let state = |(index, entry): (usize, &Entry)| match self.seen.entries.get(index) {
            Some(seen) if is_seen.get(entry.parent) == Some(&true) => seen.clone(),
            _ => entry_state(&entry.path),
        };
        Snapshot { entries: self.entries.iter().enumerate().map(state).collect(), parents }
    }

    /// The directories of protected files in whose place there is another directory now.
    fn replaced_parents(&self, now: &Snapshot) -> Vec<Option<&Path>> {
        let parents = self.parents.iter().zip(self.seen.parents.iter().zip(&now.parents));
        let is_other = |(before, now): (&Option<Identity>, &Option<Identity>)| {
            matches!((before, now), (Some(before), Some(now))
                if (before.device, before.inode) != (now.device, now.inode))
        };
        parents.filter(|(_, states)| is_other(*states)).map(|(path, _)| Some(path.as_path())).collect()
    }

    /// Without a watch, every look is one at all directories.
    fn may_have_changed(&self) -> bool {
        self.watch.as_ref().is_none_or(|watch| watch.take_change())
    }

    fn quarantine_dir(&self) -> PathBuf {
        to_path(&self.spec.quarantine)
    }
}

fn identity(path: &Path) -> Option<Identity> {
    let found = fs::metadata(path).ok()?;
    let seconds = u64::try_from(found.ctime()).unwrap_or_default();
    let changed = UNIX_EPOCH + Duration::new(seconds, u32::try_from(found.ctime_nsec()).unwrap_or_default());
    Some(Identity {
        device: found.dev(),
        inode: found.ino(),
        changed: (found.ctime(), found.ctime_nsec()),
        links: found.nlink(),
        bytes: found.len(),
        is_recent: changed.elapsed().is_ok_and(|age| age < TIMESTAMP_GRANULARITY),
    })
}

fn entry_state(path: &Path) -> Option<EntryState> {
    let found = fs::symlink_metadata(path).ok()?;
    let link = if found.is_symlink() { fs::read_link(path).ok() } else { None };
    Some(EntryState { device: found.dev(), inode: found.ino(), link })
}

/// Moves a file or directory to the quarantine directory, or beside itself on another file system.
fn move_away(path: &Path, quarantine: &Path) -> io::Result<()> {
    create_private_dir(quarantine)?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let stamp = Timestamp::now().seconds();
    for number in 0..1000_u32 {
        let target = quarantine.join(format!("{stamp}-{number}-{name}"));
        if target.symlink_metadata().is_ok() {
            continue;
        }
        return match fs::rename(path, target) {
            Err(error) if error.kind() == io::ErrorKind::CrossesDevices => {
                fs::rename(path, path.with_added_extension(format!("quarantine-{stamp}-{number}")))
            }
            moved => moved,
        };
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

/// Starts a builder and opens the namespaces that it made.
#[expect(clippy::disallowed_methods, reason = "the guest starts itself")]
fn build_view(plan: &ViewPlan, has_allowance: bool, thread: Option<ScopedThread>) -> io::Result<View> {
    let mut builder = Command::new("/proc/self/exe")
        .arg("view")
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    let opened = (|| {
        let missing = || io::Error::from(io::ErrorKind::BrokenPipe);
        let mut stdin = builder.stdin.take().ok_or_else(missing)?;
        let mut stdout = builder.stdout.take().ok_or_else(missing)?;
        let mut stderr = File::from(OwnedFd::from(builder.stderr.take().ok_or_else(missing)?));
        build::write_plan(plan, &mut stdin)?;
        build::wait_until_built(&mut stdout, &mut stderr)?;
        let namespace =
            |name: &str| File::open(format!("/proc/{}/ns/{name}", builder.id())).map(OwnedFd::from);
        let is_root = rustix::process::geteuid().is_root();
        let view = View {
            user_namespace: if is_root { None } else { Some(namespace("user")?) },
            mount_namespace: namespace("mnt")?,
            has_allowance,
            thread,
        };
        drop(stdin);
        Ok(view)
    })();
    // The guest may have reaped it already.
    builder.wait().ok();
    opened
}

fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}
