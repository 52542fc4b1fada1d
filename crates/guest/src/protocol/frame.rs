//! Framing of messages on one stream: four bytes of length, then a `postcard` value.

use std::io;

use bytes::{BufMut, BytesMut};
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio_util::codec::{Encoder, FramedRead, FramedWrite, LengthDelimitedCodec};

use super::limit;

/// Why reading or writing a message failed.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The bytes do not decode to the expected message.
    #[error("cannot decode a message: {0}")]
    Malformed(#[from] postcard::Error),
    /// The message exceeds the limit, or the stream broke.
    #[error("the stream broke: {0}")]
    Io(#[from] std::io::Error),
}

/// A stream of messages in both directions. The directions are separate, so waiting on one never
/// blocks the other.
#[derive(Debug)]
pub struct FrameStream<S> {
    pub reader: FrameReader<S>,
    pub writer: FrameWriter<S>,
}

/// Receives messages. Cancel safe.
#[derive(Debug)]
pub struct FrameReader<S>(FramedRead<ReadHalf<S>, LengthDelimitedCodec>);

/// Sends messages.
#[derive(Debug)]
pub struct FrameWriter<S>(FramedWrite<WriteHalf<S>, FrameEncoder>);

impl<S: AsyncRead + AsyncWrite + Unpin> FrameStream<S> {
    /// Wraps a stream that is positioned at the start of a message.
    pub fn new(stream: S) -> Self {
        Self::with_max_length(stream, limit::MAX_FRAME_BYTES)
    }

    /// As [`FrameStream::new`], for messages of at most this length.
    pub fn with_max_length(stream: S, length: usize) -> Self {
        let codec = LengthDelimitedCodec::builder().max_frame_length(length).little_endian().new_codec();
        let (read, write) = tokio::io::split(stream);
        let reader = FrameReader(FramedRead::with_capacity(read, codec, 1024));
        Self { reader, writer: FrameWriter(FramedWrite::new(write, FrameEncoder)) }
    }

    /// The underlying stream, and bytes read beyond the last message.
    pub fn into_parts(self) -> (S, BytesMut) {
        let parts = self.reader.0.into_parts();
        (parts.io.unsplit(self.writer.0.into_inner()), parts.read_buf)
    }
}

impl<S: AsyncRead + Unpin> FrameReader<S> {
    /// The next message, or `None` when the peer closed its side between two messages.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        match self.0.next().await {
            None => Ok(None),
            Some(frame) => Ok(Some(decode(&frame?)?)),
        }
    }
}

impl<S: AsyncWrite + Unpin> FrameWriter<S> {
    /// Sends one message and flushes it; waits while the stream's window is full.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        self.0.send(message).await
    }

    /// Buffers one message without flushing it. If this is cancelled the message is not sent; if it
    /// returns, [`FrameWriter::flush`] sends it.
    pub async fn feed<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        self.0.feed(message).await
    }

    /// Flushes buffered messages.
    pub async fn flush(&mut self) -> Result<(), FrameError> {
        SinkExt::<&()>::flush(&mut self.0).await
    }

    /// Closes the sending side.
    pub async fn finish(&mut self) -> Result<(), FrameError> {
        SinkExt::<&()>::close(&mut self.0).await
    }
}

/// Encodes a message directly into the send buffer, because most messages are long.
#[derive(Debug)]
struct FrameEncoder;

impl<T: Serialize> Encoder<&T> for FrameEncoder {
    type Error = FrameError;

    fn encode(&mut self, message: &T, out: &mut BytesMut) -> Result<(), FrameError> {
        let start = out.len();
        out.put_u32_le(0);
        // `Malformed` is only for received messages.
        let encoded = postcard::to_io(message, (&mut *out).writer());
        encoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let length = out.len() - start - 4;
        if length > limit::MAX_FRAME_BYTES {
            out.truncate(start);
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let header = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        out.iter_mut().skip(start).zip(header).for_each(|(byte, length)| *byte = length);
        Ok(())
    }
}

/// Decodes one message from its frame. Trailing bytes are an error.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(frame)? {
        (message, []) => Ok(message),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
