//! Messages on one stream: four bytes of length, then a `postcard` value.

use std::io;

use bytes::{BufMut, BytesMut};
use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite, ReadHalf, WriteHalf};
use tokio_util::codec::{Encoder, FramedRead, FramedWrite, LengthDelimitedCodec};

use super::limit;

/// Why a message could not be read or written.
#[derive(Debug, Error)]
pub enum FrameError {
    /// The bytes are not the message that is due here.
    #[error("not a message of the protocol: {0}")]
    Malformed(#[from] postcard::Error),
    /// A message beyond the limit, or a broken stream.
    #[error("the stream broke")]
    Io(#[from] std::io::Error),
}

/// A stream that carries messages both ways. The two ways are used apart, so that waiting for one never holds up
/// the other.
#[derive(Debug)]
pub struct Frames<S> {
    /// What the peer says.
    pub reader: Reader<S>,
    /// What we say.
    pub writer: Writer<S>,
}

/// The way in. Receiving can be cancelled without losing a byte.
#[derive(Debug)]
pub struct Reader<S>(FramedRead<ReadHalf<S>, LengthDelimitedCodec>);

/// The way out.
#[derive(Debug)]
pub struct Writer<S>(FramedWrite<WriteHalf<S>, Encode>);

impl<S: AsyncRead + AsyncWrite + Unpin> Frames<S> {
    /// Wraps a stream at the beginning of a message.
    pub fn new(stream: S) -> Self {
        let codec =
            LengthDelimitedCodec::builder().max_frame_length(limit::FRAME).little_endian().new_codec();
        let (read, write) = tokio::io::split(stream);
        let reader = Reader(FramedRead::with_capacity(read, codec, 1024));
        Self { reader, writer: Writer(FramedWrite::new(write, Encode)) }
    }

    /// The stream itself, and what was already read of it beyond the last message.
    pub fn into_raw(self) -> (S, BytesMut) {
        let parts = self.reader.0.into_parts();
        (parts.io.unsplit(self.writer.0.into_inner()), parts.read_buf)
    }
}

impl<S: AsyncRead + Unpin> Reader<S> {
    /// The next message, or none when the peer closed its side between two messages.
    pub async fn receive<T: DeserializeOwned>(&mut self) -> Result<Option<T>, FrameError> {
        match self.0.next().await {
            None => Ok(None),
            Some(frame) => Ok(Some(decode(&frame?)?)),
        }
    }
}

impl<S: AsyncWrite + Unpin> Writer<S> {
    /// Writes one message and hands it to the stream, which makes us wait while its window is full.
    pub async fn send<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        self.0.send(message).await
    }

    /// Takes one message and does not wait until it is handed on; [`Writer::flush`] does. If this is cancelled the
    /// message was not taken, and if it returns it was.
    pub async fn feed<T: Serialize>(&mut self, message: &T) -> Result<(), FrameError> {
        self.0.feed(message).await
    }

    /// Hands on what was taken.
    pub async fn flush(&mut self) -> Result<(), FrameError> {
        SinkExt::<&()>::flush(&mut self.0).await
    }

    /// Says that nothing more will be sent.
    pub async fn finish(&mut self) -> Result<(), FrameError> {
        SinkExt::<&()>::close(&mut self.0).await
    }
}

/// Writes a message where it will be sent from, because most of what is sent is long.
#[derive(Debug)]
struct Encode;

impl<T: Serialize> Encoder<&T> for Encode {
    type Error = FrameError;

    fn encode(&mut self, message: &T, out: &mut BytesMut) -> Result<(), FrameError> {
        let start = out.len();
        out.put_u32_le(0);
        postcard::to_io(message, (&mut *out).writer())?;
        let length = out.len() - start - 4;
        if length > limit::FRAME {
            out.truncate(start);
            return Err(io::Error::from(io::ErrorKind::InvalidInput).into());
        }
        let header = u32::try_from(length).unwrap_or(u32::MAX).to_le_bytes();
        out.iter_mut().skip(start).zip(header).for_each(|(byte, length)| *byte = length);
        Ok(())
    }
}

/// Reads one message from the bytes of its frame. Bytes left over are an error: a peer that says more than was
/// asked is as wrong as one that says less.
pub fn decode<T: DeserializeOwned>(frame: &[u8]) -> Result<T, postcard::Error> {
    match postcard::take_from_bytes(frame)? {
        (message, []) => Ok(message),
        _ => Err(postcard::Error::DeserializeBadEncoding),
    }
}
