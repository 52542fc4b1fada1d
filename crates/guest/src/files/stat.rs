//! What files are there.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hermes_guest::protocol::file::{Entry, FileReply, Kind, Stat};
use hermes_guest::protocol::limit;
use serde_bytes::ByteBuf;

use super::{Failure, Out};

/// Entries in one message.
const ENTRIES: usize = 256;

pub(super) fn stat(path: &Path, out: &Out) -> Result<(), Failure> {
    let found = fs::symlink_metadata(path)?;
    out.send(FileReply::Stat(describe(path, &found)))
}

pub(super) fn list(path: &Path, out: &Out) -> Result<(), Failure> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(path)?.take(limit::PAGE) {
        let entry = entry?;
        // What was removed meanwhile is not there.
        if let Ok(found) = entry.metadata() {
            let stat = describe(&entry.path(), &found);
            entries.push(Entry { name: ByteBuf::from(entry.file_name().as_bytes()), stat });
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for part in entries.chunks(ENTRIES) {
        out.send(FileReply::Entries(part.to_vec()))?;
    }
    out.send(FileReply::Entries(Vec::new()))
}

pub(super) fn remove(path: &Path, out: &Out) -> Result<(), Failure> {
    if fs::symlink_metadata(path)?.is_dir() {
        fs::remove_dir(path)?;
    } else {
        fs::remove_file(path)?;
    }
    out.send(FileReply::Removed)
}

pub(super) fn describe(path: &Path, found: &fs::Metadata) -> Stat {
    let kind = found.file_type();
    let kind = if kind.is_file() {
        Kind::File
    } else if kind.is_dir() {
        Kind::Directory
    } else if kind.is_symlink() {
        Kind::Link
    } else {
        Kind::Other
    };
    let target = (kind == Kind::Link).then(|| fs::read_link(path).ok()).flatten();
    Stat {
        kind,
        size: found.size(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        modified: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
        target: target.map(|target| ByteBuf::from(target.as_os_str().as_bytes())),
    }
}
