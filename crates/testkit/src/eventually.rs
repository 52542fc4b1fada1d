//! Waits for a condition that depends on another thread or process.

use std::thread;
use std::time::{Duration, Instant};

const TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// Polls until a condition holds. Panics with its description after a minute.
pub fn eventually(description: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < TIMEOUT, "timed out: {description}");
        thread::sleep(POLL_INTERVAL);
    }
}
