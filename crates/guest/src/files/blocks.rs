//! Reads a file as blocks of whole lines.

use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;

use hermes_guest::protocol::file::FileError;
use hermes_guest::protocol::limit;

use super::resolve::ShortRead;
use super::{ReplySender, read};

/// Longer lines are searched in pieces.
const MAX_BLOCK_LINE_BYTES: usize = 1024 * 1024;

/// Initial buffer size, enough for most files.
const MIN_BUFFER_BYTES: usize = 8 * 1024;

#[derive(Debug, PartialEq, Eq)]
pub(super) enum ContentKind {
    /// No zero byte in the part that was read.
    Text,
    /// The file contains a zero byte.
    Binary,
}

/// Whether lines may follow a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MoreLines {
    None,
    Possible,
}

/// Reads a file in blocks of whole lines through a reusable buffer; an incomplete last line moves
/// to the front of the buffer. Files that do not fit into the buffer are limited to the size they
/// had when they were opened, so a growing file does not prolong the search.
pub(super) fn each_block(
    (opened, short_read): (OwnedFd, ShortRead),
    buffer: &mut Vec<u8>,
    out: &ReplySender,
    mut handle: impl FnMut(&[u8], MoreLines) -> ControlFlow<()>,
) -> Result<ContentKind, FileError> {
    let mut file = File::from(opened);
    if buffer.is_empty() {
        buffer.resize(MIN_BUFFER_BYTES, 0);
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
        out.check_connected()?;
        total += count as u64;
        let is_end = count == 0 || size.is_some_and(|size| total >= size);
        if memchr::memchr(0, buffer.split_at(kept + count).0.split_at(kept).1).is_some() {
            return Ok(ContentKind::Binary);
        }
        kept += count;
        let is_short = !is_end && kept < buffer.len();
        if is_short && short_read == ShortRead::Inconclusive {
            // Usually the end of the file; the next read confirms it.
            continue;
        }
        let is_end = is_end || is_short;
        if !is_end && size.is_none() {
            let found = read::regular_metadata(&file)?.len();
            // Files in `/proc` report size 0.
            size = (found > 0).then_some(found);
            let wanted_len = usize::try_from(found)
                .unwrap_or(limit::CHUNK_BYTES)
                .clamp(MIN_BUFFER_BYTES, limit::CHUNK_BYTES);
            if buffer.len() < wanted_len {
                buffer.resize(wanted_len.next_power_of_two(), 0);
            }
        }
        let complete = match memchr::memrchr(b'\n', buffer.split_at(kept).0) {
            _ if is_end => kept,
            Some(end) => end + 1,
            None if kept >= MAX_BLOCK_LINE_BYTES => kept,
            None => 0,
        };
        let follows = if is_end { MoreLines::None } else { MoreLines::Possible };
        if handle(buffer.split_at(complete).0, follows).is_break() || is_end {
            return Ok(ContentKind::Text);
        }
        buffer.copy_within(complete..kept, 0);
        kept -= complete;
    }
}
