//! The part of the vocabulary that concerns files. Paths mean what they mean inside the place.

use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use thiserror::Error;

use super::message::SessionKey;

/// A path, and the session whose directory it is relative to and whose `HOME` a leading `~` stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// Without one, the path must be absolute.
    pub session: Option<SessionKey>,
    /// The path.
    pub path: ByteBuf,
    /// The absolute path without symbolic links that it was judged by. If it leads to another one, nothing is done.
    pub judged: ByteBuf,
}

/// What can be done with files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileRequest {
    /// Reads a part of a file; [`FileReply::Data`] messages, then [`FileReply::Read`].
    Read(Place, Part),
    /// Writes a file; [`Content`] messages follow, until the last one or until the guest says what is wrong.
    Write(Place, Write),
    /// Replaces text in a file. All edits or none are made.
    Patch(Place, Vec<Edit>),
    /// Describes a file. A symbolic link at the end of the path is described itself.
    Stat(Place),
    /// Lists a directory.
    List(Place),
    /// Searches files.
    Search(Place, Box<Search>),
    /// Removes a file, an empty directory, or a symbolic link itself.
    Remove(Place),
}

/// Which part of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Part {
    /// All of it.
    Whole,
    /// Bytes from `offset` on, at most `length`.
    Bytes {
        /// The first one.
        offset: u64,
        /// How many.
        length: u64,
    },
    /// Lines from number `first` (counted from 1) on, at most `count`.
    Lines {
        /// The first one.
        first: u64,
        /// How many.
        count: u64,
    },
}

/// How to write a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Write {
    /// What must be there, or the file stays as it is.
    pub expect: Expect,
    /// What to do about missing directories above it.
    pub parents: Parents,
}

/// What must be there before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expect {
    /// Anything or nothing.
    Anything,
    /// Nothing.
    Absent,
    /// A file with this content.
    Content(Digest),
}

/// A SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Digest(pub [u8; 32]);

/// What to do about missing directories.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Parents {
    /// Make them.
    Create,
    /// Fail.
    Require,
}

/// What follows a [`FileRequest::Write`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// More bytes.
    Data(ByteBuf),
    /// That was all: so many bytes. Without this message the file stays as it is.
    End {
        /// For comparison with what arrived.
        length: u64,
    },
}

/// One replacement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Edit {
    /// What is there.
    pub old: ByteBuf,
    /// What is to be there.
    pub new: ByteBuf,
    /// How often it may be there.
    pub occurrences: Occurrences,
}

/// How often a text may occur that is to be replaced.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Occurrences {
    /// Once; more are refused.
    One,
    /// At least once; all are replaced.
    All,
}

/// What to look for, and how much of it to report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Search {
    /// What counts as a hit.
    pub target: Target,
    /// Only files whose path below the root, or whose name, matches one of these globs.
    pub globs: Vec<String>,
    /// Whether files that git ignores, and hidden ones, are looked at.
    pub scope: Scope,
    /// Hits to leave out at the beginning.
    pub offset: u64,
    /// Hits to report.
    pub limit: u32,
}

/// What counts as a hit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// A line that matches a regular expression.
    Lines {
        /// The expression.
        pattern: String,
        /// Lines of context before and after each hit.
        context: u16,
    },
    /// A file with such a line.
    Files {
        /// The expression.
        pattern: String,
    },
    /// A file by its name.
    Names,
}

/// Which files are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Scope {
    /// Neither hidden files nor those that git ignores.
    Tracked,
    /// All files.
    All,
}

/// What the guest answers about files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum FileReply {
    /// Some bytes.
    Data(ByteBuf),
    /// The end of a [`FileRequest::Read`].
    Read(ReadEnd),
    /// To [`FileRequest::Write`].
    Written(Written),
    /// To [`FileRequest::Patch`]: how many replacements each edit made.
    Patched {
        /// In the order of the edits.
        counts: Vec<u64>,
        /// What is there now.
        written: Written,
    },
    /// To [`FileRequest::Stat`].
    Stat(Stat),
    /// To [`FileRequest::List`]: part of the entries.
    Entries(Vec<Entry>),
    /// The end of a listing.
    Listed {
        /// How many entries there are, listed or not.
        total: u64,
    },
    /// Part of the hits of a search.
    Hits(Vec<Hit>),
    /// The end of a search.
    Searched(Found),
    /// To [`FileRequest::Remove`].
    Removed,
}

/// The end of a read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadEnd {
    /// The file.
    pub stat: Stat,
    /// Lines in the whole file, and its digest, if it was read to its end from its beginning. A last line
    /// without a line end counts; a line end at the end does not begin another line.
    pub whole: Option<Whole>,
}

/// What is known of a file that was read as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Whole {
    /// Its lines.
    pub lines: u64,
    /// Its digest.
    pub digest: Digest,
}

/// What was written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Written {
    /// Where, with symbolic links resolved.
    pub path: ByteBuf,
    /// How many bytes.
    pub length: u64,
    /// Their digest.
    pub digest: Digest,
    /// Whether a file was there before.
    pub before: Before,
}

/// Whether a file was there before it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Before {
    /// It was.
    File,
    /// It was not.
    Nothing,
}

/// A file, described.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// What it is.
    pub kind: Kind,
    /// Its size in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// Its owner.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// When it was last changed, in nanoseconds since 1970.
    pub modified: i64,
    /// Where it points, if it is a symbolic link.
    pub target: Option<ByteBuf>,
}

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device, pipe or socket.
    Other,
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// Its name.
    pub name: ByteBuf,
    /// The entry itself, a link not followed.
    pub stat: Stat,
}

/// One hit of a search.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hit {
    /// A line that matches, or one beside it.
    Line {
        /// The file, below the root of the search.
        path: ByteBuf,
        /// The line's number, from 1.
        number: u64,
        /// The line without its end, cut at a limit.
        text: ByteBuf,
        /// Whether it matches or stands beside one that does.
        role: Role,
    },
    /// A file.
    File {
        /// Below the root of the search.
        path: ByteBuf,
        /// Matching lines in it; 0 when only names were looked at.
        lines: u64,
    },
}

/// Why a line is reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// It matches.
    Match,
    /// It stands beside one that does.
    Context,
}

/// What a search found in all.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// Hits, reported or not.
    pub hits: u64,
    /// Files with a hit.
    pub files: u64,
    /// Files that could not be read.
    pub unreadable: u64,
    /// Binary files left out.
    pub binary: u64,
}

/// Why something could not be done with a file. The file is as it was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum FileFault {
    /// A relative path without a session, or a `~` without a `HOME`.
    #[error("the path is not absolute")]
    NotAbsolute,
    /// The path leads to another place than the one it was judged by.
    #[error("the path leads to {}", String::from_utf8_lossy(real))]
    Elsewhere {
        /// The absolute path without symbolic links.
        real: ByteBuf,
    },
    /// A directory, device, pipe or socket where a regular file is wanted.
    #[error("not a regular file")]
    NotRegular,
    /// There is a file where there should be none.
    #[error("the file is already there")]
    Present,
    /// The content is not the one that was expected.
    #[error("the file was changed meanwhile")]
    Changed,
    /// Fewer or more bytes arrived than were announced.
    #[error("the content arrived incomplete")]
    Incomplete,
    /// An edit found nothing to replace.
    #[error("edit {edit}: the text to replace is not in the file")]
    NoMatch {
        /// Which edit, from 0.
        edit: u32,
    },
    /// An edit found more than one place.
    #[error("edit {edit}: the text to replace is in the file {count} times")]
    Ambiguous {
        /// Which edit, from 0.
        edit: u32,
        /// How often it was found.
        count: u64,
    },
    /// The expression or glob cannot be read.
    #[error("{message}")]
    BadPattern {
        /// What is wrong with it.
        message: String,
    },
    /// The system said no.
    #[error("{}", std::io::Error::from_raw_os_error(*errno))]
    Os {
        /// The error number of Linux.
        errno: i32,
    },
}
