//! Standing grants: commands a user allowed to run again without a question.

use hermes_types::{GrantScope, Person, SessionKey, Timestamp};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, QueryError};
use crate::message::check_size;
use crate::store::Store;

const MAX_ROWS: usize = 10_000;

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
    pub async fn save_grants(&self, grants: Vec<GrantRow>) -> Result<(), Error> {
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
                statement.execute(params![
                    grant.id,
                    key,
                    json,
                    grant.given_by.as_str(),
                    grant.given_at.seconds()
                ])?;
            }
            Ok(())
        })
        .await
    }

    /// All active grants, oldest first.
    pub async fn grants(&self) -> Result<Vec<GrantRow>, Error> {
        self.select_grants("TRUE", None).await
    }

    /// The active grants that apply to a session, oldest first.
    pub async fn session_grants(&self, key: &SessionKey) -> Result<Vec<GrantRow>, Error> {
        self.select_grants("(key IS NULL OR key = ?1)", Some(key.as_str().to_owned())).await
    }

    async fn select_grants(&self, which: &'static str, key: Option<String>) -> Result<Vec<GrantRow>, Error> {
        self.read(move |connection| {
            let sql = format!(
                "SELECT id, key, json, given_by, given_at FROM grants
                 WHERE revoked_at IS NULL AND {which} ORDER BY given_at, id LIMIT {MAX_ROWS}"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = match &key {
                Some(key) => statement.query([key])?,
                None => statement.query([])?,
            };
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(read_row(row)?);
            }
            Ok(found)
        })
        .await
    }

    /// Revokes a grant and returns it, if it was active.
    pub async fn revoke_grant(
        &self,
        id: &str,
        by: &Person,
        at: Timestamp,
    ) -> Result<Option<GrantRow>, Error> {
        let (id, by) = (id.to_owned(), by.clone());
        self.write(move |transaction| {
            let sql =
                "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE id = ?1 AND revoked_at IS NULL
                       RETURNING id, key, json, given_by, given_at";
            let mut statement = transaction.prepare_cached(sql)?;
            let revoked = statement
                .query_row(params![id, by.as_str(), at.seconds()], |row| Ok(read_row(row)))
                .optional()?;
            revoked.transpose()
        })
        .await
    }

    /// Revokes all grants of one session and returns their number.
    pub async fn revoke_session_grants(
        &self,
        key: &SessionKey,
        by: &Person,
        at: Timestamp,
    ) -> Result<usize, Error> {
        let (key, by) = (key.clone(), by.clone());
        self.write(move |transaction| {
            let sql =
                "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE key = ?1 AND revoked_at IS NULL";
            Ok(transaction.prepare_cached(sql)?.execute(params![key.as_str(), by.as_str(), at.seconds()])?)
        })
        .await
    }
}

fn read_row(row: &Row<'_>) -> Result<GrantRow, QueryError> {
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
