//! Which limits hold.

use serde::{Deserialize, Serialize};

/// What became of each limit that was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// Memory.
    pub memory: Hold,
    /// Processes and threads.
    pub processes: Hold,
    /// Processor time.
    pub cpu: Hold,
    /// Bytes in the directories that can be written and are kept.
    pub disk: Hold,
    /// Open files.
    pub open_files: Hold,
}

/// What became of one limit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hold {
    /// Nobody asked.
    NotAsked,
    /// The jail as a whole cannot use more.
    Held,
    /// Each process cannot use more, but together they can.
    EachProcess {
        /// Why not the whole jail.
        reason: String,
    },
    /// It is not enforced.
    NotHeld {
        /// Why.
        reason: String,
    },
}

impl Hold {
    pub(crate) fn not(reason: impl Into<String>) -> Self {
        Self::NotHeld { reason: reason.into() }
    }
}
