//! How many requests the platform takes, as far as it said so.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Gates that are remembered before those that are open again are forgotten.
const MANY: usize = 1000;

/// What the platform said about its limits.
#[derive(Debug, Default)]
pub(super) struct Limits {
    /// Until when nothing at all is taken.
    everything: Option<Instant>,
    /// Which bucket a route is counted in.
    buckets: HashMap<String, String>,
    gates: HashMap<String, Gate>,
}

#[derive(Debug)]
struct Gate {
    remaining: u64,
    reset: Instant,
}

/// A route as the platform counts it: ids do not matter, but for that of the channel, the server or the webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    shape: String,
    owner: String,
}

/// What an answer said about limits.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Notice {
    pub(super) bucket: Option<String>,
    pub(super) remaining: Option<u64>,
    pub(super) reset_after: Option<Duration>,
    /// How long to wait, if the request was refused.
    pub(super) retry_after: Option<Duration>,
    /// Whether that is so for all routes.
    pub(super) global: bool,
}

impl Route {
    pub(super) fn new(method: &str, path: &str) -> Self {
        let (mut shape, mut owner) = (method.to_owned(), String::new());
        let (mut first, mut is_emoji) = ("", false);
        for (place, step) in path.split('/').enumerate() {
            if place == 0 {
                first = step;
            }
            let owns = matches!((first, place), ("channels" | "guilds", 1) | ("webhooks", 1 | 2));
            if owns {
                owner = format!("{owner}/{step}");
            }
            let is_id = step.bytes().all(|byte| byte.is_ascii_digit());
            let is_token = first == "interactions" && place == 2;
            let seen = if owns || is_id || is_emoji || is_token { "*" } else { step };
            shape = format!("{shape}/{seen}");
            is_emoji = step == "reactions";
        }
        Self { shape, owner }
    }
}

impl Limits {
    /// Counts a request that is about to be sent, or says how long it has to wait.
    pub(super) fn admit(&mut self, route: &Route, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.everything.filter(|until| *until > now) {
            return Err(until - now);
        }
        self.everything = None;
        let key = self.key(route);
        match self.gates.get_mut(&key) {
            Some(gate) if gate.reset <= now => drop(self.gates.remove(&key)),
            Some(gate) if gate.remaining == 0 => return Err(gate.reset - now),
            Some(gate) => gate.remaining -= 1,
            None => {}
        }
        Ok(())
    }

    /// Notes what an answer said.
    pub(super) fn learn(&mut self, route: &Route, notice: &Notice, now: Instant) {
        if self.gates.len() >= MANY || self.buckets.len() >= MANY {
            self.gates.retain(|_, gate| gate.reset > now);
            self.buckets.clear();
        }
        if let Some(bucket) = &notice.bucket {
            self.buckets.insert(route.shape.clone(), bucket.clone());
        }
        let key = self.key(route);
        match (notice.retry_after, notice.remaining, notice.reset_after) {
            (Some(after), ..) if notice.global => self.everything = Some(now + after),
            (Some(after), ..) => drop(self.gates.insert(key, Gate { remaining: 0, reset: now + after })),
            (None, Some(remaining), Some(after)) => {
                // Answers may overtake each other: within one period there are never more left than before.
                let known = self.gates.get(&key).filter(|gate| gate.reset > now).map(|gate| gate.remaining);
                let remaining = known.map_or(remaining, |known| known.min(remaining));
                self.gates.insert(key, Gate { remaining, reset: now + after });
            }
            (None, ..) => {}
        }
    }

    fn key(&self, route: &Route) -> String {
        let shape = self.buckets.get(&route.shape).unwrap_or(&route.shape);
        format!("{shape}{}", route.owner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn routes_are_counted_as_the_platform_counts_them() {
        let route = |method, path| Route::new(method, path);
        assert_eq!(
            route("PATCH", "channels/1/messages/2"),
            Route { shape: "PATCH/channels/*/messages/*".to_owned(), owner: "/1".to_owned() }
        );
        assert_eq!(
            route("PUT", "channels/1/messages/2/reactions/%F0%9F/@me").shape,
            "PUT/channels/*/messages/*/reactions/*/@me"
        );
        assert_eq!(route("POST", "webhooks/1/abc").owner, "/1/abc");
        assert_eq!(route("POST", "interactions/1/abc/callback").shape, "POST/interactions/*/*/callback");
    }

    #[test]
    fn a_spent_bucket_waits_and_others_do_not() {
        let now = Instant::now();
        let (one, other) =
            (Route::new("POST", "channels/1/messages"), Route::new("POST", "channels/2/messages"));
        let mut limits = Limits::default();
        let spent = Notice {
            bucket: Some("b".to_owned()),
            remaining: Some(1),
            reset_after: Some(2 * SECOND),
            ..Notice::default()
        };
        limits.learn(&one, &spent, now);
        assert_eq!(limits.admit(&one, now), Ok(()));
        assert_eq!(limits.admit(&one, now), Err(2 * SECOND));
        assert_eq!(limits.admit(&other, now), Ok(()));
        assert_eq!(limits.admit(&one, now + 2 * SECOND), Ok(()));
    }

    #[test]
    fn a_refusal_shuts_one_gate_or_all() {
        let now = Instant::now();
        let (one, other) =
            (Route::new("POST", "channels/1/messages"), Route::new("GET", "channels/2/messages"));
        let mut limits = Limits::default();
        let refused = Notice { retry_after: Some(SECOND), ..Notice::default() };
        limits.learn(&one, &refused, now);
        assert_eq!((limits.admit(&one, now), limits.admit(&other, now)), (Err(SECOND), Ok(())));
        limits.learn(&other, &Notice { global: true, ..refused }, now);
        assert_eq!((limits.admit(&one, now), limits.admit(&other, now)), (Err(SECOND), Err(SECOND)));
        assert_eq!((limits.admit(&one, now + SECOND), limits.admit(&other, now + SECOND)), (Ok(()), Ok(())));
    }
}
