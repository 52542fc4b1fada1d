//! The events of a stream, with a bound on what one of them and all of them may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use sse_stream::SseByteStream;
use thiserror::Error;

/// The most bytes between two events.
pub(crate) const MOST_PER_EVENT: usize = 16 << 20;
/// The most bytes of an answer.
pub(crate) const MOST: usize = 128 << 20;

#[derive(Debug, Error)]
pub(crate) enum Broken {
    #[error("the connection was lost: {0}")]
    Lost(String),
    #[error("an event of more than {} MiB", MOST_PER_EVENT >> 20)]
    Event,
    #[error("an answer of more than {} MiB", MOST >> 20)]
    Whole,
}

/// How much was heard of a stream.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard(Arc<AtomicUsize>);

impl Heard {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// The data of the events in a stream of bytes.
pub(crate) fn events<S, E>(bytes: S) -> (impl Stream<Item = Result<String, Broken>> + Unpin + Send, Heard)
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    E: std::fmt::Display + Send + 'static,
{
    // The parser collects an event without a bound, so it is held before it gets there.
    let since = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&since);
    let heard = Heard::default();
    let total = heard.clone();
    let bounded = bytes.map(move |piece| {
        let piece = piece.map_err(|error| Broken::Lost(error.to_string()))?;
        let total = total.0.fetch_add(piece.len(), Ordering::Relaxed).saturating_add(piece.len());
        let pending = counted.fetch_add(piece.len(), Ordering::Relaxed).saturating_add(piece.len());
        if total > MOST {
            return Err(Broken::Whole);
        }
        // A piece may hold the ends of several events; only what is left over counts.
        if pending > MOST_PER_EVENT.saturating_add(piece.len()) {
            return Err(Broken::Event);
        }
        Ok(piece)
    });
    // Some servers leave out the empty line behind the last event.
    let closed = bounded.chain(futures_util::stream::iter([Ok(Bytes::from_static(b"\n\n"))]));
    let events = SseByteStream::new(closed).filter_map(move |event| {
        since.store(0, Ordering::Relaxed);
        let data = match event {
            Ok(event) => event.data.filter(|data| !data.is_empty()).map(Ok),
            Err(error) => Some(Err(unwrapped(error))),
        };
        std::future::ready(data)
    });
    (events, heard)
}

fn unwrapped(error: sse_stream::Error) -> Broken {
    match error {
        sse_stream::Error::Body(source) => match source.downcast::<Broken>() {
            Ok(broken) => *broken,
            Err(other) => Broken::Lost(other.to_string()),
        },
        other => Broken::Lost(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn read(pieces: Vec<Bytes>) -> Vec<Result<String, String>> {
        let bytes = futures_util::stream::iter(pieces.into_iter().map(Ok::<_, std::io::Error>));
        events(bytes).0.map(|event| event.map_err(|broken| broken.to_string())).collect().await
    }

    #[tokio::test]
    async fn an_event_without_end_is_cut_off() {
        let piece = Bytes::from(vec![b'x'; 1 << 20]);
        let mut pieces = vec![Bytes::from_static(b"data: a\n\ndata: ")];
        pieces.extend(std::iter::repeat_n(piece, 32));
        let read = read(pieces).await;
        assert_eq!(read, [Ok("a".to_owned()), Err("an event of more than 16 MiB".to_owned())]);
    }

    #[tokio::test]
    async fn an_answer_without_end_is_cut_off() {
        let piece = Bytes::from(format!("data: {}\n\n", "x".repeat(1 << 20)));
        let read = read(std::iter::repeat_n(piece, 200).collect()).await;
        assert_eq!(read.len(), 128);
        assert_eq!(read.last().unwrap().as_ref().unwrap_err(), "an answer of more than 128 MiB");
    }

    #[tokio::test]
    async fn the_last_event_needs_no_empty_line() {
        let all = "\u{feff}: hello\r\ndata:a\r\n\r\nevent: x\ndata: b\ndata: c\n\nretry: 5\n\ndata: d";
        for size in [1, 2, 3, 7, 4096] {
            let pieces = all.as_bytes().chunks(size).map(Bytes::copy_from_slice).collect();
            assert_eq!(read(pieces).await, ["a", "b\nc", "d"].map(|text| Ok(text.to_owned())), "{size}");
        }
    }
}
