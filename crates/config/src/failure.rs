//! What a person is told when something does not work: what, and what to do next.

use std::process::ExitCode;

use serde_json::{Value, json};

/// What kind of trouble it is; each has its own exit code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailureKind {
    /// The command or the turn failed.
    Failed,
    /// The command line makes no sense.
    Usage,
    /// The configuration cannot be used.
    Configuration,
    /// A rule or a person said no.
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

    fn as_str(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Usage => "usage",
            Self::Configuration => "configuration",
            Self::Refused => "refused",
            Self::Unavailable => "unavailable",
        }
    }
}

/// Something that stopped a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// What kind of trouble it is.
    pub kind: FailureKind,
    /// What happened, and where.
    pub message: String,
    /// What to do next.
    pub hints: Vec<String>,
}

impl Failure {
    /// A failure without advice.
    pub fn new(kind: FailureKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), hints: Vec::new() }
    }

    /// The same with a piece of advice.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    /// What `--json` prints.
    pub fn json(&self) -> Value {
        json!({"error": {"kind": self.kind.as_str(), "message": self.message, "hints": self.hints}})
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Self::new(FailureKind::Failed, error.to_string())
    }
}
