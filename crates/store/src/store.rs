//! The handle: one connection that writes, on a thread of its own, and some that read.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use rusqlite::{Connection, Transaction, TransactionBehavior};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::error::{Error, Fault};
use crate::file::{self, Absent};
use crate::presence::Presence;
use crate::watch::Changes;

/// Writes that may wait for their turn; whoever brings one more waits too.
const QUEUE: usize = 64;
/// Reads at the same time.
const READERS: usize = 4;

/// What survives a restart. It is cheap to clone, and every clone uses the same connections.
///
/// What a write did is on its way to the disk when its future ends: no crash of this or another process undoes it.
/// A future that is dropped may or may not have written.
#[derive(Clone)]
pub struct Store {
    inner: Arc<Inner>,
}

struct Inner {
    path: PathBuf,
    writer: mpsc::Sender<Order>,
    readers: Readers,
    changes: Changes,
    presence: Arc<Presence>,
}

struct Readers {
    turns: Arc<Semaphore>,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// What the writing thread is told.
enum Order {
    Work(Box<dyn FnOnce(&mut Connection) + Send>),
    Close(oneshot::Sender<()>),
}

impl fmt::Debug for Store {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Store").field("path", &self.inner.path).finish_non_exhaustive()
    }
}

impl Store {
    /// Opens the database at a path, or makes it. Its directory must be there.
    pub async fn open(path: impl Into<PathBuf>) -> Result<Self, Error> {
        let path = path.into();
        Self::start(path.clone(), Absent::Make).await?.ok_or(Error::NoDirectory { path })
    }

    /// Opens the database at a path, if there is one: nothing that only looks makes one.
    pub async fn find(path: impl Into<PathBuf>) -> Result<Option<Self>, Error> {
        Self::start(path.into(), Absent::Leave).await
    }

    async fn start(path: PathBuf, absent: Absent) -> Result<Option<Self>, Error> {
        let (writer, orders) = mpsc::channel(QUEUE);
        let (reply, opened) = oneshot::channel();
        let at = path.clone();
        thread::Builder::new()
            .name("hermes-store".to_owned())
            .spawn(move || match file::open(&at, absent) {
                Ok(Some(connection)) => {
                    if reply.send(Ok(true)).is_ok() {
                        serve(connection, orders);
                    }
                }
                Ok(None) => drop(reply.send(Ok(false))),
                Err(error) => drop(reply.send(Err(error))),
            })
            .map_err(|error| Error::Io { path: path.clone(), detail: error.to_string() })?;
        if !opened.await.map_err(|_gone| Error::Closed)?? {
            return Ok(None);
        }
        let readers = Readers { turns: Arc::new(Semaphore::new(READERS)), idle: Arc::default() };
        let changes = Changes::new(path.clone());
        let presence = Arc::new(Presence::new(path.clone()));
        Ok(Some(Self { inner: Arc::new(Inner { path, writer, readers, changes, presence }) }))
    }

    /// Where the database is.
    pub fn path(&self) -> &Path {
        &self.inner.path
    }

    /// How many bytes it has on the disk, with its log.
    pub fn size(&self) -> u64 {
        file::size(&self.inner.path)
    }

    /// Ends all writing and waits for it. Whoever still has a handle gets [`Error::Closed`]. Without it nothing is lost, but the
    /// next one to open the database has to read the log.
    pub async fn close(self) {
        let (reply, closed) = oneshot::channel();
        // Whoever closes last cuts the log, and that must be the one that can write.
        self.inner.readers.turns.close();
        self.inner.readers.idle.lock().unwrap_or_else(PoisonError::into_inner).clear();
        if self.inner.writer.send(Order::Close(reply)).await.is_ok() {
            drop(closed.await);
        }
    }

    /// Does some work in one transaction.
    pub(crate) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let written = self
            .on_writer(move |connection| {
                let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
                let result = work(&transaction)?;
                transaction.commit()?;
                Ok(result)
            })
            .await;
        if written.is_ok() {
            self.inner.changes.tell();
        }
        written
    }

    /// Does some work on the connection that writes.
    pub(crate) async fn on_writer<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        let order = Order::Work(Box::new(move |connection| drop(reply.send(work(connection)))));
        self.inner.writer.send(order).await.map_err(|_closed| Error::Closed)?;
        answer.await.map_err(|_gone| Error::Closed)?.map_err(|fault| fault.at(&self.inner.path))
    }

    /// Looks something up. All statements of the work see the same state.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, Fault> + Send + 'static,
    ) -> Result<T, Error> {
        let Readers { turns, idle } = &self.inner.readers;
        let turn = Arc::clone(turns).acquire_owned().await.map_err(|_closed| Error::Closed)?;
        let (idle, path) = (Arc::clone(idle), self.inner.path.clone());
        let looked = tokio::task::spawn_blocking(move || {
            let kept = || idle.lock().unwrap_or_else(PoisonError::into_inner);
            let known = kept().pop();
            let connection = known.map_or_else(|| file::open_reader(&path), Ok)?;
            let found = (|| {
                let state = connection.unchecked_transaction()?;
                let found = work(&state)?;
                state.finish()?;
                Ok(found)
            })();
            kept().push(connection);
            drop(turn);
            found
        });
        looked.await.map_err(|_stopped| Error::Closed)?.map_err(|fault: Fault| fault.at(&self.inner.path))
    }

    /// Who works on turns, this handle included.
    pub(crate) fn presence(&self) -> Arc<Presence> {
        Arc::clone(&self.inner.presence)
    }

    pub(crate) fn changes(&self) -> &Changes {
        &self.inner.changes
    }
}

fn serve(mut connection: Connection, mut orders: mpsc::Receiver<Order>) {
    while let Some(order) = orders.blocking_recv() {
        match order {
            Order::Work(work) => work(&mut connection),
            Order::Close(reply) => {
                orders.close();
                drop(connection);
                // Whoever closes may have stopped waiting.
                reply.send(()).ok();
                return;
            }
        }
    }
}
