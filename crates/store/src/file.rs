//! The file: finding it, making it, and bringing an older one up to date.
//!
//! A new database is made whole under another name and then given its own, so nobody ever sees half of one. The form of
//! a database is numbered (`user_version`); the steps from one number to the next are in `MIGRATIONS`. Before the first
//! step the file is copied beside itself. All steps are one transaction, and a newer number than we know is refused.
//!
//! No file of a database is ever opened here but through SQLite: when a process closes any descriptor of a file, it
//! loses all its locks on it.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::backup::Backup;
use rusqlite::{Connection, OpenFlags, TransactionBehavior};

use crate::error::{Error, Fault};

/// The name of the database in a home. `state.db` in the same home is Hermes Agent's: it adds its own columns to whatever
/// it finds under that name and counts its versions there, so the two programs must not share a file.
pub const FILE_NAME: &str = "hermes.db";

/// Marks a database as one of ours (`application_id`): `Hrms`.
const APPLICATION: u32 = 0x4872_6d73;
/// The forms, oldest first; the number of the newest is their count.
const MIGRATIONS: &[&str] = &[include_str!("schema/1.sql"), include_str!("schema/2.sql")];
/// How long to wait for another process that writes.
const PATIENCE: Duration = Duration::from_secs(5);
/// Statements that stay prepared on a connection.
const STATEMENTS: usize = 64;
/// The log is cut to this after a checkpoint, so that one large write does not keep its space for ever.
const LOG_LIMIT: u32 = 16 << 20;

/// What to do when there is no database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Absent {
    Make,
    Leave,
}

/// Opens the database for writing; `None` when there is none and none is to be made.
pub(crate) fn open(path: &Path, absent: Absent) -> Result<Option<Connection>, Error> {
    open_as(path, absent, MIGRATIONS)
}

fn open_as(path: &Path, absent: Absent, migrations: &[&str]) -> Result<Option<Connection>, Error> {
    match (fs::metadata(path), absent) {
        (Ok(meta), _) => admit(path, &meta)?,
        (Err(error), Absent::Leave) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        (Err(error), Absent::Make) if error.kind() == io::ErrorKind::NotFound => make(path, migrations)?,
        (Err(error), _) => return Err(Error::Forbidden { path: path.to_path_buf(), error }),
    }
    let opened = connect(path, migrations).map_err(|fault| fault.at(path));
    match opened {
        Err(Error::Corrupt { path, detail }) => {
            let detail = damage(&path).unwrap_or(detail);
            Err(Error::Corrupt { path, detail })
        }
        opened => opened.map(Some),
    }
}

/// Opens the database for reading only.
pub(crate) fn open_reader(path: &Path) -> Result<Connection, Fault> {
    let connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    Ok(connection)
}

/// Looks at a file before SQLite does. What others may read is made the owner's alone; the log inherits that.
fn admit(path: &Path, meta: &fs::Metadata) -> Result<(), Error> {
    let path = path.to_path_buf();
    if !meta.is_file() {
        return Err(Error::Forbidden { path, error: io::Error::other("this is not a file") });
    }
    // None is made empty, so something was lost; to fill it would hide that.
    if meta.len() == 0 {
        return Err(Error::NotADatabase { path });
    }
    if meta.permissions().mode() & 0o077 != 0 {
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))
            .map_err(|error| Error::Forbidden { path, error })?;
    }
    Ok(())
}

fn connect(path: &Path, migrations: &[&str]) -> Result<Connection, Fault> {
    let mut connection = Connection::open_with_flags(
        path,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    connection.busy_timeout(PATIENCE)?;
    connection.set_prepared_statement_cache_capacity(STATEMENTS);
    if connection.is_readonly("main")? {
        return Err(Error::ReadOnly { path: path.to_path_buf() }.into());
    }
    let number = |pragma: &str| connection.pragma_query_value(None, pragma, |row| row.get::<_, u32>(0));
    let (application, version) = (number("application_id")?, number("user_version")?);
    if application != APPLICATION {
        return Err(Error::Foreign { path: path.to_path_buf() }.into());
    }
    let known = count(migrations);
    if version > known {
        return Err(Error::Newer { path: path.to_path_buf(), found: version, known }.into());
    }
    // A commit is in the log before its reply is given: it survives the death of every process. When the power fails the
    // last commits may be missing, all of what they did; waiting for the disk would cost each step some milliseconds.
    connection.execute_batch(&format!(
        "PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL; PRAGMA journal_size_limit = {LOG_LIMIT};"
    ))?;
    if version < known {
        migrate(&mut connection, path, migrations)?;
    }
    Ok(connection)
}

fn count(migrations: &[&str]) -> u32 {
    u32::try_from(migrations.len()).unwrap_or(u32::MAX)
}

/// Makes a new database, under another name until it is whole.
fn make(path: &Path, migrations: &[&str]) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    if !folder.is_dir() {
        return Err(Error::NoDirectory { path: folder.to_path_buf() });
    }
    // Others may be making one too, in this process or in another.
    let mut seed = [0; 8];
    getrandom::fill(&mut seed).map_err(|error| Error::NoRandom(error.to_string()))?;
    let unfinished = beside(path, &format!(".new-{:016x}", u64::from_ne_bytes(seed)));
    let made = fill(&unfinished, folder, migrations).map_err(|fault| fault.at(&unfinished)).and_then(|()| {
        match fs::hard_link(&unfinished, path) {
            // Another process was faster; its database is as good.
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(file_error(path, error)),
            _ => Ok(()),
        }
    });
    let removed = remove_if_there(&unfinished).map_err(|error| file_error(&unfinished, error));
    made.and(removed)
}

fn fill(unfinished: &Path, folder: &Path, migrations: &[&str]) -> Result<(), Fault> {
    private(unfinished, folder).map_err(|error| file_error(unfinished, error))?;
    let mut connection = Connection::open_with_flags(
        unfinished,
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX,
    )?;
    // Nobody needs it before it is whole, so it is waited for once, at the end. The next two are set in the file itself, and the
    // first of them only before there is anything else in it.
    connection.execute_batch(&format!(
        "PRAGMA synchronous = OFF; PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; PRAGMA application_id = {APPLICATION};"
    ))?;
    let transaction = connection.transaction()?;
    apply(&transaction, migrations, 0)?;
    transaction.commit()?;
    connection.close().map_err(|(_, error)| error)?;
    // No connection to it is left whose locks this could drop.
    let synced = OpenOptions::new().read(true).open(unfinished).and_then(|file| file.sync_all());
    synced.map_err(|error| file_error(unfinished, error))?;
    Ok(())
}

fn apply(connection: &Connection, migrations: &[&str], done: u32) -> Result<(), Fault> {
    let done = usize::try_from(done).unwrap_or(usize::MAX);
    migrations.iter().skip(done).try_for_each(|sql| connection.execute_batch(sql))?;
    connection.pragma_update(None, "user_version", count(migrations))?;
    Ok(())
}

/// Brings an older database up to date, after a copy of it was made.
fn migrate(connection: &mut Connection, path: &Path, migrations: &[&str]) -> Result<(), Fault> {
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let version: u32 = transaction.pragma_query_value(None, "user_version", |row| row.get(0))?;
    // Another process may have done it while we waited.
    if version < count(migrations) {
        // Nobody writes as long as our transaction is open, so what is copied is what will be changed.
        copy(path, version)?;
        apply(&transaction, migrations, version)?;
    }
    transaction.commit()?;
    Ok(())
}

fn copy(path: &Path, version: u32) -> Result<(), Error> {
    let finished = beside(path, &format!(".v{version}.bak"));
    let unfinished = beside(path, &format!(".v{version}.bak.new"));
    let folder = path.parent().unwrap_or(Path::new("."));
    let copied = (|| {
        let told = |error: io::Error| error.to_string();
        remove_if_there(&unfinished).map_err(told)?;
        private(&unfinished, folder).map_err(told)?;
        let said = |error: rusqlite::Error| error.to_string();
        let source = Connection::open_with_flags(path, OpenFlags::SQLITE_OPEN_READ_ONLY).map_err(said)?;
        let mut target = Connection::open(&unfinished).map_err(said)?;
        Backup::new(&source, &mut target)
            .and_then(|backup| backup.run_to_completion(1_000, Duration::ZERO, None))
            .map_err(said)?;
        target.close().map_err(|(_, error)| said(error))?;
        fs::rename(&unfinished, &finished).map_err(told)
    })();
    copied.map_err(|detail| {
        drop(remove_if_there(&unfinished));
        Error::Backup { path: finished, detail }
    })
}

/// Makes an empty file for its owner alone: that of the directory, also where root does it.
fn private(path: &Path, folder: &Path) -> io::Result<()> {
    remove_if_there(path)?;
    let file = OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?;
    let (ours, theirs) = (file.metadata()?, fs::metadata(folder)?);
    if ours.uid() == 0 && theirs.uid() != 0 {
        std::os::unix::fs::fchown(&file, Some(theirs.uid()), Some(theirs.gid()))?;
    }
    Ok(())
}

pub(crate) fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

pub(crate) fn file_error(path: &Path, error: io::Error) -> Error {
    let path = path.to_path_buf();
    match error.kind() {
        io::ErrorKind::StorageFull => Error::DiskFull { path },
        io::ErrorKind::ReadOnlyFilesystem => Error::ReadOnly { path },
        _ => Error::Forbidden { path, error },
    }
}

pub(crate) fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(ending);
    PathBuf::from(name)
}

/// What a look at the whole file finds. Only a file that could not be opened is worth the time.
fn damage(path: &Path) -> Option<String> {
    let connection = open_reader(path).ok()?;
    let mut statement = connection.prepare("PRAGMA quick_check(3)").ok()?;
    let lines: Vec<String> = statement.query_map([], |row| row.get(0)).ok()?.flatten().collect();
    (!lines.is_empty()).then(|| lines.join("; "))
}

/// How large the files of a database are, in bytes.
pub(crate) fn size(path: &Path) -> u64 {
    ["", "-wal"]
        .iter()
        .filter_map(|ending| fs::metadata(beside(path, ending)).ok())
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

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The oldest form.
    const FIRST: &[&str] = &[MIGRATIONS[0]];

    #[test]
    fn an_older_file_is_copied_and_brought_up_to_date() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let first = open_as(&path, Absent::Make, FIRST).unwrap().unwrap();
        insert(&first, "kept");
        // Still in the log, not in the file: the copy must have it too.
        let second = open_as(&path, Absent::Leave, &[MIGRATIONS[0], SECOND]).unwrap().unwrap();
        let mood: String = second.query_row("SELECT mood FROM sessions", [], |row| row.get(0)).unwrap();
        assert_eq!(mood, "good");
        insert(&second, "later");
        let copy = folder.path().join("hermes.db.v1.bak");
        assert_eq!(ids(&copy), ["kept"]);
        assert_eq!(ids(&path), ["kept", "later"]);
        assert_eq!(fs::metadata(&copy).unwrap().permissions().mode() & 0o777, 0o600);
        drop((first, second));

        let refused = open_as(&path, Absent::Leave, FIRST);
        assert!(matches!(refused, Err(Error::Newer { found: 2, known: 1, .. })), "{refused:?}");
        assert_eq!(ids(&path), ["kept", "later"]);
        // An older hermes finds its own form in the copy.
        assert_eq!(open_as(&copy, Absent::Leave, FIRST).unwrap().map(drop), Some(()));
        // And this one takes it to the newest.
        let newest = open(&copy, Absent::Leave).unwrap().unwrap();
        assert_eq!(newest.query_row("SELECT count(*) FROM inbox", [], |row| row.get(0)), Ok(0));
        assert_eq!(ids(&copy), ["kept"]);
    }

    #[test]
    fn a_step_that_fails_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        insert(&open_as(&path, Absent::Make, FIRST).unwrap().unwrap(), "kept");
        let bad = [MIGRATIONS[0], SECOND, "CREATE TABLE sessions (n);"];
        assert!(matches!(open_as(&path, Absent::Leave, &bad), Err(Error::Bug { .. })));
        let again = open_as(&path, Absent::Leave, FIRST).unwrap().unwrap();
        assert!(again.prepare("SELECT mood FROM sessions").is_err());
        assert_eq!(ids(&path), ["kept"]);
    }

    #[test]
    fn a_copy_that_cannot_be_made_stops_the_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        insert(&open_as(&path, Absent::Make, FIRST).unwrap().unwrap(), "kept");
        fs::create_dir_all(folder.path().join("hermes.db.v1.bak/in the way")).unwrap();
        let refused = open_as(&path, Absent::Leave, &[MIGRATIONS[0], SECOND]);
        assert!(matches!(refused, Err(Error::Backup { .. })), "{refused:?}");
        assert_eq!(names(folder.path()), ["hermes.db", "hermes.db.v1.bak"]);
        assert!(open_as(&path, Absent::Leave, FIRST).unwrap().is_some());
    }

    #[test]
    fn a_new_file_is_whole_private_and_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        assert!(open(&path, Absent::Leave).unwrap().is_none());
        assert_eq!(names(folder.path()), [] as [&str; 0]);
        drop(open(&path, Absent::Make).unwrap());
        assert_eq!(names(folder.path()), [FILE_NAME]);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let connection = open(&path, Absent::Leave).unwrap().unwrap();
        insert(&connection, "x");
        for name in names(folder.path()) {
            let mode = fs::metadata(folder.path().join(&name)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }
}
