//! The state of a gateway as text.

use std::time::Duration;

use hermes_policy::escape::escape;
use hermes_types::Timestamp;
use serde_json::{Value, json};

use crate::screen::format_age;

pub(super) fn format_state(state: &Value) -> String {
    if state["running"] != json!(true) {
        return "the gateway is not running; start it with `hermes gateway run`".to_owned();
    }
    let mut text = format!("the gateway is running (process {})", state["pid"]);
    for (platform, health) in state["platforms"].as_object().into_iter().flatten() {
        text.push_str(&format!("\n  {platform}  {}", format_health(health)));
    }
    text
}

/// The health of a platform, and for how long.
pub(crate) fn format_health(health: &Value) -> String {
    let state = health["state"].as_str().unwrap_or("unknown");
    let since = health["since"].as_u64().unwrap_or_default();
    let lasted = format_age(Duration::from_secs(Timestamp::now().seconds().saturating_sub(since)));
    match health["why"].as_str() {
        Some(why) => format!("{state} for {lasted}: {}", escape(why)),
        None => format!("{state} for {lasted}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_characters_in_a_reason_are_escaped() {
        let said = format_health(
            &json!({ "state": "down", "since": Timestamp::now(), "why": "bye\u{1b}[2J\u{202e}" }),
        );
        assert!(said.starts_with("down for ") && said.ends_with(": bye⟨U+001B⟩[2J⟨U+202E⟩"), "{said}");
    }
}
