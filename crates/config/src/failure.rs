//! The error of a command: a message, hints, and the exit code.

use std::process::ExitCode;

use serde::Serialize;
use serde_json::{Value, json};

/// The kind of a failure; each has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FailureKind {
    /// The command or the turn failed.
    Failed,
    /// The command line is invalid.
    Usage,
    /// The configuration is invalid.
    Configuration,
    /// A rule or a person declined.
    Refused,
    /// A backend or a peer cannot be reached.
    Unavailable,
}

impl FailureKind {
    /// The exit code.
    pub fn code(self) -> ExitCode {
        ExitCode::from(match self {
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Configuration => 3,
            Self::Refused => 4,
            Self::Unavailable => 5,
        })
    }
}

/// The reason why a command stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    pub kind: FailureKind,
    pub message: String,
    /// Suggestions, one sentence each.
    pub hints: Vec<String>,
}

impl Failure {
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new() }
    }

    pub fn failed(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Failed, message)
    }

    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Usage, message)
    }

    pub fn configuration(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Configuration, message)
    }

    pub fn refused(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Refused, message)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(FailureKind::Unavailable, message)
    }

    /// Adds a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// The document that `--json` prints.
    pub fn json(&self) -> Value {
        json!({"error": {"kind": self.kind, "message": self.message, "hints": self.hints}})
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::failed(error.to_string())
    }
}
