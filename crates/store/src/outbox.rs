//! Parts: what is to be said in chats. Each is sent on its own, and its state says what is known about that.

use hermes_types::{SessionKey, Timestamp};
use rusqlite::{OptionalExtension, Row, Transaction, params};
use serde_json::Value;

use crate::error::{Error, Fault};
use crate::message::bounded;
use crate::store::Store;

/// Parts that one answer has at most.
const PAGE: u32 = 1_000;

/// One part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartId(i64);

impl PartId {
    /// A number that no other part has.
    pub fn number(self) -> i64 {
        self.0
    }
}

/// A part to be sent.
#[derive(Debug, Clone, PartialEq)]
pub struct NewPart {
    /// Where.
    pub platform: String,
    /// In which chat. Parts of one chat are sent in their order.
    pub chat: String,
    /// For which session.
    pub key: SessionKey,
    /// Of parts with the same mark only the first is sent.
    pub mark: Option<String>,
    /// What it says.
    pub body: Value,
}

/// A part that was not sent yet, as far as is known.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Which one.
    pub id: PartId,
    /// In which chat.
    pub chat: String,
    /// For which session.
    pub key: SessionKey,
    /// What it says.
    pub body: Value,
    /// When it was written.
    pub created: Timestamp,
    /// How often it was tried.
    pub tries: u32,
    /// When a try began of which nobody knows how it ended.
    pub doubtful: Option<Timestamp>,
}

/// What is known about a part that was added once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is still to be sent.
    Waits,
    /// It is there, under this name of the platform.
    Sent(String),
    /// It could not be sent.
    Failed,
}

/// What came of a try to send a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// It is there, under this name of the platform.
    Sent(String),
    /// It is not there and can be tried again.
    Later(String),
    /// It cannot be sent.
    Failed(String),
}

impl Store {
    /// The parts of a platform that are not known to be sent, oldest first, without those of some chats.
    pub async fn undelivered(&self, platform: &str, without: Vec<String>) -> Result<Vec<Outgoing>, Error> {
        let (platform, without) = (platform.to_owned(), Value::from(without).to_string());
        self.read(move |connection| {
            let sql = "SELECT n, chat, key, body, created, tries, state, at FROM outbox
                       WHERE platform = ?1 AND state IN ('waiting', 'trying')
                       AND chat NOT IN (SELECT value FROM json_each(?3)) ORDER BY n LIMIT ?2";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map(params![platform, PAGE, without], read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Whether a part that is not known to be sent says this somewhere.
    pub async fn awaits(&self, platform: &str, text: &str) -> Result<bool, Error> {
        let (platform, text) = (platform.to_owned(), text.to_owned());
        self.read(move |connection| {
            let sql = "SELECT EXISTS (SELECT 1 FROM outbox
                       WHERE platform = ?1 AND state IN ('waiting', 'trying') AND instr(body, ?2) > 0)";
            Ok(connection.prepare_cached(sql)?.query_row(params![platform, text], |row| row.get(0))?)
        })
        .await
    }

    /// Notes that a part is being sent from now on. Until [`Store::delivered`] nobody knows whether it arrived.
    pub async fn delivering(&self, part: PartId, at: Timestamp) -> Result<(), Error> {
        self.write(move |transaction| {
            let sql = "UPDATE outbox SET state = 'trying', tries = tries + 1, at = ?2 WHERE n = ?1";
            transaction.prepare_cached(sql)?.execute(params![part.0, at.seconds()])?;
            Ok(())
        })
        .await
    }

    /// Notes what came of it.
    pub async fn delivered(&self, part: PartId, delivery: Delivery, at: Timestamp) -> Result<(), Error> {
        self.write(move |transaction| {
            let (state, message, error) = match &delivery {
                Delivery::Sent(message) => ("sent", Some(message), None),
                Delivery::Later(error) => ("waiting", None, Some(error)),
                Delivery::Failed(error) => ("failed", None, Some(error)),
            };
            let sql = "UPDATE outbox SET state = ?2, message = ?3, error = ?4, at = ?5,
                       body = CASE ?2 WHEN 'sent' THEN '' ELSE body END WHERE n = ?1";
            transaction.prepare_cached(sql)?.execute(params![part.0, state, message, error, at.seconds()])?;
            Ok(())
        })
        .await
    }

    /// What became of the part with a mark; nothing if there is none.
    pub async fn fate(&self, mark: &str) -> Result<Option<Fate>, Error> {
        let mark = mark.to_owned();
        self.read(move |connection| {
            let sql = "SELECT state, message FROM outbox WHERE mark = ?1";
            let fate = |row: &Row<'_>| {
                Ok(match (row.get::<_, String>(0)?.as_str(), row.get(1)?) {
                    ("sent", Some(message)) => Fate::Sent(message),
                    ("waiting" | "trying", _) => Fate::Waits,
                    _ => Fate::Failed,
                })
            };
            Ok(connection.prepare_cached(sql)?.query_row([mark], fate).optional()?)
        })
        .await
    }
}

/// Adds parts in their order.
pub(crate) fn add(
    transaction: &Transaction<'_>,
    parts: &[NewPart],
    at: Timestamp,
) -> Result<Vec<PartId>, Fault> {
    let sql = "INSERT INTO outbox (platform, chat, key, mark, body, created) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
               ON CONFLICT (mark) DO UPDATE SET mark = mark RETURNING n";
    let mut statement = transaction.prepare_cached(sql)?;
    let mut added = Vec::with_capacity(parts.len());
    for part in parts {
        let body = part.body.to_string();
        bounded("a part", body.len())?;
        let values = params![part.platform, part.chat, part.key.as_str(), part.mark, body, at.seconds()];
        added.push(PartId(statement.query_row(values, |row| row.get(0))?));
    }
    Ok(added)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Outgoing> {
    let (body, state): (String, String) = (row.get(3)?, row.get(6)?);
    let at: Option<u64> = row.get(7)?;
    Ok(Outgoing {
        id: PartId(row.get(0)?),
        chat: row.get(1)?,
        key: SessionKey::new(row.get::<_, String>(2)?),
        body: serde_json::from_str(&body).unwrap_or(Value::Null),
        created: Timestamp::from_seconds(row.get(4)?),
        tries: row.get(5)?,
        doubtful: at.filter(|_| state == "trying").map(Timestamp::from_seconds),
    })
}
