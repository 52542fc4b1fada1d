//! The conversation itself.

use std::sync::Arc;

use hermes_agent::{
    Conversation, Error, ModelConfig, SessionConfig, StopReason, ToolContext, TurnControl, TurnResult,
    UserInput,
};
use hermes_store::SessionRow as Kept;
use hermes_types::{Choice, Timestamp};

use super::opening;
use super::seat::{Seat, kept};
use super::slash::{self, Slash};
use crate::Context;
use crate::args::ChatArgs;
use crate::command::sessions::cost;
use crate::screen::{Format, Tone, one_line};
use hermes_config::failure::{Failure, Kind};
use hermes_config::keys::Config;
use hermes_config::resolve::agent::opening_of;
use hermes_config::resolve::model::{client, mind};
use hermes_config::resolve::store::told;

/// Exchanges that are shown again when a conversation goes on.
const RECALLED: usize = 3;

/// What came of a turn.
pub(super) enum Turned {
    /// It ended.
    Ended(Box<TurnResult>),
    /// There was none.
    Nothing,
    /// Somebody left without waiting for its end. It can be carried on.
    Left,
}

/// A chat at one terminal, in one place: one conversation after the other.
pub(super) struct Talk<'a> {
    context: &'a Context,
    config: &'a Config,
    args: &'a ChatArgs,
    seat: Seat<'a>,
    hands: Arc<ToolContext>,
    /// Who answers, or what keeps anybody from it.
    mind: Result<ModelConfig, Failure>,
    conversation: Option<Conversation>,
}

impl<'a> Talk<'a> {
    pub(super) fn new(
        context: &'a Context,
        config: &'a Config,
        args: &'a ChatArgs,
        seat: Seat<'a>,
        setup: SessionConfig,
    ) -> Self {
        let mind = mind(context, config, client(context), args.model.as_deref());
        let hands = Arc::new(ToolContext::new(setup));
        Self { context, config, args, seat, hands, mind, conversation: None }
    }

    pub(super) fn context(&self) -> &'a Context {
        self.context
    }

    pub(super) fn config(&self) -> &'a Config {
        self.config
    }

    pub(super) fn seat(&mut self) -> &mut Seat<'a> {
        &mut self.seat
    }

    pub(super) fn hands(&self) -> &Arc<ToolContext> {
        &self.hands
    }

    pub(super) fn conversation(&self) -> Option<&Conversation> {
        self.conversation.as_ref()
    }

    /// What keeps every model from answering, if anything does.
    pub(super) fn failure(&self) -> Option<Failure> {
        self.mind.as_ref().err().cloned()
    }

    /// What is to be known before the first message, if anything is.
    pub(super) fn welcome(&self) {
        if let Some(failure) = self.failure() {
            self.explain(&failure);
            self.seat.quiet("meanwhile `!COMMAND` runs a command in the place of this chat; /help says more");
        }
    }

    fn explain(&self, failure: &Failure) {
        let screen = self.context.screen;
        let mut text = failure.message.clone();
        for hint in &failure.hints {
            text.push_str(&format!("\n  {} {hint}", screen.paint(Tone::Quiet, "→")));
        }
        self.seat.stage().note(&text);
    }

    /// Takes up a conversation where it was left.
    pub(super) async fn resume(&mut self, kept: Kept) -> Result<(), Failure> {
        if let (None, Ok(mind)) =
            (&self.args.model, mind(self.context, self.config, client(self.context), Some(&kept.model)))
        {
            // The model it was held with answers again, unless its provider is another one now.
            if mind.endpoints.first().is_some_and(|first| first.provider == kept.provider) {
                self.mind = Ok(mind);
            }
        }
        let Ok(mind) = self.mind.clone() else { return Ok(()) };
        let name = mind.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
        let mut conversation =
            Conversation::resume(Arc::clone(&self.hands), mind.clone(), kept.id).await.map_err(failed)?;
        if name != kept.model {
            let anew = opening_of(self.context, self.hands.config(), &name);
            conversation.set_model(mind, anew).await.map_err(failed)?;
        }
        self.conversation = Some(conversation);
        Ok(())
    }

    /// Shows the end of what was said before.
    pub(super) fn recap(&self) {
        if let Some(conversation) = &self.conversation {
            let lines = opening::recap(conversation.history(), RECALLED);
            let head = format!("{}, {} messages", conversation.id(), conversation.history().len());
            self.seat.quiet(&[vec![head], lines].concat().join("\n"));
        }
    }

    /// Has a message answered.
    pub(super) async fn say(&mut self, saying: UserInput) -> Result<Turned, Failure> {
        if self.conversation.is_none() {
            let mind = match &self.mind {
                Ok(mind) => mind.clone(),
                Err(failure) => {
                    self.explain(failure);
                    return Ok(Turned::Nothing);
                }
            };
            let model = mind.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
            let told = opening_of(self.context, self.hands.config(), &model);
            let begun = Conversation::create(Arc::clone(&self.hands), mind, told, &saying.text).await;
            self.conversation = Some(begun.map_err(failed)?);
        }
        let Some(conversation) = &mut self.conversation else { return Ok(Turned::Nothing) };
        let (control, watch) = (TurnControl::default(), self.seat.watch());
        let ended = self.seat.attend(&control, conversation.run_turn(saying, &control, &watch)).await?;
        self.turned(ended.map(|ended| ended.map(Some)))
    }

    /// Goes on with a turn that could not end.
    pub(super) async fn carry_on(&mut self) -> Result<Turned, Failure> {
        let Some(conversation) = &mut self.conversation else { return Ok(Turned::Nothing) };
        let open = self.hands.config().store.current_turn(conversation.id()).await.map_err(told)?;
        if open.is_none() {
            return Ok(Turned::Nothing);
        }
        if self.context.screen.format == Format::Text {
            self.seat.quiet("the last message was not answered to the end; going on with it");
        }
        let (control, watch) = (TurnControl::default(), self.seat.watch());
        let ended = self.seat.attend(&control, conversation.resume_turn(&control, &watch)).await?;
        self.turned(ended)
    }

    fn turned(&mut self, ended: Option<Result<Option<TurnResult>, Error>>) -> Result<Turned, Failure> {
        self.seat.stage().finish();
        let mut ended = match ended {
            None => return Ok(Turned::Left),
            Some(ended) => match ended.map_err(failed)? {
                None => return Ok(Turned::Nothing),
                Some(ended) => ended,
            },
        };
        if let (Some(why), Format::Text) = (ended.stop_reason.user_message(), self.context.screen.format) {
            let tone =
                if ended.stop_reason == StopReason::Interrupted { Tone::Quiet } else { Tone::Doubtful };
            self.seat.stage().note(&self.context.screen.paint(tone, &why));
        }
        // What the model was not told while it worked is said to it now.
        if let Some(untold) =
            ended.pending_steer.take().filter(|_| ended.stop_reason != StopReason::Interrupted)
        {
            self.seat.first(untold.text);
        }
        Ok(Turned::Ended(Box::new(ended)))
    }

    /// Does what a command says.
    pub(super) async fn obey(&mut self, slash: Slash) -> Result<Turned, Failure> {
        match slash {
            Slash::New => {
                if let Some(conversation) = self.conversation.take() {
                    conversation.end("new").await.map_err(failed)?;
                }
                self.seat.quiet("a new conversation, in the same place");
            }
            Slash::Retry => match self.taken_back().await? {
                Some(saying) => return self.say(saying).await,
                None => self.seat.quiet("nothing was said yet"),
            },
            Slash::Undo => match self.taken_back().await? {
                Some(saying) => self.seat.quiet(&format!("taken back: {}", one_line(&saying.text, 60))),
                None => self.seat.quiet("nothing was said yet"),
            },
            Slash::Model(None) => self.show_model(),
            Slash::Model(Some(name)) => self.change_model(&name).await?,
            Slash::Usage => self.usage().await?,
            Slash::Status => self.status().await?,
            Slash::Approve(yes, Some(id)) => self.seat.answer(&id, kept(yes)).await,
            Slash::Deny(Some(id)) => self.seat.answer(&id, Choice::Deny { reason: None }).await,
            Slash::Approve(yes, None) => self.answer_last(kept(yes)).await?,
            Slash::Deny(None) => self.answer_last(Choice::Deny { reason: None }).await?,
            Slash::Steer(text) | Slash::Queue(text) => return self.say(text.as_str().into()).await,
            Slash::Stop => self.seat.quiet("nothing is under way"),
            Slash::Help => self.seat.stage().note(&slash::help()),
            Slash::Quit => {}
        }
        Ok(Turned::Nothing)
    }

    async fn taken_back(&mut self) -> Result<Option<UserInput>, Failure> {
        match &mut self.conversation {
            Some(conversation) => conversation.undo().await.map_err(failed),
            None => Ok(None),
        }
    }

    /// Answers the one question that waits anywhere.
    async fn answer_last(&self, choice: Choice) -> Result<(), Failure> {
        let open = self.hands.config().store.open_questions(Timestamp::now()).await.map_err(told)?;
        match open.as_slice() {
            [] => self.seat.quiet("nothing waits for an answer"),
            [one] => self.seat.answer(&one.id, choice).await,
            several => {
                let ids: Vec<_> = several.iter().map(|question| question.id.as_str()).collect();
                self.seat.quiet(&format!("{} questions wait; name one of {}", ids.len(), ids.join(", ")));
            }
        }
        Ok(())
    }

    fn show_model(&self) {
        match &self.mind {
            Ok(mind) => {
                let names = mind.endpoints.iter().map(|end| format!("{} ({})", end.model, end.provider));
                self.seat.stage().note(&names.collect::<Vec<_>>().join(", then "));
            }
            Err(failure) => self.explain(failure),
        }
    }

    async fn change_model(&mut self, name: &str) -> Result<(), Failure> {
        match mind(self.context, self.config, client(self.context), Some(name)) {
            Err(failure) => self.explain(&failure),
            Ok(mind) => {
                if let Some(conversation) = &mut self.conversation {
                    let anew = opening_of(self.context, self.hands.config(), name);
                    conversation.set_model(mind.clone(), anew).await.map_err(failed)?;
                }
                self.mind = Ok(mind);
                self.show_model();
            }
        }
        Ok(())
    }

    async fn usage(&self) -> Result<(), Failure> {
        let Some(conversation) = &self.conversation else {
            self.seat.quiet("nothing was said yet");
            return Ok(());
        };
        let kept = self.hands.config().store.session(conversation.id()).await.map_err(told)?;
        let usage = kept.usage;
        self.seat.stage().note(&format!(
            "{} calls; tokens: {} in ({} from the cache), {} out ({} thinking); cost {}",
            kept.api_calls,
            usage.prompt(),
            usage.cache_read,
            usage.output,
            usage.reasoning,
            cost(&kept),
        ));
        Ok(())
    }

    async fn status(&self) -> Result<(), Failure> {
        let setup = self.hands.config();
        let mut lines = Vec::new();
        if let Some(conversation) = &self.conversation {
            let kept = setup.store.session(conversation.id()).await.map_err(told)?;
            let title = one_line(kept.title.as_deref().unwrap_or_default(), 60);
            lines.push(format!("conversation  {} {title}", kept.id));
            lines.push(format!("messages      {}", conversation.history().len()));
        }
        if let Ok(mind) = &self.mind {
            let first = mind.endpoints.first();
            let name = first.map(|first| format!("{} ({})", first.model, first.provider)).unwrap_or_default();
            lines.push(format!("model         {name}"));
        }
        lines.push(format!("place         {} on {}", setup.place.name(), setup.place.backend_name()));
        lines.push(format!("session       {}", one_line(setup.place.session().as_str(), 100)));
        self.seat.stage().note(&lines.join("\n"));
        Ok(())
    }

    /// Says how to come back.
    pub(super) async fn farewell(&self) {
        if let Some(conversation) = &self.conversation {
            self.seat.quiet(&format!("resume it with `hermes chat --resume {}`", conversation.id()));
        }
    }

    /// Ends the conversation, unless something of it is left to be carried on, and lets go of the place.
    pub(super) async fn leave(self, is_over: bool) -> Option<ToolContext> {
        if let Some(conversation) = self.conversation
            && is_over
            && let Err(error) = conversation.end("quit").await
        {
            tracing::warn!(%error, "the end of the conversation could not be kept");
        }
        Arc::into_inner(self.hands)
    }
}

/// A conversation that cannot go on.
fn failed(error: Error) -> Failure {
    match error {
        Error::Store(error) => told(error),
        Error::StoredTools(_) => Failure::new(Kind::Failed, error.to_string())
            .hint("it was kept by another version; `/new` begins another conversation"),
        error => Failure::new(Kind::Failed, error.to_string()),
    }
}
