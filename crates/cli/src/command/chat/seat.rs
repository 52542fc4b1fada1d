//! Where the person sits while an answer comes: what is typed then, and Ctrl-C.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_agent::{TurnControl, TurnEvent};
use hermes_types::Choice;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};

use super::slash::{self, Said, Slash, Yes};
use crate::Context;
use crate::command::approvals::questions;
use crate::keyboard::next_line;
use crate::people::Desk;
use crate::screen::{Format, Tone, one_line};
use crate::stage::Stage;
use hermes_config::failure::Failure;

/// Messages that wait to be said.
const QUEUED: usize = 32;
/// Calls that are told about in one document.
const MOST_CALLS: usize = 10_000;

/// What becomes of lines that are typed while an answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ears {
    /// They are obeyed, or said next.
    Open,
    /// They stay where they are, but for answers: there is nothing next.
    ForAnswers,
}

/// A seat at the terminal, or at none.
pub(super) struct Seat<'a> {
    context: &'a Context,
    stage: Arc<Stage>,
    desk: Arc<Desk>,
    ears: Ears,
    queue: VecDeque<String>,
    is_leaving: bool,
    calls: Arc<Mutex<Vec<Value>>>,
}

impl<'a> Seat<'a> {
    pub(super) fn new(context: &'a Context, stage: Arc<Stage>, desk: Arc<Desk>, ears: Ears) -> Self {
        let (queue, calls) = (VecDeque::new(), Arc::default());
        Self { context, stage, desk, ears, queue, is_leaving: false, calls }
    }

    pub(super) fn stage(&self) -> &Stage {
        &self.stage
    }

    /// What is to be said next.
    pub(super) fn next(&mut self) -> Option<String> {
        self.queue.pop_front()
    }

    /// Whether the person wants to leave.
    pub(super) fn is_leaving(&self) -> bool {
        self.is_leaving
    }

    /// Says something before everything else that waits.
    pub(super) fn first(&mut self, text: String) {
        self.queue.push_front(text);
    }

    /// Says something after everything else that waits. It counts against no limit: nobody typed it.
    pub(super) fn last(&mut self, texts: impl IntoIterator<Item = String>) {
        self.queue.extend(texts);
    }

    /// The calls of the turns so far.
    pub(super) fn calls(&self) -> Vec<Value> {
        locked(&self.calls).clone()
    }

    /// What happens in a turn, shown and remembered.
    pub(super) fn watch(&self) -> impl Fn(TurnEvent) + Send + Sync + use<> {
        let (stage, calls) = (Arc::clone(&self.stage), Arc::clone(&self.calls));
        let is_shown = self.context.screen.format == Format::Text;
        move |event| {
            if let TurnEvent::ToolFinished { tool, succeeded: worked, elapsed: took, .. } = &event {
                let mut calls = locked(&calls);
                if calls.len() < MOST_CALLS {
                    calls.push(json!({"tool": tool, "worked": worked, "seconds": took.as_secs_f64()}));
                }
            }
            if is_shown {
                stage.show(&event);
            }
        }
    }

    /// Waits for some work, while the person may type and press Ctrl-C: once to end the work, twice to leave it. None if
    /// it was left.
    pub(super) async fn attend<W: Future>(
        &mut self,
        control: &TurnControl,
        work: W,
    ) -> Result<Option<W::Output>, Failure> {
        let mut keyboard = self.desk.keyboard()?;
        let mut interrupted = signal(SignalKind::interrupt())?;
        let mut terminated = signal(SignalKind::terminate())?;
        let mut hung_up = signal(SignalKind::hangup())?;
        tokio::pin!(work);
        loop {
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                _ = interrupted.recv() => {
                    self.stage.disturbed();
                    if control.stop.is_cancelled() {
                        return Ok(None);
                    }
                    control.stop.cancel();
                }
                _ = terminated.recv() => self.hurry(control),
                _ = hung_up.recv() => self.hurry(control),
                () = self.desk.changed() => {}
                line = next_line(&mut keyboard), if self.is_listening() => match line {
                    Some(line) => self.typed(line, control).await,
                    None => {
                        keyboard = None;
                        self.is_leaving = true;
                        self.desk.leave();
                    }
                },
            }
        }
    }

    fn is_listening(&self) -> bool {
        self.ears == Ears::Open || self.desk.is_asking()
    }

    /// Ends the work, and the chat after it.
    fn hurry(&mut self, control: &TurnControl) {
        self.is_leaving = true;
        control.stop.cancel();
    }

    /// A line was typed. Commands come first, then the question that waits; anything else is said next.
    async fn typed(&mut self, line: String, control: &TurnControl) {
        let is_asking = self.desk.is_asking();
        let said = match slash::read(&line) {
            Said::Slash(slash) => slash,
            Said::Nothing | Said::Message(_) if is_asking => return drop(self.desk.typed(line)),
            Said::Nothing => return,
            Said::Message(text) => return self.later(text),
            Said::Shell(_) => return self.quiet("not while something is under way; /stop ends it"),
            Said::Wrong(why) => return self.stage.note(&why),
        };
        match said {
            Slash::Stop => control.stop.cancel(),
            Slash::Quit => self.hurry(control),
            Slash::Steer(text) => {
                control.steer(text);
                self.quiet("the model hears it with the next result of a tool");
            }
            Slash::Queue(text) => self.later(text),
            Slash::Help => self.stage.note(&slash::help()),
            Slash::Approve(yes, None) if is_asking => {
                let letter = match yes {
                    Yes::Once => "y",
                    Yes::Session => "s",
                    Yes::Always => "a",
                };
                drop(self.desk.typed(letter.to_owned()));
            }
            Slash::Deny(None) if is_asking => drop(self.desk.typed("n".to_owned())),
            Slash::Approve(yes, Some(id)) => self.answer(&id, kept(yes)).await,
            Slash::Deny(Some(id)) => self.answer(&id, Choice::Deny { reason: None }).await,
            Slash::Approve(_, None) | Slash::Deny(None) => self.quiet("nothing is asked here"),
            Slash::New | Slash::Retry | Slash::Undo | Slash::Model(_) | Slash::Usage | Slash::Status => {
                self.quiet("not while something is under way; /stop ends it");
            }
        }
    }

    /// Answers a question by its id, wherever it was asked.
    pub(super) async fn answer(&self, id: &str, choice: Choice) {
        if let Err(failure) = questions::answer(self.context, id, choice).await {
            self.context.screen.fail(&failure);
        }
    }

    fn later(&mut self, text: String) {
        if self.queue.len() >= QUEUED {
            return self.quiet(&format!("{QUEUED} messages wait already; this one is not kept"));
        }
        self.quiet(&format!("said next: {}", one_line(&text, 60)));
        self.queue.push_back(text);
    }

    pub(super) fn quiet(&self, text: &str) {
        self.stage.note(&self.context.screen.paint(Tone::Quiet, text));
    }
}

/// How far a yes goes, as it is kept.
pub(super) fn kept(yes: Yes) -> Choice {
    match yes {
        Yes::Once => Choice::Once,
        Yes::Session => Choice::Session,
        Yes::Always => Choice::Always,
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
