//! What is worked on beside the conversations of chats, each in a session of its own.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hermes_types::SessionKey;
use tokio_util::sync::CancellationToken;

use crate::key::chat_of;

/// How much is worked on beside one conversation at once.
pub(crate) const MOST: usize = 8;

/// All of it.
#[derive(Debug, Default)]
pub(crate) struct Beside(Mutex<Vec<Task>>);

/// One thing that is worked on.
#[derive(Debug, Clone)]
pub(crate) struct Task {
    /// Its session.
    key: SessionKey,
    /// What people call it.
    pub(crate) title: String,
    /// Ends it.
    pub(crate) stop: CancellationToken,
}

impl Beside {
    /// Notes what is worked on from now on, if this is the session of such work.
    pub(crate) fn enter(&self, key: &SessionKey, title: String) -> Option<Task> {
        chat_of(key)?;
        let task = Task { key: key.clone(), title, stop: CancellationToken::new() };
        self.tasks().push(task.clone());
        Some(task)
    }

    /// Notes that it is done.
    pub(crate) fn leave(&self, key: &SessionKey) {
        self.tasks().retain(|task| task.key != *key);
    }

    /// What is worked on beside the conversation of a chat.
    pub(crate) fn of(&self, chat: &SessionKey) -> Vec<Task> {
        let is_here = |task: &&Task| chat_of(&task.key).as_ref() == Some(chat);
        self.tasks().iter().filter(is_here).cloned().collect()
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Task>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
