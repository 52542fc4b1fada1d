//! `config set` and `config unset`: one value, checked first, put where it belongs.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::define::{ConfigKey, Visibility};
use super::edit::{self, EditError, PathStep};
use super::file::{self, ConfigLock, FileMode};
use super::layers::lookup;
use super::setting::InvalidValue;
use super::yaml::{self, Node, NodeKind};
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
pub struct KeyChange {
    /// The key or variable, by its full name.
    pub name: String,
    /// The file that was written.
    pub file: PathBuf,
    /// What was written, unless it is a secret.
    pub shown: Option<Value>,
}

/// Where a name's value is kept.
enum ChangeTarget {
    /// In the configuration file.
    File { key: &'static ConfigKey, path: Vec<PathStep> },
    /// In the secrets file, under this variable; the key too where it has one.
    Secret { variable: String, key: Option<&'static ConfigKey> },
}

/// Sets a key from text.
pub fn set(home: &Path, name: &str, text: &str) -> Result<KeyChange, ChangeError> {
    match target(name)? {
        ChangeTarget::Secret { variable, key } => {
            let file = dotenv_path(home);
            let lock = acquire_lock(home)?;
            change_file(&lock, &file, FileMode::Private, |old| Ok(dotenv::set(old, &variable, text)))?;
            if let Some(key) = key {
                // A value of the same secret in clear text would only be forgotten there.
                remove_from_file(&lock, home, key)?;
            }
            Ok(KeyChange { name: key.map_or(variable, |key| key.path.to_owned()), file, shown: None })
        }
        ChangeTarget::File { key, path } => {
            let value = check_value(key, &path, text)?;
            let file = config_path(home);
            change_file(&acquire_lock(home)?, &file, FileMode::Preserve, |old| {
                set_in(old, key, &path, &value)
            })?;
            Ok(KeyChange { name: edit::dotted_path(&path), file, shown: Some(value) })
        }
    }
}

/// Removes a key, so that the next lower layer counts again. The file says whether there was one.
pub fn unset(home: &Path, name: &str) -> Result<KeyChange, ChangeError> {
    let lock = acquire_lock(home)?;
    match target(name)? {
        ChangeTarget::Secret { variable, key } => {
            let file = dotenv_path(home);
            change_file(&lock, &file, FileMode::Private, |old| Ok(dotenv::unset(old, &variable)))?;
            if let Some(key) = key {
                remove_from_file(&lock, home, key)?;
            }
            Ok(KeyChange { name: key.map_or(variable, |key| key.path.to_owned()), file, shown: None })
        }
        ChangeTarget::File { key, path } => {
            let file = config_path(home);
            if path.len() == path_steps(key.path).len() {
                remove_from_file(&lock, home, key)?;
            } else {
                change_file(&lock, &file, FileMode::Preserve, |old| edit::unset(old, &path))?;
            }
            Ok(KeyChange { name: edit::dotted_path(&path), file, shown: None })
        }
    }
}

fn target(name: &str) -> Result<ChangeTarget, ChangeError> {
    if let Some(key) = keys::find(name) {
        return Ok(match key.visibility {
            Visibility::Secret => ChangeTarget::Secret { variable: key.variable.to_owned(), key: Some(key) },
            Visibility::Public => ChangeTarget::File { key, path: path_steps(key.path) },
        });
    }
    if let Some(target) = key_part(name) {
        return Ok(target);
    }
    let variable = name.replace(['.', '-'], "_").to_ascii_uppercase();
    let is_secret = ["_KEY", "_TOKEN", "_SECRET", "_PASSWORD"].iter().any(|end| variable.ends_with(end));
    if is_secret && variable.parse::<hermes_types::EnvName>().is_ok() {
        return Ok(ChangeTarget::Secret { variable, key: None });
    }
    Err(ChangeError::Unknown(name.to_owned()))
}

/// `terminal.docker_env.DEBUG` and `command_allowlist.0` name a part of a map or list.
fn key_part(name: &str) -> Option<ChangeTarget> {
    keys::all().find_map(|key| {
        let part = name.strip_prefix(key.path)?.strip_prefix('.').filter(|part| !part.is_empty())?;
        let last = match (key.schema)().get("type")?.as_str()? {
            "object" => PathStep::Key(part.to_owned()),
            "array" => PathStep::Index(part.parse().ok()?),
            _ => return None,
        };
        let path = path_steps(key.path).into_iter().chain([last]).collect();
        Some(ChangeTarget::File { key, path })
    })
}

fn check_value(key: &ConfigKey, path: &[PathStep], text: &str) -> Result<Value, ChangeError> {
    let whole = match path.last() {
        Some(PathStep::Index(_)) => json!([text]).to_string(),
        Some(PathStep::Key(part)) if path.len() > path_steps(key.path).len() => {
            json!({ part: text }).to_string()
        }
        _ => text.to_owned(),
    };
    let mut notes = Vec::new();
    let name = || edit::dotted_path(path);
    let value = (key.check)(&Node::from_text(&whole), &mut notes).map_err(
        |InvalidValue { expected, found, .. }| ChangeError::Wrong { key: name(), expected, found },
    )?;
    if let Some(note) = notes.first() {
        return Err(ChangeError::Partly { key: name(), why: note.text.replace("; ignored", "") });
    }
    Ok(match path.last() {
        Some(PathStep::Index(_)) => value.get(0).cloned().unwrap_or(value),
        Some(PathStep::Key(part)) if path.len() > path_steps(key.path).len() => {
            value.get(part).cloned().unwrap_or(value)
        }
        _ => value,
    })
}

fn set_in(old: &str, key: &ConfigKey, path: &[PathStep], value: &Value) -> Result<String, EditError> {
    let mut text = old.to_owned();
    let root = yaml::parse(&text).map_err(EditError::Unreadable)?;
    if root.kind == NodeKind::Null && old.trim().is_empty() {
        text = edit::set(&text, &path_steps("_config_version"), &json!(keys::CONFIG_VERSION))?;
    }
    // `model: name` is short for `model.default`; another key of the section needs the long form.
    if key.path.starts_with("model.")
        && root.get("model").is_some_and(|n| matches!(n.kind, NodeKind::Scalar { .. }))
    {
        let short = root.get("model").map(Node::to_json).unwrap_or_default();
        text = edit::set(&text, &path_steps("model"), &json!({ "default": short }))?;
    }
    for alias in key.aliases.iter().filter(|alias| lookup(&root, alias).is_some()) {
        text = match lookup(&root, key.path) {
            Some(_) => edit::unset(&text, &path_steps(alias))?,
            None => edit::rename(&text, &path_steps(alias), key.path.rsplit('.').next().unwrap_or(key.path))?,
        };
    }
    edit::set(&text, path, value)
}

fn remove_from_file(lock: &ConfigLock, home: &Path, key: &ConfigKey) -> Result<(), ChangeError> {
    let file = config_path(home);
    change_file(lock, &file, FileMode::Preserve, |old| {
        let root = yaml::parse(old).map_err(EditError::Unreadable)?;
        if key.path == "model.default"
            && root.get("model").is_some_and(|n| matches!(n.kind, NodeKind::Scalar { .. }))
        {
            return edit::unset(old, &path_steps("model"));
        }
        std::iter::once(&key.path)
            .chain(key.aliases)
            .try_fold(old.to_owned(), |text, path| edit::unset(&text, &path_steps(path)))
    })
}

fn acquire_lock(home: &Path) -> Result<ConfigLock, ChangeError> {
    ConfigLock::acquire(home).map_err(|error| ChangeError::Io { file: home.to_path_buf(), error })
}

/// Reads a file, changes its text and writes it if that made a difference.
pub(crate) fn change_file(
    lock: &ConfigLock,
    path: &Path,
    mode: FileMode,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<(), ChangeError> {
    let io_error = |error| ChangeError::Io { file: path.to_path_buf(), error };
    let old = file::read(path).map_err(io_error)?.unwrap_or_default();
    let old = String::from_utf8(old).map_err(|_| ChangeError::NotText { file: path.to_path_buf() })?;
    let new = edit(&old).map_err(|error| ChangeError::Edit { file: path.to_path_buf(), error })?;
    if new == old { Ok(()) } else { lock.write(path, new.as_bytes(), mode).map_err(io_error) }
}

/// A dotted path as steps.
pub(crate) fn path_steps(path: &str) -> Vec<PathStep> {
    path.split('.').map(|part| PathStep::Key(part.to_owned())).collect()
}
