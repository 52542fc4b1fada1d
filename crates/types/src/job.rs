//! What is to be run, or touched.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// One thing to run, and the directory to run it in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Job {
    /// The text, by what will read it.
    pub work: Work,
    /// The absolute working directory inside the place.
    pub cwd: String,
}

/// A text and its reader.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Work {
    /// A script for bash.
    Shell(String),
    /// A Python program.
    Python(String),
    /// Lines typed into a program that is already running, which may be a shell.
    Input(String),
    /// One file that a tool touches without a command.
    File(FileUse),
}

/// What is done to a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileAccess {
    /// Its content is read.
    Read,
    /// It is made, changed or replaced.
    Write,
    /// It is removed.
    Delete,
}

/// A file and what is done to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileUse {
    /// What is done.
    pub access: FileAccess,
    /// The path that was asked for.
    pub path: String,
    /// The absolute path it comes to inside the place, every symbolic link followed there. Both are judged.
    pub real: String,
}

impl Work {
    /// The text itself, or what is done to the file in words.
    pub fn text(&self) -> Cow<'_, str> {
        match self {
            Self::Shell(text) | Self::Python(text) | Self::Input(text) => Cow::Borrowed(text),
            Self::File(FileUse { access, path, real }) => {
                let verb = match access {
                    FileAccess::Read => "read",
                    FileAccess::Write => "write",
                    FileAccess::Delete => "delete",
                };
                let really = if real == path { String::new() } else { format!(", which is {real}") };
                Cow::Owned(format!("{verb} {path}{really}"))
            }
        }
    }
}

impl Job {
    /// A bash script in a directory.
    pub fn shell(text: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self { work: Work::Shell(text.into()), cwd: cwd.into() }
    }
}
