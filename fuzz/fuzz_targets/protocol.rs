//! Arbitrary bytes on the stream of a guest, in both directions, are decoded or rejected, and a
//! decoded message can be encoded again.
//!
//! `cargo +nightly fuzz run protocol -- -max_len=65536 -timeout=2 -rss_limit_mb=512`

#![no_main]

use std::fmt::Debug;
use std::io::Cursor;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use hermes_guest::protocol::frame::{self, FrameStream};
use hermes_guest::protocol::message::{GuestReply, GuestRequest, RunInput};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    check::<GuestRequest>(data);
    check::<RunInput>(data);
    check::<GuestReply>(data);
});

fn check<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(message) = frame::decode::<T>(data) {
        check_round_trip(&message);
    }
    let mut frames = FrameStream::new(Cursor::new(data.to_vec()));
    while let Ok(Some(message)) = poll_once(frames.reader.receive::<T>()) {
        check_round_trip(&message);
    }
}

fn check_round_trip<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let mut frames = FrameStream::new(Cursor::new(Vec::new()));
    poll_once(frames.writer.send(message)).expect("a decoded message fits into a frame");
    let bytes = frames.into_parts().0.into_inner();
    let mut frames = FrameStream::new(Cursor::new(bytes));
    assert_eq!(poll_once(frames.reader.receive::<T>()).expect("an encoded message decodes").as_ref(), Some(message));
}

/// Nothing blocks, because all bytes are in memory.
fn poll_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("a read from memory does not block"),
    }
}
