//! The inbox: messages received from chats. Each is stored once, before it is processed, and is
//! marked done in the transaction that stores its reply.

use hermes_types::{Person, SessionKey, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};
use serde_json::Value;

use crate::error::{Error, QueryError};
use crate::message::check_size;
use crate::outbox::{self, NewOutboxRow, OutboxId};
use crate::store::Store;
use crate::turn::TurnId;

/// The last message is kept forever for this many of the most recently active chats.
const MAX_CHATS: u32 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InboxId(i64);

/// A received message to be stored.
#[derive(Debug, Clone, PartialEq)]
pub struct NewInboxRow {
    pub platform: String,
    pub chat: String,
    /// The platform's message id.
    pub message: String,
    pub key: SessionKey,
    pub person: Person,
    pub at: Timestamp,
    /// The serialized message.
    pub event: Value,
}

/// A received message that has no reply yet.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxRow {
    pub id: InboxId,
    pub key: SessionKey,
    pub at: Timestamp,
    /// The turn that answers the message, once it started.
    pub turn: Option<TurnId>,
    /// The serialized message.
    pub event: Value,
}

impl Store {
    /// Stores messages in one transaction. Returns `None` for each one that is already known.
    pub async fn receive_messages(&self, letters: Vec<NewInboxRow>) -> Result<Vec<Option<InboxId>>, Error> {
        self.write(move |transaction| {
            let sql = "INSERT INTO inbox (platform, chat, message, key, person, at, event)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut kept = Vec::with_capacity(letters.len());
            for letter in letters {
                let event = letter.event.to_string();
                check_size("a letter", event.len())?;
                let count = statement.execute(params![
                    letter.platform,
                    letter.chat,
                    letter.message,
                    letter.key.as_str(),
                    letter.person.as_str(),
                    letter.at.seconds(),
                    event,
                ])?;
                kept.push((count > 0).then(|| InboxId(transaction.last_insert_rowid())));
            }
            Ok(kept)
        })
        .await
    }

    /// Whether a message is already stored.
    pub async fn is_received(&self, platform: &str, chat: &str, message: &str) -> Result<bool, Error> {
        let (platform, chat, message) = (platform.to_owned(), chat.to_owned(), message.to_owned());
        self.read(move |connection| {
            let sql =
                "SELECT EXISTS (SELECT 1 FROM inbox WHERE platform = ?1 AND chat = ?2 AND message = ?3)";
            Ok(connection
                .prepare_cached(sql)?
                .query_row(params![platform, chat, message], |row| row.get(0))?)
        })
        .await
    }

    /// Which of these message ids of a chat were received for a session.
    pub async fn inbox_messages_among(
        &self,
        platform: &str,
        chat: &str,
        key: &SessionKey,
        messages: Vec<String>,
    ) -> Result<Vec<String>, Error> {
        let (platform, chat, key) = (platform.to_owned(), chat.to_owned(), key.clone());
        self.read(move |connection| {
            let sql = "SELECT message FROM inbox WHERE platform = ?1 AND chat = ?2 AND key = ?3
                       AND message IN (SELECT value FROM json_each(?4)) ORDER BY n";
            let mut statement = connection.prepare_cached(sql)?;
            let among = Value::from(messages).to_string();
            let rows = statement.query_map(params![platform, chat, key.as_str(), among], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// The last received message id of each chat of a platform.
    pub async fn last_inbox_messages(&self, platform: &str) -> Result<Vec<(String, String)>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let sql = "SELECT chat, message, max(n) FROM inbox WHERE platform = ?1 GROUP BY chat";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([platform], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Moves a message to another session.
    pub async fn reassign(&self, letter: InboxId, key: &SessionKey, event: Value) -> Result<(), Error> {
        let key = key.clone();
        self.write(move |transaction| {
            let sql = "UPDATE inbox SET key = ?2, event = ?3 WHERE n = ?1 AND done IS NULL";
            transaction.prepare_cached(sql)?.execute(params![letter.0, key.as_str(), event.to_string()])?;
            Ok(())
        })
        .await
    }

    /// The messages of a platform without a reply, oldest first.
    pub async fn pending_inbox(&self, platform: &str) -> Result<Vec<InboxRow>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let sql =
                "SELECT n, key, at, turn, event FROM inbox WHERE platform = ?1 AND done IS NULL ORDER BY n";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([platform], read_row)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Enqueues outbound messages and marks the messages they answer as done.
    pub async fn enqueue_reply(
        &self,
        letters: Vec<InboxId>,
        parts: Vec<NewOutboxRow>,
        at: Timestamp,
    ) -> Result<Vec<OutboxId>, Error> {
        self.write(move |transaction| {
            mark_done(transaction, &letters, at)?;
            outbox::add(transaction, &parts, at)
        })
        .await
    }

    /// Deletes answered and delivered messages older than `before`. The last message of each recent
    /// chat stays, because it records that the chat exists.
    pub async fn prune_chat_messages(&self, before: Timestamp) -> Result<usize, Error> {
        self.write(move |transaction| {
            let letters = "DELETE FROM inbox WHERE done < ?1 AND n NOT IN (
                           SELECT max(n) FROM inbox GROUP BY platform, chat ORDER BY max(n) DESC LIMIT ?2)";
            let parts = "DELETE FROM outbox WHERE state IN ('sent', 'failed') AND at < ?1";
            Ok(transaction.execute(letters, params![before.seconds(), MAX_CHATS])?
                + transaction.execute(parts, [before.seconds()])?)
        })
        .await
    }
}

/// Records which turn answers messages.
pub(crate) fn assign_to_turn(
    transaction: &Transaction<'_>,
    letters: &[InboxId],
    turn: TurnId,
) -> Result<(), QueryError> {
    let mut statement = transaction.prepare_cached("UPDATE inbox SET turn = ?2 WHERE n = ?1")?;
    for letter in letters {
        statement.execute(params![letter.0, turn.number()])?;
    }
    Ok(())
}

/// Marks messages as done and drops their content, which the session now has.
pub(crate) fn mark_done(
    transaction: &Transaction<'_>,
    letters: &[InboxId],
    at: Timestamp,
) -> Result<(), QueryError> {
    let sql = "UPDATE inbox SET done = ?2, event = '' WHERE n = ?1 AND done IS NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    for letter in letters {
        statement.execute(params![letter.0, at.seconds()])?;
    }
    Ok(())
}

/// The messages that a turn answers.
pub(crate) fn turn_inbox(connection: &Connection, turn: TurnId) -> Result<Vec<InboxId>, QueryError> {
    let sql = "SELECT n FROM inbox WHERE turn = ?1 AND done IS NULL ORDER BY n";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([turn.number()], |row| Ok(InboxId(row.get(0)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read_row(row: &Row<'_>) -> rusqlite::Result<InboxRow> {
    let event: String = row.get(4)?;
    Ok(InboxRow {
        id: InboxId(row.get(0)?),
        key: SessionKey::new(row.get::<_, String>(1)?),
        at: Timestamp::from_seconds(row.get(2)?),
        turn: row.get::<_, Option<i64>>(3)?.map(TurnId::from_number),
        // The caller reports a message that cannot be parsed.
        event: serde_json::from_str(&event).unwrap_or(Value::Null),
    })
}
