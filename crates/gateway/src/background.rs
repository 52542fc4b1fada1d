//! `/background` tasks. Each runs in its own session.

use std::sync::Mutex;

use hermes_types::SessionKey;
use tokio_util::sync::CancellationToken;

use crate::lock::lock;
use crate::session_key::parent_session;

pub(crate) const MAX_TASKS_PER_SESSION: usize = 8;

#[derive(Debug, Default)]
pub(crate) struct BackgroundTasks(Mutex<Vec<BackgroundTask>>);

#[derive(Debug, Clone)]
pub(crate) struct BackgroundTask {
    key: SessionKey,
    pub(crate) title: String,
    pub(crate) stop: CancellationToken,
}

impl BackgroundTasks {
    /// Registers the task if `key` is a background session.
    pub(crate) fn register(&self, key: &SessionKey, title: String) -> Option<BackgroundTask> {
        parent_session(key)?;
        let task = BackgroundTask { key: key.clone(), title, stop: CancellationToken::new() };
        lock(&self.0).push(task.clone());
        Some(task)
    }

    pub(crate) fn remove(&self, key: &SessionKey) {
        lock(&self.0).retain(|task| task.key != *key);
    }

    /// The running background tasks of a chat session.
    pub(crate) fn tasks_of(&self, chat: &SessionKey) -> Vec<BackgroundTask> {
        let is_here = |task: &&BackgroundTask| parent_session(&task.key).as_ref() == Some(chat);
        lock(&self.0).iter().filter(is_here).cloned().collect()
    }
}
