//! Coalesces the header of a frame with its body.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Shorter writes wait for the next write or for a flush. The multiplexer writes header and body
/// separately; two writes would wake the other side twice, which costs more than copying all bytes.
const MAX_PENDING_BYTES: usize = 64;

/// A byte stream that holds back short writes until more data follows.
#[derive(Debug)]
pub(super) struct CoalescingStream<S> {
    stream: S,
    pending: [u8; MAX_PENDING_BYTES],
    /// Number of pending bytes, and how many of them are already sent.
    pending_len: usize,
    sent: usize,
}

impl<S> CoalescingStream<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, pending: [0; MAX_PENDING_BYTES], pending_len: 0, sent: 0 }
    }

    /// Records that `count` bytes were sent, pending bytes first; returns how many were not
    /// pending.
    fn record_sent(&mut self, count: usize) -> usize {
        let pending = count.min(self.pending_len - self.sent);
        self.sent += pending;
        if self.sent == self.pending_len {
            (self.sent, self.pending_len) = (0, 0);
        }
        count - pending
    }
}

impl<S: AsyncWrite + Unpin> CoalescingStream<S> {
    fn poll_send_pending(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.pending_len > 0 {
            let pending = self.pending.get(self.sent..self.pending_len).unwrap_or_default();
            match ready!(Pin::new(&mut self.stream).poll_write(context, pending))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.record_sent(count),
            };
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescingStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = &mut *self;
        loop {
            let end = this.pending_len + data.len();
            if let Some(free) = this.pending.get_mut(this.pending_len..end) {
                free.copy_from_slice(data);
                this.pending_len = end;
                return Poll::Ready(Ok(data.len()));
            }
            let pending = this.pending.get(this.sent..this.pending_len).unwrap_or_default();
            let parts = [IoSlice::new(pending), IoSlice::new(data)];
            let count = ready!(Pin::new(&mut this.stream).poll_write_vectored(context, &parts))?;
            if count == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            // If only pending bytes were sent, none of `data` was written yet.
            let written = this.record_sent(count);
            if written > 0 {
                return Poll::Ready(Ok(written));
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_pending(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_send_pending(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescingStream<S> {
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

    /// Records each write; accepts at most this many bytes per write.
    #[derive(Debug)]
    struct WriteRecorder(Mutex<Vec<Vec<u8>>>, usize);

    impl AsyncWrite for WriteRecorder {
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
        let mut coalescing = CoalescingStream::new(WriteRecorder(Mutex::default(), 1000));
        coalescing.write_all(&[1; 12]).await.unwrap();
        coalescing.write_all(&[2; 500]).await.unwrap();
        coalescing.flush().await.unwrap();
        coalescing.write_all(&[3; 12]).await.unwrap();
        coalescing.flush().await.unwrap();
        let expected = vec![[vec![1; 12], vec![2; 500]].concat(), vec![3; 12]];
        assert_eq!(coalescing.stream.0.into_inner().unwrap(), expected);
    }

    #[tokio::test]
    async fn reads_pass_through() {
        let mut coalescing = CoalescingStream::new(std::io::Cursor::new(b"abc".to_vec()));
        let mut all = Vec::new();
        coalescing.read_to_end(&mut all).await.unwrap();
        assert_eq!(all, b"abc");
    }

    proptest! {
        #[test]
        fn bytes_are_sent_once_and_in_order(
            writes in proptest::collection::vec((0_usize..200, any::<bool>()), 0..20),
            max_write in 1_usize..150,
        ) {
            let mut coalescing = CoalescingStream::new(WriteRecorder(Mutex::default(), max_write));
            let mut all = Vec::new();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                for (index, (length, flush)) in writes.iter().enumerate() {
                    let data = vec![index as u8; *length];
                    coalescing.write_all(&data).await.unwrap();
                    all.extend(data);
                    if *flush {
                        coalescing.flush().await.unwrap();
                    }
                }
                coalescing.shutdown().await.unwrap();
            });
            prop_assert_eq!(coalescing.stream.0.into_inner().unwrap().concat(), all);
        }
    }
}
