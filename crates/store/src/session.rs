//! Creating, finding and listing sessions.

pub(crate) mod title;

use std::fmt;

use hermes_types::{Person, SessionKey, Timestamp, Usage};
use rusqlite::{Connection, Row, Transaction, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, QueryError, QueryResult, Result};
use crate::message::{Checksum, check_size};
use crate::spending::CostStatus;
use crate::sql;
use crate::store::Store;

const MAX_PAGE: usize = 1_000;

hermes_types::text_id! {
    /// A session id: its UTC start time and six random hex digits, as in `20261115_190500_3fa91c`.
    SessionId
}

impl SessionId {
    fn generate(at: Timestamp) -> QueryResult<Self> {
        let mut seed = [0; 3];
        getrandom::fill(&mut seed).map_err(|error| Error::NoRandom(error.to_string()))?;
        Ok(Self(format!("{}_{}", format_utc(at), hermes_types::hex(&seed))))
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// A time as `YYYYMMDD_HHMMSS`, in UTC.
fn format_utc(at: Timestamp) -> String {
    let ((year, month, day), seconds) = (at.date(), at.seconds() % 86_400);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}{month:02}{day:02}_{hour:02}{minute:02}{second:02}")
}

/// A session to be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewSession {
    /// The key of its environment, by which a channel finds the session again.
    pub key: SessionKey,
    /// The entry point or channel.
    pub source: String,
    pub person: Person,
    pub model: String,
    pub provider: String,
    /// Sent before the first message, unchanged in every request.
    pub prompt: SessionPrompt,
    /// The initial working directory.
    pub cwd: Option<String>,
}

/// The system prompt and tool list. Any changed byte invalidates the provider's prompt cache.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SessionPrompt {
    pub text: String,
    /// The serialized tool list.
    pub tools: String,
}

/// A stored session.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SessionRow {
    pub id: SessionId,
    /// The key of its environment.
    pub key: SessionKey,
    /// The entry point or channel.
    pub source: String,
    pub person: Person,
    pub model: String,
    pub provider: String,
    pub title: Option<String>,
    /// The initial working directory.
    pub cwd: Option<String>,
    pub started: Timestamp,
    /// The time of the last message.
    pub touched: Timestamp,
    pub ended: Option<Timestamp>,
    pub end_reason: Option<String>,
    /// The number of messages ever added, including undone ones.
    #[serde(rename = "message_count")]
    pub messages: u64,
    /// The number of model calls.
    pub api_calls: u64,
    pub usage: Usage,
    /// The known cost, in millionths of a dollar.
    pub cost: u64,
    pub cost_status: CostStatus,
}

impl SessionRow {
    /// The known cost, for people.
    pub fn cost_text(&self) -> String {
        if self.cost == 0 && self.cost_status == CostStatus::Unknown {
            return "unknown".to_owned();
        }
        let (dollars, millionths) = (self.cost / 1_000_000, self.cost % 1_000_000);
        format!("${dollars}.{:04} ({})", millionths / 100, self.cost_status.as_str())
    }
}

/// Who reads the store. A person sees only their own sessions; every query must name its viewer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Viewer {
    /// The owner of this installation, who sees everything.
    Owner,
    Person(Person),
}

impl Viewer {
    /// The required value of the column `person`, if any.
    pub(crate) fn person(&self) -> Option<&str> {
        match self {
            Self::Owner => None,
            Self::Person(person) => Some(person.as_str()),
        }
    }
}

/// A page of a session list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SessionQuery {
    pub source: Option<String>,
    /// Only sessions after this one in the list: the last one of the previous page.
    pub after: Option<SessionId>,
    /// At most 1,000.
    pub limit: usize,
}

impl Store {
    /// Runs `work` in one transaction with the row number of a session.
    pub(crate) async fn write_session<T: Send + 'static>(
        &self,
        id: &SessionId,
        work: impl FnOnce(&Transaction<'_>, i64) -> QueryResult<T> + Send + 'static,
    ) -> Result<T> {
        let id = id.clone();
        self.write(move |transaction| work(transaction, row_number(transaction, &id)?)).await
    }

    /// Runs `work` on a reading connection with the row number of a session.
    pub(crate) async fn read_session<T: Send + 'static>(
        &self,
        id: &SessionId,
        work: impl FnOnce(&Connection, i64) -> QueryResult<T> + Send + 'static,
    ) -> Result<T> {
        let id = id.clone();
        self.read(move |connection| work(connection, row_number(connection, &id)?)).await
    }

    pub async fn create_session(&self, new: NewSession, at: Timestamp) -> Result<SessionId> {
        self.write(move |transaction| create(transaction, &new, at)).await
    }

    pub async fn session(&self, id: &SessionId) -> Result<SessionRow> {
        self.read_session(id, by_row).await
    }

    pub async fn session_prompt(&self, id: &SessionId) -> Result<SessionPrompt> {
        self.read_session(id, prompt).await
    }

    /// Replaces the prompt after the owner changed the model or the tools.
    pub async fn set_prompt(&self, id: &SessionId, prompt: SessionPrompt) -> Result<()> {
        self.write_session(id, move |transaction, n| save_prompt(transaction, n, &prompt)).await
    }

    pub async fn set_model(&self, id: &SessionId, provider: &str, model: &str) -> Result<()> {
        let (provider, model) = (provider.to_owned(), model.to_owned());
        self.write_session(id, move |transaction, n| {
            let sql = "UPDATE sessions SET provider = ?2, model = ?3 WHERE n = ?1";
            sql::execute(transaction, sql, params![n, provider, model])
        })
        .await
    }

    /// Sets the title of a session and returns it as stored: `Title #2` if another session has it.
    pub async fn set_title(&self, id: &SessionId, title: &str) -> Result<String> {
        let title = title.to_owned();
        self.write_session(id, move |transaction, n| title::set(transaction, n, &title)).await
    }

    /// Ends a session. One that has ended stays unchanged.
    pub async fn end_session(&self, id: &SessionId, reason: &str, at: Timestamp) -> Result<()> {
        let reason = reason.to_owned();
        self.write_session(id, move |transaction, n| {
            let sql = "UPDATE sessions SET ended = ?2, end_reason = ?3 WHERE n = ?1 AND ended IS NULL";
            sql::execute(transaction, sql, params![n, at.seconds(), reason])
        })
        .await
    }

    /// Reopens an ended session.
    pub async fn reopen_session(&self, id: &SessionId) -> Result<()> {
        self.write_session(id, |transaction, n| {
            let sql = "UPDATE sessions SET ended = NULL, end_reason = NULL WHERE n = ?1";
            sql::execute(transaction, sql, [n])
        })
        .await
    }

    /// A page of sessions, last used first.
    pub async fn sessions(&self, viewer: &Viewer, query: SessionQuery) -> Result<Vec<SessionRow>> {
        let viewer = viewer.clone();
        self.read(move |connection| list(connection, &viewer, &query)).await
    }

    /// The newest session of a key that has not ended, where a chat resumes after a restart.
    pub async fn current_session(&self, key: &SessionKey) -> Result<Option<SessionRow>> {
        let sql = format!("{SELECT} WHERE key = ?1 AND ended IS NULL ORDER BY n DESC LIMIT 1");
        Ok(self.rows(sql, (key.as_str().to_owned(),), read_row).await?.pop())
    }

    /// Finds a session by id, id prefix, title, or `last`.
    pub async fn find_session(&self, viewer: &Viewer, word: &str) -> Result<SessionRow> {
        let (viewer, word) = (viewer.clone(), word.to_owned());
        self.read(move |connection| by_row(connection, find_row(connection, &viewer, &word)?)).await
    }
}

/// Selects all columns of a session; conditions follow.
pub(crate) const SELECT: &str =
    "SELECT id, key, source, person, model, provider, title, cwd, started, touched, ended,
    end_reason, last_seq, api_calls, input, cache_read, cache_write, output, reasoning, cost, cost_status
    FROM sessions";

pub(crate) fn read_row(row: &Row<'_>) -> QueryResult<SessionRow> {
    Ok(SessionRow {
        id: SessionId(row.get(0)?),
        key: SessionKey::new(row.get::<_, String>(1)?),
        source: row.get(2)?,
        person: Person::new(row.get::<_, String>(3)?),
        model: row.get(4)?,
        provider: row.get(5)?,
        title: row.get(6)?,
        cwd: row.get(7)?,
        started: Timestamp::from_seconds(row.get(8)?),
        touched: Timestamp::from_seconds(row.get(9)?),
        ended: row.get::<_, Option<u64>>(10)?.map(Timestamp::from_seconds),
        end_reason: row.get(11)?,
        messages: row.get(12)?,
        api_calls: row.get(13)?,
        usage: Usage {
            input: row.get(14)?,
            cache_read: row.get(15)?,
            cache_write: row.get(16)?,
            output: row.get(17)?,
            reasoning: row.get(18)?,
        },
        cost: row.get(19)?,
        cost_status: row.get(20)?,
    })
}

fn by_row(connection: &Connection, n: i64) -> QueryResult<SessionRow> {
    let sql = format!("{SELECT} WHERE n = ?1");
    Ok(sql::first(connection, &sql, [n], read_row)?.ok_or(rusqlite::Error::QueryReturnedNoRows)?)
}

pub(crate) fn row_number(connection: &Connection, id: &SessionId) -> QueryResult<i64> {
    let found =
        sql::first(connection, "SELECT n FROM sessions WHERE id = ?1", [&id.0], |row| Ok(row.get(0)?))?;
    found.ok_or_else(|| Error::NoSession(id.0.clone()).into())
}

fn create(connection: &Connection, new: &NewSession, at: Timestamp) -> QueryResult<SessionId> {
    let id = SessionId::generate(at)?;
    let sql = "INSERT INTO sessions (id, key, source, person, model, provider, cwd, started, touched)
               VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8) ON CONFLICT (id) DO NOTHING";
    let values = params![
        id.as_str(),
        new.key.as_str(),
        new.source,
        new.person.as_str(),
        new.model,
        new.provider,
        new.cwd,
        at.seconds(),
    ];
    if sql::execute_counted(connection, sql, values)? == 0 {
        // The id is taken: sixteen million ids per second. Try another one.
        return create(connection, new, at);
    }
    save_prompt(connection, connection.last_insert_rowid(), &new.prompt)?;
    Ok(id)
}

fn prompt(connection: &Connection, n: i64) -> QueryResult<SessionPrompt> {
    let sql = "SELECT prompt, tools, sum FROM prompts WHERE session = ?1";
    let read =
        |row: &Row<'_>| Ok((SessionPrompt { text: row.get(0)?, tools: row.get(1)? }, row.get::<_, i64>(2)?));
    match sql::first(connection, sql, [n], read)? {
        Some((prompt, sum)) if prompt.sum() == sum => Ok(prompt),
        Some(_) => Err(QueryError::Corrupt("the checksum of a prompt does not match".to_owned())),
        None => Err(QueryError::Corrupt("a session has no prompt".to_owned())),
    }
}

fn save_prompt(connection: &Connection, n: i64, prompt: &SessionPrompt) -> QueryResult {
    check_size("a prompt", prompt.text.len() + prompt.tools.len())?;
    let sql = "INSERT INTO prompts (session, prompt, tools, sum) VALUES (?1, ?2, ?3, ?4)
               ON CONFLICT (session) DO UPDATE SET prompt = ?2, tools = ?3, sum = ?4";
    sql::execute(connection, sql, params![n, prompt.text, prompt.tools, prompt.sum()])
}

impl SessionPrompt {
    fn sum(&self) -> i64 {
        Checksum::default().with(&self.text).with(&self.tools).value()
    }
}

fn list(connection: &Connection, viewer: &Viewer, query: &SessionQuery) -> QueryResult<Vec<SessionRow>> {
    let (touched, n) = match &query.after {
        Some(id) => {
            let sql = "SELECT touched, n FROM sessions WHERE id = ?1";
            let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
            sql::first(connection, sql, [&id.0], read)?.ok_or_else(|| Error::NoSession(id.0.clone()))?
        }
        None => (i64::MAX, i64::MAX),
    };
    let sql = format!(
        "{SELECT} WHERE (touched, n) < (?1, ?2) AND (?3 IS NULL OR person = ?3)
         AND (?4 IS NULL OR source = ?4) ORDER BY touched DESC, n DESC LIMIT ?5"
    );
    let limit = i64::try_from(query.limit.min(MAX_PAGE)).unwrap_or_default();
    sql::rows(connection, &sql, params![touched, n, viewer.person(), query.source, limit], read_row)
}

fn find_row(connection: &Connection, viewer: &Viewer, word: &str) -> QueryResult<i64> {
    let not_found = || Error::NoSession(word.to_owned());
    let person = viewer.person();
    if word == "last" {
        let sql =
            "SELECT n FROM sessions WHERE ?1 IS NULL OR person = ?1 ORDER BY touched DESC, n DESC LIMIT 1";
        let found = sql::first(connection, sql, [person], |row| Ok(row.get(0)?))?;
        return Ok(found.ok_or_else(not_found)?);
    }
    const VISIBLE: &str = "(?2 IS NULL OR person = ?2)";
    let find = |condition: &str| -> QueryResult<Vec<i64>> {
        let sql = format!("SELECT n FROM sessions WHERE {condition} AND {VISIBLE} LIMIT 100");
        sql::rows(connection, &sql, params![word, person], |row| Ok(row.get(0)?))
    };
    if let [n] = find("id = ?1")?.as_slice() {
        return Ok(*n);
    }
    if let Some(n) = title::find(connection, word, person)? {
        return Ok(n);
    }
    // Ids consist of digits, an underscore and hex digits, so a prefix cannot contain a pattern.
    let is_prefix = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'_');
    let found = if is_prefix { find("id >= ?1 AND id < ?1 || 'g'")? } else { Vec::new() };
    match found.as_slice() {
        [n] => Ok(*n),
        [] => Err(not_found().into()),
        several => Err(Error::Ambiguous { word: word.to_owned(), count: several.len() }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_formatted_as_dates() {
        let cases = [
            (0, "19700101_000000"),
            (951_782_399, "20000228_235959"),
            (951_782_400, "20000229_000000"),
            (1_794_769_496, "20261115_190456"),
            (4_107_542_400, "21000301_000000"),
        ];
        for (seconds, expected) in cases {
            assert_eq!(format_utc(Timestamp::from_seconds(seconds)), expected);
        }
    }
}
