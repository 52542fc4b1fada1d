//! The first bytes of a connection, in both directions.

use thiserror::Error;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Raised whenever a message changes its meaning. Both sides must have the same: a guest is delivered with the
/// host that uses it, so there is nothing to negotiate.
pub const VERSION: u32 = 6;

const MAGIC: &[u8; 12] = b"hermes-guest";

/// Why two sides cannot talk.
#[derive(Debug, Error)]
pub enum BadGreeting {
    /// The peer is something else.
    #[error("the other side is not a hermes guest")]
    Stranger,
    /// The peer is of another version.
    #[error("the other side speaks version {theirs} of the protocol, this one {VERSION}")]
    Version {
        /// What the peer said.
        theirs: u32,
    },
    /// The stream broke or stayed silent.
    #[error("no greeting from the other side")]
    Io(#[from] std::io::Error),
}

/// Greets and waits to be greeted.
pub async fn exchange<S: AsyncRead + AsyncWrite + Unpin>(stream: &mut S) -> Result<(), BadGreeting> {
    let mut ours = [0; 16];
    ours[..12].copy_from_slice(MAGIC);
    ours[12..].copy_from_slice(&VERSION.to_le_bytes());
    stream.write_all(&ours).await?;
    stream.flush().await?;
    let mut theirs = [0; 16];
    stream.read_exact(&mut theirs).await?;
    let [magic @ .., a, b, c, d] = theirs;
    if &magic != MAGIC {
        return Err(BadGreeting::Stranger);
    }
    match u32::from_le_bytes([a, b, c, d]) {
        VERSION => Ok(()),
        theirs => Err(BadGreeting::Version { theirs }),
    }
}
