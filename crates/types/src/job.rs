//! What is to be run.

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
}

impl Work {
    /// The text itself.
    pub fn text(&self) -> &str {
        match self {
            Self::Shell(text) | Self::Python(text) | Self::Input(text) => text,
        }
    }
}

impl Job {
    /// A bash script in a directory.
    pub fn shell(text: impl Into<String>, cwd: impl Into<String>) -> Self {
        Self { work: Work::Shell(text.into()), cwd: cwd.into() }
    }
}
