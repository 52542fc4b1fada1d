//! Shows a turn while it runs: the text as it is generated, and a status line about tool calls.
//!
//! Each such message starts as an outbox part whose key stays the same if another process resumes
//! the turn. Once sent, it is edited directly, and the edits are not persisted. Text that has to
//! stay is enqueued again as a part that replaces it: text before tool calls when the calls are
//! made, everything else at the end of the turn.

mod renderer;
mod status;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hermes_session::{BackgroundTask, ResumedTurn, StopReason, TurnEvent};
use hermes_store::{InboxId, NewOutboxRow, TurnId};
use hermes_types::{SessionKey, Timestamp, lock};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::approver::ChatApprover;
use super::attachments::Uploader;
use super::{ChatFrontend, ChatInput, format};
use crate::channel::OutboundMessage;
use crate::context::GatewayContext;
use crate::message::InboundMessage;
use crate::no_reply::may_become_no_reply;
use crate::split::split_message;
use renderer::Renderer;
use status::WorkStatus;
pub(crate) use status::format_duration;

/// Replaces the text of a streamed message that turned out to be superfluous.
const WITHDRAWN_TEXT: &str = "(withdrawn)";

/// What is shown of a running turn, on platforms where messages can be edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamingOptions {
    /// Time between edits of a streamed reply; `None` to show only the final reply.
    pub edit_interval: Option<Duration>,
    pub progress: ToolProgress,
    /// How often the status line is refreshed without news.
    pub refresh_interval: Option<Duration>,
}

/// Content of the status line of long turns.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ToolProgress {
    #[default]
    Off,
    /// Number of steps and the current tool.
    Names,
    /// Also what the tool is doing.
    All,
}

/// The visible state of one turn.
pub(crate) struct LiveReply {
    pub(super) context: Arc<GatewayContext>,
    pub(super) key: SessionKey,
    message: InboundMessage,
    pub(super) inbox_id: Option<InboxId>,
    notes: Vec<String>,
    pub(super) uploader: Uploader,
    approver: Arc<ChatApprover>,
    /// Set in a background session.
    task: Option<BackgroundTask>,
    started: Timestamp,
    state: Mutex<TurnState>,
    changed: Notify,
    renderer: Mutex<Option<JoinHandle<()>>>,
}

/// Events of the turn so far.
#[derive(Default)]
struct TurnState {
    turn: Option<TurnId>,
    reply: Option<PartialReply>,
    /// Texts followed by tool calls.
    finished: Vec<PartialReply>,
    status: WorkStatus,
    is_ending: bool,
}

/// The text of one model reply so far.
#[derive(Debug, Clone)]
struct PartialReply {
    step: u32,
    text: String,
    first_text_at: Option<Instant>,
}

impl LiveReply {
    /// Shows a turn.
    pub(super) fn start(
        frontend: &ChatFrontend,
        input: &ChatInput,
        inbox_id: Option<InboxId>,
        notes: Vec<String>,
        uploader: Uploader,
        resumed: Option<ResumedTurn>,
    ) -> Arc<Self> {
        let (started, calls) =
            resumed.map_or_else(|| (Timestamp::now(), Vec::new()), |before| (before.started, before.calls));
        let status = WorkStatus::new(frontend.context.settings.streaming.progress, calls);
        let live = Arc::new(Self {
            context: Arc::clone(&frontend.context),
            key: frontend.key.clone(),
            message: input.message.clone(),
            inbox_id,
            notes,
            uploader,
            approver: Arc::clone(&frontend.approver),
            task: frontend.task.clone(),
            started,
            state: Mutex::new(TurnState { status, ..TurnState::default() }),
            changed: Notify::new(),
            renderer: Mutex::default(),
        });
        if live.is_streaming()
            || live.context.channel.capabilities().can_edit
                && live.context.settings.streaming.progress != ToolProgress::Off
        {
            *lock(&live.renderer) = Some(tokio::spawn(Renderer::new(Arc::clone(&live)).run()));
        }
        live
    }

    pub(super) fn update_state(&self, event: &TurnEvent) {
        let mut state = lock(&self.state);
        state.status.on_event(event);
        match event {
            TurnEvent::ReplyStarted { turn, step, partial: so_far } => {
                state.turn = Some(*turn);
                if state.reply.as_ref().is_some_and(|answer| answer.step != *step) {
                    self.finish_step(&mut state);
                }
                let since = state.reply.as_ref().and_then(|answer| answer.first_text_at);
                state.reply = Some(PartialReply { step: *step, text: so_far.clone(), first_text_at: since });
            }
            TurnEvent::Text(text) => {
                if let Some(answer) = &mut state.reply {
                    answer.text.push_str(text);
                    answer.first_text_at.get_or_insert_with(Instant::now);
                }
            }
            TurnEvent::ToolStarted { .. } => self.finish_step(&mut state),
            _ => {}
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The reply was followed by tool calls.
    fn finish_step(&self, state: &mut TurnState) {
        let over = state.reply.take().filter(|_| self.is_streaming());
        state.finished.extend(over);
    }

    /// Stops rendering and waits for an edit in progress.
    pub(super) async fn stop_rendering(&self) {
        lock(&self.state).is_ending = true;
        self.changed.notify_one();
        let renderer = lock(&self.renderer).take();
        if let Some(renderer) = renderer {
            renderer.await.ok();
        }
    }

    /// The outbox parts of the finished turn.
    pub(super) async fn finish(&self, exit: &StopReason, text: &str) -> Vec<NewOutboxRow> {
        self.stop_rendering().await;
        let (turn, answer, summary) = {
            let mut state = lock(&self.state);
            (state.turn, state.reply.take(), state.status.summary(self.elapsed_seconds()))
        };
        let mut parts = Vec::new();
        if let Some(part_key) = turn.map(status_key)
            && matches!(self.context.store.delivery_state(&part_key).await, Ok(Some(_)))
        {
            parts.push(self.outbox_part(
                None,
                &OutboundMessage { replaces: Some(part_key), ..OutboundMessage::text(summary) },
            ));
        }
        let said = match &answer {
            // Already shown before the tool calls.
            None if self.is_streaming() && *exit != StopReason::Answered => "",
            Some(answer) if self.is_streaming() && text.is_empty() && !may_become_no_reply(&answer.text) => {
                &answer.text
            }
            _ => text,
        };
        let sent = self.uploader.collect(&self.context, &self.key, said).await;
        let mut text = self.with_header(&format::reply_text(exit, &sent, &self.notes));
        if *exit != StopReason::Answered {
            // A provider's error text may contain its API key.
            text = self.uploader.tools.config().redactor.redact(&text).into_owned();
        }
        match (turn, answer) {
            (Some(turn), Some(answer)) => {
                parts.extend(self.replacement_parts(turn, answer.step, &text, Finality::Final).await)
            }
            _ => parts.extend(format::reply_parts(&self.context.channel, &self.key, &self.message, &text)),
        }
        parts.extend(format::attachment_parts(&self.context.channel, &self.key, &self.message, sent.files));
        parts
    }

    /// Parts that replace the streamed messages of a step by the whole text.
    async fn replacement_parts(
        &self,
        turn: TurnId,
        step: u32,
        text: &str,
        stays: Finality,
    ) -> Vec<NewOutboxRow> {
        let mut texts = split_message(text, &self.context.channel.capabilities()).into_iter();
        let mut parts = Vec::new();
        for number in 0.. {
            let part_key = message_key(turn, step, number);
            let is_there = match self.context.store.delivery_state(&part_key).await {
                Ok(fate) => fate.is_some(),
                // The outbox worker checks again.
                Err(_) => texts.len() > 0,
            };
            let text = match texts.next() {
                Some(text) => text,
                None if is_there => WITHDRAWN_TEXT.to_owned(),
                None => break,
            };
            let own = match (is_there, stays) {
                (false, _) => Some(part_key.clone()),
                (true, Finality::Intermediate) => Some(format!("{part_key}:whole")),
                (true, Finality::Final) => None,
            };
            let replaces = is_there.then_some(part_key);
            parts.push(
                self.outbox_part(
                    own,
                    &OutboundMessage { text, replaces, ..format::new_reply(&self.message) },
                ),
            );
        }
        parts
    }

    fn outbox_part(&self, part_key: Option<String>, outbound: &OutboundMessage) -> NewOutboxRow {
        let platform = self.message.chat.platform;
        format::outbox_part(platform, &self.key, &self.message.chat.id, part_key, outbound)
    }

    fn with_header(&self, text: &str) -> String {
        self.task.as_ref().map_or_else(|| text.to_owned(), |task| task.with_header(text))
    }

    /// Whether text is shown while it is generated.
    fn is_streaming(&self) -> bool {
        self.context.settings.streaming.edit_interval.is_some()
            && self.context.channel.capabilities().can_edit
    }

    fn elapsed_seconds(&self) -> u64 {
        Timestamp::now().seconds().saturating_sub(self.started.seconds())
    }
}

/// Whether later text may replace this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Finality {
    /// Text before tool calls; stays, and is not repeated after a restart.
    Intermediate,
    /// The final text; replaces what was streamed.
    Final,
}

fn message_key(turn: TurnId, step: u32, number: usize) -> String {
    format!("live:{}:{step}:{number}", turn.number())
}

fn status_key(turn: TurnId) -> String {
    format!("live:{}:work", turn.number())
}
