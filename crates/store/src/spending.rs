//! The cost of model calls, by session and by day.

use hermes_types::{Timestamp, Usage};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};

use crate::error::{Error, QueryResult};
use crate::session::SessionId;
use crate::sql::{self, keyword_column};
use crate::store::Store;

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

keyword_column!(CostStatus);

impl CostStatus {
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

impl Store {
    /// Records a call outside of a turn step, such as the one that makes a title.
    pub async fn record_model_call(&self, session: &SessionId, call: ModelCall) -> Result<(), Error> {
        self.write_session(session, move |transaction, n| add_call(transaction, n, &call)).await
    }
}

/// Adds a call to the totals of its session and its day.
pub(crate) fn add_call(connection: &Connection, n: i64, call: &ModelCall) -> QueryResult {
    let (cost, status) = call.cost.parts();
    // Limits the counts a provider reports, so that sums cannot overflow.
    let bounded = |count: u64| i64::try_from(count).unwrap_or(i64::MAX).min(1 << 50);
    let Usage { input, cache_read, cache_write, output, reasoning } = call.usage;
    let [input, cache_read, cache_write, output, reasoning, cost] =
        [input, cache_read, cache_write, output, reasoning, cost].map(bounded);
    let (before, person, source): (CostStatus, String, String) = connection
        .prepare_cached("SELECT cost_status, person, source FROM sessions WHERE n = ?1")?
        .query_row([n], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
    let sql = "UPDATE sessions SET api_calls = api_calls + 1, input = input + ?2, cache_read = cache_read + ?3,
                   cache_write = cache_write + ?4, output = output + ?5, reasoning = reasoning + ?6, cost = cost + ?7,
                   cost_status = ?8 WHERE n = ?1";
    let status_now = before.max(status);
    let values = params![n, input, cache_read, cache_write, output, reasoning, cost, status_now];
    sql::execute(connection, sql, values)?;
    let day = i64::try_from(call.at.seconds() / 86_400).unwrap_or(i64::MAX);
    let (provider, model, purpose) = (&call.provider, &call.model, &call.purpose);
    let sql =
        "SELECT cost_status FROM spending WHERE day = ?1 AND person = ?2 AND source = ?3 AND provider = ?4
               AND model = ?5 AND purpose = ?6";
    let key = params![day, person, source, provider, model, purpose];
    let before: Option<CostStatus> = sql::first(connection, sql, key, |row| Ok(row.get(0)?))?;
    let status_now = before.map_or(status, |before| before.max(status));
    let sql = "INSERT INTO spending VALUES (?1, ?2, ?3, ?4, ?5, ?6, 1, ?7, ?8, ?9, ?10, ?11, ?12, ?13)
               ON CONFLICT DO UPDATE SET calls = calls + 1, input = input + ?7, cache_read = cache_read + ?8,
                   cache_write = cache_write + ?9, output = output + ?10, reasoning = reasoning + ?11,
                   cost = cost + ?12, cost_status = ?13";
    let values = params![
        day, person, source, provider, model, purpose, input, cache_read, cache_write, output, reasoning,
        cost, status_now
    ];
    sql::execute(connection, sql, values)?;
    Ok(())
}
