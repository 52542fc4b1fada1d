//! The Discord adapter against a strict fake server.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::panic, reason = "a test that cannot go on should stop")]

mod backlog;
mod files;
mod fixture;
mod forum;
mod history;
mod inbound;
mod outbound;
mod proxy;
mod reconnect;
mod roles;
mod tls;
