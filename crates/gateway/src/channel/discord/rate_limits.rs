//! Rate limits of the HTTP API.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Evict reset buckets once this many are tracked.
const MAX_TRACKED_BUCKETS: usize = 1000;

/// Rate limits learned from response headers.
#[derive(Default)]
pub(super) struct RateLimits {
    global_until: Option<Instant>,
    /// Bucket id of each route.
    bucket_ids: HashMap<String, String>,
    buckets: HashMap<String, BucketState>,
}

struct BucketState {
    remaining: u64,
    reset: Instant,
}

/// A route as Discord counts it: ids are ignored except that of the channel, server or webhook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    shape: String,
    owner: String,
}

/// Rate limit headers of a response.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct LimitHeaders {
    pub(super) bucket: Option<String>,
    pub(super) remaining: Option<u64>,
    pub(super) reset_after: Option<Duration>,
    /// Set if the request was rejected.
    pub(super) retry_after: Option<Duration>,
    /// Whether it applies to all routes.
    pub(super) global: bool,
}

impl Route {
    pub(super) fn new(method: &str, path: &str) -> Self {
        let (mut shape, mut owner) = (method.to_owned(), String::new());
        let path = path.split_once('?').map_or(path, |(path, _query)| path);
        let (mut first, mut is_emoji) = ("", false);
        for (position, step) in path.split('/').enumerate() {
            if position == 0 {
                first = step;
            }
            let owns = matches!((first, position), ("channels" | "guilds", 1) | ("webhooks", 1 | 2));
            if owns {
                owner = format!("{owner}/{step}");
            }
            let is_id = step.bytes().all(|byte| byte.is_ascii_digit());
            let is_token = first == "interactions" && position == 2;
            let counted = if owns || is_id || is_emoji || is_token { "*" } else { step };
            shape = format!("{shape}/{counted}");
            is_emoji = step == "reactions";
        }
        Self { shape, owner }
    }
}

impl RateLimits {
    /// Counts a request, or returns how long it has to wait.
    pub(super) fn reserve(&mut self, route: &Route, now: Instant) -> Result<(), Duration> {
        if let Some(until) = self.global_until.filter(|until| *until > now) {
            return Err(until - now);
        }
        self.global_until = None;
        let key = self.key(route);
        match self.buckets.get_mut(&key) {
            Some(bucket) if bucket.reset <= now => drop(self.buckets.remove(&key)),
            Some(bucket) if bucket.remaining == 0 => return Err(bucket.reset - now),
            Some(bucket) => bucket.remaining -= 1,
            None => {}
        }
        Ok(())
    }

    pub(super) fn update(&mut self, route: &Route, notice: &LimitHeaders, now: Instant) {
        if self.buckets.len() >= MAX_TRACKED_BUCKETS || self.bucket_ids.len() >= MAX_TRACKED_BUCKETS {
            self.buckets.retain(|_, bucket| bucket.reset > now);
            self.bucket_ids.clear();
        }
        if let Some(bucket) = &notice.bucket {
            self.bucket_ids.insert(route.shape.clone(), bucket.clone());
        }
        let key = self.key(route);
        match (notice.retry_after, notice.remaining, notice.reset_after) {
            (Some(after), ..) if notice.global => self.global_until = Some(now + after),
            (Some(after), ..) => {
                self.buckets.insert(key, BucketState { remaining: 0, reset: now + after });
            }
            (None, Some(remaining), Some(after)) => {
                // Responses may arrive out of order: within one period the remaining count never
                // grows.
                let known =
                    self.buckets.get(&key).filter(|bucket| bucket.reset > now).map(|bucket| bucket.remaining);
                let remaining = known.map_or(remaining, |known| known.min(remaining));
                self.buckets.insert(key, BucketState { remaining, reset: now + after });
            }
            (None, ..) => {}
        }
    }

    fn key(&self, route: &Route) -> String {
        let shape = self.bucket_ids.get(&route.shape).unwrap_or(&route.shape);
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
        assert_eq!(route("GET", "channels/1/messages?limit=9"), route("GET", "channels/1/messages"));
        assert_eq!(route("POST", "webhooks/1/abc").owner, "/1/abc");
        assert_eq!(route("POST", "interactions/1/abc/callback").shape, "POST/interactions/*/*/callback");
    }

    #[test]
    fn only_an_exhausted_bucket_waits() {
        let now = Instant::now();
        let (one, other) =
            (Route::new("POST", "channels/1/messages"), Route::new("POST", "channels/2/messages"));
        let mut limits = RateLimits::default();
        let spent = LimitHeaders {
            bucket: Some("b".to_owned()),
            remaining: Some(1),
            reset_after: Some(2 * SECOND),
            ..LimitHeaders::default()
        };
        limits.update(&one, &spent, now);
        assert_eq!(limits.reserve(&one, now), Ok(()));
        assert_eq!(limits.reserve(&one, now), Err(2 * SECOND));
        assert_eq!(limits.reserve(&other, now), Ok(()));
        assert_eq!(limits.reserve(&one, now + 2 * SECOND), Ok(()));
    }

    #[test]
    fn a_rejection_blocks_one_bucket_or_all() {
        let now = Instant::now();
        let (one, other) =
            (Route::new("POST", "channels/1/messages"), Route::new("GET", "channels/2/messages"));
        let mut limits = RateLimits::default();
        let refused = LimitHeaders { retry_after: Some(SECOND), ..LimitHeaders::default() };
        limits.update(&one, &refused, now);
        assert_eq!((limits.reserve(&one, now), limits.reserve(&other, now)), (Err(SECOND), Ok(())));
        limits.update(&other, &LimitHeaders { global: true, ..refused }, now);
        assert_eq!((limits.reserve(&one, now), limits.reserve(&other, now)), (Err(SECOND), Err(SECOND)));
        assert_eq!(
            (limits.reserve(&one, now + SECOND), limits.reserve(&other, now + SECOND)),
            (Ok(()), Ok(()))
        );
    }
}
