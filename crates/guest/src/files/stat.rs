//! Describes, lists and removes files.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use hermes_guest::protocol::file::{DirEntry, FileError, FileKind, FileReply, FileStat};
use hermes_guest::protocol::limit;
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use serde_bytes::ByteBuf;

use super::ReplySender;
use super::resolve::ResolvedPath;

const MAX_ENTRIES_PER_MESSAGE: usize = 256;

pub(super) fn stat_file(resolved: &ResolvedPath, out: &ReplySender) -> Result<(), FileError> {
    out.send(FileReply::Stat(describe_file(&resolved.open_path()?.metadata()?)))
}

pub(super) fn list_dir(resolved: &ResolvedPath, out: &ReplySender) -> Result<(), FileError> {
    let (mut entries, mut total) = (Vec::new(), 0);
    let dir = resolved.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        out.check_connected()?;
        total += 1;
        if entries.len() == limit::MAX_PAGE_ENTRIES {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // Skips entries that another process removed.
        if let Ok(held) = rustix::fs::openat(&dir, name, flags, Mode::empty()).map(File::from)
            && let Ok(found) = held.metadata()
        {
            entries.push(DirEntry { name: ByteBuf::from(name.to_bytes()), stat: describe_file(&found) });
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for part in entries.chunks(MAX_ENTRIES_PER_MESSAGE) {
        out.send(FileReply::DirEntries(part.to_vec()))?;
    }
    out.send(FileReply::ListDone { total })
}

pub(super) fn remove_file(resolved: &ResolvedPath, out: &ReplySender) -> Result<(), FileError> {
    let flags =
        if resolved.open_path()?.metadata()?.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    rustix::fs::unlinkat(&resolved.dir, &resolved.name, flags)?;
    out.send(FileReply::Removed)
}

pub(super) fn describe_file(found: &Metadata) -> FileStat {
    let kind = match FileType::from_raw_mode(found.mode()) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        _ => FileKind::Other,
    };
    FileStat { kind, size: found.size(), mode: found.mode() & 0o7777 }
}
