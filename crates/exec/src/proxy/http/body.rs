//! The request body, forwarded as it arrives and not a byte further.

use std::io;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWrite, AsyncWriteExt};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    None,
    Length(u64),
    Chunked,
}

/// The limit for a chunk size line, and for all trailers together.
const MAX_LINE_BYTES: usize = 16 * 1024;

/// Forwards a body. Chunks keep their size; extensions and trailers are dropped.
pub(super) async fn copy<R, W>(body: BodyFraming, from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    match body {
        BodyFraming::None => {}
        BodyFraming::Length(length) => copy_exactly(length, from, to).await?,
        BodyFraming::Chunked => loop {
            let size = chunk_size(&line(from, MAX_LINE_BYTES).await?)?;
            to.write_all(format!("{size:x}\r\n").as_bytes()).await?;
            if size == 0 {
                let mut left = MAX_LINE_BYTES;
                loop {
                    let trailer = line(from, left).await?;
                    if trailer.is_empty() {
                        break;
                    }
                    left = left.saturating_sub(trailer.len());
                }
                to.write_all(b"\r\n").await?;
                break;
            }
            copy_exactly(size, from, to).await?;
            if !line(from, 2).await?.is_empty() {
                return Err(io::ErrorKind::InvalidData.into());
            }
            to.write_all(b"\r\n").await?;
        },
    }
    to.flush().await
}

/// Whether the client sent an invalid body.
pub(super) fn is_client_error(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof)
}

async fn copy_exactly<R, W>(length: u64, from: &mut R, to: &mut W) -> io::Result<()>
where
    R: AsyncBufRead + Unpin,
    W: AsyncWrite + Unpin,
{
    let copied = tokio::io::copy_buf(&mut from.take(length), to).await?;
    if copied == length { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a line without its end.
async fn line<R: AsyncBufRead + Unpin>(from: &mut R, longest: usize) -> io::Result<Vec<u8>> {
    let mut line = Vec::new();
    from.take(longest as u64).read_until(b'\n', &mut line).await?;
    match line.strip_suffix(b"\r\n") {
        Some(text) if !text.contains(&b'\r') => Ok(text.to_vec()),
        _ if line.is_empty() => Err(io::ErrorKind::UnexpectedEof.into()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

fn chunk_size(line: &[u8]) -> io::Result<u64> {
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
    let wrong = || io::Error::from(io::ErrorKind::InvalidData);
    if digits.is_empty() || digits.len() > 16 || !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(wrong());
    }
    let digits = std::str::from_utf8(digits).map_err(|_| wrong())?;
    u64::from_str_radix(digits, 16).map_err(|_| wrong())
}
