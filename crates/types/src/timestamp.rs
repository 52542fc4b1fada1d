//! Moments, as values that are handed in.

use serde::{Deserialize, Serialize};

/// Seconds since 1970-01-01T00:00:00Z.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The moment this many seconds after 1970 began.
    pub const fn from_seconds(seconds: u64) -> Self {
        Self(seconds)
    }

    /// The seconds since 1970 began.
    pub const fn seconds(self) -> u64 {
        self.0
    }

    /// The moment this many seconds later.
    pub const fn plus(self, seconds: u64) -> Self {
        Self(self.0.saturating_add(seconds))
    }
}
