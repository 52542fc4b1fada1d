//! What files are there.

use std::fs::{File, Metadata};
use std::os::unix::fs::MetadataExt;

use hermes_guest::protocol::file::{Entry, FileReply, Kind, Stat};
use hermes_guest::protocol::limit;
use rustix::fs::{AtFlags, Dir, Mode, OFlags};
use serde_bytes::ByteBuf;

use super::place::Spot;
use super::{Failure, Out};

/// Entries in one message.
const ENTRIES: usize = 256;

pub(super) fn stat(spot: &Spot, out: &Out) -> Result<(), Failure> {
    let held = spot.hold()?;
    out.send(FileReply::Stat(describe(&held, &held.metadata()?)))
}

pub(super) fn list(spot: &Spot, out: &Out) -> Result<(), Failure> {
    let (mut entries, mut total) = (Vec::new(), 0);
    let dir = spot.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
    for entry in Dir::read_from(&dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if matches!(name.to_bytes(), b"." | b"..") {
            continue;
        }
        out.still_wanted()?;
        total += 1;
        if entries.len() == limit::PAGE {
            continue;
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        // What was removed meanwhile is not there.
        if let Ok(held) = rustix::fs::openat(&dir, name, flags, Mode::empty()).map(File::from)
            && let Ok(found) = held.metadata()
        {
            entries.push(Entry { name: ByteBuf::from(name.to_bytes()), stat: describe(&held, &found) });
        }
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    for part in entries.chunks(ENTRIES) {
        out.send(FileReply::Entries(part.to_vec()))?;
    }
    out.send(FileReply::Listed { total })
}

pub(super) fn remove(spot: &Spot, out: &Out) -> Result<(), Failure> {
    let flags = if spot.hold()?.metadata()?.is_dir() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
    spot.remove(flags)?;
    out.send(FileReply::Removed)
}

/// Describes what is held, a link by where it points.
pub(super) fn describe(held: &File, found: &Metadata) -> Stat {
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
    let target = (kind == Kind::Link).then(|| rustix::fs::readlinkat(held, c"", Vec::new()).ok()).flatten();
    Stat {
        kind,
        size: found.size(),
        mode: found.mode() & 0o7777,
        uid: found.uid(),
        gid: found.gid(),
        modified: found.mtime().saturating_mul(1_000_000_000).saturating_add(found.mtime_nsec()),
        target: target.map(|target| ByteBuf::from(target.into_bytes())),
    }
}
