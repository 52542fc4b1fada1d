//! The part of the host that an environment can reach.

use serde::{Deserialize, Serialize};

/// The damage that a command in an environment can do. Computed from the final creation request,
/// never from the backend name.
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
