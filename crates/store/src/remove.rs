//! Removing sessions, and giving their space back.
//!
//! | a child that is | goes with its parent |
//! |---|---|
//! | a continuation or a branch | no: it stands alone from then on |
//! | a delegate | yes, and its own delegates too |

use hermes_types::Timestamp;
use rusqlite::{Connection, params};

use crate::error::{Error, Fault};
use crate::presence::{Held, Presence};
use crate::session::{self, Session, SessionId};
use crate::store::Store;
use crate::turn;

/// Sessions that are removed in one transaction: others want to write too.
const BATCH: usize = 16;
/// Pages that are given back in one transaction.
const PAGES: u32 = 512;
/// Pages of the search index that are put in order in one transaction.
const MERGE: i64 = 256;
/// What is so of a session, called `s`, in which nothing happened since a moment and nothing is under way.
const IDLE: &str = "s.ended IS NULL AND s.touched < ?1
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = s.n AND turns.ended IS NULL)";

/// What a prune did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pruned {
    /// How many sessions were removed.
    pub sessions: usize,
    /// How many bytes the file has become smaller.
    pub freed: u64,
}

impl Store {
    /// Removes a session with its messages and delegates. Tells how many sessions that were. One that is at work in a living process
    /// stays.
    pub async fn remove(&self, id: &SessionId) -> Result<usize, Error> {
        let (id, presence) = (id.clone(), self.presence());
        self.write(move |transaction| {
            let n = session::number(transaction, &id)?;
            remove(transaction, &presence, n)
        })
        .await
    }

    /// The sessions that [`Store::prune`] would remove, oldest first.
    pub async fn prunable(&self, before: Timestamp) -> Result<Vec<SessionId>, Error> {
        self.read(move |connection| {
            let mut found = Vec::new();
            for n in old(connection, before, i64::MAX)? {
                found.push(session::name(connection, n)?);
            }
            Ok(found)
        })
        .await
    }

    /// The sessions in which nothing happened since a moment and nothing is under way, though they did not end. Conversations of
    /// chats have no other end, unless somebody goes on with them.
    pub async fn idle(&self, before: Timestamp) -> Result<Vec<Session>, Error> {
        self.read(move |connection| session::that(connection, IDLE, params![before.seconds()])).await
    }

    /// Ends a session in which nothing happened since a moment and nothing is under way, so that it can be removed.
    pub async fn retire(&self, id: &SessionId, before: Timestamp, at: Timestamp) -> Result<(), Error> {
        let id = id.clone();
        self.write(move |transaction| {
            let sql =
                format!("UPDATE sessions AS s SET ended = ?2, end_reason = 'old' WHERE {IDLE} AND s.id = ?3");
            transaction.prepare_cached(&sql)?.execute(params![
                before.seconds(),
                at.seconds(),
                id.as_str()
            ])?;
            Ok(())
        })
        .await
    }

    /// Removes the ended sessions that began before a moment, with the questions and grants that were settled before it, and gives
    /// their space back. It does so in steps, and may be stopped between any two.
    pub async fn prune(&self, before: Timestamp) -> Result<Pruned, Error> {
        let size = self.size();
        let mut pruned = Pruned::default();
        loop {
            let presence = self.presence();
            let removed = self
                .write(move |transaction| {
                    let mut removed = 0;
                    for n in old(transaction, before, i64::try_from(BATCH).unwrap_or(1))? {
                        // An older one of the batch may have taken it along.
                        removed += remove(transaction, &presence, n)?;
                    }
                    Ok(removed)
                })
                .await?;
            if removed == 0 {
                break;
            }
            pruned.sessions += removed;
        }
        self.write(move |transaction| forget(transaction, before)).await?;
        if pruned.sessions > 0 {
            self.shrink().await?;
        }
        pruned.freed = size.saturating_sub(self.size());
        Ok(pruned)
    }

    /// Gives unused space of the file back to the disk, in steps.
    pub async fn shrink(&self) -> Result<(), Error> {
        for index in ["words", "pairs"] {
            // A negative number takes in also what would not be merged yet, and only for the first step.
            let mut amount = -MERGE;
            while self.write(move |transaction| merge(transaction, index, amount)).await? {
                amount = MERGE;
            }
        }
        loop {
            let left = self
                .on_writer(|connection| {
                    let sql = format!("PRAGMA incremental_vacuum({PAGES})");
                    let mut statement = connection.prepare_cached(&sql)?;
                    let mut rows = statement.query([])?;
                    while rows.next()?.is_some() {}
                    Ok(connection.pragma_query_value(None, "freelist_count", |row| row.get::<_, u64>(0))?)
                })
                .await?;
            if left == 0 {
                break;
            }
        }
        self.on_writer(|connection| {
            connection.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_row| Ok(()))?;
            Ok(())
        })
        .await
    }
}

/// Puts a part of the search index in order. Tells whether there was something to do.
fn merge(connection: &Connection, index: &str, amount: i64) -> Result<bool, Fault> {
    let before = connection.total_changes();
    let sql = format!("INSERT INTO {index} ({index}, rank) VALUES ('merge', ?1)");
    connection.prepare_cached(&sql)?.execute([amount])?;
    // SQLite's manual: fewer than two changes mean that nothing was left to merge.
    Ok(connection.total_changes().saturating_sub(before) >= 2)
}

/// Removes what belongs to no session and has been settled.
fn forget(connection: &Connection, before: Timestamp) -> Result<(), Fault> {
    let questions = "DELETE FROM questions WHERE session IS NULL AND expires < ?1 AND created < ?1";
    let grants = "DELETE FROM grants WHERE revoked_at < ?1";
    for sql in [questions, grants] {
        connection.prepare_cached(sql)?.execute([before.seconds()])?;
    }
    Ok(())
}

/// Ended sessions that began before a moment, oldest first.
fn old(connection: &Connection, before: Timestamp, limit: i64) -> Result<Vec<i64>, Fault> {
    let sql = "SELECT n FROM sessions WHERE ended IS NOT NULL AND started < ?1
               AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.n AND turns.ended IS NULL)
               ORDER BY started, n LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![before.seconds(), limit], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn remove(connection: &Connection, presence: &Presence, n: i64) -> Result<usize, Fault> {
    let sql = "WITH RECURSIVE family (n) AS (
                   SELECT n FROM sessions WHERE n = ?1
                   UNION SELECT c.n FROM sessions c JOIN family ON c.parent = family.n WHERE c.lineage = 'delegate')
               SELECT n FROM family";
    let mut statement = connection.prepare_cached(sql)?;
    let family: Vec<i64> = statement.query_map([n], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for member in &family {
        if let Some(open) = turn::open(connection, presence, *member)?
            && open.held != Held::Nowhere
        {
            return Err(Error::AtWork(open.session.as_str().to_owned()).into());
        }
        for index in ["words", "pairs"] {
            let sql =
                format!("DELETE FROM {index} WHERE rowid IN (SELECT id FROM messages WHERE session = ?1)");
            connection.prepare_cached(&sql)?.execute([member])?;
        }
        connection.prepare_cached("DELETE FROM sessions WHERE n = ?1")?.execute([member])?;
    }
    Ok(family.len())
}
