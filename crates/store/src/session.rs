//! Sessions: making, finding and listing them.

pub(crate) mod title;

use std::fmt;

use hermes_types::{Person, SessionKey, Timestamp, Usage};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, OptionalExtension, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, Fault};
use crate::message::{Sum, bounded};
use crate::spending::CostStatus;
use crate::store::Store;

/// Sources that are nobody's conversation: they are in no list and in no search.
pub const HIDDEN_SOURCES: [&str; 2] = ["subagent", "tool"];
/// Sessions that one page of a list has at most.
const PAGE: usize = 1_000;

/// The name of a session: when it began, in UTC, and six random digits, as in `20261115_190500_3fa91c`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SessionId(String);

impl SessionId {
    /// The session with this name.
    pub fn new(id: impl Into<String>) -> Self {
        Self(id.into())
    }

    /// A new name.
    fn draw(at: Timestamp) -> Result<Self, Fault> {
        let mut seed = [0; 3];
        getrandom::fill(&mut seed).map_err(|error| Error::NoRandom(error.to_string()))?;
        let [a, b, c] = seed;
        Ok(Self(format!("{}_{a:02x}{b:02x}{c:02x}", stamp(at))))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A moment as `YYYYMMDD_HHMMSS`, in UTC.
fn stamp(at: Timestamp) -> String {
    let ((year, month, day), seconds) = (at.date(), at.seconds() % 86_400);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}

/// How a session came from another one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Lineage {
    /// It goes on where the other one became too long.
    Continuation,
    /// It is a copy that goes another way.
    Branch,
    /// It does a part of the other one's work.
    Delegate,
}

impl Lineage {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Continuation => "continuation",
            Self::Branch => "branch",
            Self::Delegate => "delegate",
        }
    }
}

impl FromSql for Lineage {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        match value.as_str()? {
            "continuation" => Ok(Self::Continuation),
            "branch" => Ok(Self::Branch),
            "delegate" => Ok(Self::Delegate),
            _ => Err(FromSqlError::InvalidType),
        }
    }
}

impl ToSql for Lineage {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.word().into())
    }
}

/// Where a session comes from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// The other session.
    pub session: SessionId,
    /// How.
    pub lineage: Lineage,
}

/// A session to be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The key of the place it works in, by which its channel finds it again.
    pub key: SessionKey,
    /// The door or channel it came by, in a word.
    pub source: String,
    /// Whose it is.
    pub person: Person,
    /// The model.
    pub model: String,
    /// The provider of the model.
    pub provider: String,
    /// What stands before the first message, byte for byte in every request.
    pub prompt: Prompt,
    /// The directory it began in.
    pub cwd: Option<String>,
    /// The session it comes from.
    pub parent: Option<Parent>,
}

/// What a model is told before the first message. A provider's cache holds only as long as no byte of it changes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Prompt {
    /// The system prompt.
    pub text: String,
    /// The tool list as it is sent.
    pub tools: String,
}

/// A session as it is kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// The key of the place it works in.
    pub key: SessionKey,
    /// The door or channel it came by.
    pub source: String,
    /// Whose it is.
    pub person: Person,
    /// The model.
    pub model: String,
    /// The provider of the model.
    pub provider: String,
    /// The session it comes from, as long as that is there.
    pub parent: Option<SessionId>,
    /// How it comes from another one.
    pub lineage: Option<Lineage>,
    /// What people call it.
    pub title: Option<String>,
    /// The directory it began in.
    pub cwd: Option<String>,
    /// When it began.
    pub started: Timestamp,
    /// When something was last said in it.
    pub touched: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// Why it ended, in a word.
    pub end_reason: Option<String>,
    /// How many messages were ever in it, taken back ones included.
    pub messages: u64,
    /// How many calls of a model it took.
    pub api_calls: u64,
    /// The tokens of all of them.
    pub usage: Usage,
    /// Their cost in millionths of a dollar, as far as it is known.
    pub cost: u64,
    /// How well the cost is known.
    pub cost_status: CostStatus,
    /// Whether it was put away.
    pub archived: bool,
}

/// Who looks. A person finds only their own sessions; there is no way to forget to say who it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reader {
    /// The owner of this hermes, who may see everything.
    Owner,
    /// Somebody.
    Person(Person),
}

impl Reader {
    /// What the column `person` must be, if anything.
    pub(crate) fn person(&self) -> Option<&str> {
        match self {
            Self::Owner => None,
            Self::Person(person) => Some(person.as_str()),
        }
    }
}

/// Which sessions of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Listing {
    /// Only those of this source.
    pub source: Option<String>,
    /// Those put away or the others.
    pub shelf: Shelf,
    /// Only what stands after this one in the list: where the last page ended.
    pub after: Option<SessionId>,
    /// How many; a page never has more than a thousand.
    pub limit: usize,
}

/// Where a session is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Shelf {
    /// At hand.
    #[default]
    Current,
    /// Put away.
    Archived,
    /// Either, and also those that are in no list: parts of others and continued ones.
    Everything,
}

/// What to do when a title is taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clash {
    /// Say so.
    Refuse,
    /// Add the next number: `Title #2`.
    Number,
}

impl Store {
    /// Makes a session.
    pub async fn create(&self, new: NewSession, at: Timestamp) -> Result<SessionId, Error> {
        self.write(move |transaction| Ok(create(transaction, &new, at)?.1)).await
    }

    /// A session by its name.
    pub async fn session(&self, id: &SessionId) -> Result<Session, Error> {
        let id = id.clone();
        self.read(move |connection| get(connection, &id)).await
    }

    /// What the model of a session is told before the first message.
    pub async fn prompt(&self, id: &SessionId) -> Result<Prompt, Error> {
        let id = id.clone();
        self.read(move |connection| {
            let n = number(connection, &id)?;
            prompt(connection, n)
        })
        .await
    }

    /// Changes what the model is told before the first message, after its owner changed the model or the tools.
    pub async fn set_prompt(&self, id: &SessionId, prompt: Prompt) -> Result<(), Error> {
        let id = id.clone();
        self.write(move |transaction| {
            let n = number(transaction, &id)?;
            keep_prompt(transaction, n, &prompt)
        })
        .await
    }

    /// Changes the model of a session.
    pub async fn set_model(&self, id: &SessionId, provider: &str, model: &str) -> Result<(), Error> {
        let (id, provider, model) = (id.clone(), provider.to_owned(), model.to_owned());
        self.write(move |transaction| {
            let sql = "UPDATE sessions SET provider = ?2, model = ?3 WHERE n = ?1";
            let n = number(transaction, &id)?;
            transaction.prepare_cached(sql)?.execute(params![n, provider, model])?;
            Ok(())
        })
        .await
    }

    /// Gives a session a title, and tells what became of it.
    pub async fn set_title(&self, id: &SessionId, title: &str, clash: Clash) -> Result<String, Error> {
        let (id, title) = (id.clone(), title.to_owned());
        self.write(move |transaction| {
            let n = number(transaction, &id)?;
            title::set(transaction, n, &title, clash)
        })
        .await
    }

    /// Ends a session. One that has ended stays as it ended.
    pub async fn end(&self, id: &SessionId, reason: &str, at: Timestamp) -> Result<(), Error> {
        let (id, reason) = (id.clone(), reason.to_owned());
        self.write(move |transaction| {
            let n = number(transaction, &id)?;
            end(transaction, n, &reason, at)
        })
        .await
    }

    /// Opens an ended session again.
    pub async fn reopen(&self, id: &SessionId) -> Result<(), Error> {
        let id = id.clone();
        self.write(move |transaction| {
            let n = number(transaction, &id)?;
            let sql = "UPDATE sessions SET ended = NULL, end_reason = NULL WHERE n = ?1";
            transaction.prepare_cached(sql)?.execute([n])?;
            Ok(())
        })
        .await
    }

    /// Puts a session away, or takes it out again.
    pub async fn shelve(&self, id: &SessionId, shelf: Shelf) -> Result<(), Error> {
        let id = id.clone();
        self.write(move |transaction| {
            let n = number(transaction, &id)?;
            let sql = "UPDATE sessions SET archived = ?2 WHERE n = ?1";
            transaction.prepare_cached(sql)?.execute(params![n, shelf == Shelf::Archived])?;
            Ok(())
        })
        .await
    }

    /// A page of sessions, the one last used first.
    pub async fn sessions(&self, reader: &Reader, listing: Listing) -> Result<Vec<Session>, Error> {
        let reader = reader.clone();
        self.read(move |connection| list(connection, &reader, &listing)).await
    }

    /// The newest session of a key that has not ended: where a chat goes on after a restart.
    pub async fn current(&self, key: &SessionKey) -> Result<Option<Session>, Error> {
        let key = key.clone();
        self.read(move |connection| {
            let sql = format!(
                "{SELECT} WHERE s.key = ?1 AND s.ended IS NULL AND s.lineage IS NOT 'delegate'
                 ORDER BY s.n DESC LIMIT 1"
            );
            Ok(connection.prepare_cached(&sql)?.query_row([key.as_str()], read_session).optional()?)
        })
        .await
    }

    /// The session a person means: by name, by the beginning of a name, by title, or `last`.
    pub async fn meant(&self, reader: &Reader, word: &str) -> Result<Session, Error> {
        let (reader, word) = (reader.clone(), word.to_owned());
        self.read(move |connection| by_number(connection, meant(connection, &reader, &word)?)).await
    }

    /// The session to go on with when a person means this one: the same, or what continues it.
    pub async fn resolve(&self, reader: &Reader, word: &str) -> Result<Session, Error> {
        let (reader, word) = (reader.clone(), word.to_owned());
        self.read(move |connection| {
            let n = meant(connection, &reader, &word)?;
            by_number(connection, tip(connection, n)?)
        })
        .await
    }
}

/// All columns of a session; what follows narrows it down.
const SELECT: &str = "SELECT s.id, s.key, s.source, s.person, s.model, s.provider, p.id, s.lineage, s.title, s.cwd,
    s.started, s.touched, s.ended, s.end_reason, s.last_seq, s.api_calls, s.input, s.cache_read, s.cache_write,
    s.output, s.reasoning, s.cost, s.cost_status, s.archived
    FROM sessions s LEFT JOIN sessions p ON p.n = s.parent";

fn read_session(row: &Row<'_>) -> rusqlite::Result<Session> {
    let seconds = |at: usize| row.get::<_, u64>(at).map(Timestamp::from_seconds);
    Ok(Session {
        id: SessionId(row.get(0)?),
        key: SessionKey::new(row.get::<_, String>(1)?),
        source: row.get(2)?,
        person: Person::new(row.get::<_, String>(3)?),
        model: row.get(4)?,
        provider: row.get(5)?,
        parent: row.get::<_, Option<String>>(6)?.map(SessionId),
        lineage: row.get(7)?,
        title: row.get(8)?,
        cwd: row.get(9)?,
        started: seconds(10)?,
        touched: seconds(11)?,
        ended: row.get::<_, Option<u64>>(12)?.map(Timestamp::from_seconds),
        end_reason: row.get(13)?,
        messages: row.get(14)?,
        api_calls: row.get(15)?,
        usage: Usage {
            input: row.get(16)?,
            cache_read: row.get(17)?,
            cache_write: row.get(18)?,
            output: row.get(19)?,
            reasoning: row.get(20)?,
        },
        cost: row.get(21)?,
        cost_status: row.get(22)?,
        archived: row.get(23)?,
    })
}

/// The sessions, called `s`, of which something is so.
pub(crate) fn that(
    connection: &Connection,
    condition: &str,
    values: &[&dyn ToSql],
) -> Result<Vec<Session>, Fault> {
    let mut statement = connection.prepare_cached(&format!("{SELECT} WHERE {condition}"))?;
    Ok(statement.query_map(values, read_session)?.collect::<Result<_, _>>()?)
}

pub(crate) fn get(connection: &Connection, id: &SessionId) -> Result<Session, Fault> {
    let sql = format!("{SELECT} WHERE s.id = ?1");
    let found = connection.prepare_cached(&sql)?.query_row([id.as_str()], read_session).optional()?;
    found.ok_or_else(|| Error::NoSession(id.0.clone()).into())
}

fn by_number(connection: &Connection, n: i64) -> Result<Session, Fault> {
    let sql = format!("{SELECT} WHERE s.n = ?1");
    Ok(connection.prepare_cached(&sql)?.query_row([n], read_session)?)
}

/// The number of a session.
pub(crate) fn number(connection: &Connection, id: &SessionId) -> Result<i64, Fault> {
    let sql = "SELECT n FROM sessions WHERE id = ?1";
    let found = connection.prepare_cached(sql)?.query_row([id.as_str()], |row| row.get(0)).optional()?;
    found.ok_or_else(|| Error::NoSession(id.0.clone()).into())
}

/// The name of a session that has a number.
pub(crate) fn name(connection: &Connection, n: i64) -> Result<SessionId, Fault> {
    let sql = "SELECT id FROM sessions WHERE n = ?1";
    Ok(SessionId(connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?))
}

pub(crate) fn create(
    connection: &Connection,
    new: &NewSession,
    at: Timestamp,
) -> Result<(i64, SessionId), Fault> {
    let parent = match &new.parent {
        Some(parent) => Some(number(connection, &parent.session)?),
        None => None,
    };
    let id = SessionId::draw(at)?;
    let sql = "INSERT INTO sessions (id, key, source, person, model, provider, parent, lineage, cwd, started, touched)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?10) ON CONFLICT (id) DO NOTHING";
    let made = connection.prepare_cached(sql)?.execute(params![
        id.as_str(),
        new.key.as_str(),
        new.source,
        new.person.as_str(),
        new.model,
        new.provider,
        parent,
        new.parent.as_ref().map(|parent| parent.lineage),
        new.cwd,
        at.seconds(),
    ])?;
    if made == 0 {
        // Sixteen million names in one second: another draw ends it.
        return create(connection, new, at);
    }
    let n = connection.last_insert_rowid();
    keep_prompt(connection, n, &new.prompt)?;
    Ok((n, id))
}

pub(crate) fn prompt(connection: &Connection, n: i64) -> Result<Prompt, Fault> {
    let sql = "SELECT prompt, tools, sum FROM prompts WHERE session = ?1";
    let read = |row: &Row<'_>| Ok((Prompt { text: row.get(0)?, tools: row.get(1)? }, row.get(2)?));
    let found: Option<(Prompt, i64)> = connection.prepare_cached(sql)?.query_row([n], read).optional()?;
    let (prompt, sum) = found.ok_or_else(|| Fault::Damaged("a session has no prompt".to_owned()))?;
    if prompt.sum() != sum {
        return Err(Fault::Damaged("a prompt is not what was written".to_owned()));
    }
    Ok(prompt)
}

fn keep_prompt(connection: &Connection, n: i64, prompt: &Prompt) -> Result<(), Fault> {
    bounded("a prompt", prompt.text.len() + prompt.tools.len())?;
    let sql = "INSERT INTO prompts (session, prompt, tools, sum) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (session) DO UPDATE SET prompt = ?2, tools = ?3, sum = ?4";
    connection.prepare_cached(sql)?.execute(params![n, prompt.text, prompt.tools, prompt.sum()])?;
    Ok(())
}

impl Prompt {
    fn sum(&self) -> i64 {
        Sum::default().with(&self.text).with(&self.tools).value()
    }
}

pub(crate) fn end(connection: &Connection, n: i64, reason: &str, at: Timestamp) -> Result<(), Fault> {
    let sql = "UPDATE sessions SET ended = ?2, end_reason = ?3 WHERE n = ?1 AND ended IS NULL";
    connection.prepare_cached(sql)?.execute(params![n, at.seconds(), reason])?;
    Ok(())
}

fn list(connection: &Connection, reader: &Reader, listing: &Listing) -> Result<Vec<Session>, Fault> {
    let shelf = match listing.shelf {
        Shelf::Current => "AND s.archived = 0",
        Shelf::Archived => "AND s.archived = 1",
        Shelf::Everything => "",
    };
    let shown = if listing.shelf == Shelf::Everything { String::new() } else { shown() };
    let (touched, n) = match &listing.after {
        Some(id) => {
            let sql = "SELECT touched, n FROM sessions WHERE id = ?1";
            let found = connection.query_row(sql, [id.as_str()], |row| Ok((row.get(0)?, row.get(1)?)));
            found.optional()?.ok_or_else(|| Error::NoSession(id.0.clone()))?
        }
        None => (i64::MAX, i64::MAX),
    };
    let sql = format!(
        "{SELECT} WHERE (s.touched, s.n) < (?1, ?2) AND (?3 IS NULL OR s.person = ?3)
         AND (?4 IS NULL OR s.source = ?4) {shelf} {shown} ORDER BY s.touched DESC, s.n DESC LIMIT ?5"
    );
    let limit = i64::try_from(listing.limit.min(PAGE)).unwrap_or_default();
    let mut statement = connection.prepare_cached(&sql)?;
    let rows =
        statement.query_map(params![touched, n, reader.person(), listing.source, limit], read_session)?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// What is in a list: no part of another session, and of a session that was continued only the end.
fn shown() -> String {
    format!(
        "AND s.lineage IS NOT 'delegate' AND s.source NOT IN ('{}') AND NOT EXISTS (
            SELECT 1 FROM sessions c WHERE c.parent = s.n AND c.lineage = 'continuation')",
        HIDDEN_SOURCES.join("', '")
    )
}

fn meant(connection: &Connection, reader: &Reader, word: &str) -> Result<i64, Fault> {
    let person = reader.person();
    let one = |sql: &str, value: &str| -> Result<Option<i64>, Fault> {
        let mut statement = connection.prepare_cached(sql)?;
        Ok(statement.query_row(params![value, person], |row| row.get(0)).optional()?)
    };
    const MINE: &str = "(?2 IS NULL OR person = ?2)";
    if word == "last" {
        let listing = Listing { limit: 1, ..Listing::default() };
        let found = list(connection, reader, &listing)?.into_iter().next();
        return found
            .ok_or_else(|| Error::NoSession(word.to_owned()).into())
            .and_then(|s| number(connection, &s.id));
    }
    if let Some(n) = one(&format!("SELECT n FROM sessions WHERE id = ?1 AND {MINE}"), word)? {
        return Ok(n);
    }
    if let Some(n) = title::find(connection, word, person)? {
        return Ok(n);
    }
    // Names are digits, an underscore and hexadecimal digits, so nothing in a beginning of one is a pattern.
    let is_beginning = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_');
    if is_beginning {
        let sql = format!("SELECT n FROM sessions WHERE id >= ?1 AND id < ?1 || 'g' AND {MINE} LIMIT 100");
        let mut statement = connection.prepare_cached(&sql)?;
        let found: Vec<i64> =
            statement.query_map(params![word, person], |row| row.get(0))?.collect::<Result<_, _>>()?;
        match found.as_slice() {
            [n] => return Ok(*n),
            [] => {}
            several => return Err(Error::Ambiguous { word: word.to_owned(), count: several.len() }.into()),
        }
    }
    Err(Error::NoSession(word.to_owned()).into())
}

/// The session at the end of a row of continuations.
pub(crate) fn tip(connection: &Connection, n: i64) -> Result<i64, Fault> {
    let sql = "WITH RECURSIVE line (n, depth) AS (
                   VALUES (?1, 0)
                   UNION SELECT c.n, depth + 1 FROM sessions c JOIN line ON c.parent = line.n
                         WHERE c.lineage = 'continuation' AND depth < 10000)
               SELECT n FROM line ORDER BY depth DESC, n DESC LIMIT 1";
    Ok(connection.prepare_cached(sql)?.query_row([n], |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_written_as_dates() {
        let cases = [
            (0, "19700101_000000"),
            (951_782_399, "20000228_235959"),
            (951_782_400, "20000229_000000"),
            (1_794_769_496, "20261115_190456"),
            (4_107_542_400, "21000301_000000"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(stamp(Timestamp::from_seconds(seconds)), expected);
        }
    }
}
