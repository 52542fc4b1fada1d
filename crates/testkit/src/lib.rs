//! Scripted models and strict fake servers. Only tests use this crate.
//!
//! A fake is strict: it refuses what the vendor would refuse, in the vendor's words, and remembers that it had to, so that a test
//! which looks only at its own result still fails. That it is a good fake is shown by the vendors' own clients, which talk to it in
//! `tests/`.
//!
//! Start with [`ScriptedModel`] and [`discord::Server`]; [`Venue`] is what all platforms have in common, and [`tls::Front`] stands before
//! any of them.

pub mod discord;
pub mod fake_platform;
pub mod model;
pub mod peers;
pub mod prerequisite;
mod server_task;
pub mod tls;

pub use fake_platform::FakePlatform;
pub use model::{ReceivedRequest, ReplyItem, ScriptStep, ScriptedModel, ScriptedReply};
