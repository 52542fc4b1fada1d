//! The places of this installation, as the world shows them.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hermes_guest::client::Client;
use hermes_guest::protocol::message::Stats;
use hermes_types::SessionKey;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::timeout;

use crate::pidfd::ProcessRef;
use crate::registry::{
    EngineAccess, PlaceDir, PlaceRecord, SHARED_DIR, SOCKET_NAME, accepts_connections, place_dirs, remove,
    remove_stale, remove_stale_if_due, run_blocking,
};
use crate::{Error, Processes};

/// How long a guest may take to say how it is.
const STATS_TIMEOUT: Duration = Duration::from_secs(2);
/// How many are asked or ended at once.
const MAX_CONCURRENT: usize = 32;

/// How long whoever is done waits for what a reaper removes.
const REMOVAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How often a reaper looks.
const REAP_INTERVAL: Duration = Duration::from_secs(60);

/// All places of one installation.
#[derive(Debug, Clone)]
pub struct Places {
    /// Where sockets and records are.
    pub run_dir: PathBuf,
    /// Where the files of places are kept, one directory for each backend that keeps any.
    pub kept_dirs: Vec<PathBuf>,
}

/// One place that exists.
#[derive(Debug, Clone)]
pub struct ListedPlace {
    /// What is written down about it.
    pub record: PlaceRecord,
    /// How it is.
    pub state: PlaceState,
    dir: PlaceDir,
}

/// Removes what is left of places that are gone: at its start, on a timer, and when it is done.
#[derive(Debug)]
pub struct Reaper {
    run_dir: PathBuf,
    engine_access: EngineAccess,
    task: JoinHandle<()>,
    done: Arc<Notify>,
}

impl Reaper {
    /// Looks a last time. What is being removed is removed first: who leaves in the middle has told others that it was
    /// done.
    pub async fn finish(mut self) -> Result<(), Error> {
        let (run, engines) = (self.run_dir.clone(), self.engine_access);
        self.done.notify_one();
        // An engine that does not answer is in nobody's way.
        drop(timeout(REMOVAL_TIMEOUT, &mut self.task).await);
        run_blocking(move || remove_stale_if_due(&run, engines)).await
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceState {
    /// Its guest answers.
    Running(Stats),
    /// Its guest is there and does not answer.
    Unresponsive,
    /// Its guest is there, but is reached through another run directory.
    OtherRunDir,
    /// Only its files are there. The next command wakes it.
    Stopped,
}

impl Places {
    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<ListedPlace>, Error> {
        let mut asked = JoinSet::new();
        let mut found = Vec::new();
        for room in place_dirs(&self.run_dir)? {
            if asked.len() >= MAX_CONCURRENT
                && let Some(Ok(one)) = asked.join_next().await
            {
                found.extend(one);
            }
            asked.spawn(inspect(room));
        }
        while let Some(one) = asked.join_next().await {
            found.extend(one.ok().flatten());
        }
        found.extend(self.list_stopped(&found)?);
        found.sort_by(|one: &ListedPlace, other| one.record.name.cmp(&other.record.name));
        Ok(found)
    }

    /// Those whose name or session is this, or whose name or identity begins with it.
    pub async fn find(&self, wanted: &str) -> Result<Vec<ListedPlace>, Error> {
        let all = self.list().await?;
        let exact = |found: &&ListedPlace| found.record.name == wanted || found.record.session == wanted;
        let chosen: Vec<ListedPlace> = all.iter().filter(exact).cloned().collect();
        if !chosen.is_empty() || wanted.is_empty() {
            return Ok(chosen);
        }
        let begins = |found: &ListedPlace| {
            found.record.name.starts_with(wanted) || found.record.place.as_str().starts_with(wanted)
        };
        Ok(all.into_iter().filter(begins).collect())
    }

    /// Removes what is left of places that are gone.
    pub async fn remove_stale(&self) -> Result<(), Error> {
        let run = self.run_dir.clone();
        run_blocking(move || remove_stale(&run, EngineAccess::Allowed)).await
    }

    /// Keeps removing what is left of places that are gone, for as long as the reaper lives.
    pub fn start_reaper(&self, engines: EngineAccess) -> Reaper {
        let run = self.run_dir.clone();
        let done = Arc::new(Notify::new());
        let ended = done.clone();
        let task = tokio::spawn(async move {
            let mut clock = tokio::time::interval(REAP_INTERVAL);
            loop {
                tokio::select! {
                    _ = clock.tick() => {}
                    () = ended.notified() => return,
                }
                let run = run.clone();
                // What could not be removed now is tried again later, and by the next hermes.
                drop(run_blocking(move || remove_stale_if_due(&run, engines)).await);
            }
        });
        Reaper { run_dir: self.run_dir.clone(), engine_access: engines, task, done }
    }

    /// Ends these, several at a time, and gives those that could not be ended with the reason.
    pub async fn end_all(&self, places: Vec<ListedPlace>) -> Vec<(ListedPlace, Error)> {
        let mut ending = JoinSet::new();
        let mut failed = Vec::new();
        let mut note = |done: Option<Result<(ListedPlace, Result<(), Error>), _>>| {
            if let Some(Ok((found, Err(error)))) = done {
                failed.push((found, error));
            }
        };
        for found in places {
            if ending.len() >= MAX_CONCURRENT {
                note(ending.join_next().await);
            }
            ending.spawn(async move {
                let ended = found.end().await;
                (found, ended)
            });
        }
        while !ending.is_empty() {
            note(ending.join_next().await);
        }
        failed
    }

    /// Places of which only the files are there.
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
            // Without its record it is somebody else's directory.
            if let Some(record) = PlaceRecord::read_from(&entry.path()).filter(|record| record.name == name) {
                let room = PlaceDir::named(&self.run_dir, &name);
                let lives = record.process.is_some_and(ProcessRef::is_alive)
                    || record.container.is_some()
                        && accepts_connections(&entry.path().join(SHARED_DIR).join(SOCKET_NAME));
                let state = if lives { PlaceState::OtherRunDir } else { PlaceState::Stopped };
                found.push(ListedPlace { record, state, dir: room });
            }
        }
        Ok(found)
    }
}

impl ListedPlace {
    /// What runs there in the background.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let stream = self.dir.connect().await.map_err(Error::file(&self.dir.socket()))?;
        let session = SessionKey::new(&self.record.session);
        Ok(Processes::new(Client::connect(stream).await?, self.record.place.clone(), session))
    }

    /// Ends the place; its kept files stay. When this returns it is gone.
    pub async fn end(&self) -> Result<(), Error> {
        let lock = self.dir.lock().await?;
        // It may have been made again since it was found; then that one ends.
        self.dir.end_place().await?;
        if let (PlaceState::OtherRunDir, Some(anchor)) = (self.state, self.record.process) {
            run_blocking(move || anchor.terminate().map_err(Error::EndPlace)).await?;
        }
        if let (PlaceState::OtherRunDir, Some(container)) = (self.state, &self.record.container) {
            container.remove().await?;
        }
        lock.discard()
    }

    /// Ends the place and removes its kept files.
    pub async fn remove(&self) -> Result<(), Error> {
        self.end().await?;
        if let Some(container) = &self.record.container {
            // It may be used under another run directory.
            container.remove().await?;
            container.remove_files().await?;
        }
        let (files, container) = (self.record.files.clone(), self.record.container.clone());
        match files {
            Some(files) => run_blocking(move || remove(&files, container.as_ref())).await,
            None => Ok(()),
        }
    }
}

/// How the place of a room is; none for a room that nobody is in.
async fn inspect(room: PlaceDir) -> Option<ListedPlace> {
    let record = room.record()?;
    let ask = async {
        let client = Client::connect(room.connect().await.ok()?).await.ok()?;
        client.stats().await.ok()
    };
    let state = match timeout(STATS_TIMEOUT, ask).await.ok().flatten() {
        Some(stats) => PlaceState::Running(stats),
        // Without its socket it may still run.
        None => {
            let (anchor, seen) = (record.process, room.clone());
            let lives =
                run_blocking(move || Ok(anchor.is_some_and(ProcessRef::is_alive) || seen.is_alive())).await;
            let runs = match &record.container {
                Some(container) => container.is_running().await,
                None => Ok(false),
            };
            (lives.unwrap_or(false) || runs.unwrap_or(false)).then_some(PlaceState::Unresponsive)?
        }
    };
    Some(ListedPlace { record, state, dir: room })
}
