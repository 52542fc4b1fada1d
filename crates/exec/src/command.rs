//! Running commands and their outcomes.

use std::time::Duration;

use hermes_guest::client::{RunEvent, RunHandle};
use hermes_guest::protocol::message::{ExitCause, ExitReport, OutputDelivery, ProcessId, TreeStatus};
use tokio::time::Instant;

use crate::guard::GuardedRun;
use crate::registry::PlaceDir;
use crate::{Error, StateLoss};

/// The end of a command. A failure of the command is an outcome, not an error.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The exit code as a shell reports it: 124 timeout, 126 bad directory, 130 interrupt, 128+n
    /// signal.
    pub code: i32,
    pub end_reason: EndReason,
    /// The output, or its head and tail.
    pub output: Vec<u8>,
    /// The length of the head if the middle was omitted.
    pub head_len: usize,
    pub omitted_bytes: u64,
    pub total_bytes: u64,
    /// The file with the full output, if some was omitted: a path inside the place, kept as long as
    /// the command is remembered.
    pub spool_path: Option<String>,
    /// The start of the standard error of a Python program, which is not part of its output.
    pub stderr: Vec<u8>,
    pub duration: Duration,
    /// The working directory of the session afterwards.
    pub cwd: String,
    /// Whether the state of an earlier place was lost before this command ran.
    pub state_loss: StateLoss,
    /// A process that the command left running.
    pub leftover: Option<ProcessId>,
    /// What the guard probably kept from the command, and how to have the owner asked.
    pub guard_note: Option<String>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum EndReason {
    /// By itself, or by a signal from elsewhere.
    #[default]
    Exited,
    TimedOut,
    Interrupted,
    /// Its directory does not exist, so it never ran.
    BadDirectory,
    /// It continues in the background.
    Background(ProcessId),
}

#[derive(Debug)]
pub enum CommandEvent {
    Output(Vec<u8>),
    End(Outcome),
}

/// A running command. Dropping it kills its whole process tree, unless it is in the background.
#[derive(Debug)]
pub struct RunningCommand {
    pub(crate) running: RunHandle,
    pub(crate) started: Instant,
    pub(crate) cwd: String,
    pub(crate) state_loss: StateLoss,
    /// `None` in the background.
    pub(crate) delivery: Option<OutputDelivery>,
    /// `None` without the guard.
    pub(crate) guarded: Option<GuardedRun>,
    pub(crate) dir: PlaceDir,
}

impl RunningCommand {
    /// Waits for the next event. Cancel safe.
    pub async fn next_event(&mut self) -> Result<CommandEvent, Error> {
        if self.delivery.is_none()
            && let Some(id) = self.running.id()
        {
            return Ok(CommandEvent::End(self.background_outcome(id)));
        }
        Ok(match self.dir.keep_in_use(self.running.next_event()).await? {
            RunEvent::Output(page) => {
                if let Some(guarded) = &mut self.guarded {
                    guarded.record_output(&page.data);
                }
                CommandEvent::Output(page.data.into_vec())
            }
            RunEvent::Exited(ended) => CommandEvent::End(self.outcome(*ended)),
        })
    }

    /// Waits until the command ends or runs in the background.
    pub async fn wait(&mut self) -> Result<Outcome, Error> {
        loop {
            if let CommandEvent::End(outcome) = self.next_event().await? {
                return Ok(outcome);
            }
        }
    }

    /// Sends an interrupt, as Ctrl-C does. The end still has to be awaited.
    pub async fn interrupt(&mut self) -> Result<(), Error> {
        Ok(self.running.interrupt().await?)
    }

    fn outcome(&mut self, ended: ExitReport) -> Outcome {
        let kept_bytes = (ended.head.len() + ended.tail.len()) as u64;
        // Live output was already delivered.
        let is_summary = self.delivery == Some(OutputDelivery::Summary);
        let omitted_bytes = if is_summary { ended.output_bytes.saturating_sub(kept_bytes) } else { 0 };
        Outcome {
            guard_note: self.guarded.as_mut().and_then(|guarded| guarded.note(&ended)),
            code: ended.code,
            end_reason: match ended.cause {
                ExitCause::Exited | ExitCause::Signaled(_) | ExitCause::Killed | ExitCause::Guard => {
                    EndReason::Exited
                }
                ExitCause::Deadline => EndReason::TimedOut,
                ExitCause::Interrupted => EndReason::Interrupted,
                ExitCause::NoWorkingDir => EndReason::BadDirectory,
            },
            head_len: ended.head.len(),
            output: [ended.head.into_vec(), ended.tail.into_vec()].concat(),
            omitted_bytes,
            total_bytes: ended.output_bytes,
            spool_path: ended.spool_path.map(|path| String::from_utf8_lossy(&path).into_owned()),
            stderr: ended.stderr.into_vec(),
            duration: self.started.elapsed(),
            cwd: String::from_utf8_lossy(&ended.cwd).into_owned(),
            state_loss: self.state_loss,
            leftover: (ended.tree == TreeStatus::Alive).then_some(ended.process),
        }
    }

    fn background_outcome(&self, id: ProcessId) -> Outcome {
        Outcome {
            end_reason: EndReason::Background(id),
            duration: self.started.elapsed(),
            cwd: self.cwd.clone(),
            state_loss: self.state_loss,
            leftover: Some(id),
            ..Outcome::default()
        }
    }
}
