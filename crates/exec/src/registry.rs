//! The places that exist: one small directory each, so that the file system is the list.
//!
//! A room holds a record of what the place is, which the place cannot reach, and a directory with the guest's
//! socket, which it can. Whoever wants to make or remove a place holds its lock, which ends with the process, so that
//! nothing of it outlives a crash.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hermes_guest::removal::{self, through};
use hermes_types::{Place, PlaceId, Reach};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep};

use crate::backend::docker::container::Container;
use crate::backend::docker::transport::GuestTransport;
use crate::pidfd::ProcessRef;
use crate::warm_pool::WARM_KEY_PREFIX;
use crate::{Error, ResolvedPlace, proxy};

/// How often whoever makes a place also sweeps away what is left of others.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// How long an engine may take to make a container that nobody waits for any more.
const CREATION_GRACE: Duration = Duration::from_secs(10);
/// The file whose age tells when that was done last.
const SWEPT_FILE: &str = ".swept";
const RECORD_FILE: &str = "place.json";
/// How often is looked whether it is one's turn.
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The directory beside kept files that a place shares with us.
pub(crate) const SHARED_DIR: &str = "run";
/// What the socket of a guest is called.
pub(crate) const SOCKET_NAME: &str = "sock";

/// What is written down about a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRecord {
    /// Its identity.
    pub place: PlaceId,
    /// What people call it.
    pub name: String,
    /// The word of its backend.
    pub backend: String,
    /// The session it is for.
    pub session: String,
    /// When it was made, in seconds since 1970.
    pub created: u64,
    /// How long it may be idle, in seconds.
    pub lifetime: u64,
    /// What commands there can hurt.
    pub reach: Reach,
    /// How it was asked for, without any value of a variable.
    pub spec: serde_json::Value,
    /// Its files on this machine that outlive it.
    pub files: Option<PathBuf>,
    /// The process that holds it up.
    #[serde(rename = "anchor")]
    pub process: Option<ProcessRef>,
    /// The container that holds it up.
    #[serde(default)]
    pub container: Option<Container>,
    /// What its engine was asked for.
    #[serde(default)]
    pub request: Option<serde_json::Value>,
    /// The limits that are not enforced there.
    #[serde(default)]
    pub unenforced: Vec<String>,
}

impl PlaceRecord {
    /// Whether it is nobody's yet.
    pub fn is_warm(&self) -> bool {
        self.session.starts_with(WARM_KEY_PREFIX)
    }

    /// Whether an engine may still be making its container for a hermes that was killed: who looked now would find
    /// nothing, and nobody would look again.
    fn may_be_creating(&self) -> bool {
        let asked = SystemTime::UNIX_EPOCH + Duration::from_secs(self.created);
        self.request.is_none()
            && SystemTime::now().duration_since(asked).is_ok_and(|age| age < CREATION_GRACE)
    }

    /// What the gate must know of the place; nothing if another version of hermes made it.
    pub fn place(&self, hermes_home: &Path) -> Option<Place> {
        Some(Place {
            id: self.place.clone(),
            backend: self.backend.parse().ok()?,
            reach: self.reach.clone(),
            home: self.spec.get("home")?.as_str()?.to_owned(),
            hermes_home: hermes_home.display().to_string(),
        })
    }

    /// The record that lies beside the files of a place, if there is one.
    pub(crate) fn read_from(files: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(files.join(RECORD_FILE)).ok()?).ok()
    }

    /// Writes it into a directory.
    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(RECORD_FILE);
        let fresh = directory.join(".place.json.new");
        let text = serde_json::to_vec(self).map_err(io::Error::other).map_err(Error::file(&path))?;
        fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, &path)).map_err(Error::file(&path))
    }
}

/// The directory of one place.
#[derive(Debug, Clone)]
pub(crate) struct PlaceDir {
    path: PathBuf,
}

impl PlaceDir {
    pub(crate) fn for_place(plan: &ResolvedPlace) -> Self {
        Self { path: plan.installation.run_dir.join(plan.name()) }
    }

    /// The room of the place with this name.
    pub(crate) fn named(run: &Path, name: &str) -> Self {
        Self { path: run.join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The directory of all rooms.
    fn run_dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The part of it that the place itself sees, and may write. Nothing in there is believed.
    pub(crate) fn guest_dir(&self) -> PathBuf {
        self.path.join("guest")
    }

    /// Makes that part anew and says where it really is: beside the kept files that commands may write, so that whoever
    /// fills that disk does not fill the small one on which the rooms of all places are.
    pub(crate) fn create_shared(
        &self,
        kept: Option<&Path>,
        container: Option<&Container>,
    ) -> Result<PathBuf, Error> {
        let shared = self.shared_dir(kept);
        remove(&shared, container)?;
        fs::DirBuilder::new().mode(0o700).create(&shared).map_err(Error::file(&shared))?;
        kept.map(|kept| self.link_shared(kept)).transpose()?;
        Ok(shared)
    }

    /// Where it really is, once it is made.
    pub(crate) fn shared_dir(&self, kept: Option<&Path>) -> PathBuf {
        kept.map_or_else(|| self.guest_dir(), |kept| kept.join(SHARED_DIR))
    }

    /// Makes that part lead to where it really is.
    pub(crate) fn link_shared(&self, kept: &Path) -> Result<(), Error> {
        let inside = self.guest_dir();
        match fs::remove_file(&inside) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => std::os::unix::fs::symlink(kept.join(SHARED_DIR), &inside),
        }
        .map_err(Error::file(&inside))
    }

    /// Where its guest listens.
    pub(crate) fn socket(&self) -> PathBuf {
        self.guest_dir().join(SOCKET_NAME)
    }

    /// A stream to its guest.
    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        if let Some(container) = self.remote_container() {
            return container.connect_through_engine().await;
        }
        let door = self.open_socket()?;
        UnixStream::connect(through(&door)).await
    }

    /// The container that holds its place where no directory of ours can be seen.
    fn remote_container(&self) -> Option<Container> {
        self.record()?.container.filter(|container| container.transport == GuestTransport::EngineExec)
    }

    fn open_socket(&self) -> io::Result<OwnedFd> {
        check_private_dir(self.run_dir())?;
        open_socket_file(&self.socket())
    }

    /// What is written down about it, if anything is.
    pub(crate) fn record(&self) -> Option<PlaceRecord> {
        PlaceRecord::read_from(&self.path)
    }

    /// Whether its guest is there. One that is about to end counts as gone.
    ///
    /// For a thread that may wait.
    pub(crate) fn is_alive(&self) -> bool {
        if let Some(container) = self.remote_container() {
            // One whose engine does not answer is left alone.
            return Handle::current().block_on(container.is_running()).unwrap_or(true);
        }
        match self.record().and_then(|record| record.process) {
            Some(anchor) => anchor.is_alive() && self.socket().exists(),
            None => self.accepts_connections(),
        }
    }

    /// The same for those who can wait.
    pub(crate) fn connect_blocking(&self) -> io::Result<net::UnixStream> {
        net::UnixStream::connect(through(&self.open_socket()?))
    }

    /// Whether somebody listens there.
    pub(crate) fn accepts_connections(&self) -> bool {
        self.connect_blocking().is_ok()
    }

    /// Makes the directory, for this user alone.
    pub(crate) fn create(&self) -> Result<(), Error> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.path).map_err(Error::file(&self.path))
    }

    /// Ends its place, if there is one, and removes the directory. Whoever does this holds the lock.
    pub(crate) async fn end_place(&self) -> Result<(), Error> {
        let room = self.clone();
        run_blocking(move || room.end_place_blocking()).await
    }

    fn end_place_blocking(&self) -> Result<(), Error> {
        let record = self.record();
        if let Some(container) = record.as_ref().and_then(|record| record.container.clone()) {
            // This is a thread that may wait.
            Handle::current().block_on(container.remove())?;
            return self.remove();
        }
        let written = record.and_then(|record| record.process);
        if let Some(anchor) = written.or_else(|| self.listener_process()) {
            anchor.terminate().map_err(Error::EndPlace)?;
        }
        self.remove()
    }

    /// Who listens there, for a place that was never written down.
    fn listener_process(&self) -> Option<ProcessRef> {
        let door = self.open_socket().ok()?;
        ProcessRef::of_peer(std::os::unix::net::UnixStream::connect(through(&door)).ok()?)
    }

    /// Removes the directory with everything in it. The record goes last: it says how the rest can be removed.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let container = self.record().and_then(|record| record.container);
        remove(&self.guest_dir(), container.as_ref())?;
        remove(&self.path, None)
    }

    /// Waits until nobody else makes or removes this place.
    pub(crate) async fn lock(&self) -> Result<PlaceLock, Error> {
        let room = self.clone();
        run_blocking(move || room.lock_blocking()).await
    }

    /// The right to be the one that serves the proxy of what runs on by itself. None if another process has it and will
    /// see that something runs: it looks more than once in the time that is waited here.
    pub(crate) async fn lock_proxy(&self) -> Result<Option<PlaceLock>, Error> {
        let path = self.proxy_lock_path();
        let deadline = Instant::now() + 3 * proxy::POLL_INTERVAL;
        loop {
            let file = open_lock(&path).map_err(Error::file(&path))?;
            match file.try_lock() {
                Ok(()) => return Ok(Some(PlaceLock { file, path })),
                Err(TryLockError::Error(error)) => return Err(Error::file(&path)(error)),
                Err(TryLockError::WouldBlock) if Instant::now() > deadline => return Ok(None),
                Err(TryLockError::WouldBlock) => sleep(proxy::POLL_INTERVAL / 10).await,
            }
        }
    }

    fn proxy_lock_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".proxy-{name}"))
    }

    /// The lock, unless somebody else has it right now.
    pub(crate) fn try_lock(&self) -> Option<PlaceLock> {
        let path = self.path.with_extension("lock");
        let file = open_lock(&path).ok()?;
        file.try_lock().ok()?;
        is_current_lock(&file, &path).then_some(PlaceLock { file, path })
    }

    fn lock_blocking(&self) -> Result<PlaceLock, Error> {
        create_private_dir(self.run_dir())?;
        let path = self.path.with_extension("lock");
        loop {
            let file = open_lock(&path).map_err(Error::file(&path))?;
            file.lock().map_err(Error::file(&path))?;
            if is_current_lock(&file, &path) {
                return Ok(PlaceLock { file, path });
            }
        }
    }
}

/// The socket itself: a link would lead to the guest of another place, with another's rights.
fn open_socket_file(socket: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(socket, flags, Mode::empty())?)
}

/// Whether somebody listens at a socket.
pub(crate) fn accepts_connections(socket: &Path) -> bool {
    open_socket_file(socket).and_then(|door| net::UnixStream::connect(through(&door))).is_ok()
}

/// The right to make or remove one place.
#[derive(Debug)]
pub(crate) struct PlaceLock {
    #[expect(dead_code, reason = "it is held by being open")]
    file: File,
    path: PathBuf,
}

impl PlaceLock {
    /// Gives the right back and takes its file away. Whoever waits for it finds that it is gone and makes another.
    pub(crate) fn discard(self) -> Result<(), Error> {
        fs::remove_file(&self.path).map_err(Error::file(&self.path))
    }
}

/// The right to do what one does for all, once nobody else has it.
pub(crate) async fn lock_exclusive(run: &Path, name: &str) -> Result<PlaceLock, Error> {
    create_private_dir(run)?;
    let path = run.join(name);
    loop {
        let file = open_lock(&path).map_err(Error::file(&path))?;
        match file.try_lock() {
            Ok(()) if is_current_lock(&file, &path) => return Ok(PlaceLock { file, path }),
            Ok(()) => {}
            Err(TryLockError::Error(error)) => return Err(Error::file(&path)(error)),
            // Whoever waits may go away at any time, which a thread that waits for the lock could not.
            Err(TryLockError::WouldBlock) => sleep(LOCK_POLL_INTERVAL).await,
        }
    }
}

/// All rooms, whether anybody is in or not.
pub(crate) fn place_dirs(run: &Path) -> Result<Vec<PlaceDir>, Error> {
    let listed = match check_private_dir(run).and_then(|()| fs::read_dir(run)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(Error::file(run))?,
    };
    let mut rooms = Vec::new();
    for entry in listed {
        let path = entry.map_err(Error::file(run))?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hermes-"));
        // A lock alone is what is left of a room too.
        if is_ours && (path.extension().is_none() || !path.with_extension("").exists()) {
            rooms.push(PlaceDir { path: path.with_extension("") });
        }
    }
    rooms.sort_by(|one, other| one.path.cmp(&other.path));
    rooms.dedup_by(|one, other| one.path == other.path);
    Ok(rooms)
}

/// Whether those who make containers may be asked to remove one. Whoever chose another backend does not speak to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineAccess {
    /// They may.
    Allowed,
    /// What they made is left to others.
    Denied,
}

/// Removes what is left of places that are gone. A place that somebody is making right now is left alone.
pub(crate) fn remove_stale(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    for room in place_dirs(run)? {
        let in_container = room.record().filter(|record| record.container.is_some());
        if in_container.is_some_and(|record| engines == EngineAccess::Denied || record.may_be_creating()) {
            continue;
        }
        if room.is_alive() {
            continue;
        }
        let Some(lock) = room.try_lock() else { continue };
        // Now that nobody else can make it, it may be there after all. What has no socket may still run: it ends. What
        // cannot be removed is in nobody else's way.
        if !room.is_alive() && room.end_place_blocking().is_ok() {
            // There is none unless whoever served it was killed.
            fs::remove_file(room.proxy_lock_path()).ok();
            lock.discard()?;
        }
    }
    // What jails left behind whose keepers were killed.
    hermes_sandbox::sweep();
    Ok(())
}

/// Sweeps, unless somebody just did: with a thousand places each new one would look at all others.
pub(crate) fn remove_stale_if_due(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    if is_recently_swept(run) {
        return Ok(());
    }
    create_private_dir(run)?;
    let path = run.join(SWEPT_FILE);
    fs::write(&path, "").map_err(Error::file(&path))?;
    remove_stale(run, engines)
}

/// Whether somebody swept just now.
pub(crate) fn is_recently_swept(run: &Path) -> bool {
    let swept = fs::metadata(run.join(SWEPT_FILE)).and_then(|meta| meta.modified());
    let recent = |at: SystemTime| SystemTime::now().duration_since(at).is_ok_and(|age| age < SWEEP_INTERVAL);
    swept.is_ok_and(recent)
}

/// Removes a directory in which commands did as they liked. What only the users of a container may remove is removed
/// from inside of one. This is for a thread that may wait.
pub(crate) fn remove(path: &Path, container: Option<&Container>) -> Result<(), Error> {
    let removed = removal::remove(path);
    match (&removed, container) {
        (Err(error), Some(container)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Handle::current().block_on(container.empty_directory(path))?;
            removal::remove(path).map_err(Error::file(path))
        }
        _ => removed.map_err(Error::file(path)),
    }
}

/// Work that waits for the disk or for others, on a thread of its own.
pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_ended| Error::Interrupted)?
}

/// Whether the lock is still the one that others look at. It may have been swept away before we got it.
fn is_current_lock(lock: &File, path: &Path) -> bool {
    match (lock.metadata(), fs::metadata(path)) {
        (Ok(held), Ok(now)) => held.ino() == now.ino(),
        _ => false,
    }
}

/// Opens a lock beside the rooms.
fn open_lock(path: &Path) -> io::Result<File> {
    check_private_dir(path.parent().unwrap_or(Path::new("/")))?;
    OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(path)
}

/// Makes a directory that only this user can look into, if it is not there.
fn create_private_dir(path: &Path) -> Result<(), Error> {
    fs::DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(Error::file(path))?;
    check_private_dir(path).map_err(Error::file(path))
}

/// Refuses a directory that somebody else prepared or can change: it says which processes to end, which directories to
/// remove and who is told the owner's secrets.
fn check_private_dir(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "not a directory of this user alone"))
}
