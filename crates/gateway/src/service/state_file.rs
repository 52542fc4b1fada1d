//! The state of a running gateway, in a file for other processes.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_types::{Timestamp, replace_file};
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use crate::channel::ChannelHealth;
use crate::message::Platform;

const STATE_FILE: &str = "gateway_state.json";
const WRITE_RETRY_INTERVAL: Duration = Duration::from_secs(5);

/// Writes the state file whenever a channel's health changes.
pub(super) struct StateFile {
    path: PathBuf,
    started: Timestamp,
    channels: Vec<ChannelState>,
    changed: Arc<Notify>,
}

struct ChannelState {
    platform: Platform,
    health: watch::Receiver<ChannelHealth>,
    current: ChannelHealth,
    /// Since when it is up or not.
    since: Timestamp,
    /// The health logged last; `Connecting` is not logged.
    logged: Option<ChannelHealth>,
}

impl StateFile {
    pub(super) fn new(home: &Path) -> Self {
        let (path, started) = (home.join(STATE_FILE), Timestamp::now());
        Self { path, started, channels: Vec::new(), changed: Arc::default() }
    }

    pub(super) fn watch(&mut self, platform: Platform, health: watch::Receiver<ChannelHealth>) {
        let (changed, mut watched) = (Arc::clone(&self.changed), health.clone());
        let current = health.borrow().clone();
        self.channels.push(ChannelState { platform, health, current, since: Timestamp::now(), logged: None });
        tokio::spawn(async move {
            changed.notify_one();
            while watched.changed().await.is_ok() {
                changed.notify_one();
            }
        });
    }

    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Logs changes and writes the file. A failed write is repeated later; nothing waits for it.
    pub(super) fn report(&mut self) {
        self.channels.iter_mut().for_each(ChannelState::update);
        let Err(error) = self.replace() else { return };
        tracing::warn!(%error, path = %self.path.display(), "cannot write gateway state");
        let changed = Arc::clone(&self.changed);
        tokio::spawn(async move {
            tokio::time::sleep(WRITE_RETRY_INTERVAL).await;
            changed.notify_one();
        });
    }

    fn replace(&self) -> io::Result<()> {
        let platforms: Map<String, Value> = self.channels.iter().map(ChannelState::to_json).collect();
        let state = json!({
            "pid": std::process::id(),
            "started": self.started,
            "updated": Timestamp::now(),
            "platforms": platforms,
        });
        replace_file(&self.path, 0o600, |new| fs::write(new, state.to_string()))
    }

    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "cannot delete gateway state");
        }
    }
}

impl ChannelState {
    fn update(&mut self) {
        let health = self.health.borrow().clone();
        if matches!(health, ChannelHealth::Up) != matches!(self.current, ChannelHealth::Up) {
            self.since = Timestamp::now();
        }
        self.current = health;
        if self.current == ChannelHealth::Connecting || self.logged.as_ref() == Some(&self.current) {
            return;
        }
        let platform = self.platform.as_str();
        match &self.current {
            ChannelHealth::Down { reason } => tracing::warn!("{platform} is down: {reason}"),
            ChannelHealth::Up | ChannelHealth::Connecting => tracing::info!("{platform} is up"),
        }
        self.logged = Some(self.current.clone());
    }

    fn to_json(&self) -> (String, Value) {
        let mut state = json!(self.current);
        state["since"] = json!(self.since);
        (self.platform.as_str().to_owned(), state)
    }
}

/// The state for other processes. A file left by a gateway that is gone is ignored.
pub fn read_state(home: &Path) -> Value {
    let is_running = super::is_running(home);
    let text = fs::read_to_string(home.join(STATE_FILE)).ok();
    match text.and_then(|text| serde_json::from_str(&text).ok()) {
        Some(Value::Object(mut state)) if is_running => {
            state.insert("running".to_owned(), json!(true));
            Value::Object(state)
        }
        _ => json!({ "running": is_running, "platforms": {} }),
    }
}
