//! How the gateway is, for whoever asks from outside: a file that is written when something changes.

use std::fs;
use std::path::{Path, PathBuf};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_gateway::{Health, Platform};
use serde_json::{Map, Value, json};
use tokio::sync::watch;

use crate::ask::now;

const FILE: &str = "gateway_state.json";

/// The state of a gateway that runs.
pub(super) struct State {
    path: PathBuf,
    started: u64,
    platforms: Vec<(Platform, watch::Receiver<Health>)>,
}

impl State {
    pub(super) fn new(home: PathBuf) -> Self {
        Self { path: home.join(FILE), started: now().seconds(), platforms: Vec::new() }
    }

    pub(super) fn watch(&mut self, platform: Platform, mut health: watch::Receiver<Health>) {
        health.mark_changed();
        self.platforms.push((platform, health));
    }

    /// Waits until something is new.
    pub(super) async fn changed(&mut self) {
        let mut waiting: FuturesUnordered<_> =
            self.platforms.iter_mut().map(|(_, health)| health.changed()).collect();
        while let Some(changed) = waiting.next().await {
            if changed.is_ok() {
                return;
            }
        }
        // Nobody has anything to tell any more.
        std::future::pending().await
    }

    /// Writes it down, whole.
    pub(super) fn write(&mut self) -> std::io::Result<()> {
        let platforms: Map<String, Value> = self
            .platforms
            .iter_mut()
            .map(|(platform, health)| (platform.word().to_owned(), json!(*health.borrow_and_update())))
            .collect();
        let facts = json!({
            "pid": std::process::id(),
            "started": self.started,
            "updated": now(),
            "platforms": platforms,
        });
        let whole = self.path.with_extension("json.new");
        fs::write(&whole, facts.to_string())?;
        fs::rename(whole, &self.path)
    }

    /// It runs no more.
    pub(super) fn remove(&self) {
        if let Err(error) = fs::remove_file(&self.path) {
            tracing::debug!(%error, "there was no state to remove");
        }
    }
}

/// What is known from outside. What a gateway that is gone has left is not believed.
pub(super) fn facts(home: &Path, is_running: bool) -> Value {
    let left = fs::read_to_string(home.join(FILE)).ok().and_then(|text| serde_json::from_str(&text).ok());
    match left {
        Some(Value::Object(mut facts)) if is_running => {
            facts.insert("running".to_owned(), json!(true));
            Value::Object(facts)
        }
        _ => json!({ "running": is_running, "platforms": {} }),
    }
}

pub(super) fn text(facts: &Value) -> String {
    if facts["running"] != json!(true) {
        return "the gateway does not run; `hermes gateway run` starts it\n".to_owned();
    }
    let mut text = format!("the gateway runs (process {})\n", facts["pid"]);
    for (platform, health) in facts["platforms"].as_object().into_iter().flatten() {
        let why = health["why"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
        text.push_str(&format!("  {platform}  {}{why}\n", health["state"].as_str().unwrap_or("unknown")));
    }
    text
}
