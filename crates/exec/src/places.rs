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

use crate::anchor::Anchor;
use crate::registry::{
    Engines, Record, Room, SHARED, SOCKET, answers, blocking, remove, rooms, sweep, sweep_now_and_then,
};
use crate::{Error, Processes};

/// How long a guest may take to say how it is.
const PATIENCE: Duration = Duration::from_secs(2);
/// How many are asked or ended at once.
const AT_ONCE: usize = 32;

/// How long whoever is done waits for what a reaper removes.
const REMOVAL: Duration = Duration::from_secs(5);
/// How often a reaper looks.
const REAP_EVERY: Duration = Duration::from_secs(60);

/// All places of one installation.
#[derive(Debug, Clone)]
pub struct Places {
    /// Where sockets and records are.
    pub run: PathBuf,
    /// Where the files of places are kept, one directory for each backend that keeps any.
    pub kept: Vec<PathBuf>,
}

/// One place that exists.
#[derive(Debug, Clone)]
pub struct Found {
    /// What is written down about it.
    pub record: Record,
    /// How it is.
    pub state: State,
    room: Room,
}

/// Removes what is left of places that are gone: at its start, on a timer, and when it is done.
#[derive(Debug)]
pub struct Reaper {
    run: PathBuf,
    engines: Engines,
    task: JoinHandle<()>,
    done: Arc<Notify>,
}

impl Reaper {
    /// Looks a last time. What is being removed is removed first: who leaves in the middle has told others that it was
    /// done.
    pub async fn finish(mut self) -> Result<(), Error> {
        let (run, engines) = (self.run.clone(), self.engines);
        self.done.notify_one();
        // An engine that does not answer is in nobody's way.
        drop(timeout(REMOVAL, &mut self.task).await);
        blocking(move || sweep_now_and_then(&run, engines)).await
    }
}

impl Drop for Reaper {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// How a place is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Its guest answers.
    Live(Stats),
    /// Its guest is there and does not answer.
    Silent,
    /// Its guest is there, but is reached through another run directory.
    Elsewhere,
    /// Only its files are there. The next command wakes it.
    Asleep,
}

impl Places {
    /// All of them, by name.
    pub async fn list(&self) -> Result<Vec<Found>, Error> {
        let mut asked = JoinSet::new();
        let mut found = Vec::new();
        for room in rooms(&self.run)? {
            if asked.len() >= AT_ONCE
                && let Some(Ok(one)) = asked.join_next().await
            {
                found.extend(one);
            }
            asked.spawn(look(room));
        }
        while let Some(one) = asked.join_next().await {
            found.extend(one.ok().flatten());
        }
        found.extend(self.asleep(&found)?);
        found.sort_by(|one: &Found, other| one.record.name.cmp(&other.record.name));
        Ok(found)
    }

    /// Those whose name or session is this, or whose name or identity begins with it.
    pub async fn find(&self, wanted: &str) -> Result<Vec<Found>, Error> {
        let all = self.list().await?;
        let exact = |found: &&Found| found.record.name == wanted || found.record.session == wanted;
        let chosen: Vec<Found> = all.iter().filter(exact).cloned().collect();
        if !chosen.is_empty() || wanted.is_empty() {
            return Ok(chosen);
        }
        let begins = |found: &Found| {
            found.record.name.starts_with(wanted) || found.record.place.as_str().starts_with(wanted)
        };
        Ok(all.into_iter().filter(begins).collect())
    }

    /// Removes what is left of places that are gone.
    pub async fn sweep(&self) -> Result<(), Error> {
        let run = self.run.clone();
        blocking(move || sweep(&run, Engines::Ask)).await
    }

    /// Keeps removing what is left of places that are gone, for as long as the reaper lives.
    pub fn reap(&self, engines: Engines) -> Reaper {
        let run = self.run.clone();
        let done = Arc::new(Notify::new());
        let ended = done.clone();
        let task = tokio::spawn(async move {
            let mut clock = tokio::time::interval(REAP_EVERY);
            loop {
                tokio::select! {
                    _ = clock.tick() => {}
                    () = ended.notified() => return,
                }
                let run = run.clone();
                // What could not be removed now is tried again later, and by the next hermes.
                drop(blocking(move || sweep_now_and_then(&run, engines)).await);
            }
        });
        Reaper { run: self.run.clone(), engines, task, done }
    }

    /// Ends these, several at a time, and gives those that could not be ended with the reason.
    pub async fn end(&self, places: Vec<Found>) -> Vec<(Found, Error)> {
        let mut ending = JoinSet::new();
        let mut failed = Vec::new();
        let mut note = |done: Option<Result<(Found, Result<(), Error>), _>>| {
            if let Some(Ok((found, Err(error)))) = done {
                failed.push((found, error));
            }
        };
        for found in places {
            if ending.len() >= AT_ONCE {
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
    fn asleep(&self, awake: &[Found]) -> Result<Vec<Found>, Error> {
        let mut listed = Vec::new();
        for kept in &self.kept {
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
            if let Some(record) = Record::beside(&entry.path()).filter(|record| record.name == name) {
                let room = Room::named(&self.run, &name);
                let lives = record.anchor.is_some_and(Anchor::lives)
                    || record.container.is_some() && answers(&entry.path().join(SHARED).join(SOCKET));
                let state = if lives { State::Elsewhere } else { State::Asleep };
                found.push(Found { record, state, room });
            }
        }
        Ok(found)
    }
}

impl Found {
    /// What runs there in the background.
    pub async fn processes(&self) -> Result<Processes, Error> {
        let stream = self.room.knock().await.map_err(Error::file(&self.room.socket()))?;
        let session = SessionKey::new(&self.record.session);
        Ok(Processes::new(Client::connect(stream).await?, self.record.place.clone(), session))
    }

    /// Ends the place; its kept files stay. When this returns it is gone.
    pub async fn end(&self) -> Result<(), Error> {
        let lock = self.room.lock().await?;
        // It may have been made again since it was found; then that one ends.
        self.room.end().await?;
        if let (State::Elsewhere, Some(anchor)) = (self.state, self.record.anchor) {
            blocking(move || anchor.end().map_err(Error::Ending)).await?;
        }
        if let (State::Elsewhere, Some(container)) = (self.state, &self.record.container) {
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
            Some(files) => blocking(move || remove(&files, container.as_ref())).await,
            None => Ok(()),
        }
    }
}

/// How the place of a room is; none for a room that nobody is in.
async fn look(room: Room) -> Option<Found> {
    let record = room.record()?;
    let ask = async {
        let client = Client::connect(room.knock().await.ok()?).await.ok()?;
        client.stats().await.ok()
    };
    let state = match timeout(PATIENCE, ask).await.ok().flatten() {
        Some(stats) => State::Live(stats),
        // Without its socket it may still run.
        None => {
            let (anchor, seen) = (record.anchor, room.clone());
            let lives = blocking(move || Ok(anchor.is_some_and(Anchor::lives) || seen.lives())).await;
            let runs = match &record.container {
                Some(container) => container.runs().await,
                None => Ok(false),
            };
            (lives.unwrap_or(false) || runs.unwrap_or(false)).then_some(State::Silent)?
        }
    };
    Some(Found { record, state, room })
}
