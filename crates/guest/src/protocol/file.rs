//! Messages about files. Paths are those of the environment.

use std::io;

use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

use super::limit;
use super::message::ShellSessionKey;

/// A path, relative to the directory of a session; a leading `~` is the session's `HOME`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedPath {
    /// Required unless the path is absolute.
    pub session: Option<ShellSessionKey>,
    pub path: ByteBuf,
    /// The absolute path without symbolic links that the gate judged. The guest does nothing if
    /// `path` leads elsewhere.
    pub resolved: ByteBuf,
}

/// Requests about one file or directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Reads part of a file. Replies with [`FileReply::Data`] messages, then
    /// [`FileReply::ReadDone`].
    Read(FileRange),
    /// Applies all edits to a file, or none.
    Patch(Vec<FileEdit>),
    /// Describes a file. A final symbolic link is not followed.
    Stat,
    List,
    Search(Box<FileSearch>),
    /// Removes a file, an empty directory, or a symbolic link itself.
    Remove,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRange {
    Whole,
    /// At most `length` bytes from `offset` on.
    Bytes {
        offset: u64,
        length: u64,
    },
    /// At most `count` lines from line `first` on, counted from 1.
    Lines {
        first: u64,
        count: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteOptions {
    /// If it does not hold, the file does not change.
    pub precondition: Precondition,
    pub parents: ParentDirs,
}

/// The required state of a file before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Precondition {
    Anything,
    Absent,
    Content(ContentDigest),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContentDigest(pub [u8; 32]);

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ParentDirs {
    Create,
    Require,
}

/// Follows a request to write a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteChunk {
    Data(ByteBuf),
    /// End of the content. Without this message the file does not change.
    End {
        /// Compared with the received length.
        length: u64,
    },
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEdit {
    pub old: ByteBuf,
    pub new: ByteBuf,
    pub occurrences: Occurrences,
}

/// How often the replaced text may occur.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrences {
    /// Exactly once.
    One,
    /// At least once; all occurrences are replaced.
    All,
}

/// A search of files that are neither hidden nor ignored by git.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSearch {
    pub target: SearchMode,
    /// Searches only files whose relative path or name matches one of these globs.
    pub globs: Vec<String>,
    /// Hits to skip.
    pub offset: u64,
    pub limit: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchMode {
    /// Lines that match a regular expression.
    Lines { pattern: String, context: u16 },
    /// Files with a matching line.
    Files { pattern: String },
    /// Files by name.
    Names,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    Data(ByteBuf),
    ReadDone(ReadSummary),
    Written(WriteResult),
    /// Reply to [`FileRequest::Patch`].
    Patched {
        /// Replacements made by each edit.
        counts: Vec<u64>,
        written: WriteResult,
    },
    Stat(FileStat),
    DirEntries(Vec<DirEntry>),
    ListDone {
        /// Number of entries, including those beyond the page.
        total: u64,
    },
    Hits(Vec<SearchHit>),
    SearchDone(SearchSummary),
    Removed,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadSummary {
    pub stat: FileStat,
    /// Set if the whole file was read.
    pub whole: Option<FileSummary>,
}

/// Facts about a file that was read completely.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileSummary {
    /// Includes a last line without a line end.
    pub lines: u64,
    pub digest: ContentDigest,
}

/// The result of a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WriteResult {
    /// The target, with symbolic links resolved.
    pub path: ByteBuf,
    pub length: u64,
    pub digest: ContentDigest,
    pub effect: WriteEffect,
}

/// Whether a write replaced an existing file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum WriteEffect {
    Replaced,
    Created,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStat {
    pub kind: FileKind,
    pub size: u64,
    pub mode: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileKind {
    File,
    Directory,
    Link,
    Other,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirEntry {
    pub name: ByteBuf,
    /// Of the entry itself; symbolic links are not followed.
    pub stat: FileStat,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum SearchHit {
    /// A matching line, or a context line.
    Line {
        /// Relative to the root of the search.
        path: ByteBuf,
        /// Counted from 1.
        number: u64,
        /// Without line end, truncated.
        text: ByteBuf,
        role: LineRole,
    },
    File {
        /// Relative to the root of the search.
        path: ByteBuf,
        /// Matching lines; 0 in a search by name.
        lines: u64,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum LineRole {
    Match,
    Context,
}

/// Totals of a search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchSummary {
    /// Includes hits beyond the page.
    pub hits: u64,
    /// Files with at least one hit.
    pub files: u64,
    pub unreadable: u64,
    /// Skipped binary files.
    pub binary: u64,
}

/// Why a file request failed. The file did not change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum FileError {
    /// A relative path without a session, or `~` without `HOME`.
    #[error("the path is not absolute")]
    NotAbsolute,
    /// The path does not lead to the path that the gate judged.
    #[error("the path resolves to {}", String::from_utf8_lossy(real))]
    ResolvesElsewhere {
        /// The absolute path without symbolic links.
        real: ByteBuf,
    },
    /// A directory, device, pipe or socket where a regular file is required.
    #[error("not a regular file")]
    NotRegular,
    #[error("the file is too large (at most {} bytes)", limit::MAX_PATCH_FILE_BYTES)]
    TooLarge,
    #[error("the file already exists")]
    AlreadyExists,
    #[error("the file has changed")]
    ContentChanged,
    /// The received length differs from the announced one.
    #[error("the content is incomplete")]
    Incomplete,
    #[error("edit {edit}: the text to replace is not in the file")]
    NoMatch {
        /// Index of the edit, from 0.
        edit: u32,
    },
    #[error("edit {edit}: the text to replace occurs {count} times")]
    Ambiguous {
        /// Index of the edit, from 0.
        edit: u32,
        count: u64,
    },
    /// Invalid regular expression or glob.
    #[error("{message}")]
    BadPattern { message: String },
    #[error("{}", io::Error::from_raw_os_error(*errno))]
    Os { errno: i32 },
}

impl From<Errno> for FileError {
    fn from(errno: Errno) -> Self {
        Self::Os { errno: errno.raw_os_error() }
    }
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        Errno::from_io_error(&error).unwrap_or(Errno::IO).into()
    }
}
