//! The kinds of places, one file each.

pub mod bind;
mod local;
pub mod sandbox;

use std::path::PathBuf;

use hermes_types::{BackendName, Network, Reach};
use serde::Serialize;
use tokio::net::UnixStream;

use crate::registry::Room;
use crate::{Error, Plan};

pub use bind::{Bind, Writable};
pub use local::Local;
pub use sandbox::Sandboxed;

/// A kind of place with its settings.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub enum Backend {
    /// This machine.
    Local(Local),
    /// A jail on this machine.
    Sandbox(Sandboxed),
}

impl Backend {
    /// The word in the configuration.
    pub fn name(&self) -> BackendName {
        match self {
            Self::Local(_) => BackendName::Local,
            Self::Sandbox(_) => BackendName::Sandbox,
        }
    }

    /// What commands there can hurt.
    pub fn reach(&self) -> Reach {
        match self {
            Self::Local(_) => Reach::Host,
            Self::Sandbox(sandboxed) => sandboxed.reach(),
        }
    }

    /// What commands there reach over the network.
    pub fn network(&self) -> Network {
        match self {
            Self::Local(_) => Network::Full,
            Self::Sandbox(sandboxed) => sandboxed.network,
        }
    }

    /// Begins to make a place with what takes a while and leaves nothing behind if it goes no further.
    pub(crate) fn begin(&self) -> Begun<'_> {
        match self {
            Self::Local(local) => Begun::Local(local),
            Self::Sandbox(sandboxed) => Begun::Sandbox(sandboxed, sandboxed.begin()),
        }
    }

    /// A stream to the guest, if the place is there.
    pub(crate) async fn reach_guest(&self, room: &Room) -> std::io::Result<UnixStream> {
        match self {
            Self::Local(_) | Self::Sandbox(_) => room.knock().await,
        }
    }

    /// Where the files of the place are on this machine, if they outlive it.
    pub(crate) fn files(&self, plan: &Plan) -> Option<PathBuf> {
        match self {
            Self::Local(_) => None,
            Self::Sandbox(sandboxed) => sandboxed.kept(plan),
        }
    }
}

/// A place that is about to be made.
pub(crate) enum Begun<'a> {
    Local(&'a Local),
    Sandbox(&'a Sandboxed, sandbox::Preparing),
}

impl Begun<'_> {
    /// Makes the place, puts its guest there and gives a stream to it.
    pub(crate) async fn make(self, plan: &Plan, room: &Room) -> Result<UnixStream, Error> {
        match self {
            Self::Local(local) => local.make(plan, room).await,
            Self::Sandbox(sandboxed, preparing) => sandboxed.make(plan, room, preparing).await,
        }
    }
}
