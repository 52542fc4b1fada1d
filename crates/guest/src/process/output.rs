//! The output of one program: its beginning and its end in memory, the rest on disk up to a limit.

use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Page, ProcessId};
use rustix::fs::{CWD, Mode, OFlags};
use serde_bytes::ByteBuf;

/// How the names of spools begin.
const PREFIX: &str = "spool-";

/// Bytes addressed by their offset from the beginning of the output.
///
/// As long as all of it fits into memory nothing is on disk. After that every byte also goes to a file, the spool,
/// which is used as a ring once it is full: the newest bytes can be read, older ones are gone.
#[derive(Debug)]
pub(crate) struct Output {
    head: Vec<u8>,
    head_room: usize,
    tail: Ring,
    total: u64,
    path: PathBuf,
    room: u64,
    spool: Spool,
}

/// Whether somebody takes every byte as it comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taken {
    /// Nobody will ask again for what is before this offset, so nothing is put on disk as long as memory holds the rest.
    Live(u64),
    Later,
}

#[derive(Debug)]
enum Spool {
    NotNeeded,
    Open {
        file: File,
        /// The offset of the oldest byte that was ever in it.
        from: u64,
    },
    /// The disk is full or read-only; head and tail are all there is.
    Failed,
}

impl Output {
    /// For the output of a process, in the private directory of the guest.
    pub(crate) fn new(keep: usize, spool: u64, dir: &Path, id: ProcessId) -> Self {
        let keep = keep.clamp(1024, limit::KEEP);
        let head_room = keep * 2 / 5;
        Self {
            head: Vec::new(),
            head_room,
            tail: Ring::new(keep - head_room),
            total: 0,
            path: dir.join(format!("{PREFIX}{id}")),
            room: spool.clamp(keep as u64, limit::SPOOL),
            spool: Spool::NotNeeded,
        }
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// How far a reader may lag behind and still find everything in memory.
    pub(crate) fn slack(&self) -> u64 {
        self.tail.room as u64 / 2
    }

    pub(crate) fn append(&mut self, data: &[u8], taken: Taken) {
        let needed = self.total + data.len() as u64;
        let (head, tail) = (self.head_room as u64, self.tail.room as u64);
        let from = match taken {
            Taken::Live(from) => from.max(head),
            Taken::Later => head,
        };
        if needed.saturating_sub(from) > tail {
            self.open_spool();
        }
        if let Spool::Open { file, .. } = &self.spool
            && write_ring(file, self.room, self.total, data).is_err()
        {
            self.close_spool(Spool::Failed);
        }
        let (to_head, rest) = data.split_at(data.len().min(self.head_room - self.head.len()));
        self.head.extend_from_slice(to_head);
        self.tail.push(rest);
        self.total = needed;
    }

    fn open_spool(&mut self) {
        if !matches!(self.spool, Spool::NotNeeded) {
            return;
        }
        let in_tail = self.total - self.tail.len() as u64;
        // What was taken live between the two is gone.
        let is_whole = in_tail == self.head.len() as u64;
        let Ok(file) = new_file(&self.path) else {
            self.spool = Spool::Failed;
            return;
        };
        let mut written = write_ring(&file, self.room, in_tail, &self.tail.to_vec());
        if is_whole {
            written = written.and_then(|()| write_ring(&file, self.room, 0, &self.head));
        }
        self.spool = Spool::Open { file, from: if is_whole { 0 } else { in_tail } };
        if written.is_err() {
            self.close_spool(Spool::Failed);
        }
    }

    fn close_spool(&mut self, then: Spool) {
        if let Spool::Open { .. } = std::mem::replace(&mut self.spool, then) {
            // A command may have removed it already.
            fs::remove_file(&self.path).ok();
        }
    }

    /// The file with the whole output, if it is not in memory and there is such a file.
    pub(crate) fn whole(&self) -> Option<ByteBuf> {
        match self.spool {
            Spool::Open { from: 0, .. } if self.total <= self.room => {
                Some(ByteBuf::from(self.path.as_os_str().as_bytes()))
            }
            Spool::Open { .. } | Spool::NotNeeded | Spool::Failed => None,
        }
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
        !matches!(self.spool, Spool::NotNeeded)
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
            Spool::Open { file, from } => {
                let offset = offset.max(self.total.saturating_sub(self.room)).max(*from);
                let wanted = limit.min(usize::try_from(self.total - offset).unwrap_or(usize::MAX));
                let mut data = vec![0; wanted];
                read_ring(file, self.room, offset, &mut data)?;
                Ok(page(offset, data))
            }
            Spool::NotNeeded | Spool::Failed => Ok(page(in_tail, self.tail.read(0, limit))),
        }
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        self.close_spool(Spool::NotNeeded);
    }
}

/// Removes the spools in a directory, which belong to nobody: those of a guest that was killed, or that ends now.
pub(crate) fn sweep(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(PREFIX.as_bytes()) {
            // What a command made of it, a directory for example, is the command's.
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// Makes a file that was not there: a command may have put something in its place, and must not choose what is written.
fn new_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?.into())
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

    const ID: ProcessId = ProcessId { pid: 7, started: 9 };

    proptest! {
        #[test]
        fn what_is_kept_is_what_was_written(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..900), 0..12),
            offset in 0_u64..9000,
            limit in 0_usize..3000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut output = Output::new(1024, 2048, dir.path(), ID);
            let all = chunks.concat();
            for chunk in &chunks {
                output.append(chunk, Taken::Later);
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
            let file = dir.path().join("spool-7.9");
            let named = (1025..=2048).contains(&all.len()).then(|| ByteBuf::from(file.as_os_str().as_bytes()));
            prop_assert_eq!(&output.whole(), &named);
            if named.is_some() {
                prop_assert_eq!(fs::read(&file).unwrap(), all);
            }
            drop(output);
            prop_assert!(!file.exists());
        }

        #[test]
        fn what_was_taken_live_is_not_on_disk_and_what_comes_later_is(
            live in 0_usize..5000,
            later in 0_usize..5000,
            offset in 0_u64..10_000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut output = Output::new(1024, 1 << 20, dir.path(), ID);
            let all: Vec<u8> = (0..live + later).map(|at| (at % 251) as u8).collect();
            all[..live].chunks(100).for_each(|chunk| output.append(chunk, Taken::Live(output.total())));
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            all[live..].chunks(100).for_each(|chunk| output.append(chunk, Taken::Later));
            let page = output.page(offset, 10_000).unwrap();
            let start = usize::try_from(page.offset).unwrap();
            prop_assert_eq!(page.data.as_slice(), &all[start..all.len().min(start + page.data.len())]);
            let tail_room = 615;
            prop_assert!(page.offset <= offset.max(live.saturating_sub(tail_room) as u64));
            prop_assert_eq!(output.whole().is_some(), live <= 1024 && later > 0 && all.len() > 1024);
        }
    }

    #[test]
    fn whoever_reads_along_and_lags_behind_misses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = Output::new(1024, 1 << 20, dir.path(), ID);
        let all: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        let reader = 2000;
        all[..2500]
            .chunks(100)
            .for_each(|chunk| output.append(chunk, Taken::Live(output.total().min(reader))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // More than memory has room for.
        all[2500..].chunks(100).for_each(|chunk| output.append(chunk, Taken::Live(reader)));
        let page = output.page(reader, 5000).unwrap();
        assert_eq!((page.offset, page.data.as_slice()), (reader, &all[2000..]));
    }

    #[test]
    fn what_a_command_put_in_the_place_of_the_spool_is_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("spool-7.9")).unwrap();
        let mut output = Output::new(1024, 4096, dir.path(), ID);
        output.append(&[b'a'; 3000], Taken::Later);
        assert_eq!((output.whole(), fs::read_to_string(&target).unwrap()), (None, "mine".to_owned()));
        drop(output);
        assert!(dir.path().join("spool-7.9").is_symlink());
    }

    #[test]
    fn spools_that_belong_to_nobody_are_removed_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["spool-1.2", "spool-x", "guest.sock"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        sweep(dir.path());
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["guest.sock"]);
    }

    #[test]
    fn without_a_disk_the_beginning_and_the_end_remain() {
        let mut output = Output::new(1024, 4096, Path::new("/nonexistent"), ID);
        output.append(&[b'a'; 3000], Taken::Later);
        output.append(b"end", Taken::Later);
        let page = output.page(1000, 10_000).unwrap();
        assert_eq!((page.offset, page.data.len(), page.total), (3003 - 615, 615, 3003));
        assert!(page.data.ends_with(b"end"));
    }
}
