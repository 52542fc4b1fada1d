//! The outbox: outbound chat messages. Each is sent separately, and its state records what is known
//! about the delivery.

use hermes_types::{SessionKey, Timestamp};
use rusqlite::{Row, Transaction, params};
use serde_json::Value;

use crate::error::{QueryResult, Result};
use crate::message::check_size;
use crate::sql;
use crate::store::Store;

const MAX_ROWS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OutboxId(i64);

impl OutboxId {
    pub fn number(self) -> i64 {
        self.0
    }
}

/// An outbound message to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewOutboxRow {
    pub platform: String,
    /// Messages of one chat are sent in order.
    pub chat: String,
    pub key: SessionKey,
    /// Of several messages with the same key only the first is sent.
    pub dedup_key: Option<String>,
    /// The serialized message.
    pub body: Value,
}

/// A message that is not known to be delivered.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    pub id: OutboxId,
    pub chat: String,
    pub key: SessionKey,
    /// The serialized message.
    pub body: Value,
    pub created: Timestamp,
    pub attempts: u32,
    /// When an attempt started whose result is unknown.
    pub unconfirmed_since: Option<Timestamp>,
}

/// The state of a message that was enqueued.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryState {
    Pending,
    /// Delivered, with the platform's message id.
    Sent(String),
    Failed,
}

/// The result of an attempt to send a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryOutcome {
    /// Delivered, with the platform's message id.
    Sent(String),
    /// Not delivered; can be retried.
    Retry(String),
    /// Cannot be delivered.
    Failed(String),
}

impl Store {
    /// The messages of a platform that are not known to be delivered, oldest first, except those of
    /// some chats.
    pub async fn pending_outbox(&self, platform: &str, without: Vec<String>) -> Result<Vec<OutboxRow>> {
        let sql = "SELECT n, chat, key, body, created, tries, state, at FROM outbox
                   WHERE platform = ?1 AND state IN ('waiting', 'trying')
                   AND chat NOT IN (SELECT value FROM json_each(?3)) ORDER BY n LIMIT ?2";
        self.rows(sql, (platform.to_owned(), MAX_ROWS, Value::from(without).to_string()), read_row).await
    }

    /// Whether an undelivered message contains `text`, such as the path of a file to send.
    pub async fn references_file(&self, platform: &str, text: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM outbox
                   WHERE platform = ?1 AND state IN ('waiting', 'trying') AND instr(body, ?2) > 0 LIMIT 1";
        Ok(!self.rows(sql, (platform.to_owned(), text.to_owned()), |_row| Ok(())).await?.is_empty())
    }

    /// Records the start of an attempt. Until [`Store::record_delivery`] its result is unknown.
    pub async fn mark_sending(&self, id: OutboxId, at: Timestamp) -> Result<()> {
        let sql = "UPDATE outbox SET state = 'trying', tries = tries + 1, at = ?2 WHERE n = ?1";
        self.execute(sql, (id.0, at.seconds())).await
    }

    /// Records the result of an attempt.
    pub async fn record_delivery(&self, id: OutboxId, outcome: DeliveryOutcome, at: Timestamp) -> Result<()> {
        let (state, message, error) = match outcome {
            DeliveryOutcome::Sent(message) => ("sent", Some(message), None),
            DeliveryOutcome::Retry(error) => ("waiting", None, Some(error)),
            DeliveryOutcome::Failed(error) => ("failed", None, Some(error)),
        };
        let sql = "UPDATE outbox SET state = ?2, message = ?3, error = ?4, at = ?5,
                   body = CASE ?2 WHEN 'sent' THEN '' ELSE body END WHERE n = ?1";
        self.execute(sql, (id.0, state, message, error, at.seconds())).await
    }

    /// The delivery state of the message with a dedup key.
    pub async fn delivery_state(&self, dedup_key: &str) -> Result<Option<DeliveryState>> {
        let sql = "SELECT state, message FROM outbox WHERE mark = ?1";
        let read = |row: &Row<'_>| {
            Ok(match (row.get::<_, String>(0)?.as_str(), row.get(1)?) {
                ("sent", Some(message)) => DeliveryState::Sent(message),
                ("waiting" | "trying", _) => DeliveryState::Pending,
                _ => DeliveryState::Failed,
            })
        };
        Ok(self.rows(sql, (dedup_key.to_owned(),), read).await?.pop())
    }
}

pub(crate) fn add(transaction: &Transaction<'_>, parts: &[NewOutboxRow], at: Timestamp) -> QueryResult {
    let sql = "INSERT INTO outbox (platform, chat, key, mark, body, created) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (mark) DO NOTHING";
    for part in parts {
        let body = part.body.to_string();
        check_size("a part", body.len())?;
        let values = params![part.platform, part.chat, part.key.as_str(), part.dedup_key, body, at.seconds()];
        sql::execute(transaction, sql, values)?;
    }
    Ok(())
}

fn read_row(row: &Row<'_>) -> QueryResult<OutboxRow> {
    let (body, state): (String, String) = (row.get(3)?, row.get(6)?);
    let at: Option<u64> = row.get(7)?;
    Ok(OutboxRow {
        id: OutboxId(row.get(0)?),
        chat: row.get(1)?,
        key: SessionKey::new(row.get::<_, String>(2)?),
        body: serde_json::from_str(&body).unwrap_or(Value::Null),
        created: Timestamp::from_seconds(row.get(4)?),
        attempts: row.get(5)?,
        unconfirmed_since: at.filter(|_| state == "trying").map(Timestamp::from_seconds),
    })
}
