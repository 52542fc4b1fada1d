//! The output of one program: beginning and end in memory, the rest on disk up to a limit.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{OutputPage, ProcessId};
use rustix::fs::{CWD, Mode, OFlags};
use serde_bytes::ByteBuf;

const SPOOL_PREFIX: &str = "spool-";

/// A buffer addressed by offset from the beginning of the output.
///
/// Short output stays in memory. Longer output is also written to a file, the spool. A full spool
/// is used as a ring: it keeps the newest bytes.
#[derive(Debug)]
pub(crate) struct OutputBuffer {
    head: Vec<u8>,
    head_capacity: usize,
    tail: VecDeque<u8>,
    tail_capacity: usize,
    pub(crate) total: u64,
    spool_path: PathBuf,
    spool_capacity: u64,
    spool: Spool,
}

#[derive(Debug)]
enum Spool {
    NotNeeded,
    Open {
        file: File,
        /// Offset of the first byte ever written to it.
        from: u64,
    },
    /// The disk is full or read-only; only head and tail are available.
    Failed,
}

impl OutputBuffer {
    /// `dir` is the private directory of the guest.
    pub(crate) fn new(memory_bytes: usize, spool: u64, dir: &Path, id: ProcessId) -> Self {
        let memory_bytes = memory_bytes.clamp(1024, limit::MAX_MEMORY_OUTPUT_BYTES);
        let head_capacity = memory_bytes * 2 / 5;
        Self {
            head: Vec::new(),
            head_capacity,
            tail: VecDeque::new(),
            tail_capacity: memory_bytes - head_capacity,
            total: 0,
            spool_path: dir.join(format!("{SPOOL_PREFIX}{id}")),
            spool_capacity: spool.clamp(memory_bytes as u64, limit::MAX_SPOOL_BYTES),
            spool: Spool::NotNeeded,
        }
    }

    /// How far a live reader may lag behind and still find everything in memory.
    pub(crate) fn max_reader_lag(&self) -> u64 {
        self.tail_capacity as u64 / 2
    }

    /// Appends output. Bytes before the offset of a live reader are not needed again, so nothing is
    /// spooled while memory holds the rest.
    pub(crate) fn append(&mut self, data: &[u8], live_reader: Option<u64>) {
        let needed = self.total + data.len() as u64;
        let (head, tail) = (self.head_capacity as u64, self.tail_capacity as u64);
        let from = live_reader.map_or(head, |offset| offset.max(head));
        if needed.saturating_sub(from) > tail {
            self.open_spool();
        }
        if let Spool::Open { file, .. } = &self.spool
            && write_ring(file, self.spool_capacity, self.total, data).is_err()
        {
            self.close_spool(Spool::Failed);
        }
        let (to_head, rest) = data.split_at(data.len().min(self.head_capacity - self.head.len()));
        self.head.extend_from_slice(to_head);
        let rest = rest.split_at(rest.len().saturating_sub(self.tail_capacity)).1;
        let excess = (self.tail.len() + rest.len()).saturating_sub(self.tail_capacity);
        self.tail.drain(..excess);
        self.tail.extend(rest);
        self.total = needed;
    }

    fn open_spool(&mut self) {
        if !matches!(self.spool, Spool::NotNeeded) {
            return;
        }
        let in_tail = self.total - self.tail.len() as u64;
        // Live output between head and tail was not kept.
        let is_whole = in_tail == self.head.len() as u64;
        let Ok(file) = create_new_file(&self.spool_path) else {
            self.spool = Spool::Failed;
            return;
        };
        let mut written = write_ring(&file, self.spool_capacity, in_tail, &self.read_tail(0, usize::MAX));
        if is_whole {
            written = written.and_then(|()| write_ring(&file, self.spool_capacity, 0, &self.head));
        }
        self.spool = Spool::Open { file, from: if is_whole { 0 } else { in_tail } };
        if written.is_err() {
            self.close_spool(Spool::Failed);
        }
    }

    fn close_spool(&mut self, then: Spool) {
        if let Spool::Open { .. } = std::mem::replace(&mut self.spool, then) {
            // A command may have removed the file.
            fs::remove_file(&self.spool_path).ok();
        }
    }

    /// The path of a file with the whole output, if it does not fit into memory and was spooled
    /// from the beginning.
    pub(crate) fn whole_output_path(&self) -> Option<ByteBuf> {
        match self.spool {
            Spool::Open { from: 0, .. } if self.total <= self.spool_capacity => {
                Some(ByteBuf::from(self.spool_path.as_os_str().as_bytes()))
            }
            Spool::Open { .. } | Spool::NotNeeded | Spool::Failed => None,
        }
    }

    /// The beginning and the end of the output.
    pub(crate) fn summary(&self) -> (Vec<u8>, Vec<u8>) {
        (self.head.clone(), self.read_tail(0, usize::MAX))
    }

    fn read_tail(&self, mut skip: usize, limit: usize) -> Vec<u8> {
        let (older, newer) = self.tail.as_slices();
        let mut found = Vec::with_capacity(limit.min(self.tail.len().saturating_sub(skip)));
        for part in [older, newer] {
            let from = part.split_at(skip.min(part.len())).1;
            skip -= part.len() - from.len();
            found.extend_from_slice(from.split_at(from.len().min(limit - found.len())).0);
        }
        found
    }

    /// At most the last `count` bytes.
    pub(crate) fn tail_bytes(&self, count: usize) -> Vec<u8> {
        let start = self.total.saturating_sub(count as u64);
        self.page(start, count).map(|page| page.data.into_vec()).unwrap_or_default()
    }

    /// Whether the summary omits output.
    pub(crate) fn is_spooled(&self) -> bool {
        !matches!(self.spool, Spool::NotNeeded)
    }

    /// A page from an offset on, or from the oldest byte still available.
    pub(crate) fn page(&self, offset: u64, limit: usize) -> io::Result<OutputPage> {
        let in_tail = self.total - self.tail.len() as u64;
        let page =
            |offset: u64, data: Vec<u8>| OutputPage { offset, data: ByteBuf::from(data), total: self.total };
        if offset >= in_tail {
            let skip = usize::try_from(offset.min(self.total) - in_tail).unwrap_or(usize::MAX);
            return Ok(page(offset.min(self.total), self.read_tail(skip, limit)));
        }
        if let Some(rest) = usize::try_from(offset).ok().and_then(|offset| self.head.get(offset..))
            && !rest.is_empty()
        {
            return Ok(page(offset, rest.iter().take(limit).copied().collect()));
        }
        match &self.spool {
            Spool::Open { file, from } => {
                let offset = offset.max(self.total.saturating_sub(self.spool_capacity)).max(*from);
                let wanted = limit.min(usize::try_from(self.total - offset).unwrap_or(usize::MAX));
                let mut data = vec![0; wanted];
                read_ring(file, self.spool_capacity, offset, &mut data)?;
                Ok(page(offset, data))
            }
            Spool::NotNeeded | Spool::Failed => Ok(page(in_tail, self.read_tail(0, limit))),
        }
    }
}

impl Drop for OutputBuffer {
    fn drop(&mut self) {
        self.close_spool(Spool::NotNeeded);
    }
}

/// Removes spools of a previous guest that was killed, or of this one at its exit.
pub(crate) fn remove_spools(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_name().as_bytes().starts_with(SPOOL_PREFIX.as_bytes()) {
            // Fails for a directory that a command created under this name; it stays.
            fs::remove_file(entry.path()).ok();
        }
    }
}

/// Creates a new file. Never opens an existing one: a command may have planted a symbolic link.
fn create_new_file(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    Ok(rustix::fs::openat(CWD, path, flags, Mode::RUSR | Mode::WUSR)?.into())
}

fn write_ring(file: &File, capacity: u64, offset: u64, data: &[u8]) -> io::Result<()> {
    let (mut at, mut rest) = (offset % capacity, data);
    while !rest.is_empty() {
        let fits = usize::try_from(capacity - at).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at(fits);
        file.write_all_at(now, at)?;
        (at, rest) = (0, later);
    }
    Ok(())
}

fn read_ring(file: &File, capacity: u64, offset: u64, data: &mut [u8]) -> io::Result<()> {
    let (mut at, mut rest) = (offset % capacity, data);
    while !rest.is_empty() {
        let fits = usize::try_from(capacity - at).unwrap_or(usize::MAX).min(rest.len());
        let (now, later) = rest.split_at_mut(fits);
        file.read_exact_at(now, at)?;
        (at, rest) = (0, later);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ID: ProcessId = ProcessId { pid: 7, started: 9 };

    proptest! {
        #[test]
        fn kept_output_equals_written_output(
            chunks in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..900), 0..12),
            offset in 0_u64..9000,
            limit in 0_usize..3000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut output = OutputBuffer::new(1024, 2048, dir.path(), ID);
            let all = chunks.concat();
            for chunk in &chunks {
                output.append(chunk, None);
            }
            prop_assert_eq!(output.total, all.len() as u64);
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
            prop_assert_eq!(&output.whole_output_path(), &named);
            if named.is_some() {
                prop_assert_eq!(fs::read(&file).unwrap(), all);
            }
            drop(output);
            prop_assert!(!file.exists());
        }

        #[test]
        fn live_output_is_not_spooled_and_later_output_is(
            live in 0_usize..5000,
            later in 0_usize..5000,
            offset in 0_u64..10_000,
        ) {
            let dir = tempfile::tempdir().unwrap();
            let mut output = OutputBuffer::new(1024, 1 << 20, dir.path(), ID);
            let all: Vec<u8> = (0..live + later).map(|at| (at % 251) as u8).collect();
            all[..live].chunks(100).for_each(|chunk| output.append(chunk, Some(output.total)));
            prop_assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
            all[live..].chunks(100).for_each(|chunk| output.append(chunk, None));
            let page = output.page(offset, 10_000).unwrap();
            let start = usize::try_from(page.offset).unwrap();
            prop_assert_eq!(page.data.as_slice(), &all[start..all.len().min(start + page.data.len())]);
            let tail_room = 615;
            prop_assert!(page.offset <= offset.max(live.saturating_sub(tail_room) as u64));
            prop_assert_eq!(output.whole_output_path().is_some(), live <= 1024 && later > 0 && all.len() > 1024);
        }
    }

    #[test]
    fn a_lagging_live_reader_misses_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let mut output = OutputBuffer::new(1024, 1 << 20, dir.path(), ID);
        let all: Vec<u8> = (0..5000).map(|at| (at % 251) as u8).collect();
        let reader = 2000;
        all[..2500].chunks(100).for_each(|chunk| output.append(chunk, Some(output.total.min(reader))));
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
        // More than memory holds.
        all[2500..].chunks(100).for_each(|chunk| output.append(chunk, Some(reader)));
        let page = output.page(reader, 5000).unwrap();
        assert_eq!((page.offset, page.data.as_slice()), (reader, &all[2000..]));
    }

    #[test]
    fn a_file_planted_at_the_spool_path_is_not_touched() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("target");
        fs::write(&target, "mine").unwrap();
        std::os::unix::fs::symlink(&target, dir.path().join("spool-7.9")).unwrap();
        let mut output = OutputBuffer::new(1024, 4096, dir.path(), ID);
        output.append(&[b'a'; 3000], None);
        assert_eq!(
            (output.whole_output_path(), fs::read_to_string(&target).unwrap()),
            (None, "mine".to_owned())
        );
        drop(output);
        assert!(dir.path().join("spool-7.9").is_symlink());
    }

    #[test]
    fn only_leftover_spools_are_removed() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["spool-1.2", "spool-x", "guest.sock"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        remove_spools(dir.path());
        let left: Vec<_> =
            fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["guest.sock"]);
    }

    #[test]
    fn without_a_disk_beginning_and_end_remain() {
        let mut output = OutputBuffer::new(1024, 4096, Path::new("/nonexistent"), ID);
        output.append(&[b'a'; 3000], None);
        output.append(b"end", None);
        let page = output.page(1000, 10_000).unwrap();
        assert_eq!((page.offset, page.data.len(), page.total), (3003 - 615, 615, 3003));
        assert!(page.data.ends_with(b"end"));
    }
}
