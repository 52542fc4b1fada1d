//! Work to run in an environment.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

use crate::ShellContext;

/// One piece of work, its working directory and its shell session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    pub work: Work,
    /// The absolute working directory inside the environment.
    pub cwd: String,
    /// The state of the session that runs it.
    #[serde(default)]
    pub shell: ShellContext,
    /// Whether the guard is configured but not available where it runs.
    #[serde(default)]
    pub lacks_guard: bool,
}

/// The text to run, by the program that interprets it, or a file access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A bash script.
    Shell(String),
    /// A Python program.
    Python(String),
    /// Text for the standard input of a running program, which may be a shell.
    Input(TypedInput),
    /// A file that a tool accesses without running a command.
    File(FileUse),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypedInput {
    /// The command that started the program.
    pub program: String,
    /// All earlier input of the program; `None` if that is too long to know.
    pub typed_before: Option<String>,
    pub text: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum FileAccess {
    Read,
    /// Creates, changes or replaces the file.
    Write,
    Delete,
}

impl FileAccess {
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    pub access: FileAccess,
    /// The requested path.
    pub path: String,
    /// The absolute path inside the environment after following all symbolic links. The gate judges
    /// both paths.
    pub real: String,
}

impl Work {
    /// The text, or a description of the file access.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Shell(text) | Self::Python(text) | Self::Input(TypedInput { text, .. }) => {
                Cow::Borrowed(text)
            }
            Self::File(FileUse { access, path, real }) => {
                let really = if real == path { String::new() } else { format!(", which is {real}") };
                Cow::Owned(format!("{} {path}{really}", access.as_str()))
            }
        }
    }
}

impl Job {
    /// Work in a new session.
    pub fn new(work: Work, cwd: impl Into<String>) -> Self {
        Self { work, cwd: cwd.into(), shell: ShellContext::default(), lacks_guard: false }
    }

    pub fn shell(text: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self::new(Work::Shell(text.into()), cwd)
    }
}
