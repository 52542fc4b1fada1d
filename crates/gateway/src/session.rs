//! One session: its task processes one message after the other, and handles messages that arrive
//! during a turn.

mod approver;
mod attachments;
mod commands;
mod format;
mod streaming;

use std::collections::VecDeque;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hermes_agent::{
    Conversation, PendingSteer, ReplyFn, ReplySink, StopReason, ToolContext, TurnControl, TurnEvent,
    TurnResult, UserInput,
};
use hermes_store::{InboxId, Store, TurnId};
use hermes_types::{Attendance, Image, Message, Person, SessionKey, Timestamp};
use tokio::sync::{mpsc, oneshot};

use crate::access::{AccessDecision, UserRole};
use crate::background::BackgroundTask;
use crate::channel::{BoxFuture, Channel, Reaction};
use crate::command::{self, ChatCommand};
use crate::context::GatewayContext;
use crate::error::Error;
use crate::host::SessionRequest;
use crate::message::{ContextMessage, InboundMessage};
use approver::ChatApprover;
pub(crate) use approver::{answer_text, parse_button};
use attachments::Uploader;
pub(crate) use format::{outbox_part, reply_parts};
use streaming::LiveReply;
pub use streaming::{StreamingOptions, ToolProgress};

/// Inputs that may wait for a session; more are rejected.
pub(crate) const MAILBOX_CAPACITY: usize = 64;
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Replies to older messages say how old the message is.
const LATE_AFTER_SECONDS: u64 = 600;
/// Reply to a message that does not fit into the queue.
pub(crate) const QUEUE_FULL_REPLY: &str = "Too many messages are waiting here. Please try again later.";

/// What starts a turn.
#[derive(Debug, Clone, Copy)]
enum TurnStart<'a> {
    /// The inbound message with its attachments.
    Message,
    Text(&'a str),
    /// The interrupted turn.
    Resume,
}

/// An inbound message on its way through a session.
#[derive(Debug)]
pub(crate) struct SessionInput {
    pub(crate) inbox_id: InboxId,
    pub(crate) message: InboundMessage,
    /// Set if the message is a command.
    pub(crate) command: Option<ChatCommand>,
    /// Images in addition to its attachments.
    pub(crate) images: Vec<Image>,
    pub(crate) person: Person,
    pub(crate) role: UserRole,
    pub(crate) approvers: Vec<Person>,
    /// The turn that was answering it when Hermes stopped.
    pub(crate) turn: Option<TurnId>,
    /// Notes appended to the reply.
    pub(crate) notes: Vec<String>,
}

impl SessionInput {
    fn with_text(self, text: String) -> Self {
        let message = InboundMessage { text, ..self.message };
        Self { command: ChatCommand::from_message(&message), message, ..self }
    }

    fn with_input(self, input: UserInput) -> Self {
        Self { images: input.images, ..self.with_text(input.text) }
    }
}

/// What happens to a message that arrives during a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BusyPolicy {
    Queue,
    /// The turn is stopped, and the message is next.
    Interrupt,
    /// The model gets it with the next tool result.
    Steer,
}

/// One session: processes its inputs one after the other.
pub(crate) struct ChatSession {
    context: Arc<GatewayContext>,
    key: SessionKey,
    mailbox: mpsc::Receiver<SessionInput>,
    /// Inputs to process before those in the mailbox.
    next: VecDeque<SessionInput>,
    /// Messages passed to the running turn.
    steering: Vec<SessionInput>,
    tools: Option<Arc<ToolContext>>,
    conversation: Option<Conversation>,
    approver: Arc<ChatApprover>,
    /// Model chosen with `/model`.
    model: Option<String>,
    /// The last answered input.
    last: Option<SessionInput>,
    /// Whether the chat knows that the queue is full.
    has_reported_overflow: bool,
    /// Set if this is a background task.
    task: Option<BackgroundTask>,
}

impl ChatSession {
    pub(crate) fn new(
        context: Arc<GatewayContext>,
        key: SessionKey,
        mailbox: mpsc::Receiver<SessionInput>,
        first: &InboundMessage,
    ) -> Self {
        let approver = Arc::new(ChatApprover::new(Arc::clone(&context), key.clone(), first.chat.clone()));
        let task = context.background.register(&key, format::task_title(&first.text));
        Self {
            task,
            context,
            key,
            mailbox,
            next: VecDeque::new(),
            steering: Vec::new(),
            tools: None,
            conversation: None,
            approver,
            model: None,
            last: None,
            has_reported_overflow: false,
        }
    }

    pub(crate) async fn run(mut self) {
        match self.task.clone() {
            Some(task) => self.run_task(&task).await,
            None => self.run_chat().await,
        }
    }

    /// Runs a background task: one message and the notices of its processes. Only the reply remains
    /// afterwards.
    async fn run_task(&mut self, task: &BackgroundTask) {
        // The input is sent when the session is created.
        let Some(input) = self.mailbox.recv().await else { return };
        let (chat, person) = (input.message.chat.clone(), input.person.clone());
        self.process(input).await;
        while let Some(tools) = self.tools.clone().filter(|tools| tools.has_subscriptions()) {
            tokio::select! {
                biased;
                () = task.stop.cancelled() => break,
                // The next start finds the processes.
                None = self.mailbox.recv() => return,
                notice = tools.next_process_event() => self.handle_notice(&notice).await,
            }
        }
        if let Err(error) = self.end_conversation("done", &chat, &person).await {
            tracing::warn!(%error, "cannot clean up background task");
        }
        self.context.background.remove(&self.key);
        self.context.remove_session(&self.key, &self.mailbox);
    }

    /// Processes inputs until the session is idle and no process notice is pending.
    async fn run_chat(&mut self) {
        loop {
            if let Some(input) = self.next.pop_front() {
                self.process(input).await;
                continue;
            }
            let tools = self.tools.clone();
            let notice = async {
                match &tools {
                    Some(tools) => tools.next_process_event().await,
                    None => pending().await,
                }
            };
            tokio::select! {
                biased;
                input = self.mailbox.recv() => match input {
                    Some(input) => self.process(input).await,
                    None => return,
                },
                notice = notice => self.handle_notice(&notice).await,
                () = tokio::time::sleep(IDLE_TIMEOUT) => {
                    let awaits = tools.is_some_and(|tools| tools.has_subscriptions());
                    if !awaits && self.context.remove_session(&self.key, &self.mailbox) {
                        return;
                    }
                }
            }
        }
    }

    /// Passes a process notice to the model, as a turn of the last sender.
    async fn handle_notice(&mut self, notice: &str) {
        let Some(input) = self.last.take() else { return };
        // A user who lost access must not reach the model through a process.
        match self.context.access.check(&input.message.chat, &input.message.sender).await {
            Ok(AccessDecision::Granted(_)) => {}
            Ok(AccessDecision::Denied(_)) => {
                let person = input.person.as_str();
                return tracing::info!(person, "process notice dropped: the user lost access");
            }
            Err(error) => return tracing::error!(%error, "access check failed"),
        }
        if let Err(error) = self.run_turn(&input, TurnStart::Text(notice)).await {
            tracing::warn!(%error, "cannot pass on process notice");
        }
        self.last = Some(input);
        self.context.outbox.wake();
    }

    async fn process(&mut self, mut input: SessionInput) {
        self.has_reported_overflow = false;
        self.approver.set_target(&input);
        match input.command.clone().filter(|_| input.turn.is_none() && self.task.is_none()) {
            Some(command) => self.run_command(input, command).await,
            None => {
                self.reset_if_due(&mut input).await;
                self.answer_message(input).await;
            }
        }
    }

    /// Starts a new conversation if the reset policy says so.
    async fn reset_if_due(&mut self, input: &mut SessionInput) {
        let Ok(Some(current)) = self.store().current_session(&self.key).await else { return };
        let Some(over) = self
            .context
            .settings
            .reset
            .reset_due(current.touched, input.message.sent_at.min(Timestamp::now()))
        else {
            return;
        };
        // An unfinished turn is resumed first.
        let is_done =
            input.turn.is_none() && matches!(self.store().current_turn(&current.id).await, Ok(None));
        let chat = &input.message.chat;
        if !is_done || self.context.host.has_running_processes(&self.key, chat, &input.person).await {
            return;
        }
        let left = self.end_conversation(over.as_str(), chat, &input.person).await.err();
        if let Some(error) = &left {
            tracing::warn!(%error, "cannot end the expired conversation");
        }
        if self.context.settings.reset.notify {
            input.notes.push(over.message());
            input.notes.extend(left.map(|error| error.to_string()));
        }
    }

    fn store(&self) -> &Store {
        &self.context.store
    }

    fn channel(&self) -> &Arc<dyn Channel> {
        &self.context.channel
    }

    /// Replies with a text of our own and marks the message done.
    async fn reply(&self, input: &SessionInput, text: &str) {
        let text = format::with_task_header(self.task.as_ref(), text);
        let parts = format::reply_parts(&self.context.channel, &self.key, &input.message, &text);
        self.context.outbox.enqueue(vec![input.inbox_id], parts).await;
        if let Some(interaction) = input.message.interaction.clone() {
            let channel = Arc::clone(self.channel());
            self.context.spawn(async move { channel.reply_privately(&interaction, "Done.").await });
        }
    }

    /// Runs a turn for a message.
    async fn answer_message(&mut self, mut input: SessionInput) {
        self.context.outbox.set_active_reply(&self.key, &input.message);
        let (channel, message) = (Arc::clone(self.channel()), input.message.clone());
        // Only later reactions wait for this one.
        let seen = tokio::spawn(async move {
            if message.interaction.is_none() {
                channel.set_reaction(&message, Reaction::Seen).await;
            }
        });
        let reaction = match self.run_message(&input).await {
            Ok(StopReason::Answered) => Reaction::Done,
            Ok(StopReason::Interrupted) => Reaction::Nothing,
            Ok(_) => Reaction::Failed,
            Err(error) => {
                self.reply(&input, &error.to_string()).await;
                Reaction::Failed
            }
        };
        self.context.outbox.wake();
        let (channel, message) = (Arc::clone(self.channel()), input.message.clone());
        let (outbox, key) = (Arc::clone(&self.context.outbox), self.key.clone());
        self.context.spawn(async move {
            seen.await.ok();
            let reaction = if outbox.has_failed_delivery(&key) { Reaction::Failed } else { reaction };
            match &message.interaction {
                Some(interaction) => channel.reply_privately(interaction, "Done.").await,
                None => channel.set_reaction(&message, reaction).await,
            }
        });
        // The reply contained them.
        input.notes.clear();
        self.last = Some(input);
    }

    async fn run_message(&mut self, input: &SessionInput) -> Result<StopReason, Error> {
        self.ensure_conversation(input).await?;
        let Some(conversation) = &self.conversation else {
            return Err(Error::NoConversation);
        };
        let open = self.store().current_turn(conversation.id()).await?;
        let is_ours = open.as_ref().is_some_and(|open| Some(open.id) == input.turn);
        if open.is_some() {
            // An interrupted turn comes first, even if another message started it.
            let ended = self.run_turn(input, TurnStart::Resume).await?;
            if is_ours {
                return Ok(ended.stop_reason);
            }
        } else if input.turn.is_some() && self.is_finished(input).await? {
            return Ok(StopReason::Answered);
        }
        Ok(self.run_turn(input, TurnStart::Message).await?.stop_reason)
    }

    async fn is_finished(&self, input: &SessionInput) -> Result<bool, Error> {
        let platform = input.message.chat.platform.as_str();
        let waiting = self.store().pending_inbox(platform).await?;
        Ok(!waiting.iter().any(|message| message.id == input.inbox_id))
    }

    /// Runs a new or interrupted turn to completion and handles messages that arrive during it.
    async fn run_turn(&mut self, input: &SessionInput, begin: TurnStart<'_>) -> Result<TurnResult, Error> {
        let (Some(mut conversation), Some(tools)) = (self.conversation.take(), self.tools.clone()) else {
            return Err(Error::NoConversation);
        };
        let inbox_ids = match begin {
            TurnStart::Message => vec![input.inbox_id],
            TurnStart::Text(_) | TurnStart::Resume => Vec::new(),
        };
        let live = self.live_reply(input, &conversation, begin).await;
        let mut control = TurnControl::with_reply_sink(ReplySink { messages: inbox_ids, reply: None });
        if let Some(task) = &self.task {
            control.stop = task.stop.clone();
        }
        let uploader =
            Uploader { tools: Arc::clone(&tools), stop: control.stop.clone(), person: input.person.clone() };
        control.reply_sink.reply = Some(self.reply_fn(input, Arc::clone(&live), uploader));
        let context = Arc::clone(&self.context);
        let (key, person, view) = (self.key.clone(), input.person.clone(), Arc::clone(&live));
        let call_tools = Arc::clone(&tools);
        let watch = move |event: TurnEvent| {
            context.audit.record_call(&key, &person, call_tools.config(), &event);
            view.on_event(&event);
        };
        let (context, own_key) = (Arc::clone(&self.context), self.key.clone());
        let ended = {
            let mut turn: BoxFuture<'_, _> = match begin {
                TurnStart::Message => Box::pin(async {
                    // The stored turn refers to the files, so they are downloaded once.
                    let files = attachments::download(&context, &tools, &input.message, &control.stop).await;
                    let earlier = context_messages(&context, &own_key, &input.message).await;
                    let text = format::user_prompt(
                        &input.message,
                        &earlier,
                        &files.descriptions,
                        context.settings.scope,
                        Timestamp::now(),
                    );
                    let user_input =
                        UserInput { text, images: [input.images.clone(), files.images].concat() };
                    conversation.run_turn(user_input, &control, &watch).await.map(Some)
                }),
                TurnStart::Text(text) => {
                    let turn = conversation.run_turn(text, &control, &watch);
                    Box::pin(async { turn.await.map(Some) })
                }
                TurnStart::Resume => Box::pin(conversation.resume_turn(&control, &watch)),
            };
            let mut typing = tokio::time::interval(self.channel().capabilities().typing_interval);
            loop {
                tokio::select! {
                    ended = &mut turn => break ended,
                    Some(other) = self.mailbox.recv() => self.handle_while_busy(other, &control).await,
                    _ = typing.tick() => {
                        if !self.approver.is_waiting() {
                            let (channel, chat) = (Arc::clone(self.channel()), input.message.chat.id.clone());
                            self.context.spawn(async move { channel.show_typing(&chat).await });
                        }
                    }
                }
            }
        };
        self.conversation = Some(conversation);
        live.stop_rendering().await;
        match &ended {
            Ok(Some(ended)) => self.requeue_steers(ended.pending_steer.clone(), &ended.stop_reason).await,
            _ => self.requeue_steers(control.take_pending_steer(), &StopReason::Answered).await,
        }
        match ended {
            Ok(Some(ended)) => Ok(ended),
            Ok(None) => Err(Error::NothingToResume),
            Err(error) => Err(Error::Turn(error)),
        }
    }

    /// The live reply of a new or resumed turn.
    async fn live_reply(
        &self,
        input: &SessionInput,
        conversation: &Conversation,
        begin: TurnStart<'_>,
    ) -> Arc<LiveReply> {
        let open = match begin {
            TurnStart::Message | TurnStart::Text(_) => None,
            TurnStart::Resume => self.store().current_turn(conversation.id()).await.ok().flatten(),
        };
        let (started, calls) = open.map_or_else(
            || (Timestamp::now(), Vec::new()),
            |open| {
                let since = conversation.history().iter().rev();
                let since = since.take_while(|message| !matches!(message, Message::User { .. }));
                (open.started, since.flat_map(Message::calls).map(|call| call.id.clone()).collect())
            },
        );
        LiveReply::start(
            Arc::clone(&self.context),
            self.key.clone(),
            input.message.clone(),
            Arc::clone(&self.approver),
            self.task.clone(),
            started,
            calls,
        )
    }

    /// The function that turns the end of a turn into outbox parts.
    fn reply_fn(&self, input: &SessionInput, live: Arc<LiveReply>, uploader: Uploader) -> ReplyFn {
        let late = format::lateness_note(&input.message, Timestamp::now(), LATE_AFTER_SECONDS);
        let notes: Vec<String> = late.into_iter().chain(input.notes.iter().cloned()).collect();
        let shared = Arc::new((live, notes, uploader));
        Arc::new(move |exit: &StopReason, text: &str| {
            let (shared, exit, text) = (Arc::clone(&shared), exit.clone(), text.to_owned());
            Box::pin(async move {
                let (live, notes, uploader) = &*shared;
                live.finish(&exit, &text, notes, uploader).await
            })
        })
    }

    /// Requeues steers that the model did not get. Those of an interrupted turn are dropped with
    /// it.
    async fn requeue_steers(&mut self, pending: Option<PendingSteer>, exit: &StopReason) {
        let inbox_ids = pending.map(|pending| pending.messages).unwrap_or_default();
        let pending = self.steering.drain(..).filter(|input| inbox_ids.contains(&input.inbox_id));
        if *exit != StopReason::Interrupted {
            let waiting = std::mem::take(&mut self.next);
            self.next = pending.chain(waiting).collect();
            return;
        }
        drop(pending);
        self.context.outbox.enqueue(inbox_ids, Vec::new()).await;
    }

    /// Handles an input that arrives during a turn.
    async fn handle_while_busy(&mut self, input: SessionInput, control: &TurnControl) {
        let command = input.command.clone();
        if command.is_none()
            && let Some(wanted) = self.approver.take_clarification(&input)
        {
            return self.answer_clarification(input, wanted, control);
        }
        if let Some(command) = &command
            && let Err(reason) = self.context.access.check_command(&input.message.chat, input.role, command)
        {
            return self.reply(&input, &reason.to_string()).await;
        }
        match (command, self.context.settings.busy) {
            (Some(ChatCommand::Stop(extent)), _) => {
                control.stop.cancel();
                self.stop_background(extent);
                self.reply(&input, "Stopped.").await;
            }
            (Some(ChatCommand::New), _) => {
                control.stop.cancel();
                self.next.push_front(input);
            }
            (Some(ChatCommand::Steer(text)), _) => self.steer(input.with_text(text), control).await,
            (Some(ChatCommand::Queue(text)), _) => self.queue_input(input.with_text(text)).await,
            (Some(command), _) if command.while_busy() == command::WhileBusy::Runs => {
                self.run_command(input, command).await
            }
            (Some(_), _) => {
                self.reply(&input, "A reply is still running. Wait for it, or stop it with /stop.").await
            }
            (None, BusyPolicy::Queue) => self.queue_input(input).await,
            (None, BusyPolicy::Interrupt) => {
                control.stop.cancel();
                self.next.push_front(input);
            }
            (None, BusyPolicy::Steer) => self.steer(input, control).await,
        }
    }

    /// Answers a clarification question with text and attachments. If the model stopped waiting,
    /// the input becomes a normal message.
    fn answer_clarification(
        &self,
        input: SessionInput,
        wanted: oneshot::Sender<String>,
        control: &TurnControl,
    ) {
        let (context, tools) = (Arc::clone(&self.context), self.tools.clone());
        let (key, stop) = (self.key.clone(), control.stop.clone());
        self.context.spawn(async move {
            let files = match &tools {
                Some(tools) => attachments::download(&context, tools, &input.message, &stop).await,
                None => attachments::Downloaded::default(),
            };
            match wanted.send(format::with_attachments(&input.message.text, &files.descriptions)) {
                Ok(()) => context.outbox.finish_message(input.inbox_id).await,
                Err(_) => context.dispatch(&key, input),
            }
        });
    }

    async fn queue_input(&mut self, input: SessionInput) {
        if self.next.len() < MAILBOX_CAPACITY {
            return self.next.push_back(input);
        }
        // Replied once; further messages only get a reaction.
        if std::mem::replace(&mut self.has_reported_overflow, true) {
            self.context.outbox.finish_message(input.inbox_id).await;
        } else {
            self.reply(&input, QUEUE_FULL_REPLY).await;
        }
        let channel = Arc::clone(self.channel());
        self.context.spawn(async move { channel.set_reaction(&input.message, Reaction::Failed).await });
    }

    /// Passes a message to the running turn. One with attachments waits for its own turn.
    async fn steer(&mut self, input: SessionInput, control: &TurnControl) {
        if self.steering.len() >= MAILBOX_CAPACITY || !input.message.attachments.is_empty() {
            return self.queue_input(input).await;
        }
        let text =
            format::user_prompt(&input.message, &[], &[], self.context.settings.scope, Timestamp::now());
        control.steer_with_message(input.inbox_id, text);
        self.steering.push(input);
    }

    /// Opens the conversation and its tools for the sender of this input.
    async fn ensure_conversation(&mut self, input: &SessionInput) -> Result<(), Error> {
        let current = self.store().current_session(&self.key).await?;
        let current = current.map(|session| session.id);
        if self.conversation.as_ref().is_some_and(|known| current.as_ref() != Some(known.id())) {
            // It was ended elsewhere, together with its environment.
            (self.conversation, self.tools) = (None, None);
        }
        let attendance = Attendance::Attended(input.approvers.clone());
        let tools = match &self.tools {
            Some(tools) => Arc::clone(tools),
            None => {
                let request = SessionRequest {
                    key: self.key.clone(),
                    chat: input.message.chat.clone(),
                    person: input.person.clone(),
                    attendance: attendance.clone(),
                    approver: Arc::clone(&self.approver) as Arc<dyn hermes_agent::Approver>,
                };
                let tools = Arc::new(ToolContext::new(self.context.host.session_setup(request).await?));
                self.tools = Some(Arc::clone(&tools));
                tools
            }
        };
        tools.approvals().set_actor(input.person.clone(), attendance);
        tools.approvals().set_question_policy(self.context.approvals.mode(&self.key));
        if self.conversation.is_some() {
            return Ok(());
        }
        let models = self.context.host.model_for(self.model.as_deref())?;
        let conversation = match current {
            Some(current) => Conversation::resume(tools, models, current).await,
            None => {
                let model = models.endpoints.first().map(|first| first.model.clone()).unwrap_or_default();
                let prompt = self.context.host.system_prompt(tools.config(), &model, &input.message.chat);
                Conversation::create(tools, models, prompt, &input.message.text).await
            }
        };
        self.conversation = Some(conversation?);
        Ok(())
    }
}

/// Messages of others before this one that the session has not seen.
async fn context_messages(
    context: &GatewayContext,
    key: &SessionKey,
    message: &InboundMessage,
) -> Vec<ContextMessage> {
    let mut earlier = context.channel.context_before(message).await;
    if earlier.is_empty() {
        return earlier;
    }
    let messages = earlier.iter().map(|entry| entry.id.clone()).collect();
    let (platform, chat) = (message.chat.platform.as_str(), &message.chat.id);
    match context.store.inbox_messages_among(platform, chat, key, messages).await {
        Ok(known) => earlier.retain(|entry| !known.contains(&entry.id)),
        Err(error) => {
            tracing::warn!(%error, "cannot filter context messages");
            earlier.clear();
        }
    }
    earlier
}
