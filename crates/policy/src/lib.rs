//! What may run, what may be shown, what may be reached.
//!
//! Everything here is a decision about a value already in memory: no I/O, no clock, no async.

pub mod address;
pub mod redact;
