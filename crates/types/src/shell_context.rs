//! The state of a shell session that changes the meaning of a command.

use std::collections::{BTreeMap, BTreeSet};

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

/// Exported variables that change what a later command means or runs. `IFS` is not among them,
/// because no shell takes it from its environment.
pub const MEANING_VARIABLES: &[&str] = &[
    "BASH_COMPAT", "BASH_ENV", "BROWSER", "CDPATH", "DOCKER_CONTEXT", "DOCKER_HOST", "EDITOR", "ENV",
    "EXECIGNORE", "GIT_ASKPASS", "GIT_CONFIG_COUNT", "GIT_CONFIG_GLOBAL", "GIT_DIR", "GIT_EDITOR",
    "GIT_EXTERNAL_DIFF", "GIT_PAGER", "GIT_PROXY_COMMAND", "GIT_SEQUENCE_EDITOR", "GIT_SSH",
    "GIT_SSH_COMMAND", "GIT_WORK_TREE", "GLOBIGNORE", "HERMES_HOME", "HOME", "LD_AUDIT", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "LESSCLOSE", "LESSOPEN", "MANPAGER", "NODE_OPTIONS", "OLDPWD", "PAGER", "PATH", "PERL5OPT",
    "POSIXLY_CORRECT", "PROMPT_COMMAND", "PS4", "PYTHONPATH", "PYTHONSTARTUP", "RSYNC_RSH", "RUBYOPT",
    "SSH_ASKPASS", "SUDO_ASKPASS", "VISUAL", "XDG_CONFIG_HOME",
];

/// The session state by which the gate reads a command. The environment runs the command only while
/// its state still has this digest.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct ShellContext {
    pub shell: ShellKind,
    /// The texts of aliases by name. A text that is too long to report is `(`, which is not valid,
    /// here and in `functions`.
    pub aliases: BTreeMap<String, String>,
    /// The definitions of functions by name, as bash prints them.
    pub functions: BTreeMap<String, String>,
    /// Those of [`MEANING_VARIABLES`] whose values differ from those of a new session, empty for one
    /// that was unset, and other exported variables whose values are paths.
    pub variables: BTreeMap<String, String>,
    /// The names of other exported variables whose values differ from those of a new session. Their
    /// values may be secret, so they are not reported. [`Self::ANY_NAME`] stands for any name.
    pub exported: BTreeSet<String>,
    /// Identifies this state; empty for that of a new session of bash.
    pub digest: String,
}

impl ShellContext {
    /// The name that stands for any name, if there are too many to report.
    pub const ANY_NAME: &str = "*";

    /// A new session of bash.
    pub const fn new() -> Self {
        Self {
            shell: ShellKind::Bash,
            aliases: BTreeMap::new(),
            functions: BTreeMap::new(),
            variables: BTreeMap::new(),
            exported: BTreeSet::new(),
            digest: String::new(),
        }
    }
}
