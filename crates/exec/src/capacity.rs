//! The limit on the number of places.

use std::fs;
use std::time::Duration;

use hermes_guest::protocol::message::Stats;
use hermes_types::Person;
use hermes_types::run_dir::ADMISSION_LOCK;
use tokio::time::{Instant, sleep};

use crate::registry::{
    EngineAccess, PlaceDir, create_dirs, link_storage, lock_within, place_dirs, remove_stale, run_blocking,
};
use crate::{Error, ResolvedPlace};

const CAPACITY_TIMEOUT: Duration = Duration::from_secs(60);
/// A place that was idle for this long may be ended for another one.
const MIN_IDLE_TIME: Duration = Duration::from_secs(5);
const STATS_TIMEOUT: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Creates the place directory as soon as the limit allows it. Callers are served in turn, and the
/// place that was idle longest is ended.
pub(crate) async fn reserve(
    place: &ResolvedPlace,
    dir: &PlaceDir,
    engines: EngineAccess,
) -> Result<(), Error> {
    let installation = &place.installation;
    let max_places = installation.limits.max_places;
    let path = installation.run_dir.join(ADMISSION_LOCK);
    let deadline = Instant::now() + CAPACITY_TIMEOUT;
    let full = || Error::TooManyPlaces { max: max_places };
    let _turn = lock_within(&path, Some(CAPACITY_TIMEOUT)).await?.ok_or_else(full)?;
    // The others do not wait for a person whose places are all busy.
    if !has_room(place)? && !end_idlest(places_of_person(place)?).await? {
        return Err(Error::TooManyOfPerson { max: installation.limits.max_per_person });
    }
    loop {
        let count = fs::read_dir(&installation.run_dir).map_err(Error::file(&installation.run_dir))?;
        let count = count.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).count();
        if count < max_places {
            link_storage(&installation.run_dir, &place.unkept_storages())?;
            create_dirs(dir.path())?;
            return place.person.iter().try_for_each(|person| dir.set_person(person.as_str()));
        }
        let run = installation.run_dir.clone();
        run_blocking(move || remove_stale(&run, engines)).await?;
        if !end_idlest(place_dirs(&installation.run_dir)?).await? {
            if Instant::now() > deadline {
                return Err(full());
            }
            sleep(POLL_INTERVAL).await;
        }
    }
}

/// Whether the person may have another place.
pub(crate) fn has_room(place: &ResolvedPlace) -> Result<bool, Error> {
    let max = place.installation.limits.max_per_person;
    Ok(max == usize::MAX || place.person.is_none() || places_of_person(place)?.len() < max)
}

fn places_of_person(place: &ResolvedPlace) -> Result<Vec<PlaceDir>, Error> {
    let person = place.person.as_ref().map(Person::as_str);
    let mut dirs = place_dirs(&place.installation.run_dir)?;
    dirs.retain(|dir| person.is_some() && dir.person().as_deref() == person);
    Ok(dirs)
}

/// Ends the place that was idle longest, if that is long enough.
async fn end_idlest(dirs: Vec<PlaceDir>) -> Result<bool, Error> {
    let mut idlest = None;
    for dir in dirs {
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
