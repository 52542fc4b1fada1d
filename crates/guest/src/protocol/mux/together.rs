//! Sends the header of a frame together with its body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// What is shorter than this waits for what follows it, or for a flush. The multiplexer writes a header and a body one
/// after the other; sent apart, they wake the other side twice, which costs more than all copies of the bytes.
const SHORT: usize = 64;

/// A byte stream that holds back what is short until more comes.
#[derive(Debug)]
pub(super) struct Together<S> {
    stream: S,
    held: [u8; SHORT],
    /// How many bytes are held, and how many of them are sent already.
    length: usize,
    sent: usize,
}

impl<S> Together<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, held: [0; SHORT], length: 0, sent: 0 }
    }

    /// Takes note that so many of the held bytes are sent, and says how many others were sent with them.
    fn account(&mut self, count: usize) -> usize {
        let held = count.min(self.length - self.sent);
        self.sent += held;
        if self.sent == self.length {
            (self.sent, self.length) = (0, 0);
        }
        count - held
    }
}

impl<S: AsyncWrite + Unpin> Together<S> {
    fn poll_send_held(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.length > 0 {
            let held = self.held.get(self.sent..self.length).unwrap_or_default();
            match ready!(Pin::new(&mut self.stream).poll_write(context, held))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.account(count),
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Together<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let end = this.length + data.len();
            if let Some(room) = this.held.get_mut(this.length..end) {
                room.copy_from_slice(data);
                this.length = end;
                return Poll::Ready(Ok(data.len()));
            }
            let held = this.held.get(this.sent..this.length).unwrap_or_default();
            let parts = [IoSlice::new(held), IoSlice::new(data)];
            let count = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, &parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            // If only held bytes went out, nothing of the data is written yet.
            let others = this.account(count);
            if others > 0 {
                return Poll::Ready(Ok(others));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_held(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_held(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Together<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    /// Remembers each write, of which it takes at most so much.
    #[derive(Debug)]
    struct Pieces(Mutex<Vec<Vec<u8>>>, usize);

    impl AsyncWrite for Pieces {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            data: &[u8],
        ) -> Poll<io::Result<usize>> {
            self.poll_write_vectored(context, &[IoSlice::new(data)])
        }

        fn poll_write_vectored(
            self: Pin<&mut Self>,
            _: &mut Context<'_>,
            parts: &[IoSlice<'_>],
        ) -> Poll<io::Result<usize>> {
            let piece: Vec<u8> = parts.iter().flat_map(|part| part.iter().copied()).take(self.1).collect();
            let count = piece.len();
            self.0.lock().unwrap().push(piece);
            Poll::Ready(Ok(count))
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_header_and_its_body_are_one_write() {
        let mut together = Together::new(Pieces(Mutex::default(), 1000));
        together.write_all(&[1; 12]).await.unwrap();
        together.write_all(&[2; 500]).await.unwrap();
        together.flush().await.unwrap();
        together.write_all(&[3; 12]).await.unwrap();
        together.flush().await.unwrap();
        let expected = vec![[vec![1; 12], vec![2; 500]].concat(), vec![3; 12]];
        assert_eq!(together.stream.0.into_inner().unwrap(), expected);
    }

    #[tokio::test]
    async fn what_is_read_is_what_the_stream_has() {
        let mut together = Together::new(std::io::Cursor::new(b"abc".to_vec()));
        let mut all = Vec::new();
        together.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abc");
    }

    proptest! {
        #[test]
        fn bytes_go_out_once_and_in_order(
            writes in proptest::collection::vec((0_usize..200, any::<bool>()), 0..20),
            most in 1_usize..150,
        ) {
            let mut together = Together::new(Pieces(Mutex::default(), most));
            let mut all = Vec::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for (index, (length, flush)) in writes.iter().enumerate() {
                    let data = vec![index as u8; *length];
                    together.write_all(&data).await.unwrap();
                    all.extend(data);
                    if *flush {
                        together.flush().await.unwrap();
                    }
                }
                together.shutdown().await.unwrap();
            });
            prop_assert_eq!(together.stream.0.into_inner().unwrap().concat(), all);
        }
    }
}
