//! What an environment can reach of the host.

use serde::{Deserialize, Serialize};

/// What a command in an environment can damage. Computed from the final creation request, never from
/// the backend name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Only the environment itself.
    Nothing,
    /// These directories of the owner, by their paths inside the environment.
    Directories(Vec<String>),
    /// The host, or so much of it that no narrower limit can be guaranteed.
    Host,
}
