//! Turns: a user message and all the work it leads to, step by step.
//!
//! A step is stored in one transaction before anything else happens. A turn belongs to the store
//! handle that works on it; when its process has died, another one may take the turn over and
//! resume after the last step.

use hermes_types::{Call, CallId, Message, Timestamp};
use rusqlite::{Connection, Row, params};

use crate::error::{Error, QueryResult, Result};
use crate::history;
use crate::inbox::{self, InboxId};
use crate::message::{MessageRow, NewMessage, Seq};
use crate::outbox::{self, NewOutboxRow};
use crate::session::SessionId;
use crate::spending::{self, ModelCall};
use crate::sql;
use crate::store::Store;
use crate::worker_lock::{TurnOwner, WorkerLock};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TurnId(pub(crate) i64);

impl TurnId {
    pub fn number(self) -> i64 {
        self.0
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
        inbox: Vec<InboxId>,
        at: Timestamp,
    ) -> Result<TurnId> {
        let (id, lock) = (session.clone(), self.worker_lock());
        self.write_session(session, move |transaction, n| {
            let sql = "INSERT INTO turns (session, started, first_seq, holder)
                       SELECT n, ?2, last_seq + 1, ?3 FROM sessions WHERE n = ?1 ON CONFLICT DO NOTHING";
            if sql::execute_counted(transaction, sql, params![n, at.seconds(), lock.worker_id()?])? == 0 {
                return Err(Error::TurnInProgress(id.as_str().to_owned()).into());
            }
            let turn = TurnId(transaction.last_insert_rowid());
            history::append(transaction, n, &opening)?;
            inbox::assign_to_turn(transaction, &inbox, turn)?;
            Ok(turn)
        })
        .await
    }

    /// Stores a step, in the open turn of the session if there is one.
    pub async fn append_step(&self, session: &SessionId, step: TurnStep) -> Result<()> {
        let lock = self.worker_lock();
        self.write_session(session, move |transaction, n| {
            if let Some(turn) = find_open(transaction, &lock, n)? {
                check_owner(&turn)?;
                sql::execute(transaction, "UPDATE turns SET steps = steps + 1 WHERE n = ?1", [turn.id.0])?;
                inbox::assign_to_turn(transaction, &step.inbox, turn.id)?;
            }
            for call in &step.model_calls {
                spending::add_call(transaction, n, call)?;
            }
            history::append(transaction, n, &step.messages)
        })
        .await
    }

    /// Replaces the text of a tool result. Only in an open turn, before the model has seen the
    /// text.
    pub async fn replace_tool_result(&self, session: &SessionId, call: &CallId, text: &str) -> Result<()> {
        let (lock, call, text) = (self.worker_lock(), call.clone(), text.to_owned());
        self.write_session(session, move |transaction, n| {
            check_owner(&find_open(transaction, &lock, n)?.ok_or(Error::NoTurn)?)?;
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
    ) -> Result<()> {
        let exit = exit.to_owned();
        self.write(move |transaction| {
            let sql = "UPDATE turns SET ended = ?2, exit = ?3 WHERE n = ?1 AND ended IS NULL";
            if sql::execute_counted(transaction, sql, params![turn.0, at.seconds(), exit])? == 0 {
                return Err(Error::NoTurn.into());
            }
            inbox::finish_turn(transaction, turn, at)?;
            outbox::add(transaction, &parts, at)
        })
        .await
    }

    /// The open turn of a session. One of [`TurnOwner::Exited`] can be taken over.
    pub async fn current_turn(&self, session: &SessionId) -> Result<Option<OpenTurn>> {
        let lock = self.worker_lock();
        self.read_session(session, move |connection, n| find_open(connection, &lock, n)).await
    }

    /// Makes a turn this process's, if its owner has exited. Of several callers one succeeds.
    pub async fn take_over_turn(&self, turn: TurnId) -> Result<OpenTurn> {
        let lock = self.worker_lock();
        self.write(move |transaction| {
            let sql = format!("{SELECT} WHERE t.n = ?1 AND t.ended IS NULL");
            let found = sql::first(transaction, &sql, [turn.0], |row| read_turn(row, &lock))?;
            let mut found = found.ok_or(Error::NoTurn)?;
            if found.owner == TurnOwner::Exited {
                let sql = "UPDATE turns SET holder = ?2 WHERE n = ?1";
                sql::execute(transaction, sql, params![turn.0, lock.worker_id()?])?;
                found.owner = TurnOwner::ThisStore;
            }
            check_owner(&found)?;
            Ok(found)
        })
        .await
    }

    /// The tool calls of the last assistant message that have no result yet, in order.
    pub async fn open_calls(&self, session: &SessionId) -> Result<Vec<Call>> {
        self.read_session(session, |connection, n| {
            let sql =
                "SELECT max(seq) FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'assistant'";
            let Some(last) = sql::value(connection, sql, [n])? else { return Ok(Vec::new()) };
            Ok(unanswered_calls(&history::messages_since(connection, n, Seq::new(last))?))
        })
        .await
    }
}

/// The calls of the first message without a result in the following ones.
fn unanswered_calls(messages: &[MessageRow]) -> Vec<Call> {
    let Some((first, rest)) = messages.split_first() else { return Vec::new() };
    let is_open = |call: &&Call| {
        !rest.iter().any(|row| matches!(&row.message, Message::Tool { call: id, .. } if *id == call.id))
    };
    first.message.calls().filter(is_open).cloned().collect()
}

const SELECT: &str = "SELECT t.n, s.id, t.started, t.first_seq, t.steps, t.holder
    FROM turns t JOIN sessions s ON s.n = t.session";

fn read_turn(row: &Row<'_>, lock: &WorkerLock) -> QueryResult<OpenTurn> {
    Ok(OpenTurn {
        id: TurnId(row.get(0)?),
        session: SessionId::new(row.get::<_, String>(1)?),
        started: Timestamp::from_seconds(row.get(2)?),
        first: Seq::new(row.get(3)?),
        steps: row.get(4)?,
        owner: lock.owner(&row.get::<_, String>(5)?),
    })
}

pub(crate) fn find_open(connection: &Connection, lock: &WorkerLock, n: i64) -> QueryResult<Option<OpenTurn>> {
    let sql = format!("{SELECT} WHERE t.session = ?1 AND t.ended IS NULL");
    sql::first(connection, &sql, [n], |row| read_turn(row, lock))
}

/// Refuses to change the turn of another owner, even of one that exited: take it over first.
fn check_owner(turn: &OpenTurn) -> Result<()> {
    let owner = match &turn.owner {
        TurnOwner::ThisStore => return Ok(()),
        TurnOwner::OtherProcess(owner) => owner.clone(),
        TurnOwner::Exited => None,
    };
    Err(Error::OwnedByOther { session: turn.session.as_str().to_owned(), owner })
}
