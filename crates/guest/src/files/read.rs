//! Reads files by bytes or by lines.

use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};

use hermes_guest::protocol::file::{Digest, FileFault, FileReply, Part, ReadEnd, Whole};
use hermes_guest::protocol::limit;
use rustix::fs::OFlags;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use super::place::Spot;
use super::{Failure, Out, stat};

pub(super) fn read(spot: &Spot, part: Part, out: &Out) -> Result<(), Failure> {
    let (mut file, found) = open_regular(spot)?;
    let stat = stat::describe(&file, &found);
    let whole = match part {
        Part::Bytes { offset, length } => {
            file.seek(SeekFrom::Start(offset))?;
            let mut rest = file.take(length);
            each_chunk(&mut rest, |chunk| send(out, chunk))?;
            None
        }
        Part::Whole => Some(scan(&mut file, 1, u64::MAX, out)?),
        Part::Lines { first, count } => Some(scan(&mut file, first.max(1), count, out)?),
    };
    out.send(FileReply::Read(ReadEnd { stat, whole }))
}

/// Opens nothing that could make us wait, such as a pipe nobody writes to.
pub(super) const READ: OFlags = OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::NOCTTY);

/// Opens a regular file and nothing else.
pub(super) fn open_regular(spot: &Spot) -> Result<(File, Metadata), Failure> {
    let file = File::from(spot.open(READ)?);
    let found = regular(&file)?;
    Ok((file, found))
}

/// What is known about an open file, if it is a regular one.
pub(super) fn regular(file: &File) -> Result<Metadata, Failure> {
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(FileFault::NotRegular.into());
    }
    Ok(found)
}

/// Sends the lines that are wanted and counts all of them.
fn scan(file: &mut File, first: u64, count: u64, out: &Out) -> Result<Whole, Failure> {
    let end = first.saturating_add(count);
    let (mut ends, mut last, mut hash) = (0_u64, b'\n', Sha256::new());
    each_chunk(file, |chunk| {
        hash.update(chunk);
        let wanted = wanted(chunk, &mut ends, first, end);
        last = chunk.last().copied().unwrap_or(last);
        send(out, wanted)
    })?;
    // What follows the last line end is a line too, if it is anything.
    Ok(Whole { lines: ends + u64::from(last != b'\n'), digest: Digest(hash.finalize().into()) })
}

/// The part of a chunk that lies in lines `first..end`. `ends` counts the line ends before the chunk, and after it.
fn wanted<'a>(chunk: &'a [u8], ends: &mut u64, first: u64, end: u64) -> &'a [u8] {
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

fn send(out: &Out, data: &[u8]) -> Result<(), Failure> {
    if data.is_empty() {
        return out.still_wanted();
    }
    out.send(FileReply::Data(ByteBuf::from(data)))
}

/// Reads to the end, piece by piece.
pub(super) fn each_chunk(
    from: &mut impl Read,
    mut take: impl FnMut(&[u8]) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let mut buffer = vec![0; limit::CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(count) => take(buffer.split_at(count).0)?,
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
        fn lines_are_those_of_the_whole_however_it_is_cut(
            text in "[a\n]{0,40}", cut in 1_usize..9, first in 1_u64..12, count in 0_u64..12,
        ) {
            let (mut ends, mut found) = (0, Vec::new());
            for chunk in text.as_bytes().chunks(cut) {
                found.extend_from_slice(wanted(chunk, &mut ends, first, first + count));
            }
            let skip = usize::try_from(first - 1).unwrap();
            let lines = text.split_inclusive('\n').skip(skip).take(usize::try_from(count).unwrap());
            prop_assert_eq!(String::from_utf8(found).unwrap(), lines.collect::<String>());
        }
    }
}
