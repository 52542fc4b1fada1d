//! The cost of model calls, by session and by day.

use hermes_types::{Timestamp, Usage};
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use strum::{EnumString, IntoStaticStr};

use crate::error::{QueryResult, Result};
use crate::session::SessionId;
use crate::sql;
use crate::store::Store;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ModelCall {
    pub provider: String,
    pub model: String,
    /// One of `turn`, `title`, `summary`.
    pub purpose: String,
    pub usage: Usage,
    /// In millionths of a dollar, as the provider reported it.
    pub cost: Option<u64>,
    pub at: Timestamp,
}

/// How exact a sum of costs is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, EnumString, IntoStaticStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum CostStatus {
    /// There was no call.
    None,
    /// The providers reported the cost of every call.
    Actual,
    /// Part of the cost is unknown and not in the sum.
    Unknown,
}

impl CostStatus {
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

impl FromSql for CostStatus {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        // Older versions also wrote `included` and `estimated`.
        Ok(value.as_str()?.parse().unwrap_or(Self::Unknown))
    }
}

impl Store {
    /// Records a call outside of a turn step, such as the one that makes a title.
    pub async fn record_model_call(&self, session: &SessionId, call: ModelCall) -> Result<()> {
        self.write_session(session, move |transaction, n| add_call(transaction, n, &call)).await
    }
}

/// Adds a call to the totals of its session and its day.
pub(crate) fn add_call(connection: &Connection, n: i64, call: &ModelCall) -> QueryResult {
    // Limits the counts a provider reports, so that sums cannot overflow.
    let bounded = |count: u64| i64::try_from(count).unwrap_or(i64::MAX).min(1 << 50);
    let Usage { input, cache_read, cache_write, output, reasoning } = call.usage;
    let [input, cache_read, cache_write, output, reasoning, cost] =
        [input, cache_read, cache_write, output, reasoning, call.cost.unwrap_or_default()].map(bounded);
    let status = if call.cost.is_some() { CostStatus::Actual } else { CostStatus::Unknown };
    let status = status.as_str();
    let sql = "UPDATE sessions SET api_calls = api_calls + 1, input = input + ?2, cache_read = cache_read + ?3,
                   cache_write = cache_write + ?4, output = output + ?5, reasoning = reasoning + ?6, cost = cost + ?7,
                   cost_status = CASE cost_status WHEN 'unknown' THEN 'unknown' ELSE ?8 END WHERE n = ?1";
    let values = params![n, input, cache_read, cache_write, output, reasoning, cost, status];
    sql::execute(connection, sql, values)?;
    let sql = "INSERT INTO spending SELECT ?2, person, source, ?3, ?4, ?5, 1, ?6, ?7, ?8, ?9, ?10, ?11, ?12
                   FROM sessions WHERE n = ?1
               ON CONFLICT DO UPDATE SET calls = calls + 1, input = input + ?6, cache_read = cache_read + ?7,
                   cache_write = cache_write + ?8, output = output + ?9, reasoning = reasoning + ?10,
                   cost = cost + ?11, cost_status = CASE cost_status WHEN 'unknown' THEN 'unknown' ELSE ?12 END";
    let day = i64::try_from(call.at.seconds() / 86_400).unwrap_or(i64::MAX);
    let (provider, model, purpose) = (&call.provider, &call.model, &call.purpose);
    let values = params![
        n, day, provider, model, purpose, input, cache_read, cache_write, output, reasoning, cost, status
    ];
    sql::execute(connection, sql, values)
}
