//! The raw bytes that follow the messages of a stream.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::frame::FrameStream;
use super::mux::MuxStream;

/// One forwarded connection.
#[derive(Debug)]
pub struct Tunnel {
    stream: MuxStream,
    /// Bytes that arrived together with the last message.
    early: BytesMut,
    on_reset: OnReset,
    is_shut_down: bool,
}

/// How a reader sees a reset of the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnReset {
    EndOfFile,
    Error,
}

impl Tunnel {
    pub fn new(frames: FrameStream<MuxStream>, on_reset: OnReset) -> Self {
        let (stream, early) = frames.into_parts();
        Self { stream, early, on_reset, is_shut_down: false }
    }
}

impl AsyncRead for Tunnel {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.early.is_empty() {
            let count = self.early.len().min(buffer.remaining());
            buffer.put_slice(self.early.get(..count).unwrap_or_default());
            self.early.advance(count);
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        let is_end = buffer.filled().len() == before;
        let is_reset = is_end && !self.is_shut_down && self.stream.get_ref().is_closed();
        if is_reset && self.on_reset == OnReset::Error {
            return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into()));
        }
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
        self.is_shut_down = true;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
