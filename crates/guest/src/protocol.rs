//! What host and guest say to each other.
//!
//! A connection opens with a greeting of fixed size in both directions. From then on it is a yamux connection:
//! the host opens one stream per request, writes a [`message::Request`], and reads [`message::Reply`] values.
//! Every message is a `postcard` value behind a four-byte length.

pub mod file;
pub mod frame;
pub mod greeting;
pub mod limit;
pub mod message;
pub mod mux;
