//! Many streams with back-pressure over one connection.

mod together;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio_util::compat::{Compat, FuturesAsyncReadCompatExt, TokioAsyncReadCompatExt};
use yamux::{Config, Connection};

use super::limit;
use together::Together;

/// One stream of the connection.
pub type Stream = Compat<yamux::Stream>;

/// Which end of the connection we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The side that asks.
    Host,
    /// The side that answers.
    Guest,
}

/// Opens streams on a connection that a [`Driver`] keeps going.
#[derive(Debug, Clone)]
pub struct Mux {
    wanted: mpsc::Sender<oneshot::Sender<Stream>>,
}

impl Mux {
    /// Opens a stream; fails when the connection is gone or has all the streams it may have.
    pub async fn open(&self) -> io::Result<Stream> {
        let (give, take) = oneshot::channel();
        self.wanted.send(give).await.map_err(|_gone| io::Error::from(io::ErrorKind::NotConnected))?;
        take.await.map_err(|_gone| io::Error::from(io::ErrorKind::NotConnected))
    }
}

/// Moves the bytes of a connection. Nothing happens on any stream unless [`Driver::run`] is polled.
#[derive(Debug)]
pub struct Driver<S> {
    connection: Connection<Compat<Together<S>>>,
    wanted: mpsc::Receiver<oneshot::Sender<Stream>>,
    waiting: VecDeque<oneshot::Sender<Stream>>,
    arrived: mpsc::Sender<Stream>,
}

/// Puts a multiplexer on a byte stream. Streams the peer opens come out of the receiver; when that is full the
/// newest one is dropped, which the peer sees as a reset.
pub fn multiplex<S>(stream: S, end: End) -> (Mux, Driver<S>, mpsc::Receiver<Stream>)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mode = match end {
        End::Host => yamux::Mode::Client,
        End::Guest => yamux::Mode::Server,
    };
    let mut config = Config::default();
    config.set_max_num_streams(limit::STREAMS);
    config.set_max_connection_receive_window(Some(limit::RECEIVE_WINDOW));
    // A message with a chunk in it travels in one piece.
    config.set_split_send_size(2 * limit::CHUNK);
    let connection = Connection::new(Together::new(stream).compat(), config, mode);
    let (want, wanted) = mpsc::channel(limit::STREAMS);
    let (arrived, arrivals) = mpsc::channel(limit::STREAMS);
    let driver = Driver { connection, wanted, waiting: VecDeque::new(), arrived };
    (Mux { wanted: want }, driver, arrivals)
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Runs until the connection ends, by either side or by a breach of the multiplexing protocol.
    pub async fn run(mut self) -> Result<(), yamux::ConnectionError> {
        poll_fn(|context| self.poll(context)).await
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<(), yamux::ConnectionError>> {
        loop {
            while let Poll::Ready(Some(wish)) = self.wanted.poll_recv(context) {
                self.waiting.push_back(wish);
            }
            let mut moved = self.open_waiting(context)?;
            match self.connection.poll_next_inbound(context) {
                Poll::Ready(Some(Ok(stream))) => {
                    if self.arrived.try_send(stream.compat()).is_err() && self.arrived.is_closed() {
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

    fn open_waiting(&mut self, context: &mut Context<'_>) -> Result<bool, yamux::ConnectionError> {
        let mut moved = false;
        while !self.waiting.is_empty() {
            match self.connection.poll_new_outbound(context) {
                Poll::Ready(Ok(stream)) => {
                    if let Some(wish) = self.waiting.pop_front() {
                        // A wish that was given up drops the stream, which closes it.
                        drop(wish.send(stream.compat()));
                        moved = true;
                    }
                }
                Poll::Ready(Err(yamux::ConnectionError::TooManyStreams)) => {
                    self.waiting.pop_front();
                }
                Poll::Ready(Err(error)) => return Err(error),
                Poll::Pending => break,
            }
        }
        Ok(moved)
    }
}
