//! Removal of sessions and release of their disk space.
//!
//! | child session | removed with its parent |
//! |---|---|
//! | continuation, branch | no, it becomes independent |
//! | delegate | yes, with its own delegates |

use hermes_types::Timestamp;
use rusqlite::{Connection, params};

use crate::error::{Error, QueryError};
use crate::session::{self, SessionId, SessionRow};
use crate::store::Store;
use crate::turn;
use crate::worker_lock::{TurnOwner, WorkerLock};

/// Removed per transaction, so that other writers get their turn.
const SESSIONS_PER_BATCH: usize = 16;
/// Pages freed per transaction.
const PAGES_PER_BATCH: u32 = 512;
/// Pages of the search index merged per transaction.
const MERGE_PAGES: i64 = 256;
/// Selects sessions `s` that have not ended, without activity since `?1` and without a turn in
/// progress.
const IDLE_CONDITION: &str = "s.ended IS NULL AND s.touched < ?1
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = s.n AND turns.ended IS NULL)";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneResult {
    pub sessions: usize,
    pub freed_bytes: u64,
}

impl Store {
    /// Removes a session with its messages and delegates. Returns the number of sessions. A session
    /// with a live turn cannot be removed.
    pub async fn remove_session(&self, id: &SessionId) -> Result<usize, Error> {
        let (id, presence) = (id.clone(), self.worker_lock());
        self.write(move |transaction| {
            let n = session::row_number(transaction, &id)?;
            remove_tree(transaction, &presence, n)
        })
        .await
    }

    pub async fn prunable(&self, before: Timestamp) -> Result<Vec<SessionId>, Error> {
        self.read(move |connection| {
            let mut found = Vec::new();
            for n in prunable(connection, before, i64::MAX)? {
                found.push(session::id_of_row(connection, n)?);
            }
            Ok(found)
        })
        .await
    }

    /// The sessions without activity since `before` that have not ended. Chat sessions end in no
    /// other way unless a user continues them.
    pub async fn idle_sessions(&self, before: Timestamp) -> Result<Vec<SessionRow>, Error> {
        self.read(move |connection| {
            session::select_where(connection, IDLE_CONDITION, params![before.seconds()])
        })
        .await
    }

    /// Ends a session without activity since `before`, so that it can be pruned.
    pub async fn retire_session(
        &self,
        id: &SessionId,
        before: Timestamp,
        at: Timestamp,
    ) -> Result<(), Error> {
        let id = id.clone();
        self.write(move |transaction| {
            let sql = format!(
                "UPDATE sessions AS s SET ended = ?2, end_reason = 'old' WHERE {IDLE_CONDITION} AND s.id = ?3"
            );
            transaction.prepare_cached(&sql)?.execute(params![
                before.seconds(),
                at.seconds(),
                id.as_str()
            ])?;
            Ok(())
        })
        .await
    }

    /// Removes the ended sessions started before `before`, with questions and grants closed by
    /// then, and frees their disk space. It works in small transactions and can be interrupted
    /// between them.
    pub async fn prune(&self, before: Timestamp) -> Result<PruneResult, Error> {
        let size = self.size();
        let mut pruned = PruneResult::default();
        loop {
            let presence = self.worker_lock();
            let removed = self
                .write(move |transaction| {
                    let mut removed = 0;
                    for n in prunable(transaction, before, i64::try_from(SESSIONS_PER_BATCH).unwrap_or(1))? {
                        // An older session of the batch may have removed it as a delegate.
                        removed += remove_tree(transaction, &presence, n)?;
                    }
                    Ok(removed)
                })
                .await?;
            if removed == 0 {
                break;
            }
            pruned.sessions += removed;
        }
        self.write(move |transaction| delete_settled(transaction, before)).await?;
        if pruned.sessions > 0 {
            self.shrink().await?;
        }
        pruned.freed_bytes = size.saturating_sub(self.size());
        Ok(pruned)
    }

    /// Returns unused space of the file to the file system, in steps.
    pub async fn shrink(&self) -> Result<(), Error> {
        for index in ["words", "pairs"] {
            // A negative number makes SQLite start a merge that is not due yet; it is used for the
            // first step only.
            let mut amount = -MERGE_PAGES;
            while self.write(move |transaction| merge_index(transaction, index, amount)).await? {
                amount = MERGE_PAGES;
            }
        }
        loop {
            let left = self
                .on_writer(|connection| {
                    let sql = format!("PRAGMA incremental_vacuum({PAGES_PER_BATCH})");
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

/// Merges a part of the search index. Returns whether more may be left.
fn merge_index(connection: &Connection, index: &str, amount: i64) -> Result<bool, QueryError> {
    let before = connection.total_changes();
    let sql = format!("INSERT INTO {index} ({index}, rank) VALUES ('merge', ?1)");
    connection.prepare_cached(&sql)?.execute([amount])?;
    // SQLite documentation: fewer than two changes mean that nothing was left to merge.
    Ok(connection.total_changes().saturating_sub(before) >= 2)
}

/// Deletes closed questions without a session and revoked grants.
fn delete_settled(connection: &Connection, before: Timestamp) -> Result<(), QueryError> {
    let questions = "DELETE FROM questions WHERE session IS NULL AND expires < ?1 AND created < ?1";
    let grants = "DELETE FROM grants WHERE revoked_at < ?1";
    for sql in [questions, grants] {
        connection.prepare_cached(sql)?.execute([before.seconds()])?;
    }
    Ok(())
}

/// Ended sessions started before `before`, oldest first.
fn prunable(connection: &Connection, before: Timestamp, limit: i64) -> Result<Vec<i64>, QueryError> {
    let sql = "SELECT n FROM sessions WHERE ended IS NOT NULL AND started < ?1
               AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.n AND turns.ended IS NULL)
               ORDER BY started, n LIMIT ?2";
    let mut statement = connection.prepare_cached(sql)?;
    let rows = statement.query_map(params![before.seconds(), limit], |row| row.get(0))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

fn remove_tree(connection: &Connection, presence: &WorkerLock, n: i64) -> Result<usize, QueryError> {
    let sql = "WITH RECURSIVE family (n) AS (
                   SELECT n FROM sessions WHERE n = ?1
                   UNION SELECT c.n FROM sessions c JOIN family ON c.parent = family.n WHERE c.lineage = 'delegate')
               SELECT n FROM family";
    let mut statement = connection.prepare_cached(sql)?;
    let family: Vec<i64> = statement.query_map([n], |row| row.get(0))?.collect::<Result<_, _>>()?;
    for member in &family {
        if let Some(open) = turn::find_open(connection, presence, *member)?
            && open.owner != TurnOwner::Exited
        {
            return Err(Error::TurnInProgress(open.session.as_str().to_owned()).into());
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
