//! The state of a shell session that changes the meaning of a command.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The shell that runs a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ShellKind {
    #[default]
    Bash,
    /// A POSIX shell such as dash or the one of BusyBox.
    Sh,
}

/// The session state by which the gate reads a command. The environment runs the command only while
/// its state still has this digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShellContext {
    pub shell: ShellKind,
    /// The texts of aliases by name.
    pub aliases: BTreeMap<String, String>,
    /// The definitions of functions by name, as bash prints them.
    pub functions: BTreeMap<String, String>,
    /// Variables that change what a command means, such as `HOME` and `CDPATH`, with the values that
    /// differ from those of a new session.
    pub variables: BTreeMap<String, String>,
    /// Identifies this state in its environment; empty if there is no session.
    pub digest: String,
}

impl ShellContext {
    /// A new session of bash.
    pub const fn new() -> Self {
        Self {
            shell: ShellKind::Bash,
            aliases: BTreeMap::new(),
            functions: BTreeMap::new(),
            variables: BTreeMap::new(),
            digest: String::new(),
        }
    }
}
