//! The front end of sessions at a terminal.

use std::future::pending;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hermes_policy::escape::escape;
use hermes_session::{
    Approver, BackgroundTask, BoxFuture, Clarification, CommandReply, Error, Frontend, Question, ResumedTurn,
    SessionCommand, SessionInput, SessionMessage, StopReason, Surface, ToolContext, TurnEvent, TurnFrontend,
    TurnJournal, TurnResult, TurnStart, UserInput, UserRole, answer_question,
};
use hermes_store::Store;
use hermes_types::{Answer, Attendance, Choice, Person, SessionKey};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::line;
use crate::approval::owner;
use crate::screen::{Screen, Tone, one_line};
use crate::terminal_approver::TerminalApprover;
use crate::turn_view::TurnView;

/// Tool calls listed in a JSON document.
const MAX_RECORDED_CALLS: usize = 10_000;

/// A message typed at the terminal.
#[derive(Debug, Clone)]
pub(super) struct TerminalMessage {
    id: String,
    text: String,
}

pub(super) type TerminalInput = SessionInput<TerminalMessage>;

impl SessionMessage for TerminalMessage {
    fn id(&self) -> &str {
        &self.id
    }

    fn sender(&self, person: &Person) -> String {
        person.as_str().to_owned()
    }

    fn text(&self) -> &str {
        &self.text
    }

    fn set_text(&mut self, text: String) {
        self.text = text;
    }

    fn command(&self) -> Option<SessionCommand> {
        SessionCommand::parse(&self.text, Surface::Terminal)
    }
}

/// What the front ends of all sessions at one terminal share.
pub(super) struct TerminalOutput {
    pub(super) screen: Screen,
    pub(super) view: Arc<TurnView>,
    pub(super) approver: Arc<TerminalApprover>,
    pub(super) attendance: Attendance,
    pub(super) store: Store,
    /// Texts of background tasks. They are printed when no line is being edited.
    pub(super) background: mpsc::UnboundedSender<String>,
    pub(super) calls: Mutex<Vec<Value>>,
    pub(super) last_id: AtomicU64,
}

impl TerminalOutput {
    /// A line typed by the owner.
    pub(super) fn line_input(&self, text: String) -> TerminalInput {
        let number = self.last_id.fetch_add(1, Ordering::Relaxed);
        let message = TerminalMessage { id: format!("{}-{number}", std::process::id()), text };
        SessionInput::new(message, owner(), UserRole::Owner, self.attendance.clone())
    }

    /// A message for the model, even if it looks like a command.
    pub(super) fn message_input(&self, input: UserInput) -> TerminalInput {
        SessionInput { command: None, images: input.images, ..self.line_input(input.text) }
    }

    pub(super) fn print_quiet(&self, text: &str) {
        self.view.print_note(&self.screen.paint(Tone::Quiet, text));
    }

    pub(super) fn calls(&self) -> MutexGuard<'_, Vec<Value>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The front end of one session.
#[derive(Clone)]
pub(super) struct TerminalFrontend {
    pub(super) output: Arc<TerminalOutput>,
    /// Set in a background session.
    pub(super) task: Option<BackgroundTask>,
}

impl TerminalFrontend {
    /// Prints a text, or has it printed later.
    fn print(&self, text: &str) {
        match &self.task {
            None => self.output.view.print_note(text),
            // The terminal is closing if no task receives it.
            Some(task) => self.output.background.send(task.with_header(text)).unwrap_or_default(),
        }
    }
}

/// Answers to questions and `/quit` never reach the session, see `InputLoop`.
impl Frontend for TerminalFrontend {
    type Message = TerminalMessage;
    type Turn = Self;

    const SURFACE: Surface = Surface::Terminal;

    fn for_background_task(&self, _key: &SessionKey, task: Option<BackgroundTask>) -> Self {
        Self { output: Arc::clone(&self.output), task }
    }

    fn approver(&self) -> Arc<dyn Approver> {
        match &self.task {
            None => Arc::clone(&self.output.approver) as Arc<dyn Approver>,
            Some(task) => {
                let (task, output) = (task.clone(), self.output.background.clone());
                Arc::new(BackgroundApprover { task, output })
            }
        }
    }

    async fn has_access(&self, _input: &TerminalInput) -> bool {
        true
    }

    fn check_command(&self, _input: &TerminalInput, _command: &SessionCommand) -> Result<(), Error> {
        Ok(())
    }

    async fn reply(&self, _input: &TerminalInput, reply: CommandReply) {
        match reply {
            CommandReply::Text(text) => self.print(&escape(&text)),
            CommandReply::Table(rows) => {
                let lines = rows.iter().map(|(label, value)| format!("{label:<13}{}", escape(value)));
                self.print(&lines.collect::<Vec<_>>().join("\n"));
            }
            CommandReply::Commands(commands) => self.print(&line::help(&commands)),
        }
    }

    async fn reject(&self, input: TerminalInput, _is_first: bool) {
        let text = one_line(input.message.text(), 60);
        self.output.print_quiet(&format!("too many messages are queued; dropped: {text}"));
    }

    fn on_queued(&self, input: &TerminalInput) {
        self.output.print_quiet(&format!("queued: {}", one_line(input.message.text(), 60)));
    }

    fn on_steered(&self, _input: &TerminalInput) {
        self.output.print_quiet("the model gets it with the next tool result");
    }

    async fn answer_question(&self, input: &TerminalInput, id: &str, choice: Choice) -> String {
        answer_question(&self.output.store, id, &input.person, choice).await
    }

    fn steer_text(&self, input: &TerminalInput) -> Option<String> {
        Some(input.message.text.clone())
    }

    async fn user_input(
        &self,
        input: &TerminalInput,
        _tools: &Arc<ToolContext>,
        _stop: &CancellationToken,
    ) -> UserInput {
        UserInput { text: input.message.text.clone(), images: input.images.clone() }
    }

    async fn on_message_ended(&self, _input: &TerminalInput, result: Result<&StopReason, &Error>) {
        if let (Some(_), Err(error)) = (&self.task, result) {
            self.print(&escape(&error.to_string()));
        }
    }

    fn start_turn(
        &self,
        _input: &TerminalInput,
        start: TurnStart<'_>,
        _resumed: Option<ResumedTurn>,
        _tools: &Arc<ToolContext>,
        _stop: &CancellationToken,
    ) -> Arc<Self> {
        if matches!(start, TurnStart::Resume) && !self.output.screen.is_json() {
            self.output.print_quiet("resuming the interrupted turn");
        }
        Arc::new(self.clone())
    }

    fn on_turn_ended(&self, result: &TurnResult) {
        let reason = result.stop_reason.user_message();
        if self.task.is_some() {
            let parts = [Some(result.text.trim().to_owned()), reason];
            let parts: Vec<String> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
            return self.print(&escape(&parts.join("\n\n")));
        }
        if let (Some(reason), false) = (reason, self.output.screen.is_json()) {
            let is_interrupted = result.stop_reason == StopReason::Interrupted;
            let tone = if is_interrupted { Tone::Quiet } else { Tone::Warning };
            self.print(&self.output.screen.paint(tone, &reason));
        }
    }

    async fn start_background_task(
        &self,
        _input: &TerminalInput,
        _key: &SessionKey,
        title: &str,
    ) -> Result<(), Error> {
        self.output.print_quiet(&format!("started in the background: {}", escape(title)));
        Ok(())
    }
}

/// A turn of a background task shows only its end.
impl TurnFrontend for TerminalFrontend {
    fn on_event(&self, event: &TurnEvent) {
        let output = &self.output;
        if self.task.is_some() {
            return;
        }
        if let TurnEvent::ToolFinished { tool, succeeded, elapsed, .. } = event {
            let mut calls = output.calls();
            if calls.len() < MAX_RECORDED_CALLS {
                let seconds = elapsed.as_secs_f64();
                calls.push(json!({"tool": tool, "worked": succeeded, "seconds": seconds}));
            }
        }
        if !output.screen.is_json() {
            output.view.show_event(event);
        }
    }

    fn journal(self: &Arc<Self>) -> Arc<dyn TurnJournal> {
        Arc::new(())
    }

    async fn close(&self) {
        if self.task.is_none() {
            self.output.view.finish();
        }
    }
}

/// Asks for approvals of a background task, which are given with `/approve`.
struct BackgroundApprover {
    task: BackgroundTask,
    output: mpsc::UnboundedSender<String>,
}

impl Approver for BackgroundApprover {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        let reasons = question.matches().iter().map(|found| found.reason.to_string());
        let reasons = reasons.collect::<Vec<_>>().join("; ");
        let (text, id) = (question.text().to_marked_string(), question.id().as_str());
        let may_use = question.allowance().describe();
        let may_use = may_use.map(|classes| format!("\n  may use: {classes}")).unwrap_or_default();
        let text = format!("{text}\n  {reasons}{may_use}\n  /approve {id} or /deny {id}");
        self.output.send(self.task.with_header(&text)).unwrap_or_default();
        // The answer arrives through the store.
        Box::pin(pending())
    }

    fn clarify<'a>(&'a self, _question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async { None })
    }
}
