//! Per-platform chat state: threads the bot joined, the home chat, and how far events were
//! processed.

use hermes_types::{Person, Timestamp};
use rusqlite::{OptionalExtension, params};

use crate::error::Error;
use crate::store::Store;

/// Threads remembered per platform; the least recently active are dropped first.
const MAX_THREADS: u32 = 10_000;

impl Store {
    /// Records activity addressed to the bot in a thread.
    pub async fn join_thread(&self, platform: &str, thread: &str, at: Timestamp) -> Result<(), Error> {
        let (platform, thread) = (platform.to_owned(), thread.to_owned());
        self.write(move |transaction| {
            let sql = "INSERT INTO threads (platform, thread, seen) VALUES (?1, ?2, ?3)
                       ON CONFLICT DO UPDATE SET seen = max(seen, ?3)";
            transaction.prepare_cached(sql)?.execute(params![platform, thread, at.seconds()])?;
            let sql = "DELETE FROM threads WHERE platform = ?1 AND thread IN (
                       SELECT thread FROM threads WHERE platform = ?1 ORDER BY seen DESC LIMIT -1 OFFSET ?2)";
            transaction.prepare_cached(sql)?.execute(params![platform, MAX_THREADS])?;
            Ok(())
        })
        .await
    }

    /// The threads that the bot joined, most recently active last.
    pub async fn joined_threads(&self, platform: &str) -> Result<Vec<String>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT thread FROM threads WHERE platform = ?1 ORDER BY seen")?;
            let rows = statement.query_map([platform], |row| row.get(0))?;
            Ok(rows.collect::<Result<_, _>>()?)
        })
        .await
    }

    /// Sets the chat that receives the messages which belong to no other chat of a platform.
    pub async fn set_home_chat(
        &self,
        platform: &str,
        chat: &str,
        by: &Person,
        at: Timestamp,
    ) -> Result<(), Error> {
        let (platform, chat, by) = (platform.to_owned(), chat.to_owned(), by.clone());
        self.write(move |transaction| {
            let sql = "INSERT OR REPLACE INTO homes (platform, chat, set_by, set_at) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(sql, params![platform, chat, by.as_str(), at.seconds()])?;
            Ok(())
        })
        .await
    }

    /// The home chat of a platform.
    pub async fn home_chat(&self, platform: &str) -> Result<Option<String>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let mut statement = connection.prepare_cached("SELECT chat FROM homes WHERE platform = ?1")?;
            Ok(statement.query_row([platform], |row| row.get(0)).optional()?)
        })
        .await
    }

    /// Records how far the events of a platform were processed, in the platform's own terms. The
    /// position may be too early, never too late.
    pub async fn set_bookmark(&self, platform: &str, place: &str, at: Timestamp) -> Result<(), Error> {
        let (platform, place) = (platform.to_owned(), place.to_owned());
        self.write(move |transaction| {
            let sql = "INSERT OR REPLACE INTO bookmarks (platform, place, at) VALUES (?1, ?2, ?3)";
            transaction.prepare_cached(sql)?.execute(params![platform, place, at.seconds()])?;
            Ok(())
        })
        .await
    }

    /// The last recorded position and its time.
    pub async fn bookmark(&self, platform: &str) -> Result<Option<(String, Timestamp)>, Error> {
        let platform = platform.to_owned();
        self.read(move |connection| {
            let mut statement =
                connection.prepare_cached("SELECT place, at FROM bookmarks WHERE platform = ?1")?;
            let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, Timestamp::from_seconds(row.get(1)?)));
            Ok(statement.query_row([platform], read).optional()?)
        })
        .await
    }
}
