//! Scripted models and strict fake servers. Only tests use this crate.
//!
//! A fake is strict: it rejects what the vendor would reject, in the vendor's words, and records
//! it, so that a test can assert that there was no violation. The vendors' own clients prove in
//! `tests/` that the fakes behave like the originals.
//!
//! Start with [`ScriptedModel`] and [`discord::DiscordServer`]; [`FakePlatform`] is the interface
//! of all fake platforms, and [`tls::TlsFront`] adds TLS to any server.

pub mod discord;
mod eventually;
pub mod fake_platform;
pub mod model;
pub mod peers;
pub mod prerequisite;
mod server_task;
pub mod tls;

pub use eventually::eventually;
pub use fake_platform::FakePlatform;
pub use model::{ReceivedRequest, ReplyItem, ScriptStep, ScriptedModel, ScriptedReply};
