//! What a session needs from its front end and from the program around it.

use std::convert::Infallible;
use std::future::{pending, ready};
use std::sync::Arc;

use hermes_agent::{Approver, ModelConfig, SessionConfig, SystemPrompt, ToolContext, TurnEvent, TurnJournal};
use hermes_store::{InboxId, SessionRow};
use hermes_types::{Attendance, CallId, Choice, Person, SessionKey, Timestamp};
use tokio_util::sync::CancellationToken;

use crate::{
    BackgroundTask, BoxFuture, CommandSpec, Error, SessionCommand, SessionInput, SessionMessage, StopReason,
    Surface, TurnResult, UserInput,
};

/// What happens to a message that arrives during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolicy {
    Queue,
    /// The turn is stopped, and the message is next.
    Interrupt,
    /// The model gets it with the next tool result.
    Steer,
}

/// The reply to a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandReply {
    Text(String),
    /// Labels and values, one pair per line.
    Table(Vec<(&'static str, String)>),
    /// A list of commands.
    Commands(Vec<&'static CommandSpec>),
}

impl From<&str> for CommandReply {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for CommandReply {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

/// What starts a turn.
#[derive(Debug, Clone, Copy)]
pub enum TurnStart<'a> {
    /// The input with its attachments.
    Message,
    Text(&'a str),
    /// The interrupted turn.
    Resume,
}

/// What a resumed turn did before.
#[derive(Debug)]
pub struct ResumedTurn {
    pub started: Timestamp,
    pub calls: Vec<CallId>,
}

/// Why an idle conversation is replaced by a new one.
#[derive(Debug)]
pub struct ConversationReset {
    /// One word, stored with the ended conversation.
    pub reason: &'static str,
    /// Shown to the user, if they want to know.
    pub note: Option<String>,
}

/// The view of one turn.
pub trait TurnFrontend: Send + Sync + 'static {
    fn on_event(&self, event: &TurnEvent);

    /// What is stored together with the turn.
    fn journal(self: &Arc<Self>) -> Arc<dyn TurnJournal>;

    /// Shows nothing more, and waits until that is so.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// An input of a front end.
pub type FrontendInput<F> = SessionInput<<F as Frontend>::Message>;

/// The user interface of one session. It renders what happens, and contains no session logic.
pub trait Frontend: Send + Sync + Sized + 'static {
    type Message: SessionMessage;
    type Turn: TurnFrontend;

    const SURFACE: Surface;

    /// The front end of a background task of this session.
    fn for_background_task(&self, key: &SessionKey, task: Option<BackgroundTask>) -> Self;

    fn approver(&self) -> Arc<dyn Approver>;

    /// An input is processed now; questions go to its sender.
    fn set_input(&self, _input: &FrontendInput<Self>) {}

    /// Whether the sender still has access.
    fn has_access(&self, input: &FrontendInput<Self>) -> impl Future<Output = bool> + Send;

    /// Whether the sender may use a command.
    fn check_command(&self, input: &FrontendInput<Self>, command: &SessionCommand) -> Result<(), Error>;

    /// Whether the conversation is over because of its age.
    fn reset_due(&self, _input: &FrontendInput<Self>, _session: &SessionRow) -> Option<ConversationReset> {
        None
    }

    /// Replies to an input, which is then done.
    fn reply(&self, input: &FrontendInput<Self>, reply: CommandReply) -> impl Future<Output = ()> + Send;

    /// Marks inputs done that need no reply.
    fn finish(&self, _inputs: Vec<InboxId>) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// Whether an input was answered completely before Hermes stopped.
    fn is_finished(&self, _input: &FrontendInput<Self>) -> impl Future<Output = Result<bool, Error>> + Send {
        ready(Ok(false))
    }

    /// Rejects an input because too many wait. Only the first one of several gets a reply.
    fn reject(&self, input: FrontendInput<Self>, is_first: bool) -> impl Future<Output = ()> + Send;

    /// An input waits until the turn ends.
    fn on_queued(&self, _input: &FrontendInput<Self>) {}

    /// An input was passed to the running turn.
    fn on_steered(&self, _input: &FrontendInput<Self>) {}

    /// Takes an input as the answer to a question of the model; returns it if no question is open.
    fn submit_clarification(
        &self,
        input: FrontendInput<Self>,
        _tools: Option<&Arc<ToolContext>>,
        _stop: &CancellationToken,
    ) -> Option<FrontendInput<Self>> {
        Some(input)
    }

    /// Answers an approval question. Returns the text to show.
    fn answer_question(
        &self,
        input: &FrontendInput<Self>,
        id: &str,
        choice: Choice,
    ) -> impl Future<Output = String> + Send;

    /// The text for the running turn; none if the input needs a turn of its own.
    fn steer_text(&self, input: &FrontendInput<Self>) -> Option<String>;

    /// The message for the model.
    fn user_input(
        &self,
        input: &FrontendInput<Self>,
        tools: &Arc<ToolContext>,
        stop: &CancellationToken,
    ) -> impl Future<Output = UserInput> + Send;

    /// A message is going to be answered.
    fn on_message_started(&self, _input: &FrontendInput<Self>) {}

    /// A message was answered, or could not be.
    fn on_message_ended(
        &self,
        input: &FrontendInput<Self>,
        result: Result<&StopReason, &Error>,
    ) -> impl Future<Output = ()> + Send;

    fn start_turn(
        &self,
        input: &FrontendInput<Self>,
        start: TurnStart<'_>,
        resumed: Option<ResumedTurn>,
        tools: &Arc<ToolContext>,
        stop: &CancellationToken,
    ) -> Arc<Self::Turn>;

    /// Runs as long as a turn does, for example to show that the bot is typing.
    fn run_during_turn(&self, _input: &FrontendInput<Self>) -> impl Future<Output = Infallible> + Send {
        pending()
    }

    fn on_turn_ended(&self, result: &TurnResult);

    /// A background task was stored under its own key and starts now.
    fn start_background_task(
        &self,
        input: &FrontendInput<Self>,
        key: &SessionKey,
        title: &str,
    ) -> impl Future<Output = Result<(), Error>> + Send;

    /// Approvals were turned off or on again.
    fn on_approvals_changed(&self, _person: &Person, _is_asking: bool) {}

    /// Runs a command that only this surface offers.
    fn run_own_command(
        &self,
        _input: &FrontendInput<Self>,
        _command: &SessionCommand,
    ) -> impl Future<Output = ()> + Send {
        ready(())
    }

    /// The session ends.
    fn on_closed(&self) {}
}

/// What a host needs to know to set up a session.
pub struct SessionRequest<'a, M> {
    pub key: &'a SessionKey,
    pub message: &'a M,
    pub person: Person,
    pub attendance: Attendance,
    pub approver: Arc<dyn Approver>,
    /// The directory of a conversation that is resumed.
    pub cwd: Option<&'a str>,
}

/// Provides what sessions need from the program around them: settings, models and environments.
pub trait SessionHost<M>: Send + Sync {
    /// Sets up a session. The error is shown to the user.
    fn session_setup(&self, request: SessionRequest<'_, M>) -> Result<SessionConfig, Error>;

    /// The models to use. The error is shown to the user.
    fn model_for(&self, model: Option<&str>) -> Result<ModelConfig, Error>;

    /// Makes `model` the default of all sessions.
    fn set_default_model(&self, model: &str) -> Result<(), Error>;

    fn system_prompt(&self, setup: &SessionConfig, model: &str, message: &M) -> SystemPrompt;

    /// Whether background processes run in the session's environment. Unknown counts as true.
    fn has_running_processes<'a>(
        &'a self,
        key: &'a SessionKey,
        message: &'a M,
        person: &'a Person,
    ) -> BoxFuture<'a, bool>;

    /// Removes the session's environment and its files, unless it is shared with other sessions.
    /// Returns whether it did.
    fn remove_sandbox<'a>(
        &'a self,
        key: &'a SessionKey,
        message: &'a M,
    ) -> BoxFuture<'a, Result<bool, Error>>;

    /// The session uses another environment from now on. The old one stays open by default.
    fn release<'a>(&'a self, _tools: ToolContext) -> BoxFuture<'a, ()> {
        Box::pin(ready(()))
    }
}
