//! A container, from its name to its end.

use std::time::{Duration, Instant};

use bollard::Docker as Api;
use bollard::errors::Error as ApiError;
use bollard::query_parameters::RemoveContainerOptionsBuilder;
use serde::{Deserialize, Serialize};

use super::engine::{self, Address, Engine};
use super::request;
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
}

impl Container {
    /// Ends it. When this returns it is gone.
    pub(crate) async fn remove(&self) -> Result<(), Error> {
        self.remove_from(&Engine::reach(&self.engine).await?).await
    }

    pub(super) async fn remove_from(&self, api: &Api) -> Result<(), Error> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match api.inspect_container(&self.name, None).await {
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
            match api.remove_container(&self.name, Some(options)).await {
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
    pub(super) async fn ended(&self, api: &Api) -> Result<Option<String>, Error> {
        let state = match api.inspect_container(&self.name, None).await {
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
        engine::failed(&self.engine, error).into()
    }
}
