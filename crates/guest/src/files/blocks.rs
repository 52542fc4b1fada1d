//! Reads a file as blocks of whole lines.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use hermes_guest::protocol::limit;

use super::{Failure, Out, read};

/// The longest line that is looked at as a whole; what is longer is looked at in pieces.
const LONGEST_LINE: usize = 1024 * 1024;

/// The buffer for the smallest files.
const SMALLEST: usize = 8 * 1024;

/// What a file turned out to be.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Content {
    /// As far as it was read.
    Text,
    /// It has a zero byte somewhere.
    Binary,
}

/// Reads what was opened through a buffer that files share: what is incomplete at its end moves to its front. What is
/// added meanwhile is not looked at; some files of the system do not know their size and say 0.
pub(super) fn each_block(
    opened: OwnedFd,
    buffer: &mut Vec<u8>,
    out: &Out,
    mut take: impl FnMut(&[u8]) -> ControlFlow<()>,
) -> Result<Content, Failure> {
    let (mut file, found) = read::regular(opened)?;
    // Most files are small, and a large buffer takes longer to get than such a file to read.
    let fitting = usize::try_from(found.len()).unwrap_or(limit::CHUNK).clamp(SMALLEST, limit::CHUNK);
    if buffer.len() < fitting {
        buffer.resize(fitting.next_power_of_two(), 0);
    }
    let (mut kept, mut total) = (0, 0);
    loop {
        if kept == buffer.len() {
            buffer.resize(2 * kept, 0);
        }
        let count = match file.read(buffer.split_at_mut(kept).1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        total += count as u64;
        let is_end = count == 0 || total == found.len();
        out.still_wanted()?;
        let (old, new) = buffer.split_at(kept + count).0.split_at(kept);
        if memchr::memchr(0, new).is_some() {
            return Ok(Content::Binary);
        }
        let complete = match memchr::memrchr(b'\n', new) {
            _ if is_end => kept + count,
            Some(end) => old.len() + end + 1,
            None if kept + count >= LONGEST_LINE => kept + count,
            None => 0,
        };
        if take(buffer.split_at(complete).0).is_break() || is_end {
            return Ok(Content::Text);
        }
        buffer.copy_within(complete..kept + count, 0);
        kept = kept + count - complete;
    }
}
