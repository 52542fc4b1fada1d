//! The gateway with a fake channel and host.

use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use hermes_session::{
    Error, ModelConfig, SessionConfig, SessionHost, SessionRequest, SystemPrompt, ToolContext,
};
use hermes_store::{DeliveryState, NewInboxRow};
use hermes_types::{Person, SessionKey};
use serde_json::json;
use tokio_util::task::TaskTracker;

use super::*;
use crate::access::{AccessSettings, PlatformAccess};
use crate::channel::{BoxFuture, DeliveryCheck, FetchError, OutboundMessage, Reaction, SendError};
use crate::frontend::{self, ToolProgress};
use crate::message::{Attachment, Chat, ChatKind, InteractionToken, Platform, Sender};
use crate::outbox::OutboxWorker;

/// A channel that submits messages until something is sent, and records what is sent.
#[derive(Debug, Default)]
struct DeadChannel {
    sent: watch::Sender<Vec<String>>,
    panics: bool,
    /// Errors of the next sends.
    send_errors: Mutex<VecDeque<SendError>>,
    /// Results of the next lookups, and what was looked for.
    found: Mutex<VecDeque<DeliveryCheck>>,
    sought: Mutex<Vec<String>>,
}

impl Channel for DeadChannel {
    fn platform(&self) -> Platform {
        Platform::Discord
    }

    fn run(
        self: Arc<Self>,
        sink: ChannelSink,
        stop: CancellationToken,
    ) -> BoxFuture<'static, Result<(), FatalError>> {
        Box::pin(async move {
            assert!(!self.panics, "scripted panic");
            for number in 1.. {
                if !self.sent.borrow().is_empty() {
                    break;
                }
                let (ack, acknowledged) = tokio::sync::oneshot::channel();
                let event = InboundEvent::Message(Box::new(message(&number.to_string())));
                sink.inbound.send(Inbound { event, ack }).await.unwrap();
                acknowledged.await.unwrap();
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            stop.cancelled().await;
            Ok(())
        })
    }

    fn send_message<'a>(
        &'a self,
        _: &'a str,
        outbound: &'a OutboundMessage,
        key: &'a str,
    ) -> BoxFuture<'a, Result<String, SendError>> {
        self.sent.send_modify(|sent| sent.push(outbound.text.clone()));
        let error = self.send_errors.lock().unwrap().pop_front();
        Box::pin(async { error.map_or_else(|| Ok(key.to_owned()), Err) })
    }

    fn find_message<'a>(
        &'a self,
        _: &'a str,
        outbound: &'a OutboundMessage,
        _: &'a str,
    ) -> BoxFuture<'a, DeliveryCheck> {
        self.sought.lock().unwrap().push(outbound.text.clone());
        let found = self.found.lock().unwrap().pop_front();
        Box::pin(async { found.unwrap_or(DeliveryCheck::Unknown) })
    }

    fn edit_message<'a>(
        &'a self,
        _: &'a str,
        _: &'a str,
        _: &'a OutboundMessage,
    ) -> BoxFuture<'a, Result<(), SendError>> {
        Box::pin(async { Ok(()) })
    }

    fn open_thread<'a>(
        &'a self,
        _: &'a InboundMessage,
        _: &'a str,
    ) -> BoxFuture<'a, Result<Chat, SendError>> {
        Box::pin(async { Err(SendError::Permanent("unsupported".to_owned())) })
    }

    fn show_typing<'a>(&'a self, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn set_reaction<'a>(&'a self, _: &'a InboundMessage, _: Reaction) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn reply_privately<'a>(&'a self, _: &'a InteractionToken, _: &'a str) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }

    fn download_attachment<'a>(
        &'a self,
        _: &'a Attachment,
        _: &'a Path,
        _: u64,
    ) -> BoxFuture<'a, Result<u64, FetchError>> {
        Box::pin(async { Err(FetchError::Failed("unsupported".to_owned())) })
    }
}

/// Panics once, then has no environment.
#[derive(Debug, Default)]
struct FailingHost(AtomicBool);

impl SessionHost<InboundMessage> for FailingHost {
    fn session_setup(&self, _: SessionRequest<'_, InboundMessage>) -> Result<SessionConfig, Error> {
        assert!(self.0.swap(true, Ordering::Relaxed), "scripted panic");
        Err(Error::Host("no environment available".to_owned()))
    }

    fn model_for(&self, _: Option<&str>) -> Result<ModelConfig, Error> {
        Err(Error::Host("no model available".to_owned()))
    }

    fn set_default_model(&self, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn system_prompt(&self, _: &SessionConfig, _: &str, _: &InboundMessage) -> SystemPrompt {
        panic!("no environment available")
    }

    fn has_running_processes<'a>(
        &'a self,
        _: &'a SessionKey,
        _: &'a InboundMessage,
        _: &'a Person,
    ) -> BoxFuture<'a, bool> {
        Box::pin(async { false })
    }

    fn remove_sandbox<'a>(
        &'a self,
        _: &'a SessionKey,
        _: &'a InboundMessage,
    ) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async { Ok(true) })
    }

    fn release<'a>(&'a self, _: ToolContext) -> BoxFuture<'a, ()> {
        Box::pin(async {})
    }
}

impl GatewayHost for FailingHost {
    fn request_restart(&self, _: &Chat, _: &str) -> Result<(), Error> {
        Ok(())
    }

    fn remove_idle_sandbox<'a>(&'a self, _: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async { Ok(()) })
    }
}

fn message(message: &str) -> InboundMessage {
    InboundMessage {
        chat: Chat {
            platform: Platform::Discord,
            kind: ChatKind::Dm,
            id: "5".to_owned(),
            thread: None,
            parent: None,
            name: None,
        },
        sender: Sender { id: "1".to_owned(), name: "ann".to_owned(), is_bot: false, roles: Vec::new() },
        id: message.to_owned(),
        sent_at: Timestamp::now(),
        text: "hello".to_owned(),
        attachments: Vec::new(),
        quote: None,
        reply_target: ReplyTarget::SameChat,
        interaction: None,
    }
}

/// A gateway open to everyone.
async fn gateway(home: &Path, channel: Arc<DeadChannel>) -> Gateway {
    let store = Store::open(home.join("hermes.db")).await.unwrap();
    let own = PlatformAccess { allow_all_users: true, ..PlatformAccess::default() };
    let access = AccessSettings {
        platforms: HashMap::from([(Platform::Discord, own)]),
        allowed_users: Vec::new(),
        allow_all_users: false,
        strangers: None,
    };
    let settings = GatewaySettings {
        scope: SessionScope { group_per_user: true, thread_per_user: false },
        busy: BusyPolicy::Queue,
        rate_limit: RateLimit { per_minute: 30, burst: 10 },
        streaming: StreamingOptions {
            edit_interval: None,
            progress: ToolProgress::Off,
            refresh_interval: None,
        },
        reset: ResetPolicy { idle: None, daily: None, notify: false },
        media: MediaSettings { extra_roots: Vec::new(), home: home.to_owned() },
    };
    let audit = AuditLog::open(&home.join("audit.jsonl")).unwrap();
    let access = AccessControl::new(access, store.clone());
    Gateway::new(store, channel, Arc::new(FailingHost::default()), access, audit, settings)
}

#[tokio::test]
async fn a_panicked_session_is_replaced_at_the_next_message() {
    let home = tempfile::tempdir().unwrap();
    let channel = Arc::new(DeadChannel::default());
    let gateway = gateway(home.path(), Arc::clone(&channel)).await;
    let (health, _watched) = watch::channel(ChannelHealth::Connecting);
    let stop = CancellationToken::new();
    let running = tokio::spawn(gateway.run(health, stop.clone()));
    let mut sent = channel.sent.subscribe();
    let said = tokio::time::timeout(Duration::from_secs(60), sent.wait_for(|sent| !sent.is_empty()));
    assert_eq!(said.await.unwrap().unwrap().first().map(String::as_str), Some("no environment available"));
    stop.cancel();
    assert_eq!(running.await.unwrap(), Ok(()));
}

#[tokio::test]
async fn a_panicked_channel_is_a_fatal_error() {
    let home = tempfile::tempdir().unwrap();
    let gateway =
        gateway(home.path(), Arc::new(DeadChannel { panics: true, ..DeadChannel::default() })).await;
    let (health, _watched) = watch::channel(ChannelHealth::Connecting);
    let ended = gateway.run(health, CancellationToken::new()).await;
    assert!(ended.as_ref().is_err_and(|error| error.reason.contains("panicked")), "{ended:?}");
}

#[tokio::test(start_paused = true)]
async fn an_uncertain_delivery_stays_uncertain_while_unreachable() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let away = || SendError::Retry { after: None, reason: "it is away".to_owned() };
    let send_errors = Mutex::new([SendError::Unknown("it broke".to_owned()), away(), away()].into());
    let found = Mutex::new(
        [DeliveryCheck::Unknown, DeliveryCheck::NotSent, DeliveryCheck::Sent("7".to_owned())].into(),
    );
    let fake = Arc::new(DeadChannel { send_errors, found, ..DeadChannel::default() });
    let channel: Arc<dyn Channel> = Arc::clone(&fake) as Arc<dyn Channel>;
    let outbound = OutboundMessage { text: "hello".to_owned(), ..OutboundMessage::default() };
    let part = frontend::outbox_part(
        channel.platform(),
        &SessionKey::new("k"),
        "5",
        Some("m1".to_owned()),
        &outbound,
    );
    store.enqueue_reply(Vec::new(), vec![part], Timestamp::now()).await.unwrap();
    let stop = CancellationToken::new();
    let worker = tokio::spawn(
        Arc::new(OutboxWorker::new(channel, store.clone(), TaskTracker::new())).run(stop.clone()),
    );
    while store.delivery_state("m1").await.unwrap() != Some(DeliveryState::Sent("7".to_owned())) {
        tokio::time::sleep(POLL_INTERVAL).await;
        assert!(fake.sent.borrow().len() < 4, "sent too often");
    }
    assert_eq!(*fake.sent.borrow(), ["hello", "hello\n(this may have been sent before)", "hello"]);
    assert_eq!(*fake.sought.lock().unwrap(), ["hello", "hello", "hello"]);
    stop.cancel();
    worker.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_duplicate_notice_that_does_not_fit_is_a_separate_message() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let send_errors = Mutex::new([SendError::Unknown("it broke".to_owned())].into());
    let fake = Arc::new(DeadChannel { send_errors, ..DeadChannel::default() });
    let channel: Arc<dyn Channel> = Arc::clone(&fake) as Arc<dyn Channel>;
    let long = "a".repeat(channel.capabilities().max_message_len);
    let outbound = OutboundMessage { text: long.clone(), ..OutboundMessage::default() };
    let part = frontend::outbox_part(
        channel.platform(),
        &SessionKey::new("k"),
        "5",
        Some("m1".to_owned()),
        &outbound,
    );
    store.enqueue_reply(Vec::new(), vec![part], Timestamp::now()).await.unwrap();
    let stop = CancellationToken::new();
    let worker = tokio::spawn(
        Arc::new(OutboxWorker::new(channel, store.clone(), TaskTracker::new())).run(stop.clone()),
    );
    let mut sent = fake.sent.subscribe();
    let said = sent.wait_for(|sent| sent.len() == 3).await.unwrap().clone();
    assert_eq!(said, [&long, &long, "(this may have been sent before)"]);
    stop.cancel();
    worker.await.unwrap();
}

/// Stores a message that was answered long ago.
async fn store_old_message(store: &Store, chat: &str, message: &str) {
    let row = NewInboxRow {
        platform: "discord".to_owned(),
        chat: chat.to_owned(),
        message: message.to_owned(),
        key: SessionKey::new("k"),
        person: Person::new("discord:7"),
        at: Timestamp::from_seconds(1),
        event: json!({}),
    };
    let id = store.receive_message(row).await.unwrap().unwrap();
    store.enqueue_reply(vec![id], Vec::new(), Timestamp::from_seconds(1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_inbox_is_pruned_while_the_gateway_runs() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::open(home.path().join("hermes.db")).await.unwrap();
    let media = Arc::new(MediaCache::new(home.path(), "discord"));
    let cleanup = tokio::spawn(run_cleanup(store.clone(), media));
    for message in ["1", "2", "3"] {
        store_old_message(&store, "chat", message).await;
        store_old_message(&store, "chat", &format!("{message} again")).await;
        while store.is_received("discord", "chat", message).await.unwrap() {
            tokio::time::sleep(CLEANUP_INTERVAL).await;
        }
    }
    cleanup.abort();
}
