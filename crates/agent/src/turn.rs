//! One turn: ask the model, run its tool calls, repeat until there is a reply.
//!
//! Every reply and every tool result is stored before anything happens because of it, so that a
//! turn whose process was killed continues after its last step, see [`Conversation::resume_turn`].

use std::ops::ControlFlow;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_model::{Finish, Prompt, Reply, ReplyEvent};
use hermes_store::{InboxId, ModelCall, NewMessage, OpenTurn, QuestionState, TurnStep};
use hermes_types::{Call, CallArguments, CallId, Message, Part, Timestamp, ToolSpec, Usage};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::activity::Activity;
use crate::call_plan::{PlannedCall, ReadyCall, group_calls};
use crate::conversation::{
    Conversation, StopReason, TurnControl, TurnEvent, TurnObserver, TurnResult, UserInput,
};
use crate::loop_guard::{LoopAction, LoopGuard};
use crate::tool_support::truncate;
use crate::{CallContext, Effects, Error, Tool, ToolResult, TurnRef, lock, preview, process_events};

/// How long stopped tools may take to return what they have done.
const STOP_GRACE: Duration = Duration::from_millis(300);
/// How often a reply that was cut off is continued.
const MAX_CONTINUATIONS: u32 = 3;
/// How often a reply whose call was cut off is requested again.
const MAX_CUT_OFF_CALLS: u32 = 3;
/// The output limit that is raised first if none is configured, and the highest one, in tokens.
const INITIAL_OUTPUT_TOKENS: u32 = 4096;
const MAX_OUTPUT_TOKENS: u32 = 32_768;
/// How often the model is asked again after an empty reply.
const MAX_NUDGES: u32 = 2;
/// How many replies in a row may contain only invalid calls.
const MAX_INVALID_ROUNDS: u32 = 3;

const CONTINUE_PROMPT: &str =
    "Your answer was cut off. Go on exactly where it stopped, without repeating anything.";
const NUDGE_PROMPT: &str = "Your answer was empty. Go on with the work, or give your answer.";
const SMALLER_STEPS_PROMPT: &str = "Your last message was cut off before its tool call was complete, so nothing of it was run. Do the \
    same in smaller steps: write long content in several calls.";
const SUMMARY_PROMPT: &str = "You have used up what one turn allows, and can call no more tools. Say what was done, what you \
    found, and what is left to do.";

/// A running turn.
struct TurnRunner<'a> {
    conversation: &'a mut Conversation,
    turn: TurnRef,
    control: &'a TurnControl,
    observer: TurnObserver<'a>,
    /// Cancelled when a person stops the turn or when nothing happens for too long.
    stop: CancellationToken,
    activity: &'a Activity,
    guard: LoopGuard,
    retries: ReplyRetries,
    /// Messages that only the next request contains and the store does not.
    ephemeral: Vec<Message>,
    /// The part of a reply that came before it was cut off.
    partial: String,
    /// Spending that the next step stores.
    spent: Vec<ModelCall>,
    /// Messages that the model sees with the next stored step.
    acked_messages: Vec<InboxId>,
    persisted_steps: u32,
    model_calls: u32,
    /// Requests that do not count: a script does the work of many calls.
    refunded_calls: u32,
    usage: Usage,
    cost: Option<f64>,
}

/// How often the model was asked to repair a reply.
#[derive(Debug, Default)]
struct ReplyRetries {
    cut_off_calls: u32,
    /// The output limit of the next request, after a lower one cut off a reply.
    raised_output: Option<u32>,
    continuations: u32,
    nudges: u32,
    invalid_rounds: u32,
}

/// The reason for the end of a turn, and the text of the reply.
type TurnEnd = (StopReason, String);

/// Whether the model is asked again.
type NextStep = ControlFlow<TurnEnd>;

impl Conversation {
    /// Runs a turn for a message of the user.
    pub async fn run_turn(
        &mut self,
        input: impl Into<UserInput>,
        control: &TurnControl,
        observer: TurnObserver<'_>,
    ) -> Result<TurnResult, Error> {
        let UserInput { text, images } = input.into();
        let (message, at) = (Message::User { text, images }, Timestamp::now());
        let opening = vec![NewMessage::new(message.clone(), at)];
        let id = self.store.open_turn(&self.id, opening, control.journal.inbox_ids(), at).await?;
        self.history.push(message);
        self.context.approvals().begin_turn();
        let turn = TurnRef { session: self.id.clone(), id, is_resumed: false };
        let (activity, stop) = (Activity::default(), control.stop.child_token());
        let observer = |event| {
            activity.touch();
            observer(event);
        };
        let idle_timeout = self.model.idle_timeout;
        let runner = TurnRunner::new(self, turn, 0, control, &observer, (&activity, stop.clone()));
        tokio::select! {
            biased;
            result = runner.run() => result,
            never = activity.watch(idle_timeout, &stop) => match never {},
        }
    }

    /// Continues a turn that another process began and could not end; none if there is none.
    pub async fn resume_turn(
        &mut self,
        control: &TurnControl,
        observer: TurnObserver<'_>,
    ) -> Result<Option<TurnResult>, Error> {
        let Some(open) = self.store.current_turn(&self.id).await? else { return Ok(None) };
        let OpenTurn { id, steps, .. } = self.store.take_over_turn(open.id).await?;
        self.context.approvals().begin_turn();
        let turn = TurnRef { session: self.id.clone(), id, is_resumed: true };
        let (activity, stop) = (Activity::default(), control.stop.child_token());
        let observer = |event| {
            activity.touch();
            observer(event);
        };
        let idle_timeout = self.model.idle_timeout;
        let mut runner = TurnRunner::new(self, turn, steps, control, &observer, (&activity, stop.clone()));
        let resumed = async {
            Ok(Some(match runner.resume().await? {
                NextStep::Continue(()) => runner.run().await?,
                NextStep::Break((reason, text)) => runner.finish(reason, text).await?,
            }))
        };
        tokio::select! {
            biased;
            result = resumed => result,
            never = activity.watch(idle_timeout, &stop) => match never {},
        }
    }
}

impl<'a> TurnRunner<'a> {
    fn new(
        conversation: &'a mut Conversation,
        turn: TurnRef,
        persisted_steps: u32,
        control: &'a TurnControl,
        observer: TurnObserver<'a>,
        (activity, stop): (&'a Activity, CancellationToken),
    ) -> Self {
        let guard = LoopGuard::new(conversation.model.loop_guard);
        Self {
            conversation,
            turn,
            control,
            observer,
            stop,
            activity,
            guard,
            retries: ReplyRetries::default(),
            ephemeral: Vec::new(),
            partial: String::new(),
            spent: Vec::new(),
            acked_messages: Vec::new(),
            persisted_steps,
            model_calls: 0,
            refunded_calls: 0,
            usage: Usage::default(),
            cost: None,
        }
    }

    async fn run(mut self) -> Result<TurnResult, Error> {
        loop {
            self.spill_results().await?;
            let max_calls = self.conversation.model.max_model_calls;
            let counted_calls = self.model_calls.saturating_sub(self.refunded_calls.min(max_calls));
            if counted_calls >= max_calls {
                return self.summarize().await;
            }
            let tools = Arc::clone(&self.conversation.prompt.tools);
            let next = match self.ask_model(&tools).await {
                Ok(reply) => self.handle_reply(reply).await?,
                Err((reason, text)) => {
                    if !text.is_empty() {
                        self.persist(assistant_message(text.clone()), None).await?;
                    }
                    NextStep::Break((reason, text))
                }
            };
            if let NextStep::Break((reason, text)) = next {
                return self.finish(reason, text).await;
            }
        }
    }

    /// Runs the calls of a reply, repairs a reply that cannot be used, or ends the turn.
    async fn handle_reply(&mut self, reply: Reply) -> Result<NextStep, Error> {
        let text = reply.message().text();
        let calls: Vec<Call> = reply.message().calls().cloned().collect();
        let is_cut_off = matches!(reply.finish, Finish::Length | Finish::Dropped(_));
        let is_broken = |call: &Call| matches!(call.arguments, CallArguments::Broken { .. });
        if is_cut_off && calls.iter().any(is_broken) {
            return Ok(self.retry_cut_off_calls(&reply, text));
        }
        if let Finish::Filtered(reason) = &reply.finish {
            if !text.is_empty() {
                self.persist(assistant_message(text.clone()), Some(&reply)).await?;
            }
            return Ok(NextStep::Break((StopReason::Refused(reason.clone()), text)));
        }
        if !calls.is_empty() {
            return self.handle_calls(&reply, &calls, text).await;
        }
        let has_reasoned = reply.parts.iter().any(|part| matches!(part, Part::Reasoning(_)));
        if reply.finish == Finish::Length && has_reasoned && text.trim().is_empty() && self.partial.is_empty()
        {
            return Ok(NextStep::Break((StopReason::ReasoningExhausted, String::new())));
        }
        if is_cut_off && !text.is_empty() && self.retries.continuations < MAX_CONTINUATIONS {
            self.retries.continuations += 1;
            self.raise_output(&reply, self.retries.continuations);
            self.partial.push_str(&text);
            self.ephemeral = vec![assistant_message(self.partial.clone()), Message::user(CONTINUE_PROMPT)];
            return Ok(NextStep::Continue(()));
        }
        if text.trim().is_empty() && self.partial.is_empty() {
            self.retries.nudges += 1;
            if self.retries.nudges > MAX_NUDGES {
                return Ok(NextStep::Break((StopReason::EmptyReply, String::new())));
            }
            self.ephemeral = vec![Message::user(NUDGE_PROMPT)];
            return Ok(NextStep::Continue(()));
        }
        let message = joined_message(&self.partial, &reply);
        let text = message.text();
        self.persist(message, Some(&reply)).await?;
        let reason = cut_off_reason(&reply).unwrap_or(StopReason::Answered);
        Ok(NextStep::Break((reason, text)))
    }

    /// Runs none of the calls of a reply that was cut off, and asks for smaller steps.
    fn retry_cut_off_calls(&mut self, reply: &Reply, text: String) -> NextStep {
        self.retries.cut_off_calls += 1;
        if self.retries.cut_off_calls > MAX_CUT_OFF_CALLS {
            return NextStep::Break((cut_off_reason(reply).unwrap_or(StopReason::Truncated), text));
        }
        self.raise_output(reply, self.retries.cut_off_calls);
        self.ephemeral.clear();
        if !text.is_empty() {
            self.ephemeral.push(assistant_message(text));
        }
        self.ephemeral.push(Message::user(SMALLER_STEPS_PROMPT));
        NextStep::Continue(())
    }

    /// Doubles the output limit with each retry, unless the connection broke.
    fn raise_output(&mut self, reply: &Reply, retries: u32) {
        if reply.finish != Finish::Length {
            return;
        }
        let configured = self.conversation.model.max_output;
        // Without a configured limit, the server had one of its own, which the reply has filled.
        let reached = u32::try_from(reply.usage.output).unwrap_or(u32::MAX).max(configured.unwrap_or(0));
        let doubled =
            2_u32.saturating_pow(retries).saturating_mul(configured.unwrap_or(INITIAL_OUTPUT_TOKENS));
        self.retries.raised_output = Some(doubled.max(reached).min(MAX_OUTPUT_TOKENS.max(reached)));
    }

    /// The reason for an end that was requested from outside of the turn.
    fn stopped(&self) -> StopReason {
        match self.conversation.model.idle_timeout {
            Some(limit) if self.activity.has_timed_out() => StopReason::TimedOut(limit),
            _ => StopReason::Interrupted,
        }
    }

    async fn handle_calls(&mut self, reply: &Reply, calls: &[Call], text: String) -> Result<NextStep, Error> {
        self.partial.clear();
        self.persist(reply.message(), Some(reply)).await?;
        let planned: Vec<_> =
            calls.iter().map(|call| PlannedCall::new(call, &self.conversation.prompt.tools)).collect();
        if planned.iter().all(|call| matches!(call, PlannedCall::Invalid(..))) {
            self.retries.invalid_rounds += 1;
        } else {
            self.retries =
                ReplyRetries { continuations: self.retries.continuations, ..ReplyRetries::default() };
        }
        if planned.iter().all(|planned| planned.call().name == Tool::ExecuteCode.name()) {
            self.refunded_calls += 1;
        }
        Ok(match self.run_groups(group_calls(planned), &[]).await? {
            Some(reason) => NextStep::Break((reason, text)),
            None if self.retries.invalid_rounds >= MAX_INVALID_ROUNDS => {
                NextStep::Break((StopReason::InvalidCalls, text))
            }
            None => NextStep::Continue(()),
        })
    }

    /// Sends one request to the model and reports what arrives. Fails with the text up to the failure.
    async fn ask_model(&mut self, tools: &[ToolSpec]) -> Result<Reply, TurnEnd> {
        self.announce_reply(0, self.partial.clone());
        let history_len = self.conversation.history.len();
        self.conversation.history.append(&mut self.ephemeral);
        let shown = Mutex::new(self.partial.clone());
        let observer = self.observer;
        let mut on_event = |event: ReplyEvent| match event {
            ReplyEvent::Text(text) => {
                lock(&shown).push_str(&text);
                observer(TurnEvent::Text(text));
            }
            ReplyEvent::Reasoning(text) => observer(TurnEvent::Reasoning(text)),
            ReplyEvent::Retrying { reason, delay, .. } => observer(TurnEvent::Retrying { reason, delay }),
            ReplyEvent::Fallback { from, to } => observer(TurnEvent::Fallback { from, to }),
        };
        self.model_calls += 1;
        let model = &self.conversation.model;
        let prompt = Prompt {
            system: &self.conversation.prompt.text,
            tools,
            messages: &self.conversation.history,
            max_output: self.retries.raised_output.or(model.max_output),
            effort: model.effort,
            session: self.conversation.id.as_str(),
            image_mode: model.image_mode,
        };
        let reply = tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            reply = model.client.complete(&model.endpoints, &prompt, &mut on_event) => Some(reply),
        };
        self.conversation.history.truncate(history_len);
        match reply {
            None => Err((self.stopped(), std::mem::take(&mut lock(&shown)))),
            Some(Err(error)) => Err((StopReason::Failed(error), String::new())),
            Some(Ok(reply)) => {
                self.record_spending(&reply);
                Ok(reply)
            }
        }
    }

    fn record_spending(&mut self, reply: &Reply) {
        self.usage = self.usage.plus(reply.usage);
        if let Some(cost) = reply.cost {
            self.cost = Some(self.cost.unwrap_or_default() + cost);
        }
        self.spent.push(ModelCall {
            provider: reply.provider.clone(),
            model: reply.model.clone(),
            purpose: "turn".to_owned(),
            usage: reply.usage,
            cost: reply.cost.map(|dollars| format!("{:.0}", dollars * 1e6).parse().unwrap_or_default()),
            at: Timestamp::now(),
        });
    }

    /// Reports that a reply starts or, after a restart, the reply stored `steps_ago`.
    fn announce_reply(&self, steps_ago: u32, partial: String) {
        let step = self.persisted_steps.saturating_sub(steps_ago);
        (self.observer)(TurnEvent::ReplyStarted { turn: self.turn.id, step, partial });
    }

    /// Runs groups of calls one after the other, without those that already have a result. Returns
    /// the reason if the turn is over.
    async fn run_groups(
        &mut self,
        groups: Vec<Vec<PlannedCall>>,
        answered: &[CallId],
    ) -> Result<Option<StopReason>, Error> {
        let interrupted = |turn: &Self| turn.stop.is_cancelled().then(|| turn.stopped());
        let mut stop_reason = interrupted(self);
        for mut group in groups {
            group.retain(|planned| !answered.contains(&planned.call().id));
            if stop_reason.is_none() {
                stop_reason = self.run_calls(group).await?.or_else(|| interrupted(self));
                continue;
            }
            for planned in group {
                self.persist_result(planned.call(), &ToolResult::error("cancelled before it began")).await?;
            }
        }
        Ok(stop_reason)
    }

    /// Runs the calls of one group in parallel. Returns the reason if the turn is over.
    async fn run_calls(&mut self, group: Vec<PlannedCall>) -> Result<Option<StopReason>, Error> {
        let context = Arc::clone(&self.conversation.context);
        let (turn, stop, observer) = (self.turn.clone(), self.stop.clone(), self.observer);
        let activity = self.activity;
        let mut pending: Vec<Call> = Vec::new();
        let mut running = FuturesUnordered::new();
        for planned in group {
            let ready = match planned {
                PlannedCall::Ready(ready) => ready,
                PlannedCall::Invalid(call, reason) => {
                    self.persist_result(&call, &ToolResult::error(reason)).await?;
                    continue;
                }
            };
            observer(TurnEvent::ToolStarted {
                call: ready.call.id.clone(),
                tool: ready.tool.name().to_owned(),
                preview: preview::call_preview(ready.tool, &ready.arguments, &context.config().redactor),
            });
            pending.push(ready.call.clone());
            let (context, turn, stop) = (&context, &turn, &stop);
            running.push(async move {
                let started = Instant::now();
                // A person may never answer.
                let _running = (ready.effects != Effects::Exclusive).then(|| activity.start_tool());
                let call_context = CallContext { call_id: &ready.call.id, stop, turn: Some(turn), observer };
                let result = context.call_tool(ready.tool, ready.arguments.clone(), call_context).await;
                (ready, result, started.elapsed())
            });
        }
        let grace_over = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::pin!(grace_over);
        let mut stop_reason = None;
        loop {
            let (ready, result, elapsed) = tokio::select! {
                next = running.next() => match next {
                    Some(finished) => finished,
                    None => break,
                },
                () = &mut grace_over => break,
            };
            pending.retain(|other| other.id != ready.call.id);
            stop_reason = self.finish_call(*ready, result, elapsed).await?.or(stop_reason);
        }
        // Dropping a call kills everything that it started.
        drop(running);
        for call in pending {
            let result = ToolResult::error("interrupted; everything it had started was ended");
            self.persist_result(&call, &result).await?;
        }
        Ok(stop_reason)
    }

    /// Adds notes to the result of a call and stores it. Returns the reason if the turn is over.
    async fn finish_call(
        &mut self,
        ready: ReadyCall,
        mut result: ToolResult,
        elapsed: Duration,
    ) -> Result<Option<StopReason>, Error> {
        let ReadyCall { call, tool, arguments, .. } = ready;
        let mut stop_reason = result.ends_turn.then_some(StopReason::Denied);
        match self.guard.record_call(tool, &arguments, &result) {
            Some(LoopAction::Warn(warning)) => add_note(&mut result, "warning", warning),
            Some(LoopAction::Stop) => stop_reason = stop_reason.or(Some(StopReason::Loop)),
            None => {}
        }
        if let Some(steer) = self.control.take_pending_steer() {
            add_note(&mut result, "user_says", steer.text);
            self.acked_messages.extend(steer.messages);
        }
        let events = tokio::select! {
            biased;
            () = self.stop.cancelled() => None,
            events = self.conversation.context.take_process_events() => events,
        };
        if let Some(text) = events {
            add_note(&mut result, process_events::NOTICE_FIELD, text);
        }
        (self.observer)(TurnEvent::ToolFinished {
            call: call.id.clone(),
            tool: tool.name().to_owned(),
            succeeded: result.succeeded,
            elapsed,
            preview: preview::result_preview(&result.content),
        });
        self.persist_result(&call, &result).await?;
        Ok(stop_reason)
    }

    /// Continues where another process was killed: with the calls of the last reply that have no
    /// result.
    async fn resume(&mut self) -> Result<NextStep, Error> {
        let open = self.conversation.store.open_calls(&self.conversation.id).await?;
        if open.is_empty() {
            // The reply may be stored and the turn not closed.
            let text = match self.conversation.history.last() {
                Some(reply @ Message::Assistant { .. }) => reply.text(),
                _ => return Ok(NextStep::Continue(())),
            };
            self.announce_reply(1, text.clone());
            return Ok(NextStep::Break((StopReason::Answered, text)));
        }
        let is_reply = |message: &&Message| matches!(message, Message::Assistant { .. });
        let reply = self.conversation.history.iter().rev().find(is_reply);
        let calls: Vec<Call> = reply.into_iter().flat_map(Message::calls).cloned().collect();
        let mut answered: Vec<CallId> =
            calls.iter().filter(|call| !open.contains(call)).map(|call| call.id.clone()).collect();
        // The reply is one stored step, and so is each result after it.
        let steps_ago = u32::try_from(answered.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.announce_reply(steps_ago, reply.map(Message::text).unwrap_or_default());
        let planned = calls.iter().map(|call| PlannedCall::new(call, &self.conversation.prompt.tools));
        let groups = group_calls(planned.collect());
        let is_open = |planned: &&PlannedCall| !answered.contains(&planned.call().id);
        // Groups run one after the other, so only calls of the first unfinished one can have begun.
        let maybe_run: Vec<Call> = groups
            .iter()
            .find(|group| group.iter().any(|planned| is_open(&planned)))
            .into_iter()
            .flatten()
            .filter(is_open)
            .filter(|planned| match planned {
                PlannedCall::Ready(ready) => {
                    matches!(ready.effects, Effects::Writes(_) | Effects::Everything)
                }
                PlannedCall::Invalid(..) => false,
            })
            .map(|planned| planned.call().clone())
            .collect();
        for call in maybe_run {
            if !self.has_pending_question(&call).await? {
                let result = ToolResult::error(
                    "hermes was stopped while this was running: it may have run, in part or not at all. Look before \
                     you do it again",
                );
                self.persist_result(&call, &result).await?;
                answered.push(call.id);
            }
        }
        let stop_reason = self.run_groups(groups, &answered).await?;
        Ok(stop_reason.map_or(NextStep::Continue(()), |reason| NextStep::Break((reason, String::new()))))
    }

    /// Whether a call asked a question and has not gone on since.
    async fn has_pending_question(&self, call: &Call) -> Result<bool, Error> {
        let questions = self.conversation.store.session_questions(&self.conversation.id).await?;
        let last = questions.iter().rev().find(|question| question.call.as_ref() == Some(&call.id));
        Ok(last.is_some_and(|question| match &question.state {
            QuestionState::Answered(_) => !question.is_used,
            QuestionState::Open | QuestionState::Expired | QuestionState::Withdrawn => true,
        }))
    }

    /// Asks for a summary without tools when the limit of requests is reached.
    async fn summarize(mut self) -> Result<TurnResult, Error> {
        self.ephemeral = vec![Message::user(SUMMARY_PROMPT)];
        let text = match self.ask_model(&[]).await {
            Ok(reply) => {
                let text = reply.message().text();
                if !text.is_empty() {
                    self.persist(assistant_message(text.clone()), Some(&reply)).await?;
                }
                text
            }
            Err((reason @ (StopReason::Interrupted | StopReason::TimedOut(_)), text)) => {
                return self.finish(reason, text).await;
            }
            Err(_failed) => String::new(),
        };
        self.finish(StopReason::BudgetExhausted, text).await
    }

    async fn persist_result(&mut self, call: &Call, result: &ToolResult) -> Result<(), Error> {
        let message = Message::Tool {
            call: call.id.clone(),
            name: call.name.clone(),
            text: result.content.to_string(),
        };
        self.persist(message, None).await
    }

    /// Spills the longest results of the last message to files until the batch fits its budget.
    async fn spill_results(&mut self) -> Result<(), Error> {
        let results = self.conversation.history.iter().rev().map_while(|message| match message {
            Message::Tool { call, text, .. } => Some((call.clone(), text.clone())),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        let results: Vec<_> = results.collect();
        let Some((last, _)) = results.first().cloned() else { return Ok(()) };
        let call_context =
            CallContext { call_id: &last, stop: &self.stop, turn: Some(&self.turn), observer: self.observer };
        let spilled = truncate::truncate_results(&self.conversation.context, results, call_context).await;
        for (id, shorter) in spilled {
            self.conversation.store.replace_tool_result(&self.conversation.id, &id, &shorter).await?;
            let stored = self.conversation.history.iter_mut().rev().find_map(|message| match message {
                Message::Tool { call, text, .. } if *call == id => Some(text),
                _ => None,
            });
            if let Some(text) = stored {
                *text = shorter;
            }
        }
        Ok(())
    }

    /// Stores one message as a step of the turn, then adds it to the history.
    async fn persist(&mut self, message: Message, reply: Option<&Reply>) -> Result<(), Error> {
        let entry = NewMessage {
            message: message.clone(),
            at: Timestamp::now(),
            finish: reply.map(|reply| reply.finish.as_str().to_owned()),
            usage: reply.map(|reply| reply.usage),
        };
        let step = TurnStep {
            messages: vec![entry],
            model_calls: std::mem::take(&mut self.spent),
            inbox: std::mem::take(&mut self.acked_messages),
        };
        self.conversation.store.append_step(&self.conversation.id, step).await?;
        self.persisted_steps += 1;
        self.conversation.history.push(message);
        Ok(())
    }

    async fn finish(mut self, reason: StopReason, text: String) -> Result<TurnResult, Error> {
        for spent in std::mem::take(&mut self.spent) {
            self.conversation.store.record_model_call(&self.conversation.id, spent).await?;
        }
        let parts = self.control.journal.reply_rows(&reason, &text).await;
        self.conversation.store.close_turn(self.turn.id, reason.as_str(), parts, Timestamp::now()).await?;
        let session = self.conversation.id.as_str();
        tracing::info!(session, reason = reason.as_str(), model_calls = self.model_calls, "turn ended");
        Ok(TurnResult {
            stop_reason: reason,
            text,
            model_calls: self.model_calls,
            usage: self.usage,
            cost: self.cost,
            pending_steer: self.control.take_pending_steer(),
        })
    }
}

/// The reason for the end of a turn whose reply is incomplete.
fn cut_off_reason(reply: &Reply) -> Option<StopReason> {
    match &reply.finish {
        Finish::Length => Some(StopReason::Truncated),
        Finish::Dropped(_) => Some(StopReason::Disconnected),
        Finish::Stop | Finish::Calls | Finish::Filtered(_) => None,
    }
}

fn assistant_message(text: String) -> Message {
    Message::Assistant { parts: vec![Part::Text { text }] }
}

/// A reply together with the part that came before it was cut off.
fn joined_message(partial: &str, reply: &Reply) -> Message {
    let mut parts = reply.parts.clone();
    if !partial.is_empty() {
        match parts.iter_mut().find_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::Reasoning(_) | Part::Call(_) => None,
        }) {
            Some(text) => text.insert_str(0, partial),
            None => parts.push(Part::Text { text: partial.to_owned() }),
        }
    }
    Message::Assistant { parts }
}

/// Adds a field to a result.
fn add_note(result: &mut ToolResult, name: &str, text: String) {
    match &mut result.content {
        Value::Object(fields) => drop(fields.insert(name.to_owned(), json!(text))),
        content => *content = json!({"answer": content.take(), name: text}),
    }
}
