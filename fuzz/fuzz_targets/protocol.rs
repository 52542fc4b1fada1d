//! Any bytes from the other side of a guest's stream, in both directions: read or refused, and what was read can be
//! said again.
//!
//! `cargo +nightly fuzz run protocol -- -max_len=65536 -timeout=2 -rss_limit_mb=512`

#![no_main]

use std::fmt::Debug;
use std::io::Cursor;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use hermes_guest::protocol::frame::{self, Frames};
use hermes_guest::protocol::message::{Input, Reply, Request};
use libfuzzer_sys::fuzz_target;
use serde::Serialize;
use serde::de::DeserializeOwned;

fuzz_target!(|data: &[u8]| {
    read::<Request>(data);
    read::<Input>(data);
    read::<Reply>(data);
});

fn read<T: Serialize + DeserializeOwned + PartialEq + Debug>(data: &[u8]) {
    if let Ok(message) = frame::decode::<T>(data) {
        say_again(&message);
    }
    let mut frames = Frames::new(Cursor::new(data.to_vec()));
    while let Ok(Some(message)) = at_once(frames.reader.receive::<T>()) {
        say_again(&message);
    }
}

fn say_again<T: Serialize + DeserializeOwned + PartialEq + Debug>(message: &T) {
    let mut frames = Frames::new(Cursor::new(Vec::new()));
    at_once(frames.writer.send(message)).expect("what fitted into a frame fits again");
    let said = frames.into_raw().0.into_inner();
    let mut frames = Frames::new(Cursor::new(said));
    assert_eq!(at_once(frames.reader.receive::<T>()).expect("what was said is read").as_ref(), Some(message));
}

/// Nothing here waits: the bytes are all in memory.
fn at_once<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("memory makes nobody wait"),
    }
}
