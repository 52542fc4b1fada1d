//! Reads a file as blocks of whole lines.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use hermes_guest::protocol::limit;

use super::place::Short;
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

/// Whether there are lines after those of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Follows {
    Nothing,
    Perhaps,
}

/// Reads what was opened through a buffer that files share: what is incomplete at its end moves to its front. Whatever
/// was listed as a regular file is read; only one that does not fit into the buffer is looked at first, because what is
/// added to it meanwhile is not read.
pub(super) fn each_block(
    (opened, short): (OwnedFd, Short),
    buffer: &mut Vec<u8>,
    out: &Out,
    mut take: impl FnMut(&[u8], Follows) -> ControlFlow<()>,
) -> Result<Content, Failure> {
    let mut file = File::from(opened);
    if buffer.is_empty() {
        buffer.resize(SMALLEST, 0);
    }
    let (mut kept, mut total, mut size) = (0, 0, None);
    loop {
        if kept == buffer.len() {
            buffer.resize(2 * kept, 0);
        }
        let count = match file.read(buffer.split_at_mut(kept).1) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            read => read?,
        };
        out.still_wanted()?;
        total += count as u64;
        let is_end = count == 0 || size.is_some_and(|size| total >= size);
        if memchr::memchr(0, buffer.split_at(kept + count).0.split_at(kept).1).is_some() {
            return Ok(Content::Binary);
        }
        kept += count;
        let is_short = !is_end && kept < buffer.len();
        if is_short && short == Short::Unclear {
            // Mostly that was all, and the next read says so.
            continue;
        }
        let is_end = is_end || is_short;
        if !is_end && size.is_none() {
            let found = read::regular(&file)?.len();
            // Some files of the system do not know their size.
            size = (found > 0).then_some(found);
            let fitting = usize::try_from(found).unwrap_or(limit::CHUNK).clamp(SMALLEST, limit::CHUNK);
            if buffer.len() < fitting {
                buffer.resize(fitting.next_power_of_two(), 0);
            }
        }
        let complete = match memchr::memrchr(b'\n', buffer.split_at(kept).0) {
            _ if is_end => kept,
            Some(end) => end + 1,
            None if kept >= LONGEST_LINE => kept,
            None => 0,
        };
        let follows = if is_end { Follows::Nothing } else { Follows::Perhaps };
        if take(buffer.split_at(complete).0, follows).is_break() || is_end {
            return Ok(Content::Text);
        }
        buffer.copy_within(complete..kept, 0);
        kept -= complete;
    }
}
