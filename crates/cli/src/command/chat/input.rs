//! Reads lines and signals while a turn or a shell command runs.

use std::sync::Arc;

use hermes_session::command::StopScope;
use hermes_session::{SessionCommand, Surface};
use hermes_types::Choice;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::frontend::{TerminalInput, TerminalOutput};
use super::line::{self, InputLine};
use crate::Result;
use crate::keyboard::next_line;
use crate::turn_view::ViewState;

/// What runs while lines are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Running {
    /// A turn of the session, which handles commands.
    Turn,
    ShellCommand,
}

/// The terminal while something runs.
pub(super) struct InputLoop {
    pub(super) output: Arc<TerminalOutput>,
    pub(super) mailbox: mpsc::Sender<TerminalInput>,
    pub(super) background: mpsc::UnboundedReceiver<String>,
    /// Whether every line is read. Otherwise only answers to questions are; other lines are left
    /// for the next program.
    pub(super) reads_all_lines: bool,
    /// Whether the person wants to leave.
    pub(super) is_leaving: bool,
}

impl InputLoop {
    /// The next text of a background task.
    pub(super) async fn next_background_text(&mut self) -> String {
        match self.background.recv().await {
            Some(text) => text,
            None => std::future::pending().await,
        }
    }

    /// Waits for some work while the person may type and press Ctrl-C: once to stop the work, twice
    /// to abandon it. Returns none if it was abandoned.
    pub(super) async fn run_with_input<W: Future>(
        &mut self,
        running: Running,
        stop: &CancellationToken,
        work: W,
    ) -> Result<Option<W::Output>> {
        let mut keyboard = self.output.approver.keyboard()?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        let output = Arc::clone(&self.output);
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                _ = interrupted.recv() => {
                    output.view.update(ViewState::end_echoed_line);
                    if stop.is_cancelled() {
                        return Ok(None);
                    }
                    stop.cancel();
                }
                _ = terminated.recv() => self.stop_and_leave(stop),
                _ = hung_up.recv() => self.stop_and_leave(stop),
                () = output.approver.changed() => {}
                text = self.next_background_text() => output.view.print_note(&text),
                line = next_line(&mut keyboard), if self.reads_all_lines || output.approver.is_asking() => match line {
                    Some(line) => self.on_line(line, running, stop),
                    None => {
                        keyboard = None;
                        self.is_leaving = true;
                        output.approver.close_input();
                    }
                },
            }
        }
    }

    fn stop_and_leave(&mut self, stop: &CancellationToken) {
        self.is_leaving = true;
        stop.cancel();
    }

    /// Handles a typed line. Commands come first, then an open question; anything else is a
    /// message.
    fn on_line(&mut self, line: String, running: Running, stop: &CancellationToken) {
        let text = match line::parse_line(&line) {
            InputLine::Session(text) => text,
            InputLine::Empty if self.output.approver.is_asking() => String::new(),
            InputLine::Empty => return,
            InputLine::Shell(_) => return self.output.print_quiet("busy; use /stop or Ctrl-C first"),
            InputLine::Invalid(why) => return self.output.view.print_note(why),
        };
        match (SessionCommand::parse(&text, Surface::Terminal), running) {
            (Some(SessionCommand::Quit), _) => self.stop_and_leave(stop),
            (Some(SessionCommand::Stop(StopScope::Turn)), Running::ShellCommand) => stop.cancel(),
            // No session reads the mailbox now, but the question stands at this terminal.
            (Some(SessionCommand::Answer { id: None, choice }), Running::ShellCommand) => {
                drop(self.output.approver.submit_line(choice_line(choice)));
            }
            (Some(_), Running::ShellCommand) => self.output.print_quiet("busy; use /stop or Ctrl-C first"),
            (None, _) if self.output.approver.is_asking() => drop(self.output.approver.submit_line(line)),
            (_, Running::Turn) | (None, Running::ShellCommand) => self.submit(text),
        }
    }

    fn submit(&self, text: String) {
        if self.mailbox.try_send(self.output.line_input(text)).is_err() {
            self.output.print_quiet("too many messages are queued; this one is dropped");
        }
    }
}

/// The line that answers a question at the terminal.
fn choice_line(choice: Choice) -> String {
    match choice {
        Choice::Once => "y".to_owned(),
        Choice::Session => "s".to_owned(),
        Choice::Always => "a".to_owned(),
        Choice::Deny { reason } => format!("n {}", reason.unwrap_or_default()),
    }
}
