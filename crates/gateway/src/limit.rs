//! How much one person may send. What counts is when something was written: what waited somewhere and comes all at once was
//! not written all at once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use hermes_types::{Person, Timestamp};

/// People who are remembered; of more, those who were quiet for longest are forgotten.
const MOST: usize = 10_000;

/// What was written so many seconds before something that came first is not counted.
const EARLIER: u64 = 60;

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
    at: Timestamp,
    /// Whether they were told that they have to wait.
    is_told: bool,
}

/// Somebody has to wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wait {
    /// How long.
    pub left: Duration,
    /// Whether they hear of this wait for the first time.
    pub is_new: bool,
}

impl Limiter {
    /// A limit for each.
    pub fn new(pace: Pace) -> Self {
        Self { pace, most: MOST, buckets: Mutex::default() }
    }

    /// Takes a message that somebody wrote at some time, or tells how long they have to wait.
    pub fn take(&self, person: &Person, at: Timestamp) -> Result<(), Wait> {
        if self.pace.per_minute == 0 {
            return Ok(());
        }
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let (tokens, was_told) = match buckets.get_mut(person) {
            None => (self.capacity(), false),
            // It comes from a chat that was caught up with later, and nobody knows what was in the bucket then.
            Some(bucket) if bucket.at.seconds() > at.seconds().saturating_add(EARLIER) => return Ok(()),
            Some(bucket) => {
                let tokens = self.filled(bucket, at);
                if tokens < 1.0 {
                    let is_new = !std::mem::replace(&mut bucket.is_told, true);
                    let left = Duration::from_secs_f64((1.0 - tokens) / self.per_second());
                    return Err(Wait { left, is_new });
                }
                (tokens, bucket.is_told)
            }
        };
        if !buckets.contains_key(person) && buckets.len() >= self.most {
            self.forget(&mut buckets, at);
        }
        // Whoever goes on as before is in the same wait.
        let is_told = was_told && tokens < self.capacity();
        let at = buckets.get(person).map_or(at, |bucket| at.max(bucket.at));
        buckets.insert(person.clone(), Bucket { tokens: tokens - 1.0, at, is_told });
        Ok(())
    }

    /// A bucket that is full is as good as none.
    fn forget(&self, buckets: &mut HashMap<Person, Bucket>, at: Timestamp) {
        buckets.retain(|_, bucket| self.filled(bucket, at) < self.capacity());
        if buckets.len() >= self.most
            && let Some(quiet) =
                buckets.iter().min_by_key(|(_, bucket)| bucket.at).map(|(who, _)| who.clone())
        {
            buckets.remove(&quiet);
        }
    }

    fn filled(&self, bucket: &Bucket, at: Timestamp) -> f64 {
        let since = Duration::from_secs(at.seconds().saturating_sub(bucket.at.seconds())).as_secs_f64();
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

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_seconds(seconds)
    }

    #[test]
    fn somebody_who_sends_too_fast_waits_and_others_do_not() {
        let limiter = Limiter::new(Pace::default());
        let wait = |seconds, is_new| Err(Wait { left: Duration::from_secs(seconds), is_new });
        assert_eq!((0..10).filter(|_| limiter.take(&person(1), at(100)).is_ok()).count(), 10);
        assert_eq!(limiter.take(&person(1), at(100)), wait(2, true));
        assert_eq!(limiter.take(&person(1), at(100)), wait(2, false));
        assert_eq!(limiter.take(&person(2), at(100)), Ok(()));
        assert_eq!(limiter.take(&person(1), at(101)), wait(1, false));
        assert_eq!(limiter.take(&person(1), at(102)), Ok(()));
        assert_eq!(limiter.take(&person(1), at(102)), wait(2, false));
        assert_eq!(limiter.take(&person(1), at(99)), wait(2, false), "clocks are not exact");
        assert_eq!((0..10).filter(|_| limiter.take(&person(1), at(3_702)).is_ok()).count(), 10);
        assert_eq!(limiter.take(&person(1), at(3_702)), wait(2, true));
    }

    #[test]
    fn what_waited_and_comes_all_at_once_was_not_written_all_at_once() {
        let limiter = Limiter::new(Pace::default());
        for minute in 0..50 {
            assert_eq!(limiter.take(&person(1), at(minute * 60)), Ok(()), "{minute}");
        }
        // Another chat of theirs is caught up with later.
        for minute in 0..49 {
            assert_eq!(limiter.take(&person(1), at(minute * 60 - minute)), Ok(()), "{minute}");
        }
    }

    #[test]
    fn no_more_are_remembered_than_fit() {
        let mut limiter = Limiter::new(Pace { per_minute: 1, burst: 1 });
        limiter.most = 3;
        for n in 0..10 {
            assert_eq!(limiter.take(&person(n), at(n as u64)), Ok(()));
            assert!(limiter.buckets.lock().unwrap().len() <= 3);
        }
        assert!(limiter.take(&person(9), at(10)).is_err(), "the last one is remembered");
        assert_eq!(limiter.take(&person(0), at(10)), Ok(()), "the first one is not");
        assert_eq!(limiter.take(&person(10), at(130)), Ok(()));
        assert_eq!(
            limiter.buckets.lock().unwrap().len(),
            1,
            "those who may send again need not be remembered"
        );
    }

    #[test]
    fn there_need_be_no_limit() {
        let limiter = Limiter::new(Pace { per_minute: 0, burst: 0 });
        assert!((0..1_000).all(|_| limiter.take(&person(1), at(0)).is_ok()));
    }
}
