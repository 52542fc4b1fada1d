//! How much one person may send.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_types::Person;
use tokio::time::Instant;

/// People who are remembered; of more, those who were quiet for longest are forgotten.
const MOST: usize = 10_000;

/// How fast one person may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pace {
    /// Messages per minute; 0 for no limit.
    pub per_minute: u32,
    /// Messages at once.
    pub burst: u32,
}

impl Default for Pace {
    fn default() -> Self {
        Self { per_minute: 30, burst: 10 }
    }
}

/// A bucket for each person, which fills with time and which each message takes something from.
#[derive(Debug)]
pub struct Limiter {
    pace: Pace,
    most: usize,
    buckets: Mutex<HashMap<Person, Bucket>>,
}

/// What was in it, and when.
#[derive(Debug, Clone, Copy)]
struct Bucket {
    tokens: f64,
    at: Instant,
}

impl Limiter {
    /// A limit for each.
    pub fn new(pace: Pace) -> Self {
        Self { pace, most: MOST, buckets: Mutex::default() }
    }

    /// Takes a message of somebody, or tells how long they have to wait.
    pub fn take(&self, person: &Person) -> Result<(), Duration> {
        if self.pace.per_minute == 0 {
            return Ok(());
        }
        let now = Instant::now();
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let full = Bucket { tokens: self.capacity(), at: now };
        let tokens = buckets.get(person).map_or(full.tokens, |bucket| self.filled(bucket, now));
        if tokens < 1.0 {
            return Err(Duration::from_secs_f64((1.0 - tokens) / self.per_second()));
        }
        if !buckets.contains_key(person) && buckets.len() >= self.most {
            self.forget(&mut buckets, now);
        }
        buckets.insert(person.clone(), Bucket { tokens: tokens - 1.0, at: now });
        Ok(())
    }

    /// A bucket that is full is as good as none.
    fn forget(&self, buckets: &mut HashMap<Person, Bucket>, now: Instant) {
        buckets.retain(|_, bucket| self.filled(bucket, now) < self.capacity());
        if buckets.len() >= self.most
            && let Some(quiet) =
                buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(who, _)| who.clone())
        {
            buckets.remove(&quiet);
        }
    }

    fn filled(&self, bucket: &Bucket, now: Instant) -> f64 {
        let since = now.duration_since(bucket.at).as_secs_f64();
        (bucket.tokens + since * self.per_second()).min(self.capacity())
    }

    fn capacity(&self) -> f64 {
        f64::from(self.pace.burst.max(1))
    }

    fn per_second(&self) -> f64 {
        f64::from(self.pace.per_minute) / 60.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn person(n: usize) -> Person {
        Person::new(format!("discord:{n}"))
    }

    #[tokio::test(start_paused = true)]
    async fn somebody_who_sends_too_fast_waits_and_others_do_not() {
        let limiter = Limiter::new(Pace::default());
        assert_eq!((0..20).filter(|_| limiter.take(&person(1)).is_ok()).count(), 10);
        assert_eq!(limiter.take(&person(1)), Err(Duration::from_secs(2)));
        assert_eq!(limiter.take(&person(2)), Ok(()));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limiter.take(&person(1)), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(limiter.take(&person(1)), Ok(()));
        assert!(limiter.take(&person(1)).is_err());
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert_eq!((0..20).filter(|_| limiter.take(&person(1)).is_ok()).count(), 10);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_are_remembered_than_fit() {
        let mut limiter = Limiter::new(Pace { per_minute: 1, burst: 1 });
        limiter.most = 3;
        for n in 0..10 {
            assert_eq!(limiter.take(&person(n)), Ok(()));
            tokio::time::advance(Duration::from_secs(1)).await;
            assert!(limiter.buckets.lock().unwrap().len() <= 3);
        }
        assert!(limiter.take(&person(9)).is_err(), "the last one is remembered");
        assert_eq!(limiter.take(&person(0)), Ok(()), "the first one is not");
        tokio::time::advance(Duration::from_secs(120)).await;
        assert_eq!(limiter.take(&person(10)), Ok(()));
        assert_eq!(
            limiter.buckets.lock().unwrap().len(),
            1,
            "those who may send again need not be remembered"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn there_need_be_no_limit() {
        let limiter = Limiter::new(Pace { per_minute: 0, burst: 0 });
        assert!((0..1_000).all(|_| limiter.take(&person(1)).is_ok()));
    }
}
