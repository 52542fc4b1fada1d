//! The whole program as a gateway, between a strict Discord server and a scripted model.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod apart;
mod chaos;
mod crash;
mod hall;
mod media;
mod questions;
mod rules;
mod sent;
mod stream;
mod talk;
