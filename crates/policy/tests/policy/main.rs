//! One binary for everything that is tested from outside.

#![expect(clippy::expect_used, clippy::panic, reason = "a test that meets the unexpected should stop")]

mod corpus;
mod decisions;
mod fuzzed;
mod metamorphic;
mod support;
mod understanding;
mod vectors;
