//! Where the person sits while an answer comes: what is typed then, and Ctrl-C.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_agent::{TurnControl, TurnEvent};
use hermes_types::Choice;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::slash::{self, ApprovalScope, InputLine, SlashCommand};
use crate::Context;
use crate::command::approvals::questions;
use crate::keyboard::next_line;
use crate::screen::{OutputFormat, Tone, one_line};
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;
use hermes_config::failure::Failure;

/// Messages that wait to be said.
const MAX_QUEUED: usize = 32;
/// Calls that are told about in one document.
const MAX_RECORDED_CALLS: usize = 10_000;

/// What becomes of lines that are typed while an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LinePolicy {
    /// They are obeyed, or said next.
    ReadAll,
    /// They stay where they are, but for answers: there is nothing next.
    AnswersOnly,
}

/// A seat at the terminal, or at none.
pub(super) struct InputLoop<'a> {
    context: &'a Context,
    view: Arc<TurnView>,
    approver: Arc<TerminalApprover>,
    policy: LinePolicy,
    queue: VecDeque<String>,
    is_leaving: bool,
    calls: Arc<Mutex<Vec<Value>>>,
}

impl<'a> InputLoop<'a> {
    pub(super) fn new(
        context: &'a Context,
        stage: Arc<TurnView>,
        desk: Arc<TerminalApprover>,
        ears: LinePolicy,
    ) -> Self {
        let (queue, calls) = (VecDeque::new(), Arc::default());
        Self { context, view: stage, approver: desk, policy: ears, queue, is_leaving: false, calls }
    }

    pub(super) fn view(&self) -> &TurnView {
        &self.view
    }

    /// What is to be said next.
    pub(super) fn next_queued(&mut self) -> Option<String> {
        self.queue.pop_front()
    }

    /// Whether the person wants to leave.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Says something before everything else that waits.
    pub(super) fn push_front(&mut self, text: String) {
        self.queue.push_front(text);
    }

    /// Says something after everything else that waits. It counts against no limit: nobody typed it.
    pub(super) fn push_back(&mut self, texts: impl IntoIterator<Item = String>) {
        self.queue.extend(texts);
    }

    /// The calls of the turns so far.
    pub(super) fn calls(&self) -> Vec<Value> {
        lock(&self.calls).clone()
    }

    /// What happens in a turn, shown and remembered.
    pub(super) fn event_sink(&self) -> impl Fn(TurnEvent) + Send + Sync + use<> {
        let (stage, calls) = (Arc::clone(&self.view), Arc::clone(&self.calls));
        let is_shown = self.context.screen.format == OutputFormat::Text;
        move |event| {
            if let TurnEvent::ToolFinished { tool, succeeded: worked, elapsed: took, .. } = &event {
                let mut calls = lock(&calls);
                if calls.len() < MAX_RECORDED_CALLS {
                    calls.push(json!({"tool": tool, "worked": worked, "seconds": took.as_secs_f64()}));
                }
            }
            if is_shown {
                stage.show_event(&event);
            }
        }
    }

    /// Waits for some work, while the person may type and press Ctrl-C: once to end the work, twice to leave it. None if
    /// it was left.
    pub(super) async fn run_with_input<W: Future>(
        &mut self,
        control: &TurnControl,
        work: W,
    ) -> Result<Option<W::Output>, Failure> {
        let mut keyboard = self.approver.keyboard()?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                _ = interrupted.recv() => {
                    self.view.end_echoed_line();
                    if control.stop.is_cancelled() {
                        return Ok(None);
                    }
                    control.stop.cancel();
                }
                _ = terminated.recv() => self.stop_and_quit(control),
                _ = hung_up.recv() => self.stop_and_quit(control),
                () = self.approver.changed() => {}
                line = next_line(&mut keyboard), if self.is_listening() => match line {
                    Some(line) => self.on_line(line, control).await,
                    None => {
                        keyboard = None;
                        self.is_leaving = true;
                        self.approver.close_input();
                    }
                },
            }
        }
    }

    fn is_listening(&self) -> bool {
        self.policy == LinePolicy::ReadAll || self.approver.is_asking()
    }

    /// Ends the work, and the chat after it.
    fn stop_and_quit(&mut self, control: &TurnControl) {
        self.is_leaving = true;
        control.stop.cancel();
    }

    /// A line was typed. Commands come first, then the question that waits; anything else is said next.
    async fn on_line(&mut self, line: String, control: &TurnControl) {
        let is_asking = self.approver.is_asking();
        let said = match slash::parse_line(&line) {
            InputLine::Slash(slash) => slash,
            InputLine::Empty | InputLine::Message(_) if is_asking => {
                return drop(self.approver.submit_line(line));
            }
            InputLine::Empty => return,
            InputLine::Message(text) => return self.enqueue(text),
            InputLine::Shell(_) => {
                return self.print_quiet("busy; use /stop or Ctrl-C first");
            }
            InputLine::Invalid(why) => return self.view.print_note(&why),
        };
        match said {
            SlashCommand::Stop => control.stop.cancel(),
            SlashCommand::Quit => self.stop_and_quit(control),
            SlashCommand::Steer(text) => {
                control.steer(text);
                self.print_quiet("the model gets it with the next tool result");
            }
            SlashCommand::Queue(text) => self.enqueue(text),
            SlashCommand::Help => self.view.print_note(&slash::help()),
            SlashCommand::Approve(yes, None) if is_asking => {
                let letter = match yes {
                    ApprovalScope::Once => "y",
                    ApprovalScope::Session => "s",
                    ApprovalScope::Always => "a",
                };
                drop(self.approver.submit_line(letter.to_owned()));
            }
            SlashCommand::Deny(None) if is_asking => drop(self.approver.submit_line("n".to_owned())),
            SlashCommand::Approve(yes, Some(id)) => self.answer(&id, stored_choice(yes)).await,
            SlashCommand::Deny(Some(id)) => self.answer(&id, Choice::Deny { reason: None }).await,
            SlashCommand::Approve(_, None) | SlashCommand::Deny(None) => {
                self.print_quiet("no pending question")
            }
            SlashCommand::New
            | SlashCommand::Retry
            | SlashCommand::Undo
            | SlashCommand::Model(_)
            | SlashCommand::Usage
            | SlashCommand::Status => {
                self.print_quiet("busy; use /stop or Ctrl-C first");
            }
        }
    }

    /// Answers a question by its id, wherever it was asked.
    pub(super) async fn answer(&self, id: &str, choice: Choice) {
        if let Err(failure) = questions::answer(self.context, id, choice).await {
            self.context.screen.report_failure(&failure);
        }
    }

    fn enqueue(&mut self, text: String) {
        if self.queue.len() >= MAX_QUEUED {
            return self
                .print_quiet(&format!("{MAX_QUEUED} messages are queued already; this one is dropped"));
        }
        self.print_quiet(&format!("queued: {}", one_line(&text, 60)));
        self.queue.push_back(text);
    }

    pub(super) fn print_quiet(&self, text: &str) {
        self.view.print_note(&self.context.screen.paint(Tone::Quiet, text));
    }
}

/// How far a yes goes, as it is kept.
pub(super) fn stored_choice(yes: ApprovalScope) -> Choice {
    match yes {
        ApprovalScope::Once => Choice::Once,
        ApprovalScope::Session => Choice::Session,
        ApprovalScope::Always => Choice::Always,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
