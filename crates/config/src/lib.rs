//! The configuration: all keys, the sources of their values, and the domain values they resolve to.
//!
//! [`load`] reads `config.yaml`, `.env` and the environment into [`layers::Layers`] and produces a
//! typed [`keys::Config`] together with every [`layers::Problem`]. [`keys`] defines all keys.
//! [`change`] writes single values back, [`migrate`] rewrites a file of an older version.
//!
//! [`resolve`] turns settings into the values that the other crates work with: gates, environments,
//! models, chat accounts. Its functions take a [`ConfigContext`], a home with its loaded
//! configuration.
//!
//! Invariants: only this crate and `cli` read the environment and the configuration files. Defaults
//! are never written to disk. A file that cannot be parsed is never written.

pub mod change;
pub mod define;
pub mod dotenv;
pub mod edit;
pub mod failure;
pub mod file;
pub mod home;
pub mod keys;
pub mod layers;
pub mod migrate;
pub mod resolve;
pub mod schema;
pub mod secrets;
pub mod setting;
mod unknown;
mod unused;
pub mod yaml;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

pub use unknown::hint;

use dotenv::DotEnv;
use home::Home;
use keys::Config;
use layers::{LayerReader, Layers, Problem, ResolvedKey, Severity};
use yaml::{Node, NodeKind, Position, YamlError};

/// Shows a warning to the user.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// A home and its configuration as read at startup, valid or not.
pub struct ConfigContext {
    pub home: Home,
    pub loaded: LoadedConfig,
    warn: Warn,
}

impl ConfigContext {
    pub fn new(home: Home, loaded: LoadedConfig, warn: Warn) -> Self {
        Self { home, loaded, warn }
    }

    /// A variable of the process environment that is not blank.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.loaded.layers.process.get(name).map(String::as_str).filter(|value| !value.trim().is_empty())
    }

    /// Reads the configuration again after a change.
    pub fn reload(&self) -> LoadedConfig {
        load(self.home.path(), self.loaded.layers.process.clone())
    }

    pub fn warn(&self, message: &str) {
        (self.warn)(message);
    }
}

/// The configuration as read from all layers.
#[derive(Debug)]
pub struct LoadedConfig {
    pub layers: Layers,
    /// The typed values; `None` if there is an error.
    pub config: Option<Config>,
    /// All keys with their values and sources.
    pub resolved: Vec<ResolvedKey>,
    /// All problems, the most severe first.
    pub problems: Vec<Problem>,
    pub version: FileVersion,
}

/// The layout version that `config.yaml` declares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileVersion {
    /// There is no file.
    NoFile,
    /// The file declares no version.
    Missing,
    Number(u64),
}

impl LoadedConfig {
    /// The value and source of a key.
    pub fn resolved(&self, path: &str) -> Option<&ResolvedKey> {
        self.resolved.iter().find(|resolved| resolved.key.path == path)
    }

    /// The problems that prevent a start.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error)
    }
}

/// The path of `config.yaml` in a home.
pub fn config_path(home: &Path) -> PathBuf {
    home.join("config.yaml")
}

/// The path of the secrets file in a home.
pub fn dotenv_path(home: &Path) -> PathBuf {
    home.join(".env")
}

/// Reads all layers. Errors are reported in `problems`, and `config` is `None` then.
pub fn load(home: &Path, process: BTreeMap<String, String>) -> LoadedConfig {
    let mut problems = Vec::new();
    let file_path = config_path(home);
    let dotenv_path = dotenv_path(home);
    let (file, version) = match read_file(&file_path) {
        Ok(None) => (Node::null(), FileVersion::NoFile),
        Ok(Some(root)) => {
            let number = root.get("_config_version").and_then(|node| node.to_json().as_u64());
            (root, number.map_or(FileVersion::Missing, FileVersion::Number))
        }
        Err(error) => {
            problems.push(Problem {
                hint: Some("Fix it with `hermes config edit`; nothing was changed.".to_owned()),
                ..Problem::in_file(Severity::Error, &file_path, error.at, error.message)
            });
            (Node::null(), FileVersion::Missing)
        }
    };
    let dotenv = read_dotenv(&dotenv_path, &mut problems);
    problems.extend(unknown::report(&file, &file_path));
    if let FileVersion::Number(number) = version
        && number > keys::CONFIG_VERSION
    {
        let at = file.entry("_config_version").map_or(Position::default(), |entry| entry.at);
        let message = format!("version {number} is newer than this program's {}", keys::CONFIG_VERSION);
        problems.push(Problem {
            key: Some("_config_version".to_owned()),
            hint: Some("Unknown keys are ignored; use a newer hermes to change them.".to_owned()),
            ..Problem::in_file(Severity::Warning, &file_path, at, message)
        });
    }
    let layers = Layers { process, dotenv, dotenv_path, file, file_path };
    let mut reader = LayerReader::new(&layers);
    let config = Config::read(&mut reader);
    let LayerReader { resolved, problems: of_values, .. } = reader;
    problems.extend(of_values);
    problems.sort_by_key(|problem| (std::cmp::Reverse(problem.severity), problem.line));
    let has_errors = problems.iter().any(|problem| problem.severity == Severity::Error);
    LoadedConfig { layers, config: (!has_errors).then_some(config), resolved, problems, version }
}

fn read_file(path: &Path) -> Result<Option<Node>, YamlError> {
    let at_line = |line, message: String| YamlError { at: Position { line, column: 0 }, message };
    let bytes = match file::read(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return Ok(None),
        Err(error) => return Err(at_line(0, format!("cannot be read: {error}"))),
    };
    let text = String::from_utf8(bytes).map_err(|error| {
        let valid = error.as_bytes().iter().take(error.utf8_error().valid_up_to());
        at_line(valid.filter(|&&byte| byte == b'\n').count() + 1, "this line is not UTF-8".to_owned())
    })?;
    let root = yaml::parse(&text)?;
    match root.kind {
        NodeKind::Map(_) | NodeKind::Null => Ok(Some(root)),
        _ => {
            let message = format!("expected a map of settings, found {}", root.describe());
            Err(YamlError { at: root.at, message })
        }
    }
}

fn read_dotenv(path: &Path, problems: &mut Vec<Problem>) -> DotEnv {
    let mut report = |severity, line, message: String| {
        problems.push(Problem::in_file(severity, path, Position { line, column: 0 }, message));
    };
    match file::read(path) {
        Ok(None) => DotEnv::default(),
        Ok(Some(bytes)) => {
            let dotenv = DotEnv::parse(&String::from_utf8_lossy(&bytes));
            for invalid in &dotenv.invalid_lines {
                report(Severity::Warning, invalid.line, format!("{}; the line is ignored", invalid.reason));
            }
            dotenv
        }
        // The unreadable file may hold settings that confine an environment.
        Err(error) => {
            report(Severity::Error, 0, format!("cannot be read: {error}"));
            DotEnv::default()
        }
    }
}
