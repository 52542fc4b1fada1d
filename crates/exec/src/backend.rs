//! The backends, one file each.

pub mod bind;
pub mod docker;
pub(crate) mod local;
pub mod sandbox;

use std::path::PathBuf;

use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use crate::registry::{EngineAccess, PlaceDir, PlaceRecord};
use crate::{Error, ResolvedPlace};
use docker::container::Container;
use sandbox::LauncherTask;

pub use bind::BindMount;
pub use docker::DockerBackend;
pub use local::LocalBackend;
pub use sandbox::{Audience, SandboxBackend};

#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Backend {
    Local(LocalBackend),
    Sandbox(SandboxBackend),
    Docker(DockerBackend),
}

/// The request that would create a place, without values of environment variables.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CreateRequest {
    /// The address of the engine, for a backend that uses one.
    pub engine: Option<String>,
    pub container: Option<String>,
    /// The body of the engine's create call, or the spec where no engine is involved.
    pub body: serde_json::Value,
    pub unenforced: Vec<String>,
}

impl Backend {
    pub fn name(&self) -> BackendName {
        match self {
            Self::Local(_) => BackendName::Local,
            Self::Sandbox(_) => BackendName::Sandbox,
            Self::Docker(_) => BackendName::Docker,
        }
    }

    pub fn reach(&self) -> Reach {
        match self {
            Self::Local(_) => Reach::Host,
            Self::Sandbox(sandboxed) => sandboxed.reach(),
            Self::Docker(docker) => docker.reach(),
        }
    }

    pub fn network(&self) -> Network {
        match self {
            Self::Local(_) => Network::Full,
            Self::Sandbox(sandboxed) => sandboxed.network,
            Self::Docker(docker) => docker.network,
        }
    }

    /// Builds the create request without creating anything.
    pub(crate) async fn preview_request(&self, place: &ResolvedPlace) -> Result<CreateRequest, Error> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => Ok(CreateRequest {
                engine: None,
                container: None,
                body: place.spec_json.clone(),
                unenforced: Vec::new(),
            }),
            Self::Docker(docker) => docker.preview_request(place).await,
        }
    }

    /// Starts the slow part of creating a sandbox, which leaves nothing behind when it is dropped.
    pub(crate) fn start_launcher(&self) -> Option<LauncherTask> {
        let Self::Sandbox(sandboxed) = self else { return None };
        Some(sandboxed.start_launcher())
    }

    /// Creates the place, starts its guest and connects to it. Anything that would survive a crash
    /// of this process is recorded first; facts about the created place are added to the record.
    pub(crate) async fn create(
        &self,
        launcher: Option<LauncherTask>,
        place: &ResolvedPlace,
        dir: &PlaceDir,
        record: &mut PlaceRecord,
    ) -> Result<UnixStream, Error> {
        match self {
            Self::Local(local) => local.create(place, dir).await,
            Self::Sandbox(sandboxed) => {
                let launcher = launcher.unwrap_or_else(|| sandboxed.start_launcher());
                sandboxed.create(place, dir, launcher).await
            }
            Self::Docker(docker) => docker.create(place, dir, record).await,
        }
    }

    /// The directory of the place's files on the host, if they outlive the place.
    pub(crate) fn kept_dir(&self, place: &ResolvedPlace) -> Option<PathBuf> {
        match self {
            Self::Local(_) => None,
            Self::Sandbox(sandboxed) => sandboxed.kept_dir(place),
            Self::Docker(docker) => docker.kept_dir(place),
        }
    }

    /// The number of places to keep running in advance.
    pub fn warm_count(&self) -> u32 {
        let Self::Docker(docker) = self else { return 0 };
        docker.warm_count()
    }

    pub fn engine_access(&self) -> EngineAccess {
        if matches!(self, Self::Docker(_)) { EngineAccess::Allowed } else { EngineAccess::Denied }
    }

    pub(crate) fn container(&self, place: &ResolvedPlace) -> Option<Container> {
        let Self::Docker(docker) = self else { return None };
        Some(docker.container(place))
    }
}
