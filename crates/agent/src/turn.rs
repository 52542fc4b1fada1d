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

use crate::batch::{Ready, Wanted, groups};
use crate::conversation::{Control, Conversation, Ended, Error, Event, Exit, Saying, Watch};
use crate::guard::{Guard, Remark};
use crate::tool::spill;
use crate::{Done, Effects, Occasion, Scene, notice, preview};

/// How long tools may take to tell what they have done when somebody ends the turn.
const GRACE: Duration = Duration::from_millis(300);
/// How often an answer that was cut off is continued.
const CONTINUED: u32 = 3;
/// How often a model that said nothing is asked again.
const NUDGED: u32 = 2;
/// How often in a row a model may call only what cannot be called.
const CONFUSED: u32 = 3;

const CONTINUE: &str = "Your answer was cut off. Go on exactly where it stopped, without repeating anything.";
const NUDGE: &str = "Your answer was empty. Go on with the work, or give your answer.";
const SMALLER: &str = "Your last message was cut off before its tool call was complete, so nothing of it was run. Do the \
    same in smaller steps: write long content in several calls.";
const SUMMARY: &str = "You have used up what one turn allows, and can call no more tools. Say what was done, what you \
    found, and what is left to do.";

/// A turn under way.
struct Turn<'a> {
    of: &'a mut Conversation,
    occasion: Occasion,
    control: &'a Control,
    watch: Watch<'a>,
    guard: Guard,
    /// What the next request says behind the history, and nobody keeps.
    aside: Vec<Message>,
    /// What was said of an answer that was cut off.
    begun: String,
    /// What was spent and is not kept yet.
    spent: Vec<Spent>,
    /// Letters that the model is told of by what is kept next.
    told_of: Vec<LetterId>,
    /// How many steps of the turn were kept.
    kept: u32,
    asked: u32,
    /// Requests that do not count: those for scripts, which do the work of many.
    refunded: u32,
    usage: Usage,
    cost: Option<f64>,
}

/// What came of asking the model.
enum Asked {
    Reply(Reply),
    /// Somebody ended it, after these words.
    Stopped(String),
    Failed(hermes_model::Error),
}

/// Whether a turn goes on.
enum Next {
    GoOn,
    End(Exit, String),
}

impl Conversation {
    /// Has what a person says answered.
    pub async fn say(
        &mut self,
        saying: impl Into<Saying>,
        control: &Control,
        watch: Watch<'_>,
    ) -> Result<Ended, Error> {
        let Saying { text, images } = saying.into();
        let (message, at) = (Message::User { text, images }, Timestamp::now());
        let opening = vec![Entry::new(message.clone(), at)];
        let turn = self.store.open_turn(&self.id, opening, control.mail.letters.clone(), at).await?;
        self.history.push(message);
        self.hands.begin_turn();
        self.turn((turn, 0), false, control, watch).go().await
    }

    /// Goes on with a turn that another process began and could not end; none if there is no such turn.
    pub async fn carry_on(&mut self, control: &Control, watch: Watch<'_>) -> Result<Option<Ended>, Error> {
        let Some(open) = self.store.turn(&self.id).await? else { return Ok(None) };
        let OpenTurn { id, steps, .. } = self.store.take_over(open.id).await?;
        self.hands.begin_turn();
        let mut turn = self.turn((id, steps), true, control, watch);
        Ok(Some(match turn.take_up().await? {
            Next::GoOn => turn.go().await?,
            Next::End(exit, text) => turn.end(exit, text).await?,
        }))
    }

    fn turn<'a>(
        &'a mut self,
        (turn, kept): (TurnId, u32),
        resumed: bool,
        control: &'a Control,
        watch: Watch<'a>,
    ) -> Turn<'a> {
        let occasion = Occasion { session: self.id.clone(), turn, resumed };
        Turn {
            of: self,
            occasion,
            control,
            watch,
            guard: Guard::default(),
            aside: Vec::new(),
            begun: String::new(),
            spent: Vec::new(),
            told_of: Vec::new(),
            kept,
            asked: 0,
            refunded: 0,
            usage: Usage::default(),
            cost: None,
        }
    }
}

impl Turn<'_> {
    async fn go(mut self) -> Result<Ended, Error> {
        let (mut cut, mut continued, mut nudged, mut confused) = (0, 0, 0, 0);
        loop {
            self.fit().await?;
            if self.asked.saturating_sub(self.refunded) >= self.of.mind.budget {
                return self.summarize().await;
            }
            let tools = Arc::clone(&self.of.told.tools);
            let asked = self.ask(&tools).await;
            let reply = match asked {
                Asked::Reply(reply) => reply,
                Asked::Failed(error) => return self.end(Exit::Failed(error), String::new()).await,
                Asked::Stopped(shown) => {
                    if !shown.is_empty() {
                        self.keep(said(shown.clone()), None).await?;
                    }
                    return self.end(Exit::Interrupted, shown).await;
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
                    return self.end(Exit::Truncated, text).await;
                }
                let words = Some(said(text)).filter(|message| !message.text().is_empty());
                self.aside = words.into_iter().chain([told(SMALLER)]).collect();
                continue;
            }
            if let Finish::Filtered(why) = &reply.finish {
                let why = why.clone();
                if !text.is_empty() {
                    self.keep(said(text.clone()), Some(&reply)).await?;
                }
                return self.end(Exit::Refused(why), text).await;
            }
            if !calls.is_empty() {
                self.begun.clear();
                self.keep(reply.message(), Some(&reply)).await?;
                let wanted: Vec<_> =
                    calls.iter().map(|call| Wanted::new(call, &self.of.told.tools)).collect();
                if wanted.iter().all(|wanted| matches!(wanted, Wanted::Wrong(..))) {
                    confused += 1;
                } else {
                    (cut, nudged, confused) = (0, 0, 0);
                }
                if wanted.iter().all(|wanted| wanted.call().name == "execute_code") {
                    self.refunded += 1;
                }
                match self.call(groups(wanted), &[]).await? {
                    Next::GoOn if confused >= CONFUSED => return self.end(Exit::Confused, text).await,
                    Next::GoOn => continue,
                    Next::End(exit, _) => return self.end(exit, text).await,
                }
            }
            if is_cut && !text.is_empty() && continued < CONTINUED {
                continued += 1;
                self.begun.push_str(&text);
                self.aside = vec![said(self.begun.clone()), told(CONTINUE)];
                continue;
            }
            if text.trim().is_empty() && self.begun.is_empty() {
                nudged += 1;
                if nudged > NUDGED {
                    return self.end(Exit::Empty, String::new()).await;
                }
                self.aside = vec![told(NUDGE)];
                continue;
            }
            let message = whole(&self.begun, &reply);
            let answer = message.text();
            self.keep(message, Some(&reply)).await?;
            let exit = if is_cut { Exit::Truncated } else { Exit::Answered };
            return self.end(exit, answer).await;
        }
    }

    /// Asks the model, and tells what comes.
    async fn ask(&mut self, tools: &[ToolSpec]) -> Asked {
        self.announce(0, self.begun.clone());
        let history = self.of.history.len();
        self.of.history.append(&mut self.aside);
        let shown = Mutex::new(self.begun.clone());
        let watch = self.watch;
        let mut hear = |heard: Heard| match heard {
            Heard::Text(text) => {
                shown.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
                watch(Event::Text(text));
            }
            Heard::Reasoning(text) => watch(Event::Reasoning(text)),
            Heard::Call { .. } => {}
            Heard::Retrying { why, wait, .. } => watch(Event::Retrying { why, wait }),
            Heard::Fallback { from, to } => watch(Event::Fallback { from, to }),
        };
        self.asked += 1;
        let mind = &self.of.mind;
        let prompt = Prompt {
            system: &self.of.told.system,
            tools,
            messages: &self.of.history,
            max_output: mind.max_output,
            effort: mind.effort,
            session: self.of.id.as_str(),
            sight: &mind.sight,
        };
        let reply = tokio::select! {
            biased;
            () = self.control.stop.cancelled() => None,
            reply = mind.client.complete(&mind.chain, &prompt, &mut hear) => Some(reply),
        };
        self.of.history.truncate(history);
        match reply {
            None => Asked::Stopped(shown.into_inner().unwrap_or_else(PoisonError::into_inner)),
            Some(Err(error)) => Asked::Failed(error),
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
                    cost: reply.cost.map_or(Cost::Unknown, |dollars| Cost::Actual(millionths(dollars))),
                    at: Timestamp::now(),
                });
                Asked::Reply(reply)
            }
        }
    }

    /// Tells that an answer follows or, after a restart, which one was kept so many steps ago.
    fn announce(&self, ago: u32, so_far: String) {
        let step = self.kept.saturating_sub(ago);
        (self.watch)(Event::Answering { turn: self.occasion.turn, step, so_far });
    }

    /// Makes calls, a group after the other. Those that have a result already are left out.
    async fn call(&mut self, groups: Vec<Vec<Wanted>>, answered: &[CallId]) -> Result<Next, Error> {
        let mut end = None;
        for group in groups {
            let group: Vec<_> =
                group.into_iter().filter(|wanted| !answered.contains(&wanted.call().id)).collect();
            if end.is_none() && self.control.stop.is_cancelled() {
                end = Some(Exit::Interrupted);
            }
            if end.is_some() {
                for wanted in group {
                    self.answer(wanted.call(), &Done::error("cancelled before it began")).await?;
                }
                continue;
            }
            end = self.make(group).await?;
        }
        if end.is_none() && self.control.stop.is_cancelled() {
            end = Some(Exit::Interrupted);
        }
        Ok(end.map_or(Next::GoOn, |exit| Next::End(exit, String::new())))
    }

    /// Makes the calls of a group at once. Gives the reason if the turn is over.
    async fn make(&mut self, group: Vec<Wanted>) -> Result<Option<Exit>, Error> {
        let (hands, occasion, stop) =
            (self.of.hands.clone(), self.occasion.clone(), self.control.stop.clone());
        let watch = self.watch;
        let mut under_way: Vec<Call> = Vec::new();
        let mut running = FuturesUnordered::new();
        let mut end = None;
        for wanted in group {
            match wanted {
                Wanted::Wrong(call, why) => self.answer(&call, &Done::error(why)).await?,
                Wanted::Ready(ready) => {
                    (self.watch)(Event::Calling {
                        call: ready.call.id.clone(),
                        tool: ready.tool.name().to_owned(),
                        preview: preview::of_call(ready.tool, &ready.arguments, &hands.setup().redactor),
                    });
                    under_way.push(ready.call.clone());
                    let (hands, occasion, stop) = (&hands, &occasion, &stop);
                    running.push(async move {
                        let Ready { call, tool, arguments, .. } = *ready;
                        let began = Instant::now();
                        let scene = Scene { call: &call.id, stop, occasion: Some(occasion), watch };
                        let done = hands.call(tool, arguments.clone(), scene).await;
                        (call, tool, arguments, done, began.elapsed())
                    });
                }
            }
        }
        let give_up = async {
            stop.cancelled().await;
            tokio::time::sleep(GRACE).await;
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
                end = Some(Exit::Denied);
            }
            match self.guard.note(&self.of.mind.guard, tool.name(), &arguments, &done.answer, done.worked) {
                Remark::Nothing => {}
                Remark::Warn(text) => note(&mut done, "warning", text),
                Remark::Stop(text) => {
                    note(&mut done, "warning", text.clone());
                    end = Some(Exit::Circling(text));
                }
            }
            if let Some(untold) = self.control.untold() {
                note(&mut done, "user_says", untold.words);
                self.told_of.extend(untold.letters);
            }
            let noticed = tokio::select! {
                biased;
                () = stop.cancelled() => None,
                noticed = hands.noticed() => noticed,
            };
            if let Some(words) = noticed {
                note(&mut done, notice::FIELD, words);
            }
            (self.watch)(Event::Called {
                call: call.id.clone(),
                tool: tool.name().to_owned(),
                worked: done.worked,
                took,
                preview: preview::of_answer(&done.answer),
            });
            self.answer(&call, &done).await?;
        }
        // Whatever did not end in time is dropped, and all it started is killed.
        drop(running);
        for call in under_way {
            self.answer(&call, &Done::error("interrupted; what it had started was ended")).await?;
        }
        Ok(end)
    }

    /// Goes on where another process was killed: with the calls of the last answer that have no result.
    async fn take_up(&mut self) -> Result<Next, Error> {
        let open = self.of.store.open_calls(&self.of.id).await?;
        if open.is_empty() {
            // It may have been answered and not closed.
            let answer = match self.of.history.last() {
                Some(answer @ Message::Assistant { .. }) => answer.text(),
                _ => return Ok(Next::GoOn),
            };
            self.announce(1, answer.clone());
            return Ok(Next::End(Exit::Answered, answer));
        }
        let last = self.of.history.iter().rev().find(|message| matches!(message, Message::Assistant { .. }));
        let all: Vec<Call> = last.into_iter().flat_map(Message::calls).cloned().collect();
        let mut answered: Vec<CallId> =
            all.iter().filter(|call| !open.contains(call)).map(|call| call.id.clone()).collect();
        // It was kept, and so was each result after it.
        let ago = u32::try_from(answered.len()).unwrap_or(u32::MAX).saturating_add(1);
        self.announce(ago, last.map(Message::text).unwrap_or_default());
        let wanted = all.iter().map(|call| Wanted::new(call, &self.of.told.tools)).collect();
        let groups = groups(wanted);
        let is_open = |wanted: &&Wanted| !answered.contains(&wanted.call().id);
        // Groups come one after the other, so only calls of the first that is not done can have begun.
        let doubtful: Vec<Call> = groups
            .iter()
            .find(|group| group.iter().any(|wanted| is_open(&wanted)))
            .into_iter()
            .flatten()
            .filter(is_open)
            .filter(|wanted| matches!(wanted, Wanted::Ready(ready) if changes_something(&ready.effects)))
            .map(|wanted| wanted.call().clone())
            .collect();
        for call in doubtful {
            if !self.waits_for_an_answer(&call).await? {
                let done = Done::error(
                    "hermes was stopped while this was under way: it may have run, in part or not at all. Look before \
                     you do it again",
                );
                self.answer(&call, &done).await?;
                answered.push(call.id);
            }
        }
        self.call(groups, &answered).await
    }

    /// Whether a call has asked somebody and has not gone on since.
    async fn waits_for_an_answer(&self, call: &Call) -> Result<bool, Error> {
        let questions = self.of.store.questions_of(&self.of.id).await?;
        let last = questions.iter().rev().find(|question| question.call.as_ref() == Some(&call.id));
        Ok(last.is_some_and(|question| match &question.state {
            QuestionState::Open => true,
            QuestionState::Answered(_) => !question.is_used,
            QuestionState::Expired | QuestionState::Withdrawn => true,
        }))
    }

    /// Lets the model say what was done, when it may be asked no more.
    async fn summarize(mut self) -> Result<Ended, Error> {
        self.aside = vec![told(SUMMARY)];
        let text = match self.ask(&[]).await {
            Asked::Reply(reply) => {
                let text = reply.message().text();
                if !text.is_empty() {
                    self.keep(said(text.clone()), Some(&reply)).await?;
                }
                text
            }
            Asked::Stopped(shown) => return self.end(Exit::Interrupted, shown).await,
            Asked::Failed(_) => String::new(),
        };
        self.end(Exit::Exhausted, text).await
    }

    /// Keeps what a tool answered, and only then believes it.
    async fn answer(&mut self, call: &Call, done: &Done) -> Result<(), Error> {
        let message =
            Message::Tool { call: call.id.clone(), name: call.name.clone(), text: done.answer.to_string() };
        self.keep(message, None).await
    }

    /// Puts what tools answered to the last message into files where all of it is too long together.
    async fn fit(&mut self) -> Result<(), Error> {
        let answers = self.of.history.iter().rev().map_while(|message| match message {
            Message::Tool { call, text, .. } => Some((call.clone(), text.clone())),
            Message::User { .. } | Message::Assistant { .. } => None,
        });
        let answers: Vec<_> = answers.collect();
        let Some((last, _)) = answers.first().cloned() else { return Ok(()) };
        let (stop, occasion, watch) = (&self.control.stop, Some(&self.occasion), self.watch);
        let scene = Scene { call: &last, stop, occasion, watch };
        for (id, shorter) in spill::keep_short_together(&self.of.hands, answers, scene).await {
            self.of.store.replace_answer(&self.of.id, &id, &shorter).await?;
            let told = self.of.history.iter_mut().rev().find_map(|message| match message {
                Message::Tool { call, text, .. } if *call == id => Some(text),
                _ => None,
            });
            if let Some(text) = told {
                *text = shorter;
            }
        }
        Ok(())
    }

    async fn keep(&mut self, message: Message, reply: Option<&Reply>) -> Result<(), Error> {
        let entry = Entry {
            message: message.clone(),
            at: Timestamp::now(),
            finish: reply.map(|reply| finish_word(&reply.finish).to_owned()),
            usage: reply.map(|reply| reply.usage),
        };
        let (spent, letters) = (std::mem::take(&mut self.spent), std::mem::take(&mut self.told_of));
        self.of.store.append(&self.of.id, Step { entries: vec![entry], spent, letters }).await?;
        self.kept += 1;
        self.of.history.push(message);
        Ok(())
    }

    async fn end(mut self, exit: Exit, text: String) -> Result<Ended, Error> {
        for spent in std::mem::take(&mut self.spent) {
            self.of.store.spend(&self.of.id, spent).await?;
        }
        let parts = match &self.control.mail.reply {
            Some(reply) => reply(&exit, &text).await,
            None => Vec::new(),
        };
        self.of.store.close_turn(self.occasion.turn, exit.word(), parts, Timestamp::now()).await?;
        tracing::info!(session = self.of.id.as_str(), exit = exit.word(), asked = self.asked, "turn ended");
        Ok(Ended {
            exit,
            text,
            calls: self.asked,
            usage: self.usage,
            cost: self.cost,
            untold: self.control.untold(),
        })
    }
}

fn said(text: String) -> Message {
    Message::Assistant { parts: vec![Part::Text { text }] }
}

fn told(text: &str) -> Message {
    Message::user(text)
}

/// An answer with what was said of it before it was cut off.
fn whole(begun: &str, reply: &Reply) -> Message {
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
fn note(done: &mut Done, name: &str, text: String) {
    match &mut done.answer {
        Value::Object(fields) => drop(fields.insert(name.to_owned(), json!(text))),
        answer => *answer = json!({"answer": answer.take(), name: text}),
    }
}

/// Whether a call that was made twice would do something twice.
fn changes_something(effects: &Effects) -> bool {
    match effects {
        Effects::Writes(_) | Effects::Everything => true,
        Effects::Looks | Effects::Reads(_) | Effects::Alone => false,
    }
}

fn finish_word(finish: &Finish) -> &'static str {
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
fn millionths(dollars: f64) -> u64 {
    (dollars * 1e6).round() as u64
}
