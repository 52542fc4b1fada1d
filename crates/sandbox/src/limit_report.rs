//! Which resource limits are enforced.

use serde::{Deserialize, Serialize};

/// The status of each limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LimitReport {
    pub memory: LimitStatus,
    pub processes: LimitStatus,
    pub cpu: LimitStatus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum LimitStatus {
    NotRequested,
    /// Enforced for the jail as a whole.
    Enforced,
    /// Enforced for each process, but not for all together.
    PerProcess {
        /// Why the limit does not apply to the whole jail.
        reason: String,
    },
    NotEnforced {
        reason: String,
    },
}
