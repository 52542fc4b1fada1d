//! Turns: one message of a person and all the work it leads to, a step at a time.
//!
//! A step is kept whole or not at all, before anything else happens. A turn belongs to the handle that works on it; when
//! its process has died, another one may take the turn over and go on after the last step.

use hermes_types::{Call, CallId, Message, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Error, Fault};
use crate::history;
use crate::inbox::{self, LetterId};

use crate::message::{Entry, Kept, Seq};
use crate::outbox::{self, NewPart};
use crate::presence::{Held, Presence};
use crate::session::{self, SessionId};
use crate::spending::{self, Spent};
use crate::store::Store;

/// Turns that one answer has at most.
const PAGE: usize = 1_000;

/// One turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(i64);

impl TurnId {
    /// A number that no other turn has.
    pub fn number(self) -> i64 {
        self.0
    }

    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }
}

/// What is kept together: messages, the calls of models that led to them, and the letters that they tell of.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Step {
    /// The messages, in their order.
    pub entries: Vec<Entry>,
    /// The calls.
    pub spent: Vec<Spent>,
    /// Letters that the open turn answers too, from now on.
    pub letters: Vec<LetterId>,
}

impl Step {
    /// A step of one message that no model was asked for.
    pub fn one(message: Message, at: Timestamp) -> Self {
        Self { entries: vec![Entry::new(message, at)], ..Self::default() }
    }
}

/// A turn that has not ended.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    /// Which one.
    pub id: TurnId,
    /// In which session.
    pub session: SessionId,
    /// When it began.
    pub started: Timestamp,
    /// Its first message.
    pub first: Seq,
    /// How many steps were kept.
    pub steps: u32,
    /// Who works on it.
    pub held: Held,
}

impl Store {
    /// Begins a turn with what a person said, and notes the letters that say it. A session has one turn at a time.
    pub async fn open_turn(
        &self,
        session: &SessionId,
        opening: Vec<Entry>,
        letters: Vec<LetterId>,
        at: Timestamp,
    ) -> Result<TurnId, Error> {
        let (session, presence) = (session.clone(), self.presence());
        self.write(move |transaction| {
            let n = session::number(transaction, &session)?;
            let sql = "INSERT INTO turns (session, started, first_seq, holder)
                       SELECT n, ?2, last_seq + 1, ?3 FROM sessions WHERE n = ?1";
            let begun = transaction.prepare_cached(sql)?.execute(params![n, at.seconds(), presence.name()?]);
            match begun {
                Err(error) if Fault::is_forbidden_by_schema(&error) => {
                    return Err(Error::AtWork(session.as_str().to_owned()).into());
                }
                begun => drop(begun?),
            }
            let turn = transaction.last_insert_rowid();
            history::add(transaction, n, &opening)?;
            inbox::join(transaction, &letters, TurnId(turn))?;
            Ok(TurnId(turn))
        })
        .await
    }

    /// Keeps a step, in the open turn of the session if it has one. Gives the places of its messages: from the first one to the one
    /// behind the last.
    pub async fn append(&self, session: &SessionId, step: Step) -> Result<std::ops::Range<Seq>, Error> {
        let (session, presence) = (session.clone(), self.presence());
        self.write(move |transaction| {
            let n = session::number(transaction, &session)?;
            if let Some(turn) = open(transaction, &presence, n)? {
                ours(&turn)?;
                let sql = "UPDATE turns SET steps = steps + 1 WHERE n = ?1";
                transaction.prepare_cached(sql)?.execute([turn.id.0])?;
                inbox::join(transaction, &step.letters, turn.id)?;
            }
            for spent in &step.spent {
                spending::record(transaction, n, spent)?;
            }
            history::add(transaction, n, &step.entries)
        })
        .await
    }

    /// Puts another text in the place of what a tool answered. Only in an open turn: nobody has built on it yet.
    pub async fn replace_answer(&self, session: &SessionId, call: &CallId, text: &str) -> Result<(), Error> {
        let (session, presence) = (session.clone(), self.presence());
        let (call, text) = (call.clone(), text.to_owned());
        self.write(move |transaction| {
            let n = session::number(transaction, &session)?;
            ours(&open(transaction, &presence, n)?.ok_or(Error::NoTurn)?)?;
            history::replace_answer(transaction, n, &call, text)
        })
        .await
    }

    /// Ends a turn, for a reason in a word. What is said about its letters is kept with it, and they are done.
    pub async fn close_turn(
        &self,
        turn: TurnId,
        exit: &str,
        parts: Vec<NewPart>,
        at: Timestamp,
    ) -> Result<(), Error> {
        let exit = exit.to_owned();
        self.write(move |transaction| {
            let sql = "UPDATE turns SET ended = ?2, exit = ?3 WHERE n = ?1 AND ended IS NULL";
            let ended = transaction.prepare_cached(sql)?.execute(params![turn.0, at.seconds(), exit])?;
            if ended == 0 {
                return Err(Error::NoTurn.into());
            }
            inbox::finish(transaction, &inbox::of_turn(transaction, turn)?, at)?;
            outbox::add(transaction, &parts, at)?;
            Ok(())
        })
        .await
    }

    /// The turn a session is in.
    pub async fn turn(&self, session: &SessionId) -> Result<Option<OpenTurn>, Error> {
        let (session, presence) = (session.clone(), self.presence());
        self.read(move |connection| {
            let n = session::number(connection, &session)?;
            open(connection, &presence, n)
        })
        .await
    }

    /// Every turn that has not ended, oldest first. Those held [`Held::Nowhere`] wait for somebody to go on with them.
    pub async fn unfinished(&self) -> Result<Vec<OpenTurn>, Error> {
        let presence = self.presence();
        self.read(move |connection| {
            let sql = format!("{SELECT} WHERE t.ended IS NULL ORDER BY t.n LIMIT {PAGE}");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| read_turn(row, &presence))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Makes a turn this process's, if no living process has it. Of several that try, one gets it.
    pub async fn take_over(&self, turn: TurnId) -> Result<OpenTurn, Error> {
        let presence = self.presence();
        self.write(move |transaction| {
            let sql = format!("{SELECT} WHERE t.n = ?1 AND t.ended IS NULL");
            let mut statement = transaction.prepare_cached(&sql)?;
            let found = statement.query_row([turn.0], |row| read_turn(row, &presence)).optional()?;
            let mut found = found.ok_or(Error::NoTurn)?;
            if found.held == Held::Nowhere {
                let sql = "UPDATE turns SET holder = ?2 WHERE n = ?1";
                transaction.prepare_cached(sql)?.execute(params![turn.0, presence.name()?])?;
                found.held = Held::Here;
            }
            ours(&found)?;
            Ok(found)
        })
        .await
    }

    /// The calls of the last answer of the model that have no result yet, in their order.
    pub async fn open_calls(&self, session: &SessionId) -> Result<Vec<Call>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::number(connection, &session)?;
            let sql =
                "SELECT max(seq) FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'assistant'";
            let Some(last) =
                connection.prepare_cached(sql)?.query_row([n], |row| row.get::<_, Option<u32>>(0))?
            else {
                return Ok(Vec::new());
            };
            let since = history::since(connection, n, Seq::new(last))?;
            Ok(unanswered(&since))
        })
        .await
    }
}

/// The calls of a message that none of those behind it answers.
fn unanswered(messages: &[Kept]) -> Vec<Call> {
    let Some((asked, answers)) = messages.split_first() else { return Vec::new() };
    let answered: Vec<&CallId> = answers
        .iter()
        .filter_map(|kept| match &kept.message {
            Message::Tool { call, .. } => Some(call),
            Message::User { .. } | Message::Assistant { .. } => None,
        })
        .collect();
    asked.message.calls().filter(|call| !answered.contains(&&call.id)).cloned().collect()
}

const SELECT: &str = "SELECT t.n, s.id, t.started, t.first_seq, t.steps, t.holder
    FROM turns t JOIN sessions s ON s.n = t.session";

fn read_turn(row: &Row<'_>, presence: &Presence) -> rusqlite::Result<OpenTurn> {
    Ok(OpenTurn {
        id: TurnId(row.get(0)?),
        session: SessionId::new(row.get::<_, String>(1)?),
        started: Timestamp::from_seconds(row.get(2)?),
        first: Seq::new(row.get(3)?),
        steps: row.get(4)?,
        held: presence.held(&row.get::<_, String>(5)?),
    })
}

/// The open turn of a session.
pub(crate) fn open(connection: &Connection, presence: &Presence, n: i64) -> Result<Option<OpenTurn>, Fault> {
    let sql = format!("{SELECT} WHERE t.session = ?1 AND t.ended IS NULL");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([n], |row| read_turn(row, presence)).optional()?)
}

/// Refuses to touch the turn of another process, also of one that died: it must be taken over first.
fn ours(turn: &OpenTurn) -> Result<(), Error> {
    let holder = match &turn.held {
        Held::Here => return Ok(()),
        Held::Elsewhere(holder) => holder.clone(),
        Held::Nowhere => None,
    };
    Err(Error::Elsewhere { session: turn.session.as_str().to_owned(), holder })
}
