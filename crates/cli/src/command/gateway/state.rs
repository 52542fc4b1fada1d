//! How the gateway is, for whoever asks from outside: a file that is written when something changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hermes_gateway::{Health, Platform};
use hermes_policy::visible::visible;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use crate::ask::now;

const FILE: &str = "gateway_state.json";

/// The state of a gateway that runs.
pub(super) struct State {
    path: PathBuf,
    started: u64,
    platforms: Vec<(Platform, watch::Receiver<Health>)>,
    news: Arc<Notify>,
}

impl State {
    pub(super) fn new(home: PathBuf) -> Self {
        Self { path: home.join(FILE), started: now().seconds(), platforms: Vec::new(), news: Arc::default() }
    }

    pub(super) fn watch(&mut self, platform: Platform, health: watch::Receiver<Health>) {
        let (news, mut watched) = (Arc::clone(&self.news), health.clone());
        self.platforms.push((platform, health));
        tokio::spawn(async move {
            news.notify_one();
            while watched.changed().await.is_ok() {
                news.notify_one();
            }
        });
    }

    /// Waits until something is new.
    pub(super) async fn changed(&self) {
        self.news.notified().await;
    }

    /// Writes it down, whole.
    pub(super) fn write(&self) -> std::io::Result<()> {
        let platforms: Map<String, Value> = self
            .platforms
            .iter()
            .map(|(platform, health)| (platform.word().to_owned(), json!(*health.borrow())))
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
        let why = health["why"].as_str().map(|why| format!(": {}", visible(why))).unwrap_or_default();
        text.push_str(&format!("  {platform}  {}{why}\n", health["state"].as_str().unwrap_or("unknown")));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_platform_says_is_only_read() {
        let facts = json!({ "running": true, "pid": 1, "platforms": {
            "discord": { "state": "down", "why": "bye\u{1b}[2J\u{202e}" },
        } });
        let expected = "the gateway runs (process 1)\n  discord  down: bye⟨U+001B⟩[2J⟨U+202E⟩\n";
        assert_eq!(text(&facts), expected);
    }
}
