//! Commands that run, and how they end.

use std::time::Duration;

use hermes_guest::client::{Event, Running};
use hermes_guest::protocol::message::{Cause, Ended, ProcessId, Size, Tree};
use tokio::time::Instant;

use crate::{Error, Reset};

/// The end of a command. A failure of the command is an outcome, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// How it ended.
    pub ending: Ending,
    /// The output, or its beginning and its end.
    pub output: Vec<u8>,
    /// How many bytes of it are the beginning, if something is left out.
    pub head: usize,
    /// How many bytes in the middle of the output are left out.
    pub omitted: u64,
    /// Bytes of output in all.
    pub total: u64,
    /// Where all of it is, if some was left out: a path inside the place, for as long as the command is remembered.
    pub spool: Option<String>,
    /// From start to end.
    pub duration: Duration,
    /// Where the session is now.
    pub cwd: String,
    /// Whether the state of an earlier place was lost before this command ran.
    pub reset: Reset,
    /// What it started and left running, to be found under this id.
    pub left: Option<ProcessId>,
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

/// What comes from a running command.
#[derive(Debug)]
pub enum Happening {
    /// Some of its output.
    Output(Vec<u8>),
    /// Its end.
    End(Outcome),
}

/// A command that runs. Dropping it kills its whole tree, unless it is in the background.
#[derive(Debug)]
pub struct Command {
    running: Running,
    started: Instant,
    cwd: String,
    reset: Reset,
    kind: Kind,
}

/// What was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Live,
    Summary,
    Background,
}

impl Command {
    pub(crate) fn new(running: Running, cwd: String, reset: Reset, kind: Kind) -> Self {
        Self { running, started: Instant::now(), cwd, reset, kind }
    }

    /// The next thing that comes from it. Can be cancelled without losing anything.
    pub async fn next(&mut self) -> Result<Happening, Error> {
        if self.kind == Kind::Background
            && let Some(id) = self.running.id()
        {
            return Ok(Happening::End(self.in_background(id)));
        }
        Ok(match self.running.next().await? {
            Event::Output(page) => Happening::Output(page.data.into_vec()),
            Event::Moved(id) => Happening::End(self.in_background(id)),
            Event::Ended(ended) => Happening::End(self.ended(*ended)),
        })
    }

    /// Waits for its end, or until it is in the background.
    pub async fn end(&mut self) -> Result<Outcome, Error> {
        loop {
            if let Happening::End(outcome) = self.next().await? {
                return Ok(outcome);
            }
        }
    }

    /// Does what Ctrl-C does. The end still comes.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    /// Lets it go on in the background, which is then its end here.
    pub async fn background(&mut self) -> Result<(), Error> {
        Ok(self.running.background().await?)
    }

    fn ended(&mut self, ended: Ended) -> Outcome {
        let kept = (ended.head.len() + ended.tail.len()) as u64;
        // What came live was seen.
        let omitted = if self.kind == Kind::Summary { ended.total.saturating_sub(kept) } else { 0 };
        Outcome {
            code: ended.code,
            ending: match ended.cause {
                Cause::Exited | Cause::Signaled(_) | Cause::Killed => Ending::Exited,
                Cause::Deadline => Ending::TimedOut,
                Cause::Interrupted => Ending::Interrupted,
                Cause::BadDirectory => Ending::BadDirectory,
            },
            head: ended.head.len(),
            output: [ended.head.into_vec(), ended.tail.into_vec()].concat(),
            omitted,
            total: ended.total,
            spool: ended.spool.map(|path| String::from_utf8_lossy(&path).into_owned()),
            duration: self.started.elapsed(),
            cwd: String::from_utf8_lossy(&ended.cwd).into_owned(),
            reset: self.reset,
            left: (ended.tree == Tree::Alive).then_some(ended.process),
        }
    }

    fn in_background(&self, id: ProcessId) -> Outcome {
        Outcome {
            code: 0,
            ending: Ending::Background(id),
            output: Vec::new(),
            head: 0,
            omitted: 0,
            total: 0,
            spool: None,
            duration: self.started.elapsed(),
            cwd: self.cwd.clone(),
            reset: self.reset,
            left: Some(id),
        }
    }
}

/// A terminal in a place, with a person in front of it. Dropping it kills what runs there.
#[derive(Debug)]
pub struct Terminal {
    running: Running,
}

/// What comes from a terminal.
#[derive(Debug)]
pub enum Shown {
    /// Bytes for the screen.
    Bytes(Vec<u8>),
    /// Its program ended with this code.
    End(i32),
}

impl Terminal {
    pub(crate) fn new(running: Running) -> Self {
        Self { running }
    }

    /// The next thing that comes from it. Can be cancelled without losing anything.
    pub async fn next(&mut self) -> Result<Shown, Error> {
        Ok(match self.running.next().await? {
            Event::Output(page) => Shown::Bytes(page.data.into_vec()),
            Event::Ended(ended) => Shown::End(ended.code),
            Event::Moved(_) => Shown::End(0),
        })
    }

    /// Passes on what was typed.
    pub async fn write(&mut self, typed: &[u8]) -> Result<(), Error> {
        Ok(self.running.write(typed).await?)
    }

    /// Follows the person's window.
    pub async fn resize(&mut self, size: Size) -> Result<(), Error> {
        Ok(self.running.resize(size).await?)
    }
}
