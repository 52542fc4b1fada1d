//! Draws what is seen of a turn: one thing after the other, as often as the platform likes it, and no more often than is wanted.

use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use hermes_store::{Fate, TurnId};
use hermes_types::Timestamp;
use tokio::sync::watch;
use tokio::time::Instant;

use super::work::lasting;
use super::{Answer, Live, Stays, line_mark, lock, mark};
use crate::channel::{Post, Undelivered};
use crate::media;
use crate::silence::{is_silence, may_be_silence};
use crate::split::{split, split_draft};

/// When the line about the work is begun, and the shortest time between two changes of it.
const LINE: Duration = Duration::from_secs(10);
/// The longest time between two changes of words, also where the platform is busy.
const LONGEST_PACE: Duration = Duration::from_secs(10);

/// Whoever draws one turn.
pub(super) struct Artist {
    live: Arc<Live>,
    delivered: watch::Receiver<()>,
    /// The time between two changes.
    pace: Duration,
    /// When the next change may be.
    free: Instant,
    /// Whether something was begun of which nobody knows yet what became of it.
    awaits: bool,
    /// The answer whose words are drawn, and its messages.
    step: Option<u32>,
    drawn: Vec<Drawn>,
    line: Drawn,
    /// What the line said of the work, and since when.
    told: String,
    told_at: Instant,
}

/// A message that is drawn.
#[derive(Debug, Default)]
struct Drawn {
    /// What the platform calls it.
    message: Option<String>,
    /// What it says, as far as we know.
    text: String,
    /// Whether the words that follow are in another message.
    is_full: bool,
    /// Whether a change of it may still be on its way.
    is_unsure: bool,
    /// Whether it cannot be drawn any more. What it should say is said at the end.
    is_lost: bool,
}

/// What is to be drawn next.
enum Next {
    /// Part of an answer.
    Piece { turn: TurnId, step: u32, number: usize, text: String, is_full: bool },
    /// The line about the work.
    Line { turn: TurnId, text: String, told: String },
    /// Nothing before this moment, or before something happens.
    Nothing(Option<Instant>),
}

impl Artist {
    pub(super) fn new(live: Arc<Live>) -> Self {
        let delivered = live.shared.office.delivered();
        let wanted = live.shared.showing.words.unwrap_or_default();
        let pace = wanted.min(LONGEST_PACE).max(live.shared.channel.manners().pace);
        let now = Instant::now();
        Self {
            live,
            delivered,
            pace,
            free: now,
            awaits: false,
            step: None,
            drawn: Vec::new(),
            line: Drawn::default(),
            told: String::new(),
            told_at: now,
        }
    }

    /// Draws until the turn ends.
    pub(super) async fn run(mut self) {
        loop {
            let is_ending = lock(&self.live.board).is_ending;
            self.put_away().await;
            if is_ending {
                return;
            }
            let again = self.draw().await;
            let later = async {
                match again {
                    Some(again) => tokio::time::sleep_until(again).await,
                    None => pending().await,
                }
            };
            tokio::select! {
                () = self.live.changed.notified() => {}
                Ok(()) = self.delivered.changed() => self.awaits = false,
                () = later => {}
            }
        }
    }

    /// Draws what can be drawn now. Gives when to look again if nothing happens before.
    async fn draw(&mut self) -> Option<Instant> {
        loop {
            if self.awaits {
                return None;
            }
            match self.next() {
                Next::Nothing(again) => return again,
                Next::Piece { turn, step, number, text, is_full } => {
                    let mut drawn = self.drawn.get_mut(number).map(std::mem::take)?;
                    self.show(&mut drawn, &mark(turn, step, number), &text, self.live.post()).await;
                    drawn.is_full = is_full && drawn.text == text;
                    if let Some(place) = self.drawn.get_mut(number) {
                        *place = drawn;
                    }
                }
                Next::Line { turn, text, told } => {
                    let mut line = std::mem::take(&mut self.line);
                    self.show(&mut line, &line_mark(turn), &text, Post::default()).await;
                    self.line = line;
                    (self.told, self.told_at) = (told, Instant::now());
                }
            }
        }
    }

    fn next(&mut self) -> Next {
        let now = Instant::now();
        if now < self.free {
            return Next::Nothing(Some(self.free));
        }
        let live = Arc::clone(&self.live);
        let board = lock(&live.board);
        let Some(turn) = board.turn.filter(|_| !board.is_ending) else { return Next::Nothing(None) };
        let begun = board.answer.as_ref().filter(|_| live.streams());
        let begun = begun.and_then(|answer| Some((answer, answer.since? + self.pace)));
        let mut later = None;
        match begun {
            Some((answer, due)) if due <= now => {
                if let Some(piece) = self.piece(turn, answer) {
                    return piece;
                }
            }
            Some((_, due)) => later = Some(due),
            None => {}
        }
        let Some(told) = board.work.under_way().filter(|_| !self.line.is_lost) else {
            return Next::Nothing(later);
        };
        let due = match live.shared.showing.refresh {
            _ if live.ask.is_waiting() => now + LINE,
            _ if told != self.told => self.told_at + LINE,
            refresh => match refresh.and_then(|refresh| self.told_at.checked_add(refresh.max(LINE))) {
                Some(due) => due,
                None => return Next::Nothing(later),
            },
        };
        if now < due {
            return Next::Nothing(Some(later.map_or(due, |later| later.min(due))));
        }
        let text = format!("working for {}: {told}", lasting(live.lasted()));
        Next::Line { turn, text, told }
    }

    /// The first message of an answer that does not say what it should. One that is full is left as it is until all is known.
    fn piece(&mut self, turn: TurnId, answer: &Answer) -> Option<Next> {
        if may_be_silence(&answer.words) {
            return None;
        }
        if self.step != Some(answer.step) {
            self.step = Some(answer.step);
            self.drawn.clear();
        }
        // What is sent is not read.
        let (words, _) = media::tags(&answer.words);
        let pieces = split_draft(&self.live.headed(&words), &self.live.shared.channel.manners());
        let count = pieces.len();
        for (number, text) in pieces.into_iter().enumerate() {
            if number == self.drawn.len() {
                self.drawn.push(Drawn::default());
            }
            let drawn = self.drawn.get(number)?;
            if drawn.is_lost {
                return None;
            }
            let is_full = number + 1 < count;
            if drawn.message.is_none() || drawn.text != text && !(drawn.is_full && is_full) {
                return Some(Next::Piece { turn, step: answer.step, number, text, is_full });
            }
        }
        None
    }

    /// Has a message say something: begins it, or changes it.
    async fn show(&mut self, drawn: &mut Drawn, mark: &str, text: &str, post: Post) {
        let (shared, chat) = (Arc::clone(&self.live.shared), self.live.letter.room.chat.clone());
        let post = Post { text: text.to_owned(), ..post };
        if drawn.message.is_none() {
            match shared.store.fate(mark).await {
                Ok(Some(Fate::Sent(message))) => drawn.message = Some(message),
                Ok(Some(Fate::Waits)) => self.awaits = true,
                Ok(None) => {
                    let part = self.live.part(Some(mark.to_owned()), &post);
                    drawn.is_lost =
                        shared.store.reply(Vec::new(), vec![part], Timestamp::now()).await.is_err();
                    shared.office.wake();
                    text.clone_into(&mut drawn.text);
                    self.awaits = !drawn.is_lost;
                    self.free = Instant::now() + self.pace;
                }
                Ok(Some(Fate::Failed)) | Err(_) => drawn.is_lost = true,
            }
        }
        let Some(message) = drawn.message.clone().filter(|_| drawn.text != text) else { return };
        let changed = shared.channel.edit(&chat, &message, &post).await;
        let mut wait = self.pace;
        match changed {
            Ok(()) => text.clone_into(&mut drawn.text),
            Err(Undelivered::Later { after, why }) => {
                tracing::info!(chat, why, "changes of a message are made less often");
                self.pace = LONGEST_PACE.min(self.pace * 2).max(self.pace);
                wait = self.pace.max(after.unwrap_or_default());
            }
            // The next change says the same and more.
            Err(Undelivered::Unknown(why)) => {
                tracing::info!(chat, why, "nobody knows whether a message changed");
                drawn.is_unsure = true;
            }
            Err(Undelivered::Never(why)) => {
                tracing::info!(chat, why, "a message cannot be changed any more");
                drawn.is_lost = true;
            }
        }
        self.free = Instant::now() + wait;
    }

    /// Keeps what was said before tools were used.
    async fn put_away(&mut self) {
        let (turn, over) = {
            let mut board = lock(&self.live.board);
            (board.turn, std::mem::take(&mut board.over))
        };
        let Some(turn) = turn else { return };
        for answer in over {
            let words = self.live.headed(&answer.words);
            let texts = split(&words, &self.live.shared.channel.manners());
            let is_drawn =
                self.step == Some(answer.step)
                    && self.drawn.len() == texts.len()
                    && self.drawn.iter().zip(&texts).all(|(drawn, text)| {
                        drawn.message.is_some() && drawn.text == *text && !drawn.is_unsure
                    });
            if is_drawn || is_silence(&answer.words) {
                continue;
            }
            let parts = self.live.whole(turn, answer.step, &words, Stays::Yes).await;
            self.live.shared.put(Vec::new(), parts).await;
        }
    }
}
