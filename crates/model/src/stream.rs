//! The events of a stream, with limits for one event and for all of them.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sse_stream::SseByteStream;

use crate::error::{FailureClass, RequestFailure};

/// Bytes between two events.
const MAX_EVENT_BYTES: usize = 16 << 20;
pub(crate) const MAX_REPLY_BYTES: usize = 128 << 20;

/// How the events of a stream are separated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    ServerSentEvents,
    /// One event per line.
    Lines,
}

/// Bytes counted while they arrive.
#[derive(Debug, Default, Clone)]
struct ByteCounts {
    received: Arc<AtomicUsize>,
    since_event: Arc<AtomicUsize>,
}

type EventStream = Pin<Box<dyn Stream<Item = Result<String, RequestFailure>> + Send>>;

/// Decodes the data of each event, and counts the bytes received.
pub(crate) fn events(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
    framing: Framing,
) -> (EventStream, Arc<AtomicUsize>) {
    let counts = ByteCounts::default();
    let bounded = bounded(bytes, counts.clone());
    let received = Arc::clone(&counts.received);
    let events = match framing {
        Framing::ServerSentEvents => server_sent_events(bounded).boxed(),
        Framing::Lines => lines(bounded).boxed(),
    };
    let events = events.inspect(move |_| counts.since_event.store(0, Ordering::Relaxed));
    (events.boxed(), received)
}

/// Limits the bytes of an event and of the reply: the parsers collect an event without a limit.
fn bounded(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
    counts: ByteCounts,
) -> impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static {
    bytes.map(move |chunk| {
        let chunk = chunk?;
        let add =
            |count: &AtomicUsize| count.fetch_add(chunk.len(), Ordering::Relaxed).saturating_add(chunk.len());
        let (total, pending) = (add(&counts.received), add(&counts.since_event));
        if total > MAX_REPLY_BYTES {
            return Err(too_large("the reply", MAX_REPLY_BYTES));
        }
        // A chunk may contain the ends of several events; only the rest counts.
        if pending > MAX_EVENT_BYTES.saturating_add(chunk.len()) {
            return Err(too_large("an event of the stream", MAX_EVENT_BYTES));
        }
        Ok(chunk)
    })
}

fn server_sent_events(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<String, RequestFailure>> + Send {
    // Some servers omit the empty line after the last event.
    let closed = bytes.chain(futures_util::stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    SseByteStream::new(closed).filter_map(|event| {
        let data = match event {
            Ok(event) => event.data.filter(|data| !data.is_empty()).map(Ok),
            Err(error) => Some(Err(into_failure(error))),
        };
        std::future::ready(data)
    })
}

fn lines(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
) -> impl Stream<Item = Result<String, RequestFailure>> + Send {
    // The last line may have no end.
    let closed = bytes.chain(futures_util::stream::iter([Ok(Bytes::from_static(b"\n"))]));
    let mut rest = Vec::new();
    closed
        .map(move |chunk| {
            let mut lines = Vec::new();
            match chunk {
                Ok(chunk) => {
                    let mut pieces = chunk.split(|byte| *byte == b'\n');
                    let last = pieces.next_back().unwrap_or_default();
                    for piece in pieces {
                        rest.extend_from_slice(piece);
                        lines.push(Ok(String::from_utf8_lossy(&std::mem::take(&mut rest)).into_owned()));
                    }
                    rest.extend_from_slice(last);
                }
                Err(failure) => lines.push(Err(failure)),
            }
            futures_util::stream::iter(lines)
        })
        .flatten()
        .filter(|line| std::future::ready(!matches!(line, Ok(text) if text.trim().is_empty())))
}

fn too_large(subject: &str, max_bytes: usize) -> RequestFailure {
    RequestFailure::malformed(format!("{subject} is larger than {} MiB", max_bytes >> 20))
}

fn into_failure(error: sse_stream::Error) -> RequestFailure {
    let message = format!("cannot read the stream: {error}");
    let failure = match error {
        sse_stream::Error::Body(source) => source.downcast().ok(),
        _ => None,
    };
    failure.map_or_else(|| RequestFailure::new(FailureClass::Dropped, message), |failure| *failure)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(chunks: Vec<Bytes>) -> Vec<Result<String, String>> {
        let bytes = futures_util::stream::iter(chunks.into_iter().map(Ok));
        events(bytes, Framing::ServerSentEvents)
            .0
            .map(|event| event.map_err(|error| error.to_string()))
            .collect()
            .await
    }

    #[tokio::test]
    async fn an_endless_event_is_an_error() {
        let chunk = Bytes::from(vec![b'x'; 1 << 20]);
        let mut chunks = vec![Bytes::from_static(b"data: a\n\ndata: ")];
        chunks.extend(std::iter::repeat_n(chunk, 32));
        let read = read(chunks).await;
        assert_eq!(
            read,
            [Ok("a".to_owned()), Err("an event of the stream is larger than 16 MiB".to_owned())]
        );
    }

    #[tokio::test]
    async fn an_endless_reply_is_an_error() {
        let chunk = Bytes::from(format!("data: {}\n\n", "x".repeat(1 << 20)));
        let read = read(std::iter::repeat_n(chunk, 200).collect()).await;
        assert_eq!(read.len(), 128);
        assert_eq!(read.last().unwrap().as_ref().unwrap_err(), "the reply is larger than 128 MiB");
    }

    #[tokio::test]
    async fn lines_are_joined_whatever_the_chunk_size() {
        let all = "{\"a\": \"é\"}\r\n\n{}\n{\"b\": 1}";
        for size in [1, 2, 3, 7, 4096] {
            let chunks: Vec<_> = all.as_bytes().chunks(size).map(Bytes::copy_from_slice).map(Ok).collect();
            let lines = events(futures_util::stream::iter(chunks), Framing::Lines).0;
            let lines: Vec<_> = lines.map(|line| line.unwrap().trim().to_owned()).collect().await;
            assert_eq!(lines, ["{\"a\": \"é\"}", "{}", "{\"b\": 1}"], "{size}");
        }
        let endless = std::iter::repeat_n(Ok(Bytes::from(vec![b'x'; 1 << 20])), 32);
        let read = events(futures_util::stream::iter(endless), Framing::Lines).0;
        let read: Vec<_> = read.take(1).collect().await;
        assert_eq!(read[0].as_ref().unwrap_err().to_string(), "an event of the stream is larger than 16 MiB");
    }

    #[tokio::test]
    async fn the_last_event_needs_no_empty_line() {
        let all = "\u{feff}: hello\r\ndata:a\r\n\r\nevent: x\ndata: b\ndata: c\n\nretry: 5\n\ndata: d";
        for size in [1, 2, 3, 7, 4096] {
            let chunks = all.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            assert_eq!(read(chunks).await, ["a", "b\nc", "d"].map(|text| Ok(text.to_owned())), "{size}");
        }
    }
}
