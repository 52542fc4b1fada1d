//! Writes files: to a temporary file in the same directory, which then replaces the target.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read as _, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Mutex, PoisonError};

use hermes_guest::protocol::file::{
    ContentDigest, FileEdit, FileError, FileReply, Occurrences, Precondition, WriteChunk, WriteEffect,
    WriteResult,
};
use hermes_guest::protocol::frame::{FrameError, FrameReader, FrameWriter};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{GuestReply, Rejection};
use hermes_guest::protocol::mux::MuxStream;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use super::resolve::ResolvedPath;
use super::{ReplySender, read};

/// Held while checking and replacing a file, so that only one of two writers with the same
/// precondition succeeds.
static COMMIT_LOCK: Mutex<()> = Mutex::new(());

/// Receives a file's content from the client, installs the file and replies.
pub(super) async fn receive_file(
    resolved: Result<ResolvedPath, Rejection>,
    precondition: Precondition,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    let mut staged = match resolved.and_then(|resolved| StagedFile::create(resolved).map_err(Rejection::from))
    {
        Ok(staged) => staged,
        Err(fault) => return reject_write(fault, reader, writer).await,
    };
    while let Some(content) = reader.receive::<WriteChunk>().await? {
        match content {
            WriteChunk::Data(data) => {
                if let Err(error) = staged.append(&data) {
                    drop(staged);
                    return reject_write(FileError::from(error).into(), reader, writer).await;
                }
            }
            WriteChunk::End { length } => {
                let committed =
                    tokio::task::spawn_blocking(move || staged.commit(length, precondition)).await;
                let reply = match committed.unwrap_or(Err(FileError::Incomplete)) {
                    Ok(written) => GuestReply::File(FileReply::Written(written)),
                    Err(fault) => GuestReply::Failed(fault.into()),
                };
                return writer.send(&reply).await;
            }
        }
    }
    // The client disconnected; dropping the staged file removes it.
    Ok(())
}

/// Sends the error immediately, so that the client stops sending, and reads what is in flight.
async fn reject_write(
    fault: Rejection,
    reader: &mut FrameReader<MuxStream>,
    writer: &mut FrameWriter<MuxStream>,
) -> Result<(), FrameError> {
    writer.send(&GuestReply::Failed(fault)).await?;
    while let Some(WriteChunk::Data(_)) = reader.receive().await? {}
    Ok(())
}

/// Applies all edits to a file, or none.
pub(super) fn patch_file(
    resolved: ResolvedPath,
    edits: &[FileEdit],
    out: &ReplySender,
) -> Result<(), FileError> {
    let (mut file, found) = read::open_regular(&resolved)?;
    if found.len() > limit::MAX_PATCH_FILE_BYTES {
        return Err(FileError::TooLarge);
    }
    let mut content = Vec::new();
    file.read_to_end(&mut content)?;
    let original = ContentDigest(Sha256::digest(&content).into());
    let mut counts = Vec::new();
    for (number, edit) in (0..).zip(edits) {
        let count;
        (content, count) = apply_edit(&content, edit, number)?;
        counts.push(count);
    }
    let mut staged = StagedFile::create(resolved)?;
    staged.append(&content)?;
    let written = staged.commit(content.len() as u64, Precondition::Content(original))?;
    out.send(FileReply::Patched { counts, written })
}

fn apply_edit(content: &[u8], edit: &FileEdit, number: u32) -> Result<(Vec<u8>, u64), FileError> {
    if edit.old.is_empty() {
        return Err(FileError::NoMatch { edit: number });
    }
    let found: Vec<usize> = memchr::memmem::find_iter(content, edit.old.as_slice()).collect();
    let count = found.len() as u64;
    match (count, edit.occurrences) {
        (0, _) => return Err(FileError::NoMatch { edit: number }),
        (2.., Occurrences::One) => return Err(FileError::Ambiguous { edit: number, count }),
        _ => {}
    }
    let mut replaced = Vec::with_capacity(content.len());
    let mut from = 0;
    for at in found {
        replaced.extend_from_slice(content.get(from..at).unwrap_or_default());
        replaced.extend_from_slice(&edit.new);
        from = at + edit.old.len();
    }
    replaced.extend_from_slice(content.get(from..).unwrap_or_default());
    Ok((replaced, count))
}

/// A temporary file next to its target; removed on drop unless it was installed.
struct StagedFile {
    target: ResolvedPath,
    /// The name of the temporary file until it is installed.
    name: Option<OsString>,
    file: File,
    hash: Sha256,
    length: u64,
}

impl StagedFile {
    fn create(target: ResolvedPath) -> Result<Self, FileError> {
        if target.metadata()?.is_some_and(|found| !found.is_file()) {
            return Err(FileError::NotRegular);
        }
        // The content may be private: the file gets its final mode just before the rename.
        let (name, file) = create_file(&target, Mode::from_raw_mode(0o600))?;
        Ok(Self { target, name: Some(name), file, hash: Sha256::new(), length: 0 })
    }

    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        self.hash.update(data);
        self.length += data.len() as u64;
        self.file.write_all(data)
    }

    /// Installs the file if it is complete and the precondition holds.
    fn commit(mut self, length: u64, precondition: Precondition) -> Result<WriteResult, FileError> {
        if self.length != length {
            return Err(FileError::Incomplete);
        }
        let _committing = COMMIT_LOCK.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.target.metadata()?;
        match (precondition, &before) {
            (Precondition::Absent, Some(_)) => return Err(FileError::AlreadyExists),
            (Precondition::Content(_), None) => return Err(FileError::ContentChanged),
            (Precondition::Content(digest), Some(_)) if file_digest(&self.target)? != digest => {
                return Err(FileError::ContentChanged);
            }
            _ => {}
        }
        self.install(before.as_ref())?;
        Ok(WriteResult {
            path: ByteBuf::from(self.target.real_path.as_os_str().as_bytes()),
            length,
            digest: ContentDigest(self.hash.clone().finalize().into()),
            effect: before.map_or(WriteEffect::Created, |_| WriteEffect::Replaced),
        })
    }

    /// Copies owner and mode of the old file, or sets the mode of any new file, then renames the
    /// new file over the target.
    fn install(&mut self, before: Option<&fs::Metadata>) -> io::Result<()> {
        let mode = if let Some(before) = before {
            let now = self.file.metadata()?;
            if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
                std::os::unix::fs::fchown(&self.file, Some(before.uid()), Some(before.gid()))?;
            }
            before.mode() & 0o7777
        } else {
            default_mode(&self.target)?
        };
        // After `fchown`, which clears the set-user-ID bits.
        self.file.set_permissions(fs::Permissions::from_mode(mode))?;
        let (dir, name) = (&self.target.dir, self.name.as_deref().unwrap_or_default());
        rustix::fs::renameat(dir, name, dir, &self.target.name)?;
        // From here on the name may belong to another file.
        self.name = None;
        Ok(())
    }
}

/// Creates an empty file next to the target, with a temporary name.
fn create_file(target: &ResolvedPath, mode: Mode) -> io::Result<(OsString, File)> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let mut number = 0;
    loop {
        let name = staged_name(&target.name, number);
        match rustix::fs::openat(&target.dir, &name, flags, mode) {
            Ok(file) => return Ok((name, file.into())),
            Err(Errno::EXIST) if number < 1000 => number += 1,
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// The mode that any program's new file gets there. It depends on the umask or a default ACL, so
/// the kernel is asked with an empty file.
fn default_mode(target: &ResolvedPath) -> io::Result<u32> {
    let (name, file) = create_file(target, Mode::from_raw_mode(0o666))?;
    let mode = file.metadata().map(|meta| meta.mode() & 0o7777);
    rustix::fs::unlinkat(&target.dir, &name, AtFlags::empty())?;
    mode
}

impl Drop for StagedFile {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // Nothing can be done about an error here.
            rustix::fs::unlinkat(&self.target.dir, name, AtFlags::empty()).ok();
        }
    }
}

fn file_digest(resolved: &ResolvedPath) -> Result<ContentDigest, FileError> {
    let mut hash = Sha256::new();
    read::each_chunk(&mut read::open_regular(resolved)?.0, |chunk| {
        hash.update(chunk);
        Ok(())
    })?;
    Ok(ContentDigest(hash.finalize().into()))
}

fn staged_name(target: &OsStr, number: u32) -> OsString {
    let mut name = b".".to_vec();
    // File names are limited to 255 bytes.
    name.extend(target.as_bytes().iter().take(200));
    name.extend_from_slice(format!(".{}-{number}.new", std::process::id()).as_bytes());
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use hermes_guest::protocol::file::ParentDirs;

    use super::*;
    use crate::files::resolve::FinalLink;

    #[test]
    fn a_symlink_that_appears_during_a_write_is_neither_followed_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::write(top.join("other"), "other").unwrap();
        let path = top.join("file");
        let path = path.as_os_str().as_bytes();
        let resolved = ResolvedPath::resolve(path, path, FinalLink::Follow, ParentDirs::Require).unwrap();
        let mut staged = StagedFile::create(resolved).unwrap();
        staged.append(b"new").unwrap();
        symlink("other", top.join("file")).unwrap();
        let real = ByteBuf::from(top.join("other").as_os_str().as_bytes());
        assert_eq!(staged.commit(3, Precondition::Anything), Err(FileError::ResolvesElsewhere { real }));
        assert_eq!(std::fs::read(top.join("other")).unwrap(), b"other");
        assert!(top.join("file").is_symlink());
        assert_eq!(std::fs::read_dir(&top).unwrap().count(), 2, "the draft is gone");
    }
}
