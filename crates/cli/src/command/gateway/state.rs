//! How the gateway is, for whoever asks from outside: a file that is written when something changes.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hermes_gateway::{ChannelHealth, Platform};
use hermes_policy::visible::visible;
use hermes_types::Timestamp;
use serde_json::{Map, Value, json};
use tokio::sync::{Notify, watch};

use crate::screen::age;

const FILE: &str = "gateway_state.json";
/// How long to wait before what could not be written is written again.
const PAUSE: Duration = Duration::from_secs(5);

/// The state of a gateway that runs.
pub(super) struct State {
    path: PathBuf,
    started: Timestamp,
    platforms: Vec<Watched>,
    news: Arc<Notify>,
}

/// A platform, and what was told of it.
struct Watched {
    platform: Platform,
    health: watch::Receiver<ChannelHealth>,
    known: ChannelHealth,
    /// Since when it is up, or is not.
    since: Timestamp,
    /// What the log was told last. That it is being connected is not worth a line.
    told: Option<ChannelHealth>,
}

impl State {
    pub(super) fn new(home: PathBuf) -> Self {
        Self { path: home.join(FILE), started: Timestamp::now(), platforms: Vec::new(), news: Arc::default() }
    }

    pub(super) fn watch(&mut self, platform: Platform, health: watch::Receiver<ChannelHealth>) {
        let (news, mut watched) = (Arc::clone(&self.news), health.clone());
        let known = health.borrow().clone();
        self.platforms.push(Watched { platform, health, known, since: Timestamp::now(), told: None });
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

    /// Tells what is new: the log, and whoever asks from outside. What cannot be written is tried again; nothing else waits
    /// for it.
    pub(super) fn tell(&mut self) {
        self.platforms.iter_mut().for_each(Watched::tell);
        let Err(error) = self.replace() else { return };
        tracing::warn!(%error, path = %self.path.display(), "how the gateway is cannot be written down");
        let news = Arc::clone(&self.news);
        tokio::spawn(async move {
            tokio::time::sleep(PAUSE).await;
            news.notify_one();
        });
    }

    /// Puts it in the place of what was there, whole.
    fn replace(&self) -> std::io::Result<()> {
        let platforms: Map<String, Value> = self.platforms.iter().map(Watched::facts).collect();
        let facts = json!({
            "pid": std::process::id(),
            "started": self.started,
            "updated": Timestamp::now(),
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

impl Watched {
    fn tell(&mut self) {
        let health = self.health.borrow().clone();
        if matches!(health, ChannelHealth::Up) != matches!(self.known, ChannelHealth::Up) {
            self.since = Timestamp::now();
        }
        self.known = health;
        if self.known == ChannelHealth::Connecting || self.told.as_ref() == Some(&self.known) {
            return;
        }
        let word = self.platform.as_str();
        match &self.known {
            ChannelHealth::Down { reason: why } => tracing::warn!("{word} is down: {why}"),
            ChannelHealth::Up | ChannelHealth::Connecting => tracing::info!("{word} is up"),
        }
        self.told = Some(self.known.clone());
    }

    fn facts(&self) -> (String, Value) {
        let mut facts = json!(self.known);
        facts["since"] = json!(self.since);
        (self.platform.as_str().to_owned(), facts)
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
        text.push_str(&format!("  {platform}  {}\n", in_words(health)));
    }
    text
}

/// How a platform is, and for how long.
pub(crate) fn in_words(health: &Value) -> String {
    let state = health["state"].as_str().unwrap_or("unknown");
    let since = health["since"].as_u64().unwrap_or_default();
    let lasted = age(Duration::from_secs(Timestamp::now().seconds().saturating_sub(since)));
    match health["why"].as_str() {
        Some(why) => format!("{state} for {lasted}: {}", visible(why)),
        None => format!("{state} for {lasted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_platform_says_is_only_read() {
        let said =
            in_words(&json!({ "state": "down", "since": Timestamp::now(), "why": "bye\u{1b}[2J\u{202e}" }));
        assert!(said.starts_with("down for ") && said.ends_with(": bye⟨U+001B⟩[2J⟨U+202E⟩"), "{said}");
    }
}
