//! What the guard keeps from commands on the owner's machine.

use hermes_types::ProtectedClass;
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

/// The directory, next to the guest's socket, of files that commands may see: large outputs and the
/// files of Python programs.
pub const WORK_DIR: &str = "work";

/// The protected paths of a session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardSpec {
    /// A hidden directory that exists.
    pub cover: ByteBuf,
    /// Parents come before what is below them.
    pub entries: Vec<GuardEntry>,
    /// Directories that cannot be renamed or removed, because protected paths are below them.
    pub pinned: Vec<ByteBuf>,
    /// Directories that stay visible although they are below hidden ones.
    pub shown: Vec<ShownDir>,
    /// If set, everything else is read-only.
    pub writable: Option<Vec<ByteBuf>>,
    /// The directory to which protected files are moved that a command created.
    pub quarantine: ByteBuf,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownDir {
    pub path: ByteBuf,
    pub is_writable: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuardEntry {
    /// Absolute; it need not exist.
    pub path: ByteBuf,
    /// Commands that may use this class see the path as it is. Without a class, none does.
    pub class: Option<ProtectedClass>,
    pub kind: GuardKind,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum GuardKind {
    /// Empty and read-only.
    Hidden,
    ReadOnly,
}

/// Whether the guard applies to a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum RunConfinement {
    None,
    /// All of it except these classes, in ascending order.
    Guard(Vec<ProtectedClass>),
}

/// The guard of a session.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub enum GuardState {
    #[default]
    Off,
    Active,
    /// The kernel does not allow it, with the reason.
    Unavailable(String),
}
