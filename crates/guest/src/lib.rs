//! What runs inside every place, seen from outside: the protocol and the host's end of it.
//!
//! The binary of this crate, `hermes-guest`, runs in a place and does there whatever the host asks: shell
//! commands, background processes, terminals, files, search, tunnels. This library is what both sides share.
//! [`protocol`] holds the messages, their limits, the framing and the multiplexer; [`client`] is the typed
//! API the host uses over any byte stream, be it a socket or the pipes of `ssh`; [`removal`] clears up after commands.
//!
//! The invariant: **the host trusts nothing that comes from a guest.** Whatever runs in a place may have taken
//! its guest over, so every frame, list and answer has a bound, a message that does not fit what was asked ends
//! the connection with an error, and nothing a guest says is ever a path or a command for the host.
//!
//! A second one: **a request is carried out at most once.** The client never repeats one on its own; a stream
//! that breaks is an error, and the caller looks at what is there before it tries again.
//!
//! Start with [`client::Client`]; then [`protocol::message`] for the vocabulary. The binary starts in
//! `main.rs`; its heart is `process/shim.rs`, which explains how a whole tree of processes is kept together.

pub mod client;
pub mod protocol;
pub mod removal;
