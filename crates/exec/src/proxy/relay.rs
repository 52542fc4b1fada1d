//! Bytes both ways between a client and its server, until both have ended or neither has anything to say.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf, copy_bidirectional_with_sizes};
use tokio::time::Instant;

/// What is read at once.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// Silence after which a connection counts as dead. Long polls and slow servers are quiet for minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// The same once one side has ended: few that have nothing more to say wait that long for an answer.
const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(60);

/// Joins the two.
pub(super) async fn copy_both_ways<C, S>(mut client: C, server: S) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let pulse = Arc::new(ActivityTimer::new());
    let mut server = TimedStream { stream: server, pulse: pulse.clone() };
    tokio::select! {
        done = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES) => done.map(drop),
        () = pulse.wait_for_timeout() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// When something last passed.
pub(super) struct ActivityTimer {
    start: Instant,
    /// Milliseconds after the start.
    last: AtomicU64,
    half_open: AtomicBool,
}

impl ActivityTimer {
    pub(super) fn new() -> Self {
        Self { start: Instant::now(), last: AtomicU64::new(0), half_open: AtomicBool::new(false) }
    }

    fn touch(&self) {
        let now = u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(now, Ordering::Relaxed);
    }

    /// One side has ended.
    pub(super) fn mark_half_open(&self) {
        self.half_open.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Waits until nothing has passed for too long.
    pub(super) async fn wait_for_timeout(&self) {
        loop {
            let patience =
                if self.half_open.load(Ordering::Relaxed) { HALF_OPEN_TIMEOUT } else { IDLE_TIMEOUT };
            let due = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + patience;
            let now = Instant::now();
            if now >= due {
                return;
            }
            // A side may end meanwhile, which makes it earlier.
            tokio::time::sleep_until(due.min(now + HALF_OPEN_TIMEOUT)).await;
        }
    }
}

/// The server's end, past which every byte goes.
pub(super) struct TimedStream<S> {
    pub(super) stream: S,
    pub(super) pulse: Arc<ActivityTimer>,
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() == before {
            self.pulse.mark_half_open();
        } else {
            self.pulse.touch();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = ready!(Pin::new(&mut self.stream).poll_write(context, data))?;
        self.pulse.touch();
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.pulse.mark_half_open();
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
    use tokio::task::JoinHandle;

    use super::*;

    fn joined() -> (DuplexStream, DuplexStream, JoinHandle<io::Result<()>>) {
        let (client, inner_client) = duplex(1024);
        let (server, inner_server) = duplex(1024);
        (client, server, tokio::spawn(copy_both_ways(inner_client, inner_server)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_connection_lives_as_long_as_something_passes_now_and_then() {
        let (mut client, mut server, task) = joined();
        let mut byte = [0];
        for _ in 0..5 {
            tokio::time::sleep(IDLE_TIMEOUT - Duration::from_secs(1)).await;
            server.write_all(b"x").await.unwrap();
            client.read_exact(&mut byte).await.unwrap();
        }
        let quiet = Instant::now();
        let ended = task.await.unwrap().unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
        assert_eq!(quiet.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn half_a_connection_may_still_answer_but_not_for_long() {
        let (mut client, mut server, task) = joined();
        client.shutdown().await.unwrap();
        let mut asked = Vec::new();
        server.read_to_end(&mut asked).await.unwrap();
        tokio::time::sleep(HALF_OPEN_TIMEOUT - Duration::from_secs(1)).await;
        server.write_all(b"late").await.unwrap();
        let mut answer = [0; 4];
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"late");
        let quiet = Instant::now();
        assert_eq!(task.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(quiet.elapsed() <= 2 * HALF_OPEN_TIMEOUT, "{:?}", quiet.elapsed());
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_read_is_given_up() {
        let (mut client, _server, task) = joined();
        let writing = tokio::spawn(async move { while client.write_all(&[0; 512]).await.is_ok() {} });
        assert_eq!(task.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        writing.await.unwrap();
    }
}
