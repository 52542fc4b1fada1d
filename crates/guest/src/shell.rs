//! Shell sessions: what one command leaves for the next.
//!
//! Every command is a fresh shell. Before it runs, the shell reads a script from a memory file of the guest that
//! sets up what the session knows; when it exits, a trap writes what it knows then to a second memory file. Both
//! are opened by the shell itself through `/proc`, only for the moment they are needed, so no descriptor of ours
//! is ever inherited by what the command starts, and nothing is on disk.

pub(crate) mod dump;
pub(crate) mod script;
pub(crate) mod state;
mod word;

use std::ffi::OsStr;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use hermes_guest::protocol::message::Shell;
use rustix::fs::Access;
use serde_bytes::ByteBuf;

const USUAL_PLACES: [&str; 3] = ["/bin", "/usr/bin", "/usr/local/bin"];

/// The best shell there is: bash before sh, the usual places before the `PATH` of the session.
pub(crate) fn find(search_path: Option<&[u8]>) -> Option<Shell> {
    let find = |name: &str| {
        let usual = USUAL_PLACES.iter().map(|dir| Path::new(dir).join(name)).find(|path| runs(path));
        let found = usual.or_else(|| find_program(name, search_path))?;
        Some(ByteBuf::from(found.into_os_string().into_vec()))
    };
    find("bash").map(Shell::Bash).or_else(|| find("sh").map(Shell::Sh))
}

/// The first program of this name in a `PATH`.
pub(crate) fn find_program(name: &str, search_path: Option<&[u8]>) -> Option<PathBuf> {
    let dirs =
        search_path.unwrap_or_default().split(|byte| *byte == b':').filter(|dir| dir.starts_with(b"/"));
    dirs.map(|dir| Path::new(OsStr::from_bytes(dir)).join(name)).find(|path| runs(path))
}

pub(crate) fn runs(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, Access::EXEC_OK).is_ok()
}
