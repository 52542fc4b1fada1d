//! How many places there may be, and what happens to one too many.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::time::Duration;

use hermes_guest::client::Client;
use tokio::time::{Instant, sleep, timeout};

use crate::registry::{EngineAccess, PlaceDir, place_dirs, remove_stale, run_blocking};
use crate::{Error, Installation};

/// How long somebody waits for a place to end before giving up.
const CAPACITY_TIMEOUT: Duration = Duration::from_secs(60);
/// A place that was idle for so long makes way for another.
const MIN_IDLE_TIME: Duration = Duration::from_secs(5);
/// How often is looked.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Makes the room as soon as there may be one more. Whoever came first is let in first; the place that has been
/// idle for longest makes way.
pub(crate) async fn reserve(
    host: &Installation,
    room: &PlaceDir,
    engines: EngineAccess,
) -> Result<(), Error> {
    let path = host.run_dir.join(".admission");
    let open = OpenOptions::new().create(true).truncate(false).write(true).mode(0o600).open(&path);
    let turn = open.map_err(Error::file(&path))?;
    let deadline = Instant::now() + CAPACITY_TIMEOUT;
    let full = || Error::TooManyPlaces { max: host.max_places };
    while turn.try_lock().is_err() {
        if Instant::now() > deadline {
            return Err(full());
        }
        sleep(POLL_INTERVAL).await;
    }
    loop {
        let count = fs::read_dir(&host.run_dir).map_err(Error::file(&host.run_dir))?;
        let count = count.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        if count < host.max_places {
            return room.create();
        }
        let run = host.run_dir.clone();
        run_blocking(move || remove_stale(&run, engines)).await?;
        if !end_idlest(host).await? {
            if Instant::now() > deadline {
                return Err(full());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Ends the place that has been idle for longest, if one has been idle long enough.
async fn end_idlest(host: &Installation) -> Result<bool, Error> {
    let mut idlest = None;
    for room in place_dirs(&host.run_dir)? {
        let Some(idle) = idle_time(&room).await else { continue };
        if idle >= MIN_IDLE_TIME && idlest.as_ref().is_none_or(|(longest, _)| idle > *longest) {
            idlest = Some((idle, room));
        }
    }
    let Some((_, room)) = idlest else { return Ok(false) };
    // Somebody who makes it again right now waits for us to let him in, so we cannot wait for him.
    let Some(_lock) = room.try_lock() else { return Ok(false) };
    room.end_place().await?;
    Ok(true)
}

async fn idle_time(room: &PlaceDir) -> Option<Duration> {
    let ask = async {
        let client = Client::connect(room.connect().await.ok()?).await.ok()?;
        Some(client.stats().await.ok()?.idle)
    };
    timeout(Duration::from_secs(1), ask).await.ok()?
}
