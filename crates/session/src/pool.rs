//! What the sessions of a process share, and the table of running sessions.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

use hermes_agent::QuestionPolicy;
use hermes_store::Store;
use hermes_types::SessionKey;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::background::{BackgroundTask, parent_session, task_title};
use crate::{BusyPolicy, Frontend, SessionActor, SessionHost, SessionInput, SessionMessage, lock};

/// Inputs that may wait for a session; more are rejected.
pub(crate) const MAILBOX_CAPACITY: usize = 64;

/// The sessions of a process, and what they share.
pub struct SessionPool<M> {
    pub(crate) store: Store,
    pub(crate) host: Arc<dyn SessionHost<M>>,
    pub(crate) busy: BusyPolicy,
    tasks: TaskTracker,
    mailboxes: Mutex<HashMap<SessionKey, mpsc::Sender<SessionInput<M>>>>,
    background: Mutex<Vec<BackgroundTask>>,
    /// Sessions with approvals turned off. Not persisted: a restart turns them on.
    unasked: Mutex<HashSet<SessionKey>>,
    /// Models chosen with `/model`.
    models: Mutex<HashMap<SessionKey, String>>,
}

impl<M: SessionMessage> SessionPool<M> {
    /// `tasks` is everything that shutdown waits for.
    pub fn new(store: Store, host: Arc<dyn SessionHost<M>>, busy: BusyPolicy, tasks: TaskTracker) -> Self {
        let (mailboxes, background) = (Mutex::default(), Mutex::default());
        let (unasked, models) = (Mutex::default(), Mutex::default());
        Self { store, host, busy, tasks, mailboxes, background, unasked, models }
    }

    /// Sends input to a session, whose task is started if needed. Returns the input if the mailbox
    /// is full.
    pub fn dispatch<F: Frontend<Message = M>>(
        self: &Arc<Self>,
        key: &SessionKey,
        input: SessionInput<M>,
        frontend: impl FnOnce(Option<BackgroundTask>) -> F,
    ) -> Option<SessionInput<M>> {
        let mut mailboxes = lock(&self.mailboxes);
        // Shutting down: a stored message stays in the inbox for the next start.
        if self.tasks.is_closed() {
            return None;
        }
        // Replace a session whose task panicked.
        if mailboxes.get(key).is_some_and(mpsc::Sender::is_closed) {
            mailboxes.remove(key);
        }
        let mailbox = mailboxes.entry(key.clone()).or_insert_with(|| {
            let (mailbox, inputs) = mpsc::channel(MAILBOX_CAPACITY);
            let task = self.register_task(key, input.message.text());
            let frontend = Arc::new(frontend(task.clone()));
            let actor = SessionActor::new(Arc::clone(self), frontend, key.clone(), inputs, task);
            self.tasks.spawn(actor.run());
            mailbox
        });
        mailbox.try_send(input).err().map(mpsc::error::TrySendError::into_inner)
    }

    /// Removes a session unless input arrived in the meantime.
    pub(crate) fn remove_session<F: Frontend<Message = M>>(
        &self,
        key: &SessionKey,
        mailbox: &mpsc::Receiver<SessionInput<M>>,
        frontend: &F,
    ) -> bool {
        let mut mailboxes = lock(&self.mailboxes);
        let is_idle = mailbox.is_empty();
        if is_idle {
            mailboxes.remove(key);
            frontend.on_closed();
        }
        is_idle
    }

    /// Accepts no more input; sessions end after their current turn.
    pub fn close(&self) {
        self.tasks.close();
        lock(&self.mailboxes).clear();
    }

    /// Accepts no more input and stops background tasks.
    pub fn stop(&self) {
        self.close();
        lock(&self.background).iter().for_each(|task| task.stop.cancel());
    }

    /// Registers the task if `key` is a background session.
    fn register_task(&self, key: &SessionKey, text: &str) -> Option<BackgroundTask> {
        parent_session(key)?;
        let stop = CancellationToken::new();
        let task = BackgroundTask { key: key.clone(), title: task_title(text), stop };
        lock(&self.background).push(task.clone());
        Some(task)
    }

    pub(crate) fn remove_task(&self, key: &SessionKey) {
        lock(&self.background).retain(|task| task.key != *key);
    }

    /// The running background tasks of a session.
    pub fn background_tasks(&self, parent: &SessionKey) -> Vec<BackgroundTask> {
        let is_child = |task: &&BackgroundTask| parent_session(&task.key).as_ref() == Some(parent);
        lock(&self.background).iter().filter(is_child).cloned().collect()
    }

    pub(crate) fn question_policy(&self, key: &SessionKey) -> QuestionPolicy {
        if lock(&self.unasked).contains(key) { QuestionPolicy::Waive } else { QuestionPolicy::Ask }
    }

    /// Turns approvals off, or on again, and returns which.
    pub(crate) fn toggle_approvals(&self, key: &SessionKey) -> QuestionPolicy {
        let was_off = lock(&self.unasked).remove(key);
        if !was_off {
            lock(&self.unasked).insert(key.clone());
        }
        self.question_policy(key)
    }

    pub(crate) fn restore_approvals(&self, key: &SessionKey) {
        lock(&self.unasked).remove(key);
    }

    pub(crate) fn model_choice(&self, key: &SessionKey) -> Option<String> {
        lock(&self.models).get(key).cloned()
    }

    /// Chooses the model of a session.
    pub fn set_model(&self, key: &SessionKey, model: String) {
        lock(&self.models).insert(key.clone(), model);
    }
}
