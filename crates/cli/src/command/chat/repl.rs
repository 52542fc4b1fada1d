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
use crate::Context;
use crate::screen::Tone;
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::resolve::store::store_failure;

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
    context: Arc<Context>,
    pub(super) output: Arc<TerminalOutput>,
    pub(super) actor: SessionActor<TerminalFrontend>,
    pub(super) input: InputLoop,
    host: Arc<TerminalHost>,
}

impl Repl {
    pub(super) fn new(
        context: Arc<Context>,
        output: Arc<TerminalOutput>,
        actor: SessionActor<TerminalFrontend>,
        input: InputLoop,
        host: Arc<TerminalHost>,
    ) -> Self {
        Self { context, output, actor, input, host }
    }

    pub(super) fn context(&self) -> &Context {
        &self.context
    }

    pub(super) fn conversation(&self) -> Option<&Conversation> {
        self.actor.conversation()
    }

    pub(super) async fn tools(&mut self) -> Result<Arc<ToolContext>, Failure> {
        let input = self.output.line_input(String::new());
        self.actor.open_tools(&input).await.map_err(session_failure)
    }

    /// Fails if no model can answer.
    pub(super) fn check_model(&self) -> Result<(), Failure> {
        self.host.model_failure().map_or(Ok(()), Err)
    }

    /// Reports a missing model before the first message.
    pub(super) fn print_welcome(&self) {
        if let Some(failure) = self.host.model_failure() {
            let screen = self.context.screen;
            let arrow = screen.paint(Tone::Quiet, "→");
            let hints = failure.hints.iter().map(|hint| format!("\n  {arrow} {hint}"));
            let lines: String = std::iter::once(failure.message.clone()).chain(hints).collect();
            self.output.view.print_note(&lines);
            self.output.print_quiet("until then, `!COMMAND` runs shell commands here; /help lists commands");
        }
    }

    /// Opens a stored conversation.
    pub(super) async fn open(&mut self, session: &SessionRow) -> Result<(), Failure> {
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

    pub(super) async fn send_message(&mut self, message: UserInput) -> Result<TurnOutcome, Failure> {
        let result = self.run_input(self.output.message_input(message)).await?;
        outcome(result)
    }

    /// Processes an input of an interactive chat, which goes on after an error of the host.
    pub(super) async fn process(&mut self, input: TerminalInput) -> Result<TurnOutcome, Failure> {
        match self.run_input(input).await? {
            Some(Err(Error::Host(text))) => {
                self.output.view.print_note(&text);
                Ok(TurnOutcome::NoTurn)
            }
            result => outcome(result),
        }
    }

    /// Runs an input, with lines typed during it. Returns none if it was abandoned.
    async fn run_input(&mut self, input: TerminalInput) -> Result<Option<SessionResult>, Failure> {
        let stop = CancellationToken::new();
        let work = self.actor.process(input, &stop);
        self.input.run_with_input(Running::Turn, &stop, work).await
    }

    /// Waits for a line, or for something else to show or to send.
    pub(super) async fn next_event(&mut self, editor: &mut Editor) -> Result<EditorEvent, Failure> {
        let tools = self.actor.tools().filter(|tools| tools.has_subscriptions()).cloned();
        let can_be_noticed = tools.is_some() || self.actor.has_background_tasks();
        let input = &mut self.input;
        let notice = async {
            let process_event = async {
                match &tools {
                    Some(tools) => tools.next_process_event().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                text = process_event => Notice::Process(text),
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
    pub(super) async fn resume_turn(&mut self) -> Result<TurnOutcome, Failure> {
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

    /// Ends the conversation, unless it is going to be resumed. Returns its tools.
    pub(super) async fn close(self, is_over: bool) -> Option<ToolContext> {
        self.actor.close(is_over).await
    }
}

type SessionResult = Result<Option<TurnResult>, Error>;

fn outcome(result: Option<SessionResult>) -> Result<TurnOutcome, Failure> {
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
        Error::Store(error) | Error::EndConversation(error) => store_failure(error),
        Error::Agent(AgentError::Store(error)) | Error::Turn(AgentError::Store(error)) => {
            store_failure(error)
        }
        Error::Agent(error @ AgentError::StoredTools(_))
        | Error::Turn(error @ AgentError::StoredTools(_)) => {
            Failure::new(FailureKind::Failed, error.to_string())
                .hint("another version stored this conversation; `/new` starts a new one")
        }
        Error::Agent(error) | Error::Turn(error) => Failure::new(FailureKind::Failed, error.to_string()),
        error => Failure::new(FailureKind::Failed, error.to_string()),
    }
}
