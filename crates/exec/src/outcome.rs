//! What a command did.

use std::time::Duration;

use hermes_guest::protocol::message::ProcessId;

/// The end of a command. A failure of the command is an outcome, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// How it ended.
    pub ending: Ending,
    /// The output, or its beginning and its end.
    pub output: Vec<u8>,
    /// How many bytes in the middle of the output are left out.
    pub omitted: u64,
    /// Bytes of output in all.
    pub total: u64,
    /// From start to end.
    pub duration: Duration,
    /// Where the session is now.
    pub cwd: String,
}

/// How a command ended, or that it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// By itself, or by a signal that was not ours.
    Exited,
    /// At its deadline.
    TimedOut,
    /// Because somebody interrupted it.
    Interrupted,
    /// Its directory is not there, so it never ran.
    BadDirectory,
    /// It goes on in the background under this id.
    Background(ProcessId),
}
