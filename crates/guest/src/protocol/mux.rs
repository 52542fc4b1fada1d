//! Multiplexes streams with back-pressure over one connection.

mod coalesce;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use yamux::{Config, Connection};

use super::limit;
use coalesce::CoalescingStream;

/// The host is the client: it sends requests.
pub use yamux::Mode as MuxMode;

pub type MuxStream = Compat<yamux::Stream>;

/// Opens streams on a connection that a [`MuxDriver`] drives.
#[derive(Debug, Clone)]
pub struct Mux {
    open_requests: mpsc::Sender<oneshot::Sender<MuxStream>>,
}

impl Mux {
    /// Opens a stream; fails when the connection is closed or has too many streams.
    pub async fn open_stream(&self) -> io::Result<MuxStream> {
        let (sender, receiver) = oneshot::channel();
        self.open_requests
            .send(sender)
            .await
            .map_err(|_gone| io::Error::from(io::ErrorKind::NotConnected))?;
        receiver.await.map_err(|_gone| io::Error::from(io::ErrorKind::NotConnected))
    }
}

/// Drives a connection. No stream makes progress unless [`MuxDriver::run`] is polled.
#[derive(Debug)]
pub struct MuxDriver<S> {
    connection: Connection<Compat<CoalescingStream<S>>>,
    open_requests: mpsc::Receiver<oneshot::Sender<MuxStream>>,
    pending_opens: VecDeque<oneshot::Sender<MuxStream>>,
    inbound: mpsc::Sender<MuxStream>,
}

/// Multiplexes a byte stream. Streams that the peer opens arrive at the receiver; when it is full,
/// the newest stream is dropped, which the peer sees as a reset.
pub fn multiplex<S>(stream: S, mode: MuxMode) -> (Mux, MuxDriver<S>, mpsc::Receiver<MuxStream>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut config = Config::default();
    config.set_max_num_streams(limit::MAX_STREAMS);
    config.set_max_connection_receive_window(Some(limit::RECEIVE_WINDOW_BYTES));
    // Sends a message with a full chunk in one frame.
    config.set_split_send_size(2 * limit::CHUNK_BYTES);
    let connection = Connection::new(CoalescingStream::new(stream).compat(), config, mode);
    let (open_sender, wanted) = mpsc::channel(limit::MAX_STREAMS);
    let (inbound_sender, inbound) = mpsc::channel(limit::MAX_STREAMS);
    let driver = MuxDriver {
        connection,
        open_requests: wanted,
        pending_opens: VecDeque::new(),
        inbound: inbound_sender,
    };
    (Mux { open_requests: open_sender }, driver, inbound)
}

impl<S: AsyncRead + AsyncWrite + Unpin> MuxDriver<S> {
    /// Runs until either side closes the connection or violates the multiplexing protocol.
    pub async fn run(mut self) -> Result<(), yamux::ConnectionError> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), yamux::ConnectionError>> {
        loop {
            while let Poll::Ready(Some(request)) = self.open_requests.poll_recv(context) {
                self.pending_opens.push_back(request);
            }
            let mut moved = self.open_pending(context)?;
            match self.connection.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => {
                    if self.inbound.try_send(stream.compat()).is_err() && self.inbound.is_closed() {
                        return Poll::Ready(Ok(()));
                    }
                    moved = true;
                }
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(error)),
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Pending => {}
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    fn open_pending(&mut self, context: &mut Context<'_>) -> Result<bool, yamux::ConnectionError> {
        let mut moved = false;
        while !self.pending_opens.is_empty() {
            match self.connection.poll_new_outbound(context) {
                Poll::Ready(Ok(stream)) => {
                    if let Some(request) = self.pending_opens.pop_front() {
                        // If the caller is gone, the stream is dropped, which closes it.
                        drop(request.send(stream.compat()));
                        moved = true;
                    }
                }
                Poll::Ready(Err(yamux::ConnectionError::TooManyStreams)) => {
                    self.pending_opens.pop_front();
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        Ok(moved)
    }
}
