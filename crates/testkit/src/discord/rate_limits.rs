//! Rate limits by bucket, and their headers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::state::now_ms;

#[derive(Debug, Default)]
pub(super) struct FakeRateLimiter {
    by_key: BTreeMap<String, RateBucket>,
    /// Buckets that a test blocks until a time; without a key, all of them.
    blocked: BTreeMap<Option<String>, Instant>,
    /// Without limits; responses still have the headers.
    pub(super) is_unlimited: bool,
}

#[derive(Debug)]
struct RateBucket {
    left: u32,
    resets: Instant,
    /// Set when the limit is exceeded.
    wait_until: Option<Instant>,
}

pub(super) struct RateDecision {
    pub(super) headers: Vec<(&'static str, String)>,
    /// In seconds, if the limit is exceeded.
    pub(super) retry_after: Option<f64>,
    /// The client did not wait although it had to.
    pub(super) is_violation: bool,
}

impl FakeRateLimiter {
    /// Blocks this bucket, or all, for a number of seconds.
    pub(super) fn block(&mut self, method: &str, path: &[&str], seconds: f64, global: bool) {
        let key = (!global).then(|| key(&template(method, path), path));
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.blocked.insert(key, Instant::now() + wait);
    }

    pub(super) fn unblock(&mut self) {
        self.blocked.clear();
    }

    /// Whether a test blocks this bucket.
    pub(super) fn is_blocked(&self, method: &str, path: &[&str]) -> bool {
        let own = Some(key(&template(method, path), path));
        [own, None].iter().any(|key| self.blocked.get(key).is_some_and(|until| Instant::now() < *until))
    }

    pub(super) fn record(&mut self, method: &str, path: &[&str]) -> RateDecision {
        let route = template(method, path);
        let (limit, window) = if self.is_unlimited { (1000, 1) } else { limit_of(&route) };
        let window = Duration::from_secs(window);
        let now = Instant::now();
        let fresh = || RateBucket { left: limit, resets: now + window, wait_until: None };
        let bucket = self.by_key.entry(key(&route, path)).or_insert_with(fresh);
        let is_violation = bucket.wait_until.is_some_and(|until| now < until);
        if now >= bucket.resets {
            *bucket = fresh();
        }
        let after = (bucket.resets - now).as_secs_f64();
        let mut retry_after = None;
        match bucket.left.checked_sub(1) {
            Some(left) => bucket.left = left,
            None => {
                retry_after = Some(after);
                bucket.wait_until = Some(bucket.resets);
            }
        }
        let mut hasher = DefaultHasher::new();
        route.hash(&mut hasher);
        #[expect(clippy::cast_precision_loss, reason = "milliseconds of this century fit")]
        let reset = now_ms() as f64 / 1000.0 + after;
        let headers = vec![
            ("x-ratelimit-limit", limit.to_string()),
            ("x-ratelimit-remaining", bucket.left.to_string()),
            ("x-ratelimit-reset", format!("{reset:.3}")),
            ("x-ratelimit-reset-after", format!("{after:.3}")),
            ("x-ratelimit-bucket", format!("{:016x}", hasher.finish())),
        ];
        RateDecision { headers, retry_after, is_violation }
    }
}

/// The key of a bucket: its route and the main id of its path.
fn key(route: &str, path: &[&str]) -> String {
    format!("{route}:{}", path.get(1).copied().unwrap_or_default())
}

/// The route with `*` for ids.
fn template(method: &str, path: &[&str]) -> String {
    let step = |step: &&str| if step.parse::<u64>().is_ok() { "*".to_owned() } else { (*step).to_owned() };
    let mut steps: Vec<String> = path.iter().map(step).collect();
    // An emoji is not part of the bucket.
    if let Some(at) = path.iter().position(|step| *step == "reactions") {
        steps.truncate(at + 1);
    }
    format!("{method} /{}", steps.join("/"))
}

/// The number of requests, and the seconds in which they are allowed.
fn limit_of(route: &str) -> (u32, u64) {
    match route {
        "POST /channels/*/messages" | "PATCH /channels/*/messages/*" | "POST /channels/*/typing" => (5, 5),
        "PUT /channels/*/messages/*/reactions" | "DELETE /channels/*/messages/*/reactions" => (4, 1),
        "PATCH /channels/*" => (2, 10),
        _ => (50, 10),
    }
}
