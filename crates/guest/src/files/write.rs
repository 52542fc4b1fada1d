//! Writes files: to a new file beside the old one, which then takes its place.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use hermes_guest::protocol::file::{
    Before, Content, Digest, Edit, Expect, FileFault, FileReply, Occurrences, Parents, Write, Written,
};
use hermes_guest::protocol::frame::{FrameError, Reader};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::{Fault, Measured};
use hermes_guest::protocol::mux::Stream;
use serde_bytes::ByteBuf;
use sha2::{Digest as _, Sha256};

use super::{Failure, Out, fault_of, read};

/// Held between looking at a file and replacing it, so that of two writers who expect the same one fails.
static COMMIT: Mutex<()> = Mutex::new(());

/// How many links lead on before we think that they lead nowhere.
const LINKS: usize = 40;

/// Takes a file's content from the client and puts it into its place.
pub(super) async fn receive(
    path: PathBuf,
    how: Write,
    reader: &mut Reader<Stream>,
) -> Result<Result<Written, FileFault>, FrameError> {
    let mut draft = match Draft::begin(&path, how.parents) {
        Ok(draft) => Ok(draft),
        Err(Failure::Fault(Fault::File(fault))) => Err(fault),
        Err(_) => Err(FileFault::Os { errno: libc::EIO }),
    };
    // Whatever is wrong, the content is read to its end, so that the client hears what it is.
    while let Some(content) = reader.receive::<Content>().await? {
        match content {
            Content::Data(data) => {
                if let Ok(open) = &mut draft
                    && let Err(error) = open.add(&data)
                {
                    draft = Err(fault_of(&error));
                }
            }
            Content::End { length } => {
                let commit = move || draft?.commit(length, how.expect);
                let committed = tokio::task::spawn_blocking(commit).await;
                return Ok(committed.unwrap_or(Err(FileFault::Incomplete)));
            }
        }
    }
    // The client left in the middle; the draft goes with it.
    Ok(Err(FileFault::Incomplete))
}

/// Makes all edits to a file, or none.
pub(super) fn patch(path: &Path, edits: &[Edit], out: &Out) -> Result<(), Failure> {
    let mut file = read::open_regular(path)?;
    if file.metadata()?.len() > limit::PATCH {
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
    let mut draft = Draft::begin(path, Parents::Require)?;
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
    target: PathBuf,
    draft: PathBuf,
    file: File,
    hash: Sha256,
    length: u64,
}

impl Draft {
    fn begin(path: &Path, parents: Parents) -> Result<Self, Failure> {
        let target = follow_links(path)?;
        let dir = target.parent().ok_or(FileFault::NotRegular)?;
        if parents == Parents::Create {
            fs::create_dir_all(dir)?;
        }
        if fs::metadata(&target).is_ok_and(|found| !found.is_file()) {
            return Err(FileFault::NotRegular.into());
        }
        let mut number = 0;
        loop {
            let draft = dir.join(draft_name(&target, number));
            // The mode is what the umask makes of it, as for any new file.
            let opened = fs::OpenOptions::new().write(true).create_new(true).mode(0o666).open(&draft);
            match opened {
                Ok(file) => return Ok(Self { target, draft, file, hash: Sha256::new(), length: 0 }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists && number < 1000 => number += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn add(&mut self, data: &[u8]) -> io::Result<()> {
        self.hash.update(data);
        self.length += data.len() as u64;
        self.file.write_all(data)
    }

    /// Puts the file into its place, if it is whole and what is there is what was expected.
    fn commit(self, length: u64, expect: Expect) -> Result<Written, FileFault> {
        if self.length != length {
            return Err(FileFault::Incomplete);
        }
        let _committing = COMMIT.lock().unwrap_or_else(PoisonError::into_inner);
        let before = match fs::metadata(&self.target) {
            Ok(found) => Some(found),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(fault_of(&error)),
        };
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
            path: ByteBuf::from(self.target.as_os_str().as_bytes()),
            length,
            digest: Digest(self.hash.clone().finalize().into()),
            before: before.map_or(Before::Nothing, |_| Before::File),
        })
    }

    /// Gives the new file owner and mode of the old one, and then its name.
    fn place(&self, before: Option<&fs::Metadata>) -> io::Result<()> {
        if let Some(before) = before {
            let now = self.file.metadata()?;
            if (now.uid(), now.gid()) != (before.uid(), before.gid()) {
                std::os::unix::fs::fchown(&self.file, Some(before.uid()), Some(before.gid()))?;
            }
            // After the owner: a change of owner takes special bits away.
            self.file.set_permissions(fs::Permissions::from_mode(before.mode() & 0o7777))?;
        }
        fs::rename(&self.draft, &self.target)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the commit it has another name.
        fs::remove_file(&self.draft).ok();
    }
}

fn digest_of(path: &Path) -> Result<Digest, FileFault> {
    let mut hash = Sha256::new();
    let hashed = read::open_regular(path).and_then(|mut file| {
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

fn draft_name(target: &Path, number: u32) -> OsString {
    let mut name = b".".to_vec();
    // A name has room for 255 bytes.
    name.extend(target.file_name().unwrap_or_default().as_bytes().iter().take(200));
    name.extend_from_slice(format!(".{}-{number}.new", std::process::id()).as_bytes());
    OsString::from_vec(name)
}

/// Where a path leads in the end, whether or not a file is there.
fn follow_links(path: &Path) -> Result<PathBuf, Failure> {
    let mut path = path.to_owned();
    for _ in 0..LINKS {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("/")).join(target),
            Err(_no_link) => return Ok(path),
        }
    }
    Err(FileFault::Os { errno: libc::ELOOP }.into())
}
