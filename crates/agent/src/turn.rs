//! One turn: a model is asked, its tools are called, until there is an answer.
//!
//! Whatever the model or a tool says is kept before anything happens because of it, so that a turn whose process was
//! killed goes on after its last step, see [`Conversation::carry_on`].

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hermes_model::{Event as Heard, Finish, Prompt, Reply};
use hermes_store::{Cost, Entry, LetterId, OpenTurn, QuestionState, Spent, Step, TurnId};
use hermes_types::{Call, CallId, Message, Part, Timestamp, ToolSpec, Usage};
use serde_json::{Value, json};

use crate::call_plan::{PlannedCall, ReadyCall, group_calls};
use crate::conversation::{
    Conversation, Error, StopReason, TurnControl, TurnEvent, TurnObserver, TurnResult, UserInput,
};
use crate::loop_guard::{LoopAction, LoopGuard};
use crate::tool::truncate;
use crate::{CallContext, Effects, ToolResult, TurnRef, preview, process_events};

/// How long tools may take to tell what they have done when somebody ends the turn.
const STOP_GRACE: Duration = Duration::from_millis(300);
/// How often an answer that was cut off is continued.
const MAX_CONTINUATIONS: u32 = 3;
/// How often a model that said nothing is asked again.
const MAX_NUDGES: u32 = 2;
/// How often in a row a model may call only what cannot be called.
const MAX_INVALID_ROUNDS: u32 = 3;

const CONTINUE_PROMPT: &str =
    "Your answer was cut off. Go on exactly where it stopped, without repeating anything.";
const NUDGE_PROMPT: &str = "Your answer was empty. Go on with the work, or give your answer.";
const SMALLER_STEPS_PROMPT: &str = "Your last message was cut off before its tool call was complete, so nothing of it was run. Do the \
    same in smaller steps: write long content in several calls.";
const SUMMARY_PROMPT: &str = "You have used up what one turn allows, and can call no more tools. Say what was done, what you \
    found, and what is left to do.";

/// A turn under way.
struct TurnRunner<'a> {
    conversation: &'a mut Conversation,
    turn: TurnRef,
    control: &'a TurnControl,
    observer: TurnObserver<'a>,
    guard: LoopGuard,
    /// What the next request says behind the history, and nobody keeps.
    ephemeral: Vec<Message>,
    /// What was said of an answer that was cut off.
    partial: String,
    /// What was spent and is not kept yet.
    spent: Vec<Spent>,
    /// Letters that the model is told of by what is kept next.
    acked_messages: Vec<LetterId>,
    /// How many steps of the turn were kept.
    persisted_steps: u32,
    model_calls: u32,
    /// Requests that do not count: those for scripts, which do the work of many.
    refunded_calls: u32,
    usage: Usage,
    cost: Option<f64>,
}

/// What came of asking the model.
enum ModelOutcome {
    Reply(Reply),
    /// Somebody ended it, after these words.
    Interrupted(String),
    Failed(hermes_model::Error),
}

/// Whether a turn goes on.
enum NextStep {
    Continue,
    End(StopReason, String),
}

impl Conversation {
    /// Has what a person says answered.
    pub async fn run_turn(
        &mut self,
        saying: impl Into<UserInput>,
        control: &TurnControl,
        watch: TurnObserver<'_>,
    ) -> Result<TurnResult, Error> {
        let UserInput { text, images } = saying.into();
        let (message, at) = (Message::User { text, images }, Timestamp::now());
        let opening = vec![Entry::new(message.clone(), at)];
        let turn = self.store.open_turn(&self.id, opening, control.reply_sink.messages.clone(), at).await?;
        self.history.push(message);
        self.context.begin_turn();
        self.turn_runner((turn, 0), false, control, watch).run().await
    }

    /// Goes on with a turn that another process began and could not end; none if there is no such turn.
    pub async fn resume_turn(
        &mut self,
        control: &TurnControl,
        watch: TurnObserver<'_>,
    ) -> Result<Option<TurnResult>, Error> {
        let Some(open) = self.store.turn(&self.id).await? else { return Ok(None) };
        let OpenTurn { id, steps, .. } = self.store.take_over(open.id).await?;
        self.context.begin_turn();
        let mut turn = self.turn_runner((id, steps), true, control, watch);
        Ok(Some(match turn.resume().await? {
            NextStep::Continue => turn.run().await?,
            NextStep::End(exit, text) => turn.finish(exit, text).await?,
        }))
    }

    fn turn_runner<'a>(
        &'a mut self,
        (turn, kept): (TurnId, u32),
        resumed: bool,
        control: &'a TurnControl,
        watch: TurnObserver<'a>,
    ) -> TurnRunner<'a> {
        let occasion = TurnRef { session: self.id.clone(), id: turn, is_resumed: resumed };
        TurnRunner {
            conversation: self,
            turn: occasion,
            control,
            observer: watch,
            guard: LoopGuard::default(),
            ephemeral: Vec::new(),
            partial: String::new(),
            spent: Vec::new(),
            acked_messages: Vec::new(),
            persisted_steps: kept,
            model_calls: 0,
            refunded_calls: 0,
            usage: Usage::default(),
            cost: None,
        }
    }
}

impl TurnRunner<'_> {
    async fn run(mut self) -> Result<TurnResult, Error> {
        let (mut cut, mut continued, mut nudged, mut confused) = (0, 0, 0, 0);
        loop {
            self.spill_results().await?;
            if self.model_calls.saturating_sub(self.refunded_calls) >= self.conversation.model.max_model_calls
            {
                return self.summarize().await;
            }
            let tools = Arc::clone(&self.conversation.prompt.tools);
            let asked = self.ask_model(&tools).await;
            let reply = match asked {
                ModelOutcome::Reply(reply) => reply,
                ModelOutcome::Failed(error) => {
                    return self.finish(StopReason::Failed(error), String::new()).await;
                }
                ModelOutcome::Interrupted(shown) => {
                    if !shown.is_empty() {
                        self.persist(assistant_message(shown.clone()), None).await?;
                    }
                    return self.finish(StopReason::Interrupted, shown).await;
                }
            };
            let text = reply.message().text();
            let calls: Vec<Call> = reply.message().calls().cloned().collect();
            let is_cut = matches!(reply.finish, Finish::Length | Finish::Dropped(_));
            let is_broken = |call: &Call| matches!(call.arguments, hermes_types::Arguments::Broken { .. });
            if is_cut && calls.iter().any(is_broken) {
                // What was cut off is never run, nor is what came before it in the same breath.
                cut += 1;
                if cut > 1 {
                    return self.finish(StopReason::Truncated, text).await;
                }
                let words = Some(assistant_message(text)).filter(|message| !message.text().is_empty());
                self.ephemeral = words.into_iter().chain([user_message(SMALLER_STEPS_PROMPT)]).collect();
                continue;
            }
            if let Finish::Filtered(why) = &reply.finish {
                let why = why.clone();
                if !text.is_empty() {
                    self.persist(assistant_message(text.clone()), Some(&reply)).await?;
                }
                return self.finish(StopReason::Refused(why), text).await;
            }
            if !calls.is_empty() {
                self.partial.clear();
                self.persist(reply.message(), Some(&reply)).await?;
                let wanted: Vec<_> = calls
                    .iter()
                    .map(|call| PlannedCall::new(call, &self.conversation.prompt.tools))
                    .collect();
                if wanted.iter().all(|wanted| matches!(wanted, PlannedCall::Invalid(..))) {
                    confused += 1;
                } else {
                    (cut, nudged, confused) = (0, 0, 0);
                }
                if wanted.iter().all(|wanted| wanted.call().name == "execute_code") {
                    self.refunded_calls += 1;
                }
                match self.run_groups(group_calls(wanted), &[]).await? {
                    NextStep::Continue if confused >= MAX_INVALID_ROUNDS => {
                        return self.finish(StopReason::InvalidCalls, text).await;
                    }
                    NextStep::Continue => continue,
                    NextStep::End(exit, _) => return self.finish(exit, text).await,
                }
            }
            if is_cut && !text.is_empty() && continued < MAX_CONTINUATIONS {
                continued += 1;
                self.partial.push_str(&text);
                self.ephemeral = vec![assistant_message(self.partial.clone()), user_message(CONTINUE_PROMPT)];
                continue;
            }
            if text.trim().is_empty() && self.partial.is_empty() {
                nudged += 1;
                if nudged > MAX_NUDGES {
                    return self.finish(StopReason::EmptyReply, String::new()).await;
                }
                self.ephemeral = vec![user_message(NUDGE_PROMPT)];
                continue;
            }
            let message = joined_message(&self.partial, &reply);
            let answer = message.text();
            self.persist(message, Some(&reply)).await?;
            let exit = if is_cut { StopReason::Truncated } else { StopReason::Answered };
            return self.finish(exit, answer).await;
        }
    }

    /// Asks the model, and tells what comes.
    async fn ask_model(&mut self, tools: &[ToolSpec]) -> ModelOutcome {
        self.announce_reply(0, self.partial.clone());
        let history = self.conversation.history.len();
        self.conversation.history.append(&mut self.ephemeral);
        let shown = Mutex::new(self.partial.clone());
        let watch = self.observer;
        let mut hear = |heard: Heard| match heard {
            Heard::Text(text) => {
                shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                watch(TurnEvent::Text(text));
            }
            Heard::Reasoning(text) => watch(TurnEvent::Reasoning(text)),
            Heard::Call { .. } => {}
            Heard::Retrying { why, wait, .. } => watch(TurnEvent::Retrying { reason: why, delay: wait }),
            Heard::Fallback { from, to } => watch(TurnEvent::Fallback { from, to }),
        };
        self.model_calls += 1;
        let mind = &self.conversation.model;
        let prompt = Prompt {
            system: &self.conversation.prompt.text,
            tools,
            messages: &self.conversation.history,
            max_output: mind.max_output,
            effort: mind.effort,
            session: self.conversation.id.as_str(),
            sight: &mind.image_mode,
        };
        let reply = tokio::select! {
            biased;
            () = self.control.stop.cancelled() => None,
            reply = mind.client.complete(&mind.endpoints, &prompt, &mut hear) => Some(reply),
        };
        self.conversation.history.truncate(history);
        match reply {
            None => ModelOutcome::Interrupted(shown.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Some(Err(error)) => ModelOutcome::Failed(error),
            Some(Ok(reply)) => {
                self.usage = self.usage.plus(reply.usage);
                if let Some(cost) = reply.cost {
                    self.cost = Some(self.cost.unwrap_or_default() + cost);
                }
                self.spent.push(Spent {
                    provider: reply.provider.clone(),
                    model: reply.model.clone(),
                    purpose: "turn".to_owned(),
                    usage: reply.usage,
                    cost: reply.cost.map_or(Cost::Unknown, |dollars| Cost::Actual(micro_dollars(dollars))),
                    at: Timestamp::now(),
                });
                ModelOutcome::Reply(reply)
            }
        }
    }

    /// Tells that an answer follows or, after a restart, which one was kept so many steps ago.
    fn announce_reply(&self, ago: u32, so_far: String) {
        let step = self.persisted_steps.saturating_sub(ago);
        (self.observer)(TurnEvent::ReplyStarted { turn: self.turn.id, step, partial: so_far });
    }

    /// Makes calls, a group after the other. Those that have a result already are left out.
    async fn run_groups(
        &mut self,
        groups: Vec<Vec<PlannedCall>>,
        answered: &[CallId],
    ) -> Result<NextStep, Error> {
        let mut end = None;
        for group in groups {
            let group: Vec<_> =
                group.into_iter().filter(|wanted| !answered.contains(&wanted.call().id)).collect();
            if end.is_none() && self.control.stop.is_cancelled() {
                end = Some(StopReason::Interrupted);
            }
            if end.is_some() {
                for wanted in group {
                    self.persist_result(wanted.call(), &ToolResult::error("cancelled before it began"))
                        .await?;
                }
                continue;
            }
            end = self.run_calls(group).await?;
        }
        if end.is_none() && self.control.stop.is_cancelled() {
            end = Some(StopReason::Interrupted);
        }
        Ok(end.map_or(NextStep::Continue, |exit| NextStep::End(exit, String::new())))
    }

    /// Makes the calls of a group at once. Gives the reason if the turn is over.
    async fn run_calls(&mut self, group: Vec<PlannedCall>) -> Result<Option<StopReason>, Error> {
        let (hands, occasion, stop) =
            (self.conversation.context.clone(), self.turn.clone(), self.control.stop.clone());
        let watch = self.observer;
        let mut under_way: Vec<Call> = Vec::new();
        let mut running = FuturesUnordered::new();
        let mut end = None;
        for wanted in group {
            match wanted {
                PlannedCall::Invalid(call, why) => {
                    self.persist_result(&call, &ToolResult::error(why)).await?
                }
                PlannedCall::Ready(ready) => {
                    (self.observer)(TurnEvent::ToolStarted {
                        call: ready.call.id.clone(),
                        tool: ready.tool.name().to_owned(),
                        preview: preview::call_preview(
                            ready.tool,
                            &ready.arguments,
                            &hands.config().redactor,
                        ),
                    });
                    under_way.push(ready.call.clone());
                    let (hands, occasion, stop) = (&hands, &occasion, &stop);
                    running.push(async move {
                        let ReadyCall { call, tool, arguments, .. } = *ready;
                        let began = Instant::now();
                        let scene =
                            CallContext { call_id: &call.id, stop, turn: Some(occasion), observer: watch };
                        let done = hands.call_tool(tool, arguments.clone(), scene).await;
                        (call, tool, arguments, done, began.elapsed())
                    });
                }
            }
        }
        let give_up = async {
            stop.cancelled().await;
            tokio::time::sleep(STOP_GRACE).await;
        };
        tokio::pin!(give_up);
        loop {
            let (call, tool, arguments, mut done, took) = tokio::select! {
                next = running.next() => match next {
                    Some(next) => next,
                    None => break,
                },
                () = &mut give_up => break,
            };
            under_way.retain(|other| other.id != call.id);
            if done.ends_turn {
                end = Some(StopReason::Denied);
            }
            match self.guard.record_call(
                &self.conversation.model.loop_guard,
                tool.name(),
                &arguments,
                &done.content,
                done.succeeded,
            ) {
                LoopAction::Continue => {}
                LoopAction::Warn(text) => add_note(&mut done, "warning", text),
                LoopAction::Stop(text) => {
                    add_note(&mut done, "warning", text.clone());
                    end = Some(StopReason::Loop(text));
                }
            }
            if let Some(untold) = self.control.take_pending_steer() {
                add_note(&mut done, "user_says", untold.text);
                self.acked_messages.extend(untold.messages);
            }
            let noticed = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                noticed = hands.take_process_events() => noticed,
            };
            if let Some(words) = noticed {
                add_note(&mut done, process_events::NOTICE_FIELD, words);
            }
            (self.observer)(TurnEvent::ToolFinished {
                call: call.id.clone(),
                tool: tool.name().to_owned(),
                succeeded: done.succeeded,
                elapsed: took,
                preview: preview::result_preview(&done.content),
            });
            self.persist_result(&call, &done).await?;
        }
        // Whatever did not end in time is dropped, and all it started is killed.
        drop(running);
        for call in under_way {
            self.persist_result(&call, &ToolResult::error("interrupted; what it had started was ended"))
                .await?;
        }
        Ok(end)
    }

    /// Goes on where another process was killed: with the calls of the last answer that have no result.
    async fn resume(&mut self) -> Result<NextStep, Error> {
        let open = self.conversation.store.open_calls(&self.conversation.id).await?;
        if open.is_empty() {
            // It may have been answered and not closed.
            let answer = match self.conversation.history.last() {
                Some(answer @ Message::Assistant { .. }) => answer.text(),
                _ => return Ok(NextStep::Continue),
            };
            self.announce_reply(1, answer.clone());
            return Ok(NextStep::End(StopReason::Answered, answer));
        }
        let last = self
            .conversation
            .history
            .iter()
            .rev()
            .find(|message| matches!(message, Message::Assistant { .. }));
        let all: Vec<Call> = last.into_iter().flat_map(Message::calls).cloned().collect();
        let mut answered: Vec<CallId> =
            all.iter().filter(|call| !open.contains(call)).map(|call| call.id.clone()).collect();
        // It was kept, and so was each result after it.
        let ago = u32::try_from(answered.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.announce_reply(ago, last.map(Message::text).unwrap_or_default());
        let wanted = all.iter().map(|call| PlannedCall::new(call, &self.conversation.prompt.tools)).collect();
        let groups = group_calls(wanted);
        let is_open = |wanted: &&PlannedCall| !answered.contains(&wanted.call().id);
        // Groups come one after the other, so only calls of the first that is not done can have begun.
        let doubtful: Vec<Call> = groups
            .iter()
            .find(|group| group.iter().any(|wanted| is_open(&wanted)))
            .into_iter()
            .flatten()
            .filter(is_open)
            .filter(|wanted| matches!(wanted, PlannedCall::Ready(ready) if has_side_effects(&ready.effects)))
            .map(|wanted| wanted.call().clone())
            .collect();
        for call in doubtful {
            if !self.has_pending_question(&call).await? {
                let done = ToolResult::error(
                    "hermes was stopped while this was under way: it may have run, in part or not at all. Look before \
                     you do it again",
                );
                self.persist_result(&call, &done).await?;
                answered.push(call.id);
            }
        }
        self.run_groups(groups, &answered).await
    }

    /// Whether a call has asked somebody and has not gone on since.
    async fn has_pending_question(&self, call: &Call) -> Result<bool, Error> {
        let questions = self.conversation.store.questions_of(&self.conversation.id).await?;
        let last = questions.iter().rev().find(|question| question.call.as_ref() == Some(&call.id));
        Ok(last.is_some_and(|question| match &question.state {
            QuestionState::Open => true,
            QuestionState::Answered(_) => !question.is_used,
            QuestionState::Expired | QuestionState::Withdrawn => true,
        }))
    }

    /// Lets the model say what was done, when it may be asked no more.
    async fn summarize(mut self) -> Result<TurnResult, Error> {
        self.ephemeral = vec![user_message(SUMMARY_PROMPT)];
        let text = match self.ask_model(&[]).await {
            ModelOutcome::Reply(reply) => {
                let text = reply.message().text();
                if !text.is_empty() {
                    self.persist(assistant_message(text.clone()), Some(&reply)).await?;
                }
                text
            }
            ModelOutcome::Interrupted(shown) => return self.finish(StopReason::Interrupted, shown).await,
            ModelOutcome::Failed(_) => String::new(),
        };
        self.finish(StopReason::BudgetExhausted, text).await
    }

    /// Keeps what a tool answered, and only then believes it.
    async fn persist_result(&mut self, call: &Call, done: &ToolResult) -> Result<(), Error> {
        let message =
            Message::Tool { call: call.id.clone(), name: call.name.clone(), text: done.content.to_string() };
        self.persist(message, None).await
    }

    /// Puts what tools answered to the last message into files where all of it is too long together.
    async fn spill_results(&mut self) -> Result<(), Error> {
        let answers = self.conversation.history.iter().rev().map_while(|message| match message {
            Message::Tool { call, text, .. } => Some((call.clone(), text.clone())),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        let answers: Vec<_> = answers.collect();
        let Some((last, _)) = answers.first().cloned() else { return Ok(()) };
        let (stop, occasion, watch) = (&self.control.stop, Some(&self.turn), self.observer);
        let scene = CallContext { call_id: &last, stop, turn: occasion, observer: watch };
        for (id, shorter) in truncate::truncate_results(&self.conversation.context, answers, scene).await {
            self.conversation.store.replace_answer(&self.conversation.id, &id, &shorter).await?;
            let told = self.conversation.history.iter_mut().rev().find_map(|message| match message {
                Message::Tool { call, text, .. } if *call == id => Some(text),
                _ => None,
            });
            if let Some(text) = told {
                *text = shorter;
            }
        }
        Ok(())
    }

    async fn persist(&mut self, message: Message, reply: Option<&Reply>) -> Result<(), Error> {
        let entry = Entry {
            message: message.clone(),
            at: Timestamp::now(),
            finish: reply.map(|reply| finish_as_str(&reply.finish).to_owned()),
            usage: reply.map(|reply| reply.usage),
        };
        let (spent, letters) = (std::mem::take(&mut self.spent), std::mem::take(&mut self.acked_messages));
        self.conversation
            .store
            .append(&self.conversation.id, Step { entries: vec![entry], spent, letters })
            .await?;
        self.persisted_steps += 1;
        self.conversation.history.push(message);
        Ok(())
    }

    async fn finish(mut self, exit: StopReason, text: String) -> Result<TurnResult, Error> {
        for spent in std::mem::take(&mut self.spent) {
            self.conversation.store.spend(&self.conversation.id, spent).await?;
        }
        let parts = match &self.control.reply_sink.reply {
            Some(reply) => reply(&exit, &text).await,
            None => Vec::new(),
        };
        self.conversation.store.close_turn(self.turn.id, exit.as_str(), parts, Timestamp::now()).await?;
        tracing::info!(
            session = self.conversation.id.as_str(),
            exit = exit.as_str(),
            asked = self.model_calls,
            "turn ended"
        );
        Ok(TurnResult {
            stop_reason: exit,
            text,
            model_calls: self.model_calls,
            usage: self.usage,
            cost: self.cost,
            pending_steer: self.control.take_pending_steer(),
        })
    }
}

fn assistant_message(text: String) -> Message {
    Message::Assistant { parts: vec![Part::Text { text }] }
}

fn user_message(text: &str) -> Message {
    Message::user(text)
}

/// An answer with what was said of it before it was cut off.
fn joined_message(begun: &str, reply: &Reply) -> Message {
    let mut parts = reply.parts.clone();
    if !begun.is_empty() {
        match parts.iter_mut().find_map(|part| match part {
            Part::Text { text } => Some(text),
            Part::Reasoning(_) | Part::Call(_) => None,
        }) {
            Some(text) => text.insert_str(0, begun),
            None => parts.push(Part::Text { text: begun.to_owned() }),
        }
    }
    Message::Assistant { parts }
}

/// Tells the model something beside the answer of a tool.
fn add_note(done: &mut ToolResult, name: &str, text: String) {
    match &mut done.content {
        Value::Object(fields) => drop(fields.insert(name.to_owned(), json!(text))),
        answer => *answer = json!({"answer": answer.take(), name: text}),
    }
}

/// Whether a call that was made twice would do something twice.
fn has_side_effects(effects: &Effects) -> bool {
    match effects {
        Effects::Writes(_) | Effects::Everything => true,
        Effects::None | Effects::Reads(_) | Effects::Exclusive => false,
    }
}

fn finish_as_str(finish: &Finish) -> &'static str {
    match finish {
        Finish::Stop => "stop",
        Finish::Calls => "tool_calls",
        Finish::Length => "length",
        Finish::Dropped(_) => "dropped",
        Finish::Filtered(_) => "content_filter",
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cost is small and not negative"
)]
fn micro_dollars(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}
