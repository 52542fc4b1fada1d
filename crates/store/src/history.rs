//! The messages of a session: appending, reading, undoing and branching.

use std::ops::Range;

use hermes_types::{CallId, Message, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Error, QueryError};
use crate::message::{self, COLUMNS, MessageRow, NewMessage, SET_UNDONE, Seq};
use crate::search;
use crate::session::{self, Lineage, NewSession, Parent, Prompt, SessionId, TitleConflict, title};
use crate::store::Store;

/// A page ends with the message that reaches this size.
const PAGE_BYTES: usize = 4 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageFilter {
    Active,
    /// Includes undone messages.
    All,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UndoResult {
    pub messages: usize,
    /// The text of the first undone user message, so that the user can edit and resend it.
    pub text: String,
}

impl Store {
    /// All active messages of a session, as sent to the model.
    pub async fn history(&self, session: &SessionId) -> Result<Vec<MessageRow>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::row_number(connection, &session)?;
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
        which: MessageFilter,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<MessageRow>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::row_number(connection, &session)?;
            message_page(connection, n, which, after, limit)
        })
        .await
    }

    /// Undoes the last user messages and everything that followed them. `None` if there is no user
    /// message.
    pub async fn undo(&self, session: &SessionId, exchanges: usize) -> Result<Option<UndoResult>, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            check_idle(transaction, n, &session)?;
            undo(transaction, n, exchanges)
        })
        .await
    }

    /// Restores the messages undone last, unless new ones followed. Returns their number.
    pub async fn restore_undone(&self, session: &SessionId) -> Result<usize, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            check_idle(transaction, n, &session)?;
            restore(transaction, n)
        })
        .await
    }

    /// Creates a session that starts as a copy of another one, optionally only up to `until`.
    pub async fn branch_session(
        &self,
        session: &SessionId,
        until: Option<Seq>,
        at: Timestamp,
    ) -> Result<SessionId, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let (from, to, id) = create_child(transaction, &session, Lineage::Branch, None, at)?;
            let mut after = Seq::START;
            let is_wanted = |kept: &MessageRow| until.is_none_or(|until| kept.seq <= until);
            loop {
                let some = message_page(transaction, from, MessageFilter::Active, after, 200)?;
                let Some(last) = some.last() else { break };
                after = last.seq;
                let entries: Vec<NewMessage> =
                    some.into_iter().filter(is_wanted).map(to_new_message).collect();
                if entries.is_empty() {
                    break;
                }
                append(transaction, to, &entries)?;
            }
            Ok(id)
        })
        .await
    }

    /// Creates the session that continues one that became too long: with a new prompt and first
    /// messages, and with the open turn. Ends the old session in the same transaction.
    pub async fn continue_session(
        &self,
        session: &SessionId,
        prompt: Prompt,
        beginning: Vec<NewMessage>,
        at: Timestamp,
    ) -> Result<SessionId, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let (from, to, id) =
                create_child(transaction, &session, Lineage::Continuation, Some(prompt), at)?;
            session::end(transaction, from, "compression", at)?;
            let sql = "UPDATE turns SET session = ?2, first_seq = 1 WHERE session = ?1 AND ended IS NULL";
            transaction.prepare_cached(sql)?.execute([from, to])?;
            append(transaction, to, &beginning)?;
            Ok(id)
        })
        .await
    }
}

/// Creates a session with the properties of another one but without its messages.
fn create_child(
    connection: &Connection,
    of: &SessionId,
    lineage: Lineage,
    prompt: Option<Prompt>,
    at: Timestamp,
) -> Result<(i64, i64, SessionId), QueryError> {
    let parent = session::get(connection, of)?;
    let from = session::row_number(connection, of)?;
    let prompt = match prompt {
        Some(prompt) => prompt,
        None => session::prompt(connection, from)?,
    };
    let new = NewSession {
        key: parent.key,
        source: parent.source,
        person: parent.person,
        model: parent.model,
        provider: parent.provider,
        prompt,
        cwd: parent.cwd,
        parent: Some(Parent { session: of.clone(), lineage }),
    };
    let (to, id) = session::create(connection, &new, at)?;
    if let Some(name) = parent.title {
        title::set(connection, to, &name, TitleConflict::Number)?;
    }
    Ok((from, to, id))
}

fn to_new_message(kept: MessageRow) -> NewMessage {
    NewMessage { message: kept.message, at: kept.at, finish: kept.finish, usage: kept.usage }
}

/// Appends messages and returns their sequence numbers.
pub(crate) fn append(
    connection: &Connection,
    n: i64,
    entries: &[NewMessage],
) -> Result<Range<Seq>, QueryError> {
    let sql = "SELECT last_seq FROM sessions WHERE n = ?1";
    let last: u32 = connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?;
    let first = Seq::new(last).next();
    let mut next = first;
    for entry in entries {
        let columns = entry.to_columns(next)?;
        let sql = "INSERT INTO messages (session, seq, role, at, sum, finish, usage, rest, text)
                   VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
        connection.prepare_cached(sql)?.execute(params![
            n,
            next.number(),
            columns.role,
            entry.at.seconds(),
            columns.sum,
            entry.finish,
            columns.usage,
            columns.rest,
            columns.text,
        ])?;
        search::index::add(connection, connection.last_insert_rowid(), &columns.text)?;
        next = next.next();
    }
    if let Some(entry) = entries.last() {
        // A clock that went back must not make the session older.
        let sql = "UPDATE sessions SET last_seq = ?2, touched = max(touched, ?3) WHERE n = ?1";
        connection.prepare_cached(sql)?.execute(params![n, next.number() - 1, entry.at.seconds()])?;
    }
    Ok(first..next)
}

/// Replaces the text of the last result of a call.
pub(crate) fn replace_tool_result(
    connection: &Connection,
    n: i64,
    call: &CallId,
    text: String,
) -> Result<(), QueryError> {
    let sql = format!(
        "SELECT {COLUMNS}, id FROM messages WHERE session = ?1 AND role = 'tool' AND undone IS NULL ORDER BY seq DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([n])?;
    while let Some(row) = rows.next()? {
        let kept = message::read_row(row)?;
        let Message::Tool { call: other, name, .. } = &kept.message else { continue };
        if other != call {
            continue;
        }
        let (id, seq): (i64, Seq) = (row.get(9)?, kept.seq);
        let message = Message::Tool { call: call.clone(), name: name.clone(), text };
        let columns = to_new_message(MessageRow { message, ..kept }).to_columns(seq)?;
        let sql = "UPDATE messages SET text = ?2, sum = ?3 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![id, columns.text, columns.sum])?;
        search::index::remove(connection, id)?;
        return search::index::add(connection, id, &columns.text);
    }
    Err(Error::NoToolResult(call.as_str().to_owned()).into())
}

/// Checks that no message is missing; a lost one would leave no other trace.
fn check_complete(connection: &Connection, n: i64) -> Result<(), QueryError> {
    let sql =
        "SELECT last_seq = (SELECT count(*) FROM messages WHERE session = ?1) FROM sessions WHERE n = ?1";
    if connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))? {
        return Ok(());
    }
    Err(QueryError::Corrupt("messages of a session are missing".to_owned()))
}

/// All active messages starting with `from`.
pub(crate) fn messages_since(
    connection: &Connection,
    n: i64,
    from: Seq,
) -> Result<Vec<MessageRow>, QueryError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND seq >= ?2 AND undone IS NULL ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![n, from.number()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(message::read_row(row)?);
    }
    Ok(found)
}

pub(crate) fn message_page(
    connection: &Connection,
    n: i64,
    which: MessageFilter,
    after: Seq,
    limit: usize,
) -> Result<Vec<MessageRow>, QueryError> {
    let active = match which {
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

fn undo(connection: &Connection, n: i64, exchanges: usize) -> Result<Option<UndoResult>, QueryError> {
    let Some(back) = exchanges.checked_sub(1) else { return Ok(None) };
    // Going back beyond the first message stops at the first message.
    let sql = "SELECT min(seq) FROM (
                   SELECT seq FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'user'
                   ORDER BY seq DESC LIMIT ?2 + 1)";
    let back = i64::try_from(back).unwrap_or(i64::MAX - 1);
    let from: Option<u32> =
        connection.prepare_cached(sql)?.query_row([n, back], |row| row.get(0)).optional()?.flatten();
    let Some(from) = from else { return Ok(None) };
    let first = message_page(connection, n, MessageFilter::Active, Seq::new(from - 1), 1)?;
    let Some(Message::User { text, .. }) = first.into_iter().next().map(|kept| kept.message) else {
        return Ok(None);
    };
    let sql = "SELECT coalesce(max(undone), 0) + 1 FROM messages WHERE session = ?1";
    let round: i64 = connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?;
    let sql = format!("UPDATE messages SET {SET_UNDONE} WHERE session = ?1 AND seq >= ?2 AND undone IS NULL");
    let messages = connection.prepare_cached(&sql)?.execute(params![n, from, round])?;
    Ok(Some(UndoResult { messages, text }))
}

fn restore(connection: &Connection, n: i64) -> Result<usize, QueryError> {
    let sql = "SELECT undone, min(seq) FROM messages WHERE session = ?1 AND undone IS NOT NULL
               GROUP BY undone ORDER BY undone DESC LIMIT 1";
    let last = connection.prepare_cached(sql)?.query_row([n], |row| Ok((row.get(0)?, row.get(1)?)));
    let Some((round, first)): Option<(i64, i64)> = last.optional()? else { return Ok(0) };
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE session = ?1 AND seq > ?2 AND undone IS NULL)";
    if connection.prepare_cached(sql)?.query_row([n, first], |row| row.get(0))? {
        return Ok(0);
    }
    let sql = format!("UPDATE messages SET {SET_UNDONE} WHERE session = ?1 AND undone = ?2");
    Ok(connection.prepare_cached(&sql)?.execute(params![n, round, None::<i64>])?)
}

/// Refuses to change messages that a running turn builds on.
fn check_idle(connection: &Connection, n: i64, session: &SessionId) -> Result<(), QueryError> {
    let sql = "SELECT EXISTS (SELECT 1 FROM turns WHERE session = ?1 AND ended IS NULL)";
    if connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))? {
        return Err(Error::TurnInProgress(session.as_str().to_owned()).into());
    }
    Ok(())
}
