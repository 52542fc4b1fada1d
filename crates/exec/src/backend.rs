//! The kinds of places, one file each.

pub mod bind;
pub mod docker;
mod local;
pub mod sandbox;

use std::path::PathBuf;

use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use crate::registry::{EngineAccess, PlaceDir, PlaceRecord};
use crate::{Error, ResolvedPlace};
use docker::container::Container;

pub use bind::{BindMount, Writable};
pub use docker::DockerBackend;
pub use local::LocalBackend;
pub use sandbox::{Audience, SandboxBackend};

/// A kind of place with its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Backend {
    /// This machine.
    Local(LocalBackend),
    /// A jail on this machine.
    Sandbox(SandboxBackend),
    /// A container.
    Docker(DockerBackend),
}

/// What would be asked for to make a place, without any value of a variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CreateRequest {
    /// The engine that would be asked, where one makes the place.
    pub engine: Option<String>,
    /// What the container would be called.
    pub container: Option<String>,
    /// What would be sent to the engine; elsewhere, how the place is wanted.
    pub body: serde_json::Value,
    /// The limits that would not be enforced.
    pub unenforced: Vec<String>,
}

/// A place that was made just now.
pub(crate) struct CreatedPlace {
    /// To its guest.
    pub(crate) stream: UnixStream,
    /// What the engine was asked for.
    pub(crate) request: Option<serde_json::Value>,
    /// The limits that are not enforced.
    pub(crate) unenforced_limits: Vec<String>,
}

impl From<UnixStream> for CreatedPlace {
    fn from(stream: UnixStream) -> Self {
        Self { stream, request: None, unenforced_limits: Vec::new() }
    }
}

impl Backend {
    /// The word in the configuration.
    pub fn name(&self) -> BackendName {
        match self {
            Self::Local(_) => BackendName::Local,
            Self::Sandbox(_) => BackendName::Sandbox,
            Self::Docker(_) => BackendName::Docker,
        }
    }

    /// What commands there can hurt.
    pub fn reach(&self) -> Reach {
        match self {
            Self::Local(_) => Reach::Host,
            Self::Sandbox(sandboxed) => sandboxed.reach(),
            Self::Docker(docker) => docker.reach(),
        }
    }

    /// What commands there reach over the network.
    pub fn network(&self) -> Network {
        match self {
            Self::Local(_) => Network::Full,
            Self::Sandbox(sandboxed) => sandboxed.network,
            Self::Docker(docker) => docker.network,
        }
    }

    /// Says what would be asked for to make the place. Nothing is made.
    pub(crate) async fn preview_request(&self, plan: &ResolvedPlace) -> Result<CreateRequest, Error> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => Ok(CreateRequest {
                engine: None,
                container: None,
                body: serde_json::to_value(&plan.spec).unwrap_or_default(),
                unenforced: Vec::new(),
            }),
            Self::Docker(docker) => docker.preview_request(plan).await,
        }
    }

    /// Begins to make a place with what takes a while and leaves nothing behind if it goes no further.
    pub(crate) fn start_creation(&self) -> PlaceCreation<'_> {
        match self {
            Self::Local(local) => PlaceCreation::Local(local),
            Self::Sandbox(sandboxed) => PlaceCreation::Sandbox(sandboxed, sandboxed.start_launcher()),
            Self::Docker(docker) => PlaceCreation::Docker(docker),
        }
    }

    /// A stream to the guest, if the place is there.
    pub(crate) async fn connect_guest(&self, room: &PlaceDir) -> std::io::Result<UnixStream> {
        match self {
            Self::Local(_) | Self::Sandbox(_) | Self::Docker(_) => room.connect().await,
        }
    }

    /// Where the files of the place are on this machine, if they outlive it.
    pub(crate) fn kept_dir(&self, plan: &ResolvedPlace) -> Option<PathBuf> {
        match self {
            Self::Local(_) => None,
            Self::Sandbox(sandboxed) => sandboxed.kept_dir(plan),
            Self::Docker(docker) => docker.kept_dir(plan),
        }
    }

    /// How many places are to be ready before anybody asks for one.
    pub fn warm_count(&self) -> u32 {
        match self {
            Self::Local(_) | Self::Sandbox(_) => 0,
            Self::Docker(docker) => docker.warm_count(),
        }
    }

    /// Whether whoever makes such a place speaks to engines.
    pub fn engine_access(&self) -> EngineAccess {
        match self {
            Self::Local(_) | Self::Sandbox(_) => EngineAccess::Denied,
            Self::Docker(_) => EngineAccess::Allowed,
        }
    }

    /// The container that holds the place, if one does.
    pub(crate) fn container(&self, plan: &ResolvedPlace) -> Option<Container> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => None,
            Self::Docker(docker) => Some(docker.container(plan)),
        }
    }
}

/// A place that is about to be made.
pub(crate) enum PlaceCreation<'a> {
    Local(&'a LocalBackend),
    Sandbox(&'a SandboxBackend, sandbox::LauncherTask),
    Docker(&'a DockerBackend),
}

impl PlaceCreation<'_> {
    /// Makes the place, puts its guest there and gives a stream to it. What would outlive us, should we be killed, is
    /// written down before.
    pub(crate) async fn create(
        self,
        plan: &ResolvedPlace,
        room: &PlaceDir,
        record: &PlaceRecord,
    ) -> Result<CreatedPlace, Error> {
        match self {
            Self::Local(local) => local.create(plan, room).await.map(CreatedPlace::from),
            Self::Sandbox(sandboxed, preparing) => {
                sandboxed.create(plan, room, preparing).await.map(CreatedPlace::from)
            }
            Self::Docker(docker) => docker.create(plan, room, record).await,
        }
    }
}
