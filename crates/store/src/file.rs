//! Opening, creating and migrating the database file.
//!
//! A new database is created under a temporary name and then renamed, so no process sees a partial
//! one. `user_version` holds the schema version; `MIGRATIONS` has the steps between versions.
//! Before the first step the file is backed up. All steps run in one transaction, and a version
//! newer than the known ones is refused.
//!
//! A database file is only ever opened through SQLite: closing any descriptor of a file drops all
//! POSIX locks that the process holds on it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};
use tempfile::TempPath;

use crate::error::{Error, QueryResult, Result};

/// The database file in the Hermes home. `state.db` in the same home belongs to the Python Hermes
/// Agent, which adds its own columns and version numbers to it, so the two programs must not share
/// a file.
pub const FILE_NAME: &str = "hermes.db";

/// Marks a database as ours: `Hrms`.
const APPLICATION_ID: u32 = 0x4872_6d73;
/// The schema versions, oldest first; their count is the newest version.
const MIGRATIONS: &[&str] =
    &[include_str!("schema/1.sql"), include_str!("schema/2.sql"), include_str!("schema/3.sql")];
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
const STATEMENT_CACHE_SIZE: usize = 64;
/// The WAL is truncated to this size after a checkpoint, so one large write does not occupy the
/// disk forever.
const MAX_WAL_BYTES: u32 = 16 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IfMissing {
    Create,
    Skip,
}

/// Opens the database for writing; `None` if it does not exist and must not be created.
pub(crate) fn open(path: &Path, if_missing: IfMissing) -> Result<Option<Connection>> {
    open_as(path, if_missing, MIGRATIONS)
}

fn open_as(path: &Path, if_missing: IfMissing, migrations: &[&str]) -> Result<Option<Connection>> {
    match fs::metadata(path) {
        Ok(meta) => check_file(path, &meta)?,
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(Error::Forbidden { path: path.to_path_buf(), error });
        }
        Err(_) if if_missing == IfMissing::Skip => return Ok(None),
        Err(_) => create_database(path, migrations)?,
    }
    match connect(path, migrations).map_err(|error| error.into_error(path)) {
        Err(Error::Corrupt { path, detail }) => {
            Err(Error::Corrupt { detail: quick_check(&path).unwrap_or(detail), path })
        }
        opened => opened.map(Some),
    }
}

pub(crate) fn open_reader(path: &Path) -> QueryResult<Connection> {
    connect_to(path, OpenFlags::SQLITE_OPEN_READ_ONLY)
}

fn connect_to(path: &Path, access: OpenFlags) -> QueryResult<Connection> {
    let connection = Connection::open_with_flags(path, access | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE_SIZE);
    Ok(connection)
}

/// Checks a file before SQLite opens it, and restricts its permissions to the owner; the WAL
/// inherits them.
fn check_file(path: &Path, meta: &fs::Metadata) -> Result<()> {
    let path = path.to_path_buf();
    if !meta.is_file() {
        return Err(Error::Forbidden { path, error: io::Error::other("not a regular file") });
    }
    // Hermes never creates an empty database, so data was lost; filling the file would hide that.
    if meta.len() == 0 {
        return Err(Error::NotADatabase { path });
    }
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .map_err(|error| Error::Forbidden { path, error })?;
    }
    Ok(())
}

fn connect(path: &Path, migrations: &[&str]) -> QueryResult<Connection> {
    let mut connection = connect_to(path, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    if connection.is_readonly("main")? {
        return Err(Error::ReadOnly { path: path.to_path_buf() }.into());
    }
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION_ID {
        return Err(Error::Foreign { path: path.to_path_buf() }.into());
    }
    let known = count(migrations);
    if version > known {
        return Err(Error::Newer { path: path.to_path_buf(), found: version, known }.into());
    }
    // A commit is in the WAL before its caller continues, so it survives the death of every
    // process. A power failure may drop the last commits, each as a whole; syncing would cost
    // milliseconds per step.
    connection.execute_batch(&format!(
        "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = {MAX_WAL_BYTES};"
    ))?;
    if version < known {
        migrate(&mut connection, path, migrations)?;
    }
    Ok(connection)
}

fn count(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// Creates a new database under a temporary name and renames it. Another thread or process may do
/// the same at the same time.
fn create_database(path: &Path, migrations: &[&str]) -> Result<()> {
    let folder = parent_of(path);
    if !folder.is_dir() {
        return Err(Error::NoDirectory { path: folder.to_path_buf() });
    }
    let unfinished = create_private(path).map_err(|error| file_error(path, error))?;
    initialize(&unfinished, migrations).map_err(|error| error.into_error(&unfinished))?;
    match unfinished.persist_noclobber(path) {
        // Another process was faster; its database is equivalent.
        Err(failed) if failed.error.kind() != io::ErrorKind::AlreadyExists => {
            Err(file_error(path, failed.error))
        }
        _ => Ok(()),
    }
}

fn initialize(unfinished: &Path, migrations: &[&str]) -> QueryResult {
    let mut connection = connect_to(unfinished, OpenFlags::SQLITE_OPEN_READ_WRITE)?;
    // The file is not used before it is complete, so one sync at the end suffices. `auto_vacuum`
    // takes effect only in an empty file.
    connection.execute_batch(&format!(
        "PRAGMA synchronous = OFF; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION_ID};"
    ))?;
    let transaction = connection.transaction()?;
    run_migrations(&transaction, migrations, 0)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    // No connection to the file is left whose locks this could drop.
    let synced = File::open(unfinished).and_then(|file| file.sync_all());
    Ok(synced.map_err(|error| file_error(unfinished, error))?)
}

fn run_migrations(connection: &Connection, migrations: &[&str], done: u32) -> QueryResult {
    let done = usize::try_from(done).unwrap_or(usize::MAX);
    migrations.iter().skip(done).try_for_each(|sql| connection.execute_batch(sql))?;
    connection.pragma_update(None, "user_version", count(migrations))?;
    Ok(())
}

/// Backs up an older database, then migrates it.
fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> QueryResult {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Another process may have migrated the file while this one waited.
    if version < count(migrations) {
        // The open transaction blocks other writers, so the backup is exactly what will be
        // migrated.
        back_up(path, version)?;
        run_migrations(&transaction, migrations, version)?;
    }
    transaction.commit()?;
    Ok(())
}

fn back_up(path: &Path, version: u32) -> Result<()> {
    let finished = with_suffix(path, &format!(".v{version}.bak"));
    let copy = || -> Result<(), Box<dyn std::error::Error>> {
        let unfinished = create_private(&finished)?;
        let source = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut target = Connection::open(&unfinished)?;
        Backup::new(&source, &mut target)?.run_to_completion(1_000, Duration::ZERO, None)?;
        target.close().map_err(|(_, error)| error)?;
        unfinished.persist(&finished).map_err(|failed| failed.error)?;
        Ok(())
    };
    copy().map_err(|error| Error::Backup { detail: error.to_string(), path: finished.clone() })
}

/// Creates an empty file with mode 0600 and a temporary name similar to `path`. Root gives it to
/// the owner of the directory.
pub(crate) fn create_private(path: &Path) -> io::Result<TempPath> {
    let (folder, name) = (parent_of(path), path.file_name().unwrap_or_default());
    let mut prefix = name.to_owned();
    prefix.push(".new-");
    let file = tempfile::Builder::new().prefix(&prefix).tempfile_in(folder)?;
    let (ours, theirs) = (file.as_file().metadata()?, fs::metadata(folder)?);
    if ours.uid() == 0 && theirs.uid() != 0 {
        std::os::unix::fs::fchown(&file, Some(theirs.uid()), Some(theirs.gid()))?;
    }
    Ok(file.into_temp_path())
}

pub(crate) fn parent_of(path: &Path) -> &Path {
    path.parent().unwrap_or(Path::new("."))
}

pub(crate) fn file_error(path: &Path, error: io::Error) -> Error {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::StorageFull => Error::DiskFull { path },
        io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { path },
        _ => Error::Forbidden { path, error },
    }
}

pub(crate) fn with_suffix(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// The damage that SQLite finds. It reads the whole file, so it runs only after opening failed.
fn quick_check(path: &Path) -> Option<String> {
    let connection = open_reader(path).ok()?;
    let mut statement = connection.prepare("PRAGMA quick_check(3)").ok()?;
    let lines: Vec<String> = statement.query_map([], |row| row.get(0)).ok()?.flatten().collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// The size of the database and its WAL, in bytes.
pub(crate) fn size(path: &Path) -> u64 {
    ["", "-wal"]
        .iter()
        .filter_map(|ending| fs::metadata(with_suffix(path, ending)).ok())
        .map(|meta| meta.len())
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: &str = "ALTER TABLE sessions ADD COLUMN mood TEXT; UPDATE sessions SET mood = 'good';";

    fn insert(connection: &Connection, id: &str) {
        let sql = "INSERT INTO sessions (id, key, source, person, model, provider, started, touched)
                   VALUES (?1, '', '', '', '', '', 0, 0)";
        connection.execute(sql, [id]).unwrap();
    }

    fn ids(path: &Path) -> Vec<String> {
        let connection = open_reader(path).unwrap();
        let mut statement = connection.prepare("SELECT id FROM sessions ORDER BY n").unwrap();
        statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn approvals_from_before_codes_are_asked_for_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let old = MIGRATIONS.get(..2).unwrap();
        let connection = open_as(&path, IfMissing::Create, old).unwrap().unwrap();
        let sql = "INSERT INTO grants (id, json, given_by, given_at) VALUES ('g', '{}', 'cli', 1);
                   INSERT INTO questions (id, key, stored, shown, approvers, created, expires, state)
                   VALUES ('q1', '', '', '', '', 1, 2, 'open'), ('q2', '', '', '', '', 1, 2, 'answered')";
        connection.execute_batch(sql).unwrap();
        drop(connection);
        let connection = open(&path, IfMissing::Skip).unwrap().unwrap();
        let count = |sql: &str| connection.query_row(sql, [], |row| row.get::<_, u32>(0)).unwrap();
        assert_eq!(count("SELECT count(*) FROM grants WHERE revoked_at IS NULL"), 0);
        assert_eq!(
            count(
                "SELECT count(*) FROM questions WHERE state = 'open' OR used IS NULL AND state = 'answered'"
            ),
            0
        );
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    const FIRST: &[&str] = &[MIGRATIONS[0]];

    #[test]
    fn an_older_file_is_backed_up_and_migrated() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let first = open_as(&path, IfMissing::Create, FIRST).unwrap().unwrap();
        insert(&first, "kept");
        // The row is still in the WAL; the backup must contain it too.
        let second = open_as(&path, IfMissing::Skip, &[MIGRATIONS[0], SECOND]).unwrap().unwrap();
        let mood: String = second.query_row("SELECT mood FROM sessions", [], |row| row.get(0)).unwrap();
        assert_eq!(mood, "good");
        insert(&second, "later");
        let copy = folder.path().join("hermes.db.v1.bak");
        assert_eq!(ids(&copy), ["kept"]);
        assert_eq!(ids(&path), ["kept", "later"]);
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        drop((first, second));

        let refused = open_as(&path, IfMissing::Skip, FIRST);
        assert!(matches!(refused, Err(Error::Newer { found: 2, known: 1, .. })), "{refused:?}");
        assert_eq!(ids(&path), ["kept", "later"]);
        // An older hermes can open the backup.
        assert_eq!(open_as(&copy, IfMissing::Skip, FIRST).unwrap().map(drop), Some(()));
        // This version migrates the backup to the newest schema.
        let newest = open(&copy, IfMissing::Skip).unwrap().unwrap();
        assert_eq!(newest.query_row("SELECT count(*) FROM inbox", [], |row| row.get(0)), Ok(0));
        assert_eq!(ids(&copy), ["kept"]);
    }

    #[test]
    fn a_failed_migration_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        insert(&open_as(&path, IfMissing::Create, FIRST).unwrap().unwrap(), "kept");
        let bad = [MIGRATIONS[0], SECOND, "CREATE TABLE sessions (n);"];
        assert!(matches!(open_as(&path, IfMissing::Skip, &bad), Err(Error::Bug { .. })));
        let again = open_as(&path, IfMissing::Skip, FIRST).unwrap().unwrap();
        assert!(again.prepare("SELECT mood FROM sessions").is_err());
        assert_eq!(ids(&path), ["kept"]);
    }

    #[test]
    fn a_failed_backup_stops_the_migration() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        insert(&open_as(&path, IfMissing::Create, FIRST).unwrap().unwrap(), "kept");
        fs::create_dir_all(folder.path().join("hermes.db.v1.bak/in the way")).unwrap();
        let refused = open_as(&path, IfMissing::Skip, &[MIGRATIONS[0], SECOND]);
        assert!(matches!(refused, Err(Error::Backup { .. })), "{refused:?}");
        assert_eq!(names(folder.path()), ["hermes.db", "hermes.db.v1.bak"]);
        assert!(open_as(&path, IfMissing::Skip, FIRST).unwrap().is_some());
    }

    #[test]
    fn a_new_file_is_complete_private_and_leaves_no_other_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        assert!(open(&path, IfMissing::Skip).unwrap().is_none());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
        drop(open(&path, IfMissing::Create).unwrap());
        assert_eq!(names(folder.path()), [FILE_NAME]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let connection = open(&path, IfMissing::Skip).unwrap().unwrap();
        insert(&connection, "x");
        for name in names(folder.path()) {
            let mode = fs::metadata(folder.path().join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
