//! Sessions in which approvals are turned off with `/yolo`.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_agent::QuestionPolicy;
use hermes_types::SessionKey;

/// The sessions with approvals turned off. Not persisted: a restart turns them on.
#[derive(Debug, Default)]
pub(crate) struct ApprovalOverrides(Mutex<HashSet<SessionKey>>);

impl ApprovalOverrides {
    pub(crate) fn mode(&self, key: &SessionKey) -> QuestionPolicy {
        if self.sessions().contains(key) { QuestionPolicy::Waive } else { QuestionPolicy::Ask }
    }

    /// Turns approvals off, or on again, and returns which.
    pub(crate) fn toggle(&self, key: &SessionKey) -> QuestionPolicy {
        let was_off = self.sessions().remove(key);
        if !was_off {
            self.sessions().insert(key.clone());
        }
        self.mode(key)
    }

    pub(crate) fn restore(&self, key: &SessionKey) {
        self.sessions().remove(key);
    }

    fn sessions(&self) -> MutexGuard<'_, HashSet<SessionKey>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
