//! Runs the channels of a home in one process: locks, state file, restart notice, pruning.

mod restart;
mod state_file;

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hermes_session::AuditLog;
use hermes_store::Store;
use hermes_types::{LockFile, Timestamp};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::access::AccessControl;
use crate::channel::{Channel, ChannelHealth, FatalError};
use crate::gateway::{Gateway, GatewaySettings, panicked_channel};
use crate::host::GatewayHost;
use crate::message::Platform;
pub use restart::{announce_restart, request_restart};
use state_file::StateFile;
pub use state_file::read_state;

const LOCK_FILE: &str = "gateway.lock";
/// A killed gateway, and a process it was just starting, may need a moment to release a lock.
const LOCK_TIMEOUT: Duration = Duration::from_secs(1);
const LOCK_POLL_INTERVAL: Duration = Duration::from_millis(20);
const PRUNE_INTERVAL: Duration = Duration::from_secs(86_400);

/// The channels of one home.
pub struct ChannelSupervisor {
    store: Store,
    host: Arc<dyn GatewayHost>,
    audit: AuditLog,
    state: StateFile,
    channels: JoinSet<(Platform, Result<(), FatalError>)>,
    stop: CancellationToken,
    pruning: Option<JoinHandle<()>>,
}

impl ChannelSupervisor {
    pub fn new(home: &Path, store: Store, host: Arc<dyn GatewayHost>) -> io::Result<Self> {
        Ok(Self {
            store,
            host,
            audit: AuditLog::in_home(home)?,
            state: StateFile::new(home),
            channels: JoinSet::new(),
            stop: CancellationToken::new(),
            pruning: None,
        })
    }

    pub fn start(&mut self, channel: Arc<dyn Channel>, access: AccessControl, settings: GatewaySettings) {
        let platform = channel.platform();
        let (health, watched) = watch::channel(ChannelHealth::Connecting);
        self.state.watch(platform, watched);
        let (store, host, audit) = (self.store.clone(), Arc::clone(&self.host), self.audit.clone());
        let gateway = Gateway::new(store, channel, host, access, audit, settings);
        let stop = self.stop.clone();
        self.channels.spawn(async move { (platform, gateway.run(health, stop).await) });
    }

    /// Deletes conversations without activity for this long, with their environments, once a day.
    pub fn prune_sessions(&mut self, retention: Duration) {
        let pruning = prune_daily(Arc::clone(&self.host), self.store.clone(), retention);
        self.pruning = Some(tokio::spawn(pruning));
    }

    /// Lets running replies finish, then ends all channels.
    pub fn stop(&self) {
        self.stop.cancel();
    }

    pub fn is_stopping(&self) -> bool {
        self.stop.is_cancelled()
    }

    /// Waits until a channel ends, and meanwhile keeps the state file current. Returns `None` once
    /// all have ended.
    pub async fn next_end(&mut self) -> Option<Result<(), FatalError>> {
        loop {
            tokio::select! {
                () = self.state.changed() => self.state.report(),
                ended = self.channels.join_next() => return Some(match ended? {
                    Ok((platform, ended)) => ended.map_err(|error| FatalError {
                        reason: format!("{}: {}", platform.as_str(), error.reason),
                        ..error
                    }),
                    Err(error) => Err(panicked_channel(&error)),
                }),
            }
        }
    }

    /// Reports the last state of the channels, and deletes the state file.
    pub fn finish(mut self) {
        self.state.report();
        self.state.remove();
        if let Some(pruning) = self.pruning.take() {
            pruning.abort();
        }
    }
}

/// Takes the lock that a gateway holds while it serves a home. `None` if another process has it.
pub async fn lock_home(home: &Path) -> io::Result<Option<LockFile>> {
    try_lock(&home.join(LOCK_FILE)).await
}

/// Takes a lock that one process can hold; `None` if another process has it. The lock is free again
/// when its holder is gone, however it ended.
pub async fn try_lock(path: &Path) -> io::Result<Option<LockFile>> {
    let started = Instant::now();
    loop {
        match LockFile::try_acquire(path)? {
            None if started.elapsed() < LOCK_TIMEOUT => tokio::time::sleep(LOCK_POLL_INTERVAL).await,
            lock => return Ok(lock),
        }
    }
}

/// Whether a gateway serves this home.
pub fn is_running(home: &Path) -> bool {
    LockFile::is_held(&home.join(LOCK_FILE)).unwrap_or(false)
}

async fn prune_daily(host: Arc<dyn GatewayHost>, store: Store, retention: Duration) {
    loop {
        let now = Timestamp::now();
        let before = Timestamp::from_seconds(now.seconds().saturating_sub(retention.as_secs()));
        match prune(&*host, &store, before, now).await {
            Ok(removed) => tracing::info!(removed, "old conversations removed"),
            Err(error) => tracing::warn!(%error, "cannot remove old conversations"),
        }
        tokio::time::sleep(PRUNE_INTERVAL).await;
    }
}

async fn prune(
    host: &dyn GatewayHost,
    store: &Store,
    before: Timestamp,
    now: Timestamp,
) -> Result<usize, hermes_store::Error> {
    for session in store.idle_sessions(before).await? {
        // The environment of a chat belongs to its current conversation; others may share theirs.
        let current = store.current_session(&session.key).await?;
        let is_current = current.is_some_and(|current| current.id == session.id && current.touched < before);
        if is_current
            && Platform::from_name(&session.source).is_some()
            && let Err(error) = host.remove_idle_sandbox(&session.key).await
        {
            tracing::warn!(%error, session = session.id.as_str(), "old conversation not removed");
            continue;
        }
        store.retire_session(&session.id, before, now).await?;
    }
    Ok(store.prune(before).await?.sessions)
}
