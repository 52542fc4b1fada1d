//! Sessions in which approvals are turned off with `/yolo`.

use std::collections::HashSet;
use std::sync::Mutex;

use hermes_agent::QuestionPolicy;
use hermes_types::SessionKey;

use crate::lock::lock;

/// The sessions with approvals turned off. Not persisted: a restart turns them on.
#[derive(Debug, Default)]
pub(crate) struct ApprovalOverrides(Mutex<HashSet<SessionKey>>);

impl ApprovalOverrides {
    pub(crate) fn mode(&self, key: &SessionKey) -> QuestionPolicy {
        if lock(&self.0).contains(key) { QuestionPolicy::Waive } else { QuestionPolicy::Ask }
    }

    /// Turns approvals off, or on again, and returns which.
    pub(crate) fn toggle(&self, key: &SessionKey) -> QuestionPolicy {
        let was_off = lock(&self.0).remove(key);
        if !was_off {
            lock(&self.0).insert(key.clone());
        }
        self.mode(key)
    }

    pub(crate) fn restore(&self, key: &SessionKey) {
        lock(&self.0).remove(key);
    }
}
