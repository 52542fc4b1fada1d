//! The protocol between host and guest.
//!
//! A connection starts with a handshake of fixed size in both directions. After that it is a yamux
//! connection: the host opens one stream per request, writes a [`message::GuestRequest`] and reads
//! [`message::GuestReply`] values. Every message is a `postcard` value behind a four-byte length.

pub mod file;
pub mod frame;
pub mod guard;
pub mod handshake;
pub mod limit;
pub mod message;
pub mod mux;
pub mod tunnel;
