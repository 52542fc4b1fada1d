//! What people have allowed to happen again.

use hermes_types::{Person, SessionKey, Timestamp};
use rusqlite::{OptionalExtension, Row, params};
use serde::Serialize;
use serde_json::Value;

use crate::error::{Error, Fault};
use crate::message::bounded;
use crate::store::Store;

/// Grants that one answer has at most.
const PAGE: usize = 10_000;

/// A grant to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewGrant {
    /// Its name.
    pub id: String,
    /// Where it holds.
    pub scope: GrantScope,
    /// The grant as its gate wrote it.
    pub json: Value,
    /// Who gave it.
    pub given_by: Person,
    /// When.
    pub given_at: Timestamp,
}

/// Where a grant holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum GrantScope {
    /// In one session.
    Session(SessionKey),
    /// Everywhere.
    Always,
}

/// A grant that was kept.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Grant {
    /// Its name.
    pub id: String,
    /// Where it holds.
    pub scope: GrantScope,
    /// The grant as its gate wrote it.
    pub json: Value,
    /// Who gave it.
    pub given_by: Person,
    /// When.
    pub given_at: Timestamp,
}

impl Store {
    /// Keeps what a person allowed. One that is known stays as it is.
    pub async fn grant(&self, grants: Vec<NewGrant>) -> Result<(), Error> {
        self.write(move |transaction| {
            let sql = "INSERT INTO grants (id, key, json, given_by, given_at) VALUES (?1, ?2, ?3, ?4, ?5)
                       ON CONFLICT (id) DO NOTHING";
            let mut statement = transaction.prepare_cached(sql)?;
            for grant in &grants {
                let json = grant.json.to_string();
                bounded("a grant", json.len())?;
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

    /// Every grant that holds, oldest first.
    pub async fn grants(&self) -> Result<Vec<Grant>, Error> {
        self.some_grants("TRUE", None).await
    }

    /// Every grant that holds in a session, oldest first.
    pub async fn grants_in(&self, key: &SessionKey) -> Result<Vec<Grant>, Error> {
        self.some_grants("(key IS NULL OR key = ?1)", Some(key.as_str().to_owned())).await
    }

    async fn some_grants(&self, which: &'static str, key: Option<String>) -> Result<Vec<Grant>, Error> {
        self.read(move |connection| {
            let sql = format!(
                "SELECT id, key, json, given_by, given_at FROM grants
                 WHERE revoked_at IS NULL AND {which} ORDER BY given_at, id LIMIT {PAGE}"
            );
            let mut statement = connection.prepare_cached(&sql)?;
            let mut rows = match &key {
                Some(key) => statement.query([key])?,
                None => statement.query([])?,
            };
            let mut found = Vec::new();
            while let Some(row) = rows.next()? {
                found.push(read(row)?);
            }
            Ok(found)
        })
        .await
    }

    /// Takes a grant back. Gives it, if there was one that held.
    pub async fn revoke(&self, id: &str, by: &Person, at: Timestamp) -> Result<Option<Grant>, Error> {
        let (id, by) = (id.to_owned(), by.clone());
        self.write(move |transaction| {
            let sql =
                "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE id = ?1 AND revoked_at IS NULL
                       RETURNING id, key, json, given_by, given_at";
            let mut statement = transaction.prepare_cached(sql)?;
            let revoked = statement
                .query_row(params![id, by.as_str(), at.seconds()], |row| Ok(read(row)))
                .optional()?;
            revoked.transpose()
        })
        .await
    }

    /// Ends everything that was allowed for one session. Tells how many.
    pub async fn end_grants(&self, key: &SessionKey, by: &Person, at: Timestamp) -> Result<usize, Error> {
        let (key, by) = (key.clone(), by.clone());
        self.write(move |transaction| {
            let sql =
                "UPDATE grants SET revoked_by = ?2, revoked_at = ?3 WHERE key = ?1 AND revoked_at IS NULL";
            Ok(transaction.prepare_cached(sql)?.execute(params![key.as_str(), by.as_str(), at.seconds()])?)
        })
        .await
    }
}

fn read(row: &Row<'_>) -> Result<Grant, Fault> {
    let id: String = row.get(0)?;
    let json = serde_json::from_str(&row.get::<_, String>(2)?);
    Ok(Grant {
        scope: match row.get::<_, Option<String>>(1)? {
            Some(key) => GrantScope::Session(SessionKey::new(key)),
            None => GrantScope::Always,
        },
        json: json.map_err(|_error| Fault::Damaged(format!("grant {id} has no form that is known")))?,
        given_by: Person::new(row.get::<_, String>(3)?),
        given_at: Timestamp::from_seconds(row.get(4)?),
        id,
    })
}
