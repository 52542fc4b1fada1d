//! The connection itself: streams out, streams in, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc, watch};

use super::error::{self, Breach, Error};
use super::tunnel::Tunnel;
use crate::protocol::frame::{Frames, Reader};
use crate::protocol::limit;
use crate::protocol::message::{Reply, Request};
use crate::protocol::mux::{Driver, Mux, Stream};

/// Shared by everything that uses the connection; its last clone ends it.
#[derive(Debug, Clone)]
pub(super) struct Link {
    mux: Mux,
    /// Set to true once, by whoever ends the connection.
    end: Arc<watch::Sender<bool>>,
    listeners: Listeners,
}

/// Where connections of each listener go, by its number. A listener that was closed may still have connections on
/// the way, so its number stays known as long as the connection lives; but nothing else does.
type Listeners = Arc<Mutex<Vec<Option<mpsc::Sender<Tunnel>>>>>;

impl Link {
    pub(super) fn start<S>(mux: Mux, driver: Driver<S>, arrivals: mpsc::Receiver<Stream>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (end, ended) = watch::channel(false);
        let listeners = Listeners::default();
        let link = Self { mux, end: Arc::new(end), listeners: listeners.clone() };
        let weak = Arc::downgrade(&link.end);
        tokio::spawn(async move {
            let mut ended = ended;
            tokio::select! {
                // The streams tell those who use them how it ended.
                done = driver.run() => drop(done),
                _ = ended.wait_for(|ended| *ended) => {}
                () = accept(arrivals, listeners.clone()) => {}
            }
            // Nobody waits for a connection that cannot come.
            listeners.lock().unwrap_or_else(PoisonError::into_inner).clear();
            if let Some(end) = weak.upgrade() {
                end.send_replace(true);
            }
        });
        link
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.end.borrow()
    }

    pub(super) async fn closed(&self) {
        // The sender lives as long as we do.
        drop(self.end.subscribe().wait_for(|ended| *ended).await);
    }

    /// Gives a listener its number.
    pub(super) fn register(&self, arrive: mpsc::Sender<Tunnel>) -> u64 {
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for closed in listeners.iter_mut().filter(|known| known.as_ref().is_some_and(mpsc::Sender::is_closed))
        {
            *closed = None;
        }
        listeners.push(Some(arrive));
        listeners.len() as u64 - 1
    }

    /// Ends the connection because of what the guest did.
    pub(super) fn cut(&self, error: Error) -> Error {
        if matches!(error, Error::Breach(_) | Error::Silent) {
            self.end.send_replace(true);
        }
        error
    }

    /// What a reply means that is not the one that was asked for.
    pub(super) fn unexpected(&self, reply: Reply) -> Error {
        match reply {
            Reply::Failed(fault) => Error::Refused(fault),
            _ => self.cut(Error::Breach(Breach::Unexpected)),
        }
    }

    pub(super) fn expect_done(&self, reply: Reply) -> Result<(), Error> {
        match reply {
            Reply::Done => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    /// Opens a stream and puts a request on it.
    pub(super) async fn open(&self, request: &Request) -> Result<Frames<Stream>, Error> {
        let mut frames = Frames::new(self.mux.open().await.map_err(|_gone| Error::Gone)?);
        frames.writer.send(request).await.map_err(|error| error::on_send(&error))?;
        Ok(frames)
    }

    /// The next reply on a stream.
    pub(super) async fn next(&self, frames: &mut Frames<Stream>) -> Result<Reply, Error> {
        self.receive(&mut frames.reader).await
    }

    /// The next reply on a stream that is also written to.
    pub(super) async fn receive(&self, reader: &mut Reader<Stream>) -> Result<Reply, Error> {
        match reader.receive().await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(Error::Gone),
            Err(error) => Err(self.cut(error::on_receive(&error))),
        }
    }

    /// One request, one reply, however long it takes.
    pub(super) async fn call(&self, request: &Request) -> Result<Reply, Error> {
        let mut frames = self.open(request).await?;
        self.next(&mut frames).await
    }

    /// One request, one reply, soon.
    pub(super) async fn ask(&self, request: &Request) -> Result<Reply, Error> {
        self.within(limit::ANSWER, self.call(request)).await
    }

    pub(super) async fn ask_done(&self, request: &Request) -> Result<(), Error> {
        self.expect_done(self.ask(request).await?)
    }

    /// Ends the connection if the guest takes longer than this.
    pub(super) async fn within<T>(
        &self,
        patience: Duration,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(patience, answer).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(self.cut(Error::Silent)),
        }
    }
}

/// Takes the streams that the guest opens: connections to our listeners and nothing else. Ends with a breach, and
/// the connection with it.
async fn accept(mut arrivals: mpsc::Receiver<Stream>, listeners: Listeners) {
    let breach = Arc::new(Notify::new());
    loop {
        let stream = tokio::select! {
            stream = arrivals.recv() => stream,
            () = breach.notified() => return,
        };
        let Some(stream) = stream else { return };
        let (listeners, breach) = (listeners.clone(), breach.clone());
        tokio::spawn(async move {
            if !arrive(stream, &listeners).await {
                breach.notify_one();
            }
        });
    }
}

/// Hands a connection to its listener; says whether the guest had the right to make it.
async fn arrive(stream: Stream, listeners: &Listeners) -> bool {
    let mut frames = Frames::new(stream);
    let Ok(Ok(Some(Reply::Arrived(number)))) =
        tokio::time::timeout(limit::ANSWER, frames.reader.receive::<Reply>()).await
    else {
        return false;
    };
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let listener = listeners.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
    match listener {
        Some(Some(listener)) => {
            // A listener whose owner does not accept fast enough refuses, as a socket would.
            drop(listener.try_send(Tunnel::new(frames)));
            true
        }
        Some(None) => true,
        None => false,
    }
}
