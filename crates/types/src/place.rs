//! Where a command runs.

use serde::{Deserialize, Serialize};

use crate::{BackendName, Reach};

/// The identity of one place: the hash of everything that makes it this place and no other.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PlaceId(String);

impl PlaceId {
    /// The place with this hash.
    pub fn new(hash: impl Into<String>) -> Self {
        Self(hash.into())
    }

    /// The hash as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// A place, as far as others must know it to judge what happens there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// Which place.
    pub id: PlaceId,
    /// What kind of place.
    pub backend: BackendName,
    /// What it can touch outside itself.
    pub reach: Reach,
    /// The home directory of the user that runs commands there, absolute.
    pub home: String,
    /// Where Hermes keeps its own configuration, approvals and audit, as seen from inside the place.
    pub hermes_home: String,
}
