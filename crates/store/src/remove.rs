//! Removal of sessions and release of their disk space.

use hermes_types::Timestamp;
use rusqlite::{Connection, params};

use crate::error::{Error, QueryResult, Result};
use crate::session::{self, SessionId, SessionRow};
use crate::sql;
use crate::store::Store;
use crate::turn;
use crate::worker_lock::{TurnOwner, WorkerLock};

/// Removed per transaction, so that other writers get their turn.
const SESSIONS_PER_BATCH: u32 = 16;
/// Pages freed per transaction.
const PAGES_PER_BATCH: u32 = 512;
/// Pages of the search index merged per transaction.
const MERGE_PAGES: i64 = 256;
/// Selects sessions that have not ended, without activity since `?1` and without a turn in
/// progress.
const IDLE_CONDITION: &str = "sessions.ended IS NULL AND touched < ?1
    AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.n AND turns.ended IS NULL)";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PruneResult {
    pub sessions: usize,
    pub freed_bytes: u64,
}

impl Store {
    /// Removes a session with its messages. A session with a live turn cannot be removed.
    pub async fn remove_session(&self, id: &SessionId) -> Result<()> {
        let lock = self.worker_lock();
        self.write_session(id, move |transaction, n| remove(transaction, &lock, n)).await
    }

    pub async fn prunable(&self, before: Timestamp) -> Result<Vec<SessionId>> {
        self.rows(select_prunable("id"), (before.seconds(), i64::MAX), |row| {
            Ok(SessionId::new(row.get::<_, String>(0)?))
        })
        .await
    }

    /// The sessions without activity since `before` that have not ended. Chat sessions end in no
    /// other way unless a user continues them.
    pub async fn idle_sessions(&self, before: Timestamp) -> Result<Vec<SessionRow>> {
        let sql = format!("{} WHERE {IDLE_CONDITION}", session::SELECT);
        self.rows(sql, (before.seconds(),), session::read_row).await
    }

    /// Ends a session without activity since `before`, so that it can be pruned.
    pub async fn retire_session(&self, id: &SessionId, before: Timestamp, at: Timestamp) -> Result<()> {
        let sql =
            format!("UPDATE sessions SET ended = ?2, end_reason = 'old' WHERE {IDLE_CONDITION} AND id = ?3");
        self.execute(sql, (before.seconds(), at.seconds(), id.as_str().to_owned())).await
    }

    /// Removes the ended sessions started before `before`, with questions and grants closed by
    /// then, and frees their disk space. It works in small transactions and can be interrupted
    /// between them.
    pub async fn prune(&self, before: Timestamp) -> Result<PruneResult> {
        let size = self.size();
        let mut pruned = PruneResult::default();
        loop {
            let lock = self.worker_lock();
            let removed = self
                .write(move |transaction| {
                    let values = params![before.seconds(), SESSIONS_PER_BATCH];
                    let batch = sql::rows(transaction, &select_prunable("n"), values, |row| Ok(row.get(0)?))?;
                    batch.iter().try_for_each(|n| remove(transaction, &lock, *n))?;
                    Ok(batch.len())
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
    pub async fn shrink(&self) -> Result<()> {
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
fn merge_index(connection: &Connection, index: &str, amount: i64) -> QueryResult<bool> {
    let before = connection.total_changes();
    let sql = format!("INSERT INTO {index} ({index}, rank) VALUES ('merge', ?1)");
    sql::execute(connection, &sql, [amount])?;
    // SQLite documentation: fewer than two changes mean that nothing was left to merge.
    Ok(connection.total_changes().saturating_sub(before) >= 2)
}

/// Deletes closed questions without a session and revoked grants.
fn delete_settled(connection: &Connection, before: Timestamp) -> QueryResult {
    let questions = "DELETE FROM questions WHERE session IS NULL AND expires < ?1 AND created < ?1";
    let grants = "DELETE FROM grants WHERE revoked_at < ?1";
    sql::execute(connection, questions, [before.seconds()])?;
    sql::execute(connection, grants, [before.seconds()])
}

/// Selects a column of ended sessions started before `?1`, oldest first, at most `?2`.
fn select_prunable(column: &str) -> String {
    format!(
        "SELECT {column} FROM sessions WHERE ended IS NOT NULL AND started < ?1
         AND NOT EXISTS (SELECT 1 FROM turns WHERE turns.session = sessions.n AND turns.ended IS NULL)
         ORDER BY started, n LIMIT ?2"
    )
}

fn remove(connection: &Connection, lock: &WorkerLock, n: i64) -> QueryResult {
    if let Some(open) = turn::find_open(connection, lock, n)?
        && open.owner != TurnOwner::Exited
    {
        return Err(Error::TurnInProgress(open.session.as_str().to_owned()).into());
    }
    for index in ["words", "pairs"] {
        let sql = format!("DELETE FROM {index} WHERE rowid IN (SELECT id FROM messages WHERE session = ?1)");
        sql::execute(connection, &sql, [n])?;
    }
    sql::execute(connection, "DELETE FROM sessions WHERE n = ?1", [n])
}
