//! What the owner asked for besides, in the words of `docker run`.

use serde::Serialize;

/// Options with a known meaning.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Extra {}

impl Extra {
    /// Whether a command could hurt the host through one of them.
    pub fn reaches_host(&self) -> bool {
        false
    }
}
