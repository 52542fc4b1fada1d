//! The directories of existing places; the file system is the list of them.
//!
//! A place directory holds the record of the place, which commands cannot reach, and the directory
//! with the guest's socket, which they can. A process that creates or removes a place holds its
//! lock, which ends with the process.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::os::unix::net;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hermes_guest::client::Client;
use hermes_guest::protocol::message::Stats;
use hermes_guest::removal::{self, descriptor_path};
use hermes_types::{
    LockFile, Place, PlaceId, Reach, Timestamp, create_private_dir, remove_if_exists, replace_file,
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
const SWEPT_FILE: &str = ".swept";
const RECORD_FILE: &str = "place.json";
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(50);
/// The directory next to kept files that the place shares with the host.
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
    pub reach: Reach,
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

    /// Recreates the shared directory and returns its real path: next to kept files, if there are
    /// any, so that a command that fills its disk does not fill the small one with all place
    /// directories.
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

    pub(crate) fn shared_dir(&self, kept: Option<&Path>) -> PathBuf {
        kept.map_or_else(|| self.guest_dir(), |kept| kept.join(SHARED_DIR))
    }

    pub(crate) fn link_shared(&self, kept: &Path) -> Result<(), Error> {
        let inside = self.guest_dir();
        remove_if_exists(&inside)
            .and_then(|()| std::os::unix::fs::symlink(kept.join(SHARED_DIR), &inside))
            .map_err(Error::file(&inside))
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
        remove(&self.path, None)
    }

    /// Waits until no other process creates or removes this place.
    pub(crate) async fn lock(&self) -> Result<LockFile, Error> {
        let dir = self.clone();
        run_blocking(move || {
            create_checked_dir(dir.run_dir())?;
            let path = dir.lock_path();
            LockFile::acquire(&path).map_err(Error::file(&path))
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
    lock.remove().map_err(Error::file(&path))
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

/// Removes the remains of ended places. A place that is being created is skipped.
pub(crate) fn remove_stale(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    for dir in place_dirs(run)? {
        let in_container = dir.record().filter(|record| record.container.is_some());
        if in_container.is_some_and(|record| engines == EngineAccess::Denied || record.may_be_creating()) {
            continue;
        }
        if dir.is_alive() {
            continue;
        }
        let Some(lock) = dir.try_lock() else { continue };
        // With the lock held the place may turn out to exist. A place without a socket may still
        // run, so it is ended. A failed removal blocks nothing else.
        if !dir.is_alive() && dir.end_place_blocking().is_ok() {
            // It exists only if the process that served the proxy was killed.
            fs::remove_file(dir.proxy_lock_path()).ok();
            discard(lock)?;
        }
    }
    // Remains of jails whose supervisors were killed.
    hermes_sandbox::remove_stale_cgroups();
    Ok(())
}

/// Sweeps unless that was done recently; otherwise each new place would check all others.
pub(crate) fn remove_stale_if_due(run: &Path, engines: EngineAccess) -> Result<(), Error> {
    if is_recently_swept(run) {
        return Ok(());
    }
    create_checked_dir(run)?;
    let path = run.join(SWEPT_FILE);
    fs::write(&path, "").map_err(Error::file(&path))?;
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

fn create_checked_dir(path: &Path) -> Result<(), Error> {
    create_dirs(path)?;
    check_private_dir(path).map_err(Error::file(path))
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
