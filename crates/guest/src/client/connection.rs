//! The connection to a guest: streams in both directions, and its end.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::Serialize;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::Client;
use super::error::{Error, ProtocolViolation};
use crate::protocol::frame::{FrameReader, FrameStream};
use crate::protocol::limit;
use crate::protocol::message::{GuestReply, GuestRequest};
use crate::protocol::mux::{Mux, MuxDriver, MuxStream};
use crate::protocol::tunnel::{OnReset, Tunnel};

/// Connections waiting to be accepted: as many as a guest forwards at once, so a burst loses none.
const BACKLOG: usize = limit::MAX_LISTENER_CONNECTIONS;

/// The channel of each listener, by its number. Connections of a closed listener may still be in
/// flight, so its number stays valid as long as the connection lives.
pub(super) type ListenerTable = Arc<Mutex<Vec<Option<mpsc::Sender<Tunnel>>>>>;

impl Client {
    pub(super) fn start<S>(mux: Mux, driver: MuxDriver<S>, inbound: mpsc::Receiver<MuxStream>) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (closed, listeners) = (CancellationToken::new(), ListenerTable::default());
        let close_on_drop = Arc::new(closed.clone().drop_guard());
        let (is_closed, routes) = (closed.clone(), listeners.clone());
        tokio::spawn(async move {
            tokio::select! {
                // Every open stream reports the error to its user.
                done = driver.run() => drop(done),
                () = is_closed.cancelled() => {}
                () = accept_streams(inbound, &routes, &is_closed) => {}
            }
            // Wakes every `accept` call: no connection can arrive any more.
            routes.lock().unwrap_or_else(PoisonError::into_inner).clear();
            is_closed.cancel();
        });
        Self { mux, closed, _close_on_drop: close_on_drop, listeners }
    }

    /// Registers a listener; returns its number and its connections.
    pub(super) fn register_listener(&self) -> (u64, mpsc::Receiver<Tunnel>) {
        let (sender, inbound) = mpsc::channel(BACKLOG);
        let mut listeners = self.listeners.lock().unwrap_or_else(PoisonError::into_inner);
        for closed in listeners.iter_mut().filter(|known| known.as_ref().is_some_and(mpsc::Sender::is_closed))
        {
            *closed = None;
        }
        listeners.push(Some(sender));
        (listeners.len() as u64 - 1, inbound)
    }

    /// Closes the connection if the guest violated the protocol or timed out.
    pub(super) fn abort_on_violation(&self, error: Error) -> Error {
        if matches!(error, Error::Protocol(_) | Error::Timeout) {
            self.closed.cancel();
        }
        error
    }

    /// The error for a reply other than the expected one.
    pub(super) fn unexpected_reply(&self, reply: GuestReply) -> Error {
        match reply {
            GuestReply::Failed(fault) => Error::Rejected(fault),
            _ => self.abort_on_violation(Error::Protocol(ProtocolViolation::Unexpected)),
        }
    }

    pub(super) fn expect_done(&self, reply: GuestReply) -> Result<(), Error> {
        match reply {
            GuestReply::Done => Ok(()),
            other => Err(self.unexpected_reply(other)),
        }
    }

    /// Opens a stream and sends a request on it.
    pub(super) async fn send_request(&self, request: &GuestRequest) -> Result<RequestStream, Error> {
        let stream = self.mux.open_stream().await.map_err(|_gone| Error::Disconnected)?;
        let mut stream = RequestStream { client: self.clone(), frames: FrameStream::new(stream) };
        stream.send(request).await?;
        Ok(stream)
    }

    /// Opens a stream with a request and waits for the first reply, with the usual timeout.
    pub(super) async fn start_request(
        &self,
        request: &GuestRequest,
    ) -> Result<(RequestStream, GuestReply), Error> {
        let start = async {
            let mut stream = self.send_request(request).await?;
            let reply = stream.next_reply().await?;
            Ok((stream, reply))
        };
        self.with_timeout(limit::REPLY_TIMEOUT, start).await
    }

    pub(super) async fn read_reply(&self, reader: &mut FrameReader<MuxStream>) -> Result<GuestReply, Error> {
        match reader.receive().await {
            Ok(Some(reply)) => Ok(reply),
            Ok(None) => Err(Error::Disconnected),
            Err(error) => Err(self.abort_on_violation(error.into())),
        }
    }

    /// Sends one request and waits for one reply, without a timeout.
    pub(super) async fn call(&self, request: &GuestRequest) -> Result<GuestReply, Error> {
        self.send_request(request).await?.next_reply().await
    }

    /// Sends one request and waits for one reply, at most [`limit::REPLY_TIMEOUT`].
    pub(super) async fn call_with_timeout(&self, request: &GuestRequest) -> Result<GuestReply, Error> {
        self.with_timeout(limit::REPLY_TIMEOUT, self.call(request)).await
    }

    /// Closes the connection if the guest takes longer than `timeout`.
    pub(super) async fn with_timeout<T>(
        &self,
        timeout: Duration,
        answer: impl Future<Output = Result<T, Error>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(timeout, answer).await {
            Ok(answer) => answer,
            Err(_elapsed) => Err(self.abort_on_violation(Error::Timeout)),
        }
    }
}

/// The stream of one request. Dropping it cancels the request.
#[derive(Debug)]
pub(super) struct RequestStream {
    pub(super) client: Client,
    pub(super) frames: FrameStream<MuxStream>,
}

impl RequestStream {
    pub(super) async fn send(&mut self, message: &impl Serialize) -> Result<(), Error> {
        Ok(self.frames.writer.send(message).await?)
    }

    /// Waits for the next reply. Cancel safe.
    pub(super) async fn next_reply(&mut self) -> Result<GuestReply, Error> {
        self.client.read_reply(&mut self.frames.reader).await
    }
}

/// Accepts the streams that the guest opens. A stream without a listener is a violation, which
/// closes the connection.
async fn accept_streams(
    mut inbound: mpsc::Receiver<MuxStream>,
    listeners: &ListenerTable,
    closed: &CancellationToken,
) {
    while let Some(stream) = inbound.recv().await {
        let (listeners, closed) = (listeners.clone(), closed.clone());
        tokio::spawn(async move {
            if !route_to_listener(stream, &listeners).await {
                closed.cancel();
            }
        });
    }
}

/// Passes a connection to its listener. Returns false if the listener never existed.
async fn route_to_listener(stream: MuxStream, listeners: &ListenerTable) -> bool {
    let mut frames = FrameStream::with_max_length(stream, limit::MAX_ARRIVAL_BYTES);
    let Ok(Ok(Some(GuestReply::Connected(number)))) =
        tokio::time::timeout(limit::REPLY_TIMEOUT, frames.reader.receive::<GuestReply>()).await
    else {
        return false;
    };
    let number = usize::try_from(number).unwrap_or(usize::MAX);
    let listener = listeners.lock().unwrap_or_else(PoisonError::into_inner).get(number).cloned();
    match listener {
        Some(Some(listener)) => {
            // A full backlog refuses the connection, as a socket does.
            drop(listener.try_send(Tunnel::new(frames, OnReset::EndOfFile)));
            true
        }
        Some(None) => true,
        None => false,
    }
}
