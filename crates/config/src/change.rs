//! `config set` and `config unset`: one value, checked first, put where it belongs.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::define::{Key, Visibility};
use super::edit::{self, EditError, Step};
use super::file::{self, Lock, Mode};
use super::layers::lookup;
use super::setting::Wrong;
use super::yaml::{self, Kind, Node};
use super::{config_path, dotenv, dotenv_path, keys};

/// Why a value was not written. Nothing was changed.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// There is no such key.
    #[error("unknown key `{0}`")]
    Unknown(String),
    /// The value is not what the key wants.
    #[error("{key}: expected {expected}, found {found}")]
    Wrong {
        /// The key.
        key: String,
        /// What it wants.
        expected: String,
        /// What was given.
        found: String,
    },
    /// A part of the value would have been ignored.
    #[error("{key}: {why}")]
    Partly {
        /// The key.
        key: String,
        /// Which part, and why.
        why: String,
    },
    /// The file cannot be edited as it is.
    #[error("{}: {error}; it was left as it is", file.display())]
    Edit {
        /// The file.
        file: PathBuf,
        /// Why.
        error: EditError,
    },
    /// The file is not text.
    #[error("{}: not UTF-8; it was left as it is", file.display())]
    NotText {
        /// The file.
        file: PathBuf,
    },
    /// The file could not be read or written.
    #[error("{}: {error}", file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// What was changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key or variable, by its full name.
    pub name: String,
    /// The file that was written.
    pub file: PathBuf,
    /// What was written, unless it is a secret.
    pub shown: Option<Value>,
}

/// Where a name's value is kept.
enum Target {
    /// In the configuration file.
    File { key: &'static Key, path: Vec<Step> },
    /// In the secrets file, under this variable; the key too where it has one.
    Secret { variable: String, key: Option<&'static Key> },
}

/// Sets a key from text.
pub fn set(home: &Path, name: &str, text: &str) -> Result<Changed, ChangeError> {
    match target(name)? {
        Target::Secret { variable, key } => {
            let file = dotenv_path(home);
            let lock = lock(home)?;
            change(&lock, &file, Mode::Private, |old| Ok(dotenv::set(old, &variable, text)))?;
            if let Some(key) = key {
                // A value of the same secret in clear text would only be forgotten there.
                remove_from_file(&lock, home, key)?;
            }
            Ok(Changed { name: key.map_or(variable, |key| key.path.to_owned()), file, shown: None })
        }
        Target::File { key, path } => {
            let value = checked(key, &path, text)?;
            let file = config_path(home);
            change(&lock(home)?, &file, Mode::Kept, |old| set_in(old, key, &path, &value))?;
            Ok(Changed { name: edit::words(&path), file, shown: Some(value) })
        }
    }
}

/// Removes a key, so that the next lower layer counts again. The file says whether there was one.
pub fn unset(home: &Path, name: &str) -> Result<Changed, ChangeError> {
    let lock = lock(home)?;
    match target(name)? {
        Target::Secret { variable, key } => {
            let file = dotenv_path(home);
            change(&lock, &file, Mode::Private, |old| Ok(dotenv::unset(old, &variable)))?;
            if let Some(key) = key {
                remove_from_file(&lock, home, key)?;
            }
            Ok(Changed { name: key.map_or(variable, |key| key.path.to_owned()), file, shown: None })
        }
        Target::File { key, path } => {
            let file = config_path(home);
            if path.len() == steps(key.path).len() {
                remove_from_file(&lock, home, key)?;
            } else {
                change(&lock, &file, Mode::Kept, |old| edit::unset(old, &path))?;
            }
            Ok(Changed { name: edit::words(&path), file, shown: None })
        }
    }
}

fn target(name: &str) -> Result<Target, ChangeError> {
    if let Some(key) = keys::find(name) {
        return Ok(match key.visibility {
            Visibility::Secret => Target::Secret { variable: key.variable.to_owned(), key: Some(key) },
            Visibility::Public => Target::File { key, path: steps(key.path) },
        });
    }
    if let Some(target) = part_of_a_key(name) {
        return Ok(target);
    }
    let variable = name.replace(['.', '-'], "_").to_ascii_uppercase();
    let is_secret = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"].iter().any(|end| variable.ends_with(end));
    if is_secret && variable.parse::<hermes_types::EnvName>().is_ok() {
        return Ok(Target::Secret { variable, key: None });
    }
    Err(ChangeError::Unknown(name.to_owned()))
}

/// `terminal.docker_env.DEBUG` and `command_allowlist.0` name a part of a map or list.
fn part_of_a_key(name: &str) -> Option<Target> {
    keys::all().find_map(|key| {
        let part = name.strip_prefix(key.path)?.strip_prefix('.').filter(|part| !part.is_empty())?;
        let last = match (key.schema)().get("type")?.as_str()? {
            "object" => Step::Key(part.to_owned()),
            "array" => Step::Index(part.parse().ok()?),
            _ => return None,
        };
        let path = steps(key.path).into_iter().chain([last]).collect();
        Some(Target::File { key, path })
    })
}

fn checked(key: &Key, path: &[Step], text: &str) -> Result<Value, ChangeError> {
    let whole = match path.last() {
        Some(Step::Index(_)) => json!([text]).to_string(),
        Some(Step::Key(part)) if path.len() > steps(key.path).len() => json!({ part: text }).to_string(),
        _ => text.to_owned(),
    };
    let mut notes = Vec::new();
    let name = || edit::words(path);
    let value = (key.check)(&Node::from_text(&whole), &mut notes)
        .map_err(|Wrong { expected, found, .. }| ChangeError::Wrong { key: name(), expected, found })?;
    if let Some(note) = notes.first() {
        return Err(ChangeError::Partly { key: name(), why: note.text.replace("; ignored", "") });
    }
    Ok(match path.last() {
        Some(Step::Index(_)) => value.get(0).cloned().unwrap_or(value),
        Some(Step::Key(part)) if path.len() > steps(key.path).len() => {
            value.get(part).cloned().unwrap_or(value)
        }
        _ => value,
    })
}

fn set_in(old: &str, key: &Key, path: &[Step], value: &Value) -> Result<String, EditError> {
    let mut text = old.to_owned();
    let root = yaml::parse(&text).map_err(EditError::Unreadable)?;
    if root.kind == Kind::Null && old.trim().is_empty() {
        text = edit::set(&text, &steps("_config_version"), &json!(keys::CONFIG_VERSION))?;
    }
    // `model: name` is short for `model.default`; another key of the section needs the long form.
    if key.path.starts_with("model.")
        && root.get("model").is_some_and(|n| matches!(n.kind, Kind::Scalar { .. }))
    {
        let short = root.get("model").map(Node::to_json).unwrap_or_default();
        text = edit::set(&text, &steps("model"), &json!({ "default": short }))?;
    }
    for alias in key.aliases.iter().filter(|alias| lookup(&root, alias).is_some()) {
        text = match lookup(&root, key.path) {
            Some(_) => edit::unset(&text, &steps(alias))?,
            None => edit::rename(&text, &steps(alias), key.path.rsplit('.').next().unwrap_or(key.path))?,
        };
    }
    edit::set(&text, path, value)
}

fn remove_from_file(lock: &Lock, home: &Path, key: &Key) -> Result<(), ChangeError> {
    let file = config_path(home);
    change(lock, &file, Mode::Kept, |old| {
        let root = yaml::parse(old).map_err(EditError::Unreadable)?;
        if key.path == "model.default"
            && root.get("model").is_some_and(|n| matches!(n.kind, Kind::Scalar { .. }))
        {
            return edit::unset(old, &steps("model"));
        }
        std::iter::once(&key.path)
            .chain(key.aliases)
            .try_fold(old.to_owned(), |text, path| edit::unset(&text, &steps(path)))
    })
}

fn lock(home: &Path) -> Result<Lock, ChangeError> {
    Lock::acquire(home).map_err(|error| ChangeError::Io { file: home.to_path_buf(), error })
}

/// Reads a file, changes its text and writes it if that made a difference.
pub(crate) fn change(
    lock: &Lock,
    path: &Path,
    mode: Mode,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<(), ChangeError> {
    let io_error = |error| ChangeError::Io { file: path.to_path_buf(), error };
    let old = file::read(path).map_err(io_error)?.unwrap_or_default();
    let old = String::from_utf8(old).map_err(|_| ChangeError::NotText { file: path.to_path_buf() })?;
    let new = edit(&old).map_err(|error| ChangeError::Edit { file: path.to_path_buf(), error })?;
    if new == old { Ok(()) } else { lock.write(path, new.as_bytes(), mode).map_err(io_error) }
}

/// A dotted path as steps.
pub(crate) fn steps(path: &str) -> Vec<Step> {
    path.split('.').map(|part| Step::Key(part.to_owned())).collect()
}
