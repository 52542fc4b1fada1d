//! Turns: a user message and all the work it leads to, step by step.
//!
//! A step is stored in one transaction before anything else happens. A turn belongs to the store
//! handle that works on it; when its process has died, another one may take the turn over and
//! resume after the last step.

use hermes_types::{Call, CallId, Message, Timestamp};
use rusqlite::{Connection, OptionalExtension, Row, params};

use crate::error::{Error, QueryError};
use crate::history;
use crate::inbox::{self, InboxId};

use crate::message::{MessageRow, NewMessage, Seq};
use crate::outbox::{self, NewOutboxRow};
use crate::session::{self, SessionId};
use crate::spending::{self, ModelCall};
use crate::store::Store;
use crate::worker_lock::{TurnOwner, WorkerLock};

const MAX_ROWS: usize = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(i64);

impl TurnId {
    pub fn number(self) -> i64 {
        self.0
    }

    pub(crate) fn from_number(number: i64) -> Self {
        Self(number)
    }
}

/// One atomic step: messages, the model calls that produced them, and the inbox messages they
/// include.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TurnStep {
    pub messages: Vec<NewMessage>,
    pub model_calls: Vec<ModelCall>,
    /// Inbox messages that the open turn answers from now on.
    pub inbox: Vec<InboxId>,
}

impl TurnStep {
    /// A step with one message that did not come from a model.
    pub fn from_message(message: Message, at: Timestamp) -> Self {
        Self { messages: vec![NewMessage::new(message, at)], ..Self::default() }
    }
}

/// A turn in progress.
#[derive(Debug, Clone, PartialEq)]
pub struct OpenTurn {
    pub id: TurnId,
    pub session: SessionId,
    pub started: Timestamp,
    /// The sequence number of its first message.
    pub first: Seq,
    pub steps: u32,
    pub owner: TurnOwner,
}

impl Store {
    /// Opens a turn with the user's messages and assigns the inbox rows to it. A session has at
    /// most one open turn.
    pub async fn open_turn(
        &self,
        session: &SessionId,
        opening: Vec<NewMessage>,
        letters: Vec<InboxId>,
        at: Timestamp,
    ) -> Result<TurnId, Error> {
        let (session, presence) = (session.clone(), self.worker_lock());
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            let sql = "INSERT INTO turns (session, started, first_seq, holder)
                       SELECT n, ?2, last_seq + 1, ?3 FROM sessions WHERE n = ?1";
            let begun =
                transaction.prepare_cached(sql)?.execute(params![n, at.seconds(), presence.worker_id()?]);
            match begun {
                Err(error) if QueryError::is_constraint_violation(&error) => {
                    return Err(Error::TurnInProgress(session.as_str().to_owned()).into());
                }
                begun => drop(begun?),
            }
            let turn = transaction.last_insert_rowid();
            history::append(transaction, n, &opening)?;
            inbox::assign_to_turn(transaction, &letters, TurnId(turn))?;
            Ok(TurnId(turn))
        })
        .await
    }

    /// Stores a step, in the open turn of the session if there is one. Returns the sequence numbers
    /// of its messages.
    pub async fn append_step(
        &self,
        session: &SessionId,
        step: TurnStep,
    ) -> Result<std::ops::Range<Seq>, Error> {
        let (session, presence) = (session.clone(), self.worker_lock());
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            if let Some(turn) = find_open(transaction, &presence, n)? {
                check_owner(&turn)?;
                let sql = "UPDATE turns SET steps = steps + 1 WHERE n = ?1";
                transaction.prepare_cached(sql)?.execute([turn.id.0])?;
                inbox::assign_to_turn(transaction, &step.inbox, turn.id)?;
            }
            for spent in &step.model_calls {
                spending::add_call(transaction, n, spent)?;
            }
            history::append(transaction, n, &step.messages)
        })
        .await
    }

    /// Replaces the text of a tool result. Only in an open turn, before the model has seen the
    /// text.
    pub async fn replace_tool_result(
        &self,
        session: &SessionId,
        call: &CallId,
        text: &str,
    ) -> Result<(), Error> {
        let (session, presence) = (session.clone(), self.worker_lock());
        let (call, text) = (call.clone(), text.to_owned());
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            check_owner(&find_open(transaction, &presence, n)?.ok_or(Error::NoTurn)?)?;
            history::replace_tool_result(transaction, n, &call, text)
        })
        .await
    }

    /// Closes a turn and, in the same transaction, enqueues the reply and marks its inbox rows as
    /// done.
    pub async fn close_turn(
        &self,
        turn: TurnId,
        exit: &str,
        parts: Vec<NewOutboxRow>,
        at: Timestamp,
    ) -> Result<(), Error> {
        let exit = exit.to_owned();
        self.write(move |transaction| {
            let sql = "UPDATE turns SET ended = ?2, exit = ?3 WHERE n = ?1 AND ended IS NULL";
            let ended = transaction.prepare_cached(sql)?.execute(params![turn.0, at.seconds(), exit])?;
            if ended == 0 {
                return Err(Error::NoTurn.into());
            }
            inbox::mark_done(transaction, &inbox::turn_inbox(transaction, turn)?, at)?;
            outbox::add(transaction, &parts, at)?;
            Ok(())
        })
        .await
    }

    /// The open turn of a session.
    pub async fn current_turn(&self, session: &SessionId) -> Result<Option<OpenTurn>, Error> {
        let (session, presence) = (session.clone(), self.worker_lock());
        self.read(move |connection| {
            let n = session::row_number(connection, &session)?;
            find_open(connection, &presence, n)
        })
        .await
    }

    /// All open turns, oldest first. Those of [`TurnOwner::Exited`] can be taken over.
    pub async fn open_turns(&self) -> Result<Vec<OpenTurn>, Error> {
        let presence = self.worker_lock();
        self.read(move |connection| {
            let sql = format!("{SELECT} WHERE t.ended IS NULL ORDER BY t.n LIMIT {MAX_ROWS}");
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map([], |row| read_turn(row, &presence))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Makes a turn this process's, if its owner has exited. Of several callers one succeeds.
    pub async fn take_over_turn(&self, turn: TurnId) -> Result<OpenTurn, Error> {
        let presence = self.worker_lock();
        self.write(move |transaction| {
            let sql = format!("{SELECT} WHERE t.n = ?1 AND t.ended IS NULL");
            let mut statement = transaction.prepare_cached(&sql)?;
            let found = statement.query_row([turn.0], |row| read_turn(row, &presence)).optional()?;
            let mut found = found.ok_or(Error::NoTurn)?;
            if found.owner == TurnOwner::Exited {
                let sql = "UPDATE turns SET holder = ?2 WHERE n = ?1";
                transaction.prepare_cached(sql)?.execute(params![turn.0, presence.worker_id()?])?;
                found.owner = TurnOwner::ThisStore;
            }
            check_owner(&found)?;
            Ok(found)
        })
        .await
    }

    /// The tool calls of the last assistant message that have no result yet, in order.
    pub async fn open_calls(&self, session: &SessionId) -> Result<Vec<Call>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::row_number(connection, &session)?;
            let sql =
                "SELECT max(seq) FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'assistant'";
            let Some(last) =
                connection.prepare_cached(sql)?.query_row([n], |row| row.get::<_, Option<u32>>(0))?
            else {
                return Ok(Vec::new());
            };
            let since = history::messages_since(connection, n, Seq::new(last))?;
            Ok(unanswered_calls(&since))
        })
        .await
    }
}

/// The calls of the first message without a result in the following ones.
fn unanswered_calls(messages: &[MessageRow]) -> Vec<Call> {
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

fn read_turn(row: &Row<'_>, presence: &WorkerLock) -> rusqlite::Result<OpenTurn> {
    Ok(OpenTurn {
        id: TurnId(row.get(0)?),
        session: SessionId::new(row.get::<_, String>(1)?),
        started: Timestamp::from_seconds(row.get(2)?),
        first: Seq::new(row.get(3)?),
        steps: row.get(4)?,
        owner: presence.owner(&row.get::<_, String>(5)?),
    })
}

pub(crate) fn find_open(
    connection: &Connection,
    presence: &WorkerLock,
    n: i64,
) -> Result<Option<OpenTurn>, QueryError> {
    let sql = format!("{SELECT} WHERE t.session = ?1 AND t.ended IS NULL");
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_row([n], |row| read_turn(row, presence)).optional()?)
}

/// Refuses to change the turn of another owner, even of one that exited: take it over first.
fn check_owner(turn: &OpenTurn) -> Result<(), Error> {
    let holder = match &turn.owner {
        TurnOwner::ThisStore => return Ok(()),
        TurnOwner::OtherProcess(holder) => holder.clone(),
        TurnOwner::Exited => None,
    };
    Err(Error::OwnedByOther { session: turn.session.as_str().to_owned(), owner: holder })
}
