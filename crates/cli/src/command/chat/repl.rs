//! The chat loop: one line after the other, through the session.

use std::sync::Arc;

use hermes_agent::Conversation;
use hermes_session::{AgentError, Error, SessionActor, ToolContext, TurnResult, UserInput};
use hermes_store::SessionRow;
use tokio_util::sync::CancellationToken;

use super::editor::{Editor, EditorEvent, Notice};
use super::frontend::{TerminalFrontend, TerminalInput, TerminalOutput};
use super::host::TerminalHost;
use super::input::{InputLoop, Running};
use super::recap;
use crate::keyboard::or_pending;
use crate::screen::Tone;
use crate::{Context, Failure, Result};

/// Exchanges shown when a conversation is resumed.
const RECAP_EXCHANGES: usize = 3;

/// How an input ended.
pub(super) enum TurnOutcome {
    Ended(Box<TurnResult>),
    NoTurn,
    /// The person left without waiting for the end. The turn can be resumed.
    Abandoned,
}

/// A chat at one terminal.
pub(super) struct Repl {
    pub(super) context: Arc<Context>,
    pub(super) output: Arc<TerminalOutput>,
    pub(super) actor: SessionActor<TerminalFrontend>,
    pub(super) input: InputLoop,
    pub(super) host: Arc<TerminalHost>,
}

impl Repl {
    pub(super) fn conversation(&self) -> Option<&Conversation> {
        self.actor.conversation()
    }

    pub(super) async fn tools(&mut self) -> Result<Arc<ToolContext>> {
        let input = self.output.line_input(String::new());
        self.actor.open_tools(&input).await.map_err(session_failure)
    }

    /// Reports a missing model before the first message.
    pub(super) fn print_welcome(&self) {
        if let Err(failure) = self.host.check_model() {
            let screen = self.context.screen;
            let arrow = screen.paint(Tone::Quiet, "→");
            let hints = failure.hints.iter().map(|hint| format!("\n  {arrow} {hint}"));
            let lines: String = std::iter::once(failure.message.clone()).chain(hints).collect();
            self.output.view.print_note(&lines);
            self.output.print_quiet("until then, `!COMMAND` runs shell commands here; /help lists commands");
        }
    }

    /// Opens a stored conversation.
    pub(super) async fn open(&mut self, session: &SessionRow) -> Result<()> {
        self.actor.continue_conversation(session).await;
        let input = self.output.line_input(String::new());
        self.actor.open(&input).await.map_err(session_failure)
    }

    /// Shows the last exchanges of the conversation.
    pub(super) fn print_recap(&self) {
        if let Some(conversation) = self.conversation() {
            let lines = recap::recap(conversation.history(), RECAP_EXCHANGES);
            let head = format!("{}, {} messages", conversation.id(), conversation.history().len());
            self.output.print_quiet(&[vec![head], lines].concat().join("\n"));
        }
    }

    pub(super) async fn send_message(&mut self, message: UserInput) -> Result<TurnOutcome> {
        let result = self.run_input(self.output.message_input(message)).await?;
        outcome(result)
    }

    /// Processes an input of an interactive chat, which goes on after an error of the host.
    pub(super) async fn process(&mut self, input: TerminalInput) -> Result<TurnOutcome> {
        match self.run_input(input).await? {
            Some(Err(Error::Host(text))) => {
                self.output.view.print_note(&text);
                Ok(TurnOutcome::NoTurn)
            }
            result => outcome(result),
        }
    }

    /// Runs an input, with lines typed during it. Returns none if it was abandoned.
    async fn run_input(&mut self, input: TerminalInput) -> Result<Option<SessionResult>> {
        let stop = CancellationToken::new();
        let work = self.actor.process(input, &stop);
        self.input.run_with_input(Running::Turn, &stop, work).await
    }

    /// Waits for a line, or for something else to show or to send.
    pub(super) async fn next_event(&mut self, editor: &mut Editor) -> Result<(EditorEvent, Option<Notice>)> {
        let tools = self.actor.tools().filter(|tools| tools.has_subscriptions()).cloned();
        let can_be_noticed = tools.is_some() || self.actor.has_background_tasks();
        let input = &mut self.input;
        let notice = async {
            tokio::select! {
                text = or_pending(tools.as_ref().map(|tools| tools.next_process_event())) => Notice::Process(text),
                text = input.next_background_text() => Notice::Background(text),
            }
        };
        editor.next_event(can_be_noticed.then_some(notice)).await
    }

    pub(super) fn on_notice(&mut self, notice: Notice) {
        match notice {
            Notice::Process(text) => {
                self.actor.push_back(self.output.message_input(text.as_str().into()));
            }
            Notice::Background(text) => self.output.view.print_note(&text),
        }
    }

    /// Resumes the interrupted turn of the conversation.
    pub(super) async fn resume_turn(&mut self) -> Result<TurnOutcome> {
        let (stop, input) = (CancellationToken::new(), self.output.line_input(String::new()));
        let work = self.actor.resume_turn(&input, &stop);
        let result = self.input.run_with_input(Running::Turn, &stop, work).await?;
        outcome(result)
    }

    /// Says how to resume the conversation.
    pub(super) fn print_farewell(&self) {
        if let Some(conversation) = self.conversation() {
            self.output.print_quiet(&format!("resume it with `hermes chat --resume {}`", conversation.id()));
        }
    }
}

type SessionResult = Result<Option<TurnResult>, Error>;

fn outcome(result: Option<SessionResult>) -> Result<TurnOutcome> {
    Ok(match result {
        None => TurnOutcome::Abandoned,
        Some(result) => match result.map_err(session_failure)? {
            Some(ended) => TurnOutcome::Ended(Box::new(ended)),
            None => TurnOutcome::NoTurn,
        },
    })
}

fn session_failure(error: Error) -> Failure {
    match error {
        Error::Store(error)
        | Error::EndConversation(error)
        | Error::Agent(AgentError::Store(error))
        | Error::Turn(AgentError::Store(error)) => error.into(),
        Error::Agent(error) | Error::Turn(error) => {
            let failure = Failure::failed(error.to_string());
            match error {
                AgentError::StoredTools(_) => {
                    failure.hint("another version stored this conversation; `/new` starts a new one")
                }
                _ => failure,
            }
        }
        error => Failure::failed(error.to_string()),
    }
}
