//! The messages of a session: appending, reading and undoing.

use hermes_types::{CallId, Message};
use rusqlite::{Connection, params};

use crate::error::{Error, QueryError, QueryResult, Result};
use crate::message::{self, COLUMNS, MessageColumns, MessageRow, NewMessage, SET_UNDONE, Seq};
use crate::search;
use crate::session::SessionId;
use crate::sql;
use crate::store::Store;

/// A page ends with the message that reaches this size.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFilter {
    Active,
    /// Includes undone messages.
    All,
}

impl Store {
    /// All active messages of a session, as sent to the model.
    pub async fn history(&self, session: &SessionId) -> Result<Vec<MessageRow>> {
        self.read_session(session, |connection, n| {
            check_complete(connection, n)?;
            messages_since(connection, n, Seq::START)
        })
        .await
    }

    /// A page of messages after `after`. A page of large messages may be short; only an empty page
    /// is the last.
    pub async fn messages(
        &self,
        session: &SessionId,
        filter: MessageFilter,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<MessageRow>> {
        self.read_session(session, move |connection, n| message_page(connection, n, filter, after, limit))
            .await
    }

    /// Undoes the last user message and everything that followed it.
    pub async fn undo(&self, session: &SessionId) -> Result<()> {
        let id = session.clone();
        self.write_session(session, move |transaction, n| {
            let sql = "SELECT EXISTS (SELECT 1 FROM turns WHERE session = ?1 AND ended IS NULL)";
            if sql::value(transaction, sql, [n])? {
                return Err(Error::TurnInProgress(id.as_str().to_owned()).into());
            }
            let sql = "SELECT coalesce(max(undone), 0) + 1 FROM messages WHERE session = ?1";
            let round: i64 = sql::value(transaction, sql, [n])?;
            let sql = format!(
                "UPDATE messages SET {SET_UNDONE} WHERE session = ?1 AND undone IS NULL AND seq >=
                 (SELECT max(seq) FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'user')"
            );
            sql::execute(transaction, &sql, params![n, round])
        })
        .await
    }
}

pub(crate) fn append(connection: &Connection, n: i64, entries: &[NewMessage]) -> QueryResult {
    let mut last = Seq::new(sql::value(connection, "SELECT last_seq FROM sessions WHERE n = ?1", [n])?);
    for entry in entries {
        last = last.next();
        let sql = "INSERT INTO messages (session, seq, role, at, sum, finish, usage, rest, text)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        let MessageColumns { role, text, rest, usage, sum } = entry.to_columns(last)?;
        let (seq, at, finish) = (last.number(), entry.at.seconds(), &entry.finish);
        sql::execute(connection, sql, params![n, seq, role, at, sum, finish, usage, rest, text])?;
        search::index::add(connection, connection.last_insert_rowid(), &text)?;
    }
    let Some(entry) = entries.last() else { return Ok(()) };
    // A clock that went back must not make the session older.
    let sql = "UPDATE sessions SET last_seq = ?2, touched = max(touched, ?3) WHERE n = ?1";
    sql::execute(connection, sql, params![n, last.number(), entry.at.seconds()])
}

/// Replaces the text of the last result of a call.
pub(crate) fn replace_tool_result(
    connection: &Connection,
    n: i64,
    call: &CallId,
    text: String,
) -> QueryResult {
    let sql = format!(
        "SELECT {COLUMNS}, id FROM messages WHERE session = ?1 AND role = 'tool' AND undone IS NULL ORDER BY seq DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([n])?;
    while let Some(row) = rows.next()? {
        let stored = message::read_row(row)?;
        let Message::Tool { call: other, name, .. } = &stored.message else { continue };
        if other != call {
            continue;
        }
        let id: i64 = row.get(9)?;
        let message = Message::Tool { call: call.clone(), name: name.clone(), text };
        let new = NewMessage { message, at: stored.at, finish: stored.finish, usage: stored.usage };
        let columns = new.to_columns(stored.seq)?;
        let sql = "UPDATE messages SET text = ?2, sum = ?3 WHERE id = ?1";
        sql::execute(connection, sql, params![id, columns.text, columns.sum])?;
        search::index::remove(connection, id)?;
        return search::index::add(connection, id, &columns.text);
    }
    Err(Error::NoToolResult(call.as_str().to_owned()).into())
}

/// Checks that no message is missing; a lost one would leave no other trace.
fn check_complete(connection: &Connection, n: i64) -> QueryResult {
    let sql =
        "SELECT last_seq = (SELECT count(*) FROM messages WHERE session = ?1) FROM sessions WHERE n = ?1";
    if sql::value(connection, sql, [n])? {
        return Ok(());
    }
    Err(QueryError::Corrupt("messages of a session are missing".to_owned()))
}

/// All active messages starting with `from`.
pub(crate) fn messages_since(connection: &Connection, n: i64, from: Seq) -> QueryResult<Vec<MessageRow>> {
    let sql = format!(
        "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND seq >= ?2 AND undone IS NULL ORDER BY seq"
    );
    sql::rows(connection, &sql, params![n, from.number()], message::read_row)
}

pub(crate) fn message_page(
    connection: &Connection,
    n: i64,
    filter: MessageFilter,
    after: Seq,
    limit: usize,
) -> QueryResult<Vec<MessageRow>> {
    let active = match filter {
        MessageFilter::Active => "AND undone IS NULL",
        MessageFilter::All => "",
    };
    let sql = format!(
        "SELECT {COLUMNS}, octet_length(text) + coalesce(octet_length(rest), 0) FROM messages
         WHERE session = ?1 AND seq > ?2 {active} ORDER BY seq LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![n, after.number(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        found.push(message::read_row(row)?);
        bytes += row.get::<_, usize>(9)?;
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    Ok(found)
}
