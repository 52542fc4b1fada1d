//! Talks to language models.
//!
//! [`Client::complete`] takes a conversation and a chain of [`Endpoint`]s and returns one
//! [`Reply`], whichever of three protocols the server speaks. It reports text and reasoning as they
//! arrive; the reply is complete, or it says why it is not. Dropping the future closes the
//! connection: that is how a model is interrupted.
//!
//! Invariants:
//!
//! - The arguments of a tool call are an object or they are broken. Truncated arguments are never
//!   completed, so such a call never runs.
//! - The same conversation gives the same bytes, so that providers find what they cached.
//! - Reasoning goes back only to the provider that issued it, as it came.
//! - A key goes to the host of its endpoint and nowhere else; redirects are not followed.
//! - Images are loaded for one request and dropped with it.
//! - Everything received is bounded, and no input makes the decoders panic: they are fuzzed.
//!
//! Start with [`reply`] for prompts and replies, [`endpoint`] for servers, and [`provider`] for how
//! a server is chosen. `client.rs` retries and falls back, `attempt.rs` makes one request, `wire/`
//! has the protocols, `reply_builder.rs` assembles a reply, `error/parse.rs` classifies refusals,
//! `vision.rs` selects images.

mod arguments;
mod attempt;
pub mod claude_code;
mod client;
mod context_window;
pub mod endpoint;
pub mod error;
mod history;
mod json;
pub mod provider;
mod reasoning_tags;
pub mod reply;
mod reply_builder;
mod stream;
mod text_tool_calls;
mod tool_names;
mod transport;
mod vision;
mod wire;

pub use arguments::coerce;
pub use attempt::decode_recording;
pub use client::Client;
pub use endpoint::{Api, ApiCredentials, Effort, Endpoint, Retries, Timeouts};
pub use error::{Error, FailureClass, RequestFailure};
pub use hermes_net::{EnvProxies, Url};
pub use reply::{Finish, Prompt, Reply, ReplyEvent};
pub use tool_names::repair_tool_name;
pub use vision::ImageMode;
