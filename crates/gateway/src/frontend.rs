//! The front end of sessions in chats: turns what a session does into messages, reactions and rows
//! of the inbox and outbox.

mod approver;
mod attachments;
mod format;
mod streaming;

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use hermes_session::{
    Approver, BackgroundTask, CommandReply, ConversationReset, Error, Frontend, ResumedTurn, SessionCommand,
    SessionInput, StopReason, Surface, ToolContext, TurnEvent, TurnFrontend, TurnJournal, TurnResult,
    TurnStart, UserInput,
};
use hermes_store::{InboxId, NewOutboxRow, SessionRow};
use hermes_types::{Choice, Person, SessionKey, Timestamp, lock};
use serde_json::json;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::access::AccessDecision;
use crate::channel::{BoxFuture, OutboundMessage, Reaction};
use crate::context::GatewayContext;
use crate::message::{Chat, ContextMessage, InboundMessage};
use approver::ChatApprover;
pub(crate) use approver::parse_button;
use attachments::Uploader;
pub(crate) use format::{outbox_part, reply_parts};
use streaming::LiveReply;
pub(crate) use streaming::format_duration;
pub use streaming::{StreamingOptions, ToolProgress};

/// Reply to a message that does not fit into the queue.
pub(crate) const QUEUE_FULL_REPLY: &str = "Too many messages are waiting here. Please try again later.";

pub(crate) type ChatInput = SessionInput<InboundMessage>;

/// The front end of one session.
pub(crate) struct ChatFrontend {
    context: Arc<GatewayContext>,
    key: SessionKey,
    approver: Arc<ChatApprover>,
    /// Set in a background session.
    task: Option<BackgroundTask>,
    /// Sets the reaction of a message that is being answered. Only later reactions wait for it.
    seen: Mutex<Option<JoinHandle<()>>>,
}

impl ChatFrontend {
    pub(crate) fn new(
        context: Arc<GatewayContext>,
        key: SessionKey,
        chat: Chat,
        task: Option<BackgroundTask>,
    ) -> Self {
        let approver = Arc::new(ChatApprover::new(Arc::clone(&context), key.clone(), chat));
        Self { context, key, approver, task, seen: Mutex::default() }
    }

    /// Restarts, but only once the command is done: otherwise the next start would restart again.
    async fn restart(&self, input: &ChatInput) {
        self.reply(input, "Restarting as soon as running replies have finished.".into()).await;
        let requested = match self.is_finished(input).await {
            Ok(true) => self.context.host.request_restart(&input.message.chat, &input.message.id),
            Ok(false) => Err(Error::Host("cannot write to the database".to_owned())),
            Err(error) => Err(error),
        };
        if let Err(error) = requested {
            let text = format!("Could not restart: {error}");
            self.context.outbox.send_notice(&input.message.chat, &text).await;
        }
    }
}

impl Frontend for ChatFrontend {
    type Message = InboundMessage;
    type Turn = LiveReply;

    const SURFACE: Surface = Surface::Chat;

    fn for_background_task(&self, key: &SessionKey, task: Option<BackgroundTask>) -> Self {
        Self::new(Arc::clone(&self.context), key.clone(), self.approver.chat(), task)
    }

    fn approver(&self) -> Arc<dyn Approver> {
        Arc::clone(&self.approver) as Arc<dyn Approver>
    }

    fn set_input(&self, input: &ChatInput) {
        self.approver.set_target(input);
    }

    async fn has_access(&self, input: &ChatInput) -> bool {
        match self.context.access.check(&input.message.chat, &input.message.sender).await {
            Ok(decision) => matches!(decision, AccessDecision::Granted(_)),
            Err(error) => {
                tracing::error!(%error, "access check failed");
                false
            }
        }
    }

    fn check_command(&self, input: &ChatInput, command: &SessionCommand) -> Result<(), Error> {
        self.context.access.check_command(&input.message.chat, input.role, command)
    }

    fn reset_due(&self, input: &ChatInput, session: &SessionRow) -> Option<ConversationReset> {
        let at = input.message.sent_at.min(Timestamp::now());
        self.context.settings.reset.reset_due(session.touched, at)
    }

    async fn reply(&self, input: &ChatInput, reply: CommandReply) {
        let text = match reply {
            CommandReply::Text(text) => text,
            CommandReply::Table(rows) => {
                let lines: String =
                    rows.iter().map(|(label, value)| format!("{label:<13}{value}\n")).collect();
                format!("```\n{lines}```")
            }
            CommandReply::Commands(commands) => {
                let lines = commands.iter().map(|spec| format!("`{}` {}", spec.usage(), spec.summary));
                lines.collect::<Vec<_>>().join("\n")
            }
        };
        let text = self.task.as_ref().map_or_else(|| text.clone(), |task| task.with_header(&text));
        let parts = format::reply_parts(&self.context.channel, &self.key, &input.message, &text);
        self.context.outbox.enqueue(input.inbox_id.into_iter().collect(), parts).await;
        if let Some(interaction) = input.message.interaction.clone() {
            let channel = Arc::clone(&self.context.channel);
            self.context.spawn(async move { channel.reply_privately(&interaction, "Done.").await });
        }
    }

    async fn finish(&self, inputs: Vec<InboxId>) {
        self.context.outbox.enqueue(inputs, Vec::new()).await;
    }

    async fn is_finished(&self, input: &ChatInput) -> Result<bool, Error> {
        let platform = input.message.chat.platform.as_str();
        let waiting = self.context.store.pending_inbox(platform).await?;
        Ok(!waiting.iter().any(|row| Some(row.id) == input.inbox_id))
    }

    async fn reject(&self, input: ChatInput, is_first: bool) {
        // Replied once; further messages only get a reaction.
        if is_first {
            self.reply(&input, QUEUE_FULL_REPLY.into()).await;
        } else {
            self.finish(input.inbox_id.into_iter().collect()).await;
        }
        let channel = Arc::clone(&self.context.channel);
        self.context.spawn(async move { channel.set_reaction(&input.message, Reaction::Failed).await });
    }

    fn submit_clarification(
        &self,
        input: ChatInput,
        tools: Option<&Arc<ToolContext>>,
        stop: &CancellationToken,
    ) -> Option<ChatInput> {
        let Some(answer) = self.approver.take_clarification(&input) else { return Some(input) };
        let (context, tools) = (Arc::clone(&self.context), tools.cloned());
        let (key, stop) = (self.key.clone(), stop.clone());
        self.context.spawn(async move {
            let files = match &tools {
                Some(tools) => attachments::download(&context, tools, &input.message, &stop).await,
                None => attachments::Downloaded::default(),
            };
            let text = format::with_attachments(&input.message.text, &files.descriptions);
            match (answer.send(text), input.inbox_id) {
                (Ok(()), inbox_id) => {
                    context.outbox.enqueue(inbox_id.into_iter().collect(), Vec::new()).await
                }
                // The model stopped waiting: the input is a normal message.
                (Err(_), _) => context.dispatch(&key, input),
            }
        });
        None
    }

    async fn answer_question(&self, input: &ChatInput, id: &str, choice: Choice) -> String {
        self.context.answer_question(id, &input.person, input.role, choice).await
    }

    fn steer_text(&self, input: &ChatInput) -> Option<String> {
        let text = || {
            let scope = self.context.settings.scope;
            format::user_prompt(&input.message, &[], &[], scope, Timestamp::now())
        };
        input.message.attachments.is_empty().then(text)
    }

    async fn user_input(
        &self,
        input: &ChatInput,
        tools: &Arc<ToolContext>,
        stop: &CancellationToken,
    ) -> UserInput {
        let files = attachments::download(&self.context, tools, &input.message, stop).await;
        let earlier = context_messages(&self.context, &self.key, &input.message).await;
        let scope = self.context.settings.scope;
        let text =
            format::user_prompt(&input.message, &earlier, &files.descriptions, scope, Timestamp::now());
        UserInput { text, images: [input.images.clone(), files.images].concat() }
    }

    fn on_message_started(&self, input: &ChatInput) {
        self.context.outbox.set_active_reply(&self.key, &input.message);
        let (channel, message) = (Arc::clone(&self.context.channel), input.message.clone());
        *lock(&self.seen) = Some(tokio::spawn(async move {
            if message.interaction.is_none() {
                channel.set_reaction(&message, Reaction::Seen).await;
            }
        }));
    }

    async fn on_message_ended(&self, input: &ChatInput, result: Result<&StopReason, &Error>) {
        let reaction = match result {
            Ok(StopReason::Answered) => Reaction::Done,
            Ok(StopReason::Interrupted) => Reaction::Nothing,
            Ok(_) => Reaction::Failed,
            Err(error) => {
                self.reply(input, error.to_string().into()).await;
                Reaction::Failed
            }
        };
        self.context.outbox.wake();
        let (channel, message) = (Arc::clone(&self.context.channel), input.message.clone());
        let (outbox, key) = (Arc::clone(&self.context.outbox), self.key.clone());
        let seen = lock(&self.seen).take();
        self.context.spawn(async move {
            if let Some(seen) = seen {
                seen.await.ok();
            }
            let reaction = if outbox.has_failed_delivery(&key) { Reaction::Failed } else { reaction };
            match &message.interaction {
                Some(interaction) => channel.reply_privately(interaction, "Done.").await,
                None => channel.set_reaction(&message, reaction).await,
            }
        });
    }

    fn start_turn(
        &self,
        input: &ChatInput,
        start: TurnStart<'_>,
        resumed: Option<ResumedTurn>,
        tools: &Arc<ToolContext>,
        stop: &CancellationToken,
    ) -> Arc<LiveReply> {
        let late = format::lateness_note(&input.message, Timestamp::now());
        let uploader =
            Uploader { tools: Arc::clone(tools), stop: stop.clone(), person: input.person.clone() };
        let inbox_id = input.inbox_id.filter(|_| matches!(start, TurnStart::Message));
        let notes = late.into_iter().chain(input.notes.iter().cloned()).collect();
        LiveReply::start(self, input, inbox_id, notes, uploader, resumed)
    }

    async fn run_during_turn(&self, input: &ChatInput) -> Infallible {
        let mut typing = tokio::time::interval(self.context.channel.capabilities().typing_interval);
        loop {
            typing.tick().await;
            if !self.approver.is_waiting() {
                let (channel, chat) = (Arc::clone(&self.context.channel), input.message.chat.id.clone());
                self.context.spawn(async move { channel.show_typing(&chat).await });
            }
        }
    }

    fn on_turn_ended(&self, _result: &TurnResult) {
        self.context.outbox.wake();
    }

    async fn start_background_task(
        &self,
        input: &ChatInput,
        key: &SessionKey,
        title: &str,
    ) -> Result<(), Error> {
        // From here on a restart resumes it as a background task.
        if let Some(inbox_id) = input.inbox_id {
            self.context.store.reassign(inbox_id, key, json!(input.message)).await?;
        }
        let outbound = OutboundMessage::text(format!("[{title}]\nStarted. The reply will be posted here."));
        let part_key = Some(format!("begun:{}", key.as_str()));
        self.context.outbox.send(key, &input.message.chat.id, vec![(part_key, outbound)]).await;
        Ok(())
    }

    fn on_approvals_changed(&self, person: &Person, is_asking: bool) {
        let entry = json!({ "person": person, "session": self.key, "asks": is_asking });
        self.context.audit.record("yolo", &entry);
    }

    async fn run_own_command(&self, input: &ChatInput, command: &SessionCommand) {
        if *command == SessionCommand::Restart {
            return self.restart(input).await;
        }
        let (chat, at) = (&input.message.chat, Timestamp::now());
        let text =
            match self.context.store.set_home_chat(chat.platform.as_str(), &chat.id, &input.person, at).await
            {
                Ok(()) => "This chat is now the home channel.".to_owned(),
                Err(error) => error.to_string(),
            };
        self.reply(input, text.into()).await;
    }

    fn on_closed(&self) {
        self.context.outbox.clear_active_reply(&self.key);
    }
}

impl TurnFrontend for LiveReply {
    fn on_event(&self, event: &TurnEvent) {
        if let TurnEvent::ToolStarted { tool, preview, .. } = event {
            let place = &self.uploader.tools.config().place;
            let call = json!({
                "person": self.uploader.person,
                "session": self.key,
                "tool": tool,
                "what": preview,
                "place": place.name(),
                "backend": place.backend_name().to_string(),
            });
            self.context.audit.record("call", &call);
        }
        self.update_state(event);
    }

    fn journal(self: &Arc<Self>) -> Arc<dyn TurnJournal> {
        Arc::clone(self) as Arc<dyn TurnJournal>
    }

    async fn close(&self) {
        self.stop_rendering().await;
    }
}

/// The message of a turn is marked done in the transaction that enqueues the reply.
impl TurnJournal for LiveReply {
    fn inbox_ids(&self) -> Vec<InboxId> {
        self.inbox_id.into_iter().collect()
    }

    fn reply_rows<'a>(&'a self, reason: &'a StopReason, text: &'a str) -> BoxFuture<'a, Vec<NewOutboxRow>> {
        Box::pin(self.finish(reason, text))
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
