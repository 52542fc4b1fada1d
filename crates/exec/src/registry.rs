//! The directories of existing places; the file system is the list of them.
//!
//! A place directory holds the record of the place, which commands cannot reach, and the directory
//! with the guest's socket, which they can. A process that creates or removes a place holds its
//! lock, which ends with the process.

use std::fs::{self, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use hermes_guest::client::Client;
use hermes_guest::protocol::message::Stats;
use hermes_types::removal::{self, descriptor_path};
use hermes_types::{
    Egress, LockFile, Place, PlaceId, Reach, Timestamp, create_private_dir, remove_if_exists, replace_file,
    run_dir,
};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};
use tokio::net::UnixStream;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use crate::backend::docker::container::Container;
use crate::pidfd::ProcessRef;
use crate::warm_pool::WARM_KEY_PREFIX;
use crate::{Error, Exposure, ResolvedPlace, proxy};

/// The shortest time between two sweeps.
const SWEEP_INTERVAL: Duration = Duration::from_secs(10);
/// The time an engine may take to create a container for a killed process.
const CREATION_GRACE_SECONDS: u64 = 10;
/// The modification time of this file is the time of the last sweep.
const SWEPT_FILE: &str = run_dir::MARKERS[0];
/// How often the use of a place is recorded.
pub(crate) const MARK_INTERVAL: Duration = Duration::from_secs(60);
/// In a place directory. The modification time is the time of the last use by a hermes, which the
/// guest cannot influence.
const USED_FILE: &str = "used";
/// In a place directory: the person whom it counts for.
const PERSON_FILE: &str = "person";
const RECORD_FILE: &str = "place.json";
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Leads to the storage of places without kept files, which is not in the run directory because
/// that is small and often in memory.
const STORAGE_LINK: &str = run_dir::MARKERS[1];
/// The directory in the storage of a place that it shares with the host.
pub(crate) const SHARED_DIR: &str = "run";
pub(crate) const SOCKET_NAME: &str = "sock";

/// The persistent description of a place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceRecord {
    pub place: PlaceId,
    pub name: String,
    pub backend: String,
    pub session: String,
    /// Seconds since 1970.
    pub created: u64,
    /// Seconds.
    pub lifetime: u64,
    /// Limits by the clock of the host, in seconds; 0 is none.
    #[serde(default)]
    pub max_idle: u64,
    #[serde(default)]
    pub max_age: u64,
    pub reach: Reach,
    /// Missing in records of older versions.
    #[serde(default = "Egress::all")]
    pub egress: Egress,
    /// Missing in records of older versions.
    #[serde(default)]
    pub exposures: Option<Vec<Exposure>>,
    /// The spec without values of environment variables.
    pub spec: serde_json::Value,
    /// The host directory with files that outlive the place.
    pub files: Option<PathBuf>,
    /// The guest's process, if it runs on this host.
    #[serde(rename = "anchor")]
    pub process: Option<ProcessRef>,
    #[serde(default)]
    pub container: Option<Container>,
    /// The request the engine got.
    #[serde(default)]
    pub request: Option<serde_json::Value>,
    #[serde(default)]
    pub unenforced: Vec<String>,
}

impl PlaceRecord {
    /// Whether the place waits in the warm pool.
    pub fn is_warm(&self) -> bool {
        self.session.starts_with(WARM_KEY_PREFIX)
    }

    /// Whether an engine may still be creating the container for a killed process: looking now
    /// would find nothing, and no later sweep would look again.
    fn may_be_creating(&self) -> bool {
        let age = Timestamp::now().seconds().checked_sub(self.created);
        self.request.is_none() && age.is_some_and(|age| age < CREATION_GRACE_SECONDS)
    }

    /// The place for the gate; `None` if another version of Hermes wrote the record.
    pub fn place(&self, hermes_home: &Path) -> Option<Place> {
        Some(Place {
            id: self.place.clone(),
            backend: self.backend.parse().ok()?,
            reach: self.reach.clone(),
            egress: self.egress,
            home: self.spec.get("home")?.as_str()?.to_owned(),
            hermes_home: hermes_home.display().to_string(),
        })
    }

    /// Removes the files that outlive the place.
    pub(crate) async fn remove_files(self) -> Result<(), Error> {
        if let Some(container) = &self.container {
            container.remove_files().await?;
        }
        match self.files {
            Some(files) => run_blocking(move || remove(&files, self.container.as_ref())).await,
            None => Ok(()),
        }
    }

    pub(crate) fn read_from(files: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(files.join(RECORD_FILE)).ok()?).ok()
    }

    pub(crate) fn write(&self, directory: &Path) -> Result<(), Error> {
        let path = directory.join(RECORD_FILE);
        let text = serde_json::to_vec(self)?;
        replace_file(&path, 0o600, |new| fs::write(new, text)).map_err(Error::file(&path))
    }
}

#[derive(Debug, Clone)]
pub(crate) struct PlaceDir {
    path: PathBuf,
}

impl PlaceDir {
    pub(crate) fn for_place(place: &ResolvedPlace) -> Self {
        Self { path: place.installation.run_dir.join(place.name()) }
    }

    pub(crate) fn named(run: &Path, name: &str) -> Self {
        Self { path: run.join(name) }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn run_dir(&self) -> &Path {
        self.path.parent().unwrap_or(Path::new("/"))
    }

    /// The part that commands see and may write. Nothing in it is trusted.
    pub(crate) fn guest_dir(&self) -> PathBuf {
        self.path.join("guest")
    }

    /// Recreates the shared directory in the storage of the place, and returns its real path.
    pub(crate) fn create_shared(
        &self,
        storage: &Path,
        container: Option<&Container>,
    ) -> Result<PathBuf, Error> {
        let shared = storage.join(SHARED_DIR);
        remove(&shared, container)?;
        create_dirs(storage)?;
        fs::DirBuilder::new().mode(0o700).create(&shared).map_err(Error::file(&shared))?;
        self.link_shared(storage)?;
        Ok(shared)
    }

    pub(crate) fn link_shared(&self, storage: &Path) -> Result<(), Error> {
        let inside = self.guest_dir();
        remove_if_exists(&inside)
            .and_then(|()| std::os::unix::fs::symlink(storage.join(SHARED_DIR), &inside))
            .map_err(Error::file(&inside))
    }

    /// The storage of a place without kept files. A link in the run directory leads to all of them.
    fn unkept_storage(&self) -> Option<PathBuf> {
        Some(fs::read_link(self.run_dir().join(STORAGE_LINK)).ok()?.join(self.path.file_name()?))
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.guest_dir().join(SOCKET_NAME)
    }

    pub(crate) async fn connect(&self) -> io::Result<UnixStream> {
        if let Some(container) = self.remote_container() {
            return container.connect_through_engine().await;
        }
        UnixStream::connect(descriptor_path(&self.open_socket()?)).await
    }

    /// The state of the guest, if it answers in time.
    pub(crate) async fn stats(&self, time_limit: Duration) -> Option<Stats> {
        let ask = async { self.client().await.ok()?.stats().await.ok() };
        timeout(time_limit, ask).await.ok()?
    }

    pub(crate) async fn client(&self) -> Result<Client, Error> {
        let stream = self.connect().await.map_err(Error::file(&self.socket()))?;
        Ok(Client::connect(stream).await?)
    }

    /// The container of a place whose engine shares no directory with this host.
    fn remote_container(&self) -> Option<Container> {
        self.record()?.container.filter(|container| container.engine.is_remote())
    }

    fn open_socket(&self) -> io::Result<OwnedFd> {
        check_private_dir(self.run_dir())?;
        open_socket_file(&self.socket())
    }

    pub(crate) fn record(&self) -> Option<PlaceRecord> {
        PlaceRecord::read_from(&self.path)
    }

    /// Whether the guest exists; one that is about to end counts as gone. Blocks.
    pub(crate) fn is_alive(&self) -> bool {
        if let Some(container) = self.remote_container() {
            // If the engine does not answer, the place is left alone.
            return Handle::current().block_on(container.is_running()).unwrap_or(true);
        }
        match self.record().and_then(|record| record.process) {
            Some(process) => process.is_alive() && self.socket().exists(),
            None => self.connect_blocking().is_ok(),
        }
    }

    pub(crate) fn connect_blocking(&self) -> io::Result<net::UnixStream> {
        net::UnixStream::connect(descriptor_path(&self.open_socket()?))
    }

    /// Records that a hermes uses the place now.
    pub(crate) fn mark_used(&self) {
        let file = File::options().create(true).append(true).mode(0o600).open(self.path.join(USED_FILE));
        // Without the mark the place ends earlier, or was just removed.
        drop(file.and_then(|file| file.set_modified(SystemTime::now())));
    }

    /// Records that the place is in use while `work` takes its time. Cancel safe.
    pub(crate) async fn keep_in_use<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = sleep(MARK_INTERVAL) => self.mark_used(),
            }
        }
    }

    /// Whether the place is too old, or no hermes has used it for too long.
    fn is_overdue(&self) -> bool {
        let Some(record) = self.record() else { return false };
        let exceeds = |limit: u64, seconds: u64| limit > 0 && seconds > limit;
        let age = Timestamp::now().seconds().saturating_sub(record.created);
        let used = fs::metadata(self.path.join(USED_FILE)).and_then(|meta| meta.modified());
        let idle = used.ok().and_then(|at| at.elapsed().ok()).unwrap_or_default().as_secs();
        exceeds(record.max_age, age) || (!record.is_warm() && exceeds(record.max_idle, idle))
    }

    pub(crate) fn person(&self) -> Option<String> {
        fs::read_to_string(self.path.join(PERSON_FILE)).ok()
    }

    pub(crate) fn set_person(&self, person: &str) -> Result<(), Error> {
        let path = self.path.join(PERSON_FILE);
        fs::write(&path, person).map_err(Error::file(&path))
    }

    /// Ends the place, if it exists, and removes the directory. The caller holds the lock.
    pub(crate) async fn end_place(&self) -> Result<(), Error> {
        let dir = self.clone();
        run_blocking(move || dir.end_place_blocking()).await
    }

    fn end_place_blocking(&self) -> Result<(), Error> {
        let (process, container) =
            self.record().map_or((None, None), |record| (record.process, record.container));
        // Without a record, the process that listens on the socket is the guest.
        let listener = || ProcessRef::of_peer(self.connect_blocking().ok()?);
        if let Some(container) = &container {
            // This thread may block.
            Handle::current().block_on(container.remove())?;
        } else if let Some(process) = process.or_else(listener) {
            process.terminate().map_err(Error::EndPlace)?;
        }
        // The record goes last, since it tells how to remove the rest.
        remove(&self.guest_dir(), container.as_ref())?;
        if let Some(storage) = self.unkept_storage() {
            remove(&storage, container.as_ref())?;
        }
        remove(&self.path, None)
    }

    /// Waits until no other process creates or removes this place.
    pub(crate) async fn lock(&self) -> Result<LockFile, Error> {
        let dir = self.clone();
        run_blocking(move || {
            let path = dir.lock_path();
            loop {
                let locked = create_private_dir(dir.run_dir())
                    .and_then(|()| check_private_dir(dir.run_dir()))
                    .map_err(|error| (error, dir.run_dir()))
                    .and_then(|()| LockFile::acquire(&path).map_err(|error| (error, path.as_path())));
                match locked {
                    // Another process removed the unused run directory just now.
                    Err((error, _)) if error.kind() == io::ErrorKind::NotFound => {}
                    Err((error, at)) => return Err(Error::file(at)(error)),
                    Ok(lock) => return Ok(lock),
                }
            }
        })
        .await
    }

    /// Locks the proxy service of background processes. Returns `None` if another process holds the
    /// lock; it polls more than once during this wait, so it notices that something runs.
    pub(crate) async fn lock_proxy(&self) -> Result<Option<LockFile>, Error> {
        lock_within(&self.proxy_lock_path(), Some(3 * proxy::POLL_INTERVAL)).await
    }

    fn proxy_lock_path(&self) -> PathBuf {
        let name = self.path.file_name().unwrap_or_default().to_string_lossy();
        self.path.with_file_name(format!(".proxy-{name}"))
    }

    pub(crate) fn try_lock(&self) -> Option<LockFile> {
        try_lock_file(&self.lock_path()).ok()?
    }

    fn lock_path(&self) -> PathBuf {
        self.path.with_extension("lock")
    }
}

/// Opens the socket itself: a symbolic link could lead to the guest of another place.
fn open_socket_file(socket: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    Ok(rustix::fs::open(socket, flags, Mode::empty())?)
}

pub(crate) fn accepts_connections(socket: &Path) -> bool {
    open_socket_file(socket).and_then(|file| net::UnixStream::connect(descriptor_path(&file))).is_ok()
}

/// Waits for a lock file in the run directory. The caller may be cancelled at any time, which a
/// blocked thread could not be. Returns `None` if another holder keeps the lock for the whole time.
pub(crate) async fn lock_within(
    path: &Path,
    time_limit: Option<Duration>,
) -> Result<Option<LockFile>, Error> {
    let started = Instant::now();
    loop {
        let lock = try_lock_file(path).map_err(Error::file(path))?;
        if lock.is_some() || time_limit.is_some_and(|limit| started.elapsed() > limit) {
            return Ok(lock);
        }
        sleep(LOCK_POLL_INTERVAL).await;
    }
}

/// Releases a lock and removes its file.
pub(crate) fn discard(lock: LockFile) -> Result<(), Error> {
    let path = lock.path.clone();
    lock.remove().map_err(Error::file(&path))?;
    path.parent().into_iter().for_each(run_dir::remove_unused_parent);
    Ok(())
}

/// All place directories, used or not.
pub(crate) fn place_dirs(run: &Path) -> Result<Vec<PlaceDir>, Error> {
    let listed = match check_private_dir(run).and_then(|()| fs::read_dir(run)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        listed => listed.map_err(Error::file(run))?,
    };
    let mut dirs = Vec::new();
    for entry in listed {
        let path = entry.map_err(Error::file(run))?.path();
        let is_ours = path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("hermes-"));
        // A lock file without a directory is a remainder too.
        if is_ours && (path.extension().is_none() || !path.with_extension("").exists()) {
            dirs.push(PlaceDir { path: path.with_extension("") });
        }
    }
    dirs.sort_by(|one, other| one.path.cmp(&other.path));
    dirs.dedup_by(|one, other| one.path == other.path);
    Ok(dirs)
}

/// Whether engines may be asked to remove containers. A user of another backend does not contact
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EngineAccess {
    Allowed,
    Denied,
}

/// Removes the remains of ended places, and ends places over their limits. A place that is being created is skipped.
pub(crate) fn remove_stale(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    for dir in place_dirs(run)? {
        let in_container = dir.record().filter(|record| record.container.is_some());
        if in_container.is_some_and(|record| engines == EngineAccess::Denied || record.may_be_creating()) {
            continue;
        }
        if dir.is_alive() && !dir.is_overdue() {
            continue;
        }
        let Some(lock) = dir.try_lock() else { continue };
        // With the lock held the place may turn out to exist. A place without a socket may still
        // run, so it is ended. A failed removal blocks nothing else.
        if (!dir.is_alive() || dir.is_overdue()) && dir.end_place_blocking().is_ok() {
            // It exists only if the process that served the proxy was killed.
            fs::remove_file(dir.proxy_lock_path()).ok();
            discard(lock)?;
        }
    }
    // Remains of jails whose supervisors were killed.
    hermes_sandbox::remove_stale_cgroups();
    remove_stale_storage(run);
    run_dir::remove_unused_parent(run);
    Ok(())
}

/// Removes the storage of places whose guests ended by themselves and removed their directories.
fn remove_stale_storage(run: &Path) {
    let Ok(storages) = fs::read_link(run.join(STORAGE_LINK)) else { return };
    for entry in fs::read_dir(storages).into_iter().flatten().flatten() {
        let dir = PlaceDir { path: run.join(entry.file_name()) };
        if dir.path.exists() {
            continue;
        }
        // Another process may be creating the place; a failed removal is retried later.
        let Some(lock) = dir.try_lock() else { continue };
        if !dir.path.exists() && remove(&entry.path(), None).is_ok() {
            discard(lock).ok();
        }
    }
}

/// Makes the storage of places without kept files known to later sweeps.
pub(crate) fn link_storage(run: &Path, storages: &Path) -> Result<(), Error> {
    let link = run.join(STORAGE_LINK);
    if fs::read_link(&link).is_ok_and(|target| target == storages) {
        return Ok(());
    }
    remove_if_exists(&link)
        .and_then(|()| std::os::unix::fs::symlink(storages, &link))
        .map_err(Error::file(&link))
}

/// Sweeps unless that was done recently; otherwise each new place would check all others.
pub(crate) fn remove_stale_if_due(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    if is_recently_swept(run) {
        return Ok(());
    }
    match check_private_dir(run) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        checked => checked.map_err(Error::file(run))?,
    }
    let path = run.join(SWEPT_FILE);
    File::options()
        .create(true)
        .write(true)
        .truncate(true)
        .mode(0o600)
        .open(&path)
        .and_then(|file| file.set_modified(SystemTime::now()))
        .map_err(Error::file(&path))?;
    remove_stale(run, engines)
}

pub(crate) fn is_recently_swept(run: &Path) -> bool {
    let swept = fs::metadata(run.join(SWEPT_FILE)).and_then(|meta| meta.modified());
    swept.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < SWEEP_INTERVAL))
}

/// Removes a directory that commands could write. Files that only container users may remove are
/// removed from inside a container. Blocks.
pub(crate) fn remove(path: &Path, container: Option<&Container>) -> Result<(), Error> {
    let removed = removal::remove_dir(path);
    match (&removed, container) {
        (Err(error), Some(container)) if error.kind() == io::ErrorKind::PermissionDenied => {
            Handle::current().block_on(container.empty_directory(path))?;
            removal::remove_dir(path).map_err(Error::file(path))
        }
        _ => removed.map_err(Error::file(path)),
    }
}

pub(crate) async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Error> + Send + 'static,
) -> Result<T, Error> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_ended| Error::Interrupted)?
}

fn try_lock_file(path: &Path) -> io::Result<Option<LockFile>> {
    check_private_dir(path.parent().unwrap_or(Path::new("/")))?;
    LockFile::try_acquire(path)
}

/// Creates a directory and its parents for this user only.
pub(crate) fn create_dirs(path: &Path) -> Result<(), Error> {
    create_private_dir(path).map_err(Error::file(path))
}

/// Refuses a directory that another user owns or can change: it tells which processes to end, which
/// directories to remove and which guest gets the owner's secrets.
fn check_private_dir(path: &Path) -> io::Result<()> {
    let meta = fs::symlink_metadata(path)?;
    if meta.is_dir() && meta.uid() == rustix::process::geteuid().as_raw() && meta.mode() & 0o077 == 0 {
        return Ok(());
    }
    Err(io::Error::new(io::ErrorKind::PermissionDenied, "the directory is not private to this user"))
}
