//! The configuration: every key, where its value comes from, and what it means to the other crates.
//!
//! [`load`] reads `config.yaml`, `.env` and the environment into [`layers::Layers`] and produces a typed
//! [`keys::Config`] together with every [`layers::Problem`]. [`keys`] defines all keys. [`change`] writes single
//! values back, [`migrate`] rewrites a file of an older version.
//!
//! [`resolve`] turns settings into the values the other crates work with: gates, environments, models, chat
//! accounts. Its functions take an [`ConfigContext`], which is a home with its loaded configuration.
//!
//! Invariants: only this crate and `cli` read the environment and the configuration files. Defaults are never
//! written to disk. A file that cannot be parsed is never written.

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
use yaml::{Node, NodeKind, Position};

/// Shows a warning to the user.
pub type Warn = Arc<dyn Fn(&str) + Send + Sync>;

/// A home and its configuration as it was read at the start, whether or not it is valid.
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

    /// Reads the configuration again, after a change.
    pub fn reload(&self) -> LoadedConfig {
        load(self.home.path(), self.loaded.layers.process.clone(), self.loaded.layers.flags.clone())
    }

    /// The same home with its configuration read again.
    #[must_use]
    pub fn reloaded(&self) -> Self {
        Self { home: self.home.clone(), loaded: self.reload(), warn: Arc::clone(&self.warn) }
    }

    pub fn warn(&self, message: &str) {
        (self.warn)(message);
    }
}

/// The configuration as it was found.
#[derive(Debug)]
pub struct LoadedConfig {
    /// What the values come from.
    pub layers: Layers,
    /// The typed values, unless something is wrong that stops the start.
    pub config: Option<Config>,
    /// Every key with its value and source.
    pub resolved: Vec<ResolvedKey>,
    /// What is wrong, worst first.
    pub problems: Vec<Problem>,
    /// The version the file says it has.
    pub version: FileVersion,
}

/// What a file says of its own layout.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileVersion {
    /// There is no file.
    NoFile,
    /// The file does not say.
    Missing,
    /// This number.
    Number(u64),
}

impl LoadedConfig {
    /// The key's value and source.
    pub fn resolved(&self, path: &str) -> Option<&ResolvedKey> {
        self.resolved.iter().find(|resolved| resolved.key.path == path)
    }

    /// The problems that stop the start.
    pub fn errors(&self) -> impl Iterator<Item = &Problem> {
        self.problems.iter().filter(|problem| problem.severity == Severity::Error)
    }
}

/// Where `config.yaml` is in a home.
pub fn config_path(home: &Path) -> PathBuf {
    home.join("config.yaml")
}

/// Where the secrets file is in a home.
pub fn dotenv_path(home: &Path) -> PathBuf {
    home.join(".env")
}

/// Reads everything there is. It does not fail: what is wrong is in `problems`, and `config` is missing then.
pub fn load(home: &Path, process: BTreeMap<String, String>, flags: BTreeMap<String, String>) -> LoadedConfig {
    let mut problems = Vec::new();
    let file_path = config_path(home);
    let dotenv_path = dotenv_path(home);
    let (file, version) = read_file(&file_path, &mut problems);
    let dotenv = read_dotenv(&dotenv_path, &mut problems);
    problems.extend(unknown::report(&file, &file_path));
    if let FileVersion::Number(number) = version
        && number > keys::CONFIG_VERSION
    {
        let message = format!("version {number} is newer than this program's {}", keys::CONFIG_VERSION);
        let hint = Some("keys it does not know are ignored; use a newer hermes to change them".to_owned());
        problems.push(about_version(&file, &file_path, Severity::Warning, message, hint));
    }
    let layers = Layers { flags, process, dotenv, dotenv_path, file, file_path };
    let mut reader = LayerReader::new(&layers);
    let config = Config::read(&mut reader);
    let LayerReader { resolved, problems: found, .. } = reader;
    problems.extend(found);
    problems.sort_by_key(|problem| (std::cmp::Reverse(problem.severity), problem.line));
    let broken = problems.iter().any(|problem| problem.severity == Severity::Error);
    LoadedConfig { layers, config: (!broken).then_some(config), resolved, problems, version }
}

fn about_version(
    file: &Node,
    path: &Path,
    severity: Severity,
    message: String,
    hint: Option<String>,
) -> Problem {
    let at = file.entry("_config_version").map_or(Position::default(), |entry| entry.at);
    Problem {
        severity,
        file: Some(path.to_path_buf()),
        line: at.line,
        column: at.column,
        key: Some("_config_version".to_owned()),
        message,
        hint,
    }
}

fn read_file(path: &Path, problems: &mut Vec<Problem>) -> (Node, FileVersion) {
    let nothing =
        || Node { kind: NodeKind::Null, at: Position::default(), span: 0..0, origin: yaml::NodeOrigin::Own };
    let mut broken = |line, column, message: String| {
        problems.push(Problem {
            severity: Severity::Error,
            file: Some(path.to_path_buf()),
            line,
            column,
            key: None,
            message,
            hint: Some("Fix it with `hermes config edit`; nothing was changed.".to_owned()),
        });
    };
    let bytes = match file::read(path) {
        Ok(Some(bytes)) => bytes,
        Ok(None) => return (nothing(), FileVersion::NoFile),
        Err(error) => {
            broken(0, 0, format!("cannot be read: {error}"));
            return (nothing(), FileVersion::Missing);
        }
    };
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            let line = error.as_bytes().iter().take(valid).filter(|&&byte| byte == b'\n').count() + 1;
            broken(line, 0, "this line is not UTF-8".to_owned());
            return (nothing(), FileVersion::Missing);
        }
    };
    match yaml::parse(&text) {
        Ok(root) if matches!(root.kind, NodeKind::Map(_) | NodeKind::Null) => {
            let number = root.get("_config_version").and_then(|node| node.to_json().as_u64());
            (root, number.map_or(FileVersion::Missing, FileVersion::Number))
        }
        Ok(root) => {
            broken(
                root.at.line,
                root.at.column,
                format!("expected a map of settings, found {}", root.describe()),
            );
            (nothing(), FileVersion::Missing)
        }
        Err(error) => {
            broken(error.at.line, error.at.column, error.message);
            (nothing(), FileVersion::Missing)
        }
    }
}

fn read_dotenv(path: &Path, problems: &mut Vec<Problem>) -> DotEnv {
    let mut report = |severity, line, message: String| {
        let file = Some(path.to_path_buf());
        problems.push(Problem { severity, file, line, column: 0, key: None, message, hint: None });
    };
    match file::read(path) {
        Ok(None) => DotEnv::default(),
        Ok(Some(bytes)) => {
            let dotenv = DotEnv::parse(&String::from_utf8_lossy(&bytes));
            for bad in &dotenv.invalid_lines {
                report(Severity::Warning, bad.line, format!("{}; the line is ignored", bad.reason));
            }
            dotenv
        }
        // A secrets file that cannot be read may hold what keeps a place confined.
        Err(error) => {
            report(Severity::Error, 0, format!("cannot be read: {error}"));
            DotEnv::default()
        }
    }
}
