//! Rate limit for inbound messages, per person. It counts by the time a message was written: a
//! backlog that arrives at once was not written at once.

use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::time::Duration;

use hermes_types::{Person, Timestamp, lock};
use lru::LruCache;

/// At most this many people are tracked; the longest idle are evicted.
const MAX_TRACKED_PEOPLE: usize = 10_000;

/// Messages this much older than the newest are not counted: they come from a chat that was caught
/// up later.
const LATE_DELIVERY_SECONDS: u64 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RateLimit {
    /// Messages per minute; 0 means no limit.
    pub per_minute: u32,
    pub burst: u32,
}

/// A token bucket per person. Tokens refill by the messages' own timestamps.
pub(crate) struct RateLimiter {
    limit: RateLimit,
    buckets: Mutex<LruCache<Person, TokenBucket>>,
}

#[derive(Debug, Clone, Copy)]
struct TokenBucket {
    tokens: f64,
    at: Timestamp,
    is_notified: bool,
}

/// A message exceeds the rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Throttle {
    pub retry_after: Duration,
    /// Whether this is the first rejected message of this wait.
    pub is_first: bool,
}

impl RateLimiter {
    pub(crate) fn new(pace: RateLimit) -> Self {
        let capacity = NonZeroUsize::new(MAX_TRACKED_PEOPLE).unwrap_or(NonZeroUsize::MIN);
        Self { limit: pace, buckets: Mutex::new(LruCache::new(capacity)) }
    }

    /// Counts a message written at `at`.
    pub(crate) fn try_acquire(&self, person: &Person, at: Timestamp) -> Result<(), Throttle> {
        if self.limit.per_minute == 0 {
            return Ok(());
        }
        let mut buckets = lock(&self.buckets);
        let (tokens, was_notified, newest) = match buckets.get_mut(person) {
            None => (self.capacity(), false, at),
            // The state of the bucket at that time is unknown.
            Some(bucket) if bucket.at.seconds() > at.seconds().saturating_add(LATE_DELIVERY_SECONDS) => {
                return Ok(());
            }
            Some(bucket) => {
                let since = at.seconds().saturating_sub(bucket.at.seconds());
                let refilled = Duration::from_secs(since).as_secs_f64() * self.per_second();
                let tokens = (bucket.tokens + refilled).min(self.capacity());
                if tokens < 1.0 {
                    let is_first = !std::mem::replace(&mut bucket.is_notified, true);
                    let retry_after = Duration::from_secs_f64((1.0 - tokens) / self.per_second());
                    return Err(Throttle { retry_after, is_first });
                }
                (tokens, bucket.is_notified, at.max(bucket.at))
            }
        };
        // A sender who keeps going is still in the same wait.
        let is_notified = was_notified && tokens < self.capacity();
        buckets.put(person.clone(), TokenBucket { tokens: tokens - 1.0, at: newest, is_notified });
        Ok(())
    }

    fn capacity(&self) -> f64 {
        f64::from(self.limit.burst.max(1))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.limit.per_minute) / 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: RateLimit = RateLimit { per_minute: 30, burst: 10 };

    fn person(n: usize) -> Person {
        Person::new(format!("discord:{n}"))
    }

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn a_fast_sender_waits_and_others_do_not() {
        let limiter = RateLimiter::new(LIMIT);
        let wait =
            |seconds, is_new| Err(Throttle { retry_after: Duration::from_secs(seconds), is_first: is_new });
        assert_eq!((0..10).filter(|_| limiter.try_acquire(&person(1), at(100)).is_ok()).count(), 10);
        assert_eq!(limiter.try_acquire(&person(1), at(100)), wait(2, true));
        assert_eq!(limiter.try_acquire(&person(1), at(100)), wait(2, false));
        assert_eq!(limiter.try_acquire(&person(2), at(100)), Ok(()));
        assert_eq!(limiter.try_acquire(&person(1), at(101)), wait(1, false));
        assert_eq!(limiter.try_acquire(&person(1), at(102)), Ok(()));
        assert_eq!(limiter.try_acquire(&person(1), at(102)), wait(2, false));
        assert_eq!(limiter.try_acquire(&person(1), at(99)), wait(2, false), "clocks are not exact");
        assert_eq!((0..10).filter(|_| limiter.try_acquire(&person(1), at(3_702)).is_ok()).count(), 10);
        assert_eq!(limiter.try_acquire(&person(1), at(3_702)), wait(2, true));
    }

    #[test]
    fn a_backlog_is_counted_by_its_timestamps() {
        let limiter = RateLimiter::new(LIMIT);
        for minute in 0..50 {
            assert_eq!(limiter.try_acquire(&person(1), at(minute * 60)), Ok(()), "{minute}");
        }
        // Another of their chats is caught up later.
        for minute in 0..49 {
            assert_eq!(limiter.try_acquire(&person(1), at(minute * 60 - minute)), Ok(()), "{minute}");
        }
    }

    #[test]
    fn tracked_people_are_limited() {
        let limiter = RateLimiter::new(RateLimit { per_minute: 1, burst: 1 });
        limiter.buckets.lock().unwrap().resize(NonZeroUsize::new(3).unwrap());
        for n in 0..10 {
            assert_eq!(limiter.try_acquire(&person(n), at(n as u64)), Ok(()));
            assert!(limiter.buckets.lock().unwrap().len() <= 3);
        }
        assert!(limiter.try_acquire(&person(9), at(10)).is_err(), "the last one is remembered");
        assert_eq!(limiter.try_acquire(&person(0), at(10)), Ok(()), "the first one is not");
    }

    #[test]
    fn the_limit_can_be_turned_off() {
        let limiter = RateLimiter::new(RateLimit { per_minute: 0, burst: 0 });
        assert!((0..1_000).all(|_| limiter.try_acquire(&person(1), at(0)).is_ok()));
    }
}
