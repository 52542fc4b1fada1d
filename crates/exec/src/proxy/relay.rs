//! Copies bytes in both directions between a client and a server until both end or time runs out.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, copy_bidirectional_with_sizes};
use tokio::time::Instant;
use tokio_util::io::{InspectReader, InspectWriter};

pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// Long polls and slow servers are silent for minutes.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

/// Once one side has ended, few clients wait that long for an answer.
const HALF_OPEN_TIMEOUT: Duration = Duration::from_secs(60);

pub(super) async fn copy_both_ways<C, S>(client: C, server: S) -> io::Result<()>
where
    C: AsyncRead + AsyncWrite + Unpin,
    S: AsyncRead + AsyncWrite + Unpin,
{
    let timer = Arc::new(ActivityTimer::new());
    let mut client = watch_reads(client, &timer);
    let mut server = watch_writes(watch_reads(server, &timer), &timer);
    tokio::select! {
        done = copy_bidirectional_with_sizes(&mut client, &mut server, BUFFER_BYTES, BUFFER_BYTES) => done.map(drop),
        () = timer.wait_for_timeout() => Err(io::ErrorKind::TimedOut.into()),
    }
}

/// The time of the last activity.
pub(super) struct ActivityTimer {
    start: Instant,
    /// Milliseconds since the start.
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

    pub(super) fn mark_half_open(&self) {
        self.half_open.store(true, Ordering::Relaxed);
        self.touch();
    }

    /// Waits until the connection has been idle for too long.
    pub(super) async fn wait_for_timeout(&self) {
        loop {
            let timeout =
                if self.half_open.load(Ordering::Relaxed) { HALF_OPEN_TIMEOUT } else { IDLE_TIMEOUT };
            let due = self.start + Duration::from_millis(self.last.load(Ordering::Relaxed)) + timeout;
            let now = Instant::now();
            if now >= due {
                return;
            }
            // A side that ends shortens the timeout.
            tokio::time::sleep_until(due.min(now + HALF_OPEN_TIMEOUT)).await;
        }
    }
}

/// Reports the bytes read from a stream. A read without bytes is the end of the stream.
pub(super) fn watch_reads<S: AsyncRead>(
    stream: S,
    timer: &Arc<ActivityTimer>,
) -> InspectReader<S, impl FnMut(&[u8]) + use<S>> {
    let timer = timer.clone();
    InspectReader::new(stream, move |data| match data {
        [] => timer.mark_half_open(),
        _ => timer.touch(),
    })
}

/// Reports the bytes written to a stream.
pub(super) fn watch_writes<S: AsyncWrite>(
    stream: S,
    timer: &Arc<ActivityTimer>,
) -> InspectWriter<S, impl FnMut(&[u8]) + use<S>> {
    let timer = timer.clone();
    InspectWriter::new(stream, move |_data| timer.touch())
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
    async fn a_quiet_connection_stays_open_while_bytes_pass_now_and_then() {
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
    async fn a_half_open_connection_times_out_sooner() {
        let (mut client, mut server, task) = joined();
        client.shutdown().await.unwrap();
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
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
    async fn a_server_that_does_not_read_times_out() {
        let (mut client, _server, task) = joined();
        let writing = tokio::spawn(async move { while client.write_all(&[0; 512]).await.is_ok() {} });
        assert_eq!(task.await.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        writing.await.unwrap();
    }
}
