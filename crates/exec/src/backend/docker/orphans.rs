//! Containers of ours that nobody knows any more.
//!
//! A place is known by its room, and whoever finds the room of one that is gone removes its container. But rooms are
//! lost when the machine starts anew or a user logs out, and then only the labels tell whose a container is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptionsBuilder;

use super::container::Container;
use super::engine::{Engine, EngineAddress};
use super::request::{AGENT_LABEL, CREATED_LABEL, INSTALL_LABEL, PLACE_DIR_LABEL, PLACE_LABEL};
use super::transport::GuestTransport;
use crate::Error;
use crate::registry::PlaceDir;

/// One that is younger and whose room is elsewhere may be made right now.
const MIN_ORPHAN_AGE: Duration = Duration::from_secs(120);

/// Removes those of this installation that do not run and have no room. One that runs ends by itself when idle: it may
/// be in use under another run directory. This is done once per process.
pub(super) async fn remove_orphans(
    engine: &Engine,
    address: &EngineAddress,
    install: &str,
    run: &Path,
) -> Result<(), Error> {
    static DONE: Mutex<BTreeSet<(String, PathBuf)>> = Mutex::new(BTreeSet::new());
    let whose = (address.to_string(), run.to_owned());
    if !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(whose) {
        return Ok(());
    }
    let labels =
        [(AGENT_LABEL, "1"), (INSTALL_LABEL, install)].map(|(name, value)| format!("{name}={value}"));
    let states = ["created", "exited"].map(str::to_owned);
    let filters = [("label".to_owned(), labels.to_vec()), ("status".to_owned(), states.to_vec())];
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters.into()).build();
    for found in engine.api.list_containers(Some(options)).await.map_err(|error| address.error(&error))? {
        let Some((name, place)) = orphan_names(&found, run) else { continue };
        let room = PlaceDir::named(run, &place);
        // Whoever has the lock makes or removes it; what has a room is swept away with that.
        if room.path().exists() {
            continue;
        }
        let Some(lock) = room.try_lock() else { continue };
        let container = Container {
            engine: address.clone(),
            name,
            place,
            transport: GuestTransport::for_address(address),
            volumes: Vec::new(),
            image: String::new(),
            cache: PathBuf::new(),
        };
        container.remove_from(engine).await?;
        lock.discard()?;
    }
    Ok(())
}

/// What a container is called and the name of its place, if nobody may be making it: the room is there before the
/// container, so one whose room would be here and is not has nobody, and one whose room is elsewhere must be old enough.
fn orphan_names(found: &ContainerSummary, run: &Path) -> Option<(String, String)> {
    let labels = found.labels.as_ref()?;
    let name = found.names.as_ref()?.first()?.trim_start_matches('/').to_owned();
    let place = labels.get(PLACE_LABEL)?;
    if labels.get(PLACE_DIR_LABEL).map(Path::new) != Some(PlaceDir::named(run, place).path()) {
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(labels.get(CREATED_LABEL)?.parse().ok()?);
        let age = SystemTime::now().duration_since(made).ok()?;
        (age > MIN_ORPHAN_AGE).then_some(())?;
    }
    Some((name, place.clone()))
}
