//! Finding what was said.
//!
//! `query` makes something harmless of whatever was typed, `index` says what is in the two indexes, `snippet` cuts out what a
//! person is shown. Nothing that is typed reaches SQLite as syntax.

pub(crate) mod index;
mod query;
mod snippet;

use hermes_types::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Connection, Row, params_from_iter};
use serde::Serialize;

use crate::error::{Error, Fault};
use crate::message::Seq;
use crate::session::{HIDDEN_SOURCES, Reader, SessionId};
use crate::store::Store;
use query::{Query, Term};
pub use snippet::Snippet;

/// Hits that one answer has at most.
const MOST: usize = 500;
/// What no index can find, such as an emoji, is looked for in so many of the newest messages.
const SCANNED: i64 = 20_000;

/// What to look for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Search {
    /// Words, `"phrases"`, beginnings with `*`, `OR` and `NOT`; anything else is taken as text.
    pub text: String,
    /// Only in sessions of this source.
    pub source: Option<String>,
    /// How many hits to leave out, for the next page.
    pub skip: usize,
    /// How many hits; never more than five hundred.
    pub limit: usize,
}

/// A message that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hit {
    /// In which session.
    pub session: SessionId,
    /// What people call the session.
    pub title: Option<String>,
    /// The door or channel of the session.
    pub source: String,
    /// Where in the session.
    pub seq: Seq,
    /// Who said it.
    pub role: String,
    /// When.
    pub at: Timestamp,
    /// The words around the first thing that was found.
    pub snippet: Snippet,
}

impl Store {
    /// Finds messages, the best first; what is not made of words, the newest first. Any text can be looked for.
    pub async fn search(&self, reader: &Reader, search: Search) -> Result<Vec<Hit>, Error> {
        let reader = reader.clone();
        self.read(move |connection| find(connection, &reader, &search)).await
    }
}

fn find(connection: &Connection, reader: &Reader, search: &Search) -> Result<Vec<Hit>, Fault> {
    let query = Query::read(&search.text);
    if query.is_empty() {
        return Ok(Vec::new());
    }
    let mut values: Vec<Value> = Vec::new();
    let mut hold = |value: Value| {
        values.push(value);
        format!("?{}", values.len())
    };
    let person = hold(reader.person().map_or(Value::Null, |person| person.to_owned().into()));
    let source = hold(search.source.clone().map_or(Value::Null, Value::from));
    let (from, condition, order) = match query.words() {
        Some(words) => {
            let place = hold(words.into());
            (
                "words JOIN messages m ON m.id = words.rowid",
                format!("words MATCH {place}"),
                "words.rank, m.id DESC",
            )
        }
        None => ("messages m", condition(&query, &mut hold), "m.id DESC"),
    };
    let (skip, limit) = (number(search.skip), number(search.limit.min(MOST)));
    // Sessions are looked at after the messages were found; a plan that begins with them would look at all of their messages.
    let sql = format!(
        "SELECT s.id, s.title, s.source, m.seq, m.role, m.at, m.text
         FROM {from} CROSS JOIN sessions s ON s.n = m.session
         WHERE {condition} AND m.undone IS NULL AND s.source NOT IN ('{}') AND s.lineage IS NOT 'delegate'
         AND ({person} IS NULL OR s.person = {person}) AND ({source} IS NULL OR s.source = {source})
         ORDER BY {order} LIMIT {limit} OFFSET {skip}",
        HIDDEN_SOURCES.join("', '")
    );
    let mut statement = connection.prepare(&sql)?;
    let rows = statement.query_map(params_from_iter(values), |row| read(row, &query))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn number(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn read(row: &Row<'_>, query: &Query) -> rusqlite::Result<Hit> {
    Ok(Hit {
        session: SessionId::new(row.get::<_, String>(0)?),
        title: row.get(1)?,
        source: row.get(2)?,
        seq: Seq::new(row.get(3)?),
        role: row.get(4)?,
        at: Timestamp::from_seconds(row.get(5)?),
        snippet: Snippet::cut(&row.get::<_, String>(6)?, &query.looked_for()),
    })
}

/// What a message must be, as SQL, for a query that the index of words alone cannot answer.
fn condition(query: &Query, hold: &mut impl FnMut(Value) -> String) -> String {
    let mut all = Vec::new();
    for group in &query.wanted {
        let any: Vec<String> = group.iter().map(|term| one(term, hold)).collect();
        all.push(format!("({})", any.join(" OR ")));
    }
    for term in &query.unwanted {
        all.push(format!("NOT {}", one(term, hold)));
    }
    all.join(" AND ")
}

fn one(term: &Term, hold: &mut impl FnMut(Value) -> String) -> String {
    let mut all = Vec::new();
    if let Some(words) = term.words() {
        let place = hold(words.into());
        all.push(format!("m.id IN (SELECT rowid FROM words WHERE words MATCH {place})"));
    }
    for run in term.runs() {
        let place = hold(index::pairs_query(&run).into());
        all.push(format!("m.id IN (SELECT rowid FROM pairs WHERE pairs MATCH {place})"));
        // All pairs may be there, but not in a row.
        if run.chars().count() > 2 {
            let place = hold(run.into());
            all.push(format!("instr(m.text, {place}) > 0"));
        }
    }
    if all.is_empty() {
        let place = hold(term.text().to_owned().into());
        all.push(format!(
            "(m.id > (SELECT max(id) FROM messages) - {SCANNED} AND instr(m.text, {place}) > 0)"
        ));
    }
    format!("({})", all.join(" AND "))
}
