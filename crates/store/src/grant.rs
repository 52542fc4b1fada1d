//! Standing grants: commands a user allowed to run again without a question.

use hermes_types::{GrantScope, Person, SessionKey, Timestamp};
use rusqlite::{Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::error::{QueryError, QueryResult, Result};
use crate::message::check_size;
use crate::sql;
use crate::store::Store;

const MAX_ROWS: u32 = 10_000;

/// A stored grant.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GrantRow {
    pub id: String,
    pub scope: GrantScope,
    /// The grant as serialized by the gate.
    pub json: Value,
    pub given_by: Person,
    pub given_at: Timestamp,
}

impl Store {
    /// Stores grants. An existing grant stays unchanged.
    pub async fn save_grants(&self, grants: Vec<GrantRow>) -> Result<()> {
        self.write(move |transaction| {
            let sql = "INSERT INTO grants (id, key, json, given_by, given_at) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (id) DO NOTHING";
            let mut statement = transaction.prepare_cached(sql)?;
            for grant in &grants {
                let json = grant.json.to_string();
                check_size("a grant", json.len())?;
                let key = match &grant.scope {
                    GrantScope::Session(key) => Some(key.as_str()),
                    GrantScope::Always => None,
                };
                let (by, at) = (grant.given_by.as_str(), grant.given_at.seconds());
                statement.execute(params![grant.id, key, json, by, at])?;
            }
            Ok(())
        })
        .await
    }

    /// The active grants, oldest first: all, or those that apply to a session.
    pub async fn grants(&self, key: Option<&SessionKey>) -> Result<Vec<GrantRow>> {
        let sql = "SELECT id, key, json, given_by, given_at FROM grants
                   WHERE revoked_at IS NULL AND (?2 IS NULL OR key IS NULL OR key = ?2)
                   ORDER BY given_at, id LIMIT ?1";
        self.rows(sql, (MAX_ROWS, key.map(|key| key.as_str().to_owned())), read_row).await
    }

    /// Revokes a grant and returns it, if it was active.
    pub async fn revoke_grant(&self, id: &str, by: &Person, at: Timestamp) -> Result<Option<GrantRow>> {
        let values = (id.to_owned(), by.as_str().to_owned(), at.seconds());
        self.write(move |transaction| {
            let sql =
                "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE id = ?1 AND revoked_at IS NULL
                       RETURNING id, key, json, given_by, given_at";
            sql::first(transaction, sql, values, read_row)
        })
        .await
    }

    /// Revokes all grants of one session.
    pub async fn revoke_session_grants(&self, key: &SessionKey, by: &Person, at: Timestamp) -> Result<()> {
        let sql = "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE key = ?1 AND revoked_at IS NULL";
        let values = (key.as_str().to_owned(), by.as_str().to_owned(), at.seconds());
        self.execute(sql, values).await
    }
}

fn read_row(row: &Row<'_>) -> QueryResult<GrantRow> {
    let id: String = row.get(0)?;
    let json = serde_json::from_str(&row.get::<_, String>(2)?);
    Ok(GrantRow {
        scope: match row.get::<_, Option<String>>(1)? {
            Some(key) => GrantScope::Session(SessionKey::new(key)),
            None => GrantScope::Always,
        },
        json: json.map_err(|_error| QueryError::Corrupt(format!("grant {id} is not valid JSON")))?,
        given_by: Person::new(row.get::<_, String>(3)?),
        given_at: Timestamp::from_seconds(row.get(4)?),
        id,
    })
}
