//! Short forms for running one statement.

use rusqlite::types::FromSql;
use rusqlite::{Connection, Params, Row};

use crate::error::{QueryResult, Result};
use crate::store::Store;

/// Runs a statement.
pub(crate) fn execute(connection: &Connection, sql: &str, values: impl Params) -> QueryResult {
    execute_counted(connection, sql, values).map(drop)
}

/// Runs a statement. Returns the number of changed rows.
pub(crate) fn execute_counted(connection: &Connection, sql: &str, values: impl Params) -> QueryResult<usize> {
    Ok(connection.prepare_cached(sql)?.execute(values)?)
}

/// Reads all rows of a query.
pub(crate) fn rows<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> QueryResult<T>,
) -> QueryResult<Vec<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then(values, read)?.collect()
}

/// Reads the first row of a query, if it has one.
pub(crate) fn first<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> QueryResult<T>,
) -> QueryResult<Option<T>> {
    let mut statement = connection.prepare_cached(sql)?;
    statement.query_and_then(values, read)?.next().transpose()
}

/// Reads the only row of a query that always has one.
pub(crate) fn only_row<T>(
    connection: &Connection,
    sql: &str,
    values: impl Params,
    read: impl FnMut(&Row<'_>) -> QueryResult<T>,
) -> QueryResult<T> {
    first(connection, sql, values, read)?.ok_or_else(|| rusqlite::Error::QueryReturnedNoRows.into())
}

/// Reads the only value of a query that always has one row.
pub(crate) fn value<T: FromSql>(connection: &Connection, sql: &str, values: impl Params) -> QueryResult<T> {
    Ok(connection.prepare_cached(sql)?.query_row(values, |row| row.get(0))?)
}

impl Store {
    /// Runs a statement in a transaction of its own.
    pub(crate) async fn execute(
        &self,
        sql: impl AsRef<str> + Send + 'static,
        values: impl Params + Send + 'static,
    ) -> Result<()> {
        self.write(move |transaction| execute(transaction, sql.as_ref(), values)).await
    }

    /// Reads all rows of a query.
    pub(crate) async fn rows<T: Send + 'static>(
        &self,
        sql: impl AsRef<str> + Send + 'static,
        values: impl Params + Send + 'static,
        read: impl FnMut(&Row<'_>) -> QueryResult<T> + Send + 'static,
    ) -> Result<Vec<T>> {
        self.read(move |connection| rows(connection, sql.as_ref(), values, read)).await
    }
}
