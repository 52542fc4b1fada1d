//! The whole program as a gateway, between a strict platform and a scripted model.
//!
//! `suite` contains the checks that every platform must pass; the rest is specific to Discord or
//! independent of the platform.

mod channels;
mod chaos;
mod conversation;
mod disk;
mod env;
mod hostile;
mod images;
mod isolation;
mod media;
mod owner;
mod questions;
mod rules;
mod send;
mod stream;
mod suite;
mod tls;
