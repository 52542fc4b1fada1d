//! Letters: what people said in chats. Each is kept once, before anything is done about it, and is done when what is said about
//! it is kept as well.

use hermes_types::{Person, SessionKey, Timestamp};
use rusqlite::{Connection, Row, Transaction, params};
use serde_json::Value;

use crate::error::{Error, Fault};
use crate::message::bounded;
use crate::outbox::{self, NewPart, PartId};
use crate::store::Store;
use crate::turn::TurnId;

/// Chats of which the last letter is remembered for ever, those where something was said last.
const CHATS: u32 = 1_000;

/// One letter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LetterId(i64);

/// A letter to be kept.
#[derive(Debug, Clone, PartialEq)]
pub struct NewLetter {
    /// Where it was written.
    pub platform: String,
    /// In which chat.
    pub chat: String,
    /// What the platform calls it there.
    pub message: String,
    /// The session it belongs to.
    pub key: SessionKey,
    /// Who wrote it.
    pub person: Person,
    /// When it arrived.
    pub at: Timestamp,
    /// All that is known about it.
    pub event: Value,
}

/// A letter that was not answered yet.
#[derive(Debug, Clone, PartialEq)]
pub struct Letter {
    /// Which one.
    pub id: LetterId,
    /// The session it belongs to.
    pub key: SessionKey,
    /// When it arrived.
    pub at: Timestamp,
    /// The turn that answers it, if one was begun.
    pub turn: Option<TurnId>,
    /// All that is known about it.
    pub event: Value,
}

impl Store {
    /// Keeps letters, all of them or none; nothing stands for each one that was kept before.
    pub async fn receive(&self, letters: Vec<NewLetter>) -> Result<Vec<Option<LetterId>>, Error> {
        self.write(move |transaction| {
            let sql = "INSERT INTO inbox (platform, chat, message, key, person, at, event)
                       VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7) ON CONFLICT DO NOTHING";
            let mut statement = transaction.prepare_cached(sql)?;
            let mut kept = Vec::with_capacity(letters.len());
            for letter in letters {
                let event = letter.event.to_string();
                bounded("a letter", event.len())?;
                let count = statement.execute(params![
                    letter.platform,
                    letter.chat,
                    letter.message,
                    letter.key.as_str(),
                    letter.person.as_str(),
                    letter.at.seconds(),
                    event,
                ])?;
                kept.push((count > 0).then(|| LetterId(transaction.last_insert_rowid())));
            }
            Ok(kept)
        })
        .await
    }

    /// Whether a letter was kept before.
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

    /// Which of these messages of a chat were letters to a session.
    pub async fn letters_among(
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

    /// The last letter of each chat of a platform, by what the platform calls it.
    pub async fn last_letters(&self, platform: &str) -> Result<Vec<(String, String)>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let sql = "SELECT chat, message, max(n) FROM inbox WHERE platform = ?1 GROUP BY chat";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([platform], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Gives a letter to another session, because it belongs elsewhere than it seemed.
    pub async fn readdress(&self, letter: LetterId, key: &SessionKey, event: Value) -> Result<(), Error> {
        let key = key.clone();
        self.write(move |transaction| {
            let sql = "UPDATE inbox SET key = ?2, event = ?3 WHERE n = ?1 AND done IS NULL";
            transaction.prepare_cached(sql)?.execute(params![letter.0, key.as_str(), event.to_string()])?;
            Ok(())
        })
        .await
    }

    /// The letters of a platform that were not answered, oldest first.
    pub async fn waiting_letters(&self, platform: &str) -> Result<Vec<Letter>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let sql =
                "SELECT n, key, at, turn, event FROM inbox WHERE platform = ?1 AND done IS NULL ORDER BY n";
            let mut statement = connection.prepare_cached(sql)?;
            let rows = statement.query_map([platform], read)?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Says something in chats, and is done with the letters it answers.
    pub async fn reply(
        &self,
        letters: Vec<LetterId>,
        parts: Vec<NewPart>,
        at: Timestamp,
    ) -> Result<Vec<PartId>, Error> {
        self.write(move |transaction| {
            finish(transaction, &letters, at)?;
            outbox::add(transaction, &parts, at)
        })
        .await
    }

    /// Forgets letters that were answered and parts that were sent before a moment. Which chats there are is remembered by the
    /// last letter of each, whatever its age.
    pub async fn forget_mail(&self, before: Timestamp) -> Result<usize, Error> {
        self.write(move |transaction| {
            let letters = "DELETE FROM inbox WHERE done < ?1 AND n NOT IN (
                           SELECT max(n) FROM inbox GROUP BY platform, chat ORDER BY max(n) DESC LIMIT ?2)";
            let parts = "DELETE FROM outbox WHERE state IN ('sent', 'failed') AND at < ?1";
            Ok(transaction.execute(letters, params![before.seconds(), CHATS])?
                + transaction.execute(parts, [before.seconds()])?)
        })
        .await
    }
}

/// Notes which turn answers letters.
pub(crate) fn join(transaction: &Transaction<'_>, letters: &[LetterId], turn: TurnId) -> Result<(), Fault> {
    let mut statement = transaction.prepare_cached("UPDATE inbox SET turn = ?2 WHERE n = ?1")?;
    for letter in letters {
        statement.execute(params![letter.0, turn.number()])?;
    }
    Ok(())
}

/// Is done with letters; what they said is in the messages of their session, if anywhere.
pub(crate) fn finish(
    transaction: &Transaction<'_>,
    letters: &[LetterId],
    at: Timestamp,
) -> Result<(), Fault> {
    let sql = "UPDATE inbox SET done = ?2, event = '' WHERE n = ?1 AND done IS NULL";
    let mut statement = transaction.prepare_cached(sql)?;
    for letter in letters {
        statement.execute(params![letter.0, at.seconds()])?;
    }
    Ok(())
}

/// The letters a turn answers.
pub(crate) fn of_turn(connection: &Connection, turn: TurnId) -> Result<Vec<LetterId>, Fault> {
    let sql = "SELECT n FROM inbox WHERE turn = ?1 AND done IS NULL ORDER BY n";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map([turn.number()], |row| Ok(LetterId(row.get(0)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn read(row: &Row<'_>) -> rusqlite::Result<Letter> {
    let event: String = row.get(4)?;
    Ok(Letter {
        id: LetterId(row.get(0)?),
        key: SessionKey::new(row.get::<_, String>(1)?),
        at: Timestamp::from_seconds(row.get(2)?),
        turn: row.get::<_, Option<i64>>(3)?.map(TurnId::from_number),
        // One that cannot be read is told so to whoever looks at it.
        event: serde_json::from_str(&event).unwrap_or(Value::Null),
    })
}
