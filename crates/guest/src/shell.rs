//! Shell sessions: state that one command leaves for the next.
//!
//! Every command is a new shell. It first reads a script from a memory file of the guest that
//! restores the session's state; at its exit, a trap writes the new state to a second memory file.
//! The shell opens both through `/proc` only while it needs them, so commands never inherit these
//! descriptors, and nothing is on disk.

pub(crate) mod dump;
pub(crate) mod script;
pub(crate) mod state;
mod unquote;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use rustix::fs::Access;

const STANDARD_DIRS: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// The path of the shell that runs commands, and the state it can keep.
pub(crate) enum Shell {
    /// Directory, exports, functions and aliases.
    Bash(Vec<u8>),
    /// Directory and exports.
    Sh(Vec<u8>),
}

/// Finds a shell: bash before sh, standard directories before the `PATH` of the session.
pub(crate) fn find_shell(search_path: Option<&[u8]>) -> Option<Shell> {
    let find = |name: &str| {
        let standard =
            STANDARD_DIRS.iter().map(|dir| Path::new(dir).join(name)).find(|path| is_executable(path));
        let found = standard.or_else(|| find_program(name, search_path))?;
        Some(found.into_os_string().into_vec())
    };
    find("bash").map(Shell::Bash).or_else(|| find("sh").map(Shell::Sh))
}

/// Finds a program in a `PATH`.
pub(crate) fn find_program(name: &str, search_path: Option<&[u8]>) -> Option<PathBuf> {
    let dirs =
        search_path.unwrap_or_default().split(|byte| *byte == b':').filter(|dir| dir.starts_with(b"/"));
    dirs.map(|dir| Path::new(OsStr::from_bytes(dir)).join(name)).find(|path| is_executable(path))
}

pub(crate) fn is_executable(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}
