//! Hearing of what others have written.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rusqlite::Connection;
use tokio::sync::watch;

use crate::file;
use crate::store::Store;

/// How often another process's writes are looked for. The look is at shared memory, not at the disk.
const BEAT: Duration = Duration::from_millis(100);

/// Tells that something was written: at once where this process did it, within a beat where another one did.
#[derive(Debug)]
pub(crate) struct Changes {
    path: PathBuf,
    count: watch::Sender<u64>,
    is_looking: Arc<Mutex<bool>>,
}

impl Changes {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path, count: watch::Sender::new(0), is_looking: Arc::default() }
    }

    /// Says that this process has written.
    pub(crate) fn tell(&self) {
        self.count.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// What hears of every write from now on. As long as there is one, a thread looks for the writes of other processes.
    pub(crate) fn listen(&self) -> watch::Receiver<u64> {
        let receiver = self.count.subscribe();
        let mut is_looking = self.is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        if !*is_looking {
            let (path, count, flag) = (self.path.clone(), self.count.clone(), Arc::clone(&self.is_looking));
            let started = thread::Builder::new()
                .name("hermes-watch".to_owned())
                .spawn(move || look(&path, &count, &flag));
            *is_looking = started.is_ok();
        }
        receiver
    }
}

/// Tells that something may have been written, by whatever process.
#[derive(Debug)]
pub struct News(watch::Receiver<u64>);

impl News {
    /// Waits for a write since the last time. Writes that follow each other closely are told as one. Can be cancelled by whoever
    /// looks for themselves then.
    pub async fn next(&mut self) {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        tokio::time::sleep(BEAT).await;
        self.0.mark_unchanged();
    }
}

impl Store {
    /// Tells of what is written from now on.
    pub fn news(&self) -> News {
        News(self.changes().listen())
    }
}

fn look(path: &std::path::Path, count: &watch::Sender<u64>, is_looking: &Mutex<bool>) {
    let mut connection = None;
    let mut seen = None;
    loop {
        let version = version(path, &mut connection);
        // The first look is no change, but it may come after one.
        if version.is_none() || seen != version {
            count.send_modify(|count| *count = count.wrapping_add(1));
        }
        seen = version;
        thread::sleep(BEAT);
        let mut is_looking = is_looking.lock().unwrap_or_else(PoisonError::into_inner);
        if count.receiver_count() == 0 {
            *is_looking = false;
            return;
        }
    }
}

/// A number that is another one after every write of another connection. Without one, listeners look for themselves.
fn version(path: &std::path::Path, connection: &mut Option<Connection>) -> Option<i64> {
    if connection.is_none() {
        *connection = file::open_reader(path).ok();
    }
    connection.as_ref()?.pragma_query_value(None, "data_version", |row| row.get(0)).ok()
}
