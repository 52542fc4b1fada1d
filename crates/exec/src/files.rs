//! File access in a place without running a command.
//!
//! The gate judges a file by the requested path and by the path it resolves to, but only the place
//! knows its symbolic links. The caller assumes there are none ([`resolve_lexically`]) and sends
//! that path along. If the guest resolves the path differently it does nothing and returns
//! [`Error::PathElsewhere`]; the caller then asks the gate again. So a path without links takes a
//! single round trip.
//!
//! The gate judges text. A path that resolves to a name that is not UTF-8 is not touched; such
//! names are still listed and found.

use hermes_guest::client::{Client, FileReader};
pub use hermes_guest::client::{FileChunk, ResultPage};
use hermes_guest::protocol::file::JudgedPath;
pub use hermes_guest::protocol::file::{
    ContentDigest, DirEntry, FileEdit, FileError, FileKind, FileRange, FileSearch, FileStat, FileSummary,
    LineRole, Occurrences, ParentDirs, Precondition, ReadSummary, SearchHit, SearchMode, SearchSummary,
    WriteEffect, WriteOptions, WriteResult,
};
use hermes_guest::protocol::limit;
use hermes_guest::protocol::message::ShellSessionKey as GuestSession;
use hermes_policy::Permit;
use hermes_types::{FileAccess, PlaceId, SessionKey, Work};
use serde_bytes::ByteBuf;
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::Error;

#[derive(Debug)]
pub struct GuestFiles {
    pub(crate) client: Client,
    pub(crate) place: PlaceId,
    pub(crate) session: SessionKey,
    pub(crate) guest_session: GuestSession,
}

impl GuestFiles {
    pub async fn read(&self, permit: Permit, part: FileRange) -> Result<PlaceFileReader, Error> {
        let mut reader = self.client.read_file(self.redeem(permit, FileAccess::Read)?, part).await?;
        // Errors arrive with the first piece.
        let first = reader.next_chunk().await?;
        Ok(PlaceFileReader { reader, first: Some(first) })
    }

    /// Writes the whole content, or nothing. A refusal may arrive before all content is read, so a
    /// retry needs fresh content.
    pub async fn write(
        &self,
        permit: Permit,
        content: &mut (impl AsyncRead + Unpin),
        how: WriteOptions,
    ) -> Result<WriteResult, Error> {
        let mut writer = self.client.write_file(self.redeem(permit, FileAccess::Write)?, how).await?;
        let mut buffer = vec![0; limit::CHUNK_BYTES];
        loop {
            let count = content.read(&mut buffer).await.map_err(Error::ReadContent)?;
            if count == 0 {
                return Ok(writer.finish().await?);
            }
            writer.write(buffer.split_at(count).0).await?;
        }
    }

    /// Applies all edits to a file, or none. Returns the number of replacements for each edit.
    pub async fn patch(
        &self,
        permit: Permit,
        edits: Vec<FileEdit>,
    ) -> Result<(Vec<u64>, WriteResult), Error> {
        Ok(self.client.patch_file(self.redeem(permit, FileAccess::Write)?, edits).await?)
    }

    /// Describes a file. A symbolic link at the end of the path is not followed.
    pub async fn stat(&self, permit: Permit) -> Result<FileStat, Error> {
        Ok(self.client.stat_file(self.redeem(permit, FileAccess::Read)?).await?)
    }

    /// Lists a directory sorted by name, with the total number of entries.
    pub async fn list(&self, permit: Permit) -> Result<ResultPage<DirEntry, u64>, Error> {
        Ok(self.client.list_dir(self.redeem(permit, FileAccess::Read)?).await?)
    }

    pub async fn search(
        &self,
        permit: Permit,
        search: FileSearch,
    ) -> Result<ResultPage<SearchHit, SearchSummary>, Error> {
        Ok(self.client.search_files(self.redeem(permit, FileAccess::Read)?, search).await?)
    }

    /// Removes a file, an empty directory, or a symbolic link itself.
    pub async fn remove(&self, permit: Permit) -> Result<(), Error> {
        Ok(self.client.remove_file(self.redeem(permit, FileAccess::Delete)?).await?)
    }

    /// Checks that the permit is for this use of a file.
    fn redeem(&self, permit: Permit, access: FileAccess) -> Result<JudgedPath, Error> {
        match permit.redeem(&self.place, &self.session)?.work {
            Work::File(file) if file.access == access => Ok(JudgedPath {
                session: Some(self.guest_session.clone()),
                path: ByteBuf::from(file.path),
                resolved: ByteBuf::from(file.real),
            }),
            _ => Err(Error::WrongFileAccess(access)),
        }
    }
}

#[derive(Debug)]
pub struct PlaceFileReader {
    reader: FileReader,
    first: Option<FileChunk>,
}

impl PlaceFileReader {
    pub async fn next(&mut self) -> Result<FileChunk, Error> {
        match self.first.take() {
            Some(piece) => Ok(piece),
            None => Ok(self.reader.next_chunk().await?),
        }
    }

    /// Reads everything, up to a limit in bytes.
    pub async fn read_to_end(mut self, max_bytes: usize) -> Result<(Vec<u8>, ReadSummary), Error> {
        let mut all = Vec::new();
        loop {
            match self.next().await? {
                FileChunk::Data(data) if all.len() + data.len() > max_bytes => {
                    return Err(Error::TooLarge(max_bytes));
                }
                FileChunk::Data(data) => all.extend_from_slice(&data),
                FileChunk::End(end) => return Ok((all, end)),
            }
        }
    }
}

/// The absolute path if no component is a symbolic link. `~` is the home directory; a relative path
/// starts at the session's directory.
pub fn resolve_lexically(path: &str, cwd: &str, home: &str) -> String {
    let at_home = path.strip_prefix('~').filter(|rest| rest.is_empty() || rest.starts_with('/'));
    let (start, rest) = match at_home {
        Some(rest) => (home, rest),
        None if path.starts_with('/') => ("", path),
        None => (cwd, path),
    };
    let mut real = Vec::new();
    for part in start.split('/').chain(rest.split('/')) {
        match part {
            "" | "." => {}
            ".." => drop(real.pop()),
            part => real.push(part),
        }
    }
    format!("/{}", real.join("/"))
}

#[cfg(test)]
mod tests {
    use hermes_guest::client;
    use hermes_guest::protocol::message::Rejection;

    use super::*;

    #[test]
    fn a_resolved_path_is_accepted_only_if_it_can_be_judged() {
        let mapped = |real: &[u8]| {
            let real = ByteBuf::from(real);
            Error::from(client::Error::Rejected(Rejection::File(FileError::ResolvesElsewhere { real })))
        };
        assert!(matches!(mapped(b"/a"), Error::PathElsewhere(real) if real == "/a"));
        assert!(matches!(mapped(b"/\xff"), Error::PathNotUtf8));
        assert!(matches!(mapped(b""), Error::Guest(client::Error::Protocol(_))));
        assert!(matches!(mapped(b"a"), Error::Guest(client::Error::Protocol(_))));
    }

    #[test]
    fn a_path_without_links_is_resolved_lexically() {
        let cases = [
            ("/etc/hosts", "/etc/hosts"),
            ("a", "/work/dir/a"),
            ("./a/../b//c/.", "/work/dir/b/c"),
            ("../../../x", "/x"),
            ("", "/work/dir"),
            ("/", "/"),
            ("~", "/home/ada"),
            ("~/", "/home/ada"),
            ("~/.ssh/../x", "/home/ada/x"),
            ("~ada/x", "/work/dir/~ada/x"),
            ("a/~", "/work/dir/a/~"),
            ("/..", "/"),
            ("ä b\n", "/work/dir/ä b\n"),
        ];
        for (path, expected) in cases {
            assert_eq!(resolve_lexically(path, "/work/dir", "/home/ada/"), expected, "{path:?}");
        }
    }
}
