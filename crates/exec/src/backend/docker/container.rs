//! One container: lookup, state, removal.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use bollard::errors::Error as ApiError;
use bollard::models::{ContainerInspectResponse, ContainerState};
use bollard::query_parameters::{
    CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, RemoveVolumeOptions,
};
use serde::{Deserialize, Serialize};

use super::engine::{self, Engine, EngineAddress};
use super::{request, translate};
use crate::{Error, embed};

const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);
const POLL_INTERVAL: Duration = Duration::from_millis(20);
const INSPECT_INTERVAL: Duration = Duration::from_secs(1);

/// The container of a place, recorded before it is created.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    pub engine: EngineAddress,
    pub name: String,
    /// The place name, which the container's label repeats.
    pub place: String,
    /// Engine volumes that hold the files of the place.
    pub volumes: Vec<String>,
    pub image: String,
    /// The host directory with the guest program.
    pub cache: PathBuf,
}

/// The container that has a given name, if any.
pub(super) enum NamedContainer {
    Missing,
    /// The container of this place.
    Ours(Box<ContainerInspectResponse>),
    /// A container that Hermes did not create.
    Foreign,
}

impl Container {
    /// Removes the container and waits until it is gone.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        self.remove_from(&Engine::connect_cached(&self.engine).await?).await
    }

    pub(crate) async fn is_running(&self) -> Result<bool, Error> {
        Ok(self.exit_reason(&Engine::connect_cached(&self.engine).await?).await?.is_none())
    }

    /// Returns once the engine reports that the container is not running or is paused, and never
    /// while it runs.
    pub(crate) async fn until_inactive(&self) {
        loop {
            tokio::time::sleep(INSPECT_INTERVAL).await;
            let Ok(engine) = Engine::connect_cached(&self.engine).await else { continue };
            match self.find(&engine).await {
                Ok(NamedContainer::Ours(found)) if is_active(found.state.as_ref()) => {}
                Ok(_) => return,
                // The engine did not answer, so nothing is known.
                Err(_) => {}
            }
        }
    }

    /// Removes the engine volumes.
    pub(crate) async fn remove_files(&self) -> Result<(), Error> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let engine = Engine::connect_cached(&self.engine).await?;
        for volume in &self.volumes {
            match engine.api.remove_volume(volume, None::<RemoveVolumeOptions>).await {
                Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => {}
                Err(error) => return Err(self.engine.error(&error).into()),
            }
        }
        Ok(())
    }

    pub(super) async fn remove_from(&self, engine: &Engine) -> Result<(), Error> {
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        loop {
            let removed = match self.inspect(engine).await {
                Ok(NamedContainer::Missing | NamedContainer::Foreign) => return Ok(()),
                Ok(NamedContainer::Ours(_)) => {
                    let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
                    engine.api.remove_container(&self.name, Some(options)).await
                }
                Err(error) => Err(error),
            };
            match removed {
                // The container is already gone, or the engine is removing it; Podman reports that
                // as a 500.
                Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404 | 409 | 500, .. }) => {}
                Err(error) => return Err(self.engine.error(&error).into()),
            }
            if Instant::now() > deadline {
                let why = removed.err().map(|error| error.to_string());
                return Err(Error::ContainerNotRemoved {
                    name: self.name.clone(),
                    why: why.unwrap_or_default(),
                });
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    /// Empties a host directory as root inside a helper container.
    pub(crate) async fn empty_directory(&self, directory: &Path) -> Result<(), Error> {
        let engine = Engine::connect(&self.engine).await?;
        let cleaner = Self { name: format!("{}-empty", self.name), ..self.clone() };
        let guest = embed::install_guest(&self.cache)?;
        let mut body = request::cleaner_request(&self.image, &self.place, &guest, directory);
        translate::translate_paths(&engine, &mut body).await?;
        cleaner.remove_from(&engine).await?;
        let options = CreateContainerOptionsBuilder::new().name(&cleaner.name).build();
        let started = async {
            engine.api.create_container(Some(options), body).await?;
            engine.api.start_container(&cleaner.name, None).await
        };
        let started = started.await.map_err(|error| Error::FilesNotRemoved {
            path: directory.to_owned(),
            reason: engine::explain_create_error(&self.engine, &error, &[directory.to_owned()]).to_string(),
        });
        let deadline = Instant::now() + REMOVE_TIMEOUT;
        while started.is_ok() && cleaner.exit_reason(&engine).await?.is_none() && Instant::now() < deadline {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        cleaner.remove_from(&engine).await?;
        started
    }

    /// The reason why the container has stopped, or `None` while it runs.
    pub(super) async fn exit_reason(&self, engine: &Engine) -> Result<Option<String>, Error> {
        let NamedContainer::Ours(found) = self.find(engine).await? else {
            return Ok(Some("it was removed".to_owned()));
        };
        let state = found.state.unwrap_or_default();
        if state.running == Some(true) || state.paused == Some(true) {
            return Ok(None);
        }
        let error = state.error.filter(|error| !error.is_empty());
        let code = state.exit_code.unwrap_or_default();
        Ok(Some(error.unwrap_or_else(|| format!("exit code {code}"))))
    }

    pub(super) async fn find(&self, engine: &Engine) -> Result<NamedContainer, Error> {
        Ok(self.inspect(engine).await.map_err(|error| self.engine.error(&error))?)
    }

    async fn inspect(&self, engine: &Engine) -> Result<NamedContainer, ApiError> {
        let found = match engine.api.inspect_container(&self.name, None).await {
            // Podman answers 500 if the container is removed during the request.
            Err(ApiError::DockerResponseServerError { status_code, message })
                if status_code == 404 || message.contains("no such container") =>
            {
                return Ok(NamedContainer::Missing);
            }
            Err(ApiError::JsonDataError { contents, message, column }) => parse_without_status(&contents)
                .ok_or(ApiError::JsonDataError { contents, message, column })?,
            found => found?,
        };
        let labels = found.config.as_ref().and_then(|config| config.labels.as_ref());
        let place = labels.and_then(|labels| labels.get(request::PLACE_LABEL));
        Ok(if place == Some(&self.place) {
            NamedContainer::Ours(Box::new(found))
        } else {
            NamedContainer::Foreign
        })
    }
}

fn is_active(state: Option<&ContainerState>) -> bool {
    state.is_some_and(|state| state.running == Some(true) && state.paused != Some(true))
}

/// Parses an inspect response whose status the API does not define; Podman has such states.
fn parse_without_status(text: &str) -> Option<ContainerInspectResponse> {
    let mut found: serde_json::Value = serde_json::from_str(text).ok()?;
    found.get_mut("State")?.as_object_mut()?.remove("Status");
    serde_json::from_value(found).ok()
}
