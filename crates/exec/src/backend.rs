//! The kinds of places, one file each.

pub mod bind;
pub mod docker;
mod local;
pub mod sandbox;

use std::path::PathBuf;

use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use crate::registry::{Engines, Record, Room};
use crate::{Error, Plan};
use docker::container::Container;

pub use bind::{Bind, Writable};
pub use docker::Docker;
pub use local::Local;
pub use sandbox::{Sandboxed, WorksFor};

/// A kind of place with its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Backend {
    /// This machine.
    Local(Local),
    /// A jail on this machine.
    Sandbox(Sandboxed),
    /// A container.
    Docker(Docker),
}

/// What would be asked for to make a place, without any value of a variable.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Request {
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
pub(crate) struct Fresh {
    /// To its guest.
    pub(crate) stream: UnixStream,
    /// What the engine was asked for.
    pub(crate) request: Option<serde_json::Value>,
    /// The limits that are not enforced.
    pub(crate) unenforced: Vec<String>,
}

impl From<UnixStream> for Fresh {
    fn from(stream: UnixStream) -> Self {
        Self { stream, request: None, unenforced: Vec::new() }
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
    pub(crate) async fn sketch(&self, plan: &Plan) -> Result<Request, Error> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => Ok(Request {
                engine: None,
                container: None,
                body: serde_json::to_value(&plan.spec).unwrap_or_default(),
                unenforced: Vec::new(),
            }),
            Self::Docker(docker) => docker.sketch(plan).await,
        }
    }

    /// Begins to make a place with what takes a while and leaves nothing behind if it goes no further.
    pub(crate) fn begin(&self) -> Begun<'_> {
        match self {
            Self::Local(local) => Begun::Local(local),
            Self::Sandbox(sandboxed) => Begun::Sandbox(sandboxed, sandboxed.begin()),
            Self::Docker(docker) => Begun::Docker(docker),
        }
    }

    /// A stream to the guest, if the place is there.
    pub(crate) async fn reach_guest(&self, room: &Room) -> std::io::Result<UnixStream> {
        match self {
            Self::Local(_) | Self::Sandbox(_) | Self::Docker(_) => room.knock().await,
        }
    }

    /// Where the files of the place are on this machine, if they outlive it.
    pub(crate) fn files(&self, plan: &Plan) -> Option<PathBuf> {
        match self {
            Self::Local(_) => None,
            Self::Sandbox(sandboxed) => sandboxed.kept(plan),
            Self::Docker(docker) => docker.kept(plan),
        }
    }

    /// How many places are to be ready before anybody asks for one.
    pub fn ready(&self) -> u32 {
        match self {
            Self::Local(_) | Self::Sandbox(_) => 0,
            Self::Docker(docker) => docker.ready(),
        }
    }

    /// Whether whoever makes such a place speaks to engines.
    pub fn engines(&self) -> Engines {
        match self {
            Self::Local(_) | Self::Sandbox(_) => Engines::Leave,
            Self::Docker(_) => Engines::Ask,
        }
    }

    /// The container that holds the place, if one does.
    pub(crate) fn container(&self, plan: &Plan) -> Option<Container> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => None,
            Self::Docker(docker) => Some(docker.container(plan)),
        }
    }
}

/// A place that is about to be made.
pub(crate) enum Begun<'a> {
    Local(&'a Local),
    Sandbox(&'a Sandboxed, sandbox::Preparing),
    Docker(&'a Docker),
}

impl Begun<'_> {
    /// Makes the place, puts its guest there and gives a stream to it. What would outlive us, should we be killed, is
    /// written down before.
    pub(crate) async fn make(self, plan: &Plan, room: &Room, record: &Record) -> Result<Fresh, Error> {
        match self {
            Self::Local(local) => local.make(plan, room).await.map(Fresh::from),
            Self::Sandbox(sandboxed, preparing) => {
                sandboxed.make(plan, room, preparing).await.map(Fresh::from)
            }
            Self::Docker(docker) => docker.make(plan, room, record).await,
        }
    }
}
