//! Notification about writes of this and other processes.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use tokio::sync::watch;

use crate::file;
use crate::store::Store;

/// How often the writes of other processes are detected. A check reads shared memory, not the disk.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Notifies subscribers: at once about writes of this process, within one interval about others.
#[derive(Debug, Clone)]
pub(crate) struct ChangeNotifier {
    path: PathBuf,
    count: watch::Sender<u64>,
    is_polling: Arc<Mutex<bool>>,
}

impl ChangeNotifier {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, count: watch::Sender::new(0), is_polling: Arc::default() }
    }

    pub(crate) fn notify(&self) {
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Subscribes to writes. While there are subscribers, a thread polls for the writes of other
    /// processes.
    pub(crate) fn subscribe(&self) -> watch::Receiver<u64> {
        let receiver = self.count.subscribe();
        let mut is_polling = self.is_polling.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_polling {
            let notifier = self.clone();
            let thread = thread::Builder::new().name("hermes-watch".to_owned());
            *is_polling = thread.spawn(move || notifier.poll()).is_ok();
        }
        receiver
    }

    fn poll(&self) {
        let mut connection = None;
        let mut last_version = None;
        loop {
            if connection.is_none() {
                connection = file::open_reader(&self.path).ok();
            }
            // A number that changes with every write of another connection. Without it, subscribers
            // check for themselves.
            let version: Option<i64> = connection.as_ref().and_then(|connection| {
                connection.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
            });
            // The first check is not a change, but a write may have come before it.
            if version.is_none() || last_version != version {
                self.notify();
            }
            last_version = version;
            thread::sleep(POLL_INTERVAL);
            let mut is_polling = self.is_polling.lock().unwrap_or_else(PoisonError::into_inner);
            if self.count.receiver_count() == 0 {
                *is_polling = false;
                return;
            }
        }
    }
}

/// A stream of notifications that some process may have written.
#[derive(Debug)]
pub struct ChangeStream(watch::Receiver<u64>);

impl ChangeStream {
    /// Waits for a write since the last call. Writes in quick succession count as one. Cancel-safe
    /// if the caller then checks the store itself.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(POLL_INTERVAL).await;
        self.0.mark_unchanged();
    }
}

impl Store {
    pub fn change_stream(&self) -> ChangeStream {
        ChangeStream(self.notifier().subscribe())
    }
}
