//! A container, from its name to its end.

use std::time::{Duration, Instant};

use bollard::errors::Error as ApiError;
use bollard::query_parameters::{RemoveContainerOptionsBuilder, RemoveVolumeOptions};
use serde::{Deserialize, Serialize};

use super::engine::{Address, Engine};
use super::request;
use super::road::Road;
use crate::Error;

/// How long an engine may take to remove a container.
const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Duration = Duration::from_millis(20);

/// Which container holds a place, written down before it is made.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Container {
    /// Where its engine listens.
    pub engine: Address,
    /// What it is called there.
    pub name: String,
    /// The name of the place, which its label says too.
    pub place: String,
    /// What leads to its guest.
    pub road: Road,
    /// The engine's own volumes that hold the files of the place.
    pub volumes: Vec<String>,
}

impl Container {
    /// Ends it. When this returns it is gone.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        self.remove_from(&Engine::connect(&self.engine).await?).await
    }

    /// Whether it runs.
    pub(crate) async fn runs(&self) -> Result<bool, Error> {
        Ok(self.ended(&Engine::connect(&self.engine).await?).await?.is_none())
    }

    /// Removes the files that outlive it.
    pub(crate) async fn remove_files(&self) -> Result<(), Error> {
        if self.volumes.is_empty() {
            return Ok(());
        }
        let engine = Engine::connect(&self.engine).await?;
        for volume in &self.volumes {
            match engine.api.remove_volume(volume, None::<RemoveVolumeOptions>).await {
                Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => {}
                Err(error) => return Err(self.fault(&error)),
            }
        }
        Ok(())
    }

    pub(super) async fn remove_from(&self, engine: &Engine) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match engine.api.inspect_container(&self.name, None).await {
                Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => return Ok(()),
                Err(error) => return Err(self.fault(&error)),
                Ok(found) => {
                    let labels = found.config.and_then(|config| config.labels).unwrap_or_default();
                    if labels.get(request::PLACE) != Some(&self.place) {
                        return Err(Error::NameTaken { name: self.name.clone() });
                    }
                }
            }
            let options = RemoveContainerOptionsBuilder::new().force(true).v(true).build();
            match engine.api.remove_container(&self.name, Some(options)).await {
                // It is gone already, or being removed by the engine itself.
                Ok(()) | Err(ApiError::DockerResponseServerError { status_code: 404 | 409, .. }) => {}
                Err(error) => return Err(self.fault(&error)),
            }
            if Instant::now() > deadline {
                return Err(Error::Lingering { name: self.name.clone() });
            }
            tokio::time::sleep(PAUSE).await;
        }
    }

    /// What it ended with, if it has.
    pub(super) async fn ended(&self, engine: &Engine) -> Result<Option<String>, Error> {
        let state = match engine.api.inspect_container(&self.name, None).await {
            Err(ApiError::DockerResponseServerError { status_code: 404, .. }) => {
                return Ok(Some("it is gone".to_owned()));
            }
            found => found.map_err(|error| self.fault(&error))?.state.unwrap_or_default(),
        };
        if state.running == Some(true) {
            return Ok(None);
        }
        let error = state.error.filter(|error| !error.is_empty());
        let code = state.exit_code.unwrap_or_default();
        Ok(Some(error.unwrap_or_else(|| format!("exit code {code}"))))
    }

    fn fault(&self, error: &ApiError) -> Error {
        self.engine.fault(error)
    }
}
