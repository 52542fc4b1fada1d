//! Writes files: to a new file beside the old one, which then takes its place.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::sync::{Mutex, PoisonError};

use hermes_guest::protocol::file::{
    Before, Content, Digest, Edit, Expect, FileFault, FileReply, Occurrences, Written,
};
use hermes_guest::protocol::frame::{FrameError, Reader, Writer};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Fault, Measured, Reply};
use hermes_guest::protocol::mux::Stream;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use super::place::{self, Spot};
use super::{Failure, Out, fault_of, read};

/// Held between looking at a file and replacing it, so that of two writers who expect the same one fails.
static COMMIT: Mutex<()> = Mutex::new(());

/// Takes a file's content from the client, puts it into its place and says how that went.
pub(super) async fn receive(
    spot: Result<Spot, Fault>,
    expect: Expect,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    let mut draft = match spot.and_then(|spot| Draft::begin(spot).map_err(Fault::from)) {
        Ok(draft) => draft,
        Err(fault) => return refuse(fault, reader, writer).await,
    };
    while let Some(content) = reader.receive::<Content>().await? {
        match content {
            Content::Data(data) => {
                if let Err(error) = draft.add(&data) {
                    drop(draft);
                    return refuse(fault_of(&error).into(), reader, writer).await;
                }
            }
            Content::End { length } => {
                let committed = tokio::task::spawn_blocking(move || draft.commit(length, expect)).await;
                let reply = match committed.unwrap_or(Err(FileFault::Incomplete)) {
                    Ok(written) => Reply::File(FileReply::Written(written)),
                    Err(fault) => Reply::Failed(fault.into()),
                };
                return writer.send(&reply).await;
            }
        }
    }
    // The client left in the middle; the draft goes with it.
    Ok(())
}

/// Says at once what is wrong, so that nobody sends the rest for nothing, and takes what is on the way.
async fn refuse(
    fault: Fault,
    reader: &mut Reader<Stream>,
    writer: &mut Writer<Stream>,
) -> Result<(), FrameError> {
    writer.send(&Reply::Failed(fault)).await?;
    while let Some(Content::Data(_)) = reader.receive().await? {}
    Ok(())
}

/// Makes all edits to a file, or none.
pub(super) fn patch(spot: Spot, edits: &[Edit], out: &Out) -> Result<(), Failure> {
    let (mut file, found) = read::open_regular(&spot)?;
    if found.len() > limit::PATCH {
        return Err(Failure::Fault(Fault::TooLarge { what: Measured::File, limit: limit::PATCH }));
    }
    let mut content = Vec::new();
    read::each_chunk(&mut file, |chunk| {
        content.extend_from_slice(chunk);
        Ok(())
    })?;
    let seen = Digest(Sha256::digest(&content).into());
    let mut counts = Vec::new();
    for (number, edit) in (0..).zip(edits) {
        let count;
        (content, count) = replace(&content, edit, number)?;
        counts.push(count);
    }
    let mut draft = Draft::begin(spot)?;
    draft.add(&content)?;
    let written = draft.commit(content.len() as u64, Expect::Content(seen))?;
    out.send(FileReply::Patched { counts, written })
}

fn replace(content: &[u8], edit: &Edit, number: u32) -> Result<(Vec<u8>, u64), FileFault> {
    if edit.old.is_empty() {
        return Err(FileFault::NoMatch { edit: number });
    }
    let found: Vec<usize> = memchr::memmem::find_iter(content, edit.old.as_slice()).collect();
    let count = found.len() as u64;
    match (count, edit.occurrences) {
        (0, _) => return Err(FileFault::NoMatch { edit: number }),
        (2.., Occurrences::One) => return Err(FileFault::Ambiguous { edit: number, count }),
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

/// A file that is not yet in its place. Dropped, it was never there.
struct Draft {
    target: Spot,
    /// Its name, in the same directory, as long as it has that name.
    name: Option<OsString>,
    file: File,
    hash: Sha256,
    length: u64,
}

impl Draft {
    fn begin(target: Spot) -> Result<Self, FileFault> {
        if target.look()?.is_some_and(|found| !found.is_file()) {
            return Err(FileFault::NotRegular);
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
        let mut number = 0;
        loop {
            let name = draft_name(target.name(), number);
            // The mode is what the umask makes of it, as for any new file.
            match rustix::fs::openat(target.dir(), &name, flags, Mode::from_raw_mode(0o666)) {
                Ok(file) => {
                    let (name, file) = (Some(name), file.into());
                    return Ok(Self { target, name, file, hash: Sha256::new(), length: 0 });
                }
                Err(Errno::EXIST) if number < 1000 => number += 1,
                Err(errno) => return Err(place::fault(errno)),
            }
        }
    }

    fn add(&mut self, data: &[u8]) -> io::Result<()> {
        self.hash.update(data);
        self.length += data.len() as u64;
        self.file.write_all(data)
    }

    /// Puts the file into its place, if it is whole and what is there is what was expected.
    fn commit(mut self, length: u64, expect: Expect) -> Result<Written, FileFault> {
        if self.length != length {
            return Err(FileFault::Incomplete);
        }
        let _committing = COMMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = self.target.look()?;
        match (expect, &before) {
            (Expect::Absent, Some(_)) => return Err(FileFault::Present),
            (Expect::Content(_), None) => return Err(FileFault::Changed),
            (Expect::Content(digest), Some(_)) if digest_of(&self.target)? != digest => {
                return Err(FileFault::Changed);
            }
            _ => {}
        }
        self.place(before.as_ref()).map_err(|error| fault_of(&error))?;
        Ok(Written {
            path: ByteBuf::from(self.target.real().as_os_str().as_bytes()),
            length,
            digest: Digest(self.hash.clone().finalize().into()),
            before: before.map_or(Before::Nothing, |_| Before::File),
        })
    }

    /// Gives the new file owner and mode of the old one, and then its name.
    fn place(&mut self, before: Option<&fs::Metadata>) -> io::Result<()> {
        if let Some(before) = before {
            let now = self.file.metadata()?;
            if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
                std::os::unix::fs::fchown(&self.file, Some(before.uid()), Some(before.gid()))?;
            }
            // After the owner: a change of owner takes special bits away.
            self.file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
        }
        let (dir, name) = (self.target.dir(), self.name.as_deref().unwrap_or_default());
        rustix::fs::renameat(dir, name, dir, self.target.name())?;
        // From here on that name may be somebody else's.
        self.name = None;
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(name) = &self.name {
            // There is nobody to tell.
            rustix::fs::unlinkat(self.target.dir(), name, AtFlags::empty()).ok();
        }
    }
}

fn digest_of(spot: &Spot) -> Result<Digest, FileFault> {
    let mut hash = Sha256::new();
    let hashed = read::open_regular(spot).and_then(|(mut file, _)| {
        read::each_chunk(&mut file, |chunk| {
            hash.update(chunk);
            Ok(())
        })
    });
    match hashed {
        Ok(()) => Ok(Digest(hash.finalize().into())),
        Err(Failure::Fault(Fault::File(fault))) => Err(fault),
        Err(_) => Err(FileFault::Changed),
    }
}

fn draft_name(target: &OsStr, number: u32) -> OsString {
    let mut name = b".".to_vec();
    // A name has room for 255 bytes.
    name.extend(target.as_bytes().iter().take(200));
    name.extend_from_slice(format!(".{}-{number}.new", std::process::id()).as_bytes());
    OsString::from_vec(name)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use hermes_guest::protocol::file::Parents;

    use super::*;
    use crate::files::place::Last;

    #[test]
    fn a_link_that_appears_while_a_file_is_written_is_neither_followed_nor_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let top = folder.path().canonicalize().unwrap();
        std::fs::write(top.join("other"), "other").unwrap();
        let path = top.join("file");
        let path = path.as_os_str().as_bytes();
        let spot = Spot::find(path, path, Last::Follow, Parents::Require).unwrap();
        let mut draft = Draft::begin(spot).unwrap();
        draft.add(b"new").unwrap();
        symlink("other", top.join("file")).unwrap();
        let real = ByteBuf::from(top.join("other").as_os_str().as_bytes());
        assert_eq!(draft.commit(3, Expect::Anything), Err(FileFault::Elsewhere { real }));
        assert_eq!(std::fs::read(top.join("other")).unwrap(), b"other");
        assert!(top.join("file").is_symlink());
        assert_eq!(std::fs::read_dir(&top).unwrap().count(), 2, "the draft is gone");
    }
}
