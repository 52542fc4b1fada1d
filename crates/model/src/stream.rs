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

/// The data of the events in a stream of bytes.
pub(crate) fn events<S, E>(bytes: S) -> impl Stream<Item = Result<String, Broken>> + Unpin + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send + Unpin + 'static,
    E: std::fmt::Display + Send + 'static,
{
    // The parser collects an event without a bound, so it is held before it gets there.
    let since = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&since);
    let mut total = 0_usize;
    let bounded = bytes.map(move |piece| {
        let piece = piece.map_err(|error| Broken::Lost(error.to_string()))?;
        total = total.saturating_add(piece.len());
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
    SseByteStream::new(bounded).filter_map(move |event| {
        since.store(0, Ordering::Relaxed);
        let data = match event {
            Ok(event) => event.data.filter(|data| !data.is_empty()).map(Ok),
            Err(error) => Some(Err(unwrapped(error))),
        };
        std::future::ready(data)
    })
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
