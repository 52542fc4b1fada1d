//! Lines that are typed while something else goes on.

use std::io::{self, Stdin};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

/// The longest line that is taken; a terminal gives no longer ones.
const MAX_LINE_BYTES: usize = 1 << 16;

/// The keyboard of a terminal that edits lines by itself. Nothing is read but when somebody waits for a line, so that
/// whoever stops waiting loses none.
#[derive(Debug)]
pub(crate) struct Keyboard {
    input: AsyncFd<Stdin>,
    partial: Vec<u8>,
}

impl Keyboard {
    /// The keyboard of this process. Only for a terminal: a file is always ready and can tell nobody.
    pub(crate) fn open() -> io::Result<Self> {
        #[expect(
            deprecated,
            reason = "its successor is unsafe code; standard input is never closed under it"
        )]
        let input = AsyncFd::with_interest(io::stdin(), Interest::READABLE)?;
        Ok(Self { input, partial: Vec::new() })
    }

    /// The next line; none when there will be no more.
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

/// The next line of a keyboard that may not be there; none when there will be no more. Without one there never is.
pub(crate) async fn next_line(keyboard: &mut Option<Keyboard>) -> Option<String> {
    match keyboard {
        // A terminal that cannot be read is one that is gone.
        Some(keyboard) => keyboard.line().await.ok().flatten(),
        None => std::future::pending().await,
    }
}

/// Whether a read would give something at once.
fn is_readable() -> io::Result<bool> {
    let stdin = io::stdin();
    let mut polled = [PollFd::new(&stdin, PollFlags::IN)];
    let now = Timespec::try_from(Duration::ZERO).map_err(io::Error::other)?;
    Ok(poll(&mut polled, Some(&now))? > 0)
}
