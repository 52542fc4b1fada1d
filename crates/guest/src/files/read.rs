//! Reads files by byte range or by line range.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};

use hermes_guest::protocol::file::{
    ContentDigest, FileError, FileRange, FileReply, FileSummary, ReadSummary,
};
use hermes_guest::protocol::limit;
use rustix::fs::OFlags;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use super::resolve::ResolvedPath;
use super::{ReplySender, stat};

pub(super) fn read_file(
    resolved: &ResolvedPath,
    range: FileRange,
    out: &ReplySender,
) -> Result<(), FileError> {
    let (mut file, found) = open_regular(resolved)?;
    let stat = stat::describe_file(&found);
    let whole = match range {
        FileRange::Bytes { offset, length } => {
            file.seek(SeekFrom::Start(offset))?;
            let mut rest = file.take(length);
            each_chunk(&mut rest, |chunk| send_data(out, chunk))?;
            None
        }
        FileRange::Whole => Some(send_lines(&mut file, 1, u64::MAX, out)?),
        FileRange::Lines { first, count } => Some(send_lines(&mut file, first.max(1), count, out)?),
    };
    out.send(FileReply::ReadDone(ReadSummary { stat, whole }))
}

/// Never blocks, for example on a named pipe without a writer.
pub(super) const READ_FLAGS: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a file; fails unless it is regular.
pub(super) fn open_regular(resolved: &ResolvedPath) -> Result<(File, Metadata), FileError> {
    let file = File::from(resolved.open(READ_FLAGS)?);
    let found = regular_metadata(&file)?;
    Ok((file, found))
}

/// The metadata of an open file; fails unless it is regular.
pub(super) fn regular_metadata(file: &File) -> Result<Metadata, FileError> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(FileError::NotRegular);
    }
    Ok(found)
}

/// Sends the requested lines and counts all lines.
fn send_lines(file: &mut File, first: u64, count: u64, out: &ReplySender) -> Result<FileSummary, FileError> {
    let end = first.saturating_add(count);
    let (mut ends, mut last, mut hash) = (0_u64, b'\n', Sha256::new());
    each_chunk(file, |chunk| {
        hash.update(chunk);
        let wanted = select_lines(chunk, &mut ends, first, end);
        last = chunk.last().copied().unwrap_or(last);
        send_data(out, wanted)
    })?;
    // Text after the last line end counts as a line.
    Ok(FileSummary { lines: ends + u64::from(last != b'\n'), digest: ContentDigest(hash.finalize().into()) })
}

/// The part of a chunk that lies in lines `first..end`. `ends` counts line ends, before the chunk
/// on entry and after it on return.
fn select_lines<'a>(chunk: &'a [u8], ends: &mut u64, first: u64, end: u64) -> &'a [u8] {
    let (mut from, mut to) = ((*ends + 1 >= first).then_some(0), (*ends + 1 >= end).then_some(0));
    for at in memchr::memchr_iter(b'\n', chunk) {
        *ends += 1;
        if from.is_none() && *ends + 1 >= first {
            from = Some(at + 1);
        }
        if to.is_none() && *ends + 1 >= end {
            to = Some(at + 1);
        }
    }
    let from = from.unwrap_or(chunk.len());
    chunk.get(from..to.unwrap_or(chunk.len()).max(from)).unwrap_or_default()
}

fn send_data(out: &ReplySender, data: &[u8]) -> Result<(), FileError> {
    if data.is_empty() {
        return out.check_connected();
    }
    out.send(FileReply::Data(ByteBuf::from(data)))
}

/// Reads to the end in chunks.
pub(super) fn each_chunk(
    from: &mut impl Read,
    mut handle: impl FnMut(&[u8]) -> Result<(), FileError>,
) -> Result<(), FileError> {
    let mut buffer = vec![0; limit::CHUNK_BYTES];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => handle(buffer.split_at(count).0)?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn selected_lines_do_not_depend_on_chunks(
            text in "[a\n]{0,40}", cut in 1_usize..9, first in 1_u64..12, count in 0_u64..12,
        ) {
            let (mut ends, mut found) = (0, Vec::new());
            for chunk in text.as_bytes().chunks(cut) {
                found.extend_from_slice(select_lines(chunk, &mut ends, first, first + count));
            }
            let skip = usize::try_from(first - 1).unwrap();
            let lines = text.split_inclusive('\n').skip(skip).take(usize::try_from(count).unwrap());
            prop_assert_eq!(String::from_utf8(found).unwrap(), lines.collect::<String>());
        }
    }
}
