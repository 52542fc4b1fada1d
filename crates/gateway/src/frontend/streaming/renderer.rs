//! Renders a running turn on the platform, within its edit rate.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hermes_store::{DeliveryState, TurnId};
use hermes_types::{Timestamp, lock};
use tokio::sync::watch;
use tokio::time::Instant;

use super::status::format_duration;
use super::{Finality, LiveReply, PartialReply, message_key, status_key};
use crate::channel::{OutboundMessage, SendError};
use crate::frontend::format::new_reply;
use crate::media;
use crate::no_reply::{is_no_reply, may_become_no_reply};
use crate::split::{split_draft, split_message};

/// Delay before the status line appears, and the shortest time between its edits.
const STATUS_INTERVAL: Duration = Duration::from_secs(10);
/// Longest time between edits, even if the platform is slow.
const MAX_EDIT_INTERVAL: Duration = Duration::from_secs(10);

pub(super) struct Renderer {
    live: Arc<LiveReply>,
    delivered: watch::Receiver<()>,
    edit_interval: Duration,
    next_edit_at: Instant,
    /// Whether a message is in the outbox and not decided yet.
    awaits_delivery: bool,
    /// The step being rendered, and its messages.
    step: Option<u32>,
    messages: Vec<RenderedMessage>,
    status: RenderedMessage,
    /// The status shown last, and when.
    status_text: String,
    status_at: Instant,
}

/// A message on the platform.
#[derive(Debug, Default)]
struct RenderedMessage {
    id: Option<String>,
    /// Its text, as far as known.
    text: String,
    is_full: bool,
    /// Whether an edit may still be in flight.
    is_uncertain: bool,
    /// Whether editing failed for good; the final reply repairs it.
    is_broken: bool,
}

enum RenderStep {
    Text {
        part_key: String,
        number: usize,
        text: String,
        is_full: bool,
    },
    Status {
        part_key: String,
        text: String,
        status_text: String,
    },
    /// Nothing to do until then, or until an event.
    Idle(Option<Instant>),
}

impl Renderer {
    pub(super) fn new(live: Arc<LiveReply>) -> Self {
        let delivered = live.context.outbox.subscribe();
        let wanted = live.context.settings.streaming.edit_interval.unwrap_or_default();
        let pace = wanted.min(MAX_EDIT_INTERVAL).max(live.context.channel.capabilities().min_edit_interval);
        let now = Instant::now();
        Self {
            live,
            delivered,
            edit_interval: pace,
            next_edit_at: now,
            awaits_delivery: false,
            step: None,
            messages: Vec::new(),
            status: RenderedMessage::default(),
            status_text: String::new(),
            status_at: now,
        }
    }

    pub(super) async fn run(mut self) {
        loop {
            let is_ending = lock(&self.live.state).is_ending;
            self.persist_finished().await;
            if is_ending {
                return;
            }
            let again = self.render_pending().await;
            let later = async {
                match again {
                    Some(again) => tokio::time::sleep_until(again).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.live.changed.notified() => {}
                Ok(()) = self.delivered.changed() => self.awaits_delivery = false,
                () = later => {}
            }
        }
    }

    /// Renders what is due. Returns when to look again without an event.
    async fn render_pending(&mut self) -> Option<Instant> {
        loop {
            if self.awaits_delivery {
                return None;
            }
            match self.next_step() {
                RenderStep::Idle(again) => return again,
                RenderStep::Text { part_key, number, text, is_full } => {
                    let mut rendered = self.messages.get_mut(number).map(std::mem::take)?;
                    self.render(&mut rendered, &part_key, &text, new_reply(&self.live.message)).await;
                    rendered.is_full = is_full && rendered.text == text;
                    if let Some(place) = self.messages.get_mut(number) {
                        *place = rendered;
                    }
                }
                RenderStep::Status { part_key, text, status_text } => {
                    let mut line = std::mem::take(&mut self.status);
                    self.render(&mut line, &part_key, &text, OutboundMessage::default()).await;
                    self.status = line;
                    (self.status_text, self.status_at) = (status_text, Instant::now());
                }
            }
        }
    }

    fn next_step(&mut self) -> RenderStep {
        let now = Instant::now();
        if now < self.next_edit_at {
            return RenderStep::Idle(Some(self.next_edit_at));
        }
        let live = Arc::clone(&self.live);
        let state = lock(&live.state);
        let Some(turn) = state.turn.filter(|_| !state.is_ending) else { return RenderStep::Idle(None) };
        let begun = state.reply.as_ref().filter(|_| live.is_streaming());
        let begun = begun.and_then(|answer| Some((answer, answer.first_text_at? + self.edit_interval)));
        let mut later = None;
        match begun {
            Some((answer, due)) if due <= now => {
                if let Some(piece) = self.next_text(turn, answer) {
                    return piece;
                }
            }
            Some((_, due)) => later = Some(due),
            None => {}
        }
        let Some(status_text) = state.status.current().filter(|_| !self.status.is_broken) else {
            return RenderStep::Idle(later);
        };
        let due = match live.context.settings.streaming.refresh_interval {
            _ if live.approver.is_waiting() => now + STATUS_INTERVAL,
            _ if status_text != self.status_text => self.status_at + STATUS_INTERVAL,
            refresh => {
                match refresh.and_then(|refresh| self.status_at.checked_add(refresh.max(STATUS_INTERVAL))) {
                    Some(due) => due,
                    None => return RenderStep::Idle(later),
                }
            }
        };
        if now < due {
            return RenderStep::Idle(Some(later.map_or(due, |later| later.min(due))));
        }
        let text = format!("working for {}: {status_text}", format_duration(live.elapsed_seconds()));
        RenderStep::Status { part_key: status_key(turn), text, status_text }
    }

    /// The first message whose text is outdated. A full one is left alone until the whole text is
    /// known.
    fn next_text(&mut self, turn: TurnId, answer: &PartialReply) -> Option<RenderStep> {
        if may_become_no_reply(&answer.text) {
            return None;
        }
        if self.step != Some(answer.step) {
            self.step = Some(answer.step);
            self.messages.clear();
        }
        // Uploaded files are not shown as text.
        let (text_only, _) = media::extract_media_tags(&answer.text);
        let pieces =
            split_draft(&self.live.with_header(&text_only), &self.live.context.channel.capabilities());
        let count = pieces.len();
        for (number, text) in pieces.into_iter().enumerate() {
            if number == self.messages.len() {
                self.messages.push(RenderedMessage::default());
            }
            let rendered = self.messages.get(number)?;
            if rendered.is_broken {
                return None;
            }
            let is_full = number + 1 < count;
            if rendered.id.is_none() || rendered.text != text && !(rendered.is_full && is_full) {
                let part_key = message_key(turn, answer.step, number);
                return Some(RenderStep::Text { part_key, number, text, is_full });
            }
        }
        None
    }

    /// Creates or edits a message.
    async fn render(
        &mut self,
        rendered: &mut RenderedMessage,
        part_key: &str,
        text: &str,
        outbound: OutboundMessage,
    ) {
        let (context, chat) = (Arc::clone(&self.live.context), self.live.message.chat.id.clone());
        let outbound = OutboundMessage { text: text.to_owned(), ..outbound };
        if rendered.id.is_none() {
            match context.store.delivery_state(part_key).await {
                Ok(Some(DeliveryState::Sent(message))) => rendered.id = Some(message),
                Ok(Some(DeliveryState::Pending)) => self.awaits_delivery = true,
                Ok(None) => {
                    let part = self.live.outbox_part(Some(part_key.to_owned()), &outbound);
                    rendered.is_broken =
                        context.store.enqueue_reply(Vec::new(), vec![part], Timestamp::now()).await.is_err();
                    context.outbox.wake();
                    text.clone_into(&mut rendered.text);
                    self.awaits_delivery = !rendered.is_broken;
                    self.next_edit_at = Instant::now() + self.edit_interval;
                }
                Ok(Some(DeliveryState::Failed)) | Err(_) => rendered.is_broken = true,
            }
        }
        let Some(message) = rendered.id.clone().filter(|_| rendered.text != text) else { return };
        let changed = context.channel.edit_message(&chat, &message, &outbound).await;
        let mut wait = self.edit_interval;
        match changed {
            Ok(()) => text.clone_into(&mut rendered.text),
            Err(SendError::Retry { after, reason }) => {
                tracing::info!(chat, reason, "edits slowed down");
                self.edit_interval = MAX_EDIT_INTERVAL.min(self.edit_interval * 2).max(self.edit_interval);
                wait = self.edit_interval.max(after.unwrap_or_default());
            }
            // The next edit contains this text too.
            Err(SendError::Unknown(reason)) => {
                tracing::info!(chat, reason, "edit uncertain");
                rendered.is_uncertain = true;
            }
            Err(SendError::Permanent(reason)) => {
                tracing::info!(chat, reason, "message can no longer be edited");
                rendered.is_broken = true;
            }
        }
        self.next_edit_at = Instant::now() + wait;
    }

    /// Persists finished texts that are not on the platform yet.
    async fn persist_finished(&mut self) {
        let (turn, over) = {
            let mut state = lock(&self.live.state);
            (state.turn, std::mem::take(&mut state.finished))
        };
        let Some(turn) = turn else { return };
        for answer in over {
            let text_only = self.live.with_header(&answer.text);
            let texts = split_message(&text_only, &self.live.context.channel.capabilities());
            let is_drawn = self.step == Some(answer.step)
                && self.messages.len() == texts.len()
                && self.messages.iter().zip(&texts).all(|(rendered, text)| {
                    rendered.id.is_some() && rendered.text == *text && !rendered.is_uncertain
                });
            if is_drawn || is_no_reply(&answer.text) {
                continue;
            }
            let parts =
                self.live.replacement_parts(turn, answer.step, &text_only, Finality::Intermediate).await;
            self.live.context.outbox.enqueue(Vec::new(), parts).await;
        }
    }
}
