//! The output of one program: its beginning and its end in memory, the rest on disk up to a limit.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::Page;
use rustix::fs::{CWD, Mode, OFlags};
use serde_bytes::ByteBuf;

/// Bytes addressed by their offset from the beginning of the output.
///
/// As long as all of it fits into memory nothing is on disk. After that every byte also goes to a file without a
/// name, which is used as a ring once it is full: the newest bytes can be read, older ones are gone.
#[derive(Debug)]
pub(crate) struct Output {
    head: Vec<u8>,
    head_room: usize,
    tail: Ring,
    total: u64,
    spool: Spool,
}

#[derive(Debug)]
enum Spool {
    NotNeeded {
        dir: PathBuf,
        room: u64,
    },
    Open {
        file: File,
        room: u64,
    },
    /// The disk is full or read-only; head and tail are all there is.
    Failed,
}

impl Output {
    pub(crate) fn new(keep: usize, spool: u64, dir: &Path) -> Self {
        let keep = keep.clamp(1024, limit::KEEP);
        let head_room = keep * 2 / 5;
        let room = spool.clamp(keep as u64, limit::SPOOL);
        Self {
            head: Vec::new(),
            head_room,
            tail: Ring::new(keep - head_room),
            total: 0,
            spool: Spool::NotNeeded { dir: dir.to_owned(), room },
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// How far a reader may lag behind and still find everything in memory.
    pub(crate) fn slack(&self) -> u64 {
        self.tail.room as u64 / 2
    }

    pub(crate) fn append(&mut self, data: &[u8]) {
        let needed = self.total + data.len() as u64;
        if needed > (self.head_room + self.tail.room) as u64 {
            self.open_spool();
        }
        if let Spool::Open { file, room } = &self.spool
            && write_ring(file, *room, self.total, data).is_err()
        {
            self.spool = Spool::Failed;
        }
        let (to_head, rest) = data.split_at(data.len().min(self.head_room - self.head.len()));
        self.head.extend_from_slice(to_head);
        self.tail.push(rest);
        self.total = needed;
    }

    fn open_spool(&mut self) {
        let Spool::NotNeeded { dir, room } = &self.spool else { return };
        let room = *room;
        let opened = nameless_file(dir).and_then(|file| {
            file.write_all_at(&self.head, 0)?;
            file.write_all_at(&self.tail.to_vec(), self.head.len() as u64)?;
            Ok(file)
        });
        self.spool = opened.map_or(Spool::Failed, |file| Spool::Open { file, room });
    }

    /// Beginning and end: all of it, or the first and the last bytes.
    pub(crate) fn summary(&self) -> (Vec<u8>, Vec<u8>) {
        (self.head.clone(), self.tail.to_vec())
    }

    /// The last bytes, at most so many.
    pub(crate) fn last(&self, count: usize) -> Vec<u8> {
        let start = self.total.saturating_sub(count as u64);
        self.page(start, count).map(|page| page.data.into_vec()).unwrap_or_default()
    }

    /// Whether there is more than a summary shows.
    pub(crate) fn is_long(&self) -> bool {
        !matches!(self.spool, Spool::NotNeeded { .. })
    }

    /// Bytes from an offset on, or from the oldest one that is left.
    pub(crate) fn page(&self, offset: u64, limit: usize) -> io::Result<Page> {
        let in_tail = self.total - self.tail.len() as u64;
        let page = |offset: u64, data: Vec<u8>| Page { offset, data: ByteBuf::from(data), total: self.total };
        if offset >= in_tail {
            let skip = usize::try_from(offset.min(self.total) - in_tail).unwrap_or(usize::MAX);
            return Ok(page(offset.min(self.total), self.tail.read(skip, limit)));
        }
        if let Some(rest) = usize::try_from(offset).ok().and_then(|offset| self.head.get(offset..))
            && !rest.is_empty()
        {
            return Ok(page(offset, rest.iter().take(limit).copied().collect()));
        }
        match &self.spool {
            Spool::Open { file, room } => {
                let offset = offset.max(self.total.saturating_sub(*room));
                let wanted = limit.min(usize::try_from(self.total - offset).unwrap_or(usize::MAX));
                let mut data = vec![0; wanted];
                read_ring(file, *room, offset, &mut data)?;
                Ok(page(offset, data))
            }
            Spool::NotNeeded { .. } | Spool::Failed => Ok(page(in_tail, self.tail.read(0, limit))),
        }
    }
}

fn nameless_file(dir: &Path) -> io::Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    if let Ok(file) = rustix::fs::openat(CWD, dir, flags | OFlags::TMPFILE, mode) {
        return Ok(file.into());
    }
    // Some file systems have no files without a name; then the name is taken away at once.
    let path = dir.join("spool");
    let file = rustix::fs::openat(CWD, &path, flags | OFlags::CREATE | OFlags::EXCL, mode)?;
    rustix::fs::unlink(&path)?;
    Ok(file.into())
}

fn write_ring(file: &File, room: u64, offset: u64, data: &[u8]) -> io::Result<()> {
    let (mut at, mut rest) = (offset % room, data);
    while !rest.is_empty() {
        let fits = usize::try_from(room - at).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at(fits);
        file.write_all_at(now, at)?;
        (at, rest) = (0, later);
    }
    Ok(())
}

fn read_ring(file: &File, room: u64, offset: u64, data: &mut [u8]) -> io::Result<()> {
    let (mut at, mut rest) = (offset % room, data);
    while !rest.is_empty() {
        let fits = usize::try_from(room - at).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at_mut(fits);
        file.read_exact_at(now, at)?;
        (at, rest) = (0, later);
    }
    Ok(())
}

/// The last bytes that were pushed.
#[derive(Debug)]
struct Ring {
    bytes: Vec<u8>,
    room: usize,
    /// Where the oldest byte is, once the ring is full.
    oldest: usize,
}

impl Ring {
    fn new(room: usize) -> Self {
        Self { bytes: Vec::new(), room, oldest: 0 }
    }

    fn len(&self) -> usize {
        self.bytes.len()
    }

    fn push(&mut self, data: &[u8]) {
        let data = data.split_at(data.len().saturating_sub(self.room)).1;
        let (grow, over) = data.split_at(data.len().min(self.room - self.bytes.len()));
        self.bytes.extend_from_slice(grow);
        let (first, second) = over.split_at(over.len().min(self.room - self.oldest));
        for (at, part) in [(self.oldest, first), (0, second)] {
            if let Some(slot) = self.bytes.get_mut(at..at + part.len()) {
                slot.copy_from_slice(part);
            }
        }
        self.oldest = (self.oldest + over.len()) % self.room;
    }

    fn read(&self, skip: usize, limit: usize) -> Vec<u8> {
        let (newer, older) = self.bytes.split_at(self.oldest);
        let mut found = Vec::with_capacity(limit.min(self.len().saturating_sub(skip)));
        let mut skip = skip;
        for part in [older, newer] {
            let from = part.split_at(skip.min(part.len())).1;
            skip -= part.len() - from.len();
            found.extend_from_slice(from.split_at(from.len().min(limit - found.len())).0);
        }
        found
    }

    fn to_vec(&self) -> Vec<u8> {
        self.read(0, usize::MAX)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_written(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..900), 0..12),
            offset in 0_u64..9000,
            limit in 0_usize..3000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut output = Output::new(1024, 2048, dir.path());
            let all = chunks.concat();
            for chunk in &chunks {
                output.append(chunk);
            }
            prop_assert_eq!(output.total(), all.len() as u64);
            let page = output.page(offset, limit).unwrap();
            let start = usize::try_from(page.offset).unwrap();
            let expected = &all[start.min(all.len())..all.len().min(start + limit)];
            prop_assert!(expected.starts_with(&page.data));
            prop_assert!(!page.data.is_empty() || expected.is_empty());
            let oldest = all.len().saturating_sub(2048) as u64;
            prop_assert!(page.offset == offset.min(all.len() as u64) || page.offset == oldest);
            let (head, tail) = output.summary();
            prop_assert!(all.starts_with(&head) && all.ends_with(&tail));
            prop_assert!(head.len() + tail.len() == all.len().min(1024));
        }
    }

    #[test]
    fn without_a_disk_the_beginning_and_the_end_remain() {
        let mut output = Output::new(1024, 4096, Path::new("/nonexistent"));
        output.append(&[b'a'; 3000]);
        output.append(b"end");
        let page = output.page(1000, 10_000).unwrap();
        assert_eq!((page.offset, page.data.len(), page.total), (3003 - 615, 615, 3003));
        assert!(page.data.ends_with(b"end"));
    }
}
