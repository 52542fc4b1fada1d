//! Notices a turn in which nothing happens.

use std::convert::Infallible;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::lock;

/// The activity of one turn: replies that arrive and tools that run.
#[derive(Debug)]
pub(crate) struct Activity {
    last: Mutex<Instant>,
    /// Tools have limits of their own, so a running one is activity.
    running_tools: AtomicU32,
    has_timed_out: AtomicBool,
}

impl Default for Activity {
    fn default() -> Self {
        Self {
            last: Mutex::new(Instant::now()),
            running_tools: AtomicU32::new(0),
            has_timed_out: AtomicBool::new(false),
        }
    }
}

/// A tool that runs until this is dropped.
pub(crate) struct RunningTool<'a>(&'a Activity);

impl Drop for RunningTool<'_> {
    fn drop(&mut self) {
        self.0.touch();
        self.0.running_tools.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Activity {
    pub(crate) fn touch(&self) {
        *lock(&self.last) = Instant::now();
    }

    pub(crate) fn start_tool(&self) -> RunningTool<'_> {
        self.running_tools.fetch_add(1, Ordering::Relaxed);
        RunningTool(self)
    }

    pub(crate) fn has_timed_out(&self) -> bool {
        self.has_timed_out.load(Ordering::Relaxed)
    }

    /// Cancels the token when nothing has happened for this long. Never returns.
    pub(crate) async fn watch(&self, limit: Option<Duration>, stop: &CancellationToken) -> Infallible {
        if let Some(limit) = limit {
            loop {
                let deadline = *lock(&self.last) + limit;
                if self.running_tools.load(Ordering::Relaxed) > 0 {
                    tokio::time::sleep(limit).await;
                } else if deadline <= Instant::now() {
                    break;
                } else {
                    tokio::time::sleep_until(deadline).await;
                }
            }
            self.has_timed_out.store(true, Ordering::Relaxed);
            stop.cancel();
        }
        std::future::pending().await
    }
}
