//! Routes messages: authorize, store, acknowledge, limit the rate, open the reply thread, choose the
//! session.

use std::sync::Arc;
use std::time::Duration;

use hermes_session::{SessionCommand, UserRole};
use hermes_store::{InboxId, NewInboxRow, TurnId};
use hermes_types::{SessionKey, Timestamp};
use serde_json::json;

use crate::access::{AccessDecision, StrangerPolicy};
use crate::channel::{Reaction, SendError};
use crate::context::GatewayContext;
use crate::frontend::{self, ChatInput};
use crate::gateway::retry_store;
use crate::message::{ButtonPress, ChatKind, InboundMessage, ReplyTarget};
use crate::rate_limit::{RateLimit, RateLimiter, Throttle};
use crate::session_key::session_key;

/// A stranger is audited at most this often, so that strangers cannot fill the disk.
const STRANGER_AUDIT_LIMIT: RateLimit = RateLimit { per_minute: 1, burst: 1 };
const THREAD_ATTEMPTS: u32 = 3;

/// Decides what happens to an inbound event, and which session gets it.
pub(crate) struct Router {
    context: Arc<GatewayContext>,
    limiter: RateLimiter,
    stranger_limiter: RateLimiter,
}

/// A message in the inbox that no session has yet.
pub(crate) struct StoredMessage {
    pub(crate) id: InboxId,
    pub(crate) message: InboundMessage,
    pub(crate) role: UserRole,
    /// Session and turn of a message that was stored before this start.
    pub(crate) resumed: Option<(SessionKey, Option<TurnId>)>,
}

impl StoredMessage {
    /// Whether routing waits for the platform.
    pub(crate) fn is_slow_to_route(&self) -> bool {
        self.needs_acknowledgment() || self.message.reply_target != ReplyTarget::SameChat
    }

    fn needs_acknowledgment(&self) -> bool {
        let has_turn = self.resumed.as_ref().is_some_and(|(_, turn)| turn.is_some());
        let command = self.message.interaction.as_ref();
        command.is_some_and(|command| !command.is_acknowledged) && !has_turn
    }
}

impl Router {
    pub(crate) fn new(context: Arc<GatewayContext>) -> Self {
        let limiter = RateLimiter::new(context.settings.rate_limit);
        Self { context, limiter, stranger_limiter: RateLimiter::new(STRANGER_AUDIT_LIMIT) }
    }

    /// Stores a message if its sender has access and it is new.
    pub(crate) async fn store_message(
        &self,
        message: InboundMessage,
    ) -> Result<Option<StoredMessage>, hermes_store::Error> {
        let Some(role) = self.authorize(&message).await? else { return Ok(None) };
        let row = NewInboxRow {
            platform: message.chat.platform.as_str().to_owned(),
            chat: message.chat.id.clone(),
            message: message.id.clone(),
            key: self.session_key(&message),
            person: message.chat.platform.person(&message.sender.id),
            at: Timestamp::now(),
            event: json!(message),
        };
        let id = self.context.store.receive_message(row).await?;
        Ok(id.map(|id| StoredMessage { id, message, role, resumed: None }))
    }

    /// Checks the sender's access. A stranger may get a pairing code.
    async fn authorize(&self, message: &InboundMessage) -> Result<Option<UserRole>, hermes_store::Error> {
        let context = &self.context;
        let policy = match context.access.check(&message.chat, &message.sender).await? {
            AccessDecision::Granted(role) => return Ok(Some(role)),
            AccessDecision::Denied(policy) => policy,
        };
        let platform = message.chat.platform;
        // A message accepted earlier is not answered with a pairing code now.
        if context.store.is_received(platform.as_str(), &message.chat.id, &message.id).await? {
            return Ok(None);
        }
        let person = platform.person(&message.sender.id);
        if self.stranger_limiter.try_acquire(&person, Timestamp::now()).is_ok() {
            context.audit.record("stranger", &json!({ "person": person, "room": message.chat.id }));
        }
        if policy == StrangerPolicy::Pair
            && let Some(text) =
                context.access.pairing_reply(&message.chat, &message.sender, Timestamp::now()).await?
        {
            context.outbox.send_notice(&message.chat, &text).await;
        }
        Ok(None)
    }

    /// Hands a stored message to its session, unless its command failed or its sender is too fast.
    pub(crate) async fn route(&self, stored: StoredMessage) {
        let needs_acknowledgment = stored.needs_acknowledgment();
        let StoredMessage { id, message, role, resumed } = stored;
        let is_new = resumed.is_none();
        let (key, turn) = resumed.unwrap_or_else(|| (self.session_key(&message), None));
        let mut input = self.context.session_input(id, message, role, turn);
        if needs_acknowledgment && let Some(command) = &mut input.message.interaction {
            command.is_acknowledged = self.context.channel.acknowledge_command(command).await;
            // The platform already reported a failure to the user.
            if !command.is_acknowledged {
                return self.context.outbox.finish_message(id).await;
            }
        }
        if is_new && let Err(throttle) = self.check_rate(&input) {
            return self.reject(id, input, &key, throttle).await;
        }
        let has_thread = self.open_thread(&mut input).await;
        let key = if has_thread { self.session_key(&input.message) } else { key };
        if needs_acknowledgment || has_thread {
            let event = json!(input.message);
            let update = || self.context.store.reassign(id, &key, event.clone());
            if retry_store("cannot update stored message", update).await.is_err() {
                return;
            }
        }
        if is_new {
            self.context.audit.record("letter", &audit_entry(&input, &key));
        }
        if input.message.chat.kind == ChatKind::Thread {
            self.context.record_thread(&input.message.chat).await;
        }
        self.context.dispatch(&key, input);
    }

    fn session_key(&self, message: &InboundMessage) -> SessionKey {
        session_key(&message.chat, &message.sender.id, self.context.settings.scope)
    }

    /// Counts a message. Commands that stop or answer something are exempt.
    fn check_rate(&self, input: &ChatInput) -> Result<(), Throttle> {
        match input.command {
            Some(SessionCommand::Stop(_) | SessionCommand::Answer { .. }) => Ok(()),
            _ => self.limiter.try_acquire(&input.person, input.message.sent_at),
        }
    }

    /// Rejects a message of a sender who is too fast. The first one gets a reply, each a reaction.
    async fn reject(&self, id: InboxId, input: ChatInput, key: &SessionKey, throttle: Throttle) {
        let seconds = throttle.retry_after.as_secs() + 1;
        let text =
            format!("You're sending messages too quickly; this one was ignored. Try again in {seconds}s.");
        if throttle.is_first {
            self.context.audit.record("flood", &audit_entry(&input, key));
            self.context.outbox.reply(id, key, &input.message, &text).await;
        } else {
            self.context.outbox.finish_message(id).await;
        }
        let channel = Arc::clone(&self.context.channel);
        self.context.spawn(async move {
            match &input.message.interaction {
                Some(interaction) => channel.reply_privately(interaction, &text).await,
                None => channel.set_reaction(&input.message, Reaction::Failed).await,
            }
        });
    }

    /// Opens the thread that the reply goes to, and moves the message there. Opening it again after
    /// a crash gives the same thread. Without a thread the reply goes to the channel. Returns whether
    /// a thread was wanted.
    async fn open_thread(&self, input: &mut ChatInput) -> bool {
        let message = &mut input.message;
        let target = std::mem::replace(&mut message.reply_target, ReplyTarget::SameChat);
        let ReplyTarget::NewThread(name) = target else { return false };
        for attempt in 1..=THREAD_ATTEMPTS {
            match self.context.channel.open_thread(message, &name).await {
                Ok(thread) => {
                    message.chat = thread;
                    break;
                }
                Err(error) => {
                    tracing::warn!(%error, attempt, "cannot open thread");
                    if matches!(error, SendError::Permanent(_)) || attempt == THREAD_ATTEMPTS {
                        input.notes.push(format!("could not open a thread: {error}"));
                        break;
                    }
                    tokio::time::sleep(Duration::from_secs(u64::from(attempt))).await;
                }
            }
        }
        true
    }

    pub(crate) async fn handle_button(&self, press: ButtonPress) {
        let context = &self.context;
        // Strangers get no answer.
        let Ok(AccessDecision::Granted(role)) = context.access.check(&press.chat, &press.sender).await else {
            return;
        };
        let person = press.chat.platform.person(&press.sender.id);
        let text = match frontend::parse_button(&press.value) {
            Some((id, choice)) => context.answer_question(id, &person, role, choice).await,
            None => "This button no longer works.".to_owned(),
        };
        context.channel.reply_privately(&press.interaction, &text).await;
    }
}

fn audit_entry(input: &ChatInput, key: &SessionKey) -> serde_json::Value {
    json!({ "person": input.person, "session": key, "message": input.message.id })
}
