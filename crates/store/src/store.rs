//! The store handle: one writing connection on its own thread, and several reading ones.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use hermes_types::lock;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::changes::ChangeNotifier;
use crate::error::{Error, QueryResult, Result};
use crate::file::{self, IfMissing};
use crate::worker_lock::WorkerLock;

/// Queued writes; further callers wait.
const WRITE_QUEUE_LEN: usize = 64;
const MAX_READERS: usize = 4;

/// The persistent store. Clones are cheap and share the connections.
///
/// A write is in the write-ahead log when its future completes: no crash of any process undoes it.
/// A dropped future may or may not have written.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: mpsc::Sender<WriterCommand>,
    reader_permits: Arc<Semaphore>,
    idle_readers: Mutex<Vec<Connection>>,
    notifier: ChangeNotifier,
    worker_lock: Arc<WorkerLock>,
}

enum WriterCommand {
    Run(Box<dyn FnOnce(&mut Connection) + Send>),
    Close(oneshot::Sender<()>),
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database or creates it. Its directory must exist.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        Self::start(path.clone(), IfMissing::Create).await?.ok_or(Error::NoDirectory { path })
    }

    /// Opens the database if it exists. Read-only commands use this, so they never create one.
    pub async fn open_existing(path: impl Into<PathBuf>) -> Result<Option<Self>> {
        Self::start(path.into(), IfMissing::Skip).await
    }

    async fn start(path: PathBuf, if_missing: IfMissing) -> Result<Option<Self>> {
        let (writer, commands) = mpsc::channel(WRITE_QUEUE_LEN);
        let (reply, opened) = oneshot::channel();
        let at = path.clone();
        thread::Builder::new()
            .name("hermes-store".to_owned())
            .spawn(move || match file::open(&at, if_missing) {
                Ok(Some(connection)) => {
                    if reply.send(Ok(true)).is_ok() {
                        run_writer(connection, commands);
                    }
                }
                Ok(None) => drop(reply.send(Ok(false))),
                Err(error) => drop(reply.send(Err(error))),
            })
            .map_err(|error| Error::Io { path: path.clone(), detail: error.to_string() })?;
        if !opened.await.map_err(|_gone| Error::Closed)?? {
            return Ok(None);
        }
        Ok(Some(Self {
            inner: Arc::new(Inner {
                writer,
                reader_permits: Arc::new(Semaphore::new(MAX_READERS)),
                idle_readers: Mutex::default(),
                notifier: ChangeNotifier::new(path.clone()),
                worker_lock: Arc::new(WorkerLock::new(path.clone())),
                path,
            }),
        }))
    }

    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// The size of the database and its WAL in bytes.
    pub fn size(&self) -> u64 {
        file::size(&self.inner.path)
    }

    /// Finishes all writes and closes the store; other handles then get [`Error::Closed`]. Not
    /// calling it loses nothing, but the next process has to read the WAL.
    pub async fn close(self) {
        let (reply, closed) = oneshot::channel();
        // The last connection to close truncates the WAL, so it must be the writing one.
        self.inner.reader_permits.close();
        lock(&self.inner.idle_readers).clear();
        if self.inner.writer.send(WriterCommand::Close(reply)).await.is_ok() {
            drop(closed.await);
        }
    }

    /// Runs `work` in one transaction.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> QueryResult<T> + Send + 'static,
    ) -> Result<T> {
        let written = self
            .on_writer(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let result = work(&transaction)?;
                transaction.commit()?;
                Ok(result)
            })
            .await;
        if written.is_ok() {
            self.inner.notifier.notify();
        }
        written
    }

    /// Runs `work` on the writing connection.
    pub(crate) async fn on_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> QueryResult<T> + Send + 'static,
    ) -> Result<T> {
        let (reply, answer) = oneshot::channel();
        let command = WriterCommand::Run(Box::new(move |connection| drop(reply.send(work(connection)))));
        self.inner.writer.send(command).await.map_err(|_closed| Error::Closed)?;
        answer.await.map_err(|_gone| Error::Closed)?.map_err(|error| error.into_error(&self.inner.path))
    }

    /// Runs `work` on a reading connection, in one snapshot.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> QueryResult<T> + Send + 'static,
    ) -> Result<T> {
        let inner = Arc::clone(&self.inner);
        let permits = Arc::clone(&inner.reader_permits);
        let permit = permits.acquire_owned().await.map_err(|_closed| Error::Closed)?;
        let run = move || {
            let known = lock(&inner.idle_readers).pop();
            let connection = known.map_or_else(|| file::open_reader(&inner.path), Ok)?;
            let result = (|| {
                let snapshot = connection.unchecked_transaction()?;
                let found = work(&snapshot)?;
                snapshot.finish()?;
                Ok(found)
            })();
            lock(&inner.idle_readers).push(connection);
            drop(permit);
            result
        };
        let result: QueryResult<T> =
            tokio::task::spawn_blocking(run).await.map_err(|_stopped| Error::Closed)?;
        result.map_err(|error| error.into_error(&self.inner.path))
    }

    pub(crate) fn worker_lock(&self) -> Arc<WorkerLock> {
        Arc::clone(&self.inner.worker_lock)
    }

    pub(crate) fn notifier(&self) -> &ChangeNotifier {
        &self.inner.notifier
    }
}

fn run_writer(mut connection: Connection, mut commands: mpsc::Receiver<WriterCommand>) {
    while let Some(command) = commands.blocking_recv() {
        match command {
            WriterCommand::Run(work) => work(&mut connection),
            WriterCommand::Close(reply) => {
                commands.close();
                drop(connection);
                // The caller may have stopped waiting.
                reply.send(()).ok();
                return;
            }
        }
    }
}
