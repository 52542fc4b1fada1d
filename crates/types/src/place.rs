//! Execution environments, called places in the code.

use serde::{Deserialize, Serialize};

use crate::{BackendName, Reach};

/// The identity of an environment: a hash of its installation, user, session, backend and
/// specification.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceId(String);

impl PlaceId {
    pub fn new(hash: impl Into<String>) -> Self {
        Self(hash.into())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The properties of an environment that the gate needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub id: PlaceId,
    pub backend: BackendName,
    pub reach: Reach,
    /// The absolute home directory of the user that runs commands.
    pub home: String,
    /// The Hermes home directory (configuration, approvals, audit log) as seen from inside.
    pub hermes_home: String,
}
