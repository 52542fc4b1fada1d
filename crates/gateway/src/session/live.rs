//! What is seen of a turn before it ends: its words while they are written, and one line about its work.
//!
//! A message of either kind is begun as a part like any other, under a mark that the turn has again when it is carried on by
//! another process. Once it was sent it is changed straight away, and such a change is kept nowhere: what is to stay is
//! kept again as a part that replaces it, an answer with calls when they are made, and everything else with the end of the turn.

mod artist;
mod work;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hermes_agent::{StopReason, TurnEvent};
use hermes_store::{NewPart, TurnId};
use hermes_types::{CallId, SessionKey, Timestamp};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::ask::ChatAsk;
use super::files::Carrier;
use super::words;
use crate::beside::Task;
use crate::channel::Post;
use crate::gateway::Shared;
use crate::letter::Letter;
use crate::silence::may_be_silence;
use crate::split::split;
use artist::Artist;
use work::Work;

/// What a message says of which nothing came.
const TAKEN_BACK: &str = "(taken back)";

/// What is seen of work that is under way, where a platform lets messages be changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Showing {
    /// The time between two changes of an answer that is being written; none if it is only shown when it is done.
    pub words: Option<Duration>,
    /// What is told about tools.
    pub tools: Progress,
    /// After how long the line about them is changed also when there is nothing new.
    pub refresh: Option<Duration>,
}

/// What is told about the tools of a turn that takes long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// Nothing.
    Off,
    /// How many there were, and the name of the one that is used.
    Names,
    /// And what that one is about.
    All,
}

/// What is seen of one turn.
pub(super) struct Live {
    shared: Arc<Shared>,
    key: SessionKey,
    letter: Letter,
    ask: Arc<ChatAsk>,
    /// What is worked on, where that is not the conversation.
    task: Option<Task>,
    started: Timestamp,
    board: Mutex<Board>,
    changed: Notify,
    artist: Mutex<Option<JoinHandle<()>>>,
}

/// What the turn told.
#[derive(Default)]
struct Board {
    turn: Option<TurnId>,
    /// The answer that is being written.
    answer: Option<Answer>,
    /// Answers whose calls were made.
    over: Vec<Answer>,
    work: Work,
    /// Whether the turn ends.
    is_ending: bool,
}

/// One answer of the model.
#[derive(Debug, Clone)]
struct Answer {
    step: u32,
    words: String,
    /// When its first words came.
    since: Option<Instant>,
}

impl Live {
    /// Shows a turn that was started then and has made these calls.
    pub(super) fn begin(
        shared: Arc<Shared>,
        key: SessionKey,
        letter: Letter,
        ask: Arc<ChatAsk>,
        task: Option<Task>,
        (started, calls): (Timestamp, Vec<CallId>),
    ) -> Arc<Self> {
        let work = Work::new(shared.showing.tools, calls);
        let live = Arc::new(Self {
            shared,
            key,
            letter,
            ask,
            task,
            started,
            board: Mutex::new(Board { work, ..Board::default() }),
            changed: Notify::new(),
            artist: Mutex::default(),
        });
        if live.streams() || live.shared.channel.manners().edits && live.shared.showing.tools != Progress::Off
        {
            *lock(&live.artist) = Some(tokio::spawn(Artist::new(Arc::clone(&live)).run()));
        }
        live
    }

    /// Hears what happens in the turn.
    pub(super) fn hear(&self, event: &TurnEvent) {
        let mut board = lock(&self.board);
        board.work.hear(event);
        match event {
            TurnEvent::ReplyStarted { turn, step, partial: so_far } => {
                board.turn = Some(*turn);
                if board.answer.as_ref().is_some_and(|answer| answer.step != *step) {
                    self.put_aside(&mut board);
                }
                let since = board.answer.as_ref().and_then(|answer| answer.since);
                board.answer = Some(Answer { step: *step, words: so_far.clone(), since });
            }
            TurnEvent::Text(text) => {
                if let Some(answer) = &mut board.answer {
                    answer.words.push_str(text);
                    answer.since.get_or_insert_with(Instant::now);
                }
            }
            TurnEvent::ToolStarted { .. } => self.put_aside(&mut board),
            _ => {}
        }
        drop(board);
        self.changed.notify_one();
    }

    /// The answer is over, and more is to come.
    fn put_aside(&self, board: &mut Board) {
        let over = board.answer.take().filter(|_| self.streams());
        board.over.extend(over);
    }

    /// Shows nothing any more, and waits until nothing is on its way.
    pub(super) async fn halt(&self) {
        lock(&self.board).is_ending = true;
        self.changed.notify_one();
        let artist = lock(&self.artist).take();
        if let Some(artist) = artist {
            artist.await.ok();
        }
    }

    /// What is written back when the turn ends.
    pub(super) async fn end(
        &self,
        exit: &StopReason,
        text: &str,
        notes: &[String],
        carrier: &Carrier,
    ) -> Vec<NewPart> {
        self.halt().await;
        let (turn, answer, worked) = {
            let mut board = lock(&self.board);
            (board.turn, board.answer.take(), board.work.done(self.lasted()))
        };
        let mut parts = Vec::new();
        if let Some(mark) = turn.map(line_mark)
            && matches!(self.shared.store.fate(&mark).await, Ok(Some(_)))
        {
            parts.push(self.part(None, &Post { text: worked, replaces: Some(mark), ..Post::default() }));
        }
        let said = match &answer {
            // It stands there already, as what was said before the tools were used.
            None if self.streams() && *exit != StopReason::Answered => "",
            Some(answer) if self.streams() && text.is_empty() && !may_be_silence(&answer.words) => {
                &answer.words
            }
            _ => text,
        };
        let sent = carrier.go(&self.shared, &self.key, said).await;
        let mut text = self.headed(&words::reply(exit, &sent, notes));
        if *exit != StopReason::Answered {
            // It may be in a provider's words, which may name the key it was asked with.
            text = carrier.hands.config().redactor.text(&text).into_owned();
        }
        match (turn, answer) {
            (Some(turn), Some(answer)) => parts.extend(self.whole(turn, answer.step, &text, Stays::No).await),
            _ => parts.extend(words::parts(&self.shared.channel, &self.key, &self.letter, &text)),
        }
        parts.extend(words::enclosed(&self.shared.channel, &self.key, &self.letter, sent.files));
        parts
    }

    /// The parts that put a whole text in the place of what was shown of it.
    async fn whole(&self, turn: TurnId, step: u32, text: &str, stays: Stays) -> Vec<NewPart> {
        let mut texts = split(text, &self.shared.channel.manners()).into_iter();
        let mut parts = Vec::new();
        for number in 0.. {
            let mark = mark(turn, step, number);
            let is_there = match self.shared.store.fate(&mark).await {
                Ok(fate) => fate.is_some(),
                // Whoever delivers it looks again.
                Err(_) => texts.len() > 0,
            };
            let text = match texts.next() {
                Some(text) => text,
                None if is_there => TAKEN_BACK.to_owned(),
                None => break,
            };
            let own = match (is_there, stays) {
                (false, _) => Some(mark.clone()),
                (true, Stays::Yes) => Some(format!("{mark}:whole")),
                (true, Stays::No) => None,
            };
            let replaces = is_there.then_some(mark);
            parts.push(self.part(own, &Post { text, replaces, ..self.post() }));
        }
        parts
    }

    /// An empty message that answers the letter.
    fn post(&self) -> Post {
        Post { reply_to: words::points_to(&self.letter), ..Post::default() }
    }

    fn part(&self, mark: Option<String>, post: &Post) -> NewPart {
        words::part(&self.shared.channel, &self.key, &self.letter.room.chat, mark, post)
    }

    /// Words with what they are about, where that is not the conversation.
    fn headed(&self, text: &str) -> String {
        words::headed(self.task.as_ref(), text)
    }

    /// Whether words are shown while they are written.
    fn streams(&self) -> bool {
        self.shared.showing.words.is_some() && self.shared.channel.manners().edits
    }

    /// For how many seconds it has been worked.
    fn lasted(&self) -> u64 {
        Timestamp::now().seconds().saturating_sub(self.started.seconds())
    }
}

/// Whether more can be put in the place of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stays {
    /// It is said for good, also if it is said again after a restart.
    Yes,
    /// It ends the turn, and replaces whatever is there.
    No,
}

/// The mark of a message that shows words of an answer.
fn mark(turn: TurnId, step: u32, number: usize) -> String {
    format!("live:{}:{step}:{number}", turn.number())
}

/// The mark of the line about the work.
fn line_mark(turn: TurnId) -> String {
    format!("live:{}:work", turn.number())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
