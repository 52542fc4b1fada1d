//! What can go wrong between the host and a guest.

use thiserror::Error;

use crate::protocol::frame::FrameError;
use crate::protocol::greeting::BadGreeting;
use crate::protocol::message::Fault;

/// Why a call has no result.
#[derive(Debug, Error)]
pub enum Error {
    /// The guest could not or would not do it. The connection is fine.
    #[error(transparent)]
    Refused(Fault),
    /// The connection ended. Whether the request was carried out is unknown; it was not carried out twice.
    #[error("the connection to the guest is gone")]
    Gone,
    /// The guest did not answer in time. The connection was ended.
    #[error("the guest does not answer")]
    Silent,
    /// The two sides cannot talk.
    #[error(transparent)]
    Greeting(#[from] BadGreeting),
    /// The guest broke the protocol. The connection was ended.
    #[error("the guest broke the protocol: {0}")]
    Breach(Breach),
    /// The request itself is beyond a limit and was not sent.
    #[error("the request is too large")]
    TooLarge,
}

/// How a guest broke the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Breach {
    /// Bytes that are no message, or a message that is too long.
    #[error("not a message")]
    Malformed,
    /// A message that does not answer what was asked.
    #[error("not an answer to what was asked")]
    Unexpected,
    /// A connection for a listener that is not there.
    #[error("a connection nobody listens for")]
    UnknownListener,
}

/// What a failed read means. A stream that ends in the middle of a frame is a lost connection and not a breach.
pub(super) fn on_receive(error: &FrameError) -> Error {
    match error {
        FrameError::Malformed(_) => Error::Breach(Breach::Malformed),
        FrameError::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            Error::Breach(Breach::Malformed)
        }
        FrameError::Io(_) => Error::Gone,
    }
}

/// What a failed write means. A message that cannot be framed was never sent.
pub(super) fn on_send(error: &FrameError) -> Error {
    match error {
        FrameError::Malformed(_) => Error::TooLarge,
        FrameError::Io(error) if error.kind() == std::io::ErrorKind::InvalidInput => Error::TooLarge,
        FrameError::Io(_) => Error::Gone,
    }
}
