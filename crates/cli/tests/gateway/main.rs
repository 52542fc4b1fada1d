//! The whole program as a gateway, between a strict platform and a scripted model.
//!
//! What every platform must pass is in `suite`; the rest is about what only Discord has, or is the same whatever the platform.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod apart;
mod chaos;
mod disk;
mod hall;
mod hostile;
mod media;
mod owner;
mod pictures;
mod places;
mod questions;
mod rules;
mod secret;
mod sent;
mod stream;
mod suite;
mod talk;
