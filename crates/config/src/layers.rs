//! The sources of values, in their order: process environment, `.env`, `config.yaml`,
//! default.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::define::{ConfigKey, Visibility};
use super::dotenv::DotEnv;
use super::setting::{InvalidValue, Setting};
use super::yaml::{Node, NodeKind, Position};

/// All sources of values, read once.
#[derive(Debug, Clone)]
pub struct Layers {
    /// The process environment.
    pub process: BTreeMap<String, String>,
    /// The secrets file.
    pub dotenv: DotEnv,
    pub dotenv_path: PathBuf,
    /// The parsed `config.yaml`.
    pub file: Node,
    pub file_path: PathBuf,
}

/// The source of a value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Source {
    /// The process environment.
    Environment {
        variable: String,
    },
    /// The secrets file.
    #[serde(rename = ".env")]
    DotEnv {
        variable: String,
        line: usize,
    },
    /// The configuration file.
    #[serde(rename = "config.yaml")]
    File {
        /// The path in the file, which may be an older one.
        key: String,
        line: usize,
        column: usize,
    },
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Environment { variable } => write!(f, "environment, {variable}"),
            Self::DotEnv { variable, line } => write!(f, ".env, line {line}, {variable}"),
            Self::File { line, .. } => write!(f, "config.yaml, line {line}"),
            Self::Default => write!(f, "default"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Note,
    /// Something is ignored that the owner may want to fix.
    Warning,
    /// Hermes does not start until it is fixed.
    Error,
}

/// A problem of the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    pub severity: Severity,
    /// `None` for the environment and the command line.
    pub file: Option<PathBuf>,
    /// Starts at 1; 0 if unknown.
    pub line: usize,
    /// Starts at 1; 0 if unknown.
    pub column: usize,
    pub key: Option<String>,
    pub message: String,
    pub hint: Option<String>,
}

impl Problem {
    pub(crate) fn in_file(severity: Severity, file: &Path, at: Position, message: String) -> Self {
        let Position { line, column } = at;
        Self { severity, file: Some(file.to_owned()), line, column, key: None, message, hint: None }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}", file.display())?;
            match (self.line, self.column) {
                (0, _) => write!(f, ": ")?,
                (line, 0) => write!(f, ":{line}: ")?,
                (line, column) => write!(f, ":{line}:{column}: ")?,
            }
        }
        if let Some(key) = &self.key {
            write!(f, "{key}: ")?;
        }
        write!(f, "{}", self.message)
    }
}

/// A key with its value and source.
#[derive(Debug, Clone)]
pub struct ResolvedKey {
    pub key: &'static ConfigKey,
    /// The value as it is displayed.
    pub value: Value,
    pub source: Source,
    /// The values of lower layers, highest first.
    pub shadows: Vec<(Source, Value)>,
}

/// Reads keys from the layers and collects problems.
pub struct LayerReader<'a> {
    layers: &'a Layers,
    pub resolved: Vec<ResolvedKey>,
    pub problems: Vec<Problem>,
}

impl<'a> LayerReader<'a> {
    pub fn new(layers: &'a Layers) -> Self {
        Self { layers, resolved: Vec::new(), problems: Vec::new() }
    }

    /// The value of a key. An invalid value in any layer is an error, so the default returned for
    /// it here is never used.
    pub(crate) fn read_key<T: Setting>(
        &mut self,
        key: Option<&'static ConfigKey>,
        default: impl FnOnce() -> T,
    ) -> T {
        let Some(key) = key else { return default() };
        let mut values: Vec<(Source, Value)> = Vec::new();
        let mut winner = None;
        for (source, node) in self.candidates(key) {
            let mut notes = Vec::new();
            match key.check(&node, &mut notes) {
                Ok(value) => {
                    if winner.is_none() {
                        winner = T::read(&node, &mut Vec::new()).ok();
                    }
                    values.push((source.clone(), value));
                }
                Err(invalid) => self.problems.push(self.invalid_value(key, &source, &invalid)),
            }
            for note in notes {
                self.problems.push(self.problem_at(key, &source, note.at, note.text));
            }
            if key.visibility == Visibility::Secret && matches!(source, Source::File { .. }) {
                self.problems.push(Problem {
                    hint: Some(format!("Move it with `hermes config set {} -`.", key.path)),
                    ..self.problem_at(key, &source, node.at, "a secret in clear text".into())
                });
            }
        }
        values.push((Source::Default, (key.default)()));
        let (source, value) = values.remove(0);
        self.resolved.push(ResolvedKey { key, value, source, shadows: values });
        winner.unwrap_or_else(default)
    }

    fn candidates(&mut self, key: &'static ConfigKey) -> Vec<(Source, Node)> {
        let layers = self.layers;
        let is_set = |text: &str| !text.trim().is_empty();
        let variable = key.variable.to_owned();
        let mut found = Vec::new();
        if let Some(text) = layers.process.get(key.variable).filter(|text| is_set(text)) {
            found.push((Source::Environment { variable: variable.clone() }, Node::from_text(text)));
        }
        if let Some(entry) = layers.dotenv.get(key.variable).filter(|entry| is_set(&entry.value)) {
            found.push((Source::DotEnv { variable, line: entry.line }, Node::from_text(&entry.value)));
        }
        for path in std::iter::once(&key.path).chain(key.aliases) {
            if let Some(node) = lookup(&layers.file, path) {
                let Position { line, column } = node.at;
                let node = self.expand_variables(key, node);
                found.push((Source::File { key: (*path).to_owned(), line, column }, node));
            }
        }
        found
    }

    /// Replaces `${NAME}` by the value of the variable; an unset name is a problem and stays.
    fn expand_variables(&mut self, key: &'static ConfigKey, node: &Node) -> Node {
        let mut unset = Vec::new();
        let mut expanded = node.clone();
        expand(&mut expanded, &|name| self.layers.variable(name), &mut unset);
        for (at, name) in unset {
            let source = Source::File { key: key.path.into(), line: at.line, column: at.column };
            let message = format!("`${{{name}}}` is not set and stays as it is");
            self.problems.push(self.problem_at(key, &source, at, message));
        }
        expanded
    }

    fn invalid_value(&self, key: &ConfigKey, source: &Source, invalid: &InvalidValue) -> Problem {
        let found = match key.visibility {
            Visibility::Public => invalid.found.as_str(),
            Visibility::Secret => "something else",
        };
        let message = format!("expected {}, found {found}", invalid.expected);
        let hint = match source {
            Source::Environment { variable } => format!("Fix or unset {variable}."),
            _ => format!("See `hermes config explain {}`.", key.path),
        };
        let problem = self.problem_at(key, source, invalid.at, message);
        Problem { severity: Severity::Error, hint: Some(hint), ..problem }
    }

    /// A warning about a key.
    fn problem_at(&self, key: &ConfigKey, source: &Source, at: Position, message: String) -> Problem {
        let (file, at, message) = match source {
            Source::File { .. } => (Some(&self.layers.file_path), at, message),
            Source::DotEnv { line, variable } => {
                let at = Position { line: *line, column: 0 };
                (Some(&self.layers.dotenv_path), at, format!("{variable}: {message}"))
            }
            Source::Environment { variable } => (None, Position::default(), format!("{variable}: {message}")),
            Source::Default => (None, Position::default(), message),
        };
        let (key, Position { line, column }) = (Some(key.path.to_owned()), at);
        Problem { severity: Severity::Warning, file: file.cloned(), line, column, key, message, hint: None }
    }
}

impl Layers {
    /// A variable of the process, or of the secrets file if the process has none or an empty one.
    pub fn variable(&self, name: &str) -> Option<String> {
        let process = self.process.get(name).filter(|value| !value.is_empty());
        process.cloned().or_else(|| self.dotenv.get(name).map(|entry| entry.value.clone()))
    }

    /// Like [`Self::variable`], but blank values count as missing.
    pub fn non_blank_variable(&self, name: &str) -> Option<String> {
        let process = self.process.get(name);
        let dotenv = self.dotenv.get(name).map(|entry| &entry.value);
        [process, dotenv].into_iter().flatten().find(|value| !value.trim().is_empty()).cloned()
    }
}

/// The value at a dotted path. `model: name` is short for `model.default`.
pub(crate) fn lookup<'n>(root: &'n Node, path: &str) -> Option<&'n Node> {
    let mut node = root;
    for part in path.split('.') {
        if let (NodeKind::Scalar { .. }, "model.default") = (&node.kind, path) {
            return Some(node);
        }
        node = node.get(part)?;
    }
    (node.kind != NodeKind::Null).then_some(node)
}

fn expand(node: &mut Node, variable: &dyn Fn(&str) -> Option<String>, unset: &mut Vec<(Position, String)>) {
    match &mut node.kind {
        NodeKind::Scalar { text, .. } => {
            let mut result = String::new();
            let mut rest = text.as_str();
            while let Some((before, after)) = rest.split_once("${") {
                let Some((name, behind)) = after.split_once('}') else { break };
                result.push_str(before);
                match variable(name) {
                    Some(value) => result.push_str(&value),
                    None => {
                        unset.push((node.at, name.to_owned()));
                        result.push_str(&format!("${{{name}}}"));
                    }
                }
                rest = behind;
            }
            result.push_str(rest);
            *text = result;
        }
        NodeKind::Null => {}
        NodeKind::List(items) => items.iter_mut().for_each(|item| expand(item, variable, unset)),
        NodeKind::Map(entries) => {
            entries.iter_mut().for_each(|entry| expand(&mut entry.value, variable, unset));
        }
    }
}
