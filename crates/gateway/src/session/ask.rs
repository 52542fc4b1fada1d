//! Questions that are put in a chat.

use std::fmt;
use std::future::pending;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_agent::{Answer, Approver, BoxFuture, Clarification, Question};
use hermes_store::{Answer as Kept, Answering, Choice, QuestionState};
use hermes_types::{Person, SessionKey, Timestamp};
use tokio::sync::oneshot;

use super::{Item, words};
use crate::channel::{Button, Look, Manners, Post};
use crate::gateway::Shared;
use crate::key::chat_of;
use crate::letter::Room;
use crate::split::split;

/// How long a question of the model waits.
const CLARIFY: Duration = Duration::from_secs(600);
/// What is left of a message for what became of its question.
const OUTCOME: usize = 200;

/// The people of one session.
pub(crate) struct ChatAsk {
    shared: Arc<Shared>,
    key: SessionKey,
    served: Mutex<Served>,
    waiting: AtomicUsize,
}

/// Who is served, and where.
struct Served {
    room: Room,
    person: Option<Person>,
    /// Who waits for an answer in words.
    clarifying: Option<oneshot::Sender<String>>,
}

impl fmt::Debug for ChatAsk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChatAsk").field("key", &self.key).finish_non_exhaustive()
    }
}

/// Counts what waits for people while it lives.
struct Waits<'a>(&'a AtomicUsize);

impl<'a> Waits<'a> {
    fn begin(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ChatAsk {
    pub(crate) fn new(shared: Arc<Shared>, key: SessionKey, room: Room) -> Self {
        let served = Mutex::new(Served { room, person: None, clarifying: None });
        Self { shared, key, served, waiting: AtomicUsize::new(0) }
    }

    /// Serves whoever wrote this.
    pub(super) fn enter(&self, item: &Item) {
        let mut served = self.served();
        served.room = item.letter.room.clone();
        served.person = Some(item.person.clone());
    }

    /// Whether people are waited for.
    pub(super) fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }

    /// Where the answer goes that the model wants of whoever says this, if it wants one.
    pub(super) fn wanted(&self, item: &Item) -> Option<oneshot::Sender<String>> {
        let mut served = self.served();
        if served.person.as_ref() != Some(&item.person) {
            return None;
        }
        served.clarifying.take().filter(|wanted| !wanted.is_closed())
    }

    /// Answers a question by its name, or the only one that waits here. Gives words about it.
    pub(super) async fn decide(&self, item: &Item, id: Option<&str>, choice: Choice) -> String {
        let open = match self.shared.store.open_questions(Timestamp::now()).await {
            Ok(open) => open,
            Err(error) => return error.to_string(),
        };
        let mut here = open.into_iter().filter(|question| {
            self.is_here(&question.key) && id.is_none_or(|id| question.id.starts_with(id))
        });
        match (here.next(), here.next()) {
            (None, _) => "nothing waits for an answer here".to_owned(),
            (Some(_), Some(_)) => "several questions wait: name the one you mean".to_owned(),
            (Some(question), None) => {
                self.shared.decide(&question.id, (&item.person, item.tier), choice).await
            }
        }
    }

    /// Whether a session is this one, or works beside it.
    fn is_here(&self, key: &SessionKey) -> bool {
        *key == self.key || chat_of(key).as_ref() == Some(&self.key)
    }

    fn served(&self) -> MutexGuard<'_, Served> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A text as messages that the platform takes, with room for what is said about it later.
    fn pieces(&self, text: &str) -> Vec<String> {
        let manners = self.shared.channel.manners();
        split(text, &Manners { longest: manners.longest.saturating_sub(OUTCOME), ..manners })
    }

    /// Puts messages into the chat, all or none.
    async fn post(&self, chat: &str, posts: Vec<(Option<String>, Post)>) {
        let part = |(mark, post)| words::part(&self.shared.channel, &self.key, chat, mark, &post);
        self.shared.put(Vec::new(), posts.into_iter().map(part).collect()).await;
    }
}

impl Approver for ChatAsk {
    fn ask_permission<'a>(&'a self, question: &'a Question) -> BoxFuture<'a, Option<Answer>> {
        Box::pin(async move {
            let _waits = Waits::begin(&self.waiting);
            let id = question.id().as_str();
            let chat = self.served().room.chat.clone();
            // What is asked is shown whole; what can be pressed stands under its end.
            let mut pieces = self.pieces(&words_of(question));
            let text = pieces.pop().unwrap_or_default();
            let mark = format!("question:{id}");
            let before = pieces
                .into_iter()
                .enumerate()
                .map(|(number, text)| (Some(format!("{mark}:{number}")), Post { text, ..Post::default() }));
            let last = Post { text: text.clone(), buttons: buttons(id), ..Post::default() };
            self.post(&chat, before.chain([(Some(mark.clone()), last)]).collect()).await;
            let (shared, key, id) = (Arc::clone(&self.shared), self.key.clone(), id.to_owned());
            // It outlives the wait: whoever decides, by whatever door, the message says so.
            tokio::spawn(async move {
                let Ok(Some(state)) = shared.store.decided(&id).await else { return };
                let text = format!("{text}\n{}", outcome(&state));
                let post = Post { text, replaces: Some(mark), ..Post::default() };
                let part = words::part(&shared.channel, &key, &chat, Some(format!("decided:{id}")), &post);
                shared.put(Vec::new(), vec![part]).await;
            });
            // The answer comes by the store, from whatever door.
            pending().await
        })
    }

    fn clarify<'a>(&'a self, question: &'a Clarification) -> BoxFuture<'a, Option<String>> {
        Box::pin(async move {
            if chat_of(&self.key).is_some() {
                // What is said in the chat is said in its conversation.
                return None;
            }
            let _waits = Waits::begin(&self.waiting);
            let (answer, answered) = oneshot::channel();
            let chat = {
                let mut served = self.served();
                served.clarifying = Some(answer);
                served.room.chat.clone()
            };
            let mut text = question.question.clone();
            for (number, choice) in (1..).zip(&question.choices) {
                text.push_str(&format!("\n{number}. {choice}"));
            }
            let posts = self.pieces(&text).into_iter().map(|text| (None, Post { text, ..Post::default() }));
            self.post(&chat, posts.collect()).await;
            let said = tokio::time::timeout(CLARIFY, answered).await.ok()?.ok()?;
            let number = said.trim().parse::<usize>().ok().and_then(|number| number.checked_sub(1));
            let chosen = number.and_then(|number| question.choices.get(number)).cloned();
            Some(chosen.unwrap_or(said))
        })
    }
}

/// The question in words.
fn words_of(question: &Question) -> String {
    let reasons: Vec<String> = question.matches().iter().map(|found| found.reason.to_string()).collect();
    let id: String = question.id().as_str().chars().take(8).collect();
    format!(
        "May this run?\n```\n{}\n```\n{}\n/approve {id} or /deny {id}",
        // It would end the block. Nothing else may stand for it: quotes run nothing, and these do.
        question.shown().plain().replace("```", "``⟨U+0060⟩"),
        reasons.join("; "),
    )
}

fn buttons(id: &str) -> Vec<Button> {
    let button = |label: &str, word: &str, look| Button {
        label: label.to_owned(),
        value: format!("q:{id}:{word}"),
        look,
    };
    vec![
        button("Once", "once", Look::Go),
        button("This session", "session", Look::Plain),
        button("Always", "always", Look::Plain),
        button("Deny", "deny", Look::Stop),
    ]
}

/// What a button says, as an answer.
pub(crate) fn pressed(value: &str) -> Option<(&str, Choice)> {
    let (id, word) = value.strip_prefix("q:")?.split_once(':')?;
    let choice = match word {
        "once" => Choice::Once,
        "session" => Choice::Session,
        "always" => Choice::Always,
        "deny" => Choice::Deny { reason: None },
        _ => return None,
    };
    Some((id, choice))
}

/// What became of a question, in words.
pub(crate) fn outcome(state: &QuestionState) -> String {
    match state {
        QuestionState::Open => "it waits".to_owned(),
        QuestionState::Expired => "nobody answered in time".to_owned(),
        QuestionState::Withdrawn => "it is no longer asked".to_owned(),
        QuestionState::Answered(Kept { by, at, choice }) => {
            let what = match choice {
                Choice::Once => "allowed once",
                Choice::Session => "allowed in this session",
                Choice::Always => "allowed from now on",
                Choice::Deny { .. } => "denied",
            };
            let (seconds, by) = (at.seconds() % 86_400, by.as_str());
            format!("{what} by {by} at {:02}:{:02} UTC", seconds / 3_600, seconds / 60 % 60)
        }
    }
}

/// What came of an attempt to answer, in words.
pub(crate) fn answered(answering: &Answering, choice: &Choice) -> String {
    match answering {
        Answering::Counts if matches!(choice, Choice::Deny { .. }) => "denied".to_owned(),
        Answering::Counts => "allowed".to_owned(),
        Answering::TooLate(state) => outcome(state),
        Answering::NotAsked => "only whoever asked for this, or an approver, may answer".to_owned(),
        Answering::Unknown => "there is no such question any more".to_owned(),
    }
}
