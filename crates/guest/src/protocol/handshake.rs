//! The handshake: the first bytes of a connection, in both directions.

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Incremented whenever a message changes. Both sides must have the same version: a guest is
/// delivered with its host, so there is no negotiation.
pub const PROTOCOL_VERSION: u32 = 10;

const MAGIC: &[u8; 12] = b"hermes-guest";

/// Why a handshake failed.
#[derive(Debug, Error)]
pub enum HandshakeError {
    #[error("the peer is not a Hermes guest")]
    NotAGuest,
    #[error("the peer speaks version {theirs} of the guest protocol, not {PROTOCOL_VERSION}")]
    Version { theirs: u32 },
    /// The stream broke or ended.
    #[error("cannot complete the handshake with the guest: {0}")]
    Io(#[from] std::io::Error),
}

/// Sends our hello and checks the peer's.
pub async fn exchange_hello<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<(), HandshakeError> {
    let mut ours = [0; 16];
    ours[..12].copy_from_slice(MAGIC);
    ours[12..].copy_from_slice(&PROTOCOL_VERSION.to_le_bytes());
    stream.write_all(&ours).await?;
    stream.flush().await?;
    let mut theirs = [0; 16];
    stream.read_exact(&mut theirs).await?;
    let [magic @ .., a, b, c, d] = theirs;
    if &magic != MAGIC {
        return Err(HandshakeError::NotAGuest);
    }
    match u32::from_le_bytes([a, b, c, d]) {
        PROTOCOL_VERSION => Ok(()),
        theirs => Err(HandshakeError::Version { theirs }),
    }
}
