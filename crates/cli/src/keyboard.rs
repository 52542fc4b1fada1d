//! Lines that are typed while other work runs.

use std::io::{self, Stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// A terminal in line mode returns no longer lines.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The keyboard of a terminal in line mode. It reads only while a caller waits for a line, so a
/// caller that stops waiting loses no input.
pub(crate) struct Keyboard {
    input: AsyncFd<Stdin>,
    partial: Vec<u8>,
}

impl Keyboard {
    /// Opens standard input, which must be a terminal: a file is always ready and cannot be polled.
    pub(crate) fn open() -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its successor is unsafe code; standard input is never closed under it"
        )]
        let input = AsyncFd::with_interest(io::stdin(), Interest::READABLE)?;
        Ok(Self { input, partial: Vec::new() })
    }

    /// The next line; `None` at the end of input.
    pub(crate) async fn line(&mut self) -> io::Result<Option<String>> {
        loop {
            let mut ready = self.input.readable().await?;
            if !is_readable()? {
                ready.clear_ready();
                continue;
            }
            let mut buffer = [0; 4096];
            let count = rustix::io::read(io::stdin(), &mut buffer)?;
            self.partial.extend_from_slice(buffer.get(..count).unwrap_or_default());
            let is_whole = self.partial.ends_with(b"\n") || self.partial.len() > MAX_LINE_BYTES;
            match (count, self.partial.is_empty()) {
                (0, true) => return Ok(None),
                (1.., _) if !is_whole => {}
                _ => {
                    let line = std::mem::take(&mut self.partial);
                    return Ok(Some(String::from_utf8_lossy(&line).trim_end_matches('\n').to_owned()));
                }
            }
        }
    }
}

/// The next line; `None` at the end of input. Waits forever without a keyboard.
pub(crate) async fn next_line(keyboard: &mut Option<Keyboard>) -> Option<String> {
    // Reading fails if the terminal is gone.
    or_pending(keyboard.as_mut().map(Keyboard::line)).await.ok().flatten()
}

/// Waits for a future, or forever without one.
pub(crate) async fn or_pending<T>(future: Option<impl Future<Output = T>>) -> T {
    match future {
        Some(future) => future.await,
        None => std::future::pending().await,
    }
}

/// Whether a read would return at once.
fn is_readable() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec::try_from(Duration::ZERO).map_err(io::Error::other)?;
    Ok(poll(&mut polled, Some(&now))? > 0)
}
