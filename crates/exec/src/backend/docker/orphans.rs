//! Containers of this installation that no place directory refers to.
//!
//! The place directory of a stopped place leads to its container. Place directories are lost when
//! the machine reboots or the user logs out; then only the labels tell whose container it is.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use bollard::models::ContainerSummary;
use bollard::query_parameters::ListContainersOptionsBuilder;
use hermes_types::Timestamp;

use super::container::Container;
use super::engine::Engine;
use super::request::{AGENT_LABEL, CREATED_LABEL, INSTALL_LABEL, PLACE_DIR_LABEL, PLACE_LABEL};
use crate::registry::{PlaceDir, discard};
use crate::{Error, Installation};

/// A younger container with a place directory below another run directory may still be in creation.
const MIN_ORPHAN_AGE_SECONDS: u64 = 120;

/// Removes containers of this installation that do not run and have no place directory. A running
/// container ends by itself when idle, and may be in use through another run directory. Runs once
/// per process and engine.
pub(super) async fn remove_orphans(engine: &Engine, installation: &Installation) -> Result<(), Error> {
    let address = &engine.address;
    let (install, run) = (&installation.install_id, &installation.run_dir);
    static DONE: Mutex<BTreeSet<(String, PathBuf)>> = Mutex::new(BTreeSet::new());
    let key = (address.to_string(), run.clone());
    if !DONE.lock().unwrap_or_else(PoisonError::into_inner).insert(key) {
        return Ok(());
    }
    let labels = [(AGENT_LABEL, "1"), (INSTALL_LABEL, install.as_str())]
        .map(|(name, value)| format!("{name}={value}"));
    let states = ["created", "exited"].map(str::to_owned);
    let filters = [("label".to_owned(), labels.to_vec()), ("status".to_owned(), states.to_vec())];
    let options = ListContainersOptionsBuilder::new().all(true).filters(&filters.into()).build();
    for found in engine.api.list_containers(Some(options)).await.map_err(|error| address.error(&error))? {
        let Some((name, place)) = orphan_names(&found, run) else { continue };
        let dir = PlaceDir::named(run, &place);
        // The place directory leads to the container, so the reaper removes both.
        if dir.path().exists() {
            continue;
        }
        let Some(lock) = dir.try_lock() else { continue };
        let container = Container {
            engine: address.clone(),
            name,
            place,
            volumes: Vec::new(),
            image: String::new(),
            cache: PathBuf::new(),
        };
        container.remove_from(engine).await?;
        discard(lock)?;
    }
    Ok(())
}

/// The container name and place name of an orphan. A place directory exists before its container
/// does, so a container without one below this run directory is an orphan; one that belongs to
/// another run directory must also be old enough.
fn orphan_names(found: &ContainerSummary, run: &Path) -> Option<(String, String)> {
    let labels = found.labels.as_ref()?;
    let name = found.names.as_ref()?.first()?.trim_start_matches('/').to_owned();
    let place = labels.get(PLACE_LABEL)?;
    if labels.get(PLACE_DIR_LABEL).map(Path::new) != Some(PlaceDir::named(run, place).path()) {
        let created = labels.get(CREATED_LABEL)?.parse().ok()?;
        let age = Timestamp::now().seconds().checked_sub(created)?;
        (age > MIN_ORPHAN_AGE_SECONDS).then_some(())?;
    }
    Some((name, place.clone()))
}
