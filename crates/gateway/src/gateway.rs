//! Runs one channel: accepts its events in order, routes messages, cleans up, shuts down.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use hermes_session::{AuditLog, BusyPolicy, SessionHost, SessionPool};
use hermes_store::Store;
use hermes_types::Timestamp;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::access::{AccessControl, AccessDecision};
use crate::channel::{Channel, ChannelHealth, ChannelSink, FatalError, Inbound, InboundEvent};
use crate::context::GatewayContext;
use crate::frontend::StreamingOptions;
use crate::host::GatewayHost;
use crate::media::MediaSettings;
use crate::media_cache::{self, MediaCache};
use crate::message::{InboundMessage, ReplyTarget};
use crate::outbox::OutboxWorker;
use crate::rate_limit::RateLimit;
use crate::reset::ResetPolicy;
use crate::router::{Router, StoredMessage};
use crate::session_key::SessionScope;

const INBOUND_CAPACITY: usize = 64;
/// How long handled messages are remembered, to recognize duplicates, and attachments are kept.
const RETENTION_SECONDS: u64 = 7 * 24 * 3_600;
const CLEANUP_INTERVAL: Duration = Duration::from_secs(3_600);
/// How long running turns may take to finish on shutdown.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(30);
/// How long pending replies may take to be delivered on shutdown.
const FLUSH_TIMEOUT: Duration = Duration::from_secs(5);
pub(crate) const STORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Debug, Clone)]
pub struct GatewaySettings {
    pub scope: SessionScope,
    pub busy: BusyPolicy,
    pub rate_limit: RateLimit,
    pub streaming: StreamingOptions,
    pub reset: ResetPolicy,
    pub media: MediaSettings,
}

/// One channel with its router, sessions and outbox.
pub struct Gateway {
    context: Arc<GatewayContext>,
    router: Arc<Router>,
    /// Chats in which a slow step (acknowledging a command, opening a thread) is running. Later
    /// messages of the chat wait for it.
    busy_chats: HashMap<String, oneshot::Receiver<()>>,
}

impl Gateway {
    pub fn new(
        store: Store,
        channel: Arc<dyn Channel>,
        host: Arc<dyn GatewayHost>,
        access: AccessControl,
        audit: AuditLog,
        settings: GatewaySettings,
    ) -> Self {
        let tasks = TaskTracker::new();
        let outbox = Arc::new(OutboxWorker::new(Arc::clone(&channel), store.clone(), tasks.clone()));
        let session_host = Arc::clone(&host) as Arc<dyn SessionHost<InboundMessage>>;
        let sessions = Arc::new(SessionPool::new(store.clone(), session_host, settings.busy, tasks.clone()));
        let media = Arc::new(MediaCache::new(&settings.media.home, channel.platform().as_str()));
        let context =
            GatewayContext { store, channel, outbox, host, access, audit, settings, media, tasks, sessions };
        let context = Arc::new(context);
        let router = Arc::new(Router::new(Arc::clone(&context)));
        Self { context, router, busy_chats: HashMap::new() }
    }

    /// Resumes unfinished messages, then processes new ones until `stop` is cancelled.
    pub async fn run(
        mut self,
        health: watch::Sender<ChannelHealth>,
        stop: CancellationToken,
    ) -> Result<(), FatalError> {
        tokio::select! {
            () = self.recover() => {}
            () = stop.cancelled() => {}
        }
        let (inbound, mut events) = mpsc::channel(INBOUND_CAPACITY);
        let closing = CancellationToken::new();
        let outbox = tokio::spawn(Arc::clone(&self.context.outbox).run(closing.clone()));
        let channel = Arc::clone(&self.context.channel);
        let (bookmark, bookmarks) = watch::channel(None);
        let bookmarks = tokio::spawn(save_bookmarks(Arc::clone(&self.context), bookmarks));
        let cleanup = tokio::spawn(run_cleanup(self.context.store.clone(), Arc::clone(&self.context.media)));
        let sink = ChannelSink { inbound, health, bookmark };
        let mut connection = tokio::spawn(channel.run(sink, stop.clone()));
        let ended = loop {
            tokio::select! {
                Some(event) = events.recv() => self.accept(event).await,
                ended = &mut connection => break ended.unwrap_or_else(|error| Err(panicked_channel(&error))),
            }
        };
        cleanup.abort();
        // Turns that do not finish in time are resumed at the next start.
        self.context.sessions.close();
        if tokio::time::timeout(DRAIN_TIMEOUT, self.context.tasks.wait()).await.is_err() {
            tracing::warn!("turns are still running; the next start resumes them");
        }
        self.context.outbox.wake();
        // Deliver the replies of turns that just ended, if that is quick.
        let delivered = async {
            let platform = self.context.channel.platform().as_str();
            while self
                .context
                .store
                .pending_outbox(platform, Vec::new())
                .await
                .is_ok_and(|parts| !parts.is_empty())
            {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
        };
        tokio::time::timeout(FLUSH_TIMEOUT, delivered).await.ok();
        closing.cancel();
        outbox.await.ok();
        // It ends when the channel drops its sender.
        bookmarks.await.ok();
        ended
    }

    /// Resumes messages that were stored but not answered.
    async fn recover(&mut self) {
        let platform = self.context.channel.platform().as_str();
        self.context.media.clear_incoming();
        for copy in self.context.media.list_outgoing() {
            let name = copy.file_name().unwrap_or_default().to_string_lossy();
            // The outbox may still need the copy.
            if let Ok(false) = self.context.store.references_file(platform, &name).await {
                media_cache::remove_copy(&copy);
            }
        }
        let waiting = retry_store("cannot read the inbox", || self.context.store.pending_inbox(platform));
        for row in waiting.await.unwrap_or_default() {
            let message: InboundMessage = match serde_json::from_value(row.event) {
                Ok(message) => message,
                Err(error) => {
                    tracing::error!(%error, "cannot parse stored message");
                    continue;
                }
            };
            let check = || self.context.access.check(&message.chat, &message.sender);
            match retry_store("access check failed", check).await {
                Ok(AccessDecision::Granted(role)) => {
                    let stored =
                        StoredMessage { id: row.id, message, role, resumed: Some((row.key, row.turn)) };
                    self.route(stored).await;
                }
                // The sender lost access since; drop the message.
                Ok(AccessDecision::Denied(_)) => self.context.outbox.finish_message(row.id).await,
                // The next start checks again.
                Err(_) => {}
            }
        }
    }

    /// Stores and routes an inbound event. An event that cannot be stored is not acknowledged, so
    /// the platform delivers it again.
    async fn accept(&mut self, Inbound { event, ack }: Inbound) {
        match event {
            InboundEvent::ButtonPress(press) => {
                let router = Arc::clone(&self.router);
                self.context.spawn(async move { router.handle_button(*press).await });
            }
            InboundEvent::Message(message) => match self.router.store_message(*message).await {
                Ok(Some(stored)) => self.route(stored).await,
                Ok(None) => {}
                // It can never be stored; acknowledge it so that it does not block the others.
                Err(error @ hermes_store::Error::TooLarge { .. }) => {
                    tracing::error!(%error, "message is too large to store");
                }
                Err(error) => {
                    return tracing::error!(%error, "cannot store message; the platform will resend it");
                }
            },
        }
        // The channel may have stopped waiting for the acknowledgment.
        ack.send(()).ok();
    }

    /// Routes a message after earlier messages of its chat. Slow routing is spawned, not awaited.
    async fn route(&mut self, stored: StoredMessage) {
        let chat = match &stored.message.reply_target {
            ReplyTarget::SameChat => stored.message.chat.id.clone(),
            // A thread usually has the id of the message it is opened from: messages written in it
            // wait until it is open.
            ReplyTarget::NewThread(_) => stored.message.id.clone(),
        };
        self.busy_chats.retain(|_, done| done.try_recv() == Err(TryRecvError::Empty));
        let before = self.busy_chats.remove(&chat);
        if before.is_none() && !stored.is_slow_to_route() {
            return self.router.route(stored).await;
        }
        let (end, done) = oneshot::channel();
        self.busy_chats.insert(chat, done);
        let router = Arc::clone(&self.router);
        self.context.spawn(async move {
            if let Some(before) = before {
                before.await.ok();
            }
            router.route(stored).await;
            drop(end);
        });
    }
}

/// The error for a channel task that panicked.
pub(crate) fn panicked_channel(error: &tokio::task::JoinError) -> FatalError {
    let hint = "Restart the gateway; see `logs/agent.log`.".to_owned();
    FatalError { reason: format!("channel task panicked: {error}"), hint }
}

/// Deletes expired inbox rows, attachments and images, as long as the gateway runs.
async fn run_cleanup(store: Store, media: Arc<MediaCache>) {
    loop {
        let before = Timestamp::from_seconds(Timestamp::now().seconds().saturating_sub(RETENTION_SECONDS));
        if let Err(error) = store.prune_chat_messages(before).await {
            tracing::warn!(%error, "cannot prune the inbox");
        }
        let media = Arc::clone(&media);
        let prune = move || {
            media.prune_imported(Duration::from_secs(RETENTION_SECONDS));
            media.images.prune();
        };
        tokio::task::spawn_blocking(prune).await.ok();
        tokio::time::sleep(CLEANUP_INTERVAL).await;
    }
}

/// Repeats a store operation until it succeeds, or fails for good.
pub(crate) async fn retry_store<T, F: Future<Output = Result<T, hermes_store::Error>>>(
    failure: &str,
    operation: impl Fn() -> F,
) -> Result<T, hermes_store::Error> {
    loop {
        let result = operation().await;
        let Err(error) = &result else { return result };
        tracing::error!(%error, "{failure}");
        if matches!(error, hermes_store::Error::Closed | hermes_store::Error::TooLarge { .. }) {
            return result;
        }
        tokio::time::sleep(STORE_RETRY_INTERVAL).await;
    }
}

/// Saves the channel's bookmarks until the channel ends.
async fn save_bookmarks(context: Arc<GatewayContext>, mut bookmarks: watch::Receiver<Option<String>>) {
    let platform = context.channel.platform().as_str();
    while bookmarks.changed().await.is_ok() {
        let bookmark = bookmarks.borrow_and_update().clone();
        if let Some(bookmark) = bookmark
            && let Err(error) = context.store.set_bookmark(platform, &bookmark, Timestamp::now()).await
        {
            tracing::warn!(%error, "cannot save bookmark");
        }
    }
}

#[cfg(test)]
mod tests;
