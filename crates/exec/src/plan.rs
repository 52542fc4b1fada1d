//! What a place is to be, and which place that makes it.

use std::path::PathBuf;
use std::time::Duration;

use hermes_types::{BackendName, Place, PlaceId, SessionKey};
use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::Backend;

/// What this hermes brings along, whatever place it makes.
#[derive(Debug, Clone)]
pub struct Host {
    /// Tells this installation from others on the same machine.
    pub install: String,
    /// Where sockets and records of places are. Short, since the path of a socket has room for about 100 bytes.
    pub run: PathBuf,
    /// Where the guest is kept.
    pub cache: PathBuf,
    /// Where hermes keeps its own files.
    pub home: PathBuf,
    /// How many places there may be at once.
    pub most_places: usize,
}

/// A place, as its owner wants it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Spec {
    /// What kind of place.
    pub backend: Backend,
    /// Where a session starts.
    pub cwd: String,
    /// The home directory of whoever runs commands there.
    pub home: String,
    /// Variables that commands get besides those of the place. Values are no part of the identity.
    #[serde(skip)]
    pub env: Vec<(String, String)>,
    /// Files of the place that bash sources when a session begins.
    pub init: Vec<String>,
    /// How long the place may be idle.
    pub lifetime: Duration,
}

/// A place that can be judged and made.
#[derive(Debug, Clone)]
pub struct Plan {
    pub(crate) host: Host,
    pub(crate) spec: Spec,
    pub(crate) session: SessionKey,
    id: PlaceId,
}

impl Plan {
    /// Gives the place its identity. Nothing is made yet.
    pub fn new(host: Host, spec: Spec, session: SessionKey) -> Self {
        let mut hash = Sha256::new();
        let uid = rustix::process::getuid().as_raw().to_string();
        let spec_text = serde_json::to_string(&spec).unwrap_or_default();
        for part in [host.install.as_str(), &uid, session.as_str(), spec.backend.name().word(), &spec_text] {
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part.as_bytes());
        }
        let id: String = hash.finalize().iter().take(16).map(|byte| format!("{byte:02x}")).collect();
        Self { host, spec, session, id: PlaceId::new(id) }
    }

    /// Which place this is.
    pub fn id(&self) -> &PlaceId {
        &self.id
    }

    /// What people call it.
    pub fn name(&self) -> String {
        let short: String = self.id.as_str().chars().take(8).collect();
        format!("hermes-{short}")
    }

    /// What the gate must know of it.
    pub fn place(&self) -> Place {
        Place {
            id: self.id.clone(),
            backend: self.backend(),
            reach: self.spec.backend.reach(),
            home: self.spec.home.clone(),
            hermes_home: self.host.home.display().to_string(),
        }
    }

    /// What kind of place it is.
    pub fn backend(&self) -> BackendName {
        self.spec.backend.name()
    }
}
