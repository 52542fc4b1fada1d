//! Full-text search over messages.
//!
//! `query` turns any input into a safe query, `index` fills the two indexes, and `snippet` cuts out
//! the text to show. User input never reaches SQLite as syntax.

pub(crate) mod index;
mod query;
mod snippet;

use hermes_types::Timestamp;
use rusqlite::types::Value;
use rusqlite::{Row, params_from_iter};
use serde::Serialize;

use crate::error::{QueryResult, Result};
use crate::message::Seq;
use crate::session::{SessionId, Viewer};
use crate::store::Store;
use query::{Query, Term};
pub use snippet::Snippet;

const MAX_HITS: usize = 500;
/// Text that no index covers, such as emoji, is searched in this many of the newest messages.
const SCAN_LIMIT: i64 = 20_000;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SearchQuery {
    /// Words, `"phrases"`, prefixes with `*`, `OR` and `NOT`; everything else is literal text.
    pub text: String,
    pub source: Option<String>,
    /// The number of hits to skip, for paging.
    pub skip: usize,
    /// At most 500.
    pub limit: usize,
}

/// A matching message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageHit {
    pub session: SessionId,
    /// The title of the session.
    pub title: Option<String>,
    /// The entry point or channel of the session.
    pub source: String,
    pub seq: Seq,
    pub role: String,
    pub at: Timestamp,
    /// The text around the first match.
    pub snippet: Snippet,
}

impl Store {
    /// Finds messages, best match first. Queries that are not made of words return the newest
    /// first.
    pub async fn search(&self, reader: &Viewer, search: SearchQuery) -> Result<Vec<MessageHit>> {
        let reader = reader.clone();
        self.read(move |connection| {
            let query = Query::parse(&search.text);
            if query.is_empty() {
                return Ok(Vec::new());
            }
            let mut values: Vec<Value> = Vec::new();
            let mut bind = |value: Value| {
                values.push(value);
                format!("?{}", values.len())
            };
            let person = bind(reader.person().map_or(Value::Null, |person| person.to_owned().into()));
            let source = bind(search.source.clone().map_or(Value::Null, Value::from));
            let (from, condition, order) = match query.words() {
                Some(words) => {
                    let parameter = bind(words.into());
                    (
                        "words JOIN messages m ON m.id = words.rowid",
                        format!("words MATCH {parameter}"),
                        "words.rank, m.id DESC",
                    )
                }
                None => ("messages m", condition(&query, &mut bind), "m.id DESC"),
            };
            let (skip, limit) = (to_sql(search.skip), to_sql(search.limit.min(MAX_HITS)));
            // `CROSS JOIN` fixes the join order: starting with the sessions would scan all of their
            // messages.
            let sql = format!(
                "SELECT s.id, s.title, s.source, m.seq, m.role, m.at, m.text
                 FROM {from} CROSS JOIN sessions s ON s.n = m.session WHERE {condition} AND m.undone IS NULL
                 AND ({person} IS NULL OR s.person = {person}) AND ({source} IS NULL OR s.source = {source})
                 ORDER BY {order} LIMIT {limit} OFFSET {skip}"
            );
            let mut statement = connection.prepare(&sql)?;
            statement.query_and_then(params_from_iter(values), |row| read_row(row, &query))?.collect()
        })
        .await
    }
}

fn to_sql(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn read_row(row: &Row<'_>, query: &Query) -> QueryResult<MessageHit> {
    let wanted: Vec<&str> = query.required.iter().flatten().map(Term::text).collect();
    Ok(MessageHit {
        session: SessionId::new(row.get::<_, String>(0)?),
        title: row.get(1)?,
        source: row.get(2)?,
        seq: Seq::new(row.get(3)?),
        role: row.get(4)?,
        at: Timestamp::from_seconds(row.get(5)?),
        snippet: Snippet::around(&row.get::<_, String>(6)?, &wanted),
    })
}

/// The SQL condition for a query that the word index alone cannot answer.
fn condition(query: &Query, bind: &mut impl FnMut(Value) -> String) -> String {
    let mut all = Vec::new();
    for group in &query.required {
        let any: Vec<String> = group.iter().map(|term| term_condition(term, bind)).collect();
        all.push(format!("({})", any.join(" OR ")));
    }
    for term in &query.excluded {
        all.push(format!("NOT {}", term_condition(term, bind)));
    }
    all.join(" AND ")
}

fn term_condition(term: &Term, bind: &mut impl FnMut(Value) -> String) -> String {
    let mut all = Vec::new();
    if let Some(words) = term.words() {
        let parameter = bind(words.into());
        all.push(format!("m.id IN (SELECT rowid FROM words WHERE words MATCH {parameter})"));
    }
    for run in term.unspaced_runs() {
        let parameter = bind(index::bigram_query(&run).into());
        all.push(format!("m.id IN (SELECT rowid FROM pairs WHERE pairs MATCH {parameter})"));
        // The bigrams may all occur, but not in sequence.
        if run.chars().count() > 2 {
            let parameter = bind(run.into());
            all.push(format!("instr(m.text, {parameter}) > 0"));
        }
    }
    if all.is_empty() {
        let parameter = bind(term.text().to_owned().into());
        all.push(format!(
            "(m.id > (SELECT max(id) FROM messages) - {SCAN_LIMIT} AND instr(m.text, {parameter}) > 0)"
        ));
    }
    format!("({})", all.join(" AND "))
}
