//! The part of the host that an environment can reach, and what can leave through its network.

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

/// What commands can send or ask for through the network of an environment, even one where they can
/// damage nothing outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Egress {
    /// They can read data of the owner and send it away.
    pub sends_owner_data: bool,
    /// They reach addresses that are not public, such as other machines of the owner and the
    /// metadata service of a cloud.
    pub reaches_private_addresses: bool,
}

impl Egress {
    /// The assumption where nothing is known.
    pub const ALL: Self = Self { sends_owner_data: true, reaches_private_addresses: true };
    pub const NONE: Self = Self { sends_owner_data: false, reaches_private_addresses: false };

    pub fn all() -> Self {
        Self::ALL
    }
}
