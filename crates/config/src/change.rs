//! `config set` and `config unset`: checks one value and writes it to the file it belongs to.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use thiserror::Error;

use super::define::{ConfigKey, Visibility};
use super::edit::{self, EditError, PathStep};
use super::file::{self, ConfigLock, FileMode};
use super::layers::lookup;
use super::yaml::{self, Node, NodeKind};
use super::{config_path, dotenv, dotenv_path, keys};

/// The reason why nothing was written.
#[derive(Debug, Error)]
pub enum ChangeError {
    #[error("unknown key `{0}`")]
    Unknown(String),
    #[error("{key}: expected {expected}, found {found}")]
    Invalid { key: String, expected: String, found: String },
    /// A part of the value would be ignored.
    #[error("{key}: {reason}")]
    PartlyInvalid { key: String, reason: String },
    #[error("{}: {error}; it was left as it is", file.display())]
    Edit { file: PathBuf, error: EditError },
    #[error("{}: {error}", file.display())]
    Io { file: PathBuf, error: io::Error },
}

/// A change that was written.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyChange {
    /// The full name of the key or variable.
    pub name: String,
    /// The file that was written.
    pub file: PathBuf,
    /// The new value, unless it is a secret.
    pub value: Option<Value>,
}

/// The file and position of a name's value.
enum ChangeTarget {
    File {
        key: &'static ConfigKey,
        path: Vec<PathStep>,
    },
    /// A variable of the secrets file, and its key if it has one.
    Secret {
        variable: String,
        key: Option<&'static ConfigKey>,
    },
}

/// Sets a key from text.
pub fn set(home: &Path, name: &str, text: &str) -> Result<KeyChange, ChangeError> {
    match find_target(name)? {
        ChangeTarget::Secret { variable, key } => {
            change_secret(home, variable, key, |old, variable| dotenv::set(old, variable, text))
        }
        ChangeTarget::File { key, path } => {
            let value = check_value(key, &path, text)?;
            change_key(home, &path, Some(value.clone()), |old| set_in(old, key, &path, &value))
        }
    }
}

/// Removes a key, so that the next lower layer applies again.
pub fn unset(home: &Path, name: &str) -> Result<KeyChange, ChangeError> {
    match find_target(name)? {
        ChangeTarget::Secret { variable, key } => change_secret(home, variable, key, dotenv::unset),
        ChangeTarget::File { key, path } => {
            let is_whole = path.len() == path_steps(key.path).len();
            change_key(
                home,
                &path,
                None,
                |old| {
                    if is_whole { unset_in(old, key) } else { edit::unset(old, &path) }
                },
            )
        }
    }
}

fn change_key(
    home: &Path,
    path: &[PathStep],
    value: Option<Value>,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<KeyChange, ChangeError> {
    let file = config_path(home);
    change_file(&acquire_lock(home)?, &file, FileMode::Preserve, edit)?;
    Ok(KeyChange { name: edit::dotted_path(path), file, value })
}

/// Changes the secrets file, and removes the same secret from `config.yaml`, where it is in clear
/// text.
fn change_secret(
    home: &Path,
    variable: String,
    key: Option<&ConfigKey>,
    edit: impl FnOnce(&str, &str) -> String,
) -> Result<KeyChange, ChangeError> {
    let file = dotenv_path(home);
    let lock = acquire_lock(home)?;
    change_file(&lock, &file, FileMode::Private, |old| Ok(edit(old, &variable)))?;
    if let Some(key) = key {
        change_file(&lock, &config_path(home), FileMode::Preserve, |old| unset_in(old, key))?;
    }
    Ok(KeyChange { name: key.map_or(variable, |key| key.path.to_owned()), file, value: None })
}

fn find_target(name: &str) -> Result<ChangeTarget, ChangeError> {
    if let Some(key) = keys::find(name) {
        return Ok(match key.visibility {
            Visibility::Secret => ChangeTarget::Secret { variable: key.variable.to_owned(), key: Some(key) },
            Visibility::Public => ChangeTarget::File { key, path: path_steps(key.path) },
        });
    }
    if let Some(target) = find_key_part(name) {
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
fn find_key_part(name: &str) -> Option<ChangeTarget> {
    keys::all().find_map(|key| {
        let part = name.strip_prefix(key.path)?.strip_prefix('.').filter(|part| !part.is_empty())?;
        let last = match key.accepted().schema.get("type")?.as_str()? {
            "object" => PathStep::Key(part.to_owned()),
            "array" => PathStep::Index(part.parse().ok()?),
            _ => return None,
        };
        let path = path_steps(key.path).into_iter().chain([last]).collect();
        Some(ChangeTarget::File { key, path })
    })
}

fn check_value(key: &ConfigKey, path: &[PathStep], text: &str) -> Result<Value, ChangeError> {
    let part = path.get(path_steps(key.path).len());
    let whole = match part {
        None => text.to_owned(),
        Some(PathStep::Index(_)) => json!([text]).to_string(),
        Some(PathStep::Key(part)) => json!({ part: text }).to_string(),
    };
    let name = || edit::dotted_path(path);
    let mut notes = Vec::new();
    let value = key.check(&Node::from_text(&whole), &mut notes).map_err(|invalid| ChangeError::Invalid {
        key: name(),
        expected: invalid.expected,
        found: invalid.found,
    })?;
    if let Some(note) = notes.first() {
        // A note ends with the consequence at startup, such as "; ignored".
        let reason = note.text.rsplit_once("; ").map_or(note.text.as_str(), |(reason, _)| reason);
        return Err(ChangeError::PartlyInvalid { key: name(), reason: reason.to_owned() });
    }
    let inner = match part {
        None => None,
        Some(PathStep::Index(_)) => value.get(0).cloned(),
        Some(PathStep::Key(part)) => value.get(part).cloned(),
    };
    Ok(inner.unwrap_or(value))
}

fn set_in(old: &str, key: &ConfigKey, path: &[PathStep], value: &Value) -> Result<String, EditError> {
    let mut text = old.to_owned();
    let root = yaml::parse(&text).map_err(EditError::Unreadable)?;
    if root.kind == NodeKind::Null && old.trim().is_empty() {
        text = edit::set(&text, &path_steps("_config_version"), &json!(keys::CONFIG_VERSION))?;
    }
    // `model: name` is short for `model.default`; another key of the section needs the long form.
    if let Some(model) = short_model(&root).filter(|_| key.path.starts_with("model.")) {
        text = edit::set(&text, &path_steps("model"), &json!({ "default": model.to_json() }))?;
    }
    for alias in key.aliases.iter().filter(|alias| lookup(&root, alias).is_some()) {
        text = match lookup(&root, key.path) {
            Some(_) => edit::unset(&text, &path_steps(alias))?,
            None => edit::rename(&text, &path_steps(alias), key.path.rsplit('.').next().unwrap_or(key.path))?,
        };
    }
    edit::set(&text, path, value)
}

/// The value of `model`, if it is the short form.
fn short_model(root: &Node) -> Option<&Node> {
    root.get("model").filter(|node| matches!(node.kind, NodeKind::Scalar { .. }))
}

/// The text without a key, in any spelling.
fn unset_in(old: &str, key: &ConfigKey) -> Result<String, EditError> {
    let root = yaml::parse(old).map_err(EditError::Unreadable)?;
    if key.path == "model.default" && short_model(&root).is_some() {
        return edit::unset(old, &path_steps("model"));
    }
    let mut paths = std::iter::once(&key.path).chain(key.aliases);
    paths.try_fold(old.to_owned(), |text, path| edit::unset(&text, &path_steps(path)))
}

fn acquire_lock(home: &Path) -> Result<ConfigLock, ChangeError> {
    ConfigLock::acquire(home).map_err(|error| ChangeError::Io { file: home.to_path_buf(), error })
}

/// Edits the text of a file and writes it if it changed.
fn change_file(
    lock: &ConfigLock,
    path: &Path,
    mode: FileMode,
    edit: impl FnOnce(&str) -> Result<String, EditError>,
) -> Result<(), ChangeError> {
    let io_error = |error| ChangeError::Io { file: path.to_path_buf(), error };
    let old = file::read(path).map_err(io_error)?.unwrap_or_default();
    let edit_error = |error| ChangeError::Edit { file: path.to_path_buf(), error };
    let old = String::from_utf8(old).map_err(|_| edit_error(EditError::NotText))?;
    let new = edit(&old).map_err(edit_error)?;
    if new == old { Ok(()) } else { lock.write(path, new.as_bytes(), mode).map_err(io_error) }
}

pub(crate) fn path_steps(path: &str) -> Vec<PathStep> {
    path.split('.').map(|part| PathStep::Key(part.to_owned())).collect()
}
