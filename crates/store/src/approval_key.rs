//! Proof that Hermes wrote a grant or an answer, and not a command that can write the database.
//!
//! Each such row carries an HMAC-SHA256 over all its values. The key is in `approvals.key` next to
//! the database, a file that commands cannot read: the view of `local` and the jail hide it, and no
//! container mounts it. The ids of revoked grants and used answers follow the key in the same file,
//! so an old copy of a row brings neither back. A row without the right code does not exist for
//! callers.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Once;

use hermes_types::Timestamp;
use ring::hmac;
use rusqlite::Row;
use rusqlite::types::ValueRef;

use crate::error::{Error, QueryResult, Result};
use crate::file::{create_private, file_error, parent_of};
use crate::store::Store;
use crate::{grant, question};

/// The key file in the Hermes home.
pub const KEY_FILE_NAME: &str = "approvals.key";

const KEY_BYTES: usize = 32;
const MAX_FILE_BYTES: u64 = 16 << 20;

/// The key, and the ids of revoked grants and used answers.
#[derive(Debug)]
pub(crate) struct ApprovalKey {
    key: hmac::Key,
    ended: HashSet<String>,
}

/// A row as it is stored, before its code was checked.
#[derive(Debug)]
pub(crate) struct CodedRow<T> {
    pub(crate) id: String,
    pub(crate) fields: Vec<Option<String>>,
    pub(crate) code: Option<Vec<u8>>,
    /// Whether the row itself says that it no longer allows anything.
    pub(crate) is_ended: bool,
    /// The row, or why it cannot be read.
    pub(crate) row: QueryResult<T>,
}

/// Rows that are ignored because they lack the right code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvalidApprovals {
    pub key_path: PathBuf,
    pub has_key: bool,
    pub grants: Vec<String>,
    pub questions: Vec<String>,
}

impl ApprovalKey {
    /// Reads the key; `None` if there is none.
    pub(crate) fn load(database: &Path) -> Result<Option<Self>> {
        let path = key_path(database);
        let failed = |error| file_error(&path, error);
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(error)),
        };
        let meta = file.metadata().map_err(failed)?;
        if !meta.is_file() {
            return Err(failed(io::Error::other("not a regular file")));
        }
        if meta.mode() & 0o077 != 0 {
            file.set_permissions(std::fs::Permissions::from_mode(0o600)).map_err(failed)?;
        }
        let mut text = String::new();
        // A cut list of ids would bring approvals back, so a file that is too long is wrong.
        let length = file.take(MAX_FILE_BYTES).read_to_string(&mut text).map_err(failed)?;
        let mut lines = text.lines();
        let secret = lines.next().filter(|line| line.len() == 2 * KEY_BYTES);
        let Some(secret) = secret.filter(|_| (length as u64) < MAX_FILE_BYTES) else {
            return Err(Error::InvalidKey { path });
        };
        let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
        Ok(Some(Self { key, ended: lines.map(str::to_owned).collect() }))
    }

    /// Reads the key or creates it. Of several processes, one creates it.
    pub(crate) fn load_or_create(database: &Path) -> Result<Self> {
        loop {
            if let Some(key) = Self::load(database)? {
                return Ok(key);
            }
            let path = key_path(database);
            let failed = |error| file_error(&path, error);
            let mut secret = [0; KEY_BYTES];
            getrandom::fill(&mut secret).map_err(|error| Error::NoRandom(error.to_string()))?;
            let unfinished = create_private(&path).map_err(failed)?;
            let mut file = File::options().write(true).open(&unfinished).map_err(failed)?;
            let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
            writeln!(file, "{text}").and_then(|()| file.sync_all()).map_err(failed)?;
            match unfinished.persist_noclobber(&path) {
                Err(error) if error.error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(failed(error.error));
                }
                _ => {}
            }
        }
    }

    /// Records that grants were revoked or answers used, before their rows are changed.
    pub(crate) fn end(database: &Path, ids: &[String]) -> Result<()> {
        if ids.is_empty() {
            return Ok(());
        }
        Self::load_or_create(database)?;
        let path = key_path(database);
        let text: String = ids.iter().map(|id| format!("{id}\n")).collect();
        let file = File::options().append(true).open(&path);
        file.and_then(|mut file| file.write_all(text.as_bytes())).map_err(|error| file_error(&path, error))
    }

    /// The code of a row. Each value is preceded by its length, so no two rows have the same bytes.
    pub(crate) fn code(&self, fields: &[Option<String>]) -> Vec<u8> {
        hmac::sign(&self.key, &encode(fields)).as_ref().to_vec()
    }

    pub(crate) fn is_valid<T>(&self, row: &CodedRow<T>) -> bool {
        let is_signed =
            row.code.as_ref().is_some_and(|code| hmac::verify(&self.key, &encode(&row.fields), code).is_ok());
        is_signed && (row.is_ended || !self.ended.contains(&row.id))
    }
}

/// The rows with the right code. Others are reported once per process.
pub(crate) fn valid_rows<T>(database: &Path, rows: Vec<CodedRow<T>>) -> QueryResult<Vec<T>> {
    static REPORTED: Once = Once::new();
    let (valid, invalid) = partition(database, rows)?;
    if !invalid.is_empty() {
        REPORTED.call_once(|| {
            tracing::warn!(
                count = invalid.len(),
                first = invalid.first().map(String::as_str),
                key = %key_path(database).display(),
                "stored approvals without a valid code are ignored; `hermes doctor` lists them"
            );
        });
    }
    valid.into_iter().map(|row| row.row).collect()
}

/// The rows with the right code, and the ids of the others.
fn partition<T>(database: &Path, rows: Vec<CodedRow<T>>) -> Result<(Vec<CodedRow<T>>, Vec<String>)> {
    if rows.is_empty() {
        return Ok((rows, Vec::new()));
    }
    let key = ApprovalKey::load(database)?;
    let is_valid = |row: &CodedRow<T>| key.as_ref().is_some_and(|key| key.is_valid(row));
    let (valid, invalid): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_valid);
    Ok((valid, invalid.into_iter().map(|row| row.id).collect()))
}

/// Reads a row whose first `count` columns are covered by the code in the column after them.
pub(crate) fn read_coded<T>(
    row: &Row<'_>,
    count: usize,
    read: impl Fn(&Row<'_>) -> QueryResult<T>,
) -> QueryResult<CodedRow<T>> {
    let field = |index| -> QueryResult<Option<String>> {
        Ok(match row.get_ref(index)? {
            ValueRef::Null => None,
            ValueRef::Integer(number) => Some(number.to_string()),
            ValueRef::Real(number) => Some(number.to_string()),
            ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
                Some(String::from_utf8_lossy(bytes).into_owned())
            }
        })
    };
    let fields = (0..count).map(field).collect::<QueryResult<Vec<_>>>()?;
    let id = fields.first().cloned().flatten().unwrap_or_default();
    Ok(CodedRow { id, fields, code: row.get(count)?, is_ended: false, row: read(row) })
}

impl Store {
    /// The active grants, and the questions that are pending at `now` or whose answer was not used,
    /// that are ignored.
    pub async fn invalid_approvals(&self, now: Timestamp) -> Result<Option<InvalidApprovals>> {
        let database = self.path().to_owned();
        self.read(move |connection| {
            let (grants, questions) = (grant::active(connection)?, question::effective(connection, now)?);
            let (grants, questions) = (partition(&database, grants)?.1, partition(&database, questions)?.1);
            let key_path = key_path(&database);
            let has_key = key_path.exists();
            let found = InvalidApprovals { key_path, has_key, grants, questions };
            Ok(Some(found).filter(|found| !found.grants.is_empty() || !found.questions.is_empty()))
        })
        .await
    }
}

fn encode(fields: &[Option<String>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for field in fields {
        let text = field.as_deref();
        bytes.extend(text.map_or(u64::MAX, |text| text.len() as u64).to_be_bytes());
        bytes.extend(text.unwrap_or_default().as_bytes());
    }
    bytes
}

fn key_path(database: &Path) -> PathBuf {
    parent_of(database).join(KEY_FILE_NAME)
}
