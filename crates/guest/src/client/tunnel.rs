//! Streams to and from sockets inside the place.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::mpsc;

use super::Client;
use super::error::Error;
use super::link::Link;
use crate::protocol::frame::Frames;
use crate::protocol::limit;
use crate::protocol::message::{Address, Reply, Request};
use crate::protocol::mux::Stream;

/// Connections that wait to be accepted: as many as a guest carries, so that a burst of them loses none.
const BACKLOG: usize = limit::CARRIED;

impl Client {
    /// Makes a socket in the place; its connections come out of the listener. It is gone when the listener is
    /// dropped.
    pub async fn listen(&self, address: Address) -> Result<Listener, Error> {
        let (arrive, arrived) = mpsc::channel(BACKLOG);
        let number = self.link.register(arrive);
        let request = Request::Listen(number, address);
        let begin = async {
            let mut frames = self.link.open(&request).await?;
            let reply = self.link.next(&mut frames).await?;
            Ok((frames, reply))
        };
        let (frames, reply) = self.link.within(limit::ANSWER, begin).await?;
        let Reply::Listening(port) = reply else { return Err(self.link.unexpected(reply)) };
        Ok(Listener { port, arrived, _link: self.link.clone(), _frames: frames })
    }

    /// Connects to a socket in the place.
    pub async fn dial(&self, address: Address) -> Result<Tunnel, Error> {
        let request = Request::Dial(address);
        let begin = async {
            let mut frames = self.link.open(&request).await?;
            let reply = self.link.next(&mut frames).await?;
            Ok((frames, reply))
        };
        let (frames, reply) = self.link.within(limit::ANSWER, begin).await?;
        self.link.expect_done(reply)?;
        Ok(Tunnel::new(frames))
    }
}

/// The connections that a Python program makes to its host.
#[derive(Debug)]
pub struct Calls {
    arrived: mpsc::Receiver<Tunnel>,
}

impl Calls {
    /// Gives them a number, before the first of them is made.
    pub(super) fn register(link: &Link) -> (u64, Self) {
        let (arrive, arrived) = mpsc::channel(BACKLOG);
        (link.register(arrive), Self { arrived })
    }

    /// The next connection; waits for it as long as it takes. None when the connection to the guest is gone.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.arrived.recv().await
    }
}

/// A socket inside the place.
#[derive(Debug)]
pub struct Listener {
    port: u16,
    arrived: mpsc::Receiver<Tunnel>,
    _link: Link,
    /// Its end is the end of the socket.
    _frames: Frames<Stream>,
}

impl Listener {
    /// The TCP port inside the place; 0 for a Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The next connection; waits for it as long as it takes. None when the connection to the guest is gone.
    pub async fn accept(&mut self) -> Option<Tunnel> {
        self.arrived.recv().await
    }
}

/// The bytes of one connection.
#[derive(Debug)]
pub struct Tunnel {
    stream: Stream,
    early: BytesMut,
}

impl Tunnel {
    pub(super) fn new(frames: Frames<Stream>) -> Self {
        let (stream, early) = frames.into_raw();
        Self { stream, early }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.early.is_empty() {
            return Pin::new(&mut self.stream).poll_read(context, buffer);
        }
        let count = self.early.len().min(buffer.remaining());
        buffer.put_slice(self.early.get(..count).unwrap_or_default());
        self.early.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Tunnel {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, data)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
