//! Standing grants: commands a user allowed to run again without a question.

use hermes_types::{GrantScope, Person, SessionKey, Timestamp};
use rusqlite::{Connection, Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::approval_key::{ApprovalKey, CodedRow, read_coded, valid_rows};
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
        let database = self.path().to_owned();
        self.write(move |transaction| {
            let approval_key = ApprovalKey::load_or_create(&database)?;
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
                if statement.execute(params![grant.id, key, json, by, at])? == 1 {
                    let stored = sql::only_row(transaction, SELECT_ONE, [&grant.id], read_row)?;
                    let code = approval_key.code(&stored.fields);
                    let sql = "UPDATE grants SET code = ?2 WHERE id = ?1";
                    sql::execute(transaction, sql, params![grant.id, code])?;
                }
            }
            Ok(())
        })
        .await
    }

    /// The active grants, oldest first: all, or those that apply to a session.
    pub async fn grants(&self, key: Option<&SessionKey>) -> Result<Vec<GrantRow>> {
        let key = key.map(|key| key.as_str().to_owned());
        let database = self.path().to_owned();
        self.read(move |connection| valid_rows(&database, active_in(connection, key)?)).await
    }

    /// Revokes a grant and returns it, if it was active.
    pub async fn revoke_grant(&self, id: &str, by: &Person, at: Timestamp) -> Result<Option<GrantRow>> {
        let sql = "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE id = ?1 AND revoked_at IS NULL
                   RETURNING id, key, json, given_by, given_at, code";
        Ok(self.revoke(sql, id.to_owned(), by, at).await?.pop())
    }

    /// Revokes all grants of one session.
    pub async fn revoke_session_grants(&self, key: &SessionKey, by: &Person, at: Timestamp) -> Result<()> {
        let sql = "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE key = ?1 AND revoked_at IS NULL
                   RETURNING id, key, json, given_by, given_at, code";
        self.revoke(sql, key.as_str().to_owned(), by, at).await.map(drop)
    }

    async fn revoke(
        &self,
        sql: &'static str,
        selector: String,
        by: &Person,
        at: Timestamp,
    ) -> Result<Vec<GrantRow>> {
        let values = (selector, by.as_str().to_owned(), at.seconds());
        let database = self.path().to_owned();
        self.write(move |transaction| {
            let revoked = sql::rows(transaction, sql, values, read_row)?;
            let ids: Vec<String> = revoked.iter().map(|grant| grant.id.clone()).collect();
            ApprovalKey::end(&database, &ids)?;
            revoked.into_iter().map(|grant| grant.row).collect()
        })
        .await
    }
}

const SELECT_ONE: &str = "SELECT id, key, json, given_by, given_at, code FROM grants WHERE id = ?1";

/// The active grants, oldest first, with or without the right code.
pub(crate) fn active(connection: &Connection) -> QueryResult<Vec<CodedRow<GrantRow>>> {
    active_in(connection, None)
}

fn active_in(connection: &Connection, key: Option<String>) -> QueryResult<Vec<CodedRow<GrantRow>>> {
    let sql = "SELECT id, key, json, given_by, given_at, code FROM grants
               WHERE revoked_at IS NULL AND (?2 IS NULL OR key IS NULL OR key = ?2)
               ORDER BY given_at, id LIMIT ?1";
    sql::rows(connection, sql, (MAX_ROWS, key), read_row)
}

fn read_row(row: &Row<'_>) -> QueryResult<CodedRow<GrantRow>> {
    read_coded(row, 5, read_grant)
}

fn read_grant(row: &Row<'_>) -> QueryResult<GrantRow> {
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
