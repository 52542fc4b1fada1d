//! The limit on the number of places.

use std::fs;
use std::time::Duration;

use hermes_guest::protocol::message::Stats;
use tokio::time::{Instant, sleep};

use crate::registry::{
    EngineAccess, PlaceDir, create_dirs, lock_within, place_dirs, remove_stale, run_blocking,
};
use crate::{Error, Installation};

const CAPACITY_TIMEOUT: Duration = Duration::from_secs(60);
/// A place that was idle for this long may be ended for another one.
const MIN_IDLE_TIME: Duration = Duration::from_secs(5);
const STATS_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Creates the place directory as soon as the limit allows it. Callers are served in turn, and the
/// place that was idle longest is ended.
pub(crate) async fn reserve(
    installation: &Installation,
    dir: &PlaceDir,
    engines: EngineAccess,
) -> Result<(), Error> {
    let path = installation.run_dir.join(".admission");
    let deadline = Instant::now() + CAPACITY_TIMEOUT;
    let full = || Error::TooManyPlaces { max: installation.max_places };
    let _turn = lock_within(&path, Some(CAPACITY_TIMEOUT)).await?.ok_or_else(full)?;
    loop {
        let count = fs::read_dir(&installation.run_dir).map_err(Error::file(&installation.run_dir))?;
        let count = count.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        if count < installation.max_places {
            return create_dirs(dir.path());
        }
        let run = installation.run_dir.clone();
        run_blocking(move || remove_stale(&run, engines)).await?;
        if !end_idlest(installation).await? {
            if Instant::now() > deadline {
                return Err(full());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Ends the place that was idle longest, if that is long enough.
async fn end_idlest(installation: &Installation) -> Result<bool, Error> {
    let mut idlest = None;
    for dir in place_dirs(&installation.run_dir)? {
        let Some(Stats { idle, .. }) = dir.stats(STATS_TIMEOUT).await else { continue };
        if idle >= MIN_IDLE_TIME && idlest.as_ref().is_none_or(|(longest, _)| idle > *longest) {
            idlest = Some((idle, dir));
        }
    }
    let Some((_, dir)) = idlest else { return Ok(false) };
    // A process that recreates this place waits for our lock, so waiting for its lock would
    // deadlock.
    let Some(_lock) = dir.try_lock() else { return Ok(false) };
    dir.end_place().await?;
    Ok(true)
}
