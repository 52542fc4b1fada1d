//! Talking to language models.
//!
//! [`Client::complete`] takes a conversation and a chain of [`Endpoint`]s and gives one [`Reply`], whichever of three protocols the
//! server speaks. Words and thoughts are told as they come; the reply is whole or it says why it is not. Dropping the future closes
//! the connection: that is how a model is interrupted.
//!
//! Invariants:
//!
//! - Arguments of a tool call are an object or they are broken. What was cut off is never completed, so it is never run.
//! - The same conversation is the same bytes, so that providers find what they cached.
//! - Thoughts go back only to the provider that issued them, as they came.
//! - A key goes to the host of its endpoint and nowhere else; redirects are not followed.
//! - Pictures are read for one request and are gone with it.
//! - Everything that comes is bounded, and nothing that comes can make us panic: the decoders are fuzzed.
//!
//! Start with [`reply`] for what is asked and answered and [`endpoint`] for whom. `draft.rs` is an answer as it comes together,
//! `wire/` the protocols, `error/parse.rs` what providers say when they refuse, `client.rs` retries and fallbacks, `eyes.rs`
//! which pictures are shown.

pub mod album;
pub mod arguments;
mod attempt;
pub mod claude_code;
mod client;
mod draft;
pub mod endpoint;
pub mod error;
mod eyes;
mod history;
mod json;
mod names;
pub mod provider;
pub mod reply;
mod spoken;
mod stream;
mod think;
pub mod tls;
mod transport;
pub mod window;
mod wire;

pub use album::{Album, Sight, Unkept};
pub use arguments::coerce;
pub use attempt::recorded;
pub use client::Client;
pub use endpoint::{Api, Credentials, Effort, Endpoint, Retries, Timeouts};
pub use error::{Class, Error, Fault};
pub use names::repair_name;
pub use reply::{Event, Finish, Prompt, Reply};
pub use reqwest::Url;
pub use transport::Proxy;
pub use window::{Window, WindowSource};
