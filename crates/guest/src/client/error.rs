//! Errors of the client.

use std::io::ErrorKind;

use thiserror::Error;

use crate::protocol::frame::FrameError;
use crate::protocol::handshake::HandshakeError;
use crate::protocol::message::Rejection;

/// Why a call failed.
#[derive(Debug, Error)]
pub enum Error {
    /// The guest rejected the request. The connection is still usable.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The connection was lost. The request may or may not have been executed, but not twice.
    #[error("the connection to the guest was lost")]
    Disconnected,
    /// The guest did not reply in time. The client closed the connection.
    #[error("the guest does not respond")]
    Timeout,
    /// The peer is not a guest of the same protocol version.
    #[error(transparent)]
    Handshake(#[from] HandshakeError),
    /// The guest violated the protocol. The client closed the connection.
    #[error("the guest violated the protocol: {0}")]
    Protocol(ProtocolViolation),
    /// The request exceeds the maximum frame size and was not sent.
    #[error("the request is too large")]
    RequestTooLarge,
}

/// How a guest violated the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum ProtocolViolation {
    /// The bytes do not decode to a message, or the message is too long.
    #[error("it sent bytes that are not a message")]
    Malformed,
    /// The reply does not match the request.
    #[error("its reply does not match the request")]
    Unexpected,
}

/// A message that cannot be sent is too large; one that cannot be decoded is a violation.
impl From<FrameError> for Error {
    fn from(error: FrameError) -> Self {
        match error {
            FrameError::Malformed(_) => Self::Protocol(ProtocolViolation::Malformed),
            FrameError::Io(error) => match error.kind() {
                ErrorKind::InvalidData => Self::Protocol(ProtocolViolation::Malformed),
                ErrorKind::InvalidInput => Self::RequestTooLarge,
                _ => Self::Disconnected,
            },
        }
    }
}
