//! The inbox: messages received from chats. Each is stored once, before it is processed, and is
//! marked done in the transaction that stores its reply.

use hermes_types::{Person, SessionKey, Timestamp};
use rusqlite::{Row, Transaction, params};
use serde_json::Value;

use crate::error::{QueryResult, Result};
use crate::message::check_size;
use crate::outbox::{self, NewOutboxRow};
use crate::sql;
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
    /// Stores a message. Returns `None` if it is already known.
    pub async fn receive_message(&self, new: NewInboxRow) -> Result<Option<InboxId>> {
        self.write(move |transaction| {
            let sql = "INSERT INTO inbox (platform, chat, message, key, person, at, event)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING RETURNING n";
            let event = new.event.to_string();
            check_size("a received message", event.len())?;
            let (key, person, at) = (new.key.as_str(), new.person.as_str(), new.at.seconds());
            let values = params![new.platform, new.chat, new.message, key, person, at, event];
            sql::first(transaction, sql, values, |row| Ok(InboxId(row.get(0)?)))
        })
        .await
    }

    /// Whether a message is already stored.
    pub async fn is_received(&self, platform: &str, chat: &str, message: &str) -> Result<bool> {
        let sql = "SELECT 1 FROM inbox WHERE platform = ?1 AND chat = ?2 AND message = ?3";
        Ok(!self
            .rows(sql, (platform.to_owned(), chat.to_owned(), message.to_owned()), |_row| Ok(()))
            .await?
            .is_empty())
    }

    /// Which of these message ids of a chat were received for a session.
    pub async fn inbox_messages_among(
        &self,
        platform: &str,
        chat: &str,
        key: &SessionKey,
        messages: Vec<String>,
    ) -> Result<Vec<String>> {
        let sql = "SELECT message FROM inbox WHERE platform = ?1 AND chat = ?2 AND key = ?3
                   AND message IN (SELECT value FROM json_each(?4)) ORDER BY n";
        let (chat, key) = (chat.to_owned(), key.as_str().to_owned());
        let values = (platform.to_owned(), chat, key, Value::from(messages).to_string());
        self.rows(sql, values, |row| Ok(row.get(0)?)).await
    }

    /// The last received message id of each chat of a platform.
    pub async fn last_inbox_messages(&self, platform: &str) -> Result<Vec<(String, String)>> {
        let sql = "SELECT chat, message, max(n) FROM inbox WHERE platform = ?1 GROUP BY chat";
        let read = |row: &Row<'_>| Ok((row.get(0)?, row.get(1)?));
        self.rows(sql, (platform.to_owned(),), read).await
    }

    /// Moves a message to another session.
    pub async fn reassign(&self, id: InboxId, key: &SessionKey, event: Value) -> Result<()> {
        let sql = "UPDATE inbox SET key = ?2, event = ?3 WHERE n = ?1 AND done IS NULL";
        self.execute(sql, (id.0, key.as_str().to_owned(), event.to_string())).await
    }

    /// The messages of a platform without a reply, oldest first.
    pub async fn pending_inbox(&self, platform: &str) -> Result<Vec<InboxRow>> {
        let sql = "SELECT n, key, at, turn, event FROM inbox WHERE platform = ?1 AND done IS NULL ORDER BY n";
        self.rows(sql, (platform.to_owned(),), read_row).await
    }

    /// Enqueues outbound messages and marks the messages they answer as done.
    pub async fn enqueue_reply(
        &self,
        answered: Vec<InboxId>,
        parts: Vec<NewOutboxRow>,
        at: Timestamp,
    ) -> Result<()> {
        self.write(move |transaction| {
            for id in answered {
                sql::execute(transaction, &format!("{MARK_DONE} n = ?1"), params![id.0, at.seconds()])?;
            }
            outbox::add(transaction, &parts, at)
        })
        .await
    }

    /// Deletes answered and delivered messages older than `before`. The last message of each recent
    /// chat stays, because it records that the chat exists.
    pub async fn prune_chat_messages(&self, before: Timestamp) -> Result<()> {
        self.write(move |transaction| {
            let inbox = "DELETE FROM inbox WHERE done < ?1 AND n NOT IN (
                         SELECT max(n) FROM inbox GROUP BY platform, chat ORDER BY max(n) DESC LIMIT ?2)";
            let outbox = "DELETE FROM outbox WHERE state IN ('sent', 'failed') AND at < ?1";
            sql::execute(transaction, inbox, params![before.seconds(), MAX_CHATS])?;
            sql::execute(transaction, outbox, [before.seconds()])
        })
        .await
    }
}

/// Marks messages as done and drops their content, which the session now has; a condition follows.
const MARK_DONE: &str = "UPDATE inbox SET done = ?2, event = '' WHERE done IS NULL AND";

/// Records which turn answers messages.
pub(crate) fn assign_to_turn(
    transaction: &Transaction<'_>,
    messages: &[InboxId],
    turn: TurnId,
) -> QueryResult {
    let sql = "UPDATE inbox SET turn = ?2 WHERE n = ?1";
    messages.iter().try_for_each(|id| sql::execute(transaction, sql, [id.0, turn.number()]))
}

/// Marks the messages that a turn answers as done.
pub(crate) fn finish_turn(transaction: &Transaction<'_>, turn: TurnId, at: Timestamp) -> QueryResult {
    sql::execute(transaction, &format!("{MARK_DONE} turn = ?1"), params![turn.number(), at.seconds()])
}

fn read_row(row: &Row<'_>) -> QueryResult<InboxRow> {
    let event: String = row.get(4)?;
    Ok(InboxRow {
        id: InboxId(row.get(0)?),
        key: SessionKey::new(row.get::<_, String>(1)?),
        at: Timestamp::from_seconds(row.get(2)?),
        turn: row.get::<_, Option<i64>>(3)?.map(TurnId),
        // The caller reports a message that cannot be parsed.
        event: serde_json::from_str(&event).unwrap_or(Value::Null),
    })
}
