//! The cost of model calls, by session and by day.

use hermes_types::{Timestamp, Usage};
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, ToSql, ToSqlOutput, ValueRef};
use rusqlite::{Connection, Row, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, QueryError};
use crate::session::{self, SessionId, Viewer};
use crate::store::Store;

const MAX_ROWS: usize = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    pub provider: String,
    pub model: String,
    /// One of `turn`, `title`, `summary`.
    pub purpose: String,
    pub usage: Usage,
    pub cost: Cost,
    pub at: Timestamp,
}

/// The cost of a call, in millionths of a dollar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cost {
    /// Covered by a subscription.
    Included,
    /// Reported by the provider.
    Actual(u64),
    /// Computed from a price list.
    Estimated(u64),
    Unknown,
}

/// How exact a sum of costs is: as exact as its least exact part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CostStatus {
    /// There was no call.
    None,
    Included,
    Actual,
    Estimated,
    /// Part of the cost is unknown and not in the sum.
    Unknown,
}

impl CostStatus {
    const ALL: [Self; 5] = [Self::None, Self::Included, Self::Actual, Self::Estimated, Self::Unknown];

    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Included => "included",
            Self::Actual => "actual",
            Self::Estimated => "estimated",
            Self::Unknown => "unknown",
        }
    }
}

impl FromSql for CostStatus {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let word = value.as_str()?;
        Self::ALL.into_iter().find(|status| status.as_str() == word).ok_or(FromSqlError::InvalidType)
    }
}

impl ToSql for CostStatus {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(self.as_str().into())
    }
}

impl Cost {
    fn parts(self) -> (u64, CostStatus) {
        match self {
            Self::Included => (0, CostStatus::Included),
            Self::Actual(cost) => (cost, CostStatus::Actual),
            Self::Estimated(cost) => (cost, CostStatus::Estimated),
            Self::Unknown => (0, CostStatus::Unknown),
        }
    }
}

/// The calls of one day with the same person, source, model and purpose.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DailySpending {
    /// The start of the day, in UTC.
    pub day: Timestamp,
    pub person: String,
    /// The entry point or channel.
    pub source: String,
    pub provider: String,
    pub model: String,
    pub purpose: String,
    pub calls: u64,
    pub usage: Usage,
    /// The known cost, in millionths of a dollar.
    pub cost: u64,
    pub cost_status: CostStatus,
}

impl Store {
    /// Records a call outside of a turn step, such as the one that makes a title.
    pub async fn record_model_call(&self, session: &SessionId, spent: ModelCall) -> Result<(), Error> {
        let session = session.clone();
        self.write(move |transaction| {
            let n = session::row_number(transaction, &session)?;
            add_call(transaction, n, &spent)
        })
        .await
    }

    /// The spending since a time, by day, newest first.
    pub async fn spending(&self, reader: &Viewer, since: Timestamp) -> Result<Vec<DailySpending>, Error> {
        let reader = reader.clone();
        self.read(move |connection| {
            let sql = format!(
                "SELECT day, person, source, provider, model, purpose, calls, input, cache_read, cache_write, output,
                     reasoning, cost, cost_status
                 FROM spending WHERE day >= ?1 AND (?2 IS NULL OR person = ?2)
                 ORDER BY day DESC, cost DESC LIMIT {MAX_ROWS}"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let rows = statement.query_map(params![day(since), reader.person()], read_day)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }
}

/// Days since 1970.
fn day(at: Timestamp) -> i64 {
    i64::try_from(at.seconds() / 86_400).unwrap_or(i64::MAX)
}

fn read_day(row: &Row<'_>) -> rusqlite::Result<DailySpending> {
    Ok(DailySpending {
        day: Timestamp::from_seconds(row.get::<_, u64>(0)?.saturating_mul(86_400)),
        person: row.get(1)?,
        source: row.get(2)?,
        provider: row.get(3)?,
        model: row.get(4)?,
        purpose: row.get(5)?,
        calls: row.get(6)?,
        usage: Usage {
            input: row.get(7)?,
            cache_read: row.get(8)?,
            cache_write: row.get(9)?,
            output: row.get(10)?,
            reasoning: row.get(11)?,
        },
        cost: row.get(12)?,
        cost_status: row.get(13)?,
    })
}

/// Adds a call to the totals of its session and its day.
pub(crate) fn add_call(connection: &Connection, n: i64, spent: &ModelCall) -> Result<(), QueryError> {
    let (cost, status) = spent.cost.parts();
    // Limits the counts a provider reports, so that sums cannot overflow.
    let bounded = |count: u64| i64::try_from(count).unwrap_or(i64::MAX).min(1 << 50);
    let Usage { input, cache_read, cache_write, output, reasoning } = spent.usage;
    let (before, person, source): (CostStatus, String, String) = connection
        .prepare_cached("SELECT cost_status, person, source FROM sessions WHERE n = ?1")?
        .query_row([n], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let sql = "UPDATE sessions SET api_calls = api_calls + 1, input = input + ?2, cache_read = cache_read + ?3,
                   cache_write = cache_write + ?4, output = output + ?5, reasoning = reasoning + ?6, cost = cost + ?7,
                   cost_status = ?8 WHERE n = ?1";
    connection.prepare_cached(sql)?.execute(params![
        n,
        bounded(input),
        bounded(cache_read),
        bounded(cache_write),
        bounded(output),
        bounded(reasoning),
        bounded(cost),
        before.max(status)
    ])?;
    let key = params![day(spent.at), person, source, spent.provider, spent.model, spent.purpose];
    let known =
        "SELECT cost_status FROM spending WHERE day = ?1 AND person = ?2 AND source = ?3 AND provider = ?4
                 AND model = ?5 AND purpose = ?6";
    let before: Option<CostStatus> =
        connection.prepare_cached(known)?.query_map(key, |row| row.get(0))?.next().transpose()?;
    let sql = "INSERT INTO spending VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
               ON CONFLICT DO UPDATE SET calls = calls + 1, input = input + ?7, cache_read = cache_read + ?8,
                   cache_write = cache_write + ?9, output = output + ?10, reasoning = reasoning + ?11,
                   cost = cost + ?12, cost_status = ?13";
    connection.prepare_cached(sql)?.execute(params![
        day(spent.at),
        person,
        source,
        spent.provider,
        spent.model,
        spent.purpose,
        bounded(input),
        bounded(cache_read),
        bounded(cache_write),
        bounded(output),
        bounded(reasoning),
        bounded(cost),
        before.unwrap_or(CostStatus::None).max(status)
    ])?;
    Ok(())
}
