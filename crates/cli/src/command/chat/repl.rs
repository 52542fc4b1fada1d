//! The conversation itself.

use std::sync::Arc;

use hermes_agent::{
    Conversation, Error, ModelConfig, SessionConfig, StopReason, ToolContext, TurnControl, TurnResult,
    UserInput,
};
use hermes_store::SessionRow as Kept;
use hermes_types::{Choice, Timestamp};

use super::input::{InputLoop, stored_choice};
use super::recap;
use super::slash::{self, SlashCommand};
use crate::Context;
use crate::args::ChatArgs;
use crate::command::sessions::format_cost;
use crate::screen::{OutputFormat, Tone, one_line};
use hermes_config::failure::{Failure, FailureKind};
use hermes_config::keys::Config;
use hermes_config::resolve::agent::system_prompt;
use hermes_config::resolve::model::{client, model_config};
use hermes_config::resolve::store::store_failure;

/// Exchanges that are shown again when a conversation goes on.
const RECAP_EXCHANGES: usize = 3;

/// What came of a turn.
pub(super) enum TurnOutcome {
    /// It ended.
    Ended(Box<TurnResult>),
    /// There was none.
    NoTurn,
    /// Somebody left without waiting for its end. It can be carried on.
    Abandoned,
}

/// A chat at one terminal, in one place: one conversation after the other.
pub(super) struct Repl<'a> {
    context: &'a Context,
    config: &'a Config,
    args: &'a ChatArgs,
    input: InputLoop<'a>,
    tools: Arc<ToolContext>,
    /// Who answers, or what keeps anybody from it.
    model: Result<ModelConfig, Failure>,
    conversation: Option<Conversation>,
}

impl<'a> Repl<'a> {
    pub(super) fn new(
        context: &'a Context,
        config: &'a Config,
        args: &'a ChatArgs,
        seat: InputLoop<'a>,
        setup: SessionConfig,
    ) -> Self {
        let mind = model_config(context, config, client(context), args.model.as_deref());
        let hands = Arc::new(ToolContext::new(setup));
        Self { context, config, args, input: seat, tools: hands, model: mind, conversation: None }
    }

    pub(super) fn context(&self) -> &'a Context {
        self.context
    }

    pub(super) fn config(&self) -> &'a Config {
        self.config
    }

    pub(super) fn input(&mut self) -> &mut InputLoop<'a> {
        &mut self.input
    }

    pub(super) fn tools(&self) -> &Arc<ToolContext> {
        &self.tools
    }

    pub(super) fn conversation(&self) -> Option<&Conversation> {
        self.conversation.as_ref()
    }

    /// What keeps every model from answering, if anything does.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.model.as_ref().err().cloned()
    }

    /// What is to be known before the first message, if anything is.
    pub(super) fn print_welcome(&self) {
        if let Some(failure) = self.failure() {
            self.print_failure(&failure);
            self.input.print_quiet("until then, `!COMMAND` runs shell commands here; /help lists commands");
        }
    }

    fn print_failure(&self, failure: &Failure) {
        let screen = self.context.screen;
        let mut text = failure.message.clone();
        for hint in &failure.hints {
            text.push_str(&format!("\n  {} {hint}", screen.paint(Tone::Quiet, "→")));
        }
        self.input.view().print_note(&text);
    }

    /// Takes up a conversation where it was left.
    pub(super) async fn resume(&mut self, kept: Kept) -> Result<(), Failure> {
        if let (None, Ok(mind)) = (
            &self.args.model,
            model_config(self.context, self.config, client(self.context), Some(&kept.model)),
        ) {
            // The model it was held with answers again, unless its provider is another one now.
            if mind.endpoints.first().is_some_and(|first| first.provider == kept.provider) {
                self.model = Ok(mind);
            }
        }
        let Ok(mind) = self.model.clone() else { return Ok(()) };
        let name = mind.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
        let mut conversation = Conversation::resume(Arc::clone(&self.tools), mind.clone(), kept.id)
            .await
            .map_err(turn_failure)?;
        if name != kept.model {
            let prompt = system_prompt(self.context, self.tools.config(), &name);
            conversation.set_model(mind, prompt).await.map_err(turn_failure)?;
        }
        self.conversation = Some(conversation);
        Ok(())
    }

    /// Shows the end of what was said before.
    pub(super) fn print_recap(&self) {
        if let Some(conversation) = &self.conversation {
            let lines = recap::recap(conversation.history(), RECAP_EXCHANGES);
            let head = format!("{}, {} messages", conversation.id(), conversation.history().len());
            self.input.print_quiet(&[vec![head], lines].concat().join("\n"));
        }
    }

    /// Has a message answered.
    pub(super) async fn send_message(&mut self, saying: UserInput) -> Result<TurnOutcome, Failure> {
        if self.conversation.is_none() {
            let mind = match &self.model {
                Ok(mind) => mind.clone(),
                Err(failure) => {
                    self.print_failure(failure);
                    return Ok(TurnOutcome::NoTurn);
                }
            };
            let model = mind.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
            let prompt = system_prompt(self.context, self.tools.config(), &model);
            let begun = Conversation::create(Arc::clone(&self.tools), mind, prompt, &saying.text).await;
            self.conversation = Some(begun.map_err(turn_failure)?);
        }
        let Some(conversation) = &mut self.conversation else { return Ok(TurnOutcome::NoTurn) };
        let (control, watch) = (TurnControl::default(), self.input.event_sink());
        let ended =
            self.input.run_with_input(&control, conversation.run_turn(saying, &control, &watch)).await?;
        self.finish_turn(ended.map(|ended| ended.map(Some)))
    }

    /// Goes on with a turn that could not end.
    pub(super) async fn resume_turn(&mut self) -> Result<TurnOutcome, Failure> {
        let Some(conversation) = &mut self.conversation else { return Ok(TurnOutcome::NoTurn) };
        let open = self.tools.config().store.current_turn(conversation.id()).await.map_err(store_failure)?;
        if open.is_none() {
            return Ok(TurnOutcome::NoTurn);
        }
        if self.context.screen.format == OutputFormat::Text {
            self.input.print_quiet("the last message was not answered to the end; going on with it");
        }
        let (control, watch) = (TurnControl::default(), self.input.event_sink());
        let ended = self.input.run_with_input(&control, conversation.resume_turn(&control, &watch)).await?;
        self.finish_turn(ended)
    }

    fn finish_turn(
        &mut self,
        ended: Option<Result<Option<TurnResult>, Error>>,
    ) -> Result<TurnOutcome, Failure> {
        self.input.view().finish();
        let mut ended = match ended {
            None => return Ok(TurnOutcome::Abandoned),
            Some(ended) => match ended.map_err(turn_failure)? {
                None => return Ok(TurnOutcome::NoTurn),
                Some(ended) => ended,
            },
        };
        if let (Some(why), OutputFormat::Text) =
            (ended.stop_reason.user_message(), self.context.screen.format)
        {
            let tone = if ended.stop_reason == StopReason::Interrupted { Tone::Quiet } else { Tone::Warning };
            self.input.view().print_note(&self.context.screen.paint(tone, &why));
        }
        // What the model was not told while it worked is said to it now.
        if let Some(untold) =
            ended.pending_steer.take().filter(|_| ended.stop_reason != StopReason::Interrupted)
        {
            self.input.push_front(untold.text);
        }
        Ok(TurnOutcome::Ended(Box::new(ended)))
    }

    /// Does what a command says.
    pub(super) async fn run_command(&mut self, slash: SlashCommand) -> Result<TurnOutcome, Failure> {
        match slash {
            SlashCommand::New => {
                if let Some(conversation) = self.conversation.take() {
                    conversation.end("new").await.map_err(turn_failure)?;
                }
                self.input.print_quiet("new conversation in the same environment");
            }
            SlashCommand::Retry => match self.undo_last_turn().await? {
                Some(saying) => return self.send_message(saying).await,
                None => self.input.print_quiet("nothing was said yet"),
            },
            SlashCommand::Undo => match self.undo_last_turn().await? {
                Some(saying) => {
                    self.input.print_quiet(&format!("taken back: {}", one_line(&saying.text, 60)))
                }
                None => self.input.print_quiet("nothing was said yet"),
            },
            SlashCommand::Model(None) => self.show_model(),
            SlashCommand::Model(Some(name)) => self.change_model(&name).await?,
            SlashCommand::Usage => self.usage().await?,
            SlashCommand::Status => self.status().await?,
            SlashCommand::Approve(yes, Some(id)) => self.input.answer(&id, stored_choice(yes)).await,
            SlashCommand::Deny(Some(id)) => self.input.answer(&id, Choice::Deny { reason: None }).await,
            SlashCommand::Approve(yes, None) => self.answer_last(stored_choice(yes)).await?,
            SlashCommand::Deny(None) => self.answer_last(Choice::Deny { reason: None }).await?,
            SlashCommand::Steer(text) | SlashCommand::Queue(text) => {
                return self.send_message(text.as_str().into()).await;
            }
            SlashCommand::Stop => self.input.print_quiet("nothing is running"),
            SlashCommand::Help => self.input.view().print_note(&slash::help()),
            SlashCommand::Quit => {}
        }
        Ok(TurnOutcome::NoTurn)
    }

    async fn undo_last_turn(&mut self) -> Result<Option<UserInput>, Failure> {
        match &mut self.conversation {
            Some(conversation) => conversation.undo().await.map_err(turn_failure),
            None => Ok(None),
        }
    }

    /// Answers the one question that waits anywhere.
    async fn answer_last(&self, choice: Choice) -> Result<(), Failure> {
        let open = self.tools.config().store.open_questions(Timestamp::now()).await.map_err(store_failure)?;
        match open.as_slice() {
            [] => self.input.print_quiet("no pending question"),
            [one] => self.input.answer(&one.id, choice).await,
            several => {
                let ids: Vec<_> = several.iter().map(|question| question.id.as_str()).collect();
                self.input.print_quiet(&format!(
                    "{} questions wait; name one of {}",
                    ids.len(),
                    ids.join(", ")
                ));
            }
        }
        Ok(())
    }

    fn show_model(&self) {
        match &self.model {
            Ok(mind) => {
                let names = mind.endpoints.iter().map(|end| format!("{} ({})", end.model, end.provider));
                self.input.view().print_note(&names.collect::<Vec<_>>().join(", then "));
            }
            Err(failure) => self.print_failure(failure),
        }
    }

    async fn change_model(&mut self, name: &str) -> Result<(), Failure> {
        match model_config(self.context, self.config, client(self.context), Some(name)) {
            Err(failure) => self.print_failure(&failure),
            Ok(mind) => {
                if let Some(conversation) = &mut self.conversation {
                    let prompt = system_prompt(self.context, self.tools.config(), name);
                    conversation.set_model(mind.clone(), prompt).await.map_err(turn_failure)?;
                }
                self.model = Ok(mind);
                self.show_model();
            }
        }
        Ok(())
    }

    async fn usage(&self) -> Result<(), Failure> {
        let Some(conversation) = &self.conversation else {
            self.input.print_quiet("nothing was said yet");
            return Ok(());
        };
        let kept = self.tools.config().store.session(conversation.id()).await.map_err(store_failure)?;
        let usage = kept.usage;
        self.input.view().print_note(&format!(
            "{} calls; tokens: {} in ({} from the cache), {} out ({} thinking); cost {}",
            kept.api_calls,
            usage.prompt(),
            usage.cache_read,
            usage.output,
            usage.reasoning,
            format_cost(&kept),
        ));
        Ok(())
    }

    async fn status(&self) -> Result<(), Failure> {
        let setup = self.tools.config();
        let mut lines = Vec::new();
        if let Some(conversation) = &self.conversation {
            let kept = setup.store.session(conversation.id()).await.map_err(store_failure)?;
            let title = one_line(kept.title.as_deref().unwrap_or_default(), 60);
            lines.push(format!("conversation  {} {title}", kept.id));
            lines.push(format!("messages      {}", conversation.history().len()));
        }
        if let Ok(mind) = &self.model {
            let first = mind.endpoints.first();
            let name = first.map(|first| format!("{} ({})", first.model, first.provider)).unwrap_or_default();
            lines.push(format!("model         {name}"));
        }
        lines.push(format!("environment   {} on {}", setup.place.name(), setup.place.backend_name()));
        lines.push(format!("session       {}", one_line(setup.place.session().as_str(), 100)));
        self.input.view().print_note(&lines.join("\n"));
        Ok(())
    }

    /// Says how to come back.
    pub(super) async fn print_farewell(&self) {
        if let Some(conversation) = &self.conversation {
            self.input.print_quiet(&format!("resume it with `hermes chat --resume {}`", conversation.id()));
        }
    }

    /// Ends the conversation, unless something of it is left to be carried on, and lets go of the place.
    pub(super) async fn close(self, is_over: bool) -> Option<ToolContext> {
        if let Some(conversation) = self.conversation
            && is_over
            && let Err(error) = conversation.end("quit").await
        {
            tracing::warn!(%error, "the end of the conversation could not be kept");
        }
        Arc::into_inner(self.tools)
    }
}

/// A conversation that cannot go on.
fn turn_failure(error: Error) -> Failure {
    match error {
        Error::Store(error) => store_failure(error),
        Error::StoredTools(_) => Failure::new(FailureKind::Failed, error.to_string())
            .hint("it was kept by another version; `/new` begins another conversation"),
        error => Failure::new(FailureKind::Failed, error.to_string()),
    }
}
