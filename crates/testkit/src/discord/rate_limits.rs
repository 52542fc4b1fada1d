//! Rate limits by bucket, with their headers.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use super::state::now_ms;

/// The buckets of all routes.
#[derive(Debug, Default)]
pub(super) struct Buckets {
    by_key: BTreeMap<String, Bucket>,
    /// Until when a test has nothing come to a bucket, or with no key to any.
    held: BTreeMap<Option<String>, Instant>,
    /// Whether nobody is ever held up; the headers are there all the same.
    pub(super) wide: bool,
}

#[derive(Debug)]
struct Bucket {
    left: u32,
    resets: Instant,
    /// Set once a client was told to wait.
    told: Option<Instant>,
}

/// How a request fared.
pub(super) struct Verdict {
    pub(super) headers: Vec<(&'static str, String)>,
    /// The seconds to wait, if it was one too many.
    pub(super) wait: Option<f64>,
    /// Whether the client had been told to wait and did not.
    pub(super) impatient: bool,
}

impl Buckets {
    /// Has nothing come to this bucket, or to any, for so many seconds.
    pub(super) fn hold(&mut self, method: &str, path: &[&str], seconds: f64, global: bool) {
        let key = (!global).then(|| key(&template(method, path), path));
        let wait = Duration::try_from_secs_f64(seconds).unwrap_or_default();
        self.held.insert(key, Instant::now() + wait);
    }

    /// Nobody has to wait any more because a test said so.
    pub(super) fn release(&mut self) {
        self.held.clear();
    }

    /// Whether a client had been told by a test to wait, and did not.
    pub(super) fn is_held(&self, method: &str, path: &[&str]) -> bool {
        let own = Some(key(&template(method, path), path));
        [own, None].iter().any(|key| self.held.get(key).is_some_and(|until| Instant::now() < *until))
    }

    /// Counts a request.
    pub(super) fn count(&mut self, method: &str, path: &[&str]) -> Verdict {
        let route = template(method, path);
        let (limit, window) = if self.wide { (1000, 1) } else { allowance(&route) };
        let window = Duration::from_secs(window);
        let now = Instant::now();
        let fresh = || Bucket { left: limit, resets: now + window, told: None };
        let bucket = self.by_key.entry(key(&route, path)).or_insert_with(fresh);
        let impatient = bucket.told.is_some_and(|until| now < until);
        if now >= bucket.resets {
            *bucket = fresh();
        }
        let after = (bucket.resets - now).as_secs_f64();
        let mut wait = None;
        match bucket.left.checked_sub(1) {
            Some(left) => bucket.left = left,
            None => {
                wait = Some(after);
                bucket.told = Some(bucket.resets);
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
        Verdict { headers, wait, impatient }
    }
}

/// What a bucket is known by: its route, and what the route is about.
fn key(route: &str, path: &[&str]) -> String {
    format!("{route}:{}", path.get(1).copied().unwrap_or_default())
}

/// The route without its ids.
fn template(method: &str, path: &[&str]) -> String {
    let step = |step: &&str| if step.parse::<u64>().is_ok() { "*".to_owned() } else { (*step).to_owned() };
    let mut steps: Vec<String> = path.iter().map(step).collect();
    // An emoji is no part of the bucket.
    if let Some(place) = path.iter().position(|step| *step == "reactions") {
        steps.truncate(place + 1);
    }
    format!("{method} /{}", steps.join("/"))
}

/// How many requests in how many seconds.
fn allowance(route: &str) -> (u32, u64) {
    match route {
        "POST /channels/*/messages" | "PATCH /channels/*/messages/*" | "POST /channels/*/typing" => (5, 5),
        "PUT /channels/*/messages/*/reactions" | "DELETE /channels/*/messages/*/reactions" => (4, 1),
        "PATCH /channels/*" => (2, 10),
        _ => (50, 10),
    }
}
