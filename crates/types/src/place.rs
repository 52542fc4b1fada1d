//! Execution environments, called places in the code.

use crate::{BackendName, Egress, Reach};

crate::text_id! {
    /// The identity of an environment: a hash of its installation, user, session, backend and
    /// specification.
    PlaceId
}

/// The properties of an environment that the gate needs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    pub id: PlaceId,
    pub backend: BackendName,
    pub reach: Reach,
    pub egress: Egress,
    /// The absolute home directory of the user that runs commands.
    pub home: String,
    /// The Hermes home directory (configuration, approvals, audit log) as seen from inside.
    pub hermes_home: String,
}
