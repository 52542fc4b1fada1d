//! Turns, with a model that says what a test wants, and real commands.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod asked;
mod bed;
mod noticed;
mod restarted;
mod spoken;
mod stopped;
