//! What a place can touch outside itself.

use serde::{Deserialize, Serialize};

/// What a command in a place can hurt, computed from the final creation request and never from the backend's name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Reach {
    /// Nothing of the owner's: the place can only hurt itself.
    Nothing,
    /// Only these directories of the owner, by their paths inside the place.
    Directories(Vec<String>),
    /// The host itself, or enough of it that no smaller promise can be made.
    Host,
}
