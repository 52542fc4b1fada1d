//! Commands that run, and how they end.

use std::time::Duration;

use hermes_guest::client::{Event, Running};
use hermes_guest::protocol::message::{Cause, Ended, ProcessId, Size, Tree};
use tokio::time::Instant;

use crate::{Error, StateLoss};

/// The end of a command. A failure of the command is an outcome, not an error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    /// What a shell would report: 124 deadline, 126 bad directory, 130 interrupt, 128+n signal.
    pub code: i32,
    /// How it ended.
    pub end_reason: EndReason,
    /// The output, or its beginning and its end.
    pub output: Vec<u8>,
    /// How many bytes of it are the beginning, if something is left out.
    pub head_len: usize,
    /// How many bytes in the middle of the output are left out.
    pub omitted_bytes: u64,
    /// Bytes of output in all.
    pub total_bytes: u64,
    /// Where all of it is, if some was left out: a path inside the place, for as long as the command is remembered.
    pub spool_path: Option<String>,
    /// From start to end.
    pub duration: Duration,
    /// Where the session is now.
    pub cwd: String,
    /// Whether the state of an earlier place was lost before this command ran.
    pub state_loss: StateLoss,
    /// What it started and left running, to be found under this id.
    pub leftover: Option<ProcessId>,
}

/// How a command ended, or that it did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EndReason {
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
pub enum CommandEvent {
    /// Some of its output.
    Output(Vec<u8>),
    /// Its end.
    End(Outcome),
}

/// A command that runs. Dropping it kills its whole tree, unless it is in the background.
#[derive(Debug)]
pub struct RunningCommand {
    running: Running,
    started: Instant,
    cwd: String,
    state_loss: StateLoss,
    mode: CommandMode,
}

/// What was asked of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CommandMode {
    Live,
    Summary,
    Background,
}

impl RunningCommand {
    pub(crate) fn new(running: Running, cwd: String, reset: StateLoss, kind: CommandMode) -> Self {
        Self { running, started: Instant::now(), cwd, state_loss: reset, mode: kind }
    }

    /// The next thing that comes from it. Can be cancelled without losing anything.
    pub async fn next_event(&mut self) -> Result<CommandEvent, Error> {
        if self.mode == CommandMode::Background
            && let Some(id) = self.running.id()
        {
            return Ok(CommandEvent::End(self.background_outcome(id)));
        }
        Ok(match self.running.next().await? {
            Event::Output(page) => CommandEvent::Output(page.data.into_vec()),
            Event::Moved(id) => CommandEvent::End(self.background_outcome(id)),
            Event::Ended(ended) => CommandEvent::End(self.outcome(*ended)),
        })
    }

    /// Waits for its end, or until it is in the background.
    pub async fn wait(&mut self) -> Result<Outcome, Error> {
        loop {
            if let CommandEvent::End(outcome) = self.next_event().await? {
                return Ok(outcome);
            }
        }
    }

    /// Does what Ctrl-C does. The end still comes.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    /// Lets it go on in the background, which is then its end here.
    pub async fn move_to_background(&mut self) -> Result<(), Error> {
        Ok(self.running.background().await?)
    }

    fn outcome(&mut self, ended: Ended) -> Outcome {
        let kept = (ended.head.len() + ended.tail.len()) as u64;
        // What came live was seen.
        let omitted = if self.mode == CommandMode::Summary { ended.total.saturating_sub(kept) } else { 0 };
        Outcome {
            code: ended.code,
            end_reason: match ended.cause {
                Cause::Exited | Cause::Signaled(_) | Cause::Killed => EndReason::Exited,
                Cause::Deadline => EndReason::TimedOut,
                Cause::Interrupted => EndReason::Interrupted,
                Cause::BadDirectory => EndReason::BadDirectory,
            },
            head_len: ended.head.len(),
            output: [ended.head.into_vec(), ended.tail.into_vec()].concat(),
            omitted_bytes: omitted,
            total_bytes: ended.total,
            spool_path: ended.spool.map(|path| String::from_utf8_lossy(&path).into_owned()),
            duration: self.started.elapsed(),
            cwd: String::from_utf8_lossy(&ended.cwd).into_owned(),
            state_loss: self.state_loss,
            leftover: (ended.tree == Tree::Alive).then_some(ended.process),
        }
    }

    fn background_outcome(&self, id: ProcessId) -> Outcome {
        Outcome {
            code: 0,
            end_reason: EndReason::Background(id),
            output: Vec::new(),
            head_len: 0,
            omitted_bytes: 0,
            total_bytes: 0,
            spool_path: None,
            duration: self.started.elapsed(),
            cwd: self.cwd.clone(),
            state_loss: self.state_loss,
            leftover: Some(id),
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
pub enum TerminalEvent {
    /// Bytes for the screen.
    Output(Vec<u8>),
    /// Its program ended with this code.
    Exit(i32),
}

impl Terminal {
    pub(crate) fn new(running: Running) -> Self {
        Self { running }
    }

    /// The next thing that comes from it. Can be cancelled without losing anything.
    pub async fn next_event(&mut self) -> Result<TerminalEvent, Error> {
        Ok(match self.running.next().await? {
            Event::Output(page) => TerminalEvent::Output(page.data.into_vec()),
            Event::Ended(ended) => TerminalEvent::Exit(ended.code),
            Event::Moved(_) => TerminalEvent::Exit(0),
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
