//! The tests that use the command as a whole, or its configuration on real files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod edits;
