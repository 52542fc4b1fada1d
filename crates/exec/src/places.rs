//! The list of places of an installation.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use futures_util::stream::{self, StreamExt};
use hermes_guest::protocol::message::Stats;
use hermes_types::{LockFile, SessionKey};
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::pidfd::ProcessRef;
use crate::registry::{
    EngineAccess, PlaceDir, PlaceRecord, SHARED_DIR, SOCKET_NAME, accepts_connections, discard, place_dirs,
    remove_stale, remove_stale_if_due, run_blocking,
};
use crate::{Error, Processes};

const STATS_TIMEOUT: Duration = Duration::from_secs(2);
const MAX_CONCURRENT: usize = 32;

/// The longest wait for a removal in progress when a reaper finishes.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
const REAP_INTERVAL: Duration = Duration::from_secs(60);

#[derive(Debug, Clone)]
pub struct Places {
    pub run_dir: PathBuf,
    /// Directories of kept files, one for each backend that keeps any.
    pub kept_dirs: Vec<PathBuf>,
}

#[derive(Debug, Clone)]
pub struct ListedPlace {
    pub record: PlaceRecord,
    pub state: PlaceState,
    dir: PlaceDir,
}

/// Removes the remains of ended places: at its start, on a timer, and when it finishes.
#[derive(Debug)]
pub struct Reaper {
    run_dir: PathBuf,
    engine_access: EngineAccess,
    /// Holds one task, which ends with this value.
    task: JoinSet<()>,
    done: Arc<Notify>,
}

impl Reaper {
    /// Finishes a removal in progress and checks a last time.
    pub async fn finish(mut self) -> Result<(), Error> {
        let (run, engines) = (self.run_dir.clone(), self.engine_access);
        self.done.notify_one();
        // An engine that does not answer must not block the exit.
        drop(timeout(REMOVAL_TIMEOUT, self.task.join_next()).await);
        run_blocking(move || remove_stale_if_due(&run, engines)).await
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceState {
    Running(Stats),
    /// The guest exists and does not answer.
    Unresponsive,
    /// The guest exists but belongs to another run directory.
    OtherRunDir,
    /// Only its files exist. The next command restarts it.
    Stopped,
}

impl Places {
    /// All places, sorted by name.
    pub async fn list(&self) -> Result<Vec<ListedPlace>, Error> {
        let inspected = stream::iter(place_dirs(&self.run_dir)?).map(inspect);
        let inspected: Vec<_> = inspected.buffer_unordered(MAX_CONCURRENT).collect().await;
        let mut found: Vec<ListedPlace> = inspected.into_iter().flatten().collect();
        found.extend(self.list_stopped(&found)?);
        found.sort_by(|one, other| one.record.name.cmp(&other.record.name));
        Ok(found)
    }

    /// Places whose name or session equals the query, otherwise those whose name or id starts with
    /// it.
    pub async fn find(&self, wanted: &str) -> Result<Vec<ListedPlace>, Error> {
        let is_exact = |found: &ListedPlace| found.record.name == wanted || found.record.session == wanted;
        let (exact, mut others): (Vec<_>, Vec<_>) = self.list().await?.into_iter().partition(is_exact);
        if !exact.is_empty() || wanted.is_empty() {
            return Ok(exact);
        }
        others.retain(|found| {
            found.record.name.starts_with(wanted) || found.record.place.as_str().starts_with(wanted)
        });
        Ok(others)
    }

    /// Removes the remains of ended places.
    pub async fn remove_stale(&self) -> Result<(), Error> {
        let run = self.run_dir.clone();
        run_blocking(move || remove_stale(&run, EngineAccess::Allowed)).await
    }

    /// Removes the remains of ended places until the reaper is dropped.
    pub fn start_reaper(&self, engines: EngineAccess) -> Reaper {
        let run = self.run_dir.clone();
        let done = Arc::new(Notify::new());
        let ended = done.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let mut clock = tokio::time::interval(REAP_INTERVAL);
            loop {
                tokio::select! {
                    _ = clock.tick() => {}
                    () = ended.notified() => return,
                }
                let run = run.clone();
                // A failed removal is retried later, or by the next process.
                drop(run_blocking(move || remove_stale_if_due(&run, engines)).await);
            }
        });
        Reaper { run_dir: self.run_dir.clone(), engine_access: engines, task, done }
    }

    /// Ends these places concurrently and returns the failures.
    pub async fn end_all(&self, places: Vec<ListedPlace>) -> Vec<(ListedPlace, Error)> {
        let ending = stream::iter(places).map(async |found| {
            let ended = found.end().await;
            ended.err().map(|error| (found, error))
        });
        let failed: Vec<_> = ending.buffer_unordered(MAX_CONCURRENT).collect().await;
        failed.into_iter().flatten().collect()
    }

    /// Places of which only the files exist.
    fn list_stopped(&self, awake: &[ListedPlace]) -> Result<Vec<ListedPlace>, Error> {
        let mut listed = Vec::new();
        for kept in &self.kept_dirs {
            match fs::read_dir(kept) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                entries => listed.extend(entries.map_err(Error::file(kept))?.flatten()),
            }
        }
        let mut found = Vec::new();
        for entry in listed {
            let name = entry.file_name().to_string_lossy().into_owned();
            if awake.iter().any(|other| other.record.name == name) {
                continue;
            }
            // A directory without a matching record is not a place.
            if let Some(record) = PlaceRecord::read_from(&entry.path()).filter(|record| record.name == name) {
                let dir = PlaceDir::named(&self.run_dir, &name);
                let lives = record.process.is_some_and(ProcessRef::is_alive)
                    || record.container.is_some()
                        && accepts_connections(&entry.path().join(SHARED_DIR).join(SOCKET_NAME));
                let state = if lives { PlaceState::OtherRunDir } else { PlaceState::Stopped };
                found.push(ListedPlace { record, state, dir });
            }
        }
        Ok(found)
    }
}

impl ListedPlace {
    /// The background processes of the place.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let session = SessionKey::new(&self.record.session);
        Ok(Processes::new(self.dir.client().await?, self.record.place.clone(), session))
    }

    /// Ends the place and waits until it is gone; kept files stay.
    pub async fn end(&self) -> Result<(), Error> {
        discard(self.lock_and_end().await?)
    }

    /// Ends the place and returns its lock.
    async fn lock_and_end(&self) -> Result<LockFile, Error> {
        let lock = self.dir.lock().await?;
        // The place may have been recreated since it was listed; that one ends.
        self.dir.end_place().await?;
        if self.state == PlaceState::OtherRunDir {
            if let Some(process) = self.record.process {
                run_blocking(move || process.terminate().map_err(Error::EndPlace)).await?;
            }
            if let Some(container) = &self.record.container {
                container.remove().await?;
            }
        }
        Ok(lock)
    }

    /// Ends the place and removes its kept files.
    pub async fn remove(&self) -> Result<(), Error> {
        let lock = self.lock_and_end().await?;
        if let Some(container) = &self.record.container {
            // The container may be in use through another run directory.
            container.remove().await?;
        }
        self.record.clone().remove_files().await?;
        discard(lock)
    }
}

/// The state of the place in a directory; `None` for an ended one.
async fn inspect(dir: PlaceDir) -> Option<ListedPlace> {
    let record = dir.record()?;
    let state = match dir.stats(STATS_TIMEOUT).await {
        Some(stats) => PlaceState::Running(stats),
        // A place without its socket may still run.
        None => {
            let (process, place_dir) = (record.process, dir.clone());
            let lives =
                run_blocking(move || Ok(process.is_some_and(ProcessRef::is_alive) || place_dir.is_alive()))
                    .await;
            let runs = match &record.container {
                Some(container) => container.is_running().await,
                None => Ok(false),
            };
            (lives.unwrap_or(false) || runs.unwrap_or(false)).then_some(PlaceState::Unresponsive)?
        }
    };
    Some(ListedPlace { record, state, dir })
}
