//! The Discord adapter against a server that knows the rules.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::panic, reason = "a test that cannot go on should stop")]

mod bed;
mod files;
mod forum;
mod heard;
mod history;
mod lost;
mod missed;
mod proxy;
mod roles;
mod said;
mod secret;
