//! The known state of a script: variables, functions, working directory, and files it wrote.

use std::collections::HashMap;
use std::rc::Rc;

use super::syntax::SyntaxNode;
use super::*;
use crate::paths;

/// A longer value counts as unknown.
const MAX_VALUE_BYTES: usize = 4096;
/// A value with more pieces counts as unknown.
const MAX_PIECES: usize = 16;

#[derive(Debug, Clone, Default)]
pub(super) struct ShellEnv {
    variables: HashMap<String, Word>,
    pub(super) functions: HashMap<String, Rc<SyntaxNode>>,
    pub(super) aliases: HashMap<String, Word>,
    /// `None` if unknown.
    pub(super) cwd: Option<String>,
    /// Files that the script wrote, with their text if known.
    pub(super) files: HashMap<String, Option<Word>>,
    pub(super) positional: Option<Vec<Word>>,
}

impl ShellEnv {
    pub(super) fn new(around: &Surroundings<'_>) -> Self {
        let variables = [
            ("HOME", around.home),
            ("HERMES_HOME", around.hermes_home),
            ("IFS", " \t\n"),
            ("PWD", around.cwd),
        ]
        .into_iter()
        .map(|(name, value)| (name.to_owned(), Word::literal(value)))
        .collect();
        Self { variables, cwd: Some(paths::normalize(around.cwd)), ..Self::default() }
    }

    /// The cost of a copy.
    pub(super) fn size(&self) -> usize {
        4 * (self.variables.len() + self.functions.len() + self.files.len() + self.aliases.len())
    }

    /// Returns to the outer shell. Written files stay.
    pub(super) fn leave_for(&mut self, outer: Self) {
        let files = std::mem::take(&mut self.files);
        *self = outer;
        self.files = files;
    }

    pub(super) fn value(&self, name: &str) -> Option<Word> {
        if let Ok(index) = name.parse::<usize>() {
            return self.positional.as_ref()?.get(index.checked_sub(1)?).cloned();
        }
        match name {
            "@" | "*" => self.positional.as_deref().map(Word::joined),
            _ => self.variables.get(name).cloned(),
        }
    }

    pub(super) fn set(&mut self, name: &str, value: Word, certain: bool) {
        let unclear = value.outline().len() > MAX_VALUE_BYTES
            || value.pieces().len() > MAX_PIECES
            || (!certain && self.variables.get(name).is_some_and(|before| *before != value));
        let value = if unclear { Word::unknown(Unknown::Variable(name.to_owned())) } else { value };
        self.variables.insert(name.to_owned(), value);
    }

    pub(super) fn set_or_forget(&mut self, name: &str, value: Option<Word>, certain: bool) {
        match value {
            Some(value) => self.set(name, value, certain),
            None => self.forget(name),
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.set(name, Word::unknown(Unknown::Variable(name.to_owned())), true);
    }

    pub(super) fn separators(&self) -> Vec<char> {
        match self.variables.get("IFS").map(Word::pieces) {
            Some([WordPiece::Text(text)]) => text.chars().collect(),
            Some([]) => Vec::new(),
            _ => vec![' ', '\t', '\n'],
        }
    }

    /// The absolute path of a word, with unknown parts as a placeholder.
    pub(super) fn path(&self, word: &Word) -> String {
        paths::resolve(&word.outline(), self.cwd.as_deref())
    }
}
