//! Which value counts: flag, process environment, `.env`, `config.yaml`, default, for every key alike.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::define::{ConfigKey, Visibility};
use super::dotenv::DotEnv;
use super::setting::{InvalidValue, Setting, SettingNote};
use super::yaml::{Node, NodeKind, Position};

/// Everything a value can come from, read once.
#[derive(Debug, Clone)]
pub struct Layers {
    /// Values given on the command line, by path.
    pub flags: BTreeMap<String, String>,
    /// The process environment.
    pub process: BTreeMap<String, String>,
    /// The secrets file.
    pub dotenv: DotEnv,
    /// Where the secrets file is.
    pub dotenv_path: PathBuf,
    /// The parsed `config.yaml`.
    pub file: Node,
    /// Where it is.
    pub file_path: PathBuf,
}

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub enum Source {
    /// The command line.
    Flag,
    /// The process environment.
    Environment {
        /// The variable.
        variable: String,
    },
    /// The secrets file.
    #[serde(rename = ".env")]
    DotEnv {
        /// The variable.
        variable: String,
        /// Its line.
        line: usize,
    },
    /// The configuration file.
    #[serde(rename = "config.yaml")]
    File {
        /// The path it was found under, an older one perhaps.
        key: String,
        /// Its line.
        line: usize,
        /// Its column.
        column: usize,
    },
    /// Nobody set it.
    Default,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "command line"),
            Self::Environment { variable } => write!(f, "environment, {variable}"),
            Self::DotEnv { variable, line } => write!(f, ".env, line {line}, {variable}"),
            Self::File { line, .. } => write!(f, "config.yaml, line {line}"),
            Self::Default => write!(f, "default"),
        }
    }
}

/// How bad something is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Good to know.
    Note,
    /// Something was ignored that the owner may want to mend.
    Warning,
    /// Nothing starts until it is mended.
    Error,
}

/// Something wrong with the configuration.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// How bad it is.
    pub severity: Severity,
    /// The file, or `None` for the environment and the command line.
    pub file: Option<PathBuf>,
    /// The line, from 1; 0 where there is none.
    pub line: usize,
    /// The column, from 1; 0 where there is none.
    pub column: usize,
    /// The key, where it is about one.
    pub key: Option<String>,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: Option<String>,
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

/// One key with its value and where it came from.
#[derive(Debug, Clone)]
pub struct ResolvedKey {
    /// The key.
    pub key: &'static ConfigKey,
    /// The value as it is shown.
    pub value: Value,
    /// Where it came from.
    pub source: Source,
    /// The values that would count without it, highest first.
    pub shadows: Vec<(Source, Value)>,
}

/// Reads keys from the layers, and collects what is wrong on the way.
pub struct LayerReader<'a> {
    layers: &'a Layers,
    /// What was read so far.
    pub resolved: Vec<ResolvedKey>,
    /// What is wrong so far.
    pub problems: Vec<Problem>,
}

impl<'a> LayerReader<'a> {
    /// A reader at the first key.
    pub fn new(layers: &'a Layers) -> Self {
        Self { layers, resolved: Vec::new(), problems: Vec::new() }
    }

    /// The value of a key. When a layer holds a wrong one the problem is an error, so that the default given
    /// back here is never used.
    pub(crate) fn read_key<T: Setting>(
        &mut self,
        key: Option<&'static ConfigKey>,
        default: impl FnOnce() -> T,
    ) -> T {
        let Some(key) = key else { return default() };
        let mut found: Vec<(Source, Value)> = Vec::new();
        let mut winner = None;
        for (source, node) in self.candidates(key) {
            let mut notes = Vec::new();
            match (key.check)(&node, &mut notes) {
                Ok(shown) => {
                    if winner.is_none() {
                        winner = T::read(&node, &mut Vec::new()).ok();
                    }
                    found.push((source.clone(), shown));
                }
                Err(wrong) => self.problems.push(self.wrong(key, &source, &wrong)),
            }
            for note in notes {
                self.problems.push(self.dropped(key, &source, note));
            }
            if key.visibility == Visibility::Secret && matches!(source, Source::File { .. }) {
                self.problems.push(Problem {
                    severity: Severity::Warning,
                    hint: Some(format!("move it with `hermes config set {} -`", key.path)),
                    ..self.at(key, &source, node.at, "a secret in clear text".into())
                });
            }
        }
        let value = winner.unwrap_or_else(default);
        if found.is_empty() {
            found.push((Source::Default, value.show()));
        } else {
            found.push((Source::Default, (key.default)()));
        }
        let (source, shown) = found.remove(0);
        self.resolved.push(ResolvedKey { key, value: shown, source, shadows: found });
        value
    }

    fn candidates(&mut self, key: &'static ConfigKey) -> Vec<(Source, Node)> {
        let layers = self.layers;
        let counts = |text: &str| !text.trim().is_empty();
        let variable = key.variable.to_owned();
        let mut found = Vec::new();
        if let Some(text) = layers.flags.get(key.path) {
            found.push((Source::Flag, Node::from_text(text)));
        }
        if let Some(text) = layers.process.get(key.variable).filter(|text| counts(text)) {
            found.push((Source::Environment { variable: variable.clone() }, Node::from_text(text)));
        }
        if let Some(entry) = layers.dotenv.get(key.variable).filter(|entry| counts(&entry.value)) {
            found.push((Source::DotEnv { variable, line: entry.line }, Node::from_text(&entry.value)));
        }
        for path in std::iter::once(&key.path).chain(key.aliases) {
            if let Some(node) = lookup(&layers.file, path) {
                let Position { line, column } = node.at;
                let node = self.expanded(key, node);
                found.push((Source::File { key: (*path).to_owned(), line, column }, node));
            }
        }
        found
    }

    /// The node with `${NAME}` replaced by values of the environment; an unknown name stays as it is.
    fn expanded(&mut self, key: &'static ConfigKey, node: &Node) -> Node {
        let mut unknown = Vec::new();
        let expanded = expand(node, &|name| self.layers.variable(name), &mut unknown);
        for (at, name) in unknown {
            let source = Source::File { key: key.path.into(), line: at.line, column: at.column };
            let message = format!("`${{{name}}}` is not set and stays as it is");
            self.problems.push(self.at(key, &source, at, message));
        }
        expanded
    }

    fn wrong(&self, key: &ConfigKey, source: &Source, wrong: &InvalidValue) -> Problem {
        let found = match key.visibility {
            Visibility::Public => wrong.found.as_str(),
            Visibility::Secret => "something else",
        };
        let message = format!("expected {}, found {found}", wrong.expected);
        let hint = match source {
            Source::Environment { variable } => Some(format!("fix or unset {variable}")),
            _ => Some(format!("see `hermes config explain {}`", key.path)),
        };
        Problem { severity: Severity::Error, hint, ..self.at(key, source, wrong.at, message) }
    }

    fn dropped(&self, key: &ConfigKey, source: &Source, note: SettingNote) -> Problem {
        self.at(key, source, note.at, note.text)
    }

    fn at(&self, key: &ConfigKey, source: &Source, at: Position, message: String) -> Problem {
        let (file, line, column, message) = match source {
            Source::File { .. } => (Some(self.layers.file_path.clone()), at.line, at.column, message),
            Source::DotEnv { line, variable } => {
                (Some(self.layers.dotenv_path.clone()), *line, 0, format!("{variable}: {message}"))
            }
            Source::Environment { variable } => (None, 0, 0, format!("{variable}: {message}")),
            Source::Flag | Source::Default => (None, 0, 0, message),
        };
        let key = Some(key.path.to_owned());
        Problem { severity: Severity::Warning, file, line, column, key, message, hint: None }
    }
}

impl Layers {
    /// A variable of the process, or of the secrets file where the process has none or an empty one.
    pub fn variable(&self, name: &str) -> Option<String> {
        let process = self.process.get(name).filter(|value| !value.is_empty());
        process.cloned().or_else(|| self.dotenv.get(name).map(|entry| entry.value.clone()))
    }

    /// The same, but what is blank is as good as not there.
    pub fn non_blank_variable(&self, name: &str) -> Option<String> {
        let process = self.process.get(name);
        let dotenv = self.dotenv.get(name).map(|entry| &entry.value);
        [process, dotenv].into_iter().flatten().find(|value| !value.trim().is_empty()).cloned()
    }
}

/// The value at a dotted path. A plain `model: name` stands for `model.default`.
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

fn expand(
    node: &Node,
    variable: &dyn Fn(&str) -> Option<String>,
    unknown: &mut Vec<(Position, String)>,
) -> Node {
    let mut node = node.clone();
    match &mut node.kind {
        NodeKind::Null => {}
        NodeKind::Scalar { text, .. } if text.contains("${") => {
            let mut result = String::new();
            let mut rest = text.as_str();
            while let Some((before, after)) = rest.split_once("${") {
                result.push_str(before);
                match after.split_once('}') {
                    Some((name, behind)) => {
                        match variable(name) {
                            Some(value) => result.push_str(&value),
                            None => {
                                unknown.push((node.at, name.to_owned()));
                                result.push_str(&format!("${{{name}}}"));
                            }
                        }
                        rest = behind;
                    }
                    None => {
                        result.push_str("${");
                        rest = after;
                    }
                }
            }
            result.push_str(rest);
            *text = result;
        }
        NodeKind::Scalar { .. } => {}
        NodeKind::List(items) => items.iter_mut().for_each(|item| *item = expand(item, variable, unknown)),
        NodeKind::Map(entries) => {
            entries.iter_mut().for_each(|entry| entry.value = expand(&entry.value, variable, unknown));
        }
    }
    node
}
