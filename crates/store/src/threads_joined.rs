//! Per-platform chat state: threads the bot joined, the home chat, and how far events were
//! processed.

use hermes_types::{Person, Timestamp};
use rusqlite::params;

use crate::error::Result;
use crate::sql;
use crate::store::Store;

/// Threads remembered per platform; the least recently active are dropped first.
const MAX_THREADS: u32 = 10_000;

impl Store {
    /// Records activity addressed to the bot in a thread.
    pub async fn join_thread(&self, platform: &str, thread: &str, at: Timestamp) -> Result<()> {
        let (platform, thread) = (platform.to_owned(), thread.to_owned());
        self.write(move |transaction| {
            let insert = "INSERT INTO threads (platform, thread, seen) VALUES (?1, ?2, ?3)
                          ON CONFLICT DO UPDATE SET seen = max(seen, ?3)";
            sql::execute(transaction, insert, params![platform, thread, at.seconds()])?;
            let prune = "DELETE FROM threads WHERE platform = ?1 AND thread IN (
                         SELECT thread FROM threads WHERE platform = ?1 ORDER BY seen DESC LIMIT -1 OFFSET ?2)";
            sql::execute(transaction, prune, params![platform, MAX_THREADS])
        })
        .await
    }

    /// The threads that the bot joined, most recently active last.
    pub async fn joined_threads(&self, platform: &str) -> Result<Vec<String>> {
        let sql = "SELECT thread FROM threads WHERE platform = ?1 ORDER BY seen";
        self.rows(sql, (platform.to_owned(),), |row| Ok(row.get(0)?)).await
    }

    /// Sets the chat that receives the messages which belong to no other chat of a platform.
    pub async fn set_home_chat(&self, platform: &str, chat: &str, by: &Person, at: Timestamp) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO homes (platform, chat, set_by, set_at) VALUES (?1, ?2, ?3, ?4)";
        let values = (platform.to_owned(), chat.to_owned(), by.as_str().to_owned(), at.seconds());
        self.execute(sql, values).await
    }

    /// The home chat of a platform.
    pub async fn home_chat(&self, platform: &str) -> Result<Option<String>> {
        let sql = "SELECT chat FROM homes WHERE platform = ?1";
        Ok(self.rows(sql, (platform.to_owned(),), |row| Ok(row.get(0)?)).await?.pop())
    }

    /// Records how far the events of a platform were processed, in the platform's own terms. The
    /// position may be too early, never too late.
    pub async fn set_bookmark(&self, platform: &str, position: &str, at: Timestamp) -> Result<()> {
        let sql = "INSERT OR REPLACE INTO bookmarks (platform, place, at) VALUES (?1, ?2, ?3)";
        self.execute(sql, (platform.to_owned(), position.to_owned(), at.seconds())).await
    }

    /// The last recorded position.
    pub async fn bookmark(&self, platform: &str) -> Result<Option<String>> {
        let sql = "SELECT place FROM bookmarks WHERE platform = ?1";
        Ok(self.rows(sql, (platform.to_owned(),), |row| Ok(row.get(0)?)).await?.pop())
    }
}
