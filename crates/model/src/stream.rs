//! The server-sent events of a stream, with limits for one event and for all of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sse_stream::SseByteStream;

use crate::error::{FailureClass, RequestFailure};

/// Bytes between two events.
const MAX_EVENT_BYTES: usize = 16 << 20;
pub(crate) const MAX_REPLY_BYTES: usize = 128 << 20;

/// Decodes the data of each event, and counts the bytes received.
pub(crate) fn events(
    bytes: impl Stream<Item = Result<Bytes, RequestFailure>> + Send + Unpin + 'static,
) -> (impl Stream<Item = Result<String, RequestFailure>> + Unpin + Send, Arc<AtomicUsize>) {
    // The parser collects an event without a limit, so the bytes are limited before it.
    let since_event = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&since_event);
    let received = Arc::new(AtomicUsize::new(0));
    let total = Arc::clone(&received);
    let bounded = bytes.map(move |chunk| {
        let chunk = chunk?;
        let total = total.fetch_add(chunk.len(), Ordering::Relaxed).saturating_add(chunk.len());
        let pending = counted.fetch_add(chunk.len(), Ordering::Relaxed).saturating_add(chunk.len());
        if total > MAX_REPLY_BYTES {
            return Err(too_large("the reply", MAX_REPLY_BYTES));
        }
        // A chunk may contain the ends of several events; only the rest counts.
        if pending > MAX_EVENT_BYTES.saturating_add(chunk.len()) {
            return Err(too_large("an event of the stream", MAX_EVENT_BYTES));
        }
        Ok(chunk)
    });
    // Some servers omit the empty line after the last event.
    let closed = bounded.chain(futures_util::stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    let events = SseByteStream::new(closed).filter_map(move |event| {
        since_event.store(0, Ordering::Relaxed);
        let data = match event {
            Ok(event) => event.data.filter(|data| !data.is_empty()).map(Ok),
            Err(error) => Some(Err(into_failure(error))),
        };
        std::future::ready(data)
    });
    (events, received)
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
        events(bytes).0.map(|event| event.map_err(|error| error.to_string())).collect().await
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
    async fn the_last_event_needs_no_empty_line() {
        let all = "\u{feff}: hello\r\ndata:a\r\n\r\nevent: x\ndata: b\ndata: c\n\nretry: 5\n\ndata: d";
        for size in [1, 2, 3, 7, 4096] {
            let chunks = all.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            assert_eq!(read(chunks).await, ["a", "b\nc", "d"].map(|text| Ok(text.to_owned())), "{size}");
        }
    }
}
