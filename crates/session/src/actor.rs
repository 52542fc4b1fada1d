//! One session: processes one input after the other, and handles inputs that arrive during a turn.

mod commands;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{Conversation, PendingSteer, ToolContext, TurnControl};
use hermes_store::{SessionId, SessionRow, Store, TurnId};
use hermes_types::{Message, SessionKey};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::command::WhileBusy;
use crate::pool::MAILBOX_CAPACITY;
use crate::{
    BackgroundTask, BoxFuture, BusyPolicy, Error, Frontend, FrontendInput, ModelConfig, ResumedTurn,
    SessionCommand, SessionMessage, SessionPool, SessionRequest, StopReason, TurnEvent, TurnFrontend,
    TurnResult, TurnStart,
};

const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Which stored conversation a session continues.
enum ConversationScope {
    /// The current one of the session's key.
    Key,
    /// Its own: several terminals may use one key.
    Own(Option<SessionId>),
}

/// One session: processes its inputs one after the other.
pub struct SessionActor<F: Frontend> {
    pool: Arc<SessionPool<F::Message>>,
    frontend: Arc<F>,
    key: SessionKey,
    scope: ConversationScope,
    mailbox: mpsc::Receiver<FrontendInput<F>>,
    /// Inputs to process before those in the mailbox.
    next: VecDeque<FrontendInput<F>>,
    /// Inputs passed to the running turn.
    steering: Vec<FrontendInput<F>>,
    tools: Option<Arc<ToolContext>>,
    conversation: Option<Conversation>,
    /// The last answered input.
    last: Option<FrontendInput<F>>,
    /// Whether the user knows that the queue is full.
    has_reported_overflow: bool,
    /// Set if this is a background task.
    task: Option<BackgroundTask>,
}

impl<F: Frontend> SessionActor<F> {
    pub(crate) fn new(
        pool: Arc<SessionPool<F::Message>>,
        frontend: Arc<F>,
        key: SessionKey,
        mailbox: mpsc::Receiver<FrontendInput<F>>,
        task: Option<BackgroundTask>,
    ) -> Self {
        Self {
            pool,
            frontend,
            key,
            scope: ConversationScope::Key,
            mailbox,
            next: VecDeque::new(),
            steering: Vec::new(),
            tools: None,
            conversation: None,
            last: None,
            has_reported_overflow: false,
            task,
        }
    }

    /// A session that the caller drives with [`Self::process`], and the mailbox for inputs that
    /// arrive during it. It starts a conversation of its own.
    pub fn driven(
        pool: Arc<SessionPool<F::Message>>,
        frontend: Arc<F>,
        key: SessionKey,
    ) -> (Self, mpsc::Sender<FrontendInput<F>>) {
        let (mailbox, inputs) = mpsc::channel(MAILBOX_CAPACITY);
        let scope = ConversationScope::Own(None);
        (Self { scope, ..Self::new(pool, frontend, key, inputs, None) }, mailbox)
    }

    pub fn conversation(&self) -> Option<&Conversation> {
        self.conversation.as_ref()
    }

    pub fn tools(&self) -> Option<&Arc<ToolContext>> {
        self.tools.as_ref()
    }

    pub fn has_background_tasks(&self) -> bool {
        !self.pool.background_tasks(&self.key).is_empty()
    }

    /// The next input that waits.
    pub fn next_waiting(&mut self) -> Option<FrontendInput<F>> {
        self.next.pop_front().or_else(|| self.mailbox.try_recv().ok())
    }

    /// Processes an input after those that wait.
    pub fn push_back(&mut self, input: FrontendInput<F>) {
        self.next.push_back(input);
    }

    /// Processes inputs from the mailbox.
    pub(crate) async fn run(mut self) {
        match self.task.clone() {
            Some(task) => self.run_task(&task).await,
            None => self.run_session().await,
        }
    }

    /// Runs a background task: one message and the notices of its processes. Only the reply remains
    /// afterwards.
    async fn run_task(&mut self, task: &BackgroundTask) {
        // The input is sent when the session is created.
        let Some(input) = self.mailbox.recv().await else { return };
        let (message, person) = (input.message.clone(), input.person.clone());
        self.process_unattended(input, &task.stop).await;
        while let Some(tools) = self.tools.clone().filter(|tools| tools.has_subscriptions()) {
            tokio::select! {
                biased;
                () = task.stop.cancelled() => break,
                // The next start finds the processes.
                None = self.mailbox.recv() => return,
                notice = tools.next_process_event() => self.handle_notice(&notice).await,
            }
        }
        if let Err(error) = self.end_conversation("done", &message, &person).await {
            tracing::warn!(%error, "cannot clean up background task");
        }
        self.pool.remove_task(&self.key);
        self.pool.remove_session(&self.key, &self.mailbox, &*self.frontend);
    }

    /// Processes inputs until the session is idle and no process notice is pending.
    async fn run_session(&mut self) {
        loop {
            let tools = self.tools.clone();
            let notice = async {
                match &tools {
                    Some(tools) => tools.next_process_event().await,
                    None => pending().await,
                }
            };
            let input = match self.next.pop_front() {
                Some(input) => input,
                None => tokio::select! {
                    biased;
                    input = self.mailbox.recv() => match input {
                        Some(input) => input,
                        None => return,
                    },
                    notice = notice => {
                        self.handle_notice(&notice).await;
                        continue;
                    }
                    () = tokio::time::sleep(IDLE_TIMEOUT) => {
                        let awaits = tools.is_some_and(|tools| tools.has_subscriptions());
                        if !awaits && self.pool.remove_session(&self.key, &self.mailbox, &*self.frontend) {
                            return;
                        }
                        continue;
                    }
                },
            };
            self.process_unattended(input, &CancellationToken::new()).await;
        }
    }

    /// Processes an input whose errors only the front end shows.
    async fn process_unattended(&mut self, input: FrontendInput<F>, stop: &CancellationToken) {
        if let Err(error) = self.process(input, stop).await {
            tracing::debug!(%error, "input failed");
        }
    }

    /// Passes a process notice to the model, as a turn of the last sender.
    async fn handle_notice(&mut self, notice: &str) {
        let Some(input) = self.last.take() else { return };
        // A user who lost access must not reach the model through a process.
        if !self.frontend.has_access(&input).await {
            let person = input.person.as_str();
            return tracing::info!(person, "process notice dropped: the user lost access");
        }
        let stop = self.task.as_ref().map(|task| task.stop.clone()).unwrap_or_default();
        if let Err(error) = self.run_turn(&input, TurnStart::Text(notice), &stop).await {
            tracing::warn!(%error, "cannot deliver process notice");
        }
        self.last = Some(input);
    }

    /// Processes an input to its end, and inputs that arrive during it. Returns the end of its
    /// turn; none for a command.
    pub async fn process(
        &mut self,
        mut input: FrontendInput<F>,
        stop: &CancellationToken,
    ) -> Result<Option<TurnResult>, Error> {
        self.has_reported_overflow = false;
        self.frontend.set_input(&input);
        match input.command.clone().filter(|_| input.turn.is_none() && self.task.is_none()) {
            Some(command) => {
                self.run_command(input, command).await;
                Ok(None)
            }
            None => {
                self.reset_if_due(&mut input).await;
                self.frontend.on_message_started(&input);
                let result = self.run_message(&input, stop).await;
                let reason = result
                    .as_ref()
                    .map(|ended| ended.as_ref().map_or(&StopReason::Answered, |ended| &ended.stop_reason));
                self.frontend.on_message_ended(&input, reason).await;
                // The reply contained them.
                input.notes.clear();
                self.last = Some(input);
                result
            }
        }
    }

    /// Starts a new conversation if the current one is over because of its age.
    async fn reset_if_due(&mut self, input: &mut FrontendInput<F>) {
        let Ok(Some(current)) = self.current_session().await else { return };
        let Some(reset) = self.frontend.reset_due(input, &current) else { return };
        // An unfinished turn is resumed first.
        let is_done =
            input.turn.is_none() && matches!(self.store().current_turn(&current.id).await, Ok(None));
        let host = Arc::clone(&self.pool.host);
        if !is_done || host.has_running_processes(&self.key, &input.message, &input.person).await {
            return;
        }
        let error = self.end_conversation(reset.reason, &input.message, &input.person).await.err();
        if let Some(error) = &error {
            tracing::warn!(%error, "cannot end the expired conversation");
        }
        if let Some(note) = reset.note {
            input.notes.push(note);
            input.notes.extend(error.map(|error| error.to_string()));
        }
    }

    fn store(&self) -> &Store {
        &self.pool.store
    }

    /// The conversation that this session continues, if there is one.
    async fn current_session(&self) -> Result<Option<SessionRow>, hermes_store::Error> {
        match &self.scope {
            ConversationScope::Key => self.store().current_session(&self.key).await,
            ConversationScope::Own(None) => Ok(None),
            ConversationScope::Own(Some(id)) => self.store().session(id).await.map(Some),
        }
    }

    /// Answers a message. None if it was answered before Hermes stopped.
    async fn run_message(
        &mut self,
        input: &FrontendInput<F>,
        stop: &CancellationToken,
    ) -> Result<Option<TurnResult>, Error> {
        let open = self.open_turn(input).await?;
        if let Some(open) = open {
            // An interrupted turn comes first, even if another message started it.
            let ended = self.run_turn(input, TurnStart::Resume, stop).await?;
            if Some(open) == input.turn || stop.is_cancelled() {
                return Ok(Some(ended));
            }
        } else if input.turn.is_some() && self.frontend.is_finished(input).await? {
            return Ok(None);
        }
        self.run_turn(input, TurnStart::Message, stop).await.map(Some)
    }

    /// Opens the conversation for an input, without a turn.
    pub async fn open(&mut self, input: &FrontendInput<F>) -> Result<(), Error> {
        self.frontend.set_input(input);
        self.ensure_conversation(input).await
    }

    /// Resumes the interrupted turn of the conversation. Returns its end; none if there is none.
    pub async fn resume_turn(
        &mut self,
        input: &FrontendInput<F>,
        stop: &CancellationToken,
    ) -> Result<Option<TurnResult>, Error> {
        match self.open_turn(input).await? {
            Some(_) => self.run_turn(input, TurnStart::Resume, stop).await.map(Some),
            None => Ok(None),
        }
    }

    /// Opens the conversation, and returns its interrupted turn.
    async fn open_turn(&mut self, input: &FrontendInput<F>) -> Result<Option<TurnId>, Error> {
        self.ensure_conversation(input).await?;
        let Some(conversation) = &self.conversation else { return Err(Error::NoConversation) };
        Ok(self.store().current_turn(conversation.id()).await?.map(|open| open.id))
    }

    /// Runs a new or interrupted turn to completion and handles inputs that arrive during it.
    async fn run_turn(
        &mut self,
        input: &FrontendInput<F>,
        start: TurnStart<'_>,
        stop: &CancellationToken,
    ) -> Result<TurnResult, Error> {
        let (Some(mut conversation), Some(tools)) = (self.conversation.take(), self.tools.clone()) else {
            return Err(Error::NoConversation);
        };
        let resumed = match start {
            TurnStart::Message | TurnStart::Text(_) => None,
            TurnStart::Resume => self.describe_resumed(&conversation).await,
        };
        let stop = stop.child_token();
        let view = self.frontend.start_turn(input, start, resumed, &tools, &stop);
        let control = TurnControl::new(stop.clone(), view.journal());
        let observer = |event: TurnEvent| view.on_event(&event);
        let ended = {
            let frontend = Arc::clone(&self.frontend);
            let mut turn: BoxFuture<'_, _> = match start {
                TurnStart::Message => Box::pin(async {
                    // The stored turn refers to the files, so they are downloaded once.
                    let user_input = frontend.user_input(input, &tools, &stop).await;
                    conversation.run_turn(user_input, &control, &observer).await.map(Some)
                }),
                TurnStart::Text(text) => {
                    let turn = conversation.run_turn(text, &control, &observer);
                    Box::pin(async { turn.await.map(Some) })
                }
                TurnStart::Resume => Box::pin(conversation.resume_turn(&control, &observer)),
            };
            let during_turn = frontend.run_during_turn(input);
            tokio::pin!(during_turn);
            loop {
                let other = tokio::select! {
                    ended = &mut turn => break ended,
                    Some(other) = self.mailbox.recv() => other,
                    never = &mut during_turn => match never {},
                };
                self.handle_while_busy(other, &control).await;
            }
        };
        self.conversation = Some(conversation);
        view.close().await;
        let (pending, exit) = match &ended {
            Ok(Some(ended)) => (ended.pending_steer.clone(), Some(&ended.stop_reason)),
            _ => (control.take_pending_steer(), None),
        };
        self.requeue_steers(pending, exit).await;
        let ended = ended.map_err(Error::Turn)?.ok_or(Error::NothingToResume)?;
        self.frontend.on_turn_ended(&ended);
        Ok(ended)
    }

    /// What an interrupted turn did before.
    async fn describe_resumed(&self, conversation: &Conversation) -> Option<ResumedTurn> {
        let open = self.store().current_turn(conversation.id()).await.ok().flatten()?;
        let steps = conversation.history().iter().rev();
        let steps = steps.take_while(|message| !matches!(message, Message::User { .. }));
        let calls = steps.flat_map(Message::calls).map(|call| call.id.clone()).collect();
        Some(ResumedTurn { started: open.started, calls })
    }

    /// Requeues steers that the model did not get. Those of an interrupted turn are dropped with
    /// it.
    async fn requeue_steers(&mut self, pending: Option<PendingSteer>, exit: Option<&StopReason>) {
        let mut steering = std::mem::take(&mut self.steering);
        let Some(PendingSteer { text, messages }) = pending else { return };
        if exit == Some(&StopReason::Interrupted) {
            return self.frontend.finish(messages).await;
        }
        if messages.is_empty() {
            // Inputs without a row cannot be told apart: the text is one message.
            let input = steering.pop().map(|input| input.with_input(text.as_str().into()));
            return input.into_iter().for_each(|input| self.next.push_front(input));
        }
        steering.retain(|input| input.inbox_id.is_some_and(|id| messages.contains(&id)));
        let waiting = std::mem::take(&mut self.next);
        self.next = steering.into_iter().chain(waiting).collect();
    }

    /// Handles an input that arrives during a turn.
    async fn handle_while_busy(&mut self, input: FrontendInput<F>, control: &TurnControl) {
        let input = match &input.command {
            Some(_) => Some(input),
            None => self.frontend.submit_clarification(input, self.tools.as_ref(), &control.stop),
        };
        let Some(input) = input else { return };
        if let Some(command) = &input.command
            && let Err(reason) = self.frontend.check_command(&input, command)
        {
            return self.frontend.reply(&input, reason.to_string().into()).await;
        }
        match (input.command.clone(), self.pool.busy) {
            (Some(SessionCommand::Stop(scope)), _) => {
                control.stop.cancel();
                self.stop_background(scope);
                self.frontend.reply(&input, "Stopped.".into()).await;
            }
            (Some(SessionCommand::New), _) | (None, BusyPolicy::Interrupt) => {
                control.stop.cancel();
                self.next.push_front(input);
            }
            (Some(SessionCommand::Steer(text)), _) => self.steer(input.with_text(text), control).await,
            (Some(SessionCommand::Queue(text)), _) => self.queue_input(input.with_text(text)).await,
            (Some(command), _) if command.while_busy() == WhileBusy::Runs => {
                self.run_command(input, command).await
            }
            (Some(_), _) => {
                let text = "A reply is still running. Wait for it, or stop it with /stop.";
                self.frontend.reply(&input, text.into()).await;
            }
            (None, BusyPolicy::Queue) => self.queue_input(input).await,
            (None, BusyPolicy::Steer) => self.steer(input, control).await,
        }
    }

    async fn queue_input(&mut self, input: FrontendInput<F>) {
        if self.next.len() < MAILBOX_CAPACITY {
            self.frontend.on_queued(&input);
            return self.next.push_back(input);
        }
        let is_first = !std::mem::replace(&mut self.has_reported_overflow, true);
        self.frontend.reject(input, is_first).await;
    }

    /// Passes an input to the running turn, or queues it if it needs a turn of its own.
    async fn steer(&mut self, input: FrontendInput<F>, control: &TurnControl) {
        let text = self.frontend.steer_text(&input).filter(|_| self.steering.len() < MAILBOX_CAPACITY);
        let Some(text) = text else { return self.queue_input(input).await };
        control.steer(text, input.inbox_id);
        self.frontend.on_steered(&input);
        self.steering.push(input);
    }

    /// The tools of the session, for the sender of this input.
    pub async fn open_tools(&mut self, input: &FrontendInput<F>) -> Result<Arc<ToolContext>, Error> {
        let current = self.current_session().await?;
        self.ensure_tools(input, current.as_ref())
    }

    fn ensure_tools(
        &mut self,
        input: &FrontendInput<F>,
        current: Option<&SessionRow>,
    ) -> Result<Arc<ToolContext>, Error> {
        let tools = match &self.tools {
            Some(tools) => Arc::clone(tools),
            None => {
                let tools = Arc::new(ToolContext::new(self.pool.host.session_setup(SessionRequest {
                    key: &self.key,
                    message: &input.message,
                    person: input.person.clone(),
                    attendance: input.attendance.clone(),
                    approver: self.frontend.approver(),
                    cwd: current.and_then(|current| current.cwd.as_deref()),
                })?));
                self.tools = Some(Arc::clone(&tools));
                tools
            }
        };
        tools.approvals().set_actor(input.person.clone(), input.attendance.clone());
        tools.approvals().set_question_policy(self.pool.question_policy(&self.key));
        Ok(tools)
    }

    /// Opens the conversation and its tools for the sender of this input.
    async fn ensure_conversation(&mut self, input: &FrontendInput<F>) -> Result<(), Error> {
        let current = self.current_session().await?;
        let current_id = current.as_ref().map(|current| &current.id);
        if self.conversation.as_ref().is_some_and(|known| current_id != Some(known.id())) {
            // It was ended elsewhere, together with its environment.
            (self.conversation, self.tools) = (None, None);
        }
        let tools = self.ensure_tools(input, current.as_ref())?;
        if self.conversation.is_some() {
            return Ok(());
        }
        let models = self.models_for(current.as_ref())?;
        let (model, _provider) = models.primary_model();
        let prompt =
            |tools: &ToolContext| self.pool.host.system_prompt(tools.config(), &model, &input.message);
        let conversation = match current {
            Some(current) => {
                let mut conversation =
                    Conversation::resume(Arc::clone(&tools), models.clone(), current.id).await?;
                if model != current.model {
                    conversation.set_model(models, prompt(&tools)).await?;
                }
                conversation
            }
            None => {
                let prompt = prompt(&tools);
                Conversation::create(tools, models, prompt, input.message.text()).await?
            }
        };
        if let ConversationScope::Own(own) = &mut self.scope {
            *own = Some(conversation.id().clone());
        }
        self.conversation = Some(conversation);
        Ok(())
    }

    /// The models of a conversation: the chosen one; at a terminal the one it was held with, unless
    /// its provider is another one now; or the default.
    fn models_for(&self, current: Option<&SessionRow>) -> Result<ModelConfig, Error> {
        let host = &self.pool.host;
        let chosen = self.pool.model_choice(&self.key);
        if let (None, Some(current), ConversationScope::Own(_)) = (&chosen, current, &self.scope)
            && let Ok(models) = host.model_for(Some(&current.model))
            && models.endpoints.first().is_some_and(|first| first.provider == current.provider)
        {
            return Ok(models);
        }
        host.model_for(chosen.as_deref())
    }

    /// Continues a stored conversation with the next input.
    pub async fn continue_conversation(&mut self, session: &SessionRow) {
        self.scope = ConversationScope::Own(Some(session.id.clone()));
        self.conversation = None;
        if session.key != self.key {
            self.key = session.key.clone();
            if let Some(tools) = self.tools.take().and_then(Arc::into_inner) {
                self.pool.host.release(tools).await;
            }
        }
    }

    /// Uses these tools from now on.
    pub fn set_tools(&mut self, tools: Arc<ToolContext>) {
        self.tools = Some(tools);
    }

    /// Ends the session, and its conversation unless it is going to be resumed. Returns its tools.
    pub async fn close(self, is_over: bool) -> Option<ToolContext> {
        if let Some(conversation) = self.conversation
            && is_over
            && let Err(error) = conversation.end("quit").await
        {
            tracing::warn!(%error, "cannot end the conversation");
        }
        Arc::into_inner(self.tools?)
    }
}
