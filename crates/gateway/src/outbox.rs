//! Delivers outbox parts: in order within a chat, chats in parallel, until the outcome of each is
//! known.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_store::{DeliveryOutcome, DeliveryState, InboxId, NewOutboxRow, OutboxRow, Store};
use hermes_types::{SessionKey, Timestamp, lock};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::channel::{Channel, DeliveryCheck, OutboundMessage, Reaction, SendError};
use crate::frontend;
use crate::gateway::{STORE_RETRY_INTERVAL, retry_store};
use crate::media_cache;
use crate::message::{Chat, InboundMessage};
use crate::split::message_len;

const INITIAL_BACKOFF: Duration = Duration::from_millis(500);
const MAX_BACKOFF: Duration = Duration::from_secs(60);
/// Appended to a message that may have been sent before.
const DUPLICATE_NOTICE: &str = "(this may have been sent before)";

/// Delivers the outbox of one channel.
pub(crate) struct OutboxWorker {
    channel: Arc<dyn Channel>,
    store: Store,
    /// Runs retries of store writes; shutdown waits for them.
    tasks: TaskTracker,
    wake: Notify,
    delivered: watch::Sender<()>,
    active_replies: Mutex<HashMap<SessionKey, ActiveReply>>,
}

/// The message a session is answering, or answered last.
struct ActiveReply {
    message: InboundMessage,
    /// Whether a part of the reply could not be delivered.
    has_failed: bool,
}

impl OutboxWorker {
    pub(crate) fn new(channel: Arc<dyn Channel>, store: Store, tasks: TaskTracker) -> Self {
        Self {
            channel,
            store,
            tasks,
            wake: Notify::new(),
            delivered: watch::Sender::new(()),
            active_replies: Mutex::default(),
        }
    }

    /// Enqueues parts and marks inbox rows done, in one transaction. If the store fails, it is
    /// retried in the background.
    pub(crate) async fn enqueue(self: &Arc<Self>, inbox_ids: Vec<InboxId>, parts: Vec<NewOutboxRow>) {
        if let Err(error) = self.store.enqueue_reply(inbox_ids.clone(), parts.clone(), Timestamp::now()).await
        {
            tracing::error!(%error, "cannot store reply yet");
            let worker = Arc::clone(self);
            self.tasks.spawn(async move {
                tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                let enqueue =
                    || worker.store.enqueue_reply(inbox_ids.clone(), parts.clone(), Timestamp::now());
                // If it cannot be stored, the inbox rows stay open and are found at the next start.
                retry_store("cannot store reply yet", enqueue).await.ok();
                worker.wake();
            });
        }
        self.wake();
    }

    /// Replies to a message and marks it done.
    pub(crate) async fn reply(
        self: &Arc<Self>,
        inbox_id: InboxId,
        key: &SessionKey,
        message: &InboundMessage,
        text: &str,
    ) {
        self.enqueue(vec![inbox_id], frontend::reply_parts(&self.channel, key, message, text)).await;
    }

    /// Marks a message done without a reply.
    pub(crate) async fn finish_message(self: &Arc<Self>, inbox_id: InboxId) {
        self.enqueue(vec![inbox_id], Vec::new()).await;
    }

    /// Sends a message that belongs to no session.
    pub(crate) async fn send_notice(self: &Arc<Self>, chat: &Chat, text: &str) {
        let key = SessionKey::new(String::new());
        self.send(&key, &chat.id, vec![(None, OutboundMessage::text(text))]).await;
    }

    /// Sends messages with their part keys. A part with a known key is not sent again.
    pub(crate) async fn send(
        self: &Arc<Self>,
        key: &SessionKey,
        chat: &str,
        posts: Vec<(Option<String>, OutboundMessage)>,
    ) {
        let platform = self.channel.platform();
        let part = |(part_key, outbound)| frontend::outbox_part(platform, key, chat, part_key, &outbound);
        self.enqueue(Vec::new(), posts.into_iter().map(part).collect()).await;
    }

    /// Sets the message that gets a failure reaction if the reply cannot be delivered: text would
    /// not arrive either.
    pub(crate) fn set_active_reply(&self, key: &SessionKey, message: &InboundMessage) {
        lock(&self.active_replies)
            .insert(key.clone(), ActiveReply { message: message.clone(), has_failed: false });
    }

    /// Whether a part of the last reply could not be delivered.
    pub(crate) fn has_failed_delivery(&self, key: &SessionKey) -> bool {
        lock(&self.active_replies).get(key).is_some_and(|reply| reply.has_failed)
    }

    pub(crate) fn clear_active_reply(&self, key: &SessionKey) {
        lock(&self.active_replies).remove(key);
    }

    /// Sets the failure reaction on the answered message.
    fn mark_reply_failed(&self, key: &SessionKey) {
        let message = lock(&self.active_replies).get_mut(key).map(|reply| {
            reply.has_failed = true;
            reply.message.clone()
        });
        if let Some(message) = message {
            let channel = Arc::clone(&self.channel);
            // Spawned so that the chat's other parts do not wait.
            tokio::spawn(async move { channel.set_reaction(&message, Reaction::Failed).await });
        }
    }

    /// A receiver that changes whenever a delivery is decided.
    pub(crate) fn subscribe(&self) -> watch::Receiver<()> {
        self.delivered.subscribe()
    }

    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Delivers until `stop` is cancelled. A send in progress is abandoned; the store has recorded
    /// it as uncertain.
    pub(crate) async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut busy = HashSet::new();
        let mut chats = JoinSet::new();
        // Other processes enqueue parts too.
        let mut changes = self.store.change_stream();
        loop {
            for (chat, parts) in self.pending_by_chat(&busy).await {
                busy.insert(chat.clone());
                let worker = Arc::clone(&self);
                chats.spawn(async move {
                    for part in parts {
                        worker.deliver_with_retry(part).await;
                    }
                    chat
                });
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = self.wake.notified() => {}
                () = changes.next() => {}
                Some(done) = chats.join_next() => {
                    if let Ok(chat) = done {
                        busy.remove(&chat);
                    }
                }
            }
        }
    }

    /// Pending parts of idle chats, by chat.
    async fn pending_by_chat(&self, busy: &HashSet<String>) -> HashMap<String, Vec<OutboxRow>> {
        let mut chats: HashMap<String, Vec<OutboxRow>> = HashMap::new();
        // Excluding busy chats in the query keeps their backlog from hiding others.
        let without = busy.iter().cloned().collect();
        match self.store.pending_outbox(self.channel.platform().as_str(), without).await {
            Ok(parts) => {
                for part in parts {
                    chats.entry(part.chat.clone()).or_default().push(part);
                }
            }
            Err(error) => {
                tracing::error!(%error, "cannot read the outbox");
                tokio::time::sleep(STORE_RETRY_INTERVAL).await;
                self.wake();
            }
        }
        chats
    }

    async fn deliver_with_retry(&self, part: OutboxRow) {
        let Ok(mut outbound) = serde_json::from_value::<OutboundMessage>(part.body.clone()) else {
            tracing::error!(part = part.id.number(), "cannot parse outbox part");
            let outcome = DeliveryOutcome::Failed("it cannot be read".to_owned());
            return self.finish(&part, &OutboundMessage::default(), outcome).await;
        };
        // Unique even if the database is replaced and ids start again.
        let idempotency_key = format!("{:x}-{:x}", part.created.seconds(), part.id.number());
        let mut replaced = self.sent_message_id(outbound.replaces.as_deref()).await;
        let before = self.sent_message_id(outbound.continues.as_deref()).await;
        let chat = match &before {
            Some(before) => self.channel.followup_chat(&part.chat, before),
            None => &part.chat,
        };
        let mut is_uncertain = part.unconfirmed_since.is_some();
        let mut backoff = INITIAL_BACKOFF;
        loop {
            let (mut attempt, mut notice_follows) = (outbound.clone(), false);
            if is_uncertain && replaced.is_none() {
                match self.channel.find_message(chat, &outbound, &idempotency_key).await {
                    DeliveryCheck::Sent(message) => {
                        return self.finish(&part, &outbound, DeliveryOutcome::Sent(message)).await;
                    }
                    DeliveryCheck::NotSent => {}
                    DeliveryCheck::Unknown if !outbound.text.ends_with(DUPLICATE_NOTICE) => {
                        let (text, capabilities) =
                            (format!("{}\n{DUPLICATE_NOTICE}", outbound.text), self.channel.capabilities());
                        match message_len(&text) <= capabilities.max_message_len {
                            true => attempt.text = text,
                            false => notice_follows = true,
                        }
                    }
                    DeliveryCheck::Unknown => {}
                }
            }
            // Never send without recording it first: a restart could not tell whether it was sent.
            let record = || self.store.mark_sending(part.id, Timestamp::now());
            if retry_store("cannot deliver: database error", record).await.is_err() {
                return;
            }
            let sent = match &replaced {
                Some(message) => {
                    self.channel.edit_message(chat, message, &attempt).await.map(|()| message.clone())
                }
                None => self.channel.send_message(chat, &attempt, &idempotency_key).await,
            };
            match sent {
                Ok(message) => {
                    if notice_follows {
                        let chat = self.channel.followup_chat(chat, &message);
                        self.enqueue_notice(&part, chat, &outbound, "twice", DUPLICATE_NOTICE.to_owned())
                            .await;
                    }
                    if replaced.is_some() {
                        let (channel, chat, attempt) =
                            (Arc::clone(&self.channel), chat.to_owned(), attempt.clone());
                        let message = message.clone();
                        tokio::spawn(async move { channel.confirm_edit(&chat, &message, &attempt).await });
                    }
                    return self.finish(&part, &attempt, DeliveryOutcome::Sent(message)).await;
                }
                Err(SendError::Permanent(reason)) if replaced.is_some() => {
                    tracing::info!(chat, reason, "edit failed; sending a new message");
                    replaced = None;
                    continue;
                }
                Err(SendError::Permanent(reason)) => {
                    tracing::warn!(chat, reason, "delivery failed");
                    return self.finish(&part, &outbound, DeliveryOutcome::Failed(reason)).await;
                }
                Err(SendError::Unknown(reason)) => {
                    tracing::warn!(chat, reason, "delivery uncertain");
                    (is_uncertain, outbound) = (true, attempt);
                    tokio::time::sleep(backoff).await;
                }
                Err(SendError::Retry { after, reason }) => {
                    tracing::info!(chat, reason, "delivery postponed");
                    // An earlier attempt may have succeeded all the same.
                    if !is_uncertain {
                        self.record_delivery(&part, DeliveryOutcome::Retry(reason)).await;
                    }
                    tokio::time::sleep(after.unwrap_or(backoff)).await;
                }
            }
            backoff = MAX_BACKOFF.min(backoff * 2);
        }
    }

    /// Finishes a part and deletes its file copies.
    async fn finish(&self, part: &OutboxRow, outbound: &OutboundMessage, delivery: DeliveryOutcome) {
        if let DeliveryOutcome::Failed(reason) = &delivery {
            self.mark_reply_failed(&part.key);
            if !outbound.files.is_empty() {
                let names: Vec<&str> = outbound.files.iter().map(|file| file.name.as_str()).collect();
                let text = format!("(could not send {}: {reason})", names.join(", "));
                self.enqueue_notice(part, &part.chat, outbound, "unsent", text).await;
            }
        }
        if let DeliveryOutcome::Sent(message) = &delivery
            && self.channel.followup_chat(&part.chat, message) != part.chat
            && let Err(error) =
                self.store.join_thread(self.channel.platform().as_str(), message, Timestamp::now()).await
        {
            tracing::error!(%error, "cannot record new thread");
        }
        if self.record_delivery(part, delivery).await {
            outbound.files.iter().for_each(|file| media_cache::remove_copy(&file.path));
        }
    }

    /// Enqueues a message about a part, once.
    async fn enqueue_notice(
        &self,
        part: &OutboxRow,
        chat: &str,
        outbound: &OutboundMessage,
        what: &str,
        text: String,
    ) {
        let notice = OutboundMessage { reply_to: outbound.reply_to.clone(), ..OutboundMessage::text(text) };
        let part_key = Some(format!("{what}-{:x}-{:x}", part.created.seconds(), part.id.number()));
        let row = frontend::outbox_part(self.channel.platform(), &part.key, chat, part_key, &notice);
        if let Err(error) = self.store.enqueue_reply(Vec::new(), vec![row], Timestamp::now()).await {
            tracing::error!(%error, what, "cannot enqueue delivery notice");
        }
    }

    /// The message id of a delivered part. Parts of a chat are delivered in order, so a part before
    /// this one is decided.
    async fn sent_message_id(&self, part_key: Option<&str>) -> Option<String> {
        let part_key = part_key?;
        let state = || self.store.delivery_state(part_key);
        match retry_store("cannot deliver: database error", state).await {
            Ok(Some(DeliveryState::Sent(message))) => Some(message),
            Ok(Some(DeliveryState::Pending | DeliveryState::Failed) | None) | Err(_) => None,
        }
    }

    /// Records the outcome; returns whether it was recorded.
    async fn record_delivery(&self, part: &OutboxRow, delivery: DeliveryOutcome) -> bool {
        let record = || self.store.record_delivery(part.id, delivery.clone(), Timestamp::now());
        let recorded = retry_store("cannot record delivery", record).await.is_ok();
        self.delivered.send_replace(());
        recorded
    }
}
