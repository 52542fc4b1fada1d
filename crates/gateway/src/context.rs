//! What the sessions of a channel share.

use std::sync::Arc;

use hermes_session::{AuditLog, SessionInput, SessionPool, UserRole, answer_question};
use hermes_store::{InboxId, Store, TurnId};
use hermes_types::{Attendance, Choice, Person, SessionKey, Timestamp};
use serde_json::json;
use tokio_util::task::TaskTracker;

use crate::access::AccessControl;
use crate::channel::Channel;
use crate::frontend::{ChatFrontend, ChatInput, QUEUE_FULL_REPLY};
use crate::gateway::GatewaySettings;
use crate::host::GatewayHost;
use crate::media_cache::MediaCache;
use crate::message::{Chat, InboundMessage};
use crate::outbox::OutboxWorker;

/// State shared by the sessions of a channel.
pub(crate) struct GatewayContext {
    pub(crate) store: Store,
    pub(crate) channel: Arc<dyn Channel>,
    pub(crate) outbox: Arc<OutboxWorker>,
    pub(crate) host: Arc<dyn GatewayHost>,
    pub(crate) access: AccessControl,
    pub(crate) audit: AuditLog,
    pub(crate) settings: GatewaySettings,
    pub(crate) media: Arc<MediaCache>,
    /// Everything that shutdown waits for.
    pub(crate) tasks: TaskTracker,
    pub(crate) sessions: Arc<SessionPool<InboundMessage>>,
}

impl GatewayContext {
    pub(crate) fn session_input(
        &self,
        inbox_id: InboxId,
        message: InboundMessage,
        role: UserRole,
        turn: Option<TurnId>,
    ) -> ChatInput {
        let person = message.chat.platform.person(&message.sender.id);
        let approvers = self.access.approvers(message.chat.platform, &message.sender);
        let input = SessionInput::new(message, person, role, Attendance::Attended(approvers));
        SessionInput { inbox_id: Some(inbox_id), turn, ..input }
    }

    /// Sends input to a session, whose task is started if needed.
    pub(crate) fn dispatch(self: &Arc<Self>, key: &SessionKey, input: ChatInput) {
        let chat = input.message.chat.clone();
        let frontend = |task| ChatFrontend::new(Arc::clone(self), key.clone(), chat, task);
        if let Some(rejected) = self.sessions.dispatch(key, input, frontend)
            && let Some(inbox_id) = rejected.inbox_id
        {
            let (outbox, key) = (Arc::clone(&self.outbox), key.clone());
            self.spawn(async move {
                outbox.reply(inbox_id, &key, &rejected.message, QUEUE_FULL_REPLY).await;
            });
        }
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
        let text = answer_question(&self.store, id, person, choice).await;
        self.audit.record("answer", &json!({ "person": person, "question": id, "came_of_it": text }));
        text
    }
}
