//! The protocol between the host and the guest, and the host's client.
//!
//! The binary of this crate, `hermes-guest`, runs inside every environment and serves the host's
//! requests: shell commands, background processes, terminals, files, search, tunnels. The library
//! is the code that both sides share. [`protocol`] has the messages, their limits, the framing and
//! the multiplexer; [`client`] is the typed API the host uses over any byte stream (a Unix socket,
//! or the pipes of `ssh`).
//!
//! *Invariant.* **The host trusts nothing that comes from a guest.** A command may have taken over
//! its guest, so every frame, list and reply is bounded, a reply that does not match its request
//! closes the connection with an error, and the host never uses anything from a guest as a path or
//! a command.
//!
//! *Invariant.* **A request is executed at most once.** The client never retries. A broken stream
//! is an error; the caller checks the state before it tries again.
//!
//! *Where to start reading.* [`client::Client`], then [`protocol::message`] for the messages. The
//! binary starts in `main.rs`; `process/shim.rs` explains how the guest tracks the whole process
//! tree of a command.

pub mod client;
pub mod protocol;
