//! The messages of a session: adding, reading, taking back, and going another way.

use std::ops::Range;

use hermes_types::{CallId, Message, Timestamp};
use rusqlite::{Connection, OptionalExtension, params};

use crate::error::{Error, Fault};
use crate::message::{self, COLUMNS, Entry, Kept, MARK, Seq};
use crate::search;
use crate::session::{self, Clash, Lineage, NewSession, Parent, Prompt, SessionId, title};
use crate::store::Store;

/// Bytes of messages in one page, about: a page ends with the message that reaches them.
const PAGE_BYTES: usize = 4 << 20;

/// Which messages of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that count.
    Active,
    /// Also those that were taken back.
    All,
}

/// What was taken back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undone {
    /// How many messages.
    pub messages: usize,
    /// What the person had said first of it, to say it again in another way.
    pub text: String,
}

impl Store {
    /// All messages of a session that count, as a model is shown them.
    pub async fn history(&self, session: &SessionId) -> Result<Vec<Kept>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::number(connection, &session)?;
            whole(connection, n)?;
            since(connection, n, Seq::START)
        })
        .await
    }

    /// Some messages of a session, after a place. Fewer than asked for come back when they are large, so only an empty page is the end.
    pub async fn messages(
        &self,
        session: &SessionId,
        which: Which,
        after: Seq,
        limit: usize,
    ) -> Result<Vec<Kept>, Error> {
        let session = session.clone();
        self.read(move |connection| {
            let n = session::number(connection, &session)?;
            page(connection, n, which, after, limit)
        })
        .await
    }

    /// Takes back the last things a person said, and everything that came of them. `None` when nobody has said anything.
    pub async fn undo(&self, session: &SessionId, exchanges: usize) -> Result<Option<Undone>, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let n = session::number(transaction, &session)?;
            idle(transaction, n, &session)?;
            undo(transaction, n, exchanges)
        })
        .await
    }

    /// Gives back what was last taken back, as long as nothing was said since. Tells how many messages.
    pub async fn restore(&self, session: &SessionId) -> Result<usize, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let n = session::number(transaction, &session)?;
            idle(transaction, n, &session)?;
            restore(transaction, n)
        })
        .await
    }

    /// Makes a session that begins as a copy of another one, up to a place in it or whole.
    pub async fn branch(
        &self,
        session: &SessionId,
        until: Option<Seq>,
        at: Timestamp,
    ) -> Result<SessionId, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let (from, to, id) = child(transaction, &session, Lineage::Branch, None, at)?;
            let mut after = Seq::START;
            let is_wanted = |kept: &Kept| until.is_none_or(|until| kept.seq <= until);
            loop {
                let some = page(transaction, from, Which::Active, after, 200)?;
                let Some(last) = some.last() else { break };
                after = last.seq;
                let entries: Vec<Entry> = some.into_iter().filter(is_wanted).map(entry).collect();
                if entries.is_empty() {
                    break;
                }
                add(transaction, to, &entries)?;
            }
            Ok(id)
        })
        .await
    }

    /// Makes the session that goes on where another one became too long: with its own beginning, and with the open turn. The other one
    /// ends. All of it happens, or nothing.
    pub async fn continuation(
        &self,
        session: &SessionId,
        prompt: Prompt,
        beginning: Vec<Entry>,
        at: Timestamp,
    ) -> Result<SessionId, Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let (from, to, id) = child(transaction, &session, Lineage::Continuation, Some(prompt), at)?;
            session::end(transaction, from, "compression", at)?;
            let sql = "UPDATE turns SET session = ?2, first_seq = 1 WHERE session = ?1 AND ended IS NULL";
            transaction.prepare_cached(sql)?.execute([from, to])?;
            add(transaction, to, &beginning)?;
            Ok(id)
        })
        .await
    }
}

/// Makes a session that is like another one but for its messages.
fn child(
    connection: &Connection,
    of: &SessionId,
    lineage: Lineage,
    prompt: Option<Prompt>,
    at: Timestamp,
) -> Result<(i64, i64, SessionId), Fault> {
    let parent = session::get(connection, of)?;
    let from = session::number(connection, of)?;
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
        title::set(connection, to, &name, Clash::Number)?;
    }
    Ok((from, to, id))
}

fn entry(kept: Kept) -> Entry {
    Entry { message: kept.message, at: kept.at, finish: kept.finish, usage: kept.usage }
}

/// Adds messages at the end. Gives their places.
pub(crate) fn add(connection: &Connection, n: i64, entries: &[Entry]) -> Result<Range<Seq>, Fault> {
    let sql = "SELECT last_seq FROM sessions WHERE n = ?1";
    let last: u32 = connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?;
    let first = Seq::new(last).next();
    let mut next = first;
    for entry in entries {
        let columns = entry.columns(next)?;
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
        // A clock that went back does not make a session older than it was.
        let sql = "UPDATE sessions SET last_seq = ?2, touched = max(touched, ?3) WHERE n = ?1";
        connection.prepare_cached(sql)?.execute(params![n, next.number() - 1, entry.at.seconds()])?;
    }
    Ok(first..next)
}

/// Puts another text in the place of the last answer to a call.
pub(crate) fn replace_answer(
    connection: &Connection,
    n: i64,
    call: &CallId,
    text: String,
) -> Result<(), Fault> {
    let sql = format!(
        "SELECT {COLUMNS}, id FROM messages WHERE session = ?1 AND role = 'tool' AND undone IS NULL ORDER BY seq DESC"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query([n])?;
    while let Some(row) = rows.next()? {
        let kept = message::read(row)?;
        let Message::Tool { call: other, name, .. } = &kept.message else { continue };
        if other != call {
            continue;
        }
        let (id, seq): (i64, Seq) = (row.get(9)?, kept.seq);
        let message = Message::Tool { call: call.clone(), name: name.clone(), text };
        let columns = entry(Kept { message, ..kept }).columns(seq)?;
        let sql = "UPDATE messages SET text = ?2, sum = ?3 WHERE id = ?1";
        connection.prepare_cached(sql)?.execute(params![id, columns.text, columns.sum])?;
        search::index::remove(connection, id)?;
        return search::index::add(connection, id, &columns.text);
    }
    Err(Error::NoAnswer(call.as_str().to_owned()).into())
}

/// Whether as many messages are there as were ever added: a lost one would leave no other trace.
fn whole(connection: &Connection, n: i64) -> Result<(), Fault> {
    let sql =
        "SELECT last_seq = (SELECT count(*) FROM messages WHERE session = ?1) FROM sessions WHERE n = ?1";
    if connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))? {
        return Ok(());
    }
    Err(Fault::Damaged("messages of a session are missing".to_owned()))
}

/// All messages that count, from a place on.
pub(crate) fn since(connection: &Connection, n: i64, from: Seq) -> Result<Vec<Kept>, Fault> {
    let sql = format!(
        "SELECT {COLUMNS} FROM messages WHERE session = ?1 AND seq >= ?2 AND undone IS NULL ORDER BY seq"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![n, from.number()])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(message::read(row)?);
    }
    Ok(found)
}

pub(crate) fn page(
    connection: &Connection,
    n: i64,
    which: Which,
    after: Seq,
    limit: usize,
) -> Result<Vec<Kept>, Fault> {
    let active = match which {
        Which::Active => "AND undone IS NULL",
        Which::All => "",
    };
    let sql = format!(
        "SELECT {COLUMNS}, octet_length(text) + coalesce(octet_length(rest), 0) FROM messages
         WHERE session = ?1 AND seq > ?2 {active} ORDER BY seq LIMIT ?3"
    );
    let mut statement = connection.prepare_cached(&sql)?;
    let mut rows = statement.query(params![n, after.number(), i64::try_from(limit).unwrap_or(i64::MAX)])?;
    let (mut found, mut bytes) = (Vec::new(), 0);
    while let Some(row) = rows.next()? {
        found.push(message::read(row)?);
        bytes += row.get::<_, usize>(9)?;
        if bytes >= PAGE_BYTES {
            break;
        }
    }
    Ok(found)
}

fn undo(connection: &Connection, n: i64, exchanges: usize) -> Result<Option<Undone>, Fault> {
    let Some(back) = exchanges.checked_sub(1) else { return Ok(None) };
    // Further back than the beginning is the beginning.
    let sql = "SELECT min(seq) FROM (
                   SELECT seq FROM messages WHERE session = ?1 AND undone IS NULL AND role = 'user'
                   ORDER BY seq DESC LIMIT ?2 + 1)";
    let back = i64::try_from(back).unwrap_or(i64::MAX - 1);
    let from: Option<u32> =
        connection.prepare_cached(sql)?.query_row([n, back], |row| row.get(0)).optional()?.flatten();
    let Some(from) = from else { return Ok(None) };
    let first = page(connection, n, Which::Active, Seq::new(from - 1), 1)?;
    let Some(Message::User { text, .. }) = first.into_iter().next().map(|kept| kept.message) else {
        return Ok(None);
    };
    let sql = "SELECT coalesce(max(undone), 0) + 1 FROM messages WHERE session = ?1";
    let round: i64 = connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?;
    let sql = format!("UPDATE messages SET {MARK} WHERE session = ?1 AND seq >= ?2 AND undone IS NULL");
    let messages = connection.prepare_cached(&sql)?.execute(params![n, from, round])?;
    Ok(Some(Undone { messages, text }))
}

fn restore(connection: &Connection, n: i64) -> Result<usize, Fault> {
    let sql = "SELECT undone, min(seq) FROM messages WHERE session = ?1 AND undone IS NOT NULL
               GROUP BY undone ORDER BY undone DESC LIMIT 1";
    let last = connection.prepare_cached(sql)?.query_row([n], |row| Ok((row.get(0)?, row.get(1)?)));
    let Some((round, first)): Option<(i64, i64)> = last.optional()? else { return Ok(0) };
    let sql = "SELECT EXISTS (SELECT 1 FROM messages WHERE session = ?1 AND seq > ?2 AND undone IS NULL)";
    if connection.prepare_cached(sql)?.query_row([n, first], |row| row.get(0))? {
        return Ok(0);
    }
    let sql = format!("UPDATE messages SET {MARK} WHERE session = ?1 AND undone = ?2");
    Ok(connection.prepare_cached(&sql)?.execute(params![n, round, None::<i64>])?)
}

/// Refuses to change what a turn builds on.
fn idle(connection: &Connection, n: i64, session: &SessionId) -> Result<(), Fault> {
    let sql = "SELECT EXISTS (SELECT 1 FROM turns WHERE session = ?1 AND ended IS NULL)";
    if connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))? {
        return Err(Error::AtWork(session.as_str().to_owned()).into());
    }
    Ok(())
}
