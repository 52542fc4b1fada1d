//! What the sessions of a channel share, and the table of running sessions.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use hermes_store::{InboxId, Store, TurnId};
use hermes_types::{Answer, Choice, Person, SessionKey, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;
use tokio_util::task::TaskTracker;

use crate::access::{AccessControl, UserRole};
use crate::approvals::ApprovalOverrides;
use crate::audit::AuditLog;
use crate::background::BackgroundTasks;
use crate::channel::Channel;
use crate::command::ChatCommand;
use crate::gateway::GatewaySettings;
use crate::host::SessionHost;
use crate::lock::lock;
use crate::media_cache::MediaCache;
use crate::message::{Chat, InboundMessage};
use crate::outbox::OutboxWorker;
use crate::session::{self, ChatSession, MAILBOX_CAPACITY, QUEUE_FULL_REPLY, SessionInput};

/// State shared by the sessions of a channel.
#[derive(Debug)]
pub(crate) struct GatewayContext {
    pub(crate) store: Store,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) outbox: Arc<OutboxWorker>,
    pub(crate) host: Arc<dyn SessionHost>,
    pub(crate) access: AccessControl,
    pub(crate) audit: AuditLog,
    pub(crate) settings: GatewaySettings,
    pub(crate) media: Arc<MediaCache>,
    pub(crate) background: BackgroundTasks,
    pub(crate) approvals: ApprovalOverrides,
    /// Everything that shutdown waits for.
    pub(crate) tasks: TaskTracker,
    sessions: Mutex<HashMap<SessionKey, mpsc::Sender<SessionInput>>>,
}

impl GatewayContext {
    pub(crate) fn new(
        store: Store,
        channel: Arc<dyn Channel>,
        host: Arc<dyn SessionHost>,
        access: AccessControl,
        audit: AuditLog,
        settings: GatewaySettings,
    ) -> Self {
        let tasks = TaskTracker::new();
        let outbox = Arc::new(OutboxWorker::new(Arc::clone(&channel), store.clone(), tasks.clone()));
        let media = Arc::new(MediaCache::new(&settings.media.home, channel.platform().as_str()));
        Self {
            store,
            channel,
            outbox,
            host,
            access,
            audit,
            settings,
            media,
            background: BackgroundTasks::default(),
            approvals: ApprovalOverrides::default(),
            tasks,
            sessions: Mutex::default(),
        }
    }

    pub(crate) fn session_input(
        &self,
        inbox_id: InboxId,
        message: InboundMessage,
        role: UserRole,
        turn: Option<TurnId>,
    ) -> SessionInput {
        let person = message.chat.platform.person(&message.sender.id);
        let approvers = self.access.approvers(message.chat.platform, &message.sender);
        let command = ChatCommand::from_message(&message);
        let (images, notes) = (Vec::new(), Vec::new());
        SessionInput { inbox_id, message, command, images, person, role, approvers, turn, notes }
    }

    /// Sends input to a session, whose task is started if needed.
    pub(crate) fn dispatch(self: &Arc<Self>, key: &SessionKey, input: SessionInput) {
        let rejected = {
            let mut sessions = lock(&self.sessions);
            // Shutting down: the message stays in the inbox for the next start.
            if self.tasks.is_closed() {
                return;
            }
            // Replace a session whose task panicked.
            if sessions.get(key).is_some_and(mpsc::Sender::is_closed) {
                sessions.remove(key);
            }
            let mailbox = sessions.entry(key.clone()).or_insert_with(|| {
                let (mailbox, inputs) = mpsc::channel(MAILBOX_CAPACITY);
                let session = ChatSession::new(Arc::clone(self), key.clone(), inputs, &input.message);
                self.tasks.spawn(session.run());
                mailbox
            });
            mailbox.try_send(input).err()
        };
        if let Some(rejected) = rejected {
            let (outbox, key, input) = (Arc::clone(&self.outbox), key.clone(), rejected.into_inner());
            self.spawn(async move {
                outbox.reply(input.inbox_id, &key, &input.message, QUEUE_FULL_REPLY).await;
            });
        }
    }

    /// Removes a session unless input arrived in the meantime.
    pub(crate) fn remove_session(&self, key: &SessionKey, mailbox: &mpsc::Receiver<SessionInput>) -> bool {
        let mut sessions = lock(&self.sessions);
        let is_idle = mailbox.is_empty();
        if is_idle {
            sessions.remove(key);
            self.outbox.clear_active_reply(key);
        }
        is_idle
    }

    /// Accepts no more input; sessions end after their current turn.
    pub(crate) fn close_sessions(&self) {
        self.tasks.close();
        lock(&self.sessions).clear();
    }

    /// Spawns work that shutdown waits for.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    /// Records that the bot takes part in a thread.
    pub(crate) async fn record_thread(&self, chat: &Chat) {
        let Some(thread) = &chat.thread else { return };
        self.channel.join_thread(thread);
        if let Err(error) = self.store.join_thread(chat.platform.as_str(), thread, Timestamp::now()).await {
            tracing::warn!(%error, "cannot record joined thread");
        }
    }

    /// Answers an approval question. Returns the text to show.
    pub(crate) async fn answer_question(
        &self,
        id: &str,
        person: &Person,
        role: UserRole,
        choice: Choice,
    ) -> String {
        let platform = self.channel.platform();
        if choice == Choice::Always && !self.access.may_grant_always(platform, person, role) {
            return "Only admins and approvers can use `always`, because it applies to everyone. You can allow \
                    this once or for this session."
                .to_owned();
        }
        let answer = Answer { by: person.clone(), at: Timestamp::now(), choice: choice.clone() };
        match self.store.answer_question(id, answer).await {
            Ok(answering) => {
                let text = session::answer_text(&answering, &choice);
                self.audit.record("answer", &json!({ "person": person, "question": id, "came_of_it": text }));
                text
            }
            Err(error) => error.to_string(),
        }
    }
}
